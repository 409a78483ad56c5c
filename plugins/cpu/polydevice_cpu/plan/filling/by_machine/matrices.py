"""Products of tensors by machine code for all sizes, as attention has them.

oneDNN would generate code for each size. It is the same to the bit, and takes as long.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from polydevice.symbolic_size import is_within
from polydevice_cpu.algorithms.by_machine.code import PARTS, Code, Told, may_share
from polydevice_cpu.algorithms.by_machine.matrices import Seen, products
from polydevice_cpu.algorithms.by_machine.matrix_code import LONGEST, Function
from polydevice_cpu.onednn.attributes import Attributes, Binary, Eltwise, PostOp
from polydevice_cpu.onednn.constants import Algorithm, Arg
from polydevice_cpu.onednn.descriptor import (
    Descriptor,
    SymbolicDescriptor,
    is_plain,
)
from polydevice_cpu.onednn.primitive import Primitive, SymbolicPrimitive

_PRODUCT = "brg:avx512_core"
"""oneDNN's code whose order of computing is followed."""

MOST_PRODUCTS = 1 << 27
"""So many numbers are multiplied: of more, some per cent take longer than to generate code."""

FEW_PRODUCTS = 1 << 19
"""Fewer are not shared: they take some 10 us, and to begin and to end takes threads 3."""

_FUNCTIONS = {
    Algorithm.BINARY_ADD: Function.ADD,
    Algorithm.BINARY_SUB: Function.SUB,
    Algorithm.BINARY_MUL: Function.MUL,
    Algorithm.BINARY_DIV: Function.DIV,
}

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
    is_product = given.name == "matmul" and given.implementation == _PRODUCT
    return _product(given) if is_product else None


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

    threads = given.threads

    def told(sizes: _Sizes) -> Sequence[Told] | None:
        seen = [_seen(each, sizes) for each in sides]
        multiplied = math.prod(seen[2].shape) * seen[0].shape[3]
        if not is_within(multiplied, threads * MOST_PRODUCTS):
            return None
        parts = threads * PARTS if threads > 1 and multiplied >= FEW_PRODUCTS else 1
        functions = [
            (function, _seen(operand, sizes) if isinstance(operand, Descriptor) else operand)
            for function, operand in chain
        ]
        return products(seen[0], seen[1], seen[2], tuple(functions), parts)

    operands = [
        Arg.ATTR_POST_OP * (number + 1) | Arg.SRC_1
        for number, (_, operand) in enumerate(chain)
        if isinstance(operand, Descriptor)
    ]
    return ProductByMachine([Arg.SRC, Arg.WEIGHTS, *operands], told, threads)


def _link(post_op: PostOp) -> tuple[Function, Descriptor | tuple[float, float]] | None:
    """A function that follows; None where there is no code for it."""
    if isinstance(post_op, Binary) and is_plain(post_op.operand):
        function = _FUNCTIONS.get(post_op.algorithm)
        return None if function is None else (function, post_op.operand)
    if isinstance(post_op, Eltwise) and post_op.algorithm == Algorithm.LINEAR:
        return Function.LINEAR, (post_op.alpha, post_op.beta)
    return None


def _numbers(layout: Descriptor, sizes: _Sizes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    found = sizes(layout) if isinstance(layout, SymbolicDescriptor) else None
    shape, steps = (layout.shape, layout.strides) if found is None else found
    return shape, steps or ()


def _seen(layout: Descriptor, sizes: _Sizes) -> Seen:
    """A layout as one of matrices along two axes."""
    shape, steps = _numbers(layout, sizes)
    more = 4 - len(shape)
    return Seen((1,) * more + shape, (0,) * more + steps)
