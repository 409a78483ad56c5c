"""Every pattern that CPU recognises, on random sizes: operands of one element, high rank, or none.

Each generator spells a pattern out with sizes and broadcasts that ONNX allows, and some that are
near the pattern without being it. ONNX Runtime, which recognises nothing here, has the answers;
what it refuses (some operations without elements) must not break anything here.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, field

import numpy as np
import pytest

from polydevice.errors import PolydeviceError
from tests.cpu.loading import load
from tests.cpu.models import answer, build
from tests.seeds import seeded

ROUNDS = 12
"""Cases of each pattern; a higher number adds others."""


@dataclass
class Case:
    """A model in the making."""

    rng: np.random.Generator
    nodes: list = field(default_factory=list)
    inputs: dict = field(default_factory=dict)
    weights: dict = field(default_factory=dict)
    opset: int = 18

    def pick(self, *options):
        return options[int(self.rng.integers(len(options)))]

    def size(self):
        """A size: often 1, seldom 0, around blocks of 16 otherwise."""
        return self.pick(1, 1, 2, 3, 4, 5, 8, 15, 16, 17, 33) if self.rng.random() > 0.03 else 0

    def shape(self, rank):
        return tuple(self.size() for _ in range(rank))

    def new(self, kind, *inputs, **attributes):
        name = f"t{len(self.nodes)}"
        self.nodes.append((kind, list(inputs), [name], attributes))
        return name

    def both(self, kind, a, b):
        """A commutative operation, its inputs in either order."""
        return self.new(kind, *self.pick((a, b), (b, a)))

    def constant(self, array, kind=np.float32):
        name = f"w{len(self.weights)}"
        self.weights[name] = np.asarray(array, kind)
        return name

    def numbers(self, shape, low=0.5, high=2.0):
        return self.constant(self.rng.uniform(low, high, shape))

    def input(self, shape):
        name = f"x{len(self.inputs)}"
        self.inputs[name] = shape
        return name

    def operand_shape(self, shape):
        """What broadcasts to a shape: any subset of its sizes, fewer axes or, seldom, one more."""
        kept = [n if self.rng.random() < 0.5 else 1 for n in shape]
        while kept and kept[0] == 1 and self.rng.random() < 0.6:
            kept.pop(0)
        return (1, *kept) if self.rng.random() < 0.1 and len(kept) == len(shape) else tuple(kept)

    def one(self, value):
        """A constant of one element, of any rank."""
        return self.constant(np.full((1,) * self.pick(0, 0, 1, 2, 5), value))


def layer_norm(case):
    shape = case.shape(case.pick(2, 3, 4))
    axis = case.pick(-1, -1, -1, len(shape) - 1, 0)
    x, axes = case.input(shape), case.constant([axis], np.int64)
    centred = case.new("Sub", x, case.new("ReduceMean", x, axes))
    square = case.pick(
        lambda: case.new("Mul", centred, centred), lambda: case.new("Pow", centred, case.one(2))
    )()
    variance = case.new("ReduceMean", square, axes)
    root = case.new("Sqrt", case.both("Add", variance, case.one(1e-5)))
    normal = case.new("Div", centred, root)
    width = case.pick((1,), shape[-1:], (), case.operand_shape(shape))
    other = case.pick(width, width, (1,), case.operand_shape(shape))
    return case.both("Add", case.both("Mul", normal, case.numbers(width)), case.numbers(other))


def instance_norm(case):
    shape = (case.pick(1, 2), *case.shape(case.pick(2, 3)))
    names = [case.numbers(shape[1:2]) for _ in range(2)]
    return case.new("InstanceNormalization", case.input(shape), *names)


def layer_normalization(case):
    shape = case.shape(case.pick(2, 3, 4))
    case.opset = 17
    axis = case.pick(-1, -1, 1)
    names = [case.numbers(shape[axis:]) for _ in range(case.pick(1, 2))]
    return case.new("LayerNormalization", case.input(shape), *names, axis=axis)


def swish(case):
    x = case.input(case.shape(case.pick(1, 2, 4)))
    return case.both("Mul", x, case.new("Sigmoid", case.pick(x, case.input(case.inputs[x]))))


def hard_swish(case):
    shape = case.shape(case.pick(2, 4))
    x = case.input(shape)
    shifted = case.both("Add", x, case.pick(case.one(3), case.numbers(case.operand_shape(shape))))
    gate = case.new("Clip", shifted, case.constant(0), case.constant(6))
    last = case.pick(lambda v: case.new("Div", v, case.one(6)), lambda v: v)
    sixth = case.pick(lambda v: case.both("Mul", v, case.one(1 / 6)), last)
    return sixth(case.both("Mul", x, gate)) if case.pick(0, 1) else case.both("Mul", sixth(gate), x)


def gelu(case):
    shape = case.shape(case.pick(2, 3))
    x = case.input(shape)
    scale = case.pick(case.one(math.sqrt(2)), case.constant(np.full(shape[-1:], math.sqrt(2))))
    gate = case.both("Add", case.new("Erf", case.new("Div", x, scale)), case.one(1))
    half = case.pick(case.one(0.5), case.constant(np.full(case.operand_shape(shape), 0.5)))
    if case.pick(0, 1):
        return case.both("Mul", case.both("Mul", x, gate), half)
    return case.both("Mul", case.both("Mul", x, half), gate)


def mish(case):
    x = case.input(case.shape(case.pick(2, 4)))
    return case.both("Mul", x, case.new("Tanh", case.new("Softplus", x)))


def _affine(case, value, shape):
    for kind in case.pick(("Mul",), ("Add",), ("Mul", "Add"), ("Add", "Mul"), ("Add", "Add")):
        channels = (shape[1], *[1] * (len(shape) - 2))
        operand = case.pick(channels, (1, *channels), (1,), case.operand_shape(shape))
        value = case.both(kind, value, case.numbers(operand))
    return value


def convolution(case):
    groups, per_group = case.pick(1, 1, 2, 3), case.pick(1, 2, 5)
    outputs = groups * case.pick(1, 2, 16)
    batch, spatial = case.pick(1, 2), case.pick((5,), (4, 5), (1, 1), (7, 1))
    kernel = tuple(min(n, case.pick(1, 2, 3)) for n in spatial)
    x = case.input((batch, groups * per_group, *spatial))
    bias = [case.numbers((outputs,))] if case.pick(0, 1) else []
    w = case.numbers((outputs, per_group, *kernel), -1, 1)
    y = case.new("Conv", x, w, *bias, group=groups)
    shape = (batch, outputs, *(n - k + 1 for n, k in zip(spatial, kernel, strict=True)))
    if case.pick(0, 0, 1):
        statistics = [case.numbers((outputs,)) for _ in range(4)]
        return case.new("BatchNormalization", y, *statistics)
    return _affine(case, y, shape)


def transposed_convolution(case):
    groups, per_group = case.pick(1, 2), case.pick(1, 3)
    outputs, width = case.pick(1, 2, 4), case.pick(1, 4)
    x = case.input((case.pick(1, 2), groups * per_group, width, 3))
    w = case.numbers((groups * per_group, outputs, 2, 2), -1, 1)
    y = case.new("ConvTranspose", x, w, group=groups)
    return _affine(case, y, (case.inputs[x][0], groups * outputs, width + 1, 4))


def product(case):
    m, k, n = case.size(), case.size(), case.size()
    lead = case.pick((), (2,), (1,), (2, 3))
    x, w = case.input((*lead, m, k)), case.numbers((k, n), -1, 1)
    return _affine_last(case, case.new("MatMul", x, w), (*lead, m, n))


def _affine_last(case, value, shape):
    for kind in case.pick(("Mul",), ("Add",), ("Add", "Mul"), ("Mul", "Add"), ("Add", "Add")):
        operand = case.pick(shape[-1:], (1, *shape[-1:]), (1,), case.operand_shape(shape))
        value = case.both(kind, value, case.numbers(operand))
    return value


def batch_norm(case):
    shape = (case.size(), max(case.size(), 1), *case.shape(case.pick(0, 1, 2, 3)))
    statistics = [case.numbers(shape[1:2]) for _ in range(4)]
    return case.new("BatchNormalization", case.input(shape), *statistics)


def pointwise(case):
    shape = case.shape(case.pick(1, 2, 3, 4, 5))
    value = case.input(shape)
    for _ in range(case.pick(1, 2, 3)):
        kind = case.pick("Add", "Sub", "Mul", "Div", "Max", "Min")
        operand = case.operand_shape(shape)
        other = case.pick(case.numbers(operand), case.input(operand), case.one(1.5))
        value = case.new(kind, *case.pick((value, other), (other, value)))
    return value


def pooled(case):
    shape = (case.pick(1, 2), case.size(), case.pick(2, 5, 17), case.pick(2, 3, 16))
    x = case.input(shape)
    y = case.new(case.pick("MaxPool", "AveragePool"), x, kernel_shape=[2, 2])
    result = (*shape[:2], shape[2] - 1, shape[3] - 1)
    for _ in range(case.pick(1, 2)):
        operand = case.pick(result, case.operand_shape(result))
        other = case.pick(case.input(operand), case.numbers(operand))
        y = case.both(case.pick("Add", "Mul", "Max"), y, other)
    return y


def slope(case):
    shape = case.shape(case.pick(2, 3, 4))
    channels = (shape[1], *[1] * (len(shape) - 2))
    operand = case.pick((1,), channels, case.operand_shape(shape))
    x = case.input(shape)
    if len(shape) > 2 and case.pick(0, 1):
        x = case.new("MaxPool", x, kernel_shape=[1] * (len(shape) - 2))
    return case.new("PRelu", x, case.numbers(operand))


def quantised(case):
    shape = case.shape(case.pick(2, 4))
    axis = case.pick(0, 1, -1)
    wide = case.pick((), (1,), (shape[axis],))
    kind = case.pick(np.int8, np.uint8)
    scale = case.constant(case.rng.uniform(0.01, 0.1, wide))
    zero = [case.constant(case.rng.integers(0, 100, wide), kind)] if case.pick(0, 1) else []
    x = case.input(shape)
    q = case.new("QuantizeLinear", x, scale, *zero, axis=axis)
    return case.new("DequantizeLinear", q, scale, *zero, axis=axis)


def squeezed_convolution(case):
    channels, outputs, length = case.pick(1, 3), case.pick(1, 4, 16), case.pick(1, 3, 9)
    x = case.input((case.pick(1, 2), channels, 1, length))
    w = case.numbers((outputs, channels, 1, 1), -1, 1)
    y = case.new("Conv", x, w)
    y = case.new("Squeeze", y, case.constant([2], np.int64))
    shape = (case.inputs[x][0], outputs, length)
    y = case.both("Add", y, case.numbers(case.pick((outputs, 1), case.operand_shape(shape))))
    return case.new("Relu", y)


def masked_softmax(case):
    batch, heads, length, size = case.pick(1, 2), case.pick(1, 2), case.pick(1, 4, 17), 8
    q, k, v = (case.input((batch, heads, length, size)) for _ in range(3))
    scores = case.new("MatMul", q, case.new("Transpose", k, perm=[0, 1, 3, 2]))
    scores = case.both("Mul", scores, case.one(size**-0.5))
    mask = case.operand_shape((batch, heads, length, length))
    scores = case.both("Add", scores, case.pick(case.input(mask), case.numbers(mask)))
    return case.new("MatMul", case.new("Softmax", scores, axis=-1), v)


PATTERNS = (
    layer_norm,
    instance_norm,
    layer_normalization,
    swish,
    hard_swish,
    gelu,
    mish,
    convolution,
    transposed_convolution,
    product,
    batch_norm,
    pointwise,
    pooled,
    slope,
    quantised,
    squeezed_convolution,
    masked_softmax,
)


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.__name__)
def test_patterns_on_random_sizes(core, pattern):
    for number in range(ROUNDS):
        case = Case(seeded(f"{pattern.__name__} {number}"))
        case.nodes.append(("Identity", [pattern(case)], ["y"], {}))
        used = {name for _, names, _, _ in case.nodes for name in names}
        shapes = {name: shape for name, shape in case.inputs.items() if name in used}
        weights = {name: array for name, array in case.weights.items() if name in used}
        model = build(case.nodes, shapes, ["y"], weights, case.opset)
        inputs = {n: case.rng.normal(size=s).astype(np.float32) for n, s in shapes.items()}
        kinds = [kind for kind, *_ in case.nodes]
        told = f"{pattern.__name__} {number}: {kinds} {shapes} "
        told += str({name: array.shape for name, array in weights.items()})
        try:
            (want,) = answer(model, inputs)
        except Exception:  # noqa: BLE001 - ONNX Runtime has classes of its own
            with contextlib.suppress(PolydeviceError):
                load(core, model).infer(inputs)
            continue
        executable = load(core, model)
        for _ in range(2):
            got = executable.infer(inputs)["y"]
            assert got.shape == want.shape, told
            np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5, err_msg=told)
