"""Attributes of a primitive: fused post-operations, quantisation, scratchpad."""

from __future__ import annotations

from collections.abc import Sequence
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
    """A primitive_attr: the scratchpad is always the caller's."""

    __slots__ = ("_library", "_post_ops", "handle")

    def __init__(
        self, post_ops: Sequence[PostOp] = (), quantisation: Sequence[Quantisation] = ()
    ) -> None:
        lib = self._library = required()
        self.handle = lib.create("primitive_attr_create")
        lib.call("primitive_attr_set_scratchpad_mode", self.handle, SCRATCHPAD_USER)
        self._post_ops = lib.create("post_ops_create")
        for post_op in post_ops:
            self._append(post_op)
        if post_ops:
            lib.call("primitive_attr_set_post_ops", self.handle, self._post_ops)
        for item in quantisation:
            if item.scale_mask is not None:
                lib.call(
                    "primitive_attr_set_scales_mask", self.handle, item.argument, item.scale_mask
                )
            if item.zero_point_mask is not None:
                lib.call(
                    "primitive_attr_set_zero_points_mask",
                    self.handle,
                    item.argument,
                    item.zero_point_mask,
                )

    def _append(self, post_op: PostOp) -> None:
        lib, chain = self._library, self._post_ops
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
        if hasattr(self, "_post_ops"):
            self._library.destroy("primitive_attr_destroy", self.handle)
            self._library.destroy("post_ops_destroy", self._post_ops)
