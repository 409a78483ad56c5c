"""Values that do not depend on data: constants, ranges, filled tensors."""

from __future__ import annotations

import numpy as np

from polydevice.node import Port
from polydevice.ops.broadcast import Broadcast
from polydevice.readers.onnx.catalog import translates
from polydevice.readers.onnx.node import OnnxNode
from polydevice.readers.onnx.protos.attributes import TensorValue


@translates("Constant")
def constant(n: OnnxNode) -> Port:
    """A tensor, a number, a text, or a list of these."""
    given = [name for name in n.attributes if name.startswith(("value", "sparse_value"))]
    if len(given) != 1:
        raise n.unsupported(f"one value is needed, not {given or 'none'}")
    value = n.attributes[given[0]]
    if isinstance(value, TensorValue):
        return n.value(value.array, value.element_type)
    kind = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64,
            "value_ints": np.int64}.get(given[0], object)  # fmt: skip
    return n.value(np.array(value, kind))


@translates("ConstantOfShape")
def constant_of_shape(n: OnnxNode) -> Port:
    """A tensor of one value, float32 zero by default."""
    value = n.attribute("value")
    if value is None:
        scalar = n.value(np.float32(0))
    else:
        if value.array.size != 1:
            raise n.unsupported(f"value must have one element, not {value.array.size}")
        scalar = n.value(value.array.reshape(()), value.element_type)
    return n.emit(Broadcast(), scalar, n.input(0))
