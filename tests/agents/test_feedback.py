"""What happens to an answer that a person calls wrong: caches, prompts, audit, and people."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from agents.context.sessions import dispute_turn, remember_turn, undisputed
from agents.ladder import Budget, Declined, Given, Question
from schemas.responses import ModelRef
from schemas.session import SessionState, Turn, dump_stored, load_stored
from schemas.settings import Settings
from tests.agents.intake import Intake
from tests.support import run


class Remembers:
    """A rung that keeps every prompt it was asked with."""

    name = label = "main"
    floor_s = 0.0

    def __init__(self) -> None:
        self.prompts: list[str] = []

    async def answer(self, question: Question, _budget: Budget) -> Given | Declined:
        """`fail` in the text is declined."""
        self.prompts.append("\n".join(message.text for message in question.messages))
        if "fail" in question.messages[-1].text:
            return Declined("failed", "told to", "engine_error")
        return Given("model", f"reply to {question.messages[-1].text}", model=ModelRef("m", "1"))

    def ended(self, _question: Question, _given: Given | None) -> None:
        """Nothing to let go."""


class Holds:
    """A cache with one answer of each event, that may be broken."""

    def __init__(self, name: str = "cache", error: Exception | None = None) -> None:
        self.name = name
        self.evicted: list[tuple[str, str, str]] = []
        self._error = error

    def evict(self, tenant: str, session_id: str, event_id: str) -> bool:
        """One answer less."""
        if self._error is not None:
            raise self._error
        self.evicted.append((tenant, session_id, event_id))
        return True


class Told:
    """What came of some events."""

    def __init__(self, intake: Intake, rung: Remembers) -> None:
        self.said = intake.publisher.said
        self.actions = [(audit.action, audit.ref) for audit in intake.publisher.audits]
        self.audit_reasons = [audit.reason for audit in intake.publisher.audits]
        self.reviews = intake.reviews
        self.prompts = rung.prompts

    @property
    def data(self) -> dict[str, Any]:
        """Of the last acknowledgement."""
        data: dict[str, Any] = self.said[-1]["data"]
        return data


def tell(*events: dict[str, Any], caches: tuple[Holds, ...] = ()) -> Told:
    """Events of one session, one after the other: `e0`, `e1` and so on."""

    async def telling() -> Told:
        rung = Remembers()
        async with Intake(None, rung, caches=caches) as intake:
            for number, event in enumerate(events):
                intake.feed(f"e{number}", **event)
                await intake.until_released()
            assert intake.crashes == []
            assert intake.publisher.dead == []
            return Told(intake, rung)

    return run(telling())


def complaint(ref: str | None = "e0", **more: Any) -> dict[str, Any]:
    """Feedback about an answer."""
    return {"kind": "feedback", "text": None, "ref": ref, **more}


def test_a_disputed_turn_is_left_out_of_later_prompts() -> None:
    """Neither what was asked nor what was answered is told to the model again; other turns are."""
    told = tell({"text": "sweet"}, {"text": "sour"}, complaint("e0"), {"text": "next"})
    assert "sour" in told.prompts[-1]
    assert "sweet" not in told.prompts[-1]
    assert "sweet" in told.prompts[-2]


def test_feedback_evicts_the_answer_from_every_cache() -> None:
    """Each cache is told of the event and its tenant, and the acknowledgement counts what went."""
    caches = (Holds("cache"), Holds("semantic_cache"))
    told = tell({"text": "sweet", "tenant": "t"}, complaint(tenant="t"), caches=caches)
    assert [cache.evicted for cache in caches] == [[("t", "s", "e0")]] * 2
    assert told.data == {"found": True, "verdict": "wrong", "marked": True, "evicted": 2, "handed": True}


def test_the_same_answer_given_to_others_is_evicted_with_it() -> None:
    """One cache may have given what another one keeps under the first event that asked."""
    cache = Holds()
    told = tell(
        {"text": "sweet", "session": "a"}, {"text": "sour", "session": "a"}, {"text": "Sweet", "session": "b"}, complaint("e2", session="b"), caches=(cache,)
    )
    assert told.data["evicted"] == 1
    assert cache.evicted == [("default", "b", "e2")]
    told = tell(
        {"text": "sweet", "session": "a"}, {"text": "sour", "session": "a"}, {"text": "sweet", "session": "b"}, complaint("e2", session="b"), caches=(cache,)
    )
    assert set(cache.evicted[1:]) == {("default", "b", "e2"), ("default", "a", "e0")}


def test_a_broken_cache_keeps_no_other_one_from_letting_go() -> None:
    """And the complaint is acknowledged."""
    caches = (Holds("cache", ValueError("bug")), Holds("semantic_cache"))
    told = tell({"text": "sweet"}, complaint(), caches=caches)
    assert told.data["evicted"] == 1
    assert told.said[-1]["outcome"] == "ack"


def test_feedback_is_audited_without_texts() -> None:
    """Who complained of what is on record, with the verdict and not a word of the complaint."""
    told = tell({"text": "sweet"}, complaint(), complaint(text=" Unsafe "), complaint(text="It is sour!"))
    assert told.actions == [("feedback", "e0")] * 3
    assert told.audit_reasons == ["wrong", "unsafe", "wrong"]


@pytest.mark.parametrize("ref", ["no-such", None])
def test_feedback_about_an_unknown_answer_changes_nothing(ref: str | None) -> None:
    """The acknowledgement says that it was not found; nothing is evicted, marked, audited or handed on."""
    cache = Holds()
    told = tell({"text": "sweet"}, complaint(ref), {"text": "next"}, caches=(cache,))
    assert told.said[1]["data"] == {"found": False}
    assert (cache.evicted, told.actions, told.reviews) == ([], [], [])
    assert "sweet" in told.prompts[-1]


def test_another_sessions_answer_cannot_be_disputed() -> None:
    """Ids belong to their session."""
    cache = Holds()
    told = tell({"text": "sweet", "session": "a"}, complaint(session="b"), caches=(cache,))
    assert told.data == {"found": False}
    assert cache.evicted == []


def test_an_answer_long_past_its_turn_can_still_be_disputed() -> None:
    """After a reset there is no turn to mark, but caches may still hold the answer."""
    cache = Holds()
    told = tell({"text": "sweet"}, {"kind": "reset", "text": None}, complaint(), caches=(cache,))
    assert (told.data["found"], told.data["marked"], told.data["evicted"]) == (True, False, 1)


@pytest.mark.parametrize("how", [{"text": " Unsafe "}, {"metadata": {"verdict": "unsafe"}}])
def test_a_person_may_say_that_an_answer_was_unsafe(how: dict[str, Any]) -> None:
    """In the text or in the metadata."""
    told = tell({"text": "sweet"}, complaint(**how))
    assert told.data["verdict"] == "unsafe"
    assert told.reviews[0].verdict == "unsafe"


@pytest.mark.parametrize("text", ["wrong", "It said that I am 12", "", None])
def test_every_other_complaint_is_that_it_was_wrong(text: str | None) -> None:
    """Whatever it says."""
    assert tell({"text": "sweet"}, complaint(text=text)).data["verdict"] == "wrong"


def test_people_are_handed_no_text_without_consent() -> None:
    """What was asked and answered stays with the person, everything else is told."""
    (review,) = tell({"text": "sweet"}, complaint()).reviews
    assert (review.ref, review.outcome, review.model) == ("e0", "model", ModelRef("m", "1"))
    assert b"sweet" not in msgspec.msgpack.encode(review)


def test_people_are_handed_both_texts_with_consent() -> None:
    """`store_history` of the feedback itself allows it."""
    (review,) = tell({"text": "sweet"}, complaint(consent={"store_history": True})).reviews
    assert (review.said, review.answered) == ("sweet", "reply to sweet")


def test_a_disputed_default_is_handed_on_with_what_was_said() -> None:
    """The apology was no turn of ours, but people see what the person saw."""
    (review,) = tell({"text": "fail"}, complaint(consent={"store_history": True})).reviews
    assert (review.outcome, review.reason, review.answered) == ("default", "engine_error", Settings().ladder.default_text["en"])


def test_the_same_feedback_twice_is_told_the_same() -> None:
    """A repeat gets its old acknowledgement and hands nothing on again."""

    async def telling() -> tuple[list[dict[str, Any]], int]:
        async with Intake(None, Remembers()) as intake:
            for event_id, fields in (("e0", {"text": "sweet"}), ("f", complaint()), ("f", complaint())):
                intake.feed(event_id, **fields)
                await intake.until_released()
            return intake.publisher.said, len(intake.reviews)

    said, reviews = run(telling())
    assert said[1] == said[2]
    assert reviews == 1


def test_marks_go_with_their_turns() -> None:
    """A session that lives long keeps no marks of turns it has forgotten."""
    settings = msgspec.structs.replace(Settings().session, turns=2)
    state = SessionState()
    for number in range(12):
        state = remember_turn(state, Turn(f"e{number}", 0, "a", "b", "model"), settings)
        state, marked = dispute_turn(state, f"e{number}", "wrong")
        assert marked
        assert set(state.disputed) <= {turn.event_id for turn in state.turns}
    assert undisputed(state).turns == ()


def test_a_release_that_does_not_know_marks_keeps_them() -> None:
    """It reads the session, adds a turn and writes it back: the mark is still there for the next release."""
    turn = Turn("e0", 0, "a", "b", "model")
    marked, _ = dispute_turn(SessionState(turns=(turn,)), "e0", "wrong")
    stored = msgspec.msgpack.decode(dump_stored(marked))
    elder = load_stored(msgspec.msgpack.encode({("newer" if name == "disputed" else name): value for name, value in stored.items()}), SessionState)
    written = msgspec.msgpack.decode(dump_stored(remember_turn(elder, turn, Settings().session)))
    assert written["newer"] == {"e0": "wrong"}
