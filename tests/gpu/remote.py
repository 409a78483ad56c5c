"""What the tests of remote blobs share: OpenCL objects of a user's, and small networks."""

from __future__ import annotations

import warnings

import numpy as np
import pyopencl as ocl
import pytest

from polydevice import Copies, ElementType, RemoteBlob, Shape, TensorDesc
from tests.cpu.models import build

FLAGS = ocl.mem_flags
NOTHING = Copies(0, 0, 0)
DOUBLE = """
__kernel void twice(__global const float* x, __global float* y) {
    const size_t i = get_global_id(0);
    y[i] = 2 * x[i];
}
"""


def skip_without_images(context: ocl.Context, kind: ocl.ImageFormat) -> None:
    """Skip where the driver has no images of these pixels (PoCL 7.1: of one channel)."""
    if kind not in ocl.get_supported_image_formats(
        context, FLAGS.READ_WRITE, ocl.mem_object_type.IMAGE2D
    ):
        pytest.skip(f"{context.devices[0].platform.name} has no images of {kind}")


class User:
    """A program that uses OpenCL by itself, on the device that the tests use."""

    def __init__(self, device, **queue: object) -> None:
        self.context = ocl.Context([device.handle])
        self.queue = ocl.CommandQueue(self.context, **queue)
        self.params = {"CONTEXT_TYPE": "OCL", "OCL_CONTEXT": self.context}

    def buffer(self, array: np.ndarray | int, flags: int = FLAGS.READ_WRITE) -> ocl.Buffer:
        if isinstance(array, int):
            return ocl.Buffer(self.context, flags, array)
        return ocl.Buffer(self.context, flags | FLAGS.COPY_HOST_PTR, hostbuf=array)

    def read(self, buffer: ocl.MemoryObject, like: np.ndarray) -> np.ndarray:
        found = np.empty_like(like)
        ocl.enqueue_copy(self.queue, found, buffer)
        return found

    def image(self, pixels: np.ndarray) -> ocl.Image:
        """pixels: u8 [H, W, 1 or 4]"""
        height, width, channels = pixels.shape
        order = {1: ocl.channel_order.R, 4: ocl.channel_order.RGBA}[channels]
        kind = ocl.ImageFormat(order, ocl.channel_type.UNSIGNED_INT8)
        skip_without_images(self.context, kind)
        made = ocl.create_image(self.context, FLAGS.READ_WRITE, kind, shape=(width, height))
        ocl.enqueue_copy(
            self.queue, made, np.ascontiguousarray(pixels), origin=(0, 0), region=(width, height)
        )
        return made

    def kernel(self) -> ocl.Kernel:
        with warnings.catch_warnings():  # some compilers always say something
            warnings.simplefilter("ignore", ocl.CompilerWarning)
            return ocl.Program(self.context, DOUBLE).build().twice


def held(blob: RemoteBlob) -> np.ndarray:
    """What a blob holds."""
    with blob.map("r") as array:
        return array.copy()


def exact(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Random multiples of 1/64: exact whether or not a device rounds between * and +."""
    return np.round(64 * rng.standard_normal(shape)).astype("f4") / np.float32(64)


def desc(array: np.ndarray) -> TensorDesc:
    return TensorDesc(ElementType.of(array.dtype), Shape(array.shape))


def convolution(*shape: int, seed: int = 5) -> bytes:
    """conv 3×3 → relu → sum over the channels"""
    rng = np.random.default_rng(seed)
    weights = {"w": rng.normal(0, 0.3, (4, shape[1], 3, 3)).astype("f4")}
    nodes = [
        ("Conv", ["x", "w"], ["c"], {"pads": [1, 1, 1, 1]}),
        ("Relu", ["c"], ["r"], {}),
        ("ReduceMax", ["r"], ["y"], {"axes": [1]}),
    ]
    return build(nodes, {"x": shape}, ["r", "y"], weights)


def affine(*shape: int | str, factor: float = 3, kind: type = np.float32) -> bytes:
    """y = factor · x + 1, exactly"""
    weights = {"k": np.array(factor, kind), "one": np.array(1, kind)}
    nodes = [("Mul", ["x", "k"], ["m"], {}), ("Add", ["m", "one"], ["y"], {})]
    return build(nodes, {"x": shape}, ["y"], weights, element_type=kind)
