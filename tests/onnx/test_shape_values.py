"""Numbers computed from sizes: signed, wrapped and rounded as ONNX Runtime computes them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.onnx.models import model, onnxruntime_outputs, run, tensor, value

Rng = np.random.Generator
INT64, INT32, F32, F64 = (
    TensorProto.INT64,
    TensorProto.INT32,
    TensorProto.FLOAT,
    TensorProto.DOUBLE,
)
_FLOATS = {F32: np.float32, F64: np.float64}
_BINARY = ["Add", "Sub", "Mul", "Div", "Min", "Max", "Mod"]


class _Program:
    """A random program over the sizes of x; every value of it is an output."""

    def __init__(self, rng: Rng) -> None:
        self.rng = rng
        self.nodes = [
            helper.make_node("Shape", ["x"], ["v0"]),
            helper.make_node("Size", ["x"], ["v1"]),
        ]
        self.values = [("v0", INT64, 3), ("v1", INT64, 0)]
        self.constants: list[TensorProto] = []

    def emit(self, op: str, inputs: list[str], kind: int, length: int, **attributes: int) -> None:
        name = f"v{len(self.values)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        self.values.append((name, kind, length))

    def constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(tensor(name, array))
        return name

    def step(self) -> None:
        rng = self.rng
        name, kind, length = self.values[rng.integers(len(self.values))]
        if rng.random() < 0.6:
            self._arithmetic(name, kind, length)
        elif rng.random() < 0.5:
            to = int(rng.choice([INT64, INT32, F32, F64]))
            self.emit("Cast", [name], to, length, to=to)
        elif kind in _FLOATS:
            self.emit(str(rng.choice(["Floor", "Ceil"])), [name], kind, length)
        elif length == 3 and kind == INT64 and rng.random() < 0.5:
            self.emit("ReduceProd", [name], INT64, 0, keepdims=0)
        elif length == 3:
            axis = self.constant(np.array(rng.integers(-3, 3)))
            self.emit("Gather", [name, axis], kind, 0)

    def _arithmetic(self, name: str, kind: int, length: int) -> None:
        rng, op = self.rng, str(self.rng.choice(_BINARY))
        dtype = _FLOATS.get(kind, np.int64 if kind == INT64 else np.int32)
        shape = int(rng.choice([0, 3])) if length == 0 else length
        others = [(n, count) for n, k, count in self.values if k == kind]
        if rng.random() < 0.5 and op not in ("Div", "Mod"):
            other, count = others[rng.integers(len(others))]
            shape = max(length, count)
        else:
            number = rng.integers(1, 6, [shape] if shape else [])
            signs = rng.choice([-1, 1], number.shape)
            # ONNX Runtime rounds down what ONNX truncates, so negative divisors tell.
            number = number * (abs(signs) if op == "Mod" else signs)
            scale = 0.75 if kind in _FLOATS else 1
            other = self.constant(np.asarray(number * scale, dtype))
        pair = [name, other]
        if op not in ("Div", "Mod") and rng.random() < 0.5:
            pair.reverse()
        if op == "Mod" and kind in _FLOATS:
            self.emit(op, pair, kind, shape, fmod=1)
        else:
            self.emit(op, pair, kind, shape)


@pytest.mark.parametrize("seed", range(40))
def test_arithmetic_of_unknown_sizes(seed, device):
    rng = np.random.default_rng(seed)
    program = _Program(rng)
    while len(program.values) < 14:
        program.step()
    known = rng.random(3) < 0.3
    sizes = [int(n) for n in rng.integers(0 if rng.random() < 0.2 else 1, 7, 3)]
    declared = [n if fixed else f"n{i}" for i, (n, fixed) in enumerate(zip(sizes, known))]
    proto = model(
        program.nodes,
        [value("x", declared)],
        [value(name, None, kind) for name, kind, _ in program.values],
        initializers=program.constants,
    )
    x = np.zeros(sizes, np.float32)
    for got, want in zip(run(proto, x, device=device), onnxruntime_outputs(proto, x), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("nodes", "sizes", "expected"),
    [
        ([("Shape", ["x"]), ("Sub", ["k", "v0"])], [2, 3], [-5, -6]),
        ([("Size", ["x"]), ("Min", ["v0", "m"])], [2, 3], -1),
        ([("Shape", ["x"]), ("Mul", ["v0", "m"])], [2, 3], [-2, -3]),
        ([("Shape", ["x"]), ("Sub", ["v0", "five"]), ("Div", ["v1", "two"])], [2, 5], [-1, 0]),
    ],
)
def test_negative_numbers_from_sizes(nodes, sizes, expected, device):
    proto = model(
        [helper.make_node(op, inputs, [f"v{i}"]) for i, (op, inputs) in enumerate(nodes)],
        [value("x", ["a", "b"])],
        [value(f"v{len(nodes) - 1}", None, INT64)],
        initializers=[
            tensor(name, np.array(number))
            for name, number in (("k", -3), ("m", -1), ("five", 5), ("two", 2))
        ],
    )
    (y,) = run(proto, np.zeros(sizes, np.float32), device=device)
    np.testing.assert_array_equal(y, expected)


def test_a_shape_that_may_hold_minus_one(device):
    # [n, 12] by the pattern [n - 3, 4]: with n = 2 the first size is what is left.
    proto = model(
        [
            helper.make_node("Shape", ["x"], ["s"], start=0, end=1),
            helper.make_node("Sub", ["s", "three"], ["d"]),
            helper.make_node("Concat", ["d", "four"], ["p"], axis=0),
            helper.make_node("Reshape", ["x", "p"], ["y"]),
        ],
        [value("x", ["n", 12])],
        initializers=[tensor("three", np.array([3])), tensor("four", np.array([4]))],
    )
    x = np.arange(24, dtype=np.float32).reshape(2, 12)
    (y,) = run(proto, x, device=device)
    np.testing.assert_array_equal(y, x.reshape(6, 4))


def test_pads_computed_from_sizes_may_cut(device):
    proto = model(
        [
            helper.make_node("Shape", ["x"], ["s"]),
            helper.make_node("Sub", ["four", "s"], ["d"]),
            helper.make_node("Concat", ["zero", "d"], ["p"], axis=0),
            helper.make_node("Pad", ["x", "p"], ["y"]),
        ],
        [value("x", ["n"])],
        initializers=[tensor("four", np.array([4])), tensor("zero", np.array([0]))],
    )
    for count in (2, 7):
        x = np.arange(1, count + 1, dtype=np.float32)
        (y,) = run(proto, x, device=device)
        np.testing.assert_array_equal(y, onnxruntime_outputs(proto, x)[0])


def test_what_is_no_arithmetic_of_sizes_is_computed_of_sizes_too(device):
    # On a GPU folded where sizes are symbols, which these functions take as the numbers they are.
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("CumSum", ["s", "axis"], ["summed"]),
        helper.make_node("Relu", ["s"], ["relu"]),
        helper.make_node("Pow", ["s", "s"], ["power"]),
        helper.make_node("Greater", ["s", "four"], ["greater"]),
    ]
    kinds = {"summed": INT64, "relu": INT64, "power": INT64, "greater": TensorProto.BOOL}
    proto = model(
        nodes,
        [value("x", ["a", "b"])],
        [value(name, None, kind) for name, kind in kinds.items()],
        initializers=[tensor("axis", np.array(0)), tensor("four", np.array(4))],
    )
    # 20 to its own power does not fit and wraps around: 20**20 modulo 2**64.
    for a, b, a_to_a in ((20, 5, -2101438300051996672), (2, 3, 4), (4, 5, 256)):
        summed, relu, power, greater = run(proto, np.zeros((a, b), np.float32), device=device)
        np.testing.assert_array_equal(summed, [a, a + b])
        np.testing.assert_array_equal(relu, [a, b])
        np.testing.assert_array_equal(power, [a_to_a, b**b])
        np.testing.assert_array_equal(greater, [a > 4, b > 4])
