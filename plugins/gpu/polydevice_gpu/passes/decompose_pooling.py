# ruff: noqa: ARG001 - every decomposition takes builder, operation and inputs
"""Pooling of whole images is a reduction, which many work-groups share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from polydevice.ops.pooling import AvgPool
from polydevice.ops.reduce import ReduceMean
from polydevice_gpu.graph import Value
from polydevice_gpu.passes.decompose import decomposes

if TYPE_CHECKING:
    from polydevice_gpu.passes.lower import Builder

LEAST_POSITIONS = 1024
"""Smaller windows are walked as fast by the kernels for pooling."""


def _is_large_and_whole(op: AvgPool, inputs: Sequence[Value]) -> bool:
    x = inputs[0]
    sizes = x.shape[2:]
    window = op.window
    unpadded = not any(map(any, window.pads(sizes)))
    whole = tuple(window.kernel) == tuple(sizes) and unpadded
    return whole and x.element_type.is_float and math.prod(sizes) >= LEAST_POSITIONS


@decomposes(AvgPool, when=_is_large_and_whole)
def _whole_average(build: Builder, op: AvgPool, inputs: Sequence[Value]) -> Sequence[Value]:
    axes = build.constant(np.arange(2, inputs[0].rank))
    return build.add(ReduceMean(keep_dims=True), inputs[0], axes)
