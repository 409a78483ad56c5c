"""OpenVINO's answers to models in IR, kept in .cache/openvino by the content of the question.

The folder may be deleted at any time; then OpenVINO is asked again. It is imported when it is
asked, so that tests with answers by hand run where it is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any

import numpy as np

from tests.kept import kept


def openvino_answers(
    topology: bytes,
    weights: bytes,
    inputs: Sequence[np.ndarray],
    *,
    reference: bool | None = False,
) -> list[np.ndarray]:
    """Compute a model with OpenVINO's CPU plugin in f32, or with its reference implementation.

    Args:
        topology: the model's XML.
        weights: its constants.
        inputs: one array for each Parameter, in order.
        reference: whether to ask the reference implementation, which computes every element type
            as it is and large networks slowly, instead of the plugin, which computes in f32 and
            i32. None asks it first, and the plugin where it lacks the operation: an answer takes 1
            instead of 13 ms of CPU time, as the plugin's passes cost the same for one operation
            as for a hundred (OpenVINO 2026.4.1).

    Raises:
        RuntimeError: OpenVINO refuses the model or the inputs.
    """

    def ask() -> list[np.ndarray]:
        given = [np.array(a, order="C") for a in inputs]
        if reference is None:
            with suppress(RuntimeError):
                return _evaluated(topology, weights, given)
        return (_evaluated if reference else inferred)(topology, weights, given)

    return kept("openvino", _question(topology, weights, inputs, reference), ask)


def _question(
    topology: bytes, weights: bytes, inputs: Sequence[np.ndarray], reference: bool | None
) -> list[object]:
    import openvino

    parts: list[object] = [openvino.get_version(), reference, topology, weights]
    for array in inputs:
        data = array.tolist() if array.dtype.kind in "OUS" else array.tobytes()
        parts += [array.dtype, array.shape, data]
    return parts


@cache
def _core() -> Any:
    import openvino

    core = openvino.Core()
    core.set_property("CPU", {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1})
    return core


def _model(topology: bytes, weights: bytes) -> Any:
    import openvino

    blob = openvino.Tensor(np.frombuffer(weights or b"\0", np.uint8).copy())
    return _core().read_model(topology, blob)


def _evaluated(topology: bytes, weights: bytes, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    import openvino

    model = _model(topology, weights)
    outputs = [openvino.Tensor(o.get_element_type(), openvino.Shape()) for o in model.outputs]
    if not model.evaluate(outputs, [openvino.Tensor(array) for array in inputs]):
        raise RuntimeError("no reference implementation in OpenVINO")
    return [np.array(tensor.data) for tensor in outputs]


@lru_cache(maxsize=8)  # a case asks twice
def _request(topology: bytes, weights: bytes) -> Any:
    return _core().compile_model(_model(topology, weights), "CPU").create_infer_request()


def inferred(topology: bytes, weights: bytes, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Compute a model with OpenVINO's CPU plugin in f32; look for no answer, and keep none.

    For networks and inputs that are others each time.
    """
    import openvino

    request = _request(topology, weights)
    for index, array in enumerate(inputs):
        request.set_input_tensor(index, openvino.Tensor(array))
    request.infer()
    count = len(request.get_compiled_model().outputs)
    return [_array(request.get_output_tensor(i)) for i in range(count)]


def _array(tensor: Any) -> np.ndarray:
    import openvino

    if tensor.element_type == openvino.Type.string:
        return tensor.str_data.astype(object)
    return np.array(tensor.data)
