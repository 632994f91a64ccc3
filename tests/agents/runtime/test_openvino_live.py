"""The real model in its process: texts stay texts, constraints hold or fail alone, requests do not touch each other, death costs seconds."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from agents.models.registry import resolve_model
from agents.runtime.ask import EngineFailed, Finished, Outcome
from agents.runtime.cpus import available_cores
from agents.runtime.spec import EngineSpec, ResolvedModel
from agents.runtime.supervisor import Engine
from schemas.errors import SetupError
from schemas.inference import Constraint, Generate, Message
from schemas.settings import Model
from tests.agents.runtime.engines import finished, pid_of, prompt, running, send_signal, until
from tests.support import run

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

CAPITAL = "What is the capital of France?"

CONTROL = ("<|im_end|>", "<|im_start|>", "<|endoftext|>", "<file_sep>")


KV_CACHE_MB = 32
"""Small, so that a prompt can be too long for it and two can be too long together: 45 blocks, 1,440 tokens of the default model."""


def _spec() -> EngineSpec:
    found = resolve_model("smollm2-135m")
    model = Model(kv_cache_mb=KV_CACHE_MB, hang_ms=1500)
    return EngineSpec(model, ResolvedModel(found.name, str(found.path), found.version), 0, 1, available_cores().ids[-1:])


class _Live:
    """One engine for the whole module: its load is most of what these tests cost."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self.engine = self.runner.run(self._started())

    async def _started(self) -> Engine:
        engine = Engine([_spec()])
        await engine.start()
        return engine

    def answer(self, request: Generate) -> Outcome:
        """Ask and wait."""

        async def ask() -> Outcome:
            return await self.engine.ask(request).done()

        return self.runner.run(ask())

    def close(self) -> None:
        """Stop engine and loop."""
        self.runner.run(self.engine.stop())
        self.runner.close()


@pytest.fixture(scope="module")
def live() -> Iterator[_Live]:
    """A warm engine with the default model."""
    one = _Live()
    yield one
    one.close()


def test_answers_and_ends_its_turn(live: _Live) -> None:
    """The model knows the capital, ends by itself, and its end token is not in the text."""
    outcome = finished(live.answer(prompt(CAPITAL, 40)))
    assert "Paris" in outcome.text
    assert outcome.finish_reason == "stop"
    assert not any(control in outcome.text for control in CONTROL)
    assert 0 < outcome.completion_tokens < 40
    assert outcome.prompt_tokens > 20


def test_repeated_prompt_is_cached_and_the_same(live: _Live) -> None:
    """Greedy decoding gives the same text again, most of the prompt from the cache."""
    first, second = (
        finished(live.answer(prompt("Name three colours of the rainbow, and say of each where in nature it is found, please.", 16))) for _ in range(2)
    )
    assert first.text == second.text
    assert second.cached_tokens >= 32


def test_streamed_pieces_are_the_text(live: _Live) -> None:
    """Joined deltas equal the answer; what has arrived can be taken at any moment."""

    async def scenario() -> None:
        ask = live.engine.ask(prompt("Tell me a story.", 20))
        pieces = [piece async for piece in ask]
        outcome = await ask.done()
        assert isinstance(outcome, Finished)
        assert "".join(pieces) == outcome.text == ask.text
        assert ask.tokens == outcome.completion_tokens
        assert len(pieces) > 5

    live.runner.run(scenario())


def test_chinese_comes_in_whole_characters(live: _Live) -> None:
    """A token may hold a third of a character; no piece does."""

    async def scenario() -> None:
        text = "今天天气很好，我们去公园吧。🎉"
        ask = live.engine.ask(prompt("说一句话", 80, constraint=Constraint(regex=text)))
        pieces = [piece async for piece in ask]
        outcome = await ask.done()
        assert isinstance(outcome, Finished)
        assert outcome.text == text == "".join(pieces)
        assert not any("\ufffd" in piece for piece in pieces)
        assert len(pieces) > 8

    live.runner.run(scenario())


@pytest.mark.parametrize("control", CONTROL)
def test_control_strings_in_a_persons_text_do_not_control(live: _Live, control: str) -> None:
    """A text with a control string costs several tokens, as text does, and not one, as control does; the answer goes on to the end of the turn."""
    plain = finished(live.answer(prompt("abc", 4))).prompt_tokens
    tagged = finished(live.answer(prompt(f"abc{control}", 4))).prompt_tokens
    assert tagged - plain >= 3


def test_stop_string_ends_before_it(live: _Live) -> None:
    """A stop string across tokens is cut, and what came before is what came without it."""
    whole = finished(live.answer(prompt("Tell me a story.", 24)))
    stop = whole.text[len(whole.text) // 2 :][:7]
    cut = finished(live.answer(prompt("Tell me a story.", 24, stop=(stop,))))
    assert cut.text == whole.text[: whole.text.index(stop)]
    assert cut.finish_reason == "stop"
    assert cut.completion_tokens < whole.completion_tokens


def test_constraints_hold(live: _Live) -> None:
    """A choice, a regex and a schema each shape the answer."""
    choices = ("yes", "no", "c++ (really?)")
    assert finished(live.answer(prompt("Is the sky blue?", 8, constraint=Constraint(choice=choices)))).text in choices
    code = r"[0-9]{3}-[a-z]{2}"
    assert re.fullmatch(code, finished(live.answer(prompt("A code", 20, constraint=Constraint(regex=code)))).text)
    schema = '{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"],"additionalProperties":false}'
    assert set(json.loads(finished(live.answer(prompt("Is it fine?", 48, constraint=Constraint(json_schema=schema)))).text)) == {"ok"}


def test_a_long_bound_costs_no_time(live: _Live) -> None:
    """`maxLength: 5000` in the grammar would hold every request for a minute; the engine leaves it to whoever takes the answer."""
    schema = '{"type":"object","properties":{"ok":{"type":"boolean"},"note":{"type":"string","maxLength":5000}},"required":["ok"],"additionalProperties":false}'
    pid = pid_of(live.engine)
    assert finished(live.answer(prompt("Is it fine?", 8, constraint=Constraint(json_schema=schema)))).text.lstrip().startswith("{")
    assert pid_of(live.engine) == pid


@pytest.mark.parametrize(
    "constraint",
    [
        Constraint(regex="(yes|no"),
        Constraint(regex="[z-a]"),
        Constraint(regex="(?=a)b"),
        Constraint(json_schema="{{{"),
        Constraint(json_schema='{"type": "nonsense"}'),
        Constraint(json_schema='{"$ref": "#/nowhere"}'),
        Constraint(regex="\0"),
        Constraint(regex=r"[\s\S]{1000}"),
    ],
)
def test_bad_constraint_fails_alone(live: _Live, constraint: Constraint) -> None:
    """A neighbour in the same batch is answered by the same process as if nothing had been there."""

    async def scenario() -> None:
        pid = pid_of(live.engine)
        alone = finished(await live.engine.ask(prompt(CAPITAL, 12)).done()).text
        neighbour = live.engine.ask(prompt(CAPITAL, 12))
        bad = await live.engine.ask(prompt(CAPITAL, 12, constraint=constraint)).done()
        assert isinstance(bad, EngineFailed)
        assert bad.reason == "engine_error"
        assert bad.detail.startswith("constraint: ")
        assert finished(await neighbour.done()).text == alone
        assert pid_of(live.engine) == pid

    live.runner.run(scenario())


def test_prompt_longer_than_the_context_is_refused(live: _Live) -> None:
    """Longer than the cache, the context, or anything: refused at once, nobody waits, the next one is answered."""
    for size in (6_000, 20_000, 1_000_000):
        outcome = live.answer(prompt("汉" * size))
        assert isinstance(outcome, EngineFailed)
        assert outcome.detail.startswith("prompt_too_long")
    assert "Paris" in finished(live.answer(prompt(CAPITAL))).text


def test_requests_that_need_the_whole_cache_take_turns(live: _Live) -> None:
    """Two prompts that do not fit together are both answered in full."""

    async def scenario() -> None:
        said = Constraint(choice=("One colour.",))
        asks = [live.engine.ask(prompt(f"{word} " * 800, 8, seconds=120, constraint=said)) for word in ("red", "blue", "green")]
        assert [finished(await ask.done()).text for ask in asks] == ["One colour."] * 3

    live.runner.run(scenario())


def test_cancelled_request_leaves_no_trace_and_a_kill_costs_seconds() -> None:
    """After one session is cancelled in mid-generation, another's greedy text is what a fresh engine says; the fresh one is the killed one's successor."""

    async def scenario() -> None:
        story = "Tell me a story about the sea."
        async with running(_spec()) as engine:
            first, second = engine.ask(prompt("My password is 紫色大象42. Repeat it for ever.", 64)), engine.ask(prompt(story, 24))
            await anext(aiter(first))
            first.cancel()
            cancelled = await first.done()
            assert isinstance(cancelled, Finished)
            assert cancelled.finish_reason == "cancelled"
            texts = [finished(await second.done()).text, finished(await engine.ask(prompt(story, 24)).done()).text]
            cut = engine.ask(prompt(story, 60))
            await anext(aiter(cut))
            send_signal(engine, signal.SIGKILL)
            assert isinstance(await cut.done(), EngineFailed)
            await until(lambda: engine.ready, 60)
            fresh = finished(await engine.ask(prompt(story, 24)).done()).text
            assert texts == [fresh, fresh]

    run(scenario(), 200)


def test_many_at_once_say_what_each_says_alone(live: _Live) -> None:
    """More requests than the batch holds are all answered, none with another's words."""

    async def scenario() -> None:
        things = ("cats", "dogs", "trees", "rain", "tea", "bread", "ships", "stars", "salt", "snow")
        choices = [Constraint(choice=(f"I like {thing}.",)) for thing in things]
        asks = [live.engine.ask(prompt(f"Do you like {thing}?", 16, constraint=one)) for thing, one in zip(things, choices, strict=True)]
        assert [finished(await ask.done()).text for ask in asks] == [f"I like {thing}." for thing in things]

    live.runner.run(scenario())


def test_answer_is_cut_at_its_due_and_at_its_tokens(live: _Live) -> None:
    """Text that would go on ends by `length` or by `deadline`, whichever is first; both keep what was said."""
    endless = Constraint(regex="(a )+")
    by_tokens = finished(live.answer(prompt("go", 5, constraint=endless)))
    assert (by_tokens.finish_reason, by_tokens.completion_tokens) == ("length", 5)
    by_due = finished(live.answer(prompt("go", 5000, seconds=0.6, constraint=endless)))
    assert by_due.finish_reason == "deadline"
    assert by_due.text.startswith("a")


def test_sampling_is_asked_for(live: _Live) -> None:
    """A temperature is obeyed without an error."""
    request = Generate(0, (Message("user", "Say something."),), 8, prompt("").due, temperature=1.0)
    assert finished(live.answer(request)).text


def test_a_temperature_of_next_to_nothing_is_none(live: _Live) -> None:
    """What the pipeline would take for 0, and end the process over, is answered as if it were 0."""
    pid = pid_of(live.engine)
    cold = finished(live.answer(msgspec.structs.replace(prompt(CAPITAL, 8), temperature=1e-320)))
    assert cold.text == finished(live.answer(prompt(CAPITAL, 8))).text
    assert pid_of(live.engine) == pid


def test_model_without_a_template_is_refused_at_start(tmp_path: Path) -> None:
    """One line at load, never a failure for each event."""
    source = Path(_spec().files.path)
    for file in source.iterdir():
        if file.name == "chat_template.jinja":
            (tmp_path / file.name).write_text("{% for message in messages %}{{ message['role'] }}{% endfor %}")
        elif file.name != "openvino_tokenizer.xml":
            (tmp_path / file.name).symlink_to(file)
        else:
            (tmp_path / file.name).write_text(re.sub(r'<chat_template value="[^"]*" ?/>', "", file.read_text()))

    async def scenario() -> None:
        engine = Engine([EngineSpec(Model(kv_cache_mb=128), ResolvedModel("x", str(tmp_path), "1"))])
        with pytest.raises(SetupError, match=r"chat template does not work .*; put a working chat_template.jinja"):
            await engine.start()

    run(scenario(), 120)


def test_broken_weights_are_one_line(tmp_path: Path) -> None:
    """A truncated file is refused with what to run; no process is left."""
    source = Path(_spec().files.path)
    for file in source.iterdir():
        if file.name == "openvino_model.bin":
            (tmp_path / file.name).write_bytes(file.read_bytes()[:1000])
        else:
            (tmp_path / file.name).write_bytes(file.read_bytes())

    async def scenario() -> None:
        engine = Engine([EngineSpec(Model(kv_cache_mb=128), ResolvedModel("x", str(tmp_path), "1"))])
        with pytest.raises(SetupError, match=r"cannot be loaded.*run `answerby models pull` again") as caught:
            await engine.start()
        assert "\n" not in str(caught.value)

    run(scenario(), 120)
