"""Kernels for tests of what launches them."""

from __future__ import annotations

import numpy as np

from polydevice_gpu import cl

SCALE = """
__kernel void scale(__global const int* x, __global int* y, int factor, __local int* tile) {
    int i = get_global_id(0);
    tile[get_local_id(0)] = x[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    y[i] = tile[get_local_id(0)] * factor;
}
"""
"""Every kind of argument: memory, a number, local memory."""


def sixteen_of(opencl: cl.Device, source: str) -> np.ndarray:
    """Return what a kernel ``f(__global float* out)`` writes in one group of 16 work-items."""
    kernel = cl.ProgramBuilder(opencl).build("given", source).kernel("f")
    buffer = opencl.memory.allocate(4 * 16, "out")
    launches = cl.LaunchList(opencl)
    launches.add(kernel, (16,), (16,), [buffer])
    out = np.empty(16, np.float32)
    with opencl.queue() as queue:
        launches.enqueue(queue)
        queue.download(buffer, out)
    return out
