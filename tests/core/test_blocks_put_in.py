"""ScatterNDUpdate and SliceScatter of a block of neighbours become what they put together."""

from __future__ import annotations

import itertools

import numpy as np
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

from polydevice import Core
from polydevice.dtype import ElementType
from polydevice.emitter import Emitter
from polydevice.network import Network
from polydevice.node import Node
from polydevice.ops.io import Parameter, Result
from polydevice.ops.op import Op
from polydevice.ops.scatter import Reduction, ScatterNDUpdate
from polydevice.ops.slice import SliceScatter
from polydevice.rewrites import Wishes, always, rewrite
from polydevice.shape import Shape
from polydevice_cpu.implement import evaluate
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case

RNG = np.random.default_rng(31)


def places(*limits: tuple[int, int], steps: tuple[int, ...] = ()) -> np.ndarray:
    """Coordinates of a block as exporters write them: one tuple for each element."""
    lines = [
        np.arange(*limit, step) for limit, step in itertools.zip_longest(limits, steps, fillvalue=1)
    ]
    return np.stack(np.meshgrid(*lines, indexing="ij"), -1).astype(np.int64)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def types_left(op: Op, x: np.ndarray, *others: np.ndarray, updates: np.ndarray) -> set[str]:
    """Rewrite a network of the operation and return the types of its layers."""
    inputs = [
        Node(n, Parameter(ElementType.f32, Shape(v.shape))) for n, v in [("x", x), ("u", updates)]
    ]
    make = Emitter("made")
    of_slices = isinstance(op, SliceScatter)
    known = [make.value(v, ElementType.i64) for v in others]
    ports = (
        [inputs[0].output, inputs[1].output, *known]
        if of_slices
        else [inputs[0].output, *known, inputs[1].output]
    )
    network = Network("net", inputs, [Node("y", Result(), [make.emit(op, *ports)])])
    rewrite(network, Wishes(decompose={ScatterNDUpdate: always, SliceScatter: always}), evaluate)
    return {node.type for node in network.nodes()}


BLOCKS = [
    ((5, 7), [(0, 5), (0, 7)]),
    ((40, 7), [(3, 37)]),
    ((40, 7), [(0, 33)]),
    ((3, 40, 2), [(0, 3), (5, 40)]),
    ((3, 5, 7), [(0, 3), (0, 5), (1, 7)]),
    ((3, 40, 3), [(0, 3), (-39, -2)]),
    ((1, 2, 6, 9), [(0, 1), (0, 2), (-6, 0)]),
]


@pytest.mark.parametrize(("shape", "limits"), BLOCKS)
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_a_block_is_put_in(device, shape, limits, dtype):
    indices = places(*limits)
    updates = RNG.integers(-99, 99, (*indices.shape[:-1], *shape[len(limits) :])).astype(dtype)
    x = RNG.integers(-99, 99, shape).astype(dtype)
    check(openvino_case(ScatterNDUpdate(), x, indices, updates, constants={1}), device)


@pytest.mark.parametrize(("shape", "limits"), BLOCKS)
def test_nothing_is_scattered_then(shape, limits):
    indices = places(*limits)
    updates = floats(*indices.shape[:-1], *shape[len(limits) :])
    assert "ScatterNDUpdate" not in types_left(
        ScatterNDUpdate(), floats(*shape), indices, updates=updates
    )


def test_one_list_of_places_is_a_block_too(device):
    x, indices = floats(2, 50, 3), places((0, 2), (4, 44)).reshape(-1, 2)
    updates = floats(80, 3)
    assert "ScatterNDUpdate" not in types_left(ScatterNDUpdate(), x, indices, updates=updates)
    check(openvino_case(ScatterNDUpdate(), x, indices, updates, constants={1}), device)


SCATTERED = {
    "several axes are cut": ((9, 9), places((1, 8), (1, 8))),
    "another order": ((40, 3), places((1, 39))[::-1]),
    "axes exchanged": ((8, 8), places((0, 8), (0, 8))[..., ::-1]),
    "steps": ((80, 3), places((0, 80), steps=(2,))),
    "a place twice": ((40, 3), np.concatenate([places((1, 35)), places((1, 2))])),
    "a hole": ((40, 3), np.concatenate([places((1, 20)), places((21, 35))])),
    "few places": ((40, 3), places((3, 5))),
}


@pytest.mark.parametrize("case", SCATTERED)
def test_anything_else_is_scattered(device, case):
    shape, indices = SCATTERED[case]
    x, updates = floats(*shape), floats(*indices.shape[:-1], *shape[indices.shape[-1] :])
    if case == "a place twice":
        updates[-1] = updates[0]  # which of two stays is not defined
    assert "ScatterNDUpdate" in types_left(ScatterNDUpdate(), x, indices, updates=updates)
    check(openvino_case(ScatterNDUpdate(), x, indices, updates, constants={1}), device)


def test_what_is_added_is_scattered():
    op, indices = ScatterNDUpdate(reduction=Reduction.SUM), places((0, 40))
    assert "ScatterNDUpdate" in types_left(op, floats(40), indices, updates=floats(40))


def test_no_places_change_nothing(device):
    x, indices, updates = floats(4, 3), np.empty((0, 1), np.int64), np.empty((0, 3), np.float32)
    check(openvino_case(ScatterNDUpdate(), x, indices, updates, constants={1}), device)


@pytest.mark.parametrize(
    ("start", "stop", "axes"),
    [
        ((1,), (4,), (0,)),
        ((1, -3), (4, -1), (0, 2)),
        ((0, 1, 2), (5, 3, 6), None),
        ((2,), (2,), (1,)),
    ],
)
def test_slices_of_step_1_are_put_in(device, start, stop, axes):
    x = floats(5, 3, 6)
    index = [slice(None)] * 3
    for axis, limits in zip(axes or range(3), zip(start, stop, strict=True), strict=True):
        index[axis] = slice(*limits)
    updates = floats(*x[tuple(index)].shape)
    numbers = [np.array(n, np.int64) for n in (start, stop, [1] * len(start), axes or range(3))]
    left = types_left(SliceScatter(), x, *numbers, updates=updates)
    assert not left & {"SliceScatter", "ScatterUpdate"}
    case = openvino_case(SliceScatter(), x, updates, *numbers, constants={2, 3, 4, 5})
    check(case, device)


@pytest.mark.parametrize("op", ["ScatterND", "ScatterElements"])
@pytest.mark.parametrize("count", [5, 190])
def test_what_is_scattered_is_added_to_another_value(device, op, count):
    """Which a device may do where it scatters, whether updates are few or many."""
    to = "places" if op == "ScatterND" else "flat"
    text = f"""
    <ir_version: 8, opset_import: ["" : 17]>
    net (float[n, 2] x, int64[k, 1] places, float[k, 2] updates, int64[k, 2] flat, float[n, 2] z)
        => (float[n, 2] y) {{
        s = {op}(x, {to}, updates)
        y = Add(s, z)
    }}"""
    model = onnx.parser.parse_model(text)
    feed = {
        "x": floats(200, 2),
        "places": RNG.permutation(200)[:count, None],
        "updates": floats(count, 2),
        "flat": np.stack([RNG.permutation(200)[:count] for _ in range(2)], -1),
        "z": floats(200, 2),
    }
    (expected,) = ReferenceEvaluator(model).run(None, feed)
    used = {port.name for port in model.graph.input if port.name in (to, "x", "updates", "z")}
    for port in [port for port in model.graph.input if port.name not in used]:
        model.graph.input.remove(port)
    with Core() as core:
        loaded = core.load_network(core.read_network(model.SerializeToString()), device)
        (y,) = loaded.infer({name: feed[name] for name in used}).values()
    np.testing.assert_allclose(y, expected, rtol=1e-6)
