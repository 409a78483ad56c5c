"""Claim: that a primitive computes a value and a chain of functions of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from polydevice.symbolic_size import written
from polydevice_cpu.onednn.attributes import Binary, Eltwise, PostOp, Prelu, Sum
from polydevice_cpu.onednn.constants import Algorithm, Arg, DataType
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.primitive import Primitive

_PLACES: dict[int, str] = {
    Arg.SRC_1: "SRC_1",
    Arg.WEIGHTS: "WEIGHTS",
    Arg.BIAS: "BIAS",
    Arg.SCALE: "SCALE",
    Arg.SHIFT: "SHIFT",
    Arg.ATTR_SCALES | Arg.WEIGHTS: "SCALES",
    Arg.ATTR_SCALES | Arg.SRC: "FACTOR",
}
_ROW_MAJOR = "abcdefghijkl"
SHAPES = 4096
"""How many shapes' classes are kept at hand."""
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
            return _function(post_op.algorithm, post_op.alpha, post_op.beta)
        if isinstance(post_op, Sum):
            return f"SUM({_number(post_op.scale)})"
        name = "PRELU" if isinstance(post_op, Prelu) else _name(post_op.algorithm)
        memory = self.memory
        assert memory is not None
        whole = "=" if self.shape == result else _spread(self.shape)
        place = _PLACES.get(self.argument, "POST_OP")
        return f"{name}({place} {_name(memory.data_type)} {memory.layout} {whole})"

    @property
    def descriptors(self) -> list[Descriptor]:
        """The layouts that it names."""
        operand = [self.post_op.operand] if isinstance(self.post_op, Binary) else []
        return operand if self.memory is None else [self.memory, *operand]

    def of_numbers(
        self, number: Callable[[Descriptor], Descriptor], shape: tuple[int, ...]
    ) -> Link:
        """The same of layouts whose sizes are numbers, each from `number`, and of such a shape."""
        memory, post_op = self.memory, self.post_op
        if memory is None:
            return self
        if isinstance(post_op, Binary):
            post_op = Binary(post_op.algorithm, number(post_op.operand))
        return Link(post_op, self.argument, number(memory), shape)

    def is_flat(self, result: Descriptor) -> bool:
        """Whether it does the same wherever an element lies: no operand, one number, or all."""
        if isinstance(self.post_op, Prelu):
            return False
        memory = self.memory
        if memory is None or memory.shape.count(1) == len(memory.shape):
            return True
        return self.shape == result.shape and memory.layout == result.layout


@dataclass(frozen=True)
class Claim:
    """That `primitive` computes what `base` does, followed by the functions of `links`.

    Attributes:
        base: makes the same primitive without what is to be proved; None where the chain starts
            from the source itself.
        links: in the order in which they apply.
        zero: what a primitive on integers subtracts from its source; the base, which computes in
            f32, does not.
        window: kernel, strides and so on, where the base is no code of the same kind, or code for
            one may be wrong for another.
    """

    primitive: Primitive
    base: Callable[[], Primitive] | None
    links: Sequence[Link]
    zero: int = 0
    window: str = ""

    @property
    def is_integral(self) -> bool:
        """Whether 8-bit integers are multiplied and summed, and the base does so in f32."""
        return self.base is not None and self.primitive.src.data_type in (
            DataType.U8,
            DataType.S8,
        )

    @property
    def key(self) -> str:
        """The class of primitives that this one stands for.

        It is asked for every fused layer of every plan, and takes 2 to 8 us.
        """
        made = self.primitive
        src, dst = made.src, made.dst
        amounts = "" if self.base is None else _amounts(src.shape)  # nothing is summed
        parts = [made.kind, made.implementation, f"{_name(src.data_type)} {src.layout} {amounts}"]
        if made.has_weights:
            weights = made.weights
            parts.append(f"{_name(weights.data_type)} {weights.layout}")
        rests = _flat_rest(dst.shape) if self._is_flat else _rests(dst.shape)
        parts.append(f"{_name(dst.data_type)} {dst.layout} {rests}")
        parts += [link.described(dst.shape) for link in self.links]
        if self.is_integral:
            parts.append(f"{self.window} less {'a zero point' if self.zero else '0'}")
        elif self.window:
            parts.append(self.window)
        parts.append("threads" if made.threads > 1 else "thread")
        return "; ".join(parts)

    @property
    def _is_flat(self) -> bool:
        """Whether all tensors are walked through as one row, whatever their sizes."""
        src, dst = self.primitive.src, self.primitive.dst
        return (
            self.base is None
            and src.shape == dst.shape
            and src.layout == dst.layout == _ROW_MAJOR[: len(dst.shape)]
            and all(link.is_flat(dst) for link in self.links)
        )


@dataclass(frozen=True)
class NotedClaim:
    """A claim of which sizes are formulas, without the primitive; see `Claim`.

    Attributes:
        named: sizes that the window's text names, in that order.
    """

    base: Primitive | None
    links: tuple[Link, ...]
    zero: int
    window: str
    named: tuple[int, ...] = ()

    def of(
        self,
        primitive: Primitive,
        shapes: Sequence[tuple[int, ...]],
        descriptor: Callable[[Descriptor], Descriptor],
        other: Callable[[Primitive], Primitive],
    ) -> Claim:
        """Return the claim for numbers.

        Args:
            primitive: what it is about.
            shapes: of the links; and, behind these, the numbers of the window's sizes.
            descriptor: from a layout of formulas to one of numbers.
            other: the same of primitives.
        """
        base = self.base
        *own, named = shapes
        numbers = iter(named)
        window = written(self.window, lambda _: next(numbers)) if named else self.window
        links = [
            link.of_numbers(descriptor, shape) for link, shape in zip(self.links, own, strict=True)
        ]
        make = None if base is None else lambda: other(base)
        return Claim(primitive, make, links, self.zero, window)


@cache
def _name(member: Algorithm | DataType) -> str:
    return member.name  # of an enumeration, where it takes longer to look up


@lru_cache(maxsize=SHAPES)
def _function(algorithm: Algorithm, alpha: float, beta: float) -> str:
    return f"{_name(algorithm)}({_number(alpha)},{_number(beta)})"


@lru_cache(maxsize=SHAPES)
def _spread(operand: tuple[int, ...]) -> str:
    return "".join("1" if n == 1 else "n" for n in operand)


@lru_cache(maxsize=SHAPES)
def _amounts(source: tuple[int, ...]) -> str:
    """Class of what is summed over before the chain: in one go, or in how many parts."""
    last = len(source) - 1
    return "x".join(
        f"2^{n.bit_length()}" if d in (1, last) and n > 1 else "1" if n == 1 else "n"
        for d, n in enumerate(source)
    )


@lru_cache(maxsize=SHAPES)
def _rests(result: tuple[int, ...]) -> str:
    """Class of the result's sizes: what is left of blocks of channels, rows and positions."""
    last = len(result) - 1
    sizes = "x".join(
        _rest(n) if d in (1, last) else "1" if n == 1 else "n" for d, n in enumerate(result)
    )
    return sizes + ("" if math.prod(result[2:]) % BLOCK else " whole")


@lru_cache(maxsize=SHAPES)
def _flat_rest(result: tuple[int, ...]) -> str:
    """Class of the result's sizes where only their product counts."""
    return "x".join("1" if n == 1 else "n" for n in result) + " of " + _rest(math.prod(result))


def _rest(n: int) -> str:
    return str(n) if n < BLOCK else f"{BLOCK}k+{n % BLOCK}"


def _number(value: float) -> str:
    """Class of a parameter: code is chosen by these values and the sign."""
    if value in (0.0, 1.0, -1.0) or not math.isfinite(value):
        return f"{value:g}"
    return "+" if value > 0 else "-"
