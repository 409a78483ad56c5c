"""Chains of post-operations: joining them, and what they are worth."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from polydevice.shape import all_happen_to_be_equal
from polydevice_cpu.algorithms.by_machine.code import has_avx512, has_vectors
from polydevice_cpu.algorithms.precision import fits_f32
from polydevice_cpu.onednn.attributes import Binary, Eltwise, PostOp
from polydevice_cpu.onednn.constants import Algorithm

POST_OPS_LIMIT = 32
"""Most post-operations of a primitive (oneDNN's own limit, which it reports as lack of memory)."""

_IN_ROWS = (Algorithm.RELU, Algorithm.ROUND)
"""Functions that need no numbers at hand. Others fetch theirs for every row anew where oneDNN
multiplies [1, 64, 80, 80], channels last, by one number per channel: 0.12 ms become 0.49 with a
quantisation behind it, which takes 0.12 by itself (EPYC, AVX-512)."""


_POLYNOMIALS = (
    *(Algorithm.LOGISTIC, Algorithm.TANH, Algorithm.EXP, Algorithm.LOG, Algorithm.ELU),
    *(Algorithm.GELU_ERF, Algorithm.GELU_TANH, Algorithm.SWISH, Algorithm.MISH),
    Algorithm.SOFT_RELU,
)


_QUICKER_APART = (
    *(Algorithm.LOGISTIC, Algorithm.SWISH, Algorithm.TANH, Algorithm.GELU_ERF),
    Algorithm.GELU_TANH,
)


def is_quicker_apart(post_op: PostOp) -> bool:
    """Whether our own code for a function, alone, takes less than oneDNN's behind sums.

    With AVX2 a number takes that 2.2 ns for a logistic function, 2.5 for Swish, 3.4 for GELU and 8
    for Tanh; ours, which reads and writes numbers, too, 0.8, 0.9, 1.4 and 1.8 (Zen of the first
    generation).
    """
    is_function = isinstance(post_op, Eltwise) and post_op.algorithm in _QUICKER_APART
    return is_function and has_vectors() and not has_avx512()


def described(post_op: PostOp, result: tuple[int, ...]) -> Hashable:
    """What oneDNN's answer depends on, besides sizes; a post-operation on a result of such."""
    if not isinstance(post_op, Binary):
        return post_op
    operand = post_op.operand
    is_whole = all_happen_to_be_equal(operand.shape, result)
    return post_op.algorithm, operand.data_type, is_whole


def is_inexact(chain: Sequence[PostOp], are_sums: bool) -> bool:
    """Whether no two programs find the same last bits of what a chain makes, of sums or not.

    That is so of sums and polynomials until they are rounded.
    """
    for post_op in reversed(chain):
        if isinstance(post_op, Eltwise) and post_op.algorithm in (*_POLYNOMIALS, Algorithm.ROUND):
            return post_op.algorithm is not Algorithm.ROUND
    return are_sums


def is_slow_in_rows(post_op: PostOp) -> bool:
    """Whether a function takes longer behind code that goes through short rows than by itself."""
    return isinstance(post_op, Eltwise) and post_op.algorithm not in _IN_ROWS


def joined(chain: Sequence[PostOp], more: Sequence[PostOp]) -> tuple[list[PostOp], int]:
    """One chain after the other, and the place of the second one's first function.

    Two factors that meet become one, which f32 must hold. Not a factor behind a summand:
    (x - z) * s is 0 for z, to the last bit, and x * s - z * s is not.
    """
    if chain and more:
        last, first = chain[-1], more[0]
        if (
            isinstance(last, Eltwise)
            and isinstance(first, Eltwise)
            and last.algorithm is first.algorithm is Algorithm.LINEAR
            and last.beta == 0
            and fits_f32(last.alpha * first.alpha)
        ):
            both = Eltwise(Algorithm.LINEAR, last.alpha * first.alpha, first.beta)
            return [*chain[:-1], both, *more[1:]], len(chain) - 1
    return [*chain, *more], len(chain)
