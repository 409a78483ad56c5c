"""What is calculated with sizes alone: refuses what rounds, limits or compares them.

What is left are sums, products and exact quotients, whose course the few sizes that are tried show.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polydevice.dtype import Array
from polydevice.node import Node
from polydevice.ops.arithmetic import Add, Divide, Multiply, Subtract
from polydevice.ops.comparison import Equal, NotEqual
from polydevice.ops.concat import Concat
from polydevice.ops.convert import Convert, ConvertLike
from polydevice.ops.math import Ceiling, Floor, Identity, Negative
from polydevice.ops.op import Op
from polydevice.ops.reshape import ShapeOf
from polydevice.ops.select import Select
from polydevice.padding.labels import Factors
from polydevice.padding.state import Kind, State, UnprovableError

_EXACT: tuple[type[Op], ...] = (Divide, Floor, Ceiling, Convert, ConvertLike)
"""What may round sizes, and is refused if it does."""


_ELEMENTWISE: tuple[type[Op], ...] = (
    *(Add, Subtract, Multiply, Divide, Negative, Floor, Ceiling, Identity, Convert, ConvertLike),
)

_FROM_MANY: tuple[type[Op], ...] = (*_ELEMENTWISE, Equal, NotEqual, Concat, Select, ShapeOf)
"""What may take sizes in any of its inputs; others take them in their first one alone."""


def check_calculated(nodes: Sequence[Node], inputs: Sequence[State], known: Factors) -> None:
    """Refuse what three sizes that are tried do not tell the course of.

    Args:
        nodes: an operation on sizes alone, in each of the networks that are tried.
        inputs: what is known of its inputs.
        known: padded sizes.

    Raises:
        UnprovableError: it may round, limit, compare or lose what follows the sizes.
    """
    op = nodes[0].op
    if not isinstance(op, _FROM_MANY):
        for number, each in enumerate(inputs[1:], 1):
            if each.kind is Kind.SIZES:
                raise UnprovableError(f"its input {number} is a size of the inputs")
    if isinstance(op, (Equal, NotEqual)):
        _check_compared(nodes, known)
    elif isinstance(op, _ELEMENTWISE):
        _check_exact(nodes)


def _check_compared(nodes: Sequence[Node], known: Factors) -> None:
    """Refuse comparisons of anything but padded sizes themselves, which are not below 1."""
    for values in _inputs(nodes):
        for each in values.reshape(len(nodes), -1).T.tolist():
            if len(set(each)) > 1 and tuple(each) not in known.values():
                raise UnprovableError("it compares what is calculated with sizes of the inputs")


def _check_exact(nodes: Sequence[Node]) -> None:
    """Refuse operations on single sizes that round them, limit them, or lose what they follow."""
    inputs = _inputs(nodes)
    results = [node.outputs[0].desc.constant for node in nodes]
    known = [np.asarray(each) for each in results if each is not None]
    if len(known) < len(results) or len({each.shape for each in known}) > 1:
        raise UnprovableError("what it computes of sizes of the inputs is not understood")
    out = np.stack(known)
    if isinstance(nodes[0].op, ConvertLike):
        inputs = inputs[:1]
    varies = np.zeros(out.shape[1:], np.bool_)
    for each in inputs:
        varies = varies | (each != each[:1]).any(axis=0)
    if (varies & ~(out != out[:1]).any(axis=0)).any():
        raise UnprovableError("it loses what follows the sizes of the inputs")
    if not isinstance(nodes[0].op, _EXACT):
        return
    kind = nodes[0].outputs[0].element_type
    exact = out == np.rint(out)
    if isinstance(nodes[0].op, Divide) and not kind.is_float:
        exact = out * inputs[1] == inputs[0]
    elif not isinstance(nodes[0].op, Divide):
        exact = (inputs[0] == np.rint(inputs[0])) & (out == inputs[0])
    narrow = kind.dtype.itemsize < 4
    if (varies & ~exact.all(axis=0)).any() or (narrow and varies.any()):
        raise UnprovableError("it rounds or limits what follows the sizes of the inputs")


def _inputs(nodes: Sequence[Node]) -> list[Array]:
    """Return the inputs of an operation, those of each network that is tried behind another."""
    made = []
    for ports in zip(*(node.inputs for node in nodes), strict=True):
        values = [port.desc.constant for port in ports]
        known = [value for value in values if value is not None]
        if len(known) < len(values) or len({value.shape for value in known}) > 1:
            raise UnprovableError("what it computes of sizes of the inputs is not understood")
        made.append(np.stack(known))
    return made
