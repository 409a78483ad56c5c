"""OpenVINO as the oracle; an operation goes to it as a one-layer IR, attributes included."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np
import pytest

from polydevice.dtype import Array, ElementType
from polydevice.ops.op import Op
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc
from polydevice.testing.op_case import OpCase

openvino = pytest.importorskip("openvino", reason="the answers come from OpenVINO")


@cache
def _core() -> Any:
    core = openvino.Core()
    core.set_property("CPU", {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1})
    return core


def openvino_case(
    op: Op,
    *inputs: Array,
    opset: int | None = None,
    reference: bool = False,
    constants: Collection[int] | bool = (),
    element_types: Mapping[int, ElementType] | None = None,
    **settings: Any,
) -> OpCase:
    """Make a case whose expected outputs come from OpenVINO when it runs.

    `opset` is the version written to the IR (the op's newest otherwise). `reference` asks
    OpenVINO's reference implementation instead of its CPU plugin, which computes in f32 and i32.
    """
    kinds = dict(element_types or {})
    case = OpCase(op, inputs, (), constants=constants, element_types=kinds, **settings)

    def expected() -> list[Array]:
        xml, weights = ir_of(case, opset)
        return compute(xml, weights, case, reference)

    return OpCase(op, inputs, expected, constants=constants, element_types=kinds, **settings)


def compute(xml: str, weights: bytes, case: OpCase, reference: bool) -> list[Array]:
    """Read the IR with OpenVINO and compute it."""
    blob = openvino.Tensor(np.frombuffer(weights or b"\0", np.uint8).copy())
    model = _core().read_model(xml.encode(), blob)
    given = [np.array(a, order="C") for i, a in enumerate(case.inputs) if not case.is_constant(i)]
    if reference:
        tensors = [openvino.Tensor(array) for array in given]
        outputs = [openvino.Tensor(o.get_element_type(), openvino.Shape()) for o in model.outputs]
        assert model.evaluate(outputs, tensors), "no reference implementation in OpenVINO"
        return [np.array(t.data) for t in outputs]
    request = _core().compile_model(model, "CPU").create_infer_request()
    for index, array in enumerate(given):
        request.set_input_tensor(index, openvino.Tensor(array))
    request.infer()
    return [np.array(request.get_output_tensor(i).data) for i in range(len(model.outputs))]


def ir_of(case: OpCase, opset: int | None = None) -> tuple[str, bytes]:
    """Write the case as IR v11: the XML text and the weights."""
    layers, edges, weights = [], [], bytearray()
    count = len(case.inputs)
    descs = [
        TensorDesc(case.element_type(i), Shape(a.shape), a if case.is_constant(i) else None)
        for i, a in enumerate(case.inputs)
    ]
    for i, array in enumerate(case.inputs):
        kind = case.element_type(i)
        sizes = ",".join(map(str, array.shape))
        port = _port(0, TensorDesc(kind, Shape(array.shape)))
        if case.is_constant(i):
            data = _packed(array, kind)
            attributes = {
                "element_type": kind,
                "shape": sizes,
                "offset": len(weights),
                "size": len(data),
            }
            weights += data
            layers.append(_layer(i, "Const", "opset1", attributes, "", port))
        else:
            attributes = {"element_type": kind, "shape": sizes}
            layers.append(_layer(i, "Parameter", "opset1", attributes, "", port))
        edges.append(f'<edge from-layer="{i}" from-port="0" to-layer="{count}" to-port="{i}"/>')
    outputs = case.op.infer(descs)
    version = f"opset{opset or case.op.since[-1]}"
    ports_in = "".join(_port(i, d) for i, d in enumerate(descs))
    ports_out = "".join(_port(count + i, d) for i, d in enumerate(outputs))
    layers.append(_layer(count, case.op.type, version, case.op.to_ir(), ports_in, ports_out))
    for i, desc in enumerate(outputs):
        layers.append(_layer(count + 1 + i, "Result", "opset1", {}, _port(0, desc), ""))
        edges.append(
            f'<edge from-layer="{count}" from-port="{count + i}" '
            f'to-layer="{count + 1 + i}" to-port="0"/>'
        )
    return (
        f'<?xml version="1.0"?><net name="case" version="11"><layers>{"".join(layers)}</layers>'
        f"<edges>{''.join(edges)}</edges></net>"
    ), bytes(weights)


def _packed(array: Array, kind: ElementType) -> bytes:
    """Write elements as IR files hold them; bits are packed from the highest down."""
    if kind is ElementType.u1:
        return np.packbits(array.reshape(-1)).tobytes()
    return np.ascontiguousarray(array).tobytes()


def _layer(
    number: int,
    kind: str,
    version: str,
    attributes: Mapping[str, Any],
    ports_in: str,
    ports_out: str,
) -> str:
    data = "".join(f" {key}={quoteattr(str(value))}" for key, value in attributes.items())
    given = f"<input>{ports_in}</input>" if ports_in else ""
    made = f"<output>{ports_out}</output>" if ports_out else ""
    return (
        f'<layer id="{number}" name="{kind}_{number}" type="{kind}" version="{version}">'
        f"<data{data}/>{given}{made}</layer>"
    )


def _port(number: int, desc: TensorDesc) -> str:
    sizes = desc.shape or ()
    dims = "".join(f"<dim>{n if isinstance(n, int) else -1}</dim>" for n in sizes)
    return f'<port id="{number}" precision="{desc.element_type.precision}">{dims}</port>'


Oracle = Callable[[], Sequence[Array]]
