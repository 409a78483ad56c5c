"""Post-operations of a primitive that machine code computes, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from polydevice_cpu.algorithms.by_machine import matrix_code
from polydevice_cpu.algorithms.by_machine.code import has_avx512
from polydevice_cpu.algorithms.by_machine.windows.following import LONGEST, Function, Link
from polydevice_cpu.onednn.attributes import Binary, Eltwise, PostOp
from polydevice_cpu.onednn.constants import Algorithm

_FUNCTIONS = {
    Algorithm.CLIP: Function.CLIP,
    Algorithm.LINEAR: Function.LINEAR,
    Algorithm.ROUND: Function.ROUND,
    Algorithm.HARD_SIGMOID: Function.HARDSIGMOID,
    Algorithm.HARD_SWISH: Function.HARDSWISH,
    Algorithm.RELU: Function.RELU,
    Algorithm.LOGISTIC: Function.LOGISTIC,
    Algorithm.SWISH: Function.SWISH,
    Algorithm.ELU: Function.ELU,
    Algorithm.GELU_ERF: Function.GELU,
    Algorithm.TANH: Function.TANH,
}

_FUNCTIONS_IN_HALVES = {Algorithm.GELU_TANH: Function.GELU_TANH}
"""Those that have code where there is no AVX-512 alone."""

OF_ONE_NUMBER: Mapping[Algorithm, Callable[[float], Link]] = {
    Algorithm.BINARY_MUL: lambda number: (Function.LINEAR, number, -0.0),
    Algorithm.BINARY_ADD: lambda number: (Function.LINEAR, 1.0, number),
    Algorithm.BINARY_SUB: lambda number: (Function.LINEAR, 1.0, -number),
    Algorithm.BINARY_DIV: lambda number: (Function.QUOTIENT, number, 0.0),
}
"""Functions with an operand that is one number."""

OF_TENSORS: Mapping[Algorithm, Function] = {
    Algorithm.BINARY_ADD: Function.ADD,
    Algorithm.BINARY_SUB: Function.SUBTRACT,
}
"""Functions with an operand that lies as the result does."""


def link_of(post_op: PostOp) -> Link | None:
    """Return a function of one number; None where there is no code for it."""
    if not isinstance(post_op, Eltwise):
        return None
    function = _FUNCTIONS.get(post_op.algorithm)
    if function is None and not has_avx512():
        function = _FUNCTIONS_IN_HALVES.get(post_op.algorithm)
    if function is None:
        return None
    if function is Function.RELU and post_op.alpha != 0:
        return Function.LEAKY, post_op.alpha, 0.0
    return function, post_op.alpha, post_op.beta


def links_of(post_ops: Sequence[PostOp]) -> tuple[Link, ...] | None:
    """Return functions of one number each; None where there is no code for one."""
    found = tuple(link for link in map(link_of, post_ops) if link is not None)
    return found if len(found) == len(post_ops) <= LONGEST else None


_OF_PRODUCTS = {
    Algorithm.BINARY_ADD: matrix_code.Function.ADD,
    Algorithm.BINARY_SUB: matrix_code.Function.SUB,
    Algorithm.BINARY_MUL: matrix_code.Function.MUL,
    Algorithm.BINARY_DIV: matrix_code.Function.DIV,
}


_WITH_CONSTANTS = {
    Algorithm.LINEAR: matrix_code.Function.LINEAR,
    Algorithm.ROUND: matrix_code.Function.ROUND,
    Algorithm.CLIP: matrix_code.Function.CLIP,
}


def product_link(post_op: PostOp) -> tuple[matrix_code.Function, tuple[float, float]] | None:
    """Return what follows a product of two tensors, with two constants; None without code for it.

    What reads an operand has no use of these.
    """
    if isinstance(post_op, Binary):
        function = _OF_PRODUCTS.get(post_op.algorithm)
        return None if function is None else (function, (0.0, 0.0))
    if isinstance(post_op, Eltwise) and post_op.algorithm in _WITH_CONSTANTS:
        return _WITH_CONSTANTS[post_op.algorithm], (post_op.alpha, post_op.beta)
    return None
