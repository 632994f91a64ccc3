"""One request while the pipeline works on it: its tokens, its text so far, and what ends it early; the pipeline itself is `openvino`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from agents.runtime.constraints import settled_label
from agents.runtime.pieces import TextStream
from agents.runtime.prompt import Prompt
from agents.runtime.stops import StopCutter
from schemas.inference import Generate


@dataclass(slots=True, eq=False)
class Run:
    """A request in the pipeline, or waiting for KV blocks (then `handle` is None)."""

    request: Generate
    built: Prompt
    blocks: int
    config: Any
    cutter: StopCutter
    handle: Any = None
    cached: int = 0
    prefill_left: int = 0
    generated: list[int] = field(default_factory=list)
    stream: TextStream = field(default_factory=TextStream)
    delivered: int = 0
    said: str = ""
    spoke: bool = False
    stopped: bool = False

    @property
    def prompt(self) -> list[int]:
        """Its token ids."""
        return self.built.ids

    def rest_of_label(self, new: str) -> str | None:
        """What a choice still lacks once only one label begins with what was said: its other tokens are known and need not be made."""
        choice = self.request.constraint.choice if self.request.constraint is not None else None
        if choice is None:
            return None
        self.said += new
        label = settled_label(choice, self.said)
        return None if label is None else label[len(self.said) :]
