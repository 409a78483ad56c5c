"""target_of: a device's answers to what kernels ask."""

from __future__ import annotations

from polydevice_gpu import cl
from polydevice_gpu.kernels.target import Target


def target_of(device: cl.Device) -> Target:
    """Return the answers that kernels ask for."""
    can = device.capabilities
    lanes = 1
    if can.local_memory_is_dedicated:
        lanes = can.native_sub_group_width or max(can.sub_group_sizes, default=32)
    width = 4
    if lanes == 1:
        width = max(can.preferred_vector_width.get("f32", 1), can.native_vector_width)
    return Target(
        fp64=can.fp64,
        scalar_lanes=lanes,
        vector_width=max(width, 4),
        compute_units=can.compute_units,
        local_memory_bytes=can.local_memory_bytes if can.local_memory_is_dedicated else 0,
        max_work_group_size=can.max_work_group_size,
        matrix_unit=can.tensor_cores_ptx and can.async_copy_ptx,
        async_copy=can.async_copy_ptx,
        warp_group_unit=can.warp_groups_ptx and can.async_copy_ptx,
        warp_shuffle=can.inline_ptx and can.async_copy_ptx,
        byte_product=_byte_product(can, lanes),
        fp16_arithmetic=can.fp16_arithmetic,
        fp16_is_faster=can.fp16_arithmetic and _prefers_half(can),
        sub_group_sizes=can.sub_group_sizes,
        sub_group_size_required="cl_intel_required_subgroup_size" in device.facts.extension_names,
        # Not asked of the driver: PoCL 6 claims independent progress, and writes over the heap.
        sub_groups_end_alone=device.facts.kind == "GPU",
        sub_group_share=_share(can),
        sub_group_block_read=can.sub_group_block_read,
        sub_group_block_read_16bit=can.sub_group_block_read_16bit,
    )


def _byte_product(can: cl.Capabilities, lanes: int) -> str:
    """Return how products of bytes are summed where that is faster than products of floats."""
    if lanes == 1:  # vectors of a work-item; what sums four products takes a vector's time there
        return can.integer_dot_product_x86 and f"x86 {can.integer_dot_product_x86}"
    if can.integer_dot_product_ptx:
        return "ptx"
    return "khr" if can.integer_dot_product_khr else ""


def _prefers_half(can: cl.Capabilities) -> bool:
    """Whether vectors of half are longer than those of float."""
    widths = can.preferred_vector_width
    return widths.get("f16", 0) > widths.get("f32", 0)


def _share(can: cl.Capabilities) -> str:
    """Return the function by which a lane's value reaches its whole sub-group."""
    if can.sub_group_shuffle_intel:
        return "intel_sub_group_shuffle"
    if can.sub_group_shuffle:
        return "sub_group_shuffle"
    return "sub_group_broadcast" if can.sub_groups else ""
