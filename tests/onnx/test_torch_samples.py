"""PyTorch's operator samples, exported to ONNX, against the answers that PyTorch gave.

The archive has one sample for each list of nodes that an operator was exported to, of those that
CPU gave right when it was made: `python -m tests.onnx.torch_samples samples.tar.xz --keep …`.
"""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from polydevice import Core
from tests.onnx.torch_samples import Sample, outcome, samples

ARCHIVE = Path(__file__).with_name("data") / "torch_samples.tar.xz"
PARTS = 48


@functools.cache  # reading takes half a second, every time
def all_samples() -> list[Sample]:
    return list(samples(ARCHIVE))


@pytest.mark.usefixtures("repeated_sparingly")
@pytest.mark.parametrize(
    "part", [0, *(pytest.param(p, marks=pytest.mark.full) for p in range(1, PARTS))]
)
def test_answers_are_pytorchs(device: str, part: int) -> None:
    chosen = all_samples()[part::PARTS]
    if device == "GPU":  # each compiles programs: 0.08 s of CPU time, 0.01 on CPU
        chosen = chosen[::2]
    assert len(chosen) >= 4
    with Core() as core:
        found = {sample.name: outcome(core, device, sample) for sample in chosen}
    assert {what for what, _ in found.values()} <= {"right"}, found
