"""Random graphs give the same answers with all passes, with none, and from OpenVINO."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from polydevice import rewrites
from polydevice.dtype import ElementType
from polydevice.network import Network
from polydevice.node import Port
from polydevice.ops.activation import Clamp, Elu, Gelu, HSwish, Mish, PRelu, Relu, Sigmoid, Swish
from polydevice.ops.arithmetic import Add, Maximum, Multiply, Subtract
from polydevice.ops.concat import Concat
from polydevice.ops.convolution import (
    Convolution,
    ConvolutionBackpropData,
    GroupConvolution,
    GroupConvolutionBackpropData,
)
from polydevice.ops.matmul import MatMul
from polydevice.ops.normalization import MVN, BatchNormInference, EpsMode
from polydevice.ops.pad import Pad
from polydevice.ops.pooling import AvgPool, MaxPool, MaxPoolWithIndices
from polydevice.ops.quantize import FakeQuantize
from polydevice.ops.reduce import ReduceMean
from polydevice.ops.reshape import Reshape, Squeeze, Unsqueeze
from polydevice.ops.slice import Slice
from polydevice.ops.softmax import SoftMax
from polydevice.ops.split import Split
from polydevice.ops.transpose import Transpose
from polydevice_gpu.compiler.settings import CompileSettings
from tests.gpu.graphs import Sketch, SparingBuilder, loaded, openvino_answers, random_inputs

CHANNELS, ROWS, COLUMNS = 8, 6, 4
SHAPE = (2, CHANNELS, ROWS, COLUMNS)
Draw = Callable[[st.SearchStrategy], object]


@pytest.fixture(scope="module")
def builder(opencl):
    return SparingBuilder(opencl)


class Drawing:
    """A network in the making whose values all have `SHAPE`, until they are looked at."""

    def __init__(self, draw: Draw, *, quantize: bool = True) -> None:
        self.draw = draw
        self.sketch = Sketch()
        self.values = [self.sketch.input("x", *SHAPE)]
        self.looks: list[Port] = []
        """Values of other shapes, which may become outputs too."""
        self.small = [self.sketch.input("z", 2, CHANNELS, 1, 1)]
        self.count = 0
        self.kinds = [
            self.convolution,
            self.unary,
            self.binary,
            self.residual,
            self.constants,
            self.gate,
            self.joined,
            self.branches,
            self.bordered,
            self.seen,
            self.turned,
            self.part,
            self.pooled,
            self.rows,
            self.normalised,
            self.columns,
            *([self.quantized] if quantize else []),
        ]

    def network(self) -> Network:
        for _ in range(self.draw(st.integers(3, 9))):
            self.count += 1
            self.values.append(self.draw(st.sampled_from(self.kinds))())
        outputs = {"y": self.values[-1]}
        inner = [*self.values[1:-1], *self.looks]
        for number in range(self.draw(st.integers(0, 2))):
            if inner:
                outputs[f"inner{number}"] = self.draw(st.sampled_from(inner))
        return self.sketch.network(**outputs)

    # -- what there is to draw --------------------------------------------------------------------

    def value(self) -> Port:
        """An earlier value, most often the last."""
        last = self.draw(st.integers(0, 2)) > 0
        return self.values[-1] if last else self.draw(st.sampled_from(self.values))

    def add(self, op, *inputs: Port, name: str = "") -> Port:
        return self.sketch.add(f"{op.type}{self.count}{name}", op, *inputs)

    def const(self, what: str, value: object) -> Port:
        return self.sketch.const(f"{what}{self.count}", np.array(value))

    def weights(self, what: str, *shape: int) -> Port:
        return self.sketch.weights(f"{what}{self.count}", *shape)

    def convolution(self) -> Port:
        x, size = self.value(), self.draw(st.sampled_from([1, 3]))
        given = {
            "strides": (1, 1),
            "pads_begin": (size // 2,) * 2,
            "pads_end": (size // 2,) * 2,
            "dilations": (1, 1),
        }
        groups = self.draw(st.sampled_from([1, 2, CHANNELS]))
        each = CHANNELS // groups
        transposed = self.draw(st.booleans())
        if groups == 1:
            op = (ConvolutionBackpropData if transposed else Convolution)(**given)
            return self.add(op, x, self.weights("w", CHANNELS, CHANNELS, size, size))
        op = (GroupConvolutionBackpropData if transposed else GroupConvolution)(**given)
        return self.add(op, x, self.weights("w", groups, each, each, size, size))

    def unary(self) -> Port:
        ops = [
            Relu(),
            Sigmoid(),
            Clamp(min=-0.3, max=0.4),
            Elu(alpha=0.5),
            Gelu(),
            HSwish(),
            Mish(),
        ]
        return self.add(self.draw(st.sampled_from(ops)), self.value())

    def binary(self) -> Port:
        op = self.draw(st.sampled_from([Add(), Multiply(), Subtract(), Maximum()]))
        pair = [self.value(), self.draw(st.sampled_from([*self.values, *self.small]))]
        return self.add(op, *(pair if self.draw(st.booleans()) else pair[::-1]))

    def residual(self) -> Port:
        total = self.add(Add(), self.convolution(), self.value())
        return self.add(Relu(), total, name="after")

    def constants(self) -> Port:
        shape = self.draw(
            st.sampled_from([(), (1,), (CHANNELS, 1, 1), (1, CHANNELS, 1, 1), (COLUMNS,), SHAPE])
        )
        x, factor = self.value(), self.weights("factor", *shape)
        ordered = [x, factor] if self.draw(st.booleans()) else [factor, x]
        y = self.add(Multiply(), *ordered)
        if self.draw(st.booleans()):
            return self.add(PRelu(), y, self.weights("slope", CHANNELS))
        if self.draw(st.booleans()):
            ones = [np.abs(self.weights(n, CHANNELS).node.constant) + 0.5 for n in "gbmv"]
            parameters = [self.const(f"bn{i}", one) for i, one in enumerate(ones)]
            return self.add(BatchNormInference(epsilon=1e-3), y, *parameters)
        return self.add(Add(), self.weights("shift", *shape), y)

    def quantized(self) -> Port:
        shape = self.draw(st.sampled_from([(), (1, CHANNELS, 1, 1)]))
        ends = [np.full(shape, v, np.float32) for v in (-1, 1, -1, 1)]
        limits = [self.const(f"limit{i}", v) for i, v in enumerate(ends)]
        return self.add(FakeQuantize(levels=256), self.value(), *limits)

    def gate(self) -> Port:
        x = self.value()
        if self.draw(st.booleans()):
            return self.add(Multiply(), *self.draw(st.permutations([x, self.add(Sigmoid(), x)])))
        mean = self.add(ReduceMean(keep_dims=True), x, self.const("axes", [2, 3]))
        gate = self.add(Sigmoid(), mean, name="gate")
        self.small.append(gate)
        return self.add(Multiply(), x, gate)

    def joined(self) -> Port:
        axis = self.draw(st.integers(0, 3))
        parts = [self.value() for _ in range(self.draw(st.integers(2, 3)))]
        joined = self.add(Concat(axis=axis), *parts)
        if self.draw(st.booleans()):
            joined = self.add(Concat(axis=axis), joined, self.value(), name="outer")
        if self.draw(st.booleans()):
            joined = self.add(Relu(), joined, name="joined")
        self.looks.append(joined)
        if axis == 1:
            assert joined.shape is not None
            w = self.weights("narrow", CHANNELS, joined.shape.static[1], 1, 1)
            return self.add(Convolution(strides=(1, 1)), joined, w)
        start = [self.const(n, [v]) for n, v in (("start", 1), ("stop", 1 + SHAPE[axis]))]
        return self.add(
            Slice(), joined, *start, self.const("step", [1]), self.const("axis", [axis])
        )

    def branches(self) -> Port:
        count = self.draw(st.sampled_from([2, 4]))
        split = Split(num_splits=count)
        cut = self.sketch.node(f"split{self.count}", split, self.value(), self.const("axis", 1))
        same, parts, each = self.draw(st.booleans()), [], CHANNELS // count
        for number, part in enumerate(cut.outputs):
            op = Convolution(strides=(1, 1))
            w = self.sketch.weights(f"branch{self.count}/{number}", each, each, 1, 1)
            y = self.add(op, part, w, name=f"/{number}")
            shift = self.sketch.weights(f"shift{self.count}/{number}", each, 1, 1)
            parts.append(self.add(Add(), y, shift, name=f"/{number}") if same or number else y)
        return self.add(Relu(), self.add(Concat(axis=1), *parts))

    def bordered(self) -> Port:
        begin, end = [0, 0, 1, 0], [0, 0, 1, 2]
        pad = self.add(Pad(), self.value(), self.const("begin", begin), self.const("end", end))
        w = self.weights("w", CHANNELS, CHANNELS, 3, 3)
        return self.add(Convolution(strides=(1, 1)), pad, w)

    def seen(self) -> Port:
        """Something done to the value in another shape."""
        shapes = [(2, CHANNELS, ROWS * COLUMNS), (2, 2, CHANNELS // 2, -1), (2, -1), (-1, COLUMNS)]
        target = self.draw(st.sampled_from(shapes))
        y = self.add(Reshape(), self.value(), self.const("shape", target))
        assert y.shape is not None
        sizes = [n if self.draw(st.booleans()) else 1 for n in y.shape.static]
        y = self.add(Add(), y, self.weights("shown", *sizes), name="shown")
        self.looks.append(y)
        return self.add(Reshape(), y, self.const("back", SHAPE), name="back")

    def turned(self) -> Port:
        y = self.add(Transpose(), self.value(), self.const("order", [0, 2, 3, 1]))
        self.looks.append(y)
        y = self.add(Multiply(), y, self.weights("turned", CHANNELS))
        if self.draw(st.booleans()):
            y = self.add(MatMul(), y, self.weights("product", CHANNELS, CHANNELS))
        return self.add(Transpose(), y, self.const("back", [0, 3, 1, 2]), name="back")

    def part(self) -> Port:
        half = CHANNELS // 2
        split = Split(num_splits=2)
        cut = self.sketch.node(f"half{self.count}", split, self.value(), self.const("axis", 1))
        parts = [cut.outputs[self.draw(st.integers(0, 1))], cut.outputs[1]]
        parts[0] = self.add(Swish(), parts[0])
        self.looks.append(parts[0])
        assert parts[0].shape is not None
        assert parts[0].shape.static[1] == half
        return self.add(Concat(axis=1), *parts)

    def pooled(self) -> Port:
        given = {"kernel": (3, 3), "strides": (1, 1), "pads_begin": (1, 1), "pads_end": (1, 1)}
        kind = self.draw(st.sampled_from([AvgPool, MaxPool, MaxPoolWithIndices]))
        return self.sketch.node(f"pool{self.count}", kind(**given), self.value()).outputs[0]

    def rows(self) -> Port:
        x = self.value()
        if self.draw(st.booleans()):
            return self.add(SoftMax(axis=self.draw(st.integers(1, 3))), x)
        w = self.weights("rows", COLUMNS, COLUMNS)
        return self.add(MatMul(transpose_b=self.draw(st.booleans())), x, w)

    def normalised(self) -> Port:
        op = MVN(normalize_variance=True, eps=1e-2, eps_mode=EpsMode.INSIDE_SQRT)
        return self.add(op, self.value(), self.const("axes", [2, 3]))

    def columns(self) -> Port:
        """A convolution of one axis, written as one of two."""
        flat = self.const("flat", [2, CHANNELS, ROWS * COLUMNS])
        y = self.add(Reshape(), self.value(), flat, name="flat")
        y = self.add(Unsqueeze(), y, self.const("axis", [2]))
        y = self.add(Convolution(strides=(1, 1)), y, self.weights("w", CHANNELS, CHANNELS, 1, 1))
        y = self.add(Relu(), self.add(Squeeze(), y, self.const("axis", [2])))
        return self.add(Reshape(), y, self.const("back", SHAPE), name="back")


@contextlib.contextmanager
def _without_passes() -> Iterator[None]:
    """Keep the one pass that a plan cannot do without."""
    stages = importlib.import_module("polydevice_gpu.compiler.stages")
    whole, order = stages.GRAPH, rewrites.ORDER
    stages.GRAPH = tuple(p for p in whole if p.__name__ == "select_kernels")
    rewrites.ORDER = tuple(s for s in order if not s[0].startswith("recognise"))
    try:
        yield
    finally:
        stages.GRAPH, rewrites.ORDER = whole, order


def _answers(network, inputs, opencl, builder, **given) -> dict[str, np.ndarray]:
    request = loaded(network, opencl, builder, **given).create_infer_request()
    request.infer(inputs)
    return {name: array.copy() for name, array in request.infer(inputs).items()}


RARELY = settings(
    max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)


@settings(RARELY, max_examples=4)
@given(data=st.data())
def test_fused_unfused_and_elsewhere(opencl, builder, data):
    _fused_unfused_and_elsewhere(opencl, builder, data)


@pytest.mark.full
@RARELY
@given(data=st.data())
def test_more_of_them_fused_unfused_and_elsewhere(opencl, builder, data):
    _fused_unfused_and_elsewhere(opencl, builder, data)


def _fused_unfused_and_elsewhere(opencl, builder, data):
    network = Drawing(data.draw, quantize=False).network()
    inputs = random_inputs(network)
    fused = _answers(network, inputs, opencl, builder)
    for name, wanted in openvino_answers(network, inputs).items():
        np.testing.assert_allclose(fused[name], wanted, 2e-4, 2e-5, err_msg=name)
    with _without_passes():
        plain = _answers(network, inputs, opencl, builder)
    for name, wanted in plain.items():
        np.testing.assert_allclose(fused[name], wanted, 2e-4, 2e-5, err_msg=name)


@pytest.mark.full
@RARELY
@given(data=st.data())
def test_quantised(opencl, builder, data):
    """A value between two levels may be rounded either way, which goes on from layer to layer."""
    network = Drawing(data.draw).network()
    inputs = random_inputs(network)
    fused = _answers(network, inputs, opencl, builder)
    with _without_passes():
        plain = _answers(network, inputs, opencl, builder)
    for name, wanted in plain.items():
        far = np.abs(fused[name] - wanted) > 2e-4 * np.abs(wanted) + 2e-4
        assert far.mean() < 0.05, name
        np.testing.assert_allclose(fused[name], wanted, 0.1, 0.1, err_msg=name)


@pytest.mark.full
@RARELY
@given(data=st.data())
def test_stored_as_half(opencl, builder, data):
    network = Drawing(data.draw, quantize=False).network()
    inputs = random_inputs(network)
    half = CompileSettings(floats=ElementType.f16)
    found = _answers(network, inputs, opencl, builder, settings=half)
    for name, wanted in openvino_answers(network, inputs).items():
        # Half precision keeps 11 bits, of the largest that a sum is made of, for a few layers.
        scale = max(np.abs(wanted).max(), 1)
        np.testing.assert_allclose(found[name], wanted, 0.02, 0.02 * scale, err_msg=name)
