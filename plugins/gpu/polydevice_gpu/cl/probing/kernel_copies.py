"""Probe of clCloneKernel, of OpenCL 2.1."""

from __future__ import annotations

import ctypes

from polydevice_gpu.cl.probing.bench import READ_WRITE_COPY, WORDS, Bench, ProbeError


def kernel_copies(bench: Bench) -> bool:
    """Copy a kernel object with its arguments, and change those of the copy alone."""
    cl, status = bench.cl, ctypes.c_int()
    if not hasattr(cl, "clCloneKernel"):
        raise ProbeError("the driver has no clCloneKernel")
    source = """__kernel void probe(__global int* out, int a, int b, __local int* tile) {
        tile[0] = a;
        out[a] = tile[0] * 1000 + b; }"""
    program = bench.build(source)
    words = (ctypes.c_uint * WORDS)()
    buffer = ctypes.c_void_p(
        cl.clCreateBuffer(bench.context, READ_WRITE_COPY, 4 * WORDS, words, ctypes.byref(status))
    )
    first = cl.clCreateKernel(program, b"probe", ctypes.byref(status))
    kernels = [first]
    given = {0: (ctypes.sizeof(buffer), ctypes.byref(buffer)), 2: (4, b"\5\0\0\0"), 3: (16, None)}
    for position, argument in given.items():
        cl.clSetKernelArg(first, position, *argument)
    for number in (1, 2):
        copy = cl.clCloneKernel(first, ctypes.byref(status))
        if status.value or not copy:
            raise ProbeError(f"clCloneKernel fails with {status.value}")
        cl.clSetKernelArg(copy, 1, 4, bytes([number, 0, 0, 0]))
        kernels.append(copy)
    cl.clSetKernelArg(first, 1, 4, bytes(4))
    cl.clSetKernelArg(kernels[2], 2, 4, b"\7\0\0\0")
    size = (ctypes.c_size_t * 1)(1)
    for kernel in kernels:
        if cl.clEnqueueNDRangeKernel(bench.queue, kernel, 1, None, size, size, 0, None, None):
            raise ProbeError("cannot launch a copy")
    code = cl.clEnqueueReadBuffer(bench.queue, buffer, 1, 0, 4 * WORDS, words, 0, None, None)
    if code or list(words[:3]) != [5, 1005, 2007]:
        raise ProbeError(f"copies have other arguments ({code}, {words[:3]})")
    return True
