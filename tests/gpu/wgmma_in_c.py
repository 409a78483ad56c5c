"""wgmma of half and its copies in OpenCL C: for devices without matrix units of warp groups.

How matrices lie in local memory, and which sum is in which register, is published (PTX ISA,
"Asynchronous warpgroup level matrix instructions").
"""

from __future__ import annotations

import dataclasses
import re

from polydevice_gpu.cl.programs.warp_groups import MARK
from polydevice_gpu.kernels.launch import Launch

_IN_C = """
#undef COPY
#undef CLOSE_STAGE
#undef AWAIT
#undef MULTIPLY
#undef READ_PIECE
#undef FROM_LANE
#undef READ_EIGHT
#define LOCAL_AT(at) (__local uint*)((__local uchar*)tiles + (at))
#define COPY(to, from, bytes) \\
    vstore4((bytes) ? vload4(0, (__global const uint*)(from)) : (uint4)(0), 0, LOCAL_AT(to))
#define CLOSE_STAGE()
#define AWAIT(n)
#define READ_PIECE(to, at) to = vload4(0, LOCAL_AT(at))
#define READ_EIGHT(to, from) to = vload8(0, from)
#define FROM_LANE(to, from, bit) \\
    { \\
        exchange[thread] = from; \\
        barrier(CLK_LOCAL_MEM_FENCE); \\
        to = exchange[thread ^ (bit)]; \\
        barrier(CLK_LOCAL_MEM_FENCE); \\
    }
#ifndef __NV_CL_C_VERSION  // there half.cl has it
static inline float2 half_pair(uint bits) { return vload_half2(0, (const half*)&bits); }
#endif
#define MATRIX_HALF(matrix, row, k) \\
    vload_half((k) % 8, (__local const half*)LOCAL_AT( \\
        ((uint)(matrix) & 0x3FFF) * 16 + PLACE(row, (k) / 8)))
#define MULTIPLY(a, b) \\
    for (int at = 0; at < TALL * SUMS; at++) { \\
        const int m = at / SUMS * 64 + warp % 4 * 16 + (lane >> 2) + (at & 2) * 4; \\
        const int n = at % SUMS / 4 * 8 + (lane & 3) * 2 + (at & 1); \\
        for (int k = 0; k < BK; k++) sum[at] += MATRIX_HALF(a, m, k) * MATRIX_HALF(b, n, k); \\
    }
"""


def in_c(launch: Launch, exchanges: bool = False) -> Launch:
    """Return a launch whose kernel multiplies without units, all terms of a tile itself.

    Args:
        launch: the launch with units.
        exchanges: whether lanes hand numbers to others. PoCL 6.0 ends the process where a kernel
            declares local memory that it does not use and nothing is optimised.
    """
    assert launch.local_size is not None
    kernel = "KERNEL(PRODUCT) {"
    assert kernel in launch.text
    text = re.sub(
        r'^\s*asm volatile\("//@warp_group [^;]*;"[^;]*\);.*$', "", launch.text, flags=re.MULTILINE
    )
    text = text.replace(MARK, "").replace("(uint)(size_t)tiles", "0")
    memory = f"\n__local float exchange[{launch.local_size[0]}];" if exchanges else ""
    return dataclasses.replace(launch, text=text.replace(kernel, f"{_IN_C}{kernel}{memory}"))
