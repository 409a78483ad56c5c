"""What computes each number by itself, by machine code for as many as there are.

oneDNN takes 0.15 to 0.4 ms to choose, generate and bind code for a size, and a trial of what is
fused as long as 3 ms. Answers are the same to the bit, but for a few functions (Tanh, Exp, GELU;
Swish and logistic ones without AVX-512): these are computed so in plans that run often, too, where
that takes no longer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from polydevice.symbolic_size import is_symbolic, is_within
from polydevice_cpu.algorithms.by_machine.code import Code
from polydevice_cpu.algorithms.by_machine.rows import chain as chains
from polydevice_cpu.algorithms.by_machine.rows import elementwise
from polydevice_cpu.algorithms.by_machine.small import Form
from polydevice_cpu.onednn.attributes import Attributes, Binary, Eltwise
from polydevice_cpu.onednn.constants import Arg, DataType
from polydevice_cpu.onednn.descriptor import Descriptor, SymbolicDescriptor, is_strided
from polydevice_cpu.onednn.primitive import Primitive, SymbolicPrimitive
from polydevice_cpu.plan.instead_of_primitives import (
    are_shared,
    is_as_onednn,
    order_of,
    step_of,
    turned,
)

MOST_VECTORS, OF_ROW = 1 << 17, 4
"""So many vectors of 16 numbers are computed at most, some 0.2 ms; to begin a row takes as long as
these."""

_KINDS = {DataType.F32: "f", DataType.U8: "u", DataType.S8: "s"}
_BYTES = {DataType.F32: 4, DataType.U8: 1, DataType.S8: 1}

_Sizes = Callable[[object], Any]


@dataclass(frozen=True)
class PointwiseByMachine:
    """How machine code computes a primitive.

    Attributes:
        inputs: what it reads, by index on execution, in the order in which code is told of it.
        layouts: of these, and of the result.
        kinds: of these, and of the result.
        steps: what is done to the numbers of the first one.
        threads: how many would share them, or do.
        stays: whether they are computed so in plans that run often, too.
        is_shared: whether threads share them, and not oneDNN's.
    """

    inputs: Sequence[int]
    layouts: Sequence[Descriptor]
    kinds: elementwise.Kinds
    steps: Sequence[chains.Step]
    threads: int = 1
    stays: bool = False
    is_shared: bool = False

    def code(self, sizes: _Sizes) -> Code | None:
        """Return the code for some sizes (of layouts: shape and strides); None without any."""
        forms, _ = forms_of(self.layouts, sizes)
        suits = elementwise.are_no_slower if self.stays else partial(may_be, self.threads)
        threads = self.threads if self.is_shared else 1
        told = elementwise.in_parts(self.steps, forms, threads, suits, self.kinds)
        return None if told is None else Code.shared(told, threads)


def may_be(threads: int, count: int, rows: int) -> bool:
    """Return whether so many numbers may be computed, in so many rows, that threads would share."""
    return is_within((count // elementwise.LANES + rows * OF_ROW) * threads, MOST_VECTORS)


def forms_of(layouts: Sequence[Descriptor], sizes: _Sizes) -> tuple[list[Form], list[int]]:
    """Return how layouts lie, and the order of their axes: as the last one lies now.

    In which order axes are walked through changes no answer.
    """
    seen = [_seen(layout, sizes) for layout in layouts]
    order = order_of(seen[-1])
    return turned(seen, order), order


def pointwise_by_machine(given: Primitive) -> PointwiseByMachine | None:
    """Return how machine code computes a primitive; None where it does for no sizes."""
    if not isinstance(given, SymbolicPrimitive):
        return None
    if given.kind == "reorder":
        return _widening(given)
    if given.kind not in ("binary", "eltwise"):
        return None
    chain = given.chain
    if chain is None or given.is_reference:
        return None
    stays = not is_as_onednn(chain)
    is_shared = stays and are_shared(chain)
    if stays and given.threads > 1 and not is_shared:
        return None
    steps, inputs, layouts = [], [int(Arg.SRC)], [given.src]
    for number, post_op in enumerate(chain):
        step = None if _has_formulas(post_op) else step_of(post_op)
        if step is None:
            return None
        steps.append(step)
        if isinstance(post_op, Binary):
            inputs.append(Arg.ATTR_POST_OP * number | Arg.SRC_1)
            layouts.append(post_op.operand)
    found = _computed(given, inputs, [*layouts, given.dst], steps)
    return found and replace(found, stays=stays, is_shared=is_shared)


def _widening(given: SymbolicPrimitive) -> PointwiseByMachine | None:
    """What makes floats of bytes; None of other copies."""
    source, _, result, _, attributes = given.arguments
    if not isinstance(source, Descriptor) or not isinstance(result, Descriptor):
        return None
    assert isinstance(attributes, Attributes)
    if (
        attributes.post_ops
        or attributes.quantisation
        or source.data_type not in (DataType.U8, DataType.S8)
    ):
        return None
    return _computed(given, [int(Arg.SRC)], [source, result], [])


def _computed(
    given: Primitive,
    inputs: Sequence[int],
    layouts: Sequence[Descriptor],
    steps: Sequence[chains.Step],
) -> PointwiseByMachine | None:
    if not all(map(is_strided, layouts)) or len({len(each.shape) for each in layouts}) > 1:
        return None
    kinds = tuple(_KINDS[each.data_type] for each in layouts if each.data_type in _KINDS)
    if len(kinds) < len(layouts) or (kinds[-1] != "f" and chains.HELD in steps):
        return None
    return PointwiseByMachine(inputs, layouts, kinds, steps, given.threads)


def _has_formulas(post_op: object) -> bool:
    """Whether numbers of a function are formulas."""
    return isinstance(post_op, Eltwise) and (
        is_symbolic(post_op.alpha) or is_symbolic(post_op.beta)
    )


def _seen(layout: Descriptor, sizes: _Sizes) -> Form:
    shape, strides = layout.shape, layout.strides
    if isinstance(layout, SymbolicDescriptor):
        shape, strides = sizes(layout)
    return shape, tuple(_BYTES[layout.data_type] * step for step in strides or ())
