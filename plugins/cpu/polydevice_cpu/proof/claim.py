"""Claim: that a primitive computes a value and a chain of functions of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from polydevice_cpu.onednn import openmp
from polydevice_cpu.onednn.attributes import Binary, Eltwise, PostOp, Prelu, Sum
from polydevice_cpu.onednn.constants import Algorithm, Arg
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.primitive import Primitive

_PLACES: dict[int, str] = {
    Arg.SRC_1: "SRC_1",
    Arg.WEIGHTS: "WEIGHTS",
    Arg.BIAS: "BIAS",
    Arg.SCALE: "SCALE",
    Arg.SHIFT: "SHIFT",
}
BLOCK = 16
"""Code is generated for blocks of this many elements, and again for what is left of them."""


@dataclass(frozen=True)
class Link:
    """One function of the chain, and the operand it reads.

    Attributes:
        argument: where the operand is given when the primitive is executed; 0 without one.
        memory: how the operand lies in memory.
        shape: the operand's sizes, one per dimension of the result.
    """

    post_op: PostOp
    argument: int = 0
    memory: Descriptor | None = None
    shape: tuple[int, ...] = ()

    @classmethod
    def of(cls, post_op: PostOp, argument: int, result: tuple[int, ...]) -> Link:
        """A post-operation on a result of these sizes, `argument` being its own index."""
        if isinstance(post_op, Binary):
            operand = post_op.operand
            return cls(post_op, argument | Arg.SRC_1, operand, operand.shape)
        if isinstance(post_op, Prelu):
            slopes = tuple(n if post_op.mask >> d & 1 else 1 for d, n in enumerate(result))
            memory = Descriptor.dense((math.prod(slopes),))
            return cls(post_op, argument | Arg.WEIGHTS, memory, slopes)
        return cls(post_op)

    @classmethod
    def bias(cls, memory: Descriptor, rank: int) -> Link:
        """The bias of a convolution or matrix product: one number per channel or column."""
        shape = memory.shape if len(memory.shape) == rank else (1, *memory.shape, *[1] * (rank - 2))
        return cls(Binary(Algorithm.BINARY_ADD, memory), Arg.BIAS, memory, shape)

    def described(self, result: tuple[int, ...]) -> str:
        """Everything about the function and its operand that may decide which code runs."""
        post_op = self.post_op
        if isinstance(post_op, Eltwise):
            numbers = f"{_number(post_op.alpha)},{_number(post_op.beta)}"
            return f"{post_op.algorithm.name}({numbers})"
        if isinstance(post_op, Sum):
            return f"SUM({_number(post_op.scale)})"
        name = "PRELU" if isinstance(post_op, Prelu) else post_op.algorithm.name
        assert self.memory is not None
        spread = "".join("1" if n == 1 else "n" for n in self.shape)
        whole = "=" if self.shape == result else spread
        place = _PLACES.get(self.argument, "POST_OP")
        return f"{name}({place} {self.memory.data_type.name} {self.memory.layout} {whole})"


@dataclass(frozen=True)
class Claim:
    """That `primitive` computes what `base` does, followed by the functions of `links`.

    Attributes:
        base: the same primitive without what is to be proved; None where the chain starts from
            the source itself.
        links: in the order in which they apply.
    """

    primitive: Primitive
    base: Primitive | None
    links: Sequence[Link]

    @property
    def key(self) -> str:
        """The class of primitives that this one stands for."""
        made = self.primitive
        src, dst = made.src, made.dst
        parts = [made.kind, made.implementation]
        parts.append(f"{src.data_type.name} {src.layout} {_amounts(src.shape)}")
        if made.has_weights:
            weights = made.weights
            parts.append(f"{weights.data_type.name} {weights.layout}")
        parts.append(f"{dst.data_type.name} {dst.layout} {_rests(dst.shape)}")
        parts += [link.described(dst.shape) for link in self.links]
        parts.append("threads" if openmp.functions()[0]() > 1 else "thread")
        return "; ".join(parts)


def _amounts(source: tuple[int, ...]) -> str:
    """Class of what is summed over before the chain: in one go, or in how many parts."""
    last = len(source) - 1
    return "x".join(
        f"2^{n.bit_length()}" if d in (1, last) and n > 1 else "1" if n == 1 else "n"
        for d, n in enumerate(source)
    )


def _rests(result: tuple[int, ...]) -> str:
    """Class of the result's sizes: what is left of blocks of channels, rows and positions."""
    last = len(result) - 1
    sizes = "x".join(
        _rest(n) if d in (1, last) else "1" if n == 1 else "n" for d, n in enumerate(result)
    )
    return sizes + ("" if math.prod(result[2:]) % BLOCK else " whole")


def _rest(n: int) -> str:
    return str(n) if n < BLOCK else f"{BLOCK}k+{n % BLOCK}"


def _number(value: float) -> str:
    """Class of a parameter: code is chosen by these values and the sign."""
    if value in (0.0, 1.0, -1.0) or not math.isfinite(value):
        return f"{value:g}"
    return "+" if value > 0 else "-"
