"""The real model: OpenVINO's continuous batching pipeline behind the loop's protocol; its stand-in for tests is `scripted`.

The only file that imports openvino. Its objects hold the GIL while they work, which is why this runs in a process of its own.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import openvino as ov
import openvino_genai as genai

from agents.runtime.backend import Ended, Loaded, RequestRefused, StepResult
from agents.runtime.constraints import choice_regex, require_modest
from agents.runtime.grammar_probe import GrammarProbe
from agents.runtime.lengths import without_lengths
from agents.runtime.model_files import read_facts
from agents.runtime.prefix import BLOCK_TOKENS, PrefixMirror
from agents.runtime.prompt import Prompt, PromptBuilder
from agents.runtime.runs import Run
from agents.runtime.spec import EngineSpec
from agents.runtime.stops import StopCutter
from schemas.errors import SetupError
from schemas.inference import Constraint, Delta, Failed, FinishReason, Generate, Message, Progress
from schemas.settings import Model

WARM_PROMPTS = (4, 24)
"""Tokens of the warm-up's prompts, beside one longer than a chunk: kernels are made at the first use of each class of shape, 0.8 s a class on an AVX2 core."""

WARM_TOKENS = 3
"""Decode steps of each, for the same reason."""

CHARS_A_TOKEN = 64
"""No tokenizer makes longer tokens of text that matters; a prompt above context * this is refused before it is tokenised, which would take seconds."""

COLDEST = 0.01
"""Below it the likeliest token is taken anyway, and the pipeline's own number becomes 0, which it refuses by ending the process."""

_TAG = re.compile(rb"[<\[].+[>\]]", re.DOTALL)


class OpenVinoBackend:
    """Owns one pipeline; every method runs on the step loop's thread, `load` of a replacement in one of its own."""

    def __init__(self, spec: EngineSpec, clock: Callable[[], float] = time.monotonic) -> None:
        self._spec = spec
        self._clock = clock
        self._running: list[Run] = []
        self._pending: deque[Run] = deque()
        self._pipeline: Any = None

    def load(self) -> Loaded:
        """Compile, check the chat template, warm up.

        Raises:
            SetupError: files are missing or broken, or the template does not work.
        """
        began = self._clock()
        path = Path(self._spec.files.path)
        self._facts = read_facts(path)
        self._blocks = self._spec.model.kv_cache_mb * 1024 * 1024 // (BLOCK_TOKENS * self._facts.kv_bytes_per_token)
        if self._blocks * BLOCK_TOKENS < self._spec.model.max_tokens + BLOCK_TOKENS:
            need = (self._spec.model.max_tokens + BLOCK_TOKENS) * self._facts.kv_bytes_per_token // (1024 * 1024) + 1
            text = f"model {self._spec.model.name!r}: kv_cache_mb {self._spec.model.kv_cache_mb} holds {self._blocks * BLOCK_TOKENS} tokens; set {need} or more"
            raise SetupError(text)
        self._pipeline = open_pipeline(self._spec, self._blocks)
        self._tokens = PipelineTokens(self._pipeline.get_tokenizer(), path)
        self._builder = PromptBuilder(self._tokens, self._tokens.control, block=BLOCK_TOKENS if self._spec.model.align_prefix else 0)
        self._builder.require_template()
        self._mirror = PrefixMirror(self._blocks)
        self._probe = GrammarProbe(self._tokens.size, lambda folder: open_probe(folder, self._tokens.tokenizer))
        own = self._pipeline.get_config()
        self._stop_ids = {*own.stop_token_ids, *self._builder.turn_ends(), *(token for token in (own.eos_token_id, self._tokens.eos) if token >= 0)}
        loaded = self._clock()
        self._warm_up()
        return Loaded(self._facts.context_tokens, (loaded - began) * 1000, (self._clock() - loaded) * 1000)

    @property
    def room(self) -> int:
        """Places left in the batch."""
        return self._spec.model.max_batch - len(self._running) - len(self._pending)

    @property
    def step_at(self) -> float | None:
        """At once while the pipeline holds anything, cancelled requests included: it lets go of them in a step."""
        return 0.0 if self._running or self._pending or self._pipeline.has_non_finished_requests() else None

    def progress(self) -> tuple[Progress, ...]:
        """How far each request is; those that wait for KV blocks have their whole prompt before them."""
        waiting = (Progress(run.request.id, len(run.prompt), 0, len(run.prompt)) for run in self._pending)
        return (*(Progress(run.request.id, run.prefill_left, len(run.generated), len(run.prompt), run.cached) for run in self._running), *waiting)

    def add(self, request: Generate) -> None:
        """Tokenise and hand over; waits for its turn when the KV cache is promised to others.

        Raises:
            RequestRefused: `prompt_too_long`, or a constraint that cannot be compiled.
        """
        longest = self._facts.context_tokens
        if sum(len(message.text) for message in request.messages) > longest * CHARS_A_TOKEN:
            self._refuse_long("text", longest)
        prompt = self._builder.build(request.messages)
        room = min(longest, self._blocks * BLOCK_TOKENS - BLOCK_TOKENS) - len(prompt.ids)
        if room < 1:
            self._refuse_long(f"{len(prompt.ids)} tokens", len(prompt.ids) + room)
        new_tokens = min(request.max_tokens, room)
        config = self._config(request, new_tokens)
        self._pending.append(Run(request, prompt, self._blocks_for(len(prompt.ids) + new_tokens), config, StopCutter(request.stop)))
        self._hand_over()

    def end(self, request_id: int, reason: FinishReason) -> Ended:
        """Cancel; the pipeline lets go of it in its next step."""
        for run in self._pending:
            if run.request.id == request_id:
                self._pending.remove(run)
                return Ended(request_id, reason, 0, 0, 0)
        run = next(run for run in self._running if run.request.id == request_id)
        run.handle.cancel()
        return self._ended(run, reason)

    def step(self) -> StepResult | None:
        """One step of the pipeline, and what every request gained by it."""
        began = self._clock()
        self._pipeline.step()
        gained = [(run, *self._read(run)) for run in self._running]
        prefill = self._account_prefill(gained)
        batch = sum(bool(new) for _, new, _ in gained)
        first = tuple(run.request.id for run, new, _ in gained if new and not run.spoke)
        deltas = self._texts([run for run, new, _ in gained if new])
        ended: list[Ended] = []
        failed: list[Failed] = []
        for run, _, end in gained:
            self._settle(run, end, ended, failed)
        self._hand_over()
        if not gained:
            return None
        return StepResult(self._clock() - began, batch, prefill, tuple(deltas), first, tuple(ended), tuple(failed))

    def _refuse_long(self, size: str, limit: int) -> None:
        text = f"prompt_too_long: {size}, at most {limit} tokens fit"
        raise RequestRefused(text)

    def _config(self, request: Generate, new_tokens: int) -> genai.GenerationConfig:
        config = self._fresh_config()
        config.max_new_tokens = new_tokens
        if request.temperature >= COLDEST:
            config.do_sample = True
            config.temperature = request.temperature
        if request.constraint is not None:
            config.structured_output_config = self._structured(request.constraint)
        return config

    def _fresh_config(self) -> genai.GenerationConfig:
        """The model's own settings, greedy, with ends that are sure; the pipeline hands out a copy each time."""
        config = self._pipeline.get_config()
        if config.eos_token_id < 0 <= self._tokens.eos:
            config.set_eos_token_id(self._tokens.eos)
        config.stop_token_ids = self._stop_ids
        config.do_sample = False
        return config

    def _structured(self, constraint: Constraint) -> genai.StructuredOutputConfig:
        """Compile it apart first: a grammar that fails inside the pipeline's step leaves the pipeline unusable for everyone."""
        if constraint.json_schema is not None:
            constraint = msgspec.structs.replace(constraint, json_schema=without_lengths(constraint.json_schema))
        require_modest(constraint)
        if constraint.json_schema is not None:
            structured = genai.StructuredOutputConfig(json_schema=constraint.json_schema)
        else:
            regex = choice_regex(constraint.choice) if constraint.choice is not None else constraint.regex or ""
            structured = genai.StructuredOutputConfig(regex=regex)
        try:
            self._probe.try_grammar(structured)
        except RuntimeError:
            text = "constraint: the grammar cannot be compiled"
            raise RequestRefused(text) from None
        return structured

    def _hand_over(self) -> None:
        """Give the pipeline what its KV cache surely holds; overbooked, it would drop half-done work to make room."""
        while self._pending:
            run = self._pending[0]
            if sum(other.blocks for other in self._running) + run.blocks > self._blocks:
                return
            self._pending.popleft()
            run.cached = self._mirror.cached_tokens(run.prompt)
            run.prefill_left = len(run.prompt) - run.cached
            run.handle = self._pipeline.add_request(run.request.id, ov.Tensor(np.array([run.prompt], np.int64)), run.config)
            self._running.append(run)

    def _read(self, run: Run) -> tuple[int, str | None]:
        """New tokens, and how it ended if it did: `stop`, `length`, or `ignored` when the pipeline gave it up."""
        before, end = len(run.generated), None
        if run.handle.can_read():
            for output in run.handle.read().values():
                for token in output.generated_ids:
                    run.generated.append(token)
                if output.finish_reason == genai.GenerationFinishReason.STOP:
                    end = "stop"
                elif output.finish_reason == genai.GenerationFinishReason.LENGTH:
                    end = "length"
        if end is None and run.handle.get_status() != genai.GenerationStatus.RUNNING:
            end = "ignored"
        new = len(run.generated) - before
        if run.generated and run.generated[-1] in self._stop_ids:
            run.generated.pop()
            end = "stop"
        for token in run.generated[before:]:
            run.stream.add(token)
        return new, end

    def _account_prefill(self, gained: list[tuple[Run, int, str | None]]) -> int:
        """Prompt tokens read in the step: all that was left of those that began to speak, the rest of the chunk in order."""
        spoke = [run for run, new, _ in gained if new and run.prefill_left]
        total = sum(run.prefill_left for run in spoke)
        budget = self._spec.model.prefill_chunk - total - sum(1 for run, new, _ in gained if new and not run.prefill_left)
        for run in spoke:
            run.prefill_left = 0
            self._mirror.remember(run.prompt)
        for run, _, _ in gained:
            if run.prefill_left and budget > 0:
                size = min(budget, run.prefill_left - 1)
                run.prefill_left -= size
                budget -= size
                total += size
        return total

    def _texts(self, runs: list[Run]) -> list[Delta]:
        """What the requests say in this step; one call decodes for all."""
        if not runs:
            return []
        texts = self._tokens.decode([window for run in runs for window in run.stream.windows()])
        deltas: list[Delta] = []
        for index, run in enumerate(runs):
            new = run.stream.advance(texts[2 * index], texts[2 * index + 1])
            rest = run.rest_of_label(new)
            out = run.cutter.feed(new + (rest or ""))
            run.spoke, run.stopped = True, out.stopped or rest is not None
            run.delivered += out.tokens
            if out.text:
                deltas.append(Delta(run.request.id, out.text, out.tokens))
        return deltas

    def _settle(self, run: Run, end: str | None, ended: list[Ended], failed: list[Failed]) -> None:
        if end == "ignored":
            self._forget(run)
            failed.append(Failed(run.request.id, "no_kv_cache: the pipeline gave the request up; raise kv_cache_mb"))
        elif end is not None and not run.generated:
            self._forget(run)
            failed.append(Failed(run.request.id, "empty"))
        elif run.stopped:
            run.handle.cancel()
            ended.append(self._ended(run, "stop"))
        elif end is not None:
            ended.append(self._ended(run, "stop" if end == "stop" else "length"))

    def _ended(self, run: Run, reason: FinishReason) -> Ended:
        self._forget(run)
        rest = run.cutter.flush()
        run.delivered += rest.tokens
        tail = Delta(run.request.id, rest.text, rest.tokens) if rest.text else None
        return Ended(run.request.id, reason, len(run.prompt), run.cached, run.delivered, tail, run.built.shared, run.built.padding)

    def _forget(self, run: Run) -> None:
        self._running.remove(run)
        if not run.prefill_left:
            self._mirror.remember([*run.prompt, *run.generated[:-1]])
        run.handle = None

    def _warm_up(self) -> None:
        """Prompts of each class of length alone, then a full batch, then a grammar; made of ids, so that what is read is no longer than it must be."""
        chunk = self._spec.model.prefill_chunk
        for length in (*WARM_PROMPTS, chunk + chunk // 2):
            self._warm([length])
        self._warm([WARM_PROMPTS[0]] * self._spec.model.max_batch)
        self._warm([WARM_PROMPTS[0]], Constraint(choice=("yes", "no")))
        for text in self._spec.prefixes:
            self._warm_prefix(text)

    def _warm(self, lengths: list[int], constraint: Constraint | None = None) -> None:
        for index, length in enumerate(lengths):
            request = Generate(index, (), WARM_TOKENS, self._clock(), constraint=constraint)
            prompt = [(length * 31 + index * 17 + position) % self._tokens.size for position in range(length)]
            self._pending.append(Run(request, Prompt(prompt), self._blocks_for(length + WARM_TOKENS), self._config(request, WARM_TOKENS), StopCutter(())))
        self._hand_over()
        while self.step_at is not None:
            self.step()

    def _warm_prefix(self, text: str) -> None:
        """Read what many prompts will begin with, so that the first of them need not; filled up differently when a session's facts follow it."""
        for system in (text, f"{text}\n"):
            try:
                self.add(Generate(0, (Message("system", system, len(text)), Message("user", "Hello.")), 1, self._clock()))
            except RequestRefused:
                return  # longer than fits: the events that need it will be told
            while self.step_at is not None:
                self.step()

    def _blocks_for(self, tokens: int) -> int:
        return min(self._blocks, -(-tokens // BLOCK_TOKENS) + 1)


class PipelineTokens:
    """The pipeline's tokenizer as `prompt` wants it, with what it says about control tokens."""

    def __init__(self, tokenizer: genai.Tokenizer, path: Path) -> None:
        self.tokenizer = tokenizer
        beside = path / "chat_template.jinja"
        if not tokenizer.chat_template and path.is_dir() and beside.is_file():
            tokenizer.set_chat_template(beside.read_text())
        self.eos = int(tokenizer.get_eos_token_id())
        vocabulary = tokenizer.get_vocab()
        self.size = max(vocabulary.values()) + 1
        self.control = self._control_tokens(vocabulary)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text, nothing added; one native call."""
        out = self.tokenizer.encode(list(texts), add_special_tokens=False)
        ids, mask = out.input_ids.data, out.attention_mask.data
        return [row[kept.astype(bool)].tolist() for row, kept in zip(ids, mask, strict=True)]

    def decode(self, ids: list[list[int]]) -> list[str]:
        """Text of each list, control tokens left out; one native call."""
        return list(self.tokenizer.decode(ids))

    def render(self, messages: list[dict[str, str]]) -> str:
        """The chat template over `messages`."""
        if not self.tokenizer.chat_template:
            text = "there is none"
            raise ValueError(text)
        return str(self.tokenizer.apply_chat_template(messages, add_generation_prompt=True))

    def _control_tokens(self, vocabulary: dict[bytes, int]) -> dict[int, str]:
        """What the tokenizer leaves out of text, and whatever is written like a tag: taking a word for one only costs it a token."""
        ids = sorted(vocabulary.values())
        lists = [[token] for token in ids]
        kept, full = self.tokenizer.decode(lists), self.tokenizer.decode(lists, skip_special_tokens=False)
        control = {token: text for token, with_out, text in zip(ids, kept, full, strict=True) if with_out != text}
        for word, token in vocabulary.items():
            if _TAG.fullmatch(word):
                control[token] = word.decode(errors="replace")
        return control


def open_pipeline(spec: EngineSpec, blocks: int) -> genai.ContinuousBatchingPipeline:
    """The model, compiled for this machine.

    Raises:
        SetupError: the files cannot be loaded.
    """
    # No CACHE_DIR: OpenVINO 2026.4 writes a compiled paged-attention model but cannot read it back, so each start would pay for both (docs/decisions/0011).
    properties: dict[str, object] = {"INFERENCE_NUM_THREADS": spec.threads, "ENABLE_CPU_PINNING": False, "KV_CACHE_PRECISION": "f16"}
    try:
        return _open(spec.files.path, spec.model, blocks, properties)
    except RuntimeError as error:
        lines = str(error).strip().splitlines()
        text = f"{spec.files.path} cannot be loaded ({lines[-1][:200] if lines else 'no reason given'}); run `answerby models pull` again or name another model"
        raise SetupError(text) from None


def _open(path: str, model: Model, blocks: int, properties: dict[str, object]) -> genai.ContinuousBatchingPipeline:
    scheduler = genai.SchedulerConfig()
    scheduler.num_kv_blocks = blocks
    scheduler.max_num_batched_tokens = model.prefill_chunk
    scheduler.max_num_seqs = model.max_batch
    scheduler.dynamic_split_fuse = True
    scheduler.enable_prefix_caching = True
    return genai.ContinuousBatchingPipeline(path, scheduler, "CPU", properties)


def open_probe(folder: str, tokenizer: genai.Tokenizer) -> Callable[[genai.StructuredOutputConfig], None]:
    """A pipeline over the tiny model in `folder` that only compiles grammars; what it returns raises RuntimeError on a bad one and is then spoilt."""
    scheduler = genai.SchedulerConfig()
    scheduler.num_kv_blocks = 4
    scheduler.max_num_seqs = 1
    pipeline = genai.ContinuousBatchingPipeline(folder, tokenizer, scheduler, "CPU", INFERENCE_NUM_THREADS=1)

    def compile_grammar(structured: genai.StructuredOutputConfig) -> None:
        config = genai.GenerationConfig(max_new_tokens=1, do_sample=False, structured_output_config=structured)
        handle = pipeline.add_request(0, ov.Tensor(np.zeros((1, 1), np.int64)), config)
        while pipeline.has_non_finished_requests():
            pipeline.step()
        handle.read_all()

    return compile_grammar
