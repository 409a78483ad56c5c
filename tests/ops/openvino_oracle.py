"""OpenVINO as the oracle; an operation goes to it as a one-layer IR, attributes included."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.errors import PolydeviceError
from polydevice.ops.op import Op
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc
from polydevice.testing.op_case import OpCase
from tests.openvino_answers import openvino_answers


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
    settings |= {"constants": constants, "element_types": kinds}

    def expected(values: Sequence[Array]) -> list[Array]:
        asked = OpCase(op, values, (), **settings)
        given = [a for i, a in enumerate(values) if not asked.is_constant(i)]
        try:
            return openvino_answers(*ir_of(asked, opset), given, reference=reference)
        except (RuntimeError, PolydeviceError) as error:
            if values is inputs:
                raise
            raise LookupError(f"OpenVINO refuses these inputs: {error}") from error

    return OpCase(op, inputs, expected, **settings)


def wide_case(
    op: Op,
    *inputs: Array,
    constants: Collection[int] | bool = (),
    opset: int | None = None,
    **settings: Any,
) -> OpCase:
    """Make a case in f16 or bf16 whose answer is OpenVINO's in f32, rounded to the type."""
    narrow = inputs[0].dtype

    def widened(values: Sequence[Array]) -> list[Array]:
        return [v.astype(np.float32) if v.dtype == narrow else v for v in values]

    wide = openvino_case(op, *widened(inputs), constants=constants, opset=opset)

    def expected(values: Sequence[Array]) -> list[Array]:
        answers = wide.answers(wide.inputs if values is inputs else widened(values))
        return [a.astype(narrow) if a.dtype == np.float32 else a for a in answers]

    return OpCase(op, inputs, expected, constants=constants, **settings)


def ir_of(case: OpCase, opset: int | None = None) -> tuple[bytes, bytes]:
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
    text = (
        f'<?xml version="1.0"?><net name="case" version="11"><layers>{"".join(layers)}</layers>'
        f"<edges>{''.join(edges)}</edges></net>"
    )
    return text.encode(), bytes(weights)


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
