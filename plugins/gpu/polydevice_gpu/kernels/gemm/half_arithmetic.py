"""Products of half: multiplied and summed in half for a few terms at a time, then in float.

A mode with HALF=1 computes so. Devices that compute half faster than float choose such modes for
values and weights that are stored as f16; f32 values are never rounded for it. Sixteen terms are
summed in half, each sum rounded once (fma), so that the result is off by at most
``16 u / (1 - 16 u)`` of the sum of the products' magnitudes, u = 2^-11, on top of what summing in
float gives; and sixteen products must not add up to more than 65,504.
"""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.dtype import ElementType
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.gemm.gemm import Pace, Tile
from polydevice_gpu.kernels.kernel import Mode
from polydevice_gpu.kernels.target import Target

# Half the time for products, an eighth for adding strips to the sums in float. Not measured.
_SHARE_OF_FLOAT = 0.65


def in_half(tiles: Sequence[Tile]) -> tuple[Tile, ...]:
    """Return the same tiles computing in half, and their expected paces."""
    return tuple(
        ({**tile, "HALF": 1}, Pace(pace.alone_us, pace.shared_us * _SHARE_OF_FLOAT))
        for tile, pace in tiles
    )


def can_compute(node: GpuNode, mode: Mode, target: Target) -> bool:
    """Whether the mode computes in float, or device and factors allow half.

    Processor cores that do not say that half is faster emulate it: Intel's CPU runtime 2026.2 took
    64 s to compile such a tile of 32 by 32, which takes 3 s in float.
    """
    able = target.fp16_arithmetic and (target.is_throughput or target.fp16_is_faster)
    return not mode.get("HALF") or (
        able and all(v.storage is ElementType.f16 for v in node.inputs[:2])
    )


def pays(mode: Mode, target: Target) -> bool:
    """Whether to choose the mode untuned: half only where the device computes it faster."""
    return not mode.get("HALF") or target.fp16_is_faster
