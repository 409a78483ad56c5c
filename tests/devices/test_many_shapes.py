"""Many input shapes: memory stays bounded, a new shape is planned once, a known one never."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from polydevice import Core
from polydevice.dtype import ElementType
from polydevice.infer_request import InferRequest
from polydevice.network import Network
from polydevice.node import Node, constant
from polydevice.ops.arithmetic import Multiply
from polydevice.ops.convert import Convert
from polydevice.ops.convolution import Convolution
from polydevice.ops.interpolate import Interpolate4, InterpolateMode, ShapeCalculation
from polydevice.ops.io import Parameter, Result
from polydevice.ops.reduce import ReduceSum
from polydevice.ops.reshape import ShapeOf
from polydevice.shape import Dim, Shape
from tests.devices.resident import apart, needs_proc, resident_bytes

RANDOM = np.random.default_rng(11)
KERNEL = RANDOM.standard_normal((3, 3, 3, 3)).astype(np.float16)

SHAPES = list(
    itertools.islice(
        (
            (2**a, 2**b, 2**c, 2 ** (18 - a - b - c))
            for a, b, c in itertools.product(range(19), repeat=3)
            if a + b + c <= 18
        ),
        600,
    )
)
"""All of 2^18 elements: PoCL compiles a kernel again for every other number of work-items, which
would take minutes."""


def scaled() -> Network:
    """y = x * (sum of its sizes) * factor: a constant of every shape's own, and one for all."""
    x = Node("x", Parameter(ElementType.f32, Shape([Dim()] * 4)))
    sizes = Node("sizes", ShapeOf(), [x.output]).output
    sizes = Node("floats", Convert(destination_type=ElementType.f32), [sizes]).output
    axis = constant("axis", np.array([0])).output
    total = Node("sum", ReduceSum(keep_dims=False), [sizes, axis]).output
    factor = constant("factor", np.full((1, 1, 1, 1), 0.5, np.float32)).output
    port = Node("scale", Multiply(), [x.output, total]).output
    port = Node("half", Multiply(), [port, factor]).output
    return Network("scaled", [x], [Node("y", Result(output_name="y"), [port])])


def convolved() -> Network:
    """Weights that are folded, and a table that depends on the shape."""
    x = Node("x", Parameter(ElementType.f32, Shape([Dim(), 3, Dim(), Dim()])))
    held = constant("kernel", KERNEL).output
    kernel = Node("wide", Convert(destination_type=ElementType.f32), [held]).output
    op = Convolution(strides=(1, 1), pads_begin=(1, 1), pads_end=(1, 1), dilations=(1, 1))
    port = Node("convolution", op, [x.output, kernel]).output
    resize = Interpolate4(InterpolateMode.NEAREST, ShapeCalculation.SCALES)
    sizes = [constant("none", np.array([1, 1])).output]
    sizes.append(constant("scales", np.array([2, 2], np.float32)).output)
    axes = constant("axes", np.array([2, 3])).output
    port = Node("resize", resize, [port, *sizes, axes]).output
    return Network("convolved", [x], [Node("y", Result(output_name="y"), [port])])


@pytest.fixture
def plans(device: str, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Grows by one whenever a plan is made."""
    made: list[object] = []
    if device == "CPU":
        from polydevice_cpu.plan.compiled import CompiledNetwork

        owner, name = CompiledNetwork, "_make"
    elif device.startswith("GPU"):
        from polydevice_gpu.compiler.compiler import Compiler

        owner, name = Compiler, "plan"
    else:
        pytest.skip(f"{device} makes no plans of its own")
    original = getattr(owner, name)

    def counted(*given: object, **named: object) -> object:
        made.append(given[-1] if device == "CPU" else None)
        return original(*given, **named)

    monkeypatch.setattr(owner, name, counted)
    return made


def infer_all(request: InferRequest, shapes: Sequence[tuple[int, ...]]) -> None:
    data = RANDOM.standard_normal(1 << 18).astype(np.float32)
    for shape in shapes:
        x = data.reshape(shape)
        y = request.infer({"x": x})["y"]
        assert y.shape == x.shape
        # A fifth of what assert_allclose takes; two factors, each rounded.
        assert (np.abs(y - x * np.float32(sum(shape) / 2)) <= 1e-6 * np.abs(y)).all()


def growth(device: str) -> tuple[int, int]:
    """Return by how many bytes and objects this process grows over the last 200 shapes."""
    with Core() as core, core.load_network(scaled(), device) as executable:
        request = executable.create_infer_request()
        infer_all(request, SHAPES[:400])  # fills pools, compiled kernels, all plans that are kept
        memory, objects = resident_bytes(), len(gc.get_objects())
        infer_all(request, SHAPES[400:])
        return resident_bytes() - memory, len(gc.get_objects()) - objects


@needs_proc
@pytest.mark.full
def test_memory_of_many_shapes(device: str) -> None:
    memory, objects = apart(growth, device)
    # 200 plans, or the memory of 32 of them (1 MiB each), would show. What is known of the latest
    # few thousand descriptions of tensors is kept: a few objects for each shape, until it is full.
    assert objects < 200 * 10
    assert memory < 32 << 20  # 10 MiB on CPU, 2 on GPU


@pytest.mark.full
def test_a_new_shape_is_planned_once(device: str, plans: list[object]) -> None:
    with Core() as core, core.load_network(scaled(), device) as executable:
        request = executable.create_infer_request()
        assert not plans  # made when a shape comes
        for count, shape in enumerate(SHAPES[:40], 1):
            infer_all(request, [shape])
            assert len(plans) == count
        plans.clear()
        for _ in range(3):
            for shape in SHAPES[36:40]:
                request.infer({"x": np.zeros(shape, np.float32)})
        assert not plans
        other = executable.create_infer_request()
        for shape in SHAPES[36:40]:
            other.infer({"x": np.zeros(shape, np.float32)})
        assert not plans  # requests share them


def test_constants_are_uploaded_once(device: str) -> None:
    """Weights that are folded (f16 to f32) must not be made again for each shape."""
    if not device.startswith("GPU"):
        pytest.skip("device memory is counted on GPU")
    with Core() as core, core.load_network(convolved(), device) as executable:
        request = executable.create_infer_request()
        sizes = []
        for shape in [(1, 3, 4, 4 + i) for i in range(12)]:
            request.infer({"x": np.zeros(shape, np.float32)})
            sizes.append(executable._weights.size_bytes)
        assert sizes[0] >= KERNEL.size * 4
        assert sizes == sizes[:1] * len(sizes)
