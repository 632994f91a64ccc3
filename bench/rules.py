"""How long a match takes among thousands of rules, and the loop's longest wait while they are read again: `python -m bench.rules`; no broker, no model."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from agents.rules.files import load_rules
from agents.rules.index import RuleSet
from agents.rules.live import LiveRules
from schemas.settings_ladder import Rules

TARGET_US = 200.0
"""What a match may take at p99, so that looking for a rule first costs an event nothing that it would notice."""

LETTERS = "abcdefghijklmnopqrstuvwxyz"
HAN = (
    "".join(chr(code) for code in range(0x4E00, 0x4E00 + 1500))
    + "退款订单查询支付密码修改地址物流发票优惠会员充值账户余额绑定手机客服投诉取消申请审核时间活动奖励任务装备等级副本队伍公会好友消息"
)


def main() -> None:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.rules")
    parser.add_argument("--rules", type=int, default=5000, help="rules in the set")
    parser.add_argument("--patterns", type=int, default=500, help="how many of them have a pattern and no keyword")
    parser.add_argument("--chars", type=int, default=500, help="characters of a text")
    parser.add_argument("--known", type=float, default=0.5, help="share of a text's words that are of the rules' 8000; the others bring nothing up")
    parser.add_argument("--texts", type=int, default=4000, help="texts to match, each once")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    words, others = list(make_words(chance, 8000)), list(make_words(chance, 8000))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rules.toml"
        file.write_text("\n".join(make_rule(chance, words, number, arguments.rules, arguments.patterns) for number in range(arguments.rules)), encoding="utf-8")
        settings = Rules(files=(str(file),), reload_s=0.1)
        began = time.perf_counter()
        ruleset = load_rules(settings)
        result: dict[str, object] = {"rules": ruleset.count, "load_ms": round((time.perf_counter() - began) * 1000)}
        texts = [
            make_text(chance, words if arguments.known >= 1 else mixed(chance, words, others, arguments.known), arguments.chars, chinese=number % 4 == 3)
            for number in range(arguments.texts)
        ]
        result["match_us"] = measure(ruleset, texts)
        result["reload_loop_wait_ms"], changed = asyncio.run(reload(settings, file))
        result["match_after_reload_us"] = measure(changed, texts)
    result["target_p99_us"] = TARGET_US
    print(json.dumps(result) if arguments.json else "\n".join(f"{name:22} {value}" for name, value in result.items()))


def make_words(chance: random.Random, count: int) -> Iterator[str]:
    """Made-up words, every fifth one Chinese."""
    for number in range(count):
        if number % 5 == 4:
            yield "".join(chance.choices(HAN, k=chance.randint(2, 4)))
        else:
            yield "".join(chance.choices(LETTERS, k=chance.randint(3, 9)))


def make_rule(chance: random.Random, words: list[str], number: int, rules: int, patterns: int) -> str:
    """One rule as a file writes it. Words are drawn so that some are in hundreds of rules, as they are in life."""
    one, two, three = (words[int(len(words) * chance.random() ** 2)] for _ in range(3))
    if number % rules < patterns:
        pattern = chance.choice([rf"\b{one}\s+(?P<id>[A-Z]{{2}}\d{{4,8}})", rf"(?:{one}|{two})\s+my\s+\w+", rf"how (?:do|can) i {one}\b.*{two}"])
        match = f"pattern = '{pattern}'"
    elif number % 10 == 0:
        match = f'scenarios = ["quest-{number % 300}"], state = {{ "quest.step" = {number}, level = {{ min = {number % 60} }} }}'
    else:
        match = f'any = ["{one} {two}", "{three}"], all = ["{two}"], none = ["{words[number % len(words)]}"]'
    return f'[[rules]]\nname = "r{number}"\npriority = {number % 7}\nmatch = {{ {match} }}\nanswer.en = "Answer {number} for {{state.name|you}}."\n'


def mixed(chance: random.Random, words: list[str], others: list[str], known: float) -> list[str]:
    """Words of both kinds, `known` of them of the first."""
    return chance.sample(words, int(1200 * known)) + chance.sample(others, int(1200 * (1 - known)))


def make_text(chance: random.Random, words: list[str], chars: int, *, chinese: bool) -> str:
    """A message of made-up words, in a language of its own."""
    picked = [word for word in chance.sample(words, min(len(words), 600)) if word.isascii() != chinese]
    return ("" if chinese else " ").join(picked)[:chars]


def measure(ruleset: RuleSet, texts: list[str]) -> dict[str, float]:
    """Microseconds of a whole match, each text once; the first ones are left out, for RE2 builds its automata as it reads."""
    state = {"quest": {"step": 4711}, "level": 30, "name": "Mei"}
    taken: list[float] = []
    used: list[float] = []
    matched = 0
    gc.collect()
    gc.freeze()  # as a worker does after its start
    for number, text in enumerate(texts):
        began, spent = time.perf_counter(), time.thread_time()
        found = ruleset.match(text, scenario=f"quest-{number % 300}", state=state)
        used.append((time.thread_time() - spent) * 1e6)
        taken.append((time.perf_counter() - began) * 1e6)
        matched += found is not None
    lead = len(texts) // 10
    return {
        **{name: _quantile(taken[lead:], share) for name, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1.0))},
        "cpu_p99": _quantile(used[lead:], 0.99),
        "cold_max": round(max(taken[:lead]), 1),
        "matched_share": round(matched / len(texts), 3),
    }


def _quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 1)


def change(file: Path) -> None:
    """One rule says something else."""
    file.write_text(file.read_text(encoding="utf-8").replace("Answer 1 ", "Answer one "), encoding="utf-8")


async def reload(settings: Rules, file: Path) -> tuple[float, RuleSet]:
    """The milliseconds that the loop was kept at most while the changed file was read, checked and compiled in its thread; and the new rules."""
    told = asyncio.Event()
    live = LiveRules(settings, on_reload=lambda _ok, _rules, _problem: told.set())
    await live.start()
    try:
        change(file)
        longest = 0.0
        async with asyncio.timeout(60):
            while not told.is_set():
                began = time.perf_counter()
                await asyncio.sleep(0)
                longest = max(longest, time.perf_counter() - began)
        return round(longest * 1000, 2), live.current
    finally:
        await live.stop()


if __name__ == "__main__":
    main()
