"""Networks of random steps compute the same once what is known in them is one operation.

ONNX Runtime runs the steps as they are written. Sizes, masks, scales, types and the ways to write a
step are drawn; also ways that must not be recognised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from polydevice import Core, Shape
from polydevice.ops.attention import ScaledDotProductAttention
from polydevice.ops.normalization import MVN, NormalizeL2
from polydevice.rewrites import ORDER, Wishes, always, rewrite
from polydevice.rewrites.recognise.activation import RECOGNISED
from polydevice_cpu.implement import evaluate

KINDS = (MVN, NormalizeL2, ScaledDotProductAttention, *RECOGNISED)
WISHES = Wishes(recognise=dict.fromkeys(KINDS, always))
ANOTHER_ORDER = (
    *(stage for stage in ORDER if not stage[0].startswith("recognise")),
    *(stage for stage in reversed(ORDER) if stage[0].startswith("recognise")),
)
SEEDS = 20


@dataclass
class Steps:
    """An ONNX graph in the making, of one floating point type."""

    rng: np.random.Generator
    dtype: type = np.float32
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    stored: list[onnx.TensorProto] = field(default_factory=list)

    def store(self, value: Any, dtype: Any = None) -> str:
        name = f"c{len(self.stored)}"
        array = np.asarray(value, self.dtype if dtype is None else dtype)
        self.stored.append(numpy_helper.from_array(array, name))
        return name

    def emit(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name, **attributes))
        return name

    def either(self, kind: str, a: str, b: str) -> str:
        """Emit a commutative operation, with its inputs in some order."""
        return self.emit(kind, *((a, b) if self.chance(0.5) else (b, a)))

    def number(self, value: float) -> str:
        """Store a number, now and then with axes."""
        return self.store(
            np.reshape(value, [(), (1,), (1, 1)][self.rng.choice(3, p=[0.7, 0.2, 0.1])])
        )

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def sizes(self, count: int, most: int = 6) -> list[int]:
        return [int(n) for n in self.rng.integers(1, most, count)]

    def model(self, shapes: dict[str, list[int]], result: str) -> bytes:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        inputs = [helper.make_tensor_value_info(n, kind, s) for n, s in shapes.items()]
        output = helper.make_tensor_value_info(result, kind, None)
        graph = helper.make_graph(self.nodes, "steps", inputs, [output], self.stored)
        imports = [helper.make_opsetid("", 13)]
        return helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()


def attention(s: Steps) -> tuple[bytes, dict[str, list[int]]]:
    """Products around a softmax; scales before or behind, masks added or chosen."""
    s.dtype = np.float16 if s.chance(0.4) else np.float32
    half = s.dtype is np.float16
    batch = s.sizes(int(s.rng.integers(0, 3)), 3)
    rows, keys, size, width = s.sizes(4)
    turned = s.chance(0.5)
    key = [keys, size] if turned else [size, keys]
    shapes = {"q": [*batch, rows, size], "k": [*batch, *key], "v": [*batch, keys, width]}
    first, second, rank = "q", "k", len(batch) + 2
    if s.chance(0.3):
        first = s.emit("Mul", first, s.store(s.rng.choice([0.5, 0.125, 2])))
    if turned:
        second = s.emit("Transpose", second, perm=[*range(rank - 2), rank - 1, rank - 2])
    scores = s.emit("MatMul", first, second)
    shape = [[rows, keys], [1, keys], [*batch, rows, keys]][s.rng.integers(3)]
    for step in s.rng.permutation(["scale", "add", "choose", "reshape"])[: s.rng.integers(1, 5)]:
        if step == "scale":
            scores = s.emit(
                s.rng.choice(["Mul", "Div"]), scores, s.store(s.rng.choice([0.5, 0.3, 4]))
            )
        elif step == "add":
            hidden = s.rng.random(shape) < 0.5
            hidden[..., 0] = False
            if s.chance(0.3):
                hidden = np.triu(np.ones((rows, keys), bool), 1)
            far = s.rng.choice([0.7, -np.inf, -2e4 if half else -1e9])
            scores = s.either("Add", scores, s.store(np.where(hidden, far, 0)))
        elif step == "choose":  # also rows of which nothing is seen
            seen = s.store(s.rng.random(shape) < s.rng.choice([0, 0.5, 0.8]), np.bool_)
            far = s.rng.choice([-2e4, -65504] if half else [-2e4, -1e9, -3e38])
            scores = s.emit("Where", seen, scores, s.store(far))
        elif len(batch) == 2:
            for sizes in ([batch[0] * batch[1], rows, keys], [*batch, rows, keys]):
                scores = s.emit("Reshape", scores, s.store(sizes, np.int64))
    return s.model(shapes, s.emit("MatMul", s.emit("Softmax", scores, axis=-1), "v")), shapes


def normalization(s: Steps) -> tuple[bytes, dict[str, list[int]]]:
    """x, or x less its mean, divided by the root of its mean square."""
    shape = s.sizes(int(s.rng.integers(1, 5)))
    rank = len(shape)
    axes = {int(axis) for axis in s.rng.integers(0, rank, 2)}
    mean = {"axes": [axis - rank * s.chance(0.5) for axis in axes], "keepdims": 1}
    centred = s.chance(0.6)

    def centre() -> str:
        return s.emit("Sub", "x", s.emit("ReduceMean", "x", **mean)) if centred else "x"

    data = centre()
    squared = centre() if s.chance(0.4) else data
    power = (
        s.emit("Pow", squared, s.number(2)) if s.chance(0.6) else s.emit("Mul", squared, squared)
    )
    variance = s.emit("ReduceMean", power, **mean)
    eps = s.number(s.rng.choice([1e-5, 1e-2, 1.0]))
    way = s.rng.integers(5)
    if way == 0:
        y = s.emit("Div", data, s.emit("Sqrt", s.either("Add", variance, eps)))
    elif way == 1:
        y = s.emit("Div", data, s.either("Add", s.emit("Sqrt", variance), eps))
    elif way == 2:
        root = s.emit("Sqrt", s.either("Add", variance, eps))
        y = s.either("Mul", data, s.emit("Div", s.number(1), root))
    elif way == 3:
        y = s.either("Mul", data, s.emit("Pow", s.either("Add", variance, eps), s.number(-0.5)))
    else:  # none: it is not the mean square alone that is below the root
        y = s.emit("Div", data, s.emit("Add", s.emit("Sqrt", variance), s.number(-30)))
    return s.model({"x": shape}, y), {"x": shape}


def activation(s: Steps) -> tuple[bytes, dict[str, list[int]]]:
    """Gates in steps, with factors that fit, and such that do not."""
    shape = s.sizes(int(s.rng.integers(0, 4)))
    way = s.rng.integers(8)
    clip = s.emit("Clip", s.either("Add", "x", s.number(3)), s.store(0), s.store(6))
    if way == 0:
        y = s.either("Mul", "x", s.emit("Sigmoid", "x"))
    elif way == 1:
        y = s.either("Mul", clip, s.either("Mul", "x", s.number(1 / 6)))
    elif way == 2:
        y = s.emit("Div", clip, s.number(6))
    elif way == 3:
        erf = s.emit("Erf", s.emit("Div", "x", s.number(np.sqrt(2))))
        y = s.either("Mul", s.either("Mul", "x", s.number(0.5)), s.either("Add", erf, s.number(1)))
    elif way == 4:
        y = s.either("Mul", "x", s.emit("Tanh", s.emit("Softplus", "x")))
    elif way < 7:
        y = tanh_gelu(s)
    else:
        slope = float(s.rng.choice([1 / 6, 0.2]))
        y = s.either("Mul", "x", s.emit("HardSigmoid", "x", alpha=slope, beta=0.5))
    if s.chance(0.3):
        y = s.either("Mul", y, s.number(s.rng.choice([2, 0.5, 6, 1 / 6])))
    return s.model({"x": shape}, y), {"x": shape}


def tanh_gelu(s: Steps) -> str:
    """Gelu by tanh; the cube as a power or as products, x before the sum or in it."""
    outside = s.chance(0.5)
    power = "x"
    if not outside and s.chance(0.5):
        power = s.emit("Pow", "x", s.number(s.rng.choice([3, 3, 2])))
    else:
        for _ in range(1 if outside else 2):
            power = s.either("Mul", power, "x")
    power = s.either("Mul", power, s.number(s.rng.choice([0.044715, 0.044715, 0.1])))
    total = s.either("Add", s.number(1) if outside else "x", power)
    if outside:
        total = s.either("Mul", "x", total)
    gate = s.emit("Tanh", s.either("Mul", total, s.number(np.sqrt(2 / np.pi))))
    return s.either("Mul", s.either("Mul", "x", s.number(0.5)), s.either("Add", gate, s.number(1)))


@pytest.mark.parametrize("steps", [attention, normalization, activation])
def test_what_is_recognised_computes_what_its_steps_did(
    steps: Callable[[Steps], tuple[bytes, dict[str, list[int]]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a second run finds nothing more, nor does another order of what is recognised."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    found = 0
    with Core() as core:
        for seed in range(SEEDS):
            s = Steps(np.random.default_rng([15, seed]))
            model, shapes = steps(s)
            feeds = {
                name: np.asarray(s.rng.normal(size=shape) * 3, s.dtype)
                for name, shape in shapes.items()
            }
            session = onnxruntime.InferenceSession(model, options)
            (expected,) = session.run(None, feeds)
            network = core.read_network(model)
            if s.chance(0.25):  # of which only the number of axes is known
                for node in network.parameters:
                    node.op = node.op.replace(shape=Shape([None] * len(shapes[node.name])))
                network.infer()
            other = network.clone()
            counts = rewrite(network, WISHES, evaluate)
            found += sum(count for stage, count in counts.items() if stage.startswith("recognise"))
            with monkeypatch.context() as patch:
                patch.setattr("polydevice.rewrites.ORDER", ANOTHER_ORDER)
                rewrite(other, WISHES, evaluate)
            types = [sorted(node.type for node in each.nodes()) for each in (network, other)]
            assert types[0] == types[1], f"{steps.__name__} {seed}: the order matters"
            assert not any(rewrite(network, WISHES, evaluate).values()), f"{steps.__name__} {seed}"
            (result,) = core.load_network(network, "CPU").infer(feeds).values()
            tolerance = (4e-2, 2e-2) if s.dtype is np.float16 else (2e-3, 1e-4)
            np.testing.assert_allclose(
                result.astype(np.float32), expected.astype(np.float32), *tolerance,
                err_msg=f"{steps.__name__} {seed}", strict=True,
            )  # fmt: skip
    assert found >= SEEDS // 4
