"""ONNX's other suites with data in the onnx package: small models, and what PyTorch once exported.

Most are of opset 6, which the node cases do not reach.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

import polydevice.onnx_backend as backend

KINDS = ("simple", "pytorch-converted", "pytorch-operator")
CASES = [case for kind in KINDS for case in load_model_tests(kind=kind)]
NOT_READ = "test_gradient_of"  # derivatives: ai.onnx.preview.training.Gradient


def _arrays(folder: Path, prefix: str, values: Any) -> list[Any]:
    arrays: list[Any] = []
    files = sorted(folder.glob(f"{prefix}_*.pb"), key=lambda f: int(re.sub(r"\D", "", f.stem)))
    for file, declared in zip(files, values, strict=False):
        Runner._load_proto(Runner, str(file), arrays, declared.type)  # type: ignore[arg-type]
    return arrays


@pytest.mark.parametrize(
    "case", [c for c in CASES if not c.name.startswith(NOT_READ)], ids=lambda c: c.name
)
def test_model_case(case: Any) -> None:
    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    prepared = backend.prepare(model, "CPU")
    sets = sorted(folder.glob("test_data_set*"))
    assert sets
    for data in sets:
        inputs = _arrays(data, "input", model.graph.input)
        expected = _arrays(data, "output", model.graph.output)
        Runner.assert_similar_outputs(expected, prepared.run(inputs), case.rtol, case.atol)
