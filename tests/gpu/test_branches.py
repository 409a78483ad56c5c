"""Ifs on the device, loops in them and they in loops."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpu.loop_models import body, model, nested_layers, op, right

KEEP = {"GPU_ENABLE_LOOP_UNROLLING": "NO"}
GO = {"yes": np.bool_(True)}


def check(core, content, *feeds, config=KEEP, where="device", tolerance=(1e-4, 1e-5)):
    executable = core.load_network(core.read_network(content), "GPU", config)
    requests = [executable.create_infer_request() for _ in range(2)]
    wanted = [right(content, each) for each in feeds]
    for _ in range(3):
        for given, expected in zip(feeds, wanted, strict=True):
            for request in requests:
                found = request.infer(given)
                for got, want in zip(found.values(), expected, strict=True):
                    assert got.shape == want.shape
                    np.testing.assert_allclose(got, want, *tolerance)
    assert set(nested_layers(executable).values()) <= {where}
    return executable


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(77)


def branches(kind: str = "f4") -> bytes:
    """Bodies that compute, look, repeat a constant, and return what they are given."""
    shape = [3, 5]
    then = body(
        [
            op("m = MatMul(x, w)"), op("a = Tanh(m)"), op("t = Transpose(z)", perm=[1, 0]),
            op("k1 = Identity(k)"), op("same = Identity(x)"),
        ],
        [], [("a", kind, shape), ("t", kind, shape), ("k1", kind, shape), ("same", kind, shape)],
    )  # fmt: skip
    other = body(
        [
            op("b = Neg(y)"), op("r = Reshape(z, size)"), op("q = Mul(y, y)"),
            op("again = Identity(b)"),
        ],
        [], [("b", kind, shape), ("r", kind, shape), ("q", kind, shape), ("again", kind, shape)],
        {"size": np.int64([3, 5])},
    )  # fmt: skip
    rng = np.random.default_rng(3)
    return model(
        [
            op("y = Abs(x)"), op("total = ReduceSum(x)", keepdims=0),
            op("c = Greater(total, zero)"),
            op("p, q, r, s = If(c)", then_branch=then, else_branch=other), op("pq = Add(p, q)"),
        ],
        [("x", kind, shape), ("z", kind, [5, 3])], ["pq", "q", "r", "s"],
        {
            "w": rng.normal(size=(5, 5)).astype(kind), "k": rng.normal(size=(3, 5)).astype(kind),
            "zero": np.zeros((), kind),
        },
    )  # fmt: skip


@pytest.mark.parametrize("config", [{}, {"INFERENCE_PRECISION_HINT": "f16"}])
@pytest.mark.parametrize("kind", ["f4", "f2"])
def test_bodies_of_all_kinds(core, rng, kind, config) -> None:
    feeds = []
    for sign in (1, -1):
        x = sign * np.abs(rng.normal(size=(3, 5))).astype(kind)
        feeds.append({"x": x, "z": rng.normal(size=(5, 3)).astype(kind)})
    exact = kind == "f4" and not config
    tolerance = (1e-4, 1e-5) if exact else (2e-2, 2e-2)
    executable = check(core, branches(kind), *feeds, config=config, tolerance=tolerance)
    assert len(nested_layers(executable)) == 1


def test_condition_from_an_input_needs_no_reading(core, rng) -> None:
    then = body([op("a = Relu(x)")], [], [("a", "f4", [4])])
    other = body([op("b = Exp(x)")], [], [("b", "f4", [4])])
    content = model(
        [op("y = If(c)", then_branch=then, else_branch=other)],
        [("c", "b", []), ("x", "f4", [4])], ["y"],
    )  # fmt: skip
    x = rng.normal(size=4).astype("f4")
    feeds = [{"c": np.bool_(c), "x": x} for c in (True, False, True)]
    executable = check(core, content, *feeds)
    request = executable.create_infer_request()
    request.infer(feeds[0])
    assert request.copies.downloads == 1  # the output


def test_bodies_of_different_sizes_run_on_the_host(core, rng) -> None:
    then = body([op("a = Relu(x)")], [], [("a", "f4", None)])
    other = body([op("b = Concat(x, x)", axis=0)], [], [("b", "f4", None)])
    content = model(
        [op("y = If(c)", then_branch=then, else_branch=other)],
        [("c", "b", []), ("x", "f4", [4])], ["y"],
    )  # fmt: skip
    x = rng.normal(size=4).astype("f4")
    check(core, content, *({"c": np.bool_(c), "x": x} for c in (True, False)), where="host")


def test_if_in_loop_in_if(core, rng) -> None:
    """Collatz's numbers for several at once, as long as asked for."""
    odd = body([op("three = Mul(v, k3)"), op("o = Add(three, k1)")], [], [("o", "f4", [1])])
    even = body([op("e = Mul(v, half)")], [], [("e", "f4", [1])])
    step = body(
        [
            op("m = Mod(v, k2)", fmod=1), op("most = ReduceMax(m)", keepdims=0),
            op("isodd = Greater(most, nothing)"),
            op("next = If(isodd)", then_branch=odd, else_branch=even), op("on = Identity(go)"),
        ],
        [("i", "i8", []), ("go", "b", []), ("v", "f4", [1])],
        [("on", "b", []), ("next", "f4", [1]), ("next", "f4", [1])],
    )  # fmt: skip
    counted = body(
        [op("end, all = Loop(nine, yes, x)", body=step)], [],
        [("end", "f4", [1]), ("all", "f4", [9, 1])],
    )  # fmt: skip
    nothing = body(
        [op("same = Identity(x)"), op("none = Expand(x, sizes)")], [],
        [("same", "f4", [1]), ("none", "f4", [9, 1])], {"sizes": np.int64([9, 1])},
    )  # fmt: skip
    weights = {
        "nine": np.int64(9), "k3": np.float32([3]), "k1": np.float32([1]), "k2": np.float32([2]),
        "half": np.float32([0.5]), "nothing": np.float32(0), **GO,
    }  # fmt: skip
    content = model(
        [op("last, all = If(c)", then_branch=counted, else_branch=nothing)],
        [("c", "b", []), ("x", "f4", [1])], ["last", "all"], weights,
    )  # fmt: skip
    cases = (True, 7), (False, 7), (True, 6)
    feeds = [{"c": np.bool_(c), "x": np.float32([x])} for c, x in cases]
    executable = check(core, content, *feeds)
    numbers = executable.infer(feeds[0])["all"].ravel().tolist()
    assert numbers == [22, 11, 34, 17, 52, 26, 13, 40, 20]
    assert len(nested_layers(executable)) == 3


def test_loops_in_loops(core, rng) -> None:
    """Three deep, with values of every level used inside; the innermost ends when it likes."""
    inner = body(
        [
            op("s = Mul(c, half)"), op("d = Add(s, x)"), op("n = ReduceSum(d)", keepdims=0),
            op("on = Less(n, limit)"),
        ],
        [("k", "i8", []), ("go", "b", []), ("c", "f4", [2, 3])],
        [("on", "b", []), ("d", "f4", [2, 3])],
    )  # fmt: skip
    middle = body(
        [
            op("moved = Loop(four, yes, b)", body=inner), op("e = Add(moved, a)"),
            op("on = Identity(go)"),
        ],
        [("j", "i8", []), ("go", "b", []), ("b", "f4", [2, 3])],
        [("on", "b", []), ("e", "f4", [2, 3]), ("moved", "f4", [2, 3])],
    )  # fmt: skip
    outer = body(
        [
            op("f, each = Loop(three, yes, a)", body=middle), op("g = Tanh(f)"),
            op("on = Identity(go)"),
        ],
        [("i", "i8", []), ("go", "b", []), ("a", "f4", [2, 3])],
        [("on", "b", []), ("g", "f4", [2, 3]), ("each", "f4", [3, 2, 3])],
    )  # fmt: skip
    weights = {
        "two": np.int64(2), "three": np.int64(3), "four": np.int64(4), "half": np.float32(0.5),
        "limit": np.float32(6), **GO,
    }  # fmt: skip
    content = model(
        [op("y, all = Loop(two, yes, x)", body=outer)], [("x", "f4", [2, 3])], ["y", "all"], weights
    )
    feeds = [{"x": rng.normal(size=(2, 3)).astype("f4") + shift} for shift in (0, 1, -1)]
    executable = check(core, content, *feeds)
    assert len(nested_layers(executable)) == 3
    check(core, content, *feeds, config={})


def test_too_deep_loops_run_on_the_host(core) -> None:
    graph = body(
        [op("n = Add(v, one)"), op("on = Identity(go)")],
        [("i", "i8", []), ("go", "b", []), ("v", "f4", [2])], [("on", "b", []), ("n", "f4", [2])],
    )  # fmt: skip
    for _ in range(5):
        graph = body(
            [op("n = Loop(two, yes, v)", body=graph), op("on = Identity(go)")],
            [("i", "i8", []), ("go", "b", []), ("v", "f4", [2])],
            [("on", "b", []), ("n", "f4", [2])],
        )  # fmt: skip
    content = model(
        [op("y = Loop(two, yes, v)", body=graph)], [("v", "f4", [2])], ["y"],
        {"two": np.int64(2), "one": np.float32(1), **GO},
    )  # fmt: skip
    executable = core.load_network(core.read_network(content), "GPU", KEEP)
    np.testing.assert_array_equal(executable.infer({"v": np.float32([1, 2])})["y"], [65, 66])
    assert "host" in nested_layers(executable).values()


def test_sequences_inside(core, rng) -> None:
    """An LSTM over the columns in every iteration, its state carried on."""
    weights = {
        "W": rng.normal(0, 0.4, (1, 16, 5)), "R": rng.normal(0, 0.4, (1, 16, 4)),
        "B": rng.normal(0, 0.4, (1, 32)),
    }  # fmt: skip
    weights = {name: value.astype("f4") for name, value in weights.items()}
    inside = body(
        [
            helper_lstm(), op("gone = Squeeze(Y, one)"), op("on = Identity(go)"),
        ],
        [("i", "i8", []), ("go", "b", []), ("h", "f4", [1, 3, 4]), ("c", "f4", [1, 3, 4])],
        [("on", "b", []), ("hn", "f4", [1, 3, 4]), ("cn", "f4", [1, 3, 4]),
         ("gone", "f4", [6, 3, 4])],
    )  # fmt: skip
    content = model(
        [op("h, c, all = Loop(three, yes, h0, c0)", body=inside)],
        [("x", "f4", [6, 3, 5]), ("h0", "f4", [1, 3, 4]), ("c0", "f4", [1, 3, 4])],
        ["h", "c", "all"], {**weights, "three": np.int64(3), "one": np.int64([1]), **GO},
    )  # fmt: skip
    shapes = {"x": (6, 3, 5), "h0": (1, 3, 4), "c0": (1, 3, 4)}
    feeds = [
        {name: rng.normal(size=shape).astype("f4") for name, shape in shapes.items()}
        for _ in range(2)
    ]
    check(core, content, *feeds)


def helper_lstm():
    from onnx import helper

    return helper.make_node(
        "LSTM", ["x", "W", "R", "B", "", "h", "c"], ["Y", "hn", "cn"], hidden_size=4
    )


def test_layers_of_the_host_inside(core, rng) -> None:
    """NonZero has a result of unknown size: the host computes it and its sum in every iteration."""
    inside = body(
        [
            op("m = MatMul(x, w)"), op("r = Relu(m)"), op("where = NonZero(r)"),
            op("f = Cast(where)", to=1), op("n = ReduceSum(f)", keepdims=0), op("d = Div(n, big)"),
            op("next = Add(r, d)"), op("on = Identity(go)"),
        ],
        [("i", "i8", []), ("go", "b", []), ("x", "f4", [3, 3])],
        [("on", "b", []), ("next", "f4", [3, 3]), ("d", "f4", [])],
    )  # fmt: skip
    weights = {
        "w": rng.normal(size=(3, 3)).astype("f4"), "big": np.float32(64), "four": np.int64(4), **GO,
    }  # fmt: skip
    content = model(
        [op("y, all = Loop(four, yes, x)", body=inside)],
        [("x", "f4", [3, 3])], ["y", "all"], weights,
    )  # fmt: skip
    feeds = [{"x": rng.normal(size=(3, 3)).astype("f4")} for _ in range(3)]
    check(core, content, *feeds)


def test_random_numbers_stay_those_of_the_host(core) -> None:
    from onnx import helper

    inside = body(
        [
            helper.make_node("RandomUniform", [], ["u"], shape=[3], seed=7.0, dtype=1),
            op("n = Add(v, u)"), op("on = Identity(go)"),
        ],
        [("i", "i8", []), ("go", "b", []), ("v", "f4", [3])], [("on", "b", []), ("n", "f4", [3])],
    )  # fmt: skip
    content = model(
        [op("y = Loop(two, yes, v)", body=inside)], [("v", "f4", [3])], ["y"],
        {"two": np.int64(2), **GO},
    )  # fmt: skip
    network = core.read_network(content)
    executable = core.load_network(network, "GPU", KEEP)
    assert set(nested_layers(executable).values()) == {"host"}
    found = executable.infer({"v": np.zeros(3, "f4")})["y"]
    assert np.all((found > 0) & (found < 2))


def test_known_conditions_leave_no_branch(core, rng) -> None:
    """In every iteration that is written out, the number of the iteration chooses."""
    then = body([op("a = Relu(v)")], [], [("a", "f4", [2, 3])])
    other = body([op("b = Neg(v)")], [], [("b", "f4", [2, 3])])
    inside = body(
        [
            op("early = Less(i, two)"), op("n = If(early)", then_branch=then, else_branch=other),
            op("on = Identity(go)"),
        ],
        [("i", "i8", []), ("go", "b", []), ("v", "f4", [2, 3])],
        [("on", "b", []), ("n", "f4", [2, 3])],
    )  # fmt: skip
    content = model(
        [op("y = Loop(three, yes, x)", body=inside)], [("x", "f4", [2, 3])], ["y"],
        {"two": np.int64(2), "three": np.int64(3), **GO},
    )  # fmt: skip
    feeds = [{"x": rng.normal(size=(2, 3)).astype("f4")} for _ in range(2)]
    assert nested_layers(check(core, content, *feeds, config={})) == {}
    assert len(nested_layers(check(core, content, *feeds))) == 2
