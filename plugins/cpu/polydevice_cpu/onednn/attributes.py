"""Attributes of a primitive: fused post-operations, quantisation, scratchpad."""

from __future__ import annotations

import ctypes as c
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from polydevice_cpu.onednn.constants import SCRATCHPAD_USER, Algorithm, Arg, DataType
from polydevice_cpu.onednn.descriptor import (
    Descriptor,
    SymbolicDescriptor,
    number_descriptor,
    required,
)


@dataclass(frozen=True)
class Eltwise:
    """y = f(y); `alpha` and `beta` as oneDNN defines them for the algorithm."""

    algorithm: Algorithm
    alpha: float = 0.0
    beta: float = 0.0


@dataclass(frozen=True)
class Sum:
    """y = y + scale * (what the destination held before)."""

    scale: float = 1.0
    data_type: DataType | None = None


@dataclass(frozen=True)
class Binary:
    """y = y <algorithm> operand; the operand's sizes are the destination's or 1."""

    algorithm: Algorithm
    operand: Descriptor


@dataclass(frozen=True)
class Prelu:
    """y = y if y > 0 else slope * y; bit d of `mask` set: the slope varies along dimension d."""

    mask: int


PostOp: TypeAlias = "Eltwise | Sum | Binary | Prelu"


@dataclass(frozen=True)
class Quantisation:
    """Which dimensions of an argument (`Arg.SRC`, `WEIGHTS`, `DST`) have a parameter each.

    Bit d of a mask set: one scale (zero point) per index of dimension d. The values are execution
    arguments ``ATTR_SCALES | argument`` and ``ATTR_ZERO_POINTS | argument``.
    """

    argument: Arg
    scale_mask: int | None = None
    zero_point_mask: int | None = None


KEPT = 64
"""How many attributes stay for who asks for the same again, soon as a rule; each takes 5 kB."""


class Attributes:
    """A primitive_attr, made when it is needed: the scratchpad is always the caller's.

    Attributes:
        post_ops, quantisation: what it was made with.
        key: equal for equal attributes; None where a layout is not known by its numbers.
    """

    __slots__ = ("_held", "key", "post_ops", "quantisation")

    def __init__(
        self, post_ops: Sequence[PostOp] = (), quantisation: Sequence[Quantisation] = ()
    ) -> None:
        self.post_ops = tuple(post_ops)
        self.quantisation = tuple(quantisation)
        self._held: _Held | None = None
        self.key = self._key()

    def _key(self) -> Hashable | None:
        parts: list[Hashable] = []
        for post_op in self.post_ops:
            if isinstance(post_op, Binary):
                if post_op.operand.key is None:
                    return None
                parts.append((post_op.algorithm, post_op.operand.key))
            elif isinstance(post_op, Eltwise):  # by bits: 0 and -0 are equal
                numbers = float(post_op.alpha).hex(), float(post_op.beta).hex()
                parts.append((post_op.algorithm, *numbers))
            else:
                parts.append(post_op)
        return (*parts, *self.quantisation)

    @property
    def operands(self) -> list[Descriptor]:
        """The layouts of what post-operations read."""
        return [each.operand for each in self.post_ops if isinstance(each, Binary)]

    @property
    def is_formula(self) -> bool:
        """Whether sizes of operands are formulas."""
        return any(isinstance(operand, SymbolicDescriptor) for operand in self.operands)

    def of_numbers(
        self, number: Callable[[Descriptor], Descriptor] = number_descriptor
    ) -> Attributes:
        """Return the same with other descriptors: those of the numbers that sizes have now."""
        if not self.is_formula:
            return self
        chain = [
            Binary(each.algorithm, number(each.operand)) if isinstance(each, Binary) else each
            for each in self.post_ops
        ]
        return Attributes(chain, self.quantisation)

    def told(self) -> Attributes:
        """Return the same without what oneDNN has of it, 6 kB, for who wants to know alone."""
        if self._held is None:
            return self
        made = Attributes.__new__(Attributes)
        made.post_ops, made.quantisation, made.key = self.post_ops, self.quantisation, self.key
        made._held = None
        return made

    @property
    def handle(self) -> c.c_void_p:
        """What oneDNN's functions take."""
        if self._held is None:
            self._held = _held(self.key, self.post_ops, self.quantisation)
        return self._held.handle


_HELD: dict[Hashable, _Held] = {}


def _held(
    key: Hashable | None, post_ops: Sequence[PostOp], quantisation: Sequence[Quantisation]
) -> _Held:
    """What oneDNN has of attributes; to make it takes some 30 us, and most layers have the same."""
    known = None if key is None else _HELD.get(key)
    if known is None:
        known = _Held(post_ops, quantisation)
        if len(_HELD) >= KEPT:
            _HELD.clear()
        if key is not None:
            _HELD[key] = known
    return known


class _Held:
    """A primitive_attr with its post-operations."""

    __slots__ = ("_library", "handle")

    def __init__(self, post_ops: Sequence[PostOp], quantisation: Sequence[Quantisation]) -> None:
        lib = self._library = required()
        self.handle = lib.create("primitive_attr_create")
        lib.call("primitive_attr_set_scratchpad_mode", self.handle, SCRATCHPAD_USER)
        if post_ops:
            chain = lib.create("post_ops_create")
            try:
                for post_op in post_ops:
                    self._append(chain, post_op)
                lib.call("primitive_attr_set_post_ops", self.handle, chain)  # which copies them
            finally:
                lib.destroy("post_ops_destroy", chain)
        for item in quantisation:
            argument, mask = item.argument, item.scale_mask
            if mask is not None:
                lib.call("primitive_attr_set_scales_mask", self.handle, argument, mask)
            mask = item.zero_point_mask
            if mask is not None:
                lib.call("primitive_attr_set_zero_points_mask", self.handle, argument, mask)

    def _append(self, chain: c.c_void_p, post_op: PostOp) -> None:
        lib = self._library
        if isinstance(post_op, Eltwise):
            lib.call(
                "post_ops_append_eltwise", chain, post_op.algorithm, post_op.alpha, post_op.beta
            )
        elif isinstance(post_op, Sum):
            lib.call("post_ops_append_sum", chain, post_op.scale, 0, post_op.data_type or 0)
        elif isinstance(post_op, Binary):
            lib.call("post_ops_append_binary", chain, post_op.algorithm, post_op.operand.handle)
        else:
            lib.call("post_ops_append_prelu", chain, post_op.mask)

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            self._library.destroy("primitive_attr_destroy", self.handle)
