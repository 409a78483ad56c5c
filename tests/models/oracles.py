"""What other runtimes answer: ONNX Runtime for ONNX files, OpenVINO for IR."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

Array = npt.NDArray[np.generic]


def answers(path: Path, inputs: dict[str, Array], extra_outputs: tuple[str, ...]) -> list[Array]:
    """Outputs of the model in its own order, then the inner tensors named in `extra_outputs`."""
    if path.suffix == ".onnx":
        return _onnxruntime(path, inputs, extra_outputs)
    return _openvino(path, inputs, extra_outputs)


def _onnxruntime(path: Path, inputs: dict[str, Array], extra: tuple[str, ...]) -> list[Array]:
    onnxruntime = pytest.importorskip("onnxruntime", reason="the answers come from ONNX Runtime")
    import onnx

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
    openvino = pytest.importorskip("openvino", reason="the answers come from OpenVINO")
    core = openvino.Core()
    model = core.read_model(path)
    for name in extra:
        model.add_outputs(name)
    # Its default may be bfloat16 on CPUs that have it, which is a far coarser answer.
    compiled = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    result = compiled(inputs)
    return [np.asarray(result[port]) for port in compiled.outputs]
