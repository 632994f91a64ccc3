"""How long a match takes among thousands of rules, and the loop's longest wait while they are read again: `python -m bench.rules`; no broker, no model."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from agents.rules.files import load_rules
from agents.rules.index import RuleSet
from agents.rules.live import LiveRules
from schemas.settings_ladder import Rules

TARGET_WAIT_MS = 5.0
"""What nothing may keep the event loop for."""

TURN_S = 0.001

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
        kinds = {"mixed": make_mixed(chance, words, others, arguments), **make_worst(chance, words, others, arguments)}
        result["match_us"] = {kind: measure(ruleset, asked) for kind, asked in kinds.items()}
        waits, changed = uvloop.run(reload(settings, file))
        result["reload_ms"] = waits
        result["match_after_reload_us"] = {kind: measure(changed, asked) for kind, asked in kinds.items()}
    result["target_p99_us"], result["target_loop_wait_ms"] = TARGET_US, TARGET_WAIT_MS
    print(json.dumps(result) if arguments.json else "\n".join(shown(result)))


def shown(result: dict[str, object]) -> Iterator[str]:
    """One line a figure, one a kind of text."""
    for name, value in result.items():
        if isinstance(value, dict) and all(isinstance(inner, dict) for inner in value.values()):
            yield from (f"{name:22} {kind:12} {inner}" for kind, inner in value.items())
        else:
            yield f"{name:22} {value}"


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
        place = ', locales = ["zh", "en"]' if number % 10 == 5 else f', scenarios = ["quest-{number % 300}", "default"]' if number % 10 == 7 else ""
        match = f'any = ["{one} {two}", "{three}"], all = ["{two}"], none = ["{words[number % len(words)]}"]{place}'
    return f'[[rules]]\nname = "r{number}"\npriority = {number % 7}\nmatch = {{ {match} }}\nanswer.en = "Answer {number} for {{state.name|you}}."\n'


@dataclass(frozen=True, slots=True)
class Asked:
    """What a rung would ask."""

    text: str
    scenario: str
    locale: str
    state: dict[str, Any]


STATE: dict[str, Any] = {"quest": {"step": 4711}, "level": 30, "name": "Mei"}


def make_mixed(chance: random.Random, words: list[str], others: list[str], arguments: argparse.Namespace) -> list[Asked]:
    """Messages as they may come: three of four in English, `known` of the words in some rule."""
    return [
        Asked(
            make_text(chance, words if arguments.known >= 1 else mixed(chance, words, others, arguments.known), arguments.chars, chinese=number % 4 == 3),
            f"quest-{number % 300}",
            "en",
            STATE,
        )
        for number in range(arguments.texts)
    ]


def make_worst(chance: random.Random, words: list[str], others: list[str], arguments: argparse.Namespace) -> dict[str, list[Asked]]:
    """What is hard, each kind by itself; fewer texts of each."""
    count, chars, head = arguments.texts // 4, arguments.chars, words[:400]

    def asked(text: str, number: int, locale: str = "en", state: dict[str, Any] = STATE) -> Asked:
        return Asked(text[:chars], f"quest-{number % 300}", locale, state)

    def patterned(number: int) -> str:
        parts = (f"how can i {chance.choice(words)} {chance.choice(head)} my {chance.choice(others)}" for _ in range(20))
        return " ".join(part for part in parts if part.isascii()) + f" {number}"

    chinese = [make_text(chance, mixed(chance, words, others, arguments.known), chars, chinese=True) for _ in range(count)]
    return {
        "chinese": [asked(text, number, ("zh-Hans-CN", "zh", "ja")[number % 3]) for number, text in enumerate(chinese)],
        "all known": [asked(make_text(chance, words, chars, chinese=number % 4 == 3), number) for number in range(count)],
        "common words": [asked(" ".join(chance.sample(head, 200)), number) for number in range(count)],
        "patterns": [asked(patterned(number), number) for number in range(count)],
        "one word": [asked(f"{word} " * chars, number) for number, word in enumerate(chance.choices(words, k=count))],
        "state": [
            asked(make_text(chance, mixed(chance, words, others, arguments.known), chars, chinese=False), number, state=make_state(number))
            for number in range(count)
        ],
    }


def make_state(number: int) -> dict[str, Any]:
    """A large state, of whose keys the rules ask for some."""
    return {
        "quest": {"step": number * 10, **{f"k{inner}": inner for inner in range(50)}},
        "level": number % 60,
        **{f"item{inner}": inner for inner in range(200)},
    }


def mixed(chance: random.Random, words: list[str], others: list[str], known: float) -> list[str]:
    """Words of both kinds, `known` of them of the first."""
    return chance.sample(words, int(1200 * known)) + chance.sample(others, int(1200 * (1 - known)))


def make_text(chance: random.Random, words: list[str], chars: int, *, chinese: bool) -> str:
    """A message of made-up words, in a language of its own."""
    picked = [word for word in chance.sample(words, min(len(words), 600)) if word.isascii() != chinese]
    return ("" if chinese else " ").join(picked)[:chars]


def measure(ruleset: RuleSet, texts: list[Asked]) -> dict[str, float]:
    """Microseconds of a whole match, each text once; the first ones are left out, for RE2 builds its automata as it reads.

    `again_p99` is of each text's best in three more rounds: what remains of the tail when the machine has nothing else to do.
    """
    gc.collect()
    gc.freeze()  # as a worker does after its start
    taken, used, matched = _round(ruleset, texts)
    best = [min(times) for times in zip(*(_round(ruleset, texts)[0] for _ in range(3)), strict=True)]
    lead = len(texts) // 10
    return {
        **{name: _quantile(taken[lead:], share) for name, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1.0))},
        "cpu_p99": _quantile(used[lead:], 0.99),
        "again_p50": _quantile(best[lead:], 0.5),
        "again_p99": _quantile(best[lead:], 0.99),
        "cold_max": round(max(taken[:lead]), 1),
        "matched_share": round(matched / len(texts), 3),
    }


def _round(ruleset: RuleSet, texts: list[Asked]) -> tuple[list[float], list[float], int]:
    taken: list[float] = []
    used: list[float] = []
    matched = 0
    for asked in texts:
        began, spent = time.perf_counter(), time.thread_time()
        found = ruleset.match(asked.text, scenario=asked.scenario, locale=asked.locale, state=asked.state)
        used.append((time.thread_time() - spent) * 1e6)
        taken.append((time.perf_counter() - began) * 1e6)
        matched += found is not None
    return taken, used, matched


def _quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 1)


def change(file: Path) -> None:
    """One rule says something else."""
    file.write_text(file.read_text(encoding="utf-8").replace("Answer 1 ", "Answer one "), encoding="utf-8")


@dataclass(slots=True)
class Waits:
    """How much later than asked for a loop's turns came; `held` is how much of it the interpreter can have been kept by the threads that read or let go rules.

    That is: neither more than the processor time that those spent meanwhile, nor the time that the loop's own thread was waiting for a core.
    """

    late_ms: list[float]
    held_ms: list[float]

    def figures(self) -> dict[str, float]:
        """In milliseconds; `held` does not know other programs' load, `late` does."""
        return {
            "turns": len(self.late_ms),
            "late_p99": _quantile(self.late_ms, 0.99),
            "late_max": _quantile(self.late_ms, 1.0),
            "held_p99": _quantile(self.held_ms, 0.99),
            "held_max": _quantile(self.held_ms, 1.0),
        }


async def reload(settings: Rules, file: Path) -> tuple[dict[str, dict[str, float]], RuleSet]:
    """The loop's turns while nothing happens, and while the changed file is read, checked, compiled and put in force; and the new rules."""
    told = asyncio.Event()
    live = LiveRules(settings, on_reload=lambda _ok, _rules, _problem: told.set())
    gc.collect()
    gc.freeze()
    await live.start()
    try:
        idle = await watch_turns(asyncio.create_task(asyncio.sleep(1)))
        change(file)
        began = time.perf_counter()
        busy = await watch_turns(asyncio.create_task(told.wait()))
        took = (time.perf_counter() - began) * 1000
        return {"idle": idle.figures(), "while_reading": {"took": round(took), **busy.figures()}}, live.current
    finally:
        await live.stop()


async def watch_turns(until: asyncio.Task[Any]) -> Waits:
    """A turn each millisecond, until the task ends; at most a minute."""
    waits = Waits([], [])
    async with asyncio.timeout(60):
        while not until.done():
            began, spent, waited = time.perf_counter(), _spent_reading(), _waited_for_a_core()
            await asyncio.sleep(TURN_S)
            late = max(0.0, time.perf_counter() - began - TURN_S)
            waits.late_ms.append(late * 1000)
            waits.held_ms.append(max(0.0, min(late - (_waited_for_a_core() - waited), _spent_reading() - spent)) * 1000)
    return waits


def _waited_for_a_core() -> float:
    """Seconds that this thread was ready to run and did not, by the kernel's count."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except OSError:
        return 0.0


def _spent_reading() -> float:
    """Processor seconds of the threads of `agents.rules.live` that are alive."""
    spent = 0.0
    for thread in threading.enumerate():
        if thread.name.startswith("rules-") and thread.ident is not None:
            with suppress(OSError):  # it has just ended
                spent += time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
    return spent


if __name__ == "__main__":
    main()
