"""What other runtimes answer: ONNX Runtime for ONNX files, OpenVINO for IR.

Answers are also recorded in the cache folder, with their inputs. A machine with a GPU but without
these runtimes, or without a network, uses the records of another.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tests.models.fetch import CACHE
from tests.models.models import Model

Array = npt.NDArray[np.generic]


def case(model: Model) -> tuple[dict[str, Array], list[Array]]:
    """The model's input, and the right outputs: its own in order, then the extra ones."""
    path = model.file.get()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    record = CACHE / "answers" / f"{model.name}-{digest}.npz"
    try:
        inputs = model.inputs()
        answers = _answers(path, inputs, model.extra_outputs)
    except ImportError as missing:
        if not record.exists():
            pytest.skip(f"{missing}, and nothing is recorded in {record}")
        return _read(record)
    _write(record, inputs, answers)
    return inputs, answers


def _write(record: Path, inputs: dict[str, Array], answers: list[Array]) -> None:
    record.parent.mkdir(parents=True, exist_ok=True)
    partial = record.with_name(f"{record.stem}.{os.getpid()}.npz")
    named = {f"in {name}": array for name, array in inputs.items()}
    np.savez(partial, **named, **{f"out {n}": array for n, array in enumerate(answers)})
    partial.replace(record)


def _read(record: Path) -> tuple[dict[str, Array], list[Array]]:
    with np.load(record, allow_pickle=False) as stored:
        inputs = {key[3:]: stored[key] for key in stored if key.startswith("in ")}
        count = sum(key.startswith("out ") for key in stored)
        return inputs, [stored[f"out {number}"] for number in range(count)]


def _answers(path: Path, inputs: dict[str, Array], extra: tuple[str, ...]) -> list[Array]:
    if path.suffix == ".onnx":
        return _onnxruntime(path, inputs, extra)
    return _openvino(path, inputs, extra)


def _onnxruntime(path: Path, inputs: dict[str, Array], extra: tuple[str, ...]) -> list[Array]:
    import onnx
    import onnxruntime

    model = onnx.load(path)
    for name in extra:
        model.graph.output.append(onnx.ValueInfoProto(name=name))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return [np.asarray(a) for a in session.run(None, inputs)]


def _openvino(path: Path, inputs: dict[str, Array], extra: tuple[str, ...]) -> list[Array]:
    import openvino

    core = openvino.Core()
    model = core.read_model(path)
    for name in extra:
        model.add_outputs(name)
    # Its default may be bfloat16 on CPUs that have it, which is a far coarser answer.
    compiled = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    result = compiled(inputs)
    return [np.asarray(result[port]) for port in compiled.outputs]
