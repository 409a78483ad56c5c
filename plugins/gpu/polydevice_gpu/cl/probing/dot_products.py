"""Whether, and how, kernels reach what multiplies bytes and adds four products at once."""

from __future__ import annotations

from pathlib import Path

from polydevice_gpu.cl import library
from polydevice_gpu.cl.probing.bench import LANES, Bench, ProbeError

_DEVICE_TYPE, _IS_PROCESSOR = 0x1000, 2
_DRIVER_VERSION = 0x102D


def integer_dot_product_khr(bench: Bench) -> bool:
    """Four 8-bit products summed: dot_4x8packed_ss_int."""
    bench.need("cl_khr_integer_dot_product")
    source = """__kernel void probe(__global int* out) {
        uint lane = get_local_id(0);
        out[lane] = dot_4x8packed_ss_int(0x01FF0203u, lane * 0x01010101u); }"""
    return bench.expect(source, [(1 - 1 + 2 + 3) * i for i in range(LANES)])


def integer_dot_product_ptx(bench: Bench) -> bool:
    """Four 8-bit products summed: dp4a in inline PTX."""
    bench.need_nvidia_extensions()
    source = """__kernel void probe(__global int* out) {
        int lane = get_local_id(0), sum;
        asm volatile("dp4a.s32.s32 %0, %1, %2, %3;"
            : "=r"(sum) : "r"(0x01FF0203), "r"(lane * 0x01010101), "r"(0));
        out[lane] = sum; }"""
    return bench.expect(source, [(1 - 1 + 2 + 3) * i for i in range(LANES)])


def integer_dot_product_x86(bench: Bench) -> str:
    """Four products of bytes added to each of sixteen sums: vpdpbusd, by a way that there is."""
    # A compiler that does not know it, or a processor without it, would end the process.
    if [kind & ~1 for kind in bench.words(_DEVICE_TYPE, 8)] != [_IS_PROCESSOR]:
        raise ProbeError("no processor")
    if not {"avx512f", "avx512_vnni"} <= _processor_flags():
        raise ProbeError("no avx512_vnni")
    way = _way_to_vpdpbusd(bench)
    source = f"""{_WAYS_TO_VPDPBUSD[way]}
        __kernel void probe(__global int* out) {{
        int16 sum = (int16)(7), ones = (int16)(0x01010101);
        int16 bytes = (int16)((int)(get_local_id(0) * 0x01000001u + 0xC8000000u));
        ADD(sum, bytes, ones);
        out[get_local_id(0)] = sum.s9; }}"""
    # PoCL 6.0 aborts the process at instructions that the processor it compiles for lacks (it takes
    # a Xeon with VNNI for skylake-avx512); 3.1 assembles them whatever it compiles for.
    version = library.info_bytes(bench.cl.clGetDeviceInfo, bench.device, _DRIVER_VERSION) or b""
    source = source.replace("NEEDS_TARGET", str(int(not version.startswith(b"3."))))
    bench.expect(source, [7 + 200 + 2 * i for i in range(32)], items=32)
    return way


_WAYS_TO_VPDPBUSD = {
    "assembly": """#if NEEDS_TARGET && !defined(__AVX512VNNI__)
        #error the compiler does not compile for it
        #endif
        #define ADD(sum, x, w) __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w))""",
    "words": """int16 add_quads(int16, int16, int16) __asm("llvm.x86.avx512.vpdpbusd.512");
        #define ADD(sum, x, w) sum = add_quads(sum, x, w)""",
    "bytes": """typedef char factor __attribute__((ext_vector_type(64)));
        int16 add_quads(int16, factor, factor) __asm("llvm.x86.avx512.vpdpbusd.512");
        #define AS_FACTOR(x) __builtin_astype(x, factor)
        #define ADD(sum, x, w) sum = add_quads(sum, AS_FACTOR(x), AS_FACTOR(w))""",
}


def _way_to_vpdpbusd(bench: Bench) -> str:
    """Return the only way that does not end the process.

    Intel's runtime knows no vector registers in assembly, but LLVM's functions by their names. Of
    bytes the factors are from LLVM 22 on: runtime 2026.21 (tried: 2026.20.3, 21.7 and 22.10).
    """
    if "cl_intel_exec_by_local_thread" not in bench.extensions:
        return "assembly"
    text = library.info_text(bench.cl.clGetDeviceInfo, bench.device, _DRIVER_VERSION)
    numbers = [int(part) for part in text.split(".")[:2] if part.isdigit()]
    return "bytes" if numbers >= [2026, 21] else "words"


def _processor_flags() -> set[str]:
    """What Linux says of the first processor; nothing elsewhere."""
    try:
        text = Path("/proc/cpuinfo").read_text("ascii", "replace")
    except OSError:
        return set()
    lines = (line for line in text.splitlines() if line.startswith("flags"))
    return set(next(lines, "").split())
