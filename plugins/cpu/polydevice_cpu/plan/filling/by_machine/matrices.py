"""Products of tensors by machine code for all sizes, as attention has them.

oneDNN would generate code for each size. It is the same to the bit, and takes as long.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from polydevice.symbolic_size import is_symbolic, is_within
from polydevice_cpu.algorithms.by_machine.code import PARTS, Code, Told, may_share
from polydevice_cpu.algorithms.by_machine.matrices import Seen, products
from polydevice_cpu.algorithms.by_machine.matrix_code import LONGEST, Function
from polydevice_cpu.onednn.attributes import Attributes, Binary, PostOp, Sum
from polydevice_cpu.onednn.constants import GEMM, Arg
from polydevice_cpu.onednn.descriptor import (
    Descriptor,
    SymbolicDescriptor,
    is_plain,
)
from polydevice_cpu.onednn.primitive import Primitive, SymbolicPrimitive
from polydevice_cpu.plan.post_ops import product_link

_PRODUCT = "brg:avx512_core"
"""oneDNN's code whose order of computing is followed."""

MOST_PRODUCTS = 1 << 27
"""So many numbers are multiplied: of more, some per cent take longer than to generate code."""

FEW_PRODUCTS = 1 << 19
"""Fewer are not shared: they take some 10 us, and to begin and to end takes threads 3."""

_Sizes = Callable[[object], Any]


@dataclass(frozen=True)
class ProductByMachine:
    """How machine code computes a primitive.

    Attributes:
        inputs: what it reads, by index on execution, in the order in which code is told of it.
        told: returns the calls for some sizes (of layouts: shape and strides); None without code.
        threads: how many share them.
    """

    inputs: Sequence[int]
    told: Callable[[_Sizes], Sequence[Told] | None]
    threads: int = 1

    def code(self, sizes: _Sizes) -> Code | None:
        """Return the code for some sizes; None where oneDNN computes it."""
        told = self.told(sizes)
        if told is None:
            return None
        is_shared = len(told) >= self.threads > 1
        return Code.shared(told, self.threads) if is_shared else Code.of(told)


def product_by_machine(given: Primitive) -> ProductByMachine | None:
    """Return how machine code computes a primitive; None where it does for no sizes."""
    if not isinstance(given, SymbolicPrimitive) or not (given.threads == 1 or may_share()):
        return None
    is_product = given.name == "matmul" and given.implementation in (_PRODUCT, GEMM)
    return _product(given) if is_product else None


def stays_by_machine(given: SymbolicPrimitive) -> bool:
    """Whether a product by machine code is computed so in plans that run often, too."""
    return given.implementation == GEMM


def _product(given: SymbolicPrimitive) -> ProductByMachine | None:
    _, first, second, bias, result, attributes = given.arguments
    assert isinstance(attributes, Attributes)
    sides = [each for each in (first, second, result) if is_plain(each)]
    if bias is not None or attributes.quantisation or len(sides) < 3:
        return None
    if not isinstance(second, SymbolicDescriptor):
        return None  # constants are packed
    ranks = {len(each.shape) for each in (*sides, *attributes.operands)}
    if len(ranks) > 1 or not ranks <= {2, 3, 4}:
        return None
    links = [_link(post_op) for post_op in attributes.post_ops]
    chain = [link for link in links if link is not None]
    if len(chain) < len(links) or len(chain) > LONGEST:
        return None

    threads, inputs = given.threads, [Arg.SRC, Arg.WEIGHTS]
    # Columns times one column, where terms lie apart, are the same sums with rows for columns.
    is_turned = _is_one(sides[2].shape[-1]) and not _is_one((sides[0].strides or (1,))[-1])
    if is_turned:
        sides[:2], inputs = [sides[1], sides[0]], inputs[::-1]

    def seen(layout: Descriptor, sizes: _Sizes) -> Seen:
        found = _seen(layout, sizes)
        return found.turned() if is_turned else found

    def told(sizes: _Sizes) -> Sequence[Told] | None:
        first, second, result = (seen(each, sizes) for each in sides)
        multiplied = math.prod(result.shape) * first.shape[3]
        if not is_within(multiplied, threads * MOST_PRODUCTS):
            return None
        parts = threads * PARTS if threads > 1 and multiplied >= FEW_PRODUCTS else 1
        functions = [
            (function, seen(operand, sizes) if isinstance(operand, Descriptor) else operand)
            for function, operand in chain
        ]
        return products(first, second, result, tuple(functions), parts)

    operands = [
        Arg.ATTR_POST_OP * (number + 1) | Arg.SRC_1
        for number, (_, operand) in enumerate(chain)
        if isinstance(operand, Descriptor)
    ]
    return ProductByMachine([*inputs, *operands], told, threads)


def _is_one(size: object) -> bool:
    """Whether a size or step is 1 for all sizes."""
    return not is_symbolic(size) and size == 1


def _link(post_op: PostOp) -> tuple[Function, Descriptor | tuple[float, float]] | None:
    """A function that follows; None where there is no code for it."""
    if post_op == Sum():
        return Function.SUM, (0.0, 0.0)
    found = product_link(post_op)
    if found is None or not isinstance(post_op, Binary):
        return found
    return (found[0], post_op.operand) if is_plain(post_op.operand) else None


def _numbers(layout: Descriptor, sizes: _Sizes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    found = sizes(layout) if isinstance(layout, SymbolicDescriptor) else None
    shape, steps = (layout.shape, layout.strides) if found is None else found
    return shape, steps or ()


def _seen(layout: Descriptor, sizes: _Sizes) -> Seen:
    """A layout as one of matrices along two axes."""
    shape, steps = _numbers(layout, sizes)
    more = 4 - len(shape)
    return Seen((1,) * more + shape, (0,) * more + steps)
