"""Attributes of a primitive: fused post-operations, quantisation, scratchpad."""

from __future__ import annotations

import ctypes as c
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from polydevice_cpu.onednn.constants import SCRATCHPAD_USER, Algorithm, Arg, DataType
from polydevice_cpu.onednn.descriptor import Descriptor, required


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


class Attributes:
    """A primitive_attr, made when it is needed: the scratchpad is always the caller's.

    Attributes:
        key: equal for equal attributes; None where a layout is not known by its numbers.
    """

    __slots__ = ("_handle", "_library", "_post_ops", "_quantisation", "_sequence", "key")

    def __init__(
        self, post_ops: Sequence[PostOp] = (), quantisation: Sequence[Quantisation] = ()
    ) -> None:
        self._library = required()
        self._sequence = tuple(post_ops)
        self._quantisation = tuple(quantisation)
        self._handle: c.c_void_p | None = None
        self._post_ops: c.c_void_p | None = None
        self.key = self._key()

    def _key(self) -> Hashable | None:
        parts: list[Hashable] = []
        for post_op in self._sequence:
            if isinstance(post_op, Binary):
                if post_op.operand.key is None:
                    return None
                parts.append((post_op.algorithm, post_op.operand.key))
            elif isinstance(post_op, Eltwise):  # by bits: 0 and -0 are equal
                numbers = float(post_op.alpha).hex(), float(post_op.beta).hex()
                parts.append((post_op.algorithm, *numbers))
            else:
                parts.append(post_op)
        return (*parts, *self._quantisation)

    @property
    def handle(self) -> c.c_void_p:
        """What oneDNN's functions take."""
        if self._handle is None:
            self._handle = self._made()
        return self._handle

    def _made(self) -> c.c_void_p:
        lib = self._library
        handle = lib.create("primitive_attr_create")
        lib.call("primitive_attr_set_scratchpad_mode", handle, SCRATCHPAD_USER)
        if self._sequence:
            self._post_ops = lib.create("post_ops_create")
            for post_op in self._sequence:
                self._append(self._post_ops, post_op)
            lib.call("primitive_attr_set_post_ops", handle, self._post_ops)
        for item in self._quantisation:
            argument = item.argument
            if item.scale_mask is not None:
                lib.call("primitive_attr_set_scales_mask", handle, argument, item.scale_mask)
            if item.zero_point_mask is not None:
                mask = item.zero_point_mask
                lib.call("primitive_attr_set_zero_points_mask", handle, argument, mask)
        return handle

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
        if getattr(self, "_handle", None) is not None:
            self._library.destroy("primitive_attr_destroy", self._handle)
        if getattr(self, "_post_ops", None) is not None:
            self._library.destroy("post_ops_destroy", self._post_ops)
