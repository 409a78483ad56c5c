"""mma.m16n8k16 of half, and m16n8k32 of bytes, in OpenCL C: for devices without matrix units.

Which element is in which register is published (PTX ISA, "Matrix fragments for mma.m16n8k16"); here
work-items exchange their registers through local memory.
"""

from __future__ import annotations

import dataclasses

from polydevice_gpu.kernels.launch import Launch

_OF_HALF = """
#undef MULTIPLY
#define PLACE_OF(register) (exchange + (warp * 32 + (register) / 8) * 6 + (register) % 8)
#define HALF_OF(register, number) vload_half((number) & 1, (__local half*)PLACE_OF(register))
#define MULTIPLY(c, a0, a1, a2, a3, b0, b1) \\
    { \\
        const uint own[6] = {a0, a1, a2, a3, b0, b1}; \\
        for (int r = 0; r < 6; r++) exchange[thread * 6 + r] = own[r]; \\
        barrier(CLK_LOCAL_MEM_FENCE); \\
        for (int o = 0; o < 4; o++) \\
            for (int k = 0; k < 16; k++) { \\
                const int m = (lane >> 2) + (o >> 1) * 8, n = (lane & 3) * 2 + (o & 1); \\
                const int a = ((m & 7) * 4 + (k & 7) / 2) * 8 + (m >> 3) + 2 * (k >> 3); \\
                const int b = (n * 4 + (k & 7) / 2) * 8 + 4 + (k >> 3); \\
                c[o] += HALF_OF(a, k) * HALF_OF(b, k); \\
            } \\
        barrier(CLK_LOCAL_MEM_FENCE); \\
    }
"""


_OF_BYTES = """
#undef MULTIPLY
#define BYTE_OF(kind, at, number) (int)(kind)(exchange[(warp * 32) * 6 + at] >> 8 * ((number) & 3))
#define MULTIPLY(c, a, b0, b1) \\
    { \\
        const uint own[6] = {a[0], a[1], a[2], a[3], b0, b1}; \\
        for (int r = 0; r < 6; r++) exchange[thread * 6 + r] = own[r]; \\
        barrier(CLK_LOCAL_MEM_FENCE); \\
        for (int o = 0; o < 4; o++) \\
            for (int k = 0; k < 32; k++) { \\
                const int m = (lane >> 2) + (o >> 1) * 8, n = (lane & 3) * 2 + (o & 1); \\
                const int a_at = ((m & 7) * 4 + (k & 15) / 4) * 6 + (m >> 3) + 2 * (k >> 4); \\
                const int b_at = (n * 4 + (k & 15) / 4) * 6 + 4 + (k >> 4); \\
                const int left = SIGNED ? BYTE_OF(char, a_at, k) : BYTE_OF(uchar, a_at, k); \\
                c[o] += left * BYTE_OF(char, b_at, k); \\
            } \\
        barrier(CLK_LOCAL_MEM_FENCE); \\
    }
"""


def in_c(launch: Launch, others: str = "", *, of_bytes: bool = False) -> Launch:
    """Return a launch whose kernel multiplies without units.

    Args:
        launch: of a kernel that calls ``MULTIPLY``, and has ``thread``, ``lane`` and ``warp``.
        others: what stands for its other instructions.
        of_bytes: whether it multiplies bytes, and not half.
    """
    assert launch.local_size is not None
    kernel = f"KERNEL({launch.kernel}) {{"
    assert kernel in launch.text
    memory = f"\n__local uint exchange[{launch.local_size[0]} * 6];"
    text = launch.text.replace(
        kernel, f"{_OF_BYTES if of_bytes else _OF_HALF}{others}{kernel}{memory}"
    )
    return dataclasses.replace(launch, text=text)
