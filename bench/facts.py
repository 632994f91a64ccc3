"""What finding facts and checking answers cost, and how well they do on the scripts: `python -m bench.facts`; no broker, no model."""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable

from agents.consistency import check
from agents.facts import SlotSet, extract, load_slots, merge, render_facts
from schemas.facts import Fact, Facts, Number, dump_facts, load_facts
from schemas.session import Decision
from schemas.settings_facts import Facts as FactsSettings

TARGET_CHECK_US = 1000.0
"""What checking an answer of 500 characters against 50 facts may take: it stands between the model's last token and the person."""

FACTS = 50
ANSWER_CHARS = 500

MESSAGES = {
    "plain": "Tell me a story about a dragon who lived in a cave and ate cheese. It should be long.",
    "facts": "Hi, my name is Bob and I need 12 mugs for my office. My budget is 500 euros. Can you tell me when order A-12 arrives?",
    "chinese": "你好，我叫王小明，我要买十二个杯子，预算是三千五百块。请问订单A12什么时候到？",
    "correction": "No, I meant 600 euros, not 500.",
}
STATED = (
    "My name is Bob Smith, my order number is A-12.",
    "I need 12 mugs. My budget is 500 euros.",
    "My appointment is on Friday at 3 pm. I live in Lyon.",
    "I don't want gift wrapping. I'm allergic to nuts.",
)
ANSWERS = {
    "usual": "Thanks for waiting. Order A-12 left the warehouse this morning and should be with you in two days. The courier sends a message with a link "
    "before he comes, so you can choose another time. If something is missing in the parcel, take a picture and send it here: we replace what is broken "
    "at no cost. There is also a shop in the old town where you can bring things back, it opens at nine. Is there anything else that I can look up? ",
    "dense": (
        "Hello Bob, your order A-12 is on its way. Since you need 12 mugs, your budget of 500 euros is enough. Your appointment is on Friday at 15:00. " * 4
    ),
}
START_MS = 1_767_225_600_000


def main() -> None:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.facts")
    parser.add_argument("--rounds", type=int, default=1000, help="calls of each kind")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    began = time.perf_counter()
    slots = load_slots(FactsSettings())
    result: dict[str, object] = {"load_ms": round((time.perf_counter() - began) * 1000)}
    known = fifty_facts(slots)
    decisions = (Decision("d1", "Transfer 100 euros to Anna", START_MS), Decision("d2", "Cancel order B-77", START_MS))
    gc.collect()
    gc.freeze()
    for name, text in MESSAGES.items():
        result[f"extract_{name}_us"] = measure(lambda text=text: extract(text, "en", slots, "e", START_MS, known=known), arguments.rounds)  # type: ignore[misc]  # a loop's lambda
    for name, text in ANSWERS.items():
        answer = text[:ANSWER_CHARS]
        result[f"check_{name}_us"] = measure(lambda answer=answer: check(answer, known, decisions, "en", slots), arguments.rounds)  # type: ignore[misc]  # the same
    found = extract(MESSAGES["facts"], "en", slots, "e", START_MS + 99)
    result["merge_us"] = measure(lambda: merge(known, found, slots.settings), arguments.rounds)
    result["render_us"] = measure(lambda: render_facts(known.facts, 1000, "en", slots), arguments.rounds)
    plain = dump_facts(known)
    result["load_stored_us"] = measure(lambda: load_facts(plain), arguments.rounds)
    result["dump_stored_us"] = measure(lambda: dump_facts(known), arguments.rounds)
    result["target_check_us"] = TARGET_CHECK_US
    print(json.dumps(result) if arguments.json else "\n".join(f"{name:24} {value}" for name, value in result.items()))


def fifty_facts(slots: SlotSet) -> Facts:
    """A session that has said as much as is kept."""
    known = Facts()
    for number, text in enumerate(STATED):
        known = merge(known, extract(text, "en", slots, f"e{number}", START_MS + number), slots.settings)
    filling = [Fact("quantity", Number(number), "e", START_MS, key=f"thing {number}", pinned=True) for number in range(FACTS - len(known.facts))]
    return merge(known, filling, slots.settings)


def measure(call: Callable[[], object], rounds: int) -> dict[str, float]:
    """Microseconds of one call: the best, the median and the p99."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        call()
        times.append((time.perf_counter() - began) * 1e6)
    times.sort()
    return {"best": round(times[0], 1), "p50": round(statistics.median(times), 1), "p99": round(times[min(len(times) - 1, int(len(times) * 0.99))], 1)}


if __name__ == "__main__":
    main()
