"""Runs in a child process: compile and run tiny kernels to learn what a device really can do.

Each probe tells its name before it starts, so that the parent knows which one a driver died of.
A probe is right only when the kernel computed the right numbers.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from polydevice_gpu.cl import child_process, library
from polydevice_gpu.cl.probing.bench import (
    LANES,
    READ_WRITE_COPY,
    WORDS,
    Bench,
    ProbeError,
    open_bench,
)
from polydevice_gpu.cl.probing.dot_products import (
    integer_dot_product_khr,
    integer_dot_product_ptx,
    integer_dot_product_x86,
)
from polydevice_gpu.cl.probing.kernel_copies import kernel_copies
from polydevice_gpu.cl.programs import builtins
from polydevice_gpu.cl.programs.warp_groups import DECLARED_LOCAL_BYTES
from polydevice_gpu.cl.queues import command_buffer

_REPLAYS = 2000
_SUB_GROUP_SIZES_INTEL = 0x4108
_WARP_SIZE_NV = 0x4003
_WAVEFRONT_WIDTH_AMD = 0x4043
_LOCAL_MEM_SIZE = 0x1023
_MAX_COMPUTE_UNITS = 0x1002
_SHUFFLE_EXPECTED = [i ^ 1 for i in range(LANES)]


def own_declarations(bench: Bench) -> bool:
    """Declare built-in functions in the program, where the driver leaves its header of them out."""
    source = """__kernel void probe(__global int* out, __local int* tile) {
        int lane = get_local_id(0);
        tile[lane] = (int)rint(ldexp(exp((float)(lane - lane)), 3)) + max(lane, 5);
        barrier(CLK_LOCAL_MEM_FENCE);
        int4 read = vload4(15 - lane / 4, tile);
        atomic_add(out + lane, 0);
        out[lane] = select(read.x, (int)convert_float4(read).w, lane > 31); }"""
    options = f"-cl-std={bench.c_standard} {builtins.OPTION}"
    try:
        bench.build(source, options=options)
    except ProbeError:
        expected = [8 + max(60 - i // 4 * 4 + (3 if i > 31 else 0), 5) for i in range(LANES)]
        declared = builtins.declared(source)
        bench.declares = bench.expect(declared, expected, options=options, local_bytes=4 * LANES)
        return bench.declares
    raise ProbeError("the compiler has no such header, or reads it always")


def fp16_storage(bench: Bench) -> bool:
    """Load and store half without arithmetic on it."""
    source = """__kernel void probe(__global int* out) {
        __global half* h = (__global half*)(out + 100);
        vstore_half(1.5f + get_local_id(0), get_local_id(0), h);
        out[get_local_id(0)] = (int)(vload_half(get_local_id(0), h) * 2.0f); }"""
    return bench.expect(source, [3 + 2 * i for i in range(LANES)])


def fp16_arithmetic(bench: Bench) -> bool:
    """Multiply and add in half."""
    bench.need("cl_khr_fp16")
    source = """#pragma OPENCL EXTENSION cl_khr_fp16 : enable
        __kernel void probe(__global int* out) {
        half a = (half)get_local_id(0);
        out[get_local_id(0)] = (int)(fma(a, (half)2.0f, (half)1.0f) - (half)0.5f * (half)2.0f); }"""
    return bench.expect(source, [2 * i for i in range(LANES)])


def fp64(bench: Bench) -> bool:
    """Add in double, with more digits than float has."""
    bench.need("cl_khr_fp64")
    source = """#pragma OPENCL EXTENSION cl_khr_fp64 : enable
        __kernel void probe(__global int* out) {
        double a = 16777216.0 + get_local_id(0);
        out[get_local_id(0)] = (int)(a + 1.0 - 16777216.0); }"""
    return bench.expect(source, [i + 1 for i in range(LANES)])


def sub_group_sizes(bench: Bench) -> list[int]:
    """Sizes a kernel can really get; only one where a kernel cannot require a size."""
    bench.need("cl_khr_subgroups", "cl_intel_subgroups", "cl_khr_subgroup_shuffle")
    body = """int taking_part = sub_group_reduce_add(1);
        out[get_local_id(0)] = taking_part == get_sub_group_size() ? taking_part : 0; }"""
    if "cl_intel_required_subgroup_size" in bench.extensions:
        sizes = []
        for size in bench.words(_SUB_GROUP_SIZES_INTEL, ctypes.sizeof(ctypes.c_size_t)):
            if size > LANES:
                # PoCL 6 offers up to 512. In a smaller work-group such a sub-group claims its full
                # size and sums what lies behind its items.
                continue
            attribute = f"__attribute__((intel_reqd_sub_group_size({size})))"
            source = f"{attribute} __kernel void probe(__global int* out) {{ {body}"
            try:
                bench.expect(source, [size] * LANES)
            except ProbeError:
                continue
            sizes.append(size)
        return sizes
    source = f"{_SUB_GROUPS}__kernel void probe(__global int* out) {{ {body}"
    size = bench.run(source)[0]
    if not 1 <= size <= LANES:
        raise ProbeError(f"a sub-group of {size}")
    return [size]


_SUB_GROUPS = """#ifdef cl_khr_subgroups
#pragma OPENCL EXTENSION cl_khr_subgroups : enable
#endif
"""


def sub_group_shuffle(bench: Bench) -> bool:
    """Exchange values with the neighbour: sub_group_shuffle."""
    bench.need("cl_khr_subgroup_shuffle")
    source = f"""{_SUB_GROUPS}#pragma OPENCL EXTENSION cl_khr_subgroup_shuffle : enable
        __kernel void probe(__global int* out) {{
        int v = get_local_id(0);
        out[v] = sub_group_shuffle(v, get_sub_group_local_id() ^ 1); }}"""
    return bench.expect(source, _SHUFFLE_EXPECTED)


def sub_group_shuffle_intel(bench: Bench) -> bool:
    """Exchange values with the neighbour: intel_sub_group_shuffle."""
    bench.need("cl_intel_subgroups")
    source = """__kernel void probe(__global int* out) {
        int v = get_local_id(0);
        out[v] = intel_sub_group_shuffle(v, get_sub_group_local_id() ^ 1); }"""
    return bench.expect(source, _SHUFFLE_EXPECTED)


def sub_group_block_read(bench: Bench) -> bool:
    """Read 32-bit values for a whole sub-group at once: intel_sub_group_block_read."""
    bench.need("cl_intel_subgroups")
    source = """__kernel void probe(__global int* out) {
        uint first = get_sub_group_id() * get_max_sub_group_size();
        uint v = intel_sub_group_block_read((__global const uint*)out + 128 + first);
        out[get_local_id(0)] = (int)v; }"""
    return bench.expect(source, [128 + i for i in range(LANES)])


def sub_group_block_read_16bit(bench: Bench) -> bool:
    """Read 16-bit values for a whole sub-group at once: intel_sub_group_block_read_us."""
    bench.need("cl_intel_subgroups_short")
    source = """__kernel void probe(__global int* out) {
        uint first = get_sub_group_id() * get_max_sub_group_size();
        ushort v = intel_sub_group_block_read_us((__global const ushort*)out + 256 + first);
        out[get_local_id(0)] = (int)v; }"""
    # Little-endian words: the low half of word w is w, the high half 0.
    return bench.expect(source, [128 + i // 2 if i % 2 == 0 else 0 for i in range(LANES)])


def inline_ptx(bench: Bench) -> bool:
    """Read a warp register with inline PTX."""
    bench.need_nvidia_extensions()
    source = """__kernel void probe(__global int* out) {
        int lane;
        asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
        out[get_local_id(0)] = lane; }"""
    return bench.expect(source, [i % 32 for i in range(LANES)])


def tensor_cores_ptx(bench: Bench) -> bool:
    """Multiply 16x16 by 16x8 matrices of ones, f16 to f32, with mma.sync in inline PTX."""
    bench.need_nvidia_extensions()
    source = """__kernel void probe(__global int* out) {
        float c0 = 0, c1 = 0, c2 = 0, c3 = 0;
        uint one = 0x3C003C00;
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
            : "r"(one), "r"(one), "r"(one), "r"(one), "r"(one), "r"(one));
        out[get_local_id(0)] = (int)(c0 + c1 + c2 + c3); }"""
    return bench.expect(source, [4 * 16] * 32, items=32)


def async_copy_ptx(bench: Bench) -> bool:
    """Copy 16 bytes per work-item to local memory with cp.async in inline PTX."""
    bench.need_nvidia_extensions()
    # Without aligned(128) the copy faults (error -9999) on an H100.
    source = """__kernel void probe(__global int* out) {
        __local int tile[4 * 64] __attribute__((aligned(128)));
        int lane = get_local_id(0);
        uint target = (uint)(size_t)tile + 16 * lane;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
            :: "r"(target), "l"(out + 256 + 4 * lane));
        asm volatile("cp.async.commit_group;");
        asm volatile("cp.async.wait_group 0;");
        barrier(CLK_LOCAL_MEM_FENCE);
        out[lane] = tile[4 * (63 - lane)]; }"""
    return bench.expect(source, [256 + 4 * (63 - i) for i in range(LANES)])


def warp_groups_ptx(bench: Bench) -> bool:
    """Multiply 64x16 by 16x8 matrices of ones with wgmma, see `warp_groups`.

    They lie at the end of more local memory than OpenCL says there is (48 KiB of Hopper's 227).
    """
    bench.need_nvidia_extensions()
    words = DECLARED_LOCAL_BYTES // 4
    # All elements are one, so that it does not matter how the matrices lie.
    source = (
        f"#define WORDS {words}\n"
        """__kernel void probe(__global int* out) {
        __local uint ones[WORDS] __attribute__((aligned(1024)));
        const int lane = get_local_id(0);
        for (int i = lane; i < 2048; i += 128) ones[WORDS - 1 - i] = ones[i] = 0x3C003C00;
        asm volatile("//@warp_group fence.proxy.async.shared::cta;");
        barrier(CLK_LOCAL_MEM_FENCE);
        const uint at = (uint)(size_t)(ones + WORDS - 2048);
        const ulong matrix = (ulong)16 << 32 | (ulong)8 << 16 | (ulong)((at & 0x3FFFF) >> 4);
        float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
        asm volatile("//@warp_group wgmma.fence.sync.aligned;\\n"
            "//@warp_group wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0,%1,%2,%3}, "
            "%4, %4, 1, 1, 1, 0, 0;\\n"
            "//@warp_group wgmma.commit_group.sync.aligned;\\n"
            "//@warp_group wgmma.wait_group.sync.aligned 0;\\n"
            : "+f"(s0), "+f"(s1), "+f"(s2), "+f"(s3) : "l"(matrix) : "memory");
        out[lane] = (int)(s0 + s1 + s2 + s3); }"""
    )
    return bench.expect(source, [4 * 16] * 128, items=128)


def local_memory_bytes(bench: Bench) -> int:
    """Local memory that one work-group can really use, as a kernel argument."""
    claimed = bench.words(_LOCAL_MEM_SIZE, 8)[0]
    source = """__kernel void probe(__global int* out, __local int* tile) {
        int lane = get_local_id(0);
        tile[%d - 1 - lane] = 3 * lane;
        tile[lane] = lane;
        barrier(CLK_LOCAL_MEM_FENCE);
        out[lane] = tile[%d - 1 - (63 - lane)]; }"""
    candidates = [claimed, claimed - 1024, claimed * 3 // 4, claimed // 2, 32768, 16384]
    for size in candidates:
        size = size // 128 * 128
        words = size // 4
        if not 2 * LANES * 4 <= size <= claimed:
            continue
        try:
            expected = [3 * (63 - i) for i in range(LANES)]
            bench.expect(source % (words, words), expected, local_bytes=size)
        except ProbeError:
            continue
        return size
    raise ProbeError("no size works")


def command_buffers(bench: Bench) -> bool:
    """Record two dependent launches, replay them, and check the numbers and the memory."""
    bench.need(command_buffer.EXTENSION)
    source = """__kernel void add(__global int* out) { out[get_global_id(0)] += 3; }
        __kernel void twice(__global int* out) { out[get_global_id(0)] *= 2; }"""
    cl, status = bench.cl, ctypes.c_int()
    program = bench.build(source)
    words = (ctypes.c_uint * WORDS)(*range(WORDS))
    buffer = ctypes.c_void_p(
        cl.clCreateBuffer(bench.context, READ_WRITE_COPY, 4 * WORDS, words, ctypes.byref(status))
    )
    size, group = (ctypes.c_size_t * 1)(WORDS), (ctypes.c_size_t * 1)(16)
    launches = []
    for name in (b"add", b"twice"):
        kernel = cl.clCreateKernel(program, name, ctypes.byref(status))
        cl.clSetKernelArg(kernel, 0, ctypes.sizeof(buffer), ctypes.byref(buffer))
        launches.append(command_buffer.NDRangeCommand(kernel, 1, size, group))
    try:
        functions = command_buffer.CommandBufferFunctions(bench.platform)
        recording = command_buffer.CommandBuffer(functions, bench.queue, launches)
        for _ in range(3):
            recording.enqueue()
    except command_buffer.CommandBufferError as error:
        raise ProbeError(str(error)) from error
    code = cl.clEnqueueReadBuffer(bench.queue, buffer, 1, 0, 4 * WORDS, words, 0, None, None)
    kept = _bytes_kept(bench, recording)
    recording.close()
    if code or list(words) != [(((i + 3) * 2 + 3) * 2 + 3) * 2 for i in range(WORDS)]:
        raise ProbeError("computes wrong numbers")
    if kept > _REPLAYS * 64:
        raise ProbeError(f"keeps {kept // _REPLAYS} bytes of host memory for every replay")
    return True


def _bytes_kept(bench: Bench, recording: command_buffer.CommandBuffer) -> int:
    """Return by how much memory grows with many replays; 0 where the system does not tell.

    Intel's CPU runtime 2026.2 never gives back some 0.8 kB for every launch of a replay.
    """
    sizes = []
    for _ in range(2):
        for number in range(_REPLAYS):
            recording.enqueue()
            if number % 100 == 0:
                bench.cl.clFinish(bench.queue)
        bench.cl.clFinish(bench.queue)
        sizes.append(_resident_bytes())
    return sizes[1] - sizes[0]


def _resident_bytes() -> int:
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def groups_meet(bench: Bench) -> bool:
    """Let a work-group for each compute unit wait for all others, and read what they wrote.

    They write through an address that a kernel before noted. Every wait has a bound.
    """
    bench.need_nvidia_extensions()
    groups = bench.words(_MAX_COMPUTE_UNITS, 4)[0]
    source = """__kernel void note(__global uint* to, __global ulong* at) { at[0] = (ulong)to; }
        __kernel __attribute__((reqd_work_group_size(256, 1, 1)))
        void meet(__global uint* state, __global const ulong* at) {
        __global uint* values = (__global uint*)at[0];
        const uint mine = get_group_id(0), all = get_num_groups(0), next = (mine + 1) % all;
        for (uint turn = 1; turn <= 50; turn++) {
            if (get_local_id(0) == 0) {
                uint wrong = values[next] > turn, seen = 0;
                values[mine] = turn;
                asm volatile("fence.acq_rel.gpu;" ::: "memory");
                asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(state) : "memory");
                for (int i = 0; i < 1000000 && seen < turn * all; i++)
                    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                        : "=r"(seen) : "l"(state) : "memory");
                asm volatile("fence.acq_rel.gpu;" ::: "memory");
                if (wrong || seen < turn * all || values[next] < turn) atomic_inc(state + 1);
            }
            barrier(CLK_GLOBAL_MEM_FENCE | CLK_LOCAL_MEM_FENCE);
        }
        atomic_add(state + 2, values[next]); }"""
    cl, status = bench.cl, ctypes.c_int()
    program = bench.build(source)
    words = (ctypes.c_uint * WORDS)()
    make = functools.partial(cl.clCreateBuffer, bench.context, READ_WRITE_COPY)
    state, values, at = (
        ctypes.c_void_p(make(4 * WORDS, words, ctypes.byref(status))) for _ in range(3)
    )
    launches = ((b"note", (values, at), 1, 1), (b"meet", (state, at), 256, groups))
    for name, given, items, count in launches:
        kernel = cl.clCreateKernel(program, name, ctypes.byref(status))
        for position, buffer in enumerate(given):
            cl.clSetKernelArg(kernel, position, ctypes.sizeof(buffer), ctypes.byref(buffer))
        sizes = (ctypes.c_size_t * 1)(items * count), (ctypes.c_size_t * 1)(items)
        if cl.clEnqueueNDRangeKernel(bench.queue, kernel, 1, None, *sizes, 0, None, None):
            raise ProbeError(f"cannot launch {count} work-groups of {items}")
    code = cl.clEnqueueReadBuffer(bench.queue, state, 1, 0, 4 * WORDS, words, 0, None, None)
    if code or words[1]:
        raise ProbeError(f"{groups} work-groups did not meet ({code}, {words[1]})")
    if words[2] != 50 * 256 * groups:
        raise ProbeError("work-groups read other numbers than were written")
    return True


def native_sub_group_width(bench: Bench) -> int:
    """Width of a warp or wavefront where the driver names it; 0 elsewhere."""
    for query in (_WARP_SIZE_NV, _WAVEFRONT_WIDTH_AMD):
        answer = bench.words(query, 4)
        if answer:
            return answer[0]
    return 0


PROBES: tuple[Callable[[Bench], Any], ...] = (
    own_declarations,
    fp16_storage,
    fp16_arithmetic,
    fp64,
    native_sub_group_width,
    sub_group_sizes,
    sub_group_shuffle,
    sub_group_shuffle_intel,
    sub_group_block_read,
    sub_group_block_read_16bit,
    integer_dot_product_khr,
    integer_dot_product_x86,
    local_memory_bytes,
    inline_ptx,
    integer_dot_product_ptx,
    tensor_cores_ptx,
    async_copy_ptx,
    warp_groups_ptx,
    groups_meet,
    kernel_copies,
    command_buffers,  # last: the one most likely to take a driver down
)


def main(argument: dict[str, Any], report: Callable[[Any], None]) -> None:
    """Run the probes that ``skip`` does not name on one device.

    Reports ``{"start": name}``, then ``{"probe": name, "value": …}``; with ``why`` if the answer is
    no, with ``raised`` if the probe itself is wrong.
    `argument`: ``opencl`` library, ``identity`` and ``twin`` of the device, ``skip``.
    """
    report({"start": "open"})
    library.use(argument["opencl"])
    try:
        bench = open_bench(argument)
    except LookupError as error:
        report({"missing": str(error)})
        return
    report({"probe": "c_standard", "value": bench.c_standard})
    for probe in PROBES:
        name = probe.__name__
        if name in argument["skip"]:
            continue
        report({"start": name})
        try:
            report({"probe": name, "value": probe(bench)})
        except ProbeError as error:
            report({"probe": name, "value": None, "why": str(error)})
        except Exception as error:  # noqa: BLE001 - our defect, reported as such; the others go on
            raised = child_process.describe(error)
            report({"probe": name, "value": None, "raised": raised})
