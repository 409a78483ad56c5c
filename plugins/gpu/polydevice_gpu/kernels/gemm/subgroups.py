"""Sub-groups: what kernels that hand values from lane to lane tell their .cl files."""

from __future__ import annotations

from polydevice.dtype import ElementType
from polydevice_gpu.kernels.gemm.gemm import Pace, Tile
from polydevice_gpu.kernels.kernel import Mode
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target

_EXTENSIONS = """#ifdef cl_khr_fp16
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#endif
#ifdef cl_khr_subgroups
#pragma OPENCL EXTENSION cl_khr_subgroups : enable
#endif
#ifdef cl_khr_subgroup_shuffle
#pragma OPENCL EXTENSION cl_khr_subgroup_shuffle : enable
#endif"""


def subgroup_tile(lanes: int, rows: int, columns: int, subs: int, pace: Pace) -> Tile:
    """Return the tile of `subs` sub-groups of `lanes`, each lane with `rows` by `columns`."""
    share = {"SG": lanes, "TM": rows, "TN": columns, "SUBS": subs}
    return {**share, "BM": rows * subs, "BN": lanes * columns}, pace


def has_size(target: Target, mode: Mode) -> bool:
    """Whether sub-groups of the mode's size exist and are of use, and its work-group exists.

    Processor cores offer any size; of use is that of their vectors.
    """
    size = mode["SG"]
    return (
        size in target.sub_group_sizes
        and (target.is_throughput or size == target.vector_width)
        and size * mode["SUBS"] <= target.max_work_group_size
    )


def declare_lanes(call: Call, mode: Mode, kind: str) -> None:
    """Declare what lanes.cl needs, and sub-groups of the mode's size where one may ask for it.

    Args:
        call: the launch.
        mode: SG and SUBS.
        kind: C type of the values that lanes hand each other.
    """
    target = call.target
    required = target.sub_group_size_required
    alone = required and target.sub_groups_end_alone
    call.define(LANE_T=kind, SIZE_REQUIRED=required, END_ALONE=alone)
    if target.sub_group_share:
        call.function(_EXTENSIONS)
        call.define(SHARE=target.sub_group_share)
    if required:
        call.attribute(f"intel_reqd_sub_group_size({mode['SG']})")


def block_read(
    target: Target, storage: ElementType, pointer: str, width: int, kind: str = "float"
) -> str | None:
    """Write the expression that reads `width` elements for every lane, a sub-group's size apart.

    Args:
        target: the device.
        storage: type of the elements.
        pointer: address of the first lane's first element; a multiple of four bytes.
        width: 1, 2, 4 or 8.
        kind: C type of the elements read: float, or half for what is stored so.

    Returns:
        One element or a vector; None where the device has no such reads, or gives kernels
        sub-groups of sizes that are not known when they are written.
    """
    if not target.sub_group_size_required:
        return None
    many = str(width) if width > 1 else ""
    if storage is ElementType.f32 and target.sub_group_block_read:
        read = f"intel_sub_group_block_read{many}((__global const uint*)({pointer}))"
        return f"as_float{many}({read})"
    if (
        storage is ElementType.f16
        and target.sub_group_block_read_16bit
        and target.fp16_arithmetic  # vectors of half are types only there
    ):
        read = f"intel_sub_group_block_read_us{many}((__global const ushort*)({pointer}))"
        vector = f"as_half{many}({read})"
        return vector if kind == "half" else f"convert_float{many}({vector})"
    return None
