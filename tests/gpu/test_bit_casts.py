"""BitCast: the same bits as another type, in a launch of others where kernels hold both types."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice import ElementType, Shape
from polydevice.network import Network
from polydevice.node import Node
from polydevice.ops.activation import Relu
from polydevice.ops.convert import BitCast
from polydevice.ops.io import Parameter, Result

T = ElementType
ON_DEVICE = [
    (T.f32, T.i32), (T.i32, T.f32), (T.u32, T.f32), (T.f32, T.u32), (T.i32, T.u32), (T.i8, T.u8),
    (T.u8, T.i8), (T.i16, T.u16), (T.u16, T.i16), (T.i64, T.u64), (T.u64, T.i64),
]  # fmt: skip
ON_HOST = [(T.f16, T.i16), (T.u16, T.f16), (T.bf16, T.u16), (T.i16, T.bf16), (T.f64, T.i64)]


def load(core, before: T, after: T, *, more: bool = False, **config):
    x = Node("x", Parameter(element_type=before, shape=Shape([3, 5, 7])))
    port = Node("cast", BitCast(destination_type=after), [x.output]).output
    if more:
        port = Node("relu", Relu(), [port]).output
    y = Node("y", Result(output_name="y"), [port])
    return core.load_network(Network("cast", [x], [y]), "GPU", config)


def random_bits(kind: T) -> np.ndarray:
    rng = np.random.default_rng(kind.bits)
    content = rng.integers(0, 256, 3 * 5 * 7 * kind.dtype.itemsize, dtype=np.uint8)
    return content.view(kind.dtype).reshape(3, 5, 7)


def bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


@pytest.mark.parametrize(("before", "after"), [*ON_DEVICE, *ON_HOST])
def test_bits_stay(core, before, after) -> None:
    """NaNs aside, of which no type's operations keep all bits."""
    executable = load(core, before, after)
    x = random_bits(before)
    for _ in range(2):
        found = executable.infer({"x": x})["y"]
        assert found.dtype == after.dtype
        kept = np.ones(x.shape, bool)
        for array in (x, found):
            if array.dtype.kind not in "iu":
                kept &= ~np.isnan(array.astype("f8"))
        assert kept.sum() > 90
        np.testing.assert_array_equal(bits(found)[kept], bits(x)[kept])
    on_host = [node for node in executable.latest_plan().graph.nodes if node.on_host]
    assert bool(on_host) == ((before, after) in ON_HOST)


def test_bit_casts_join_other_layers(core) -> None:
    executable = load(core, T.i32, T.f32, more=True)
    x = random_bits(T.i32)
    x[np.isnan(x.view("f4"))] = 0
    np.testing.assert_array_equal(executable.infer({"x": x})["y"], np.maximum(x.view("f4"), 0))
    assert len(executable.latest_plan().running) == 1
