"""Target: what kernels ask about a device. Capabilities, never who made it."""

from __future__ import annotations

from polydevice.dataclass import dataclass


@dataclass(frozen=True)
class Target:
    """Answers that decide which kernels a device runs and in which mode.

    Attributes:
        fp64: whether double precision is computed.
        scalar_lanes: work-items that one instruction serves (a warp, a sub-group); 1 where a
            work-item is a loop iteration on a processor core.
        vector_width: floats in one explicit vector that the device handles best.
        compute_units: independent processors.
        local_memory_bytes: fast memory that a work-group shares; 0 where it is ordinary memory.
        max_work_group_size: work-items in one group.
        matrix_unit: whether inline PTX reaches mma.sync, ldmatrix and cp.async.
        async_copy: whether inline PTX reaches cp.async.
        warp_group_unit: whether PTX reaches wgmma, and cp.async.
        warp_shuffle: whether inline PTX reaches shfl.sync, by which a warp's lanes exchange values.
        byte_product: how four products of bytes are added to a sum at once: "khr", functions of
            cl_khr_integer_dot_product; "ptx", dp4a in inline PTX; vpdpbusd, for sixteen sums,
            as "x86 assembly", inline, or as a function of LLVM's on "x86 bytes" or "x86 words";
            "" where there is nothing.
        fp16_arithmetic: whether half is computed with, and not only stored.
        fp16_is_faster: whether the device says that it computes half faster than float.
        sub_group_sizes: sub-groups that kernels get, in work-items; empty where there are none.
        sub_group_size_required: whether a kernel may ask for one of these sizes.
        sub_groups_end_alone: whether a sub-group may end while others of its work-group go on.
            Where sub-groups are loops their functions are barriers for the whole work-group.
        sub_group_share: the OpenCL C function that gives one lane's value to all lanes of a
            sub-group, ``f(value, lane)``; "" where there is none.
        sub_group_block_read: whether a sub-group reads neighbouring 32-bit values at once.
        sub_group_block_read_16bit: the same of 16-bit values.
        sizes_vary: whether the network comes with other sizes too, so that programs should serve
            many of them.
    """

    fp64: bool = True
    scalar_lanes: int = 1
    vector_width: int = 8
    compute_units: int = 1
    local_memory_bytes: int = 0
    max_work_group_size: int = 256
    matrix_unit: bool = False
    async_copy: bool = False
    warp_group_unit: bool = False
    warp_shuffle: bool = False
    byte_product: str = ""
    fp16_arithmetic: bool = False
    fp16_is_faster: bool = False
    sub_group_sizes: tuple[int, ...] = ()
    sub_group_size_required: bool = False
    sub_groups_end_alone: bool = False
    sub_group_share: str = ""
    sub_group_block_read: bool = False
    sub_group_block_read_16bit: bool = False
    sizes_vary: bool = False

    @property
    def is_throughput(self) -> bool:
        """Whether many work-items run in lockstep, so that neighbours should read neighbours."""
        return self.scalar_lanes > 1

    @property
    def sums_byte_vectors(self) -> bool:
        """Whether four products of bytes are added to each of sixteen sums at once."""
        return self.byte_product.startswith("x86")

    @property
    def declared_local_bytes(self) -> int:
        """Local memory that a kernel may declare, which is more than OpenCL says on Hopper."""
        return 224 << 10 if self.warp_group_unit else self.local_memory_bytes

    def nominal(self, size: int) -> int:
        """Return the size to choose a mode by; one for many where sizes vary.

        Tiles of half the size or less waste little whatever the size is, and large ones little in
        any size from twice the largest tile on.
        """
        if not self.sizes_vary:
            return size
        return _LARGE if size >= _MANY_TILES else 1 << max(size.bit_length() - 2, 0)


_MANY_TILES, _LARGE = 32, 1 << 16
