"""What a rewrite needs to know of a value; where it is not known, the rewrite declines."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from polydevice.dtype import Array
from polydevice.node import Port
from polydevice.ops.op import Op
from polydevice.symbolic_size import whole


class Declined(Exception):  # noqa: N818 - no error: whoever asked keeps what there is
    """A rewrite does not apply, since something is not known or does not fit."""


def shape_of(port: Port) -> tuple[int, ...]:
    """Return the sizes of a value; raises Declined unless all are known."""
    if not port.desc.is_static or port.shape is None:
        raise Declined(f"the sizes of {port.name} are not known")
    return port.shape.static


def rank_of(port: Port) -> int:
    """Return the number of axes; raises Declined if it is not known."""
    if port.desc.rank is None:
        raise Declined(f"the rank of {port.name} is not known")
    return port.desc.rank


def count_of(port: Port) -> int:
    """Return the number of elements; raises Declined unless all sizes are known."""
    return math.prod(shape_of(port))


def array_of(port: Port) -> Array:
    """Return the elements of a value; raises Declined unless all are known."""
    array = port.node.constant if port.node.constant is not None else port.desc.constant
    if array is None:
        raise Declined(f"the value of {port.name} is not known")
    return array


def is_known(port: Port) -> bool:
    """Whether the elements of a value are known."""
    return port.node.constant is not None or port.desc.constant is not None


def numbers_of(port: Port) -> list[int]:
    """Return the elements of a value as a flat list of ints; raises Declined unless known."""
    return [whole(number) for number in np.asarray(array_of(port)).reshape(-1)]


def parameters_known(op: Op, inputs: Sequence[Port]) -> bool:
    """Whether the elements of all inputs but the first are known."""
    del op
    return all(map(is_known, inputs[1:]))


def result_shapes(op: Op, inputs: Sequence[Port]) -> list[tuple[int, ...]]:
    """Return the sizes of an operation's outputs; raises Declined unless all are known."""
    descs = op.infer([port.desc for port in inputs])
    found = [desc.shape.static for desc in descs if desc.shape is not None and desc.is_static]
    if len(found) < len(descs):
        raise Declined(f"the sizes that {op.type} gives are not known")
    return found


def size_of(port: Port, axis: int) -> int:
    """Return the size along an axis; raises Declined if it is not known."""
    size = None if port.shape is None else port.shape[axis]
    if not isinstance(size, int):
        raise Declined(f"the size of {port.name} along axis {axis} is not known")
    return size
