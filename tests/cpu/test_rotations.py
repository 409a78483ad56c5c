"""Rotary embeddings, in any of the ways that models write them, by machine code."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from polydevice import Core
from polydevice.errors import PolydeviceError
from polydevice_cpu.algorithms.by_machine.rows import rotation
from polydevice_cpu.algorithms.by_machine.rows.shares import placed
from polydevice_cpu.onednn.engine import address_of
from tests.cpu.loading import load
from tests.cpu.machine_code import by_machine_code, with_avx512
from tests.cpu.models import answer, build
from tests.guard_pages import SIDES, guarded

pytestmark = with_avx512
F = np.float32


def turned(x, cos, sin):
    """Each half by itself, in f64."""
    a, b = (half.astype(np.float64) for half in np.split(x, 2, -1))
    half = a.shape[-1]
    return np.concatenate(
        [a * cos[..., :half] - b * sin[..., :half], b * cos[..., -half:] + a * sin[..., -half:]], -1
    )


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("half", [1, 3, 15, 16, 17, 32, 50])
@pytest.mark.parametrize("whole", [True, False])
def test_every_length_and_order(side, half, whole):
    """Heads beside each other, before positions, or alone; angles of one item or of all."""
    rng = np.random.default_rng(half)
    length = 2 * half if whole else half
    for order in ((0, 1, 2, 3), (0, 2, 1, 3), (2, 0, 1, 3)):
        for batch, angles in (
            ((2, 3, 4), (2, 1, 4)),
            ((2, 3, 4), (1, 1, 4)),
            ((1, 5, 1), (4,)[:0]),
        ):
            sizes = (*batch, 2 * half)
            stored = tuple(sizes[axis] for axis in order)
            x = guarded(side, 4 * int(np.prod(sizes))).view(F).reshape(stored)
            x[...] = rng.normal(size=stored)
            x = x.transpose(np.argsort(order))
            cos, sin = (
                guarded(side, 4 * int(np.prod(angles)) * length).view(F).reshape(*angles, length)
                for _ in range(2)
            )
            cos[...], sin[...] = rng.normal(size=cos.shape), rng.normal(size=sin.shape)
            y = guarded(side, 4 * int(np.prod(sizes))).view(F).reshape(sizes)
            found = rotation.prepared([(each.shape, each.strides) for each in (x, cos, sin, y)])
            code, told = found
            assert not code(placed(told, *map(address_of, (x, cos, sin, y))))
            np.testing.assert_allclose(y, turned(x, cos, sin), rtol=1e-5, atol=1e-5)


def test_rows_with_gaps_and_too_many_axes_are_left_to_others():
    row = ((2, 4), (16, 4))
    assert rotation.prepared([row] * 4) is not None
    assert rotation.prepared([((2, 4), (32, 8)), *[row] * 3]) is None
    axes = (2, 2, 2, 2, 4)
    mixed = (axes, (400, 40, 200, 80, 4))
    assert rotation.prepared([mixed] * 4) is None
    assert rotation.prepared([((0, 4), (16, 4))] * 4) is None


def by_halves(swapped):
    """As the definition of RotaryEmbedding has it, factors and terms in another order."""

    def pair(*names):
        return list(names[::-1] if swapped else names)

    return [
        ("Split", ["t"], ["a", "b"], {"axis": -1, "num_outputs": 2}),
        ("Mul", pair("a", "cos"), ["p"], {}),
        ("Mul", pair("b", "sin"), ["q"], {}),
        ("Sub", ["p", "q"], ["first"], {}),
        ("Mul", pair("b", "cos"), ["r"], {}),
        ("Mul", pair("a", "sin"), ["s"], {}),
        ("Add", pair("r", "s"), ["second"], {}),
        ("Concat", ["first", "second"], ["y"], {"axis": -1}),
    ]


def by_rows(swapped):
    """As `rotate_half` has it."""

    def pair(*names):
        return list(names[::-1] if swapped else names)

    return [
        ("Slice", ["t", "zero", "half", "last"], ["a"], {}),
        ("Slice", ["t", "half", "far", "last"], ["b"], {}),
        ("Neg", ["b"], ["n"], {}),
        ("Concat", ["n", "a"], ["c"], {"axis": -1}),
        ("Mul", pair("t", "cos"), ["p"], {}),
        ("Mul", pair("c", "sin"), ["q"], {}),
        ("Add", pair("p", "q"), ["y"], {}),
    ]


def network(nodes, width, outputs=("y",)):
    constants = {"zero": [0], "half": [6], "far": [2**31 - 1], "last": [-1], "heads": [0, 0, 3, 12]}
    weights = {name: np.array(value) for name, value in constants.items()}
    given = [
        ("Reshape", ["x", "heads"], ["h"], {}),
        ("Transpose", ["h"], ["t"], {"perm": [0, 2, 1, 3]}),
    ]
    inputs = {"x": ["n", "l", 36], "cos": ["n", 1, "l", width], "sin": ["n", 1, "l", width]}
    return build([*given, *nodes], inputs, outputs, weights, opset=18)


@pytest.mark.parametrize("swapped", [True, False])
@pytest.mark.parametrize(("spelled", "width"), [(by_halves, 6), (by_rows, 12)])
def test_spellings(core, spelled, width, swapped):
    """ONNX Runtime judges; batches and lengths come with the inputs."""
    model, rng = network(spelled(swapped), width), np.random.default_rng(width)
    executable = load(core, model)
    for batch, length in ((1, 5), (3, 1), (2, 7), (1, 5)):
        feed = {"x": rng.normal(size=(batch, length, 36)).astype(F)}
        for name in ("cos", "sin"):
            feed[name] = rng.normal(size=(batch, 1, length, width)).astype(F)
        (want,) = answer(model, feed)
        np.testing.assert_allclose(executable.infer(feed)["y"], want, rtol=1e-5, atol=1e-5)
    assert by_machine_code(executable) == ["Rotation"]


@pytest.mark.parametrize(("spelled", "step"), [(by_halves, "p"), (by_rows, "c")])
def test_steps_that_others_read_stay(core, spelled, step):
    model = network(spelled(False), 6 if spelled is by_halves else 12, ("y", step))
    executable, rng = load(core, model), np.random.default_rng(1)
    width = 6 if spelled is by_halves else 12
    feed = {"x": rng.normal(size=(2, 3, 36)).astype(F)}
    for name in ("cos", "sin"):
        feed[name] = rng.normal(size=(2, 1, 3, width)).astype(F)
    for got, want in zip(executable.infer(feed).values(), answer(model, feed), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert "Rotation" not in by_machine_code(executable)


def other(nodes, number, **changes):
    """The same but for a node."""
    kind, inputs, outputs, attributes = nodes[number]
    given = {"kind": kind, "inputs": inputs, "attributes": attributes} | changes
    changed = (given["kind"], given["inputs"], outputs, given["attributes"])
    return [*nodes[:number], changed, *nodes[number + 1 :]]


@pytest.mark.parametrize(
    "nodes",
    [
        other(by_halves(False), 3, kind="Add"),
        other(by_halves(False), 3, inputs=["q", "p"]),
        other(by_halves(False), 4, inputs=["a", "cos"]),
        other(by_halves(False), 5, inputs=["a", "cos"]),
        other(by_halves(False), 7, inputs=["second", "first"]),
        other(by_halves(False), 7, attributes={"axis": 1}),
    ],
)
def test_what_only_looks_like_a_rotation_is_computed_as_it_is(core, nodes):
    model, rng = network(nodes, 6), np.random.default_rng(2)
    executable = load(core, model)
    feed = {"x": rng.normal(size=(2, 3, 36)).astype(F)}
    for name in ("cos", "sin"):
        feed[name] = rng.normal(size=(2, 1, 3, 6)).astype(F)
    (want,) = answer(model, feed)
    np.testing.assert_allclose(executable.infer(feed)["y"], want, rtol=1e-5, atol=1e-5)
    assert "Rotation" not in by_machine_code(executable)


@pytest.mark.parametrize("spelled", [by_halves, by_rows])
@pytest.mark.parametrize("shape", [[], [1], [3, 1], [2, 1, 3, 1]], ids=str)
def test_angles_that_are_one_for_a_row_are_computed_as_they_are(core, spelled, shape):
    constants = {"zero": [0], "half": [6], "far": [2**31 - 1], "last": [-1]}
    weights = {name: np.array(value) for name, value in constants.items()}
    inputs = {"t": ["n", 3, "l", 12], "cos": shape, "sin": shape}
    model, rng = build(spelled(False), inputs, ["y"], weights, opset=18), np.random.default_rng(4)
    feed = {name: rng.normal(size=shape).astype(F) for name in ("cos", "sin")}
    feed["t"] = rng.normal(size=(2, 3, 3, 12)).astype(F)
    executable = load(core, model)
    (want,) = answer(model, feed)
    np.testing.assert_allclose(executable.infer(feed)["y"], want, rtol=1e-5, atol=1e-5)
    assert "Rotation" not in by_machine_code(executable)


def test_halves_that_angles_stretch_are_computed_as_they_are(core):
    """One number in each half, and two angles: the whole gets four."""
    inputs = {"t": ["n", 2], "cos": [2], "sin": [2]}
    model, rng = build(by_halves(False), inputs, ["y"], {}, opset=18), np.random.default_rng(6)
    feed = {name: rng.normal(size=2).astype(F) for name in ("cos", "sin")}
    feed["t"] = rng.normal(size=(5, 2)).astype(F)
    (want,) = answer(model, feed)
    found = load(core, model).infer(feed)["y"]
    assert want.shape == found.shape == (5, 4)
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


def embedding(feed, interleaved=0, part=0, heads=0, **shapes):
    """RotaryEmbedding-23 of what is fed; its inputs have other shapes if told so."""
    node = helper.make_node(
        *("RotaryEmbedding", [*feed], ["y"]),
        interleaved=interleaved, rotary_embedding_dim=part, num_heads=heads,
    )  # fmt: skip
    info = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(each.dtype), shapes.get(name, each.shape)
        )
        for name, each in feed.items()
    ]
    out = [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)]
    graph = helper.make_graph([node], "g", info, out)
    imports = [helper.make_opsetid("", 23)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("places", [True, False])
@pytest.mark.parametrize("part", [0, 4])
@pytest.mark.parametrize("rank", [3, 4])
def test_the_operator(interleaved, places, part, rank):
    """ONNX Runtime judges RotaryEmbedding-23."""
    rng = np.random.default_rng(rank)
    sizes = [2, 5, 24] if rank == 3 else [2, 3, 5, 8]
    half = (part or 8) // 2
    table = [9, half] if places else [2, 5, half]
    feed = {"x": rng.normal(size=sizes).astype(F)}
    feed |= {name: rng.normal(size=table).astype(F) for name in ("c", "s")}
    feed |= {"p": rng.integers(0, 9, (2, 5))} if places else {}
    data = embedding(feed, interleaved, part, 3 if rank == 3 else 0)
    (want,) = onnxruntime.InferenceSession(data).run(None, feed)
    with Core() as core:
        (y,) = core.load_network(core.read_network(data), "CPU").infer(feed).values()
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_angles_of_a_size_that_inputs_tell(interleaved):
    rng = np.random.default_rng(8)
    feed = {"x": rng.normal(size=(2, 3, 5, 8)).astype(F)}
    feed |= {name: rng.normal(size=(2, 5, 4)).astype(F) for name in ("c", "s")}
    data = embedding(feed, interleaved, c=["n", "l", "h"], s=["n", "l", "h"])
    (want,) = onnxruntime.InferenceSession(data).run(None, feed)
    with Core() as core:
        (y,) = core.load_network(core.read_network(data), "CPU").infer(feed).values()
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("sizes", "table", "told"),
    [([2, 5, 24], 4, "num_heads is needed"), ([2, 3, 5, 8], 3, "RotaryEmbedding|shape")],
)
def test_what_is_not_told_or_does_not_fit_is_refused(sizes, table, told):
    feed = {"x": np.ones(sizes, F)} | {name: np.ones((2, 5, table), F) for name in ("c", "s")}
    with Core() as core, pytest.raises(PolydeviceError, match=told):
        core.read_network(embedding(feed))
