"""What other runtimes answer: ONNX Runtime for ONNX files, OpenVINO for IR.

Answers are also recorded in the cache folder, with their inputs. A machine with a GPU but without
these runtimes, or without a network, uses the records of another; or those few that the repository
keeps in ``answers``, without their inputs but with a digest of them. To keep another:

    python -m tests.models.oracles efficientnet_lite0
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tests.models.fetch import CACHE
from tests.models.models import MODELS, Model

Array = npt.NDArray[np.generic]
KEPT = Path(__file__).parent / "answers"


def case(model: Model) -> tuple[dict[str, Array], list[Array]]:
    """The model's input, and the right outputs: its own in order, then the extra ones."""
    path = model.file.get()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    record = CACHE / "answers" / f"{model.name}-{digest}.npz"
    try:
        inputs = model.inputs()
        answers = _answers(path, inputs, model.extra_outputs)
    except ImportError as missing:
        if record.exists():
            return _read(record)
        kept = KEPT / record.name
        if not kept.exists():
            pytest.skip(f"{missing}, and nothing is recorded in {record}")
        return _kept(kept, model)
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


def _kept(kept: Path, model: Model) -> tuple[dict[str, Array], list[Array]]:
    """The model's input made anew, and the answers kept for that very input."""
    inputs = model.inputs()
    with np.load(kept, allow_pickle=False) as stored:
        if str(stored["inputs"]) != _digest(inputs):
            pytest.skip(
                f"{kept.name} is for another input: this machine decodes pictures otherwise"
            )
        return inputs, [stored[f"out {number}"] for number in range(int(stored["count"]))]


def _digest(inputs: Mapping[str, Array]) -> str:
    digest = hashlib.sha256()
    for name in sorted(inputs):
        array = np.ascontiguousarray(inputs[name])
        digest.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


def keep(model: Model) -> Path:
    """Write the answers for a model into the repository; returns the file."""
    inputs, answers = case(model)
    path = model.file.get()
    runtime = "onnxruntime" if path.suffix == ".onnx" else "openvino"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    target = KEPT / f"{model.name}-{digest}.npz"
    target.parent.mkdir(exist_ok=True)
    made_by = f"{runtime} {version(runtime)} on CPU, f32"
    named = {f"out {number}": array for number, array in enumerate(answers)}
    count = len(answers)
    np.savez_compressed(target, made_by=made_by, inputs=_digest(inputs), count=count, **named)
    return target


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


if __name__ == "__main__":
    for asked in MODELS:
        if asked.name in sys.argv[1:]:
            sys.stdout.write(f"{keep(asked)}\n")
