"""Loops against ONNX Runtime: what is carried, sliced, counted and joined, and when they end."""

from __future__ import annotations

import weakref

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice.errors import InferenceError
from polydevice.runtime.plan_cache import LEAST_BYTES
from polydevice_cpu.plan.binding.loops.rounds import Rounds
from polydevice_cpu.plan.compiled import RequestPlans
from polydevice_cpu.plan.settling import RUNS
from tests.cpu.loading import load

F, WHOLE, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def info(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)


def node(kind, inputs, outputs, **attributes):
    return helper.make_node(kind, inputs.split(), outputs.split(), **attributes)


def model(body, graph_nodes, inputs, outputs, **constants) -> bytes:
    loop = helper.make_node("Loop", ["n", "go", "x", "z"], ["p", "q", "all"], body=body)
    stored = [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    graph = helper.make_graph([loop, *graph_nodes], "g", inputs, outputs, stored)
    imports = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()


def body_of(nodes, kept, limit, shape):
    """A body that carries two values of a shape and gives a third one to be joined."""
    return helper.make_graph(
        [
            node("Cast", "number", "step", to=F),
            *nodes,
            node("ReduceSum", "p", "sum", keepdims=0),
            node("Less", "sum limit", "below"),
            node("And", "below given", "goes"),
        ],
        "body",
        [info("number", WHOLE, []), info("given", B, []), info("a", F, shape), info("b", F, shape)],
        [info("goes", B, []), info("p", F, shape), info("q", F, shape), info(kept, F, None)],
        [numpy_helper.from_array(np.float32(limit), "limit")],
    )


BODIES = {
    "swapped": ([node("Add", "b step", "p"), node("Mul", "a half", "q")], "p"),
    "one for both": ([node("Add", "a b", "p"), node("Identity", "p", "q")], "q"),
    "counted": ([node("Add", "a step", "p"), node("Sub", "b step", "q")], "step"),
    "passed on": ([node("Identity", "a", "p"), node("Add", "b row", "q")], "row"),
}


@pytest.mark.parametrize("trips", [0, 1, 2, 7])
@pytest.mark.parametrize("limit", [3.0, 1e9])
@pytest.mark.parametrize("kind", BODIES)
def test_as_onnx_runtime(core, kind, limit, trips):
    nodes, kept = BODIES[kind]
    nodes = [node("Gather", "rows number", "row", axis=0), *nodes]
    shape = (3, 2)
    made = model(
        body_of(nodes, kept, limit, shape),
        [],
        [
            info("n", WHOLE, []),
            info("x", F, shape),
            info("z", F, shape),
            info("rows", F, [7, *shape]),
        ],
        [info("p", F, None), info("q", F, None), info("all", F, None)],
        go=np.array(True),
        half=np.float32(0.5),
    )
    session = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
    executable = load(core, made)
    rng = np.random.default_rng(trips)
    before = None
    for _ in range(3):
        names = ("x", "z")
        feed = {name: rng.normal(size=shape).astype(np.float32) for name in names}
        feed |= {"rows": rng.normal(size=(7, *shape)).astype(np.float32), "n": np.array(trips)}
        expected = session.run(None, feed)
        found = [array.copy() for array in executable.infer(feed).values()]
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, 1e-5, 1e-5)
        assert before is None or trips == 0 or not np.array_equal(found[0], before)
        before = found[0]


UNJOINED = {
    "number unread, condition passed on": [node("Mul", "a half", "p"), node("Neg", "b", "q")],
    "swapped": [node("Neg", "b", "p"), node("Mul", "a half", "q")],
    "one passed on": [node("Identity", "a", "p"), node("Add", "b a", "q")],
    "counted": [
        node("Cast", "number", "c", to=F),
        node("Add", "a c", "p"),
        node("Add", "b p", "q"),
    ],
}


ORDERS = {
    "transposed": [node("Transpose", "b", "q", perm=[1, 0])],
    "rolled": [
        node("Split", "b", "first rest", axis=0, num_outputs=2),
        node("Concat", "rest first", "q", axis=0),
    ],
    "as it is": [node("Identity", "b", "q")],
}


@pytest.mark.parametrize("size", [4, 70])
@pytest.mark.parametrize("order", ORDERS)
def test_what_is_carried_in_another_order(core, monkeypatch, order, size):
    """A step that carries a value as it is does nothing; one that carries it transposed does."""
    made, begin = [], Rounds.__init__
    monkeypatch.setattr(Rounds, "__init__", lambda *a: begin(*a) or made.append(a[0]._copies))
    shape = [size, size]
    body = body_of([*ORDERS[order], node("Add", "a q", "p")], "q", 1e9, shape)
    inputs = [info("n", WHOLE, []), info("x", F, shape), info("z", F, shape)]
    outputs = [info(name, F, None) for name in ("p", "q", "all")]
    content = model(body, [], inputs, outputs, go=np.array(True))
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    request, rng = load(core, content).create_infer_request(), np.random.default_rng(8)
    for trips in (7, 4, 1):
        feed = {name: rng.normal(-1, 1, shape).astype(np.float32) for name in "xz"}
        feed["n"] = np.array(trips)
        for found, want in zip(request.infer(feed).values(), session.run(None, feed), strict=True):
            np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)
    assert made
    assert all(bool(copies) == (order == "as it is") for copies in made)


@pytest.mark.parametrize("ends", ["by count", "by condition"])
@pytest.mark.parametrize("kind", UNJOINED)
def test_nothing_is_joined(core, kind, ends):
    """Iterations get and give what they carry; each inference begins with its own values."""
    shape = [2, 3]
    last = [node("Identity", "given", "goes")]
    if ends == "by condition":
        last = [node("Less", "number four", "goes")]
    body = helper.make_graph(
        [*UNJOINED[kind], *last],
        "body",
        [info("number", WHOLE, []), info("given", B, []), info("a", F, shape), info("b", F, shape)],
        [info("goes", B, []), info("p", F, shape), info("q", F, shape)],
        [numpy_helper.from_array(np.int64(4), "four")],
    )
    loop = node("Loop", "n go x z", "p q")
    loop.attribute.append(helper.make_attribute("body", body))
    ports = [info("n", WHOLE, []), info("go", B, []), info("x", F, shape), info("z", F, shape)]
    results = [info("p", F, shape), info("q", F, shape)]
    half = numpy_helper.from_array(np.float32(0.5), "half")
    graph = helper.make_graph([loop], "g", ports, results, [half])
    imports = [helper.make_opsetid("", 17)]
    made = helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()
    session = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
    request = load(core, made).create_infer_request()
    rng = np.random.default_rng(1)
    for trips, go in ((9, True), (1, True), (2, True), (3, False), (0, True), (8, True)):
        feed = {"n": np.array(trips), "go": np.array(go)}
        feed |= {name: rng.standard_normal(shape).astype(np.float32) for name in "xz"}
        for got, wanted in zip(request.infer(feed).values(), session.run(None, feed), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_endless(core, monkeypatch):
    monkeypatch.setattr("polydevice_cpu.plan.array_steps.control_flow.ITERATION_LIMIT", 50)
    body = helper.make_graph(
        [node("Identity", "given", "goes"), node("Neg", "a", "p")],
        "body",
        [info("number", WHOLE, []), info("given", B, []), info("a", F, [2])],
        [info("goes", B, []), info("p", F, [2])],
    )
    loop = node("Loop", "", "p")
    loop.input[:] = ["", "go", "x"]
    loop.attribute.append(helper.make_attribute("body", body))
    ports = [info("go", B, []), info("x", F, [2])]
    graph = helper.make_graph([loop], "g", ports, [info("p", F, [2])])
    imports = [helper.make_opsetid("", 17)]
    made = helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()
    feed = {"go": np.array(True), "x": np.ones(2, np.float32)}
    with pytest.raises(InferenceError, match="50 iterations without an end"):
        load(core, made).infer(feed)


APPENDED = {
    "as it is": ([node("Concat", "all part", "more", axis=0)], True),
    "from the end of axes": ([node("Concat", "all part", "more", axis=-2)], True),
    "before": ([node("Concat", "part all", "more", axis=0)], False),
    "looked at": (
        [
            node("Concat", "all part", "more", axis=0),
            node("ReduceSum", "all", "most", keepdims=0),
            node("Add", "b most", "q"),
        ],
        False,
    ),
    "of sizes that change": (
        [
            node("Unsqueeze", "number zero", "end"),
            node("Slice", "part zero end", "some"),
            node("Concat", "all some", "more", axis=0),
        ],
        False,
    ),
}


@pytest.mark.parametrize("trips", [0, 1, 5])
@pytest.mark.parametrize("already", [0, 3])
@pytest.mark.parametrize("kind", APPENDED)
def test_appended_to_what_is_carried(core, kind, already, trips):
    """Parts of one size that nothing else looks at are joined behind the loop."""
    nodes, joined = APPENDED[kind]
    last = [] if "q" in {name for each in nodes for name in each.output} else [
        node("Add", "b step", "q")
    ]  # fmt: skip
    body = helper.make_graph(
        [
            node("Cast", "number", "step", to=F),
            node("Mul", "b step", "part"),
            *nodes,
            *last,
            node("Identity", "given", "goes"),
        ],
        "body",
        [
            *(info("number", WHOLE, []), info("given", B, [])),
            *(info("all", F, [None, 4]), info("b", F, [2, 4])),
        ],
        [info("goes", B, []), info("more", F, None), info("q", F, None)],
        [numpy_helper.from_array(np.array([0]), "zero")],
    )
    made = helper.make_model(
        helper.make_graph(
            [helper.make_node("Loop", ["n", "go", "x", "z"], ["p", "q"], body=body)],
            "g",
            [info("n", WHOLE, []), info("x", F, [already, 4]), info("z", F, [2, 4])],
            [info("p", F, [None, 4]), info("q", F, [2, 4])],
            [numpy_helper.from_array(np.array(True), "go")],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=9,
    ).SerializeToString()
    rng = np.random.default_rng(trips)
    feed = {"n": np.array(trips), "x": rng.normal(size=(already, 4)).astype(np.float32)}
    feed["z"] = rng.normal(size=(2, 4)).astype(np.float32)
    session = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
    executable = load(core, made)
    for _ in range(2):
        for ours, theirs in zip(
            executable.infer(feed).values(), session.run(None, feed), strict=True
        ):
            assert ours.shape == theirs.shape
            np.testing.assert_allclose(ours, theirs, 1e-5, 1e-5)
    (loop,) = [each for each in executable.compiled.network if each.type == "Loop"]
    assert len(loop.op.back_edges) == (2 if joined else 3)  # one is the condition


def growing(core, **config):
    """A request of a loop that joins a row to what it carries, times a matrix: y[n + 1, 4]."""
    body = helper.make_graph(
        [
            node("Gather", "rows number", "row", axis=0),
            node("MatMul", "a w", "b"),
            node("Concat", "b row", "c", axis=0),
            node("Identity", "given", "goes"),
        ],
        "body",
        [info("number", WHOLE, []), info("given", B, []), info("a", F, [None, 4])],
        [info("goes", B, []), info("c", F, None)],
    )
    w = np.random.default_rng(3).normal(size=(4, 4)).astype(np.float32) / 2
    stored = [numpy_helper.from_array(each, name) for name, each in (("w", w), ("go", ALWAYS))]
    graph = helper.make_graph(
        [helper.make_node("Loop", ["n", "go", "x"], ["y"], body=body)],
        "g",
        [info("n", WHOLE, []), info("x", F, [1, 4]), info("rows", F, ["k", 1, 4])],
        [info("y", F, None)],
        stored,
    )
    imports = [helper.make_opsetid("", 17)]
    content = helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()
    return load(core, content, **config).create_infer_request(), w


ALWAYS = np.array(True)


def grown(w, x, rows):
    for row in rows:
        x = np.concatenate([x @ w, row])
    return x


@pytest.mark.parametrize("kept", [100, 3])
def test_what_grows_finds_its_plans_again(core, monkeypatch, kept):
    made = []
    of_shapes = RequestPlans._bound
    monkeypatch.setattr(RequestPlans, "_bound", lambda *a: made.append(a) or of_shapes(*a))
    monkeypatch.setattr("polydevice.runtime.plan_cache.PLANS_BYTES", kept * LEAST_BYTES)
    request, w = growing(core)
    rng = np.random.default_rng(4)
    for trips in [12] * (RUNS + 3):
        x, rows = rng.normal(size=(1, 4)), rng.normal(size=(trips, 1, 4))
        feed = {"n": np.array(trips), "x": x.astype(np.float32), "rows": rows.astype(np.float32)}
        want = grown(w, feed["x"], feed["rows"])
        np.testing.assert_allclose(request.infer(feed)["y"], want, rtol=1e-4, atol=1e-5)
        plans = {id(each[0]): each[0] for each in made}.values()
        for each in plans:  # what is bound no longer is not found either
            bound = each.bindings._bound.values()
            assert all(any(b is found for b in bound) for found in each._found.values())
            assert len(bound) <= kept
    if kept == 100:  # each length once, and once more when its plan has settled
        assert len(made) <= 2 * 12


def by_length(nodes, width=3):
    """Runs a body that reads all rows of x, of any number, as often as there are rows."""
    nodes = [node("Gather", "rows number", "row", axis=0), *nodes]
    graph_inputs = [info("n", WHOLE, []), info("rows", F, ["t", width])]
    graph_inputs += [info(name, F, [width]) for name in ("x", "z")]
    outputs = [info(name, F, None) for name in ("p", "q", "all")]
    body = body_of(nodes, "q", 1e9, (width,))
    return model(body, [], graph_inputs, outputs, go=np.array(True))


def rows_of(rng, length, width=3):
    sizes = [width, width, (length, width)]
    x, z, rows = (rng.uniform(0, 1, size).astype(np.float32) for size in sizes)
    return {"n": np.array(length), "x": x, "z": z, "rows": rows}


@pytest.mark.parametrize("kept", [100, 2])
def test_lengths_that_take_turns_stay_bound(core, monkeypatch, kept):
    made, begin = [], Rounds.__init__
    monkeypatch.setattr(Rounds, "__init__", lambda *a: made.append(weakref.ref(a[0])) or begin(*a))
    monkeypatch.setattr("polydevice.runtime.plan_cache.PLANS_BYTES", kept * LEAST_BYTES)
    content = by_length([node("Add", "a row", "p"), node("Sub", "b row", "q")])
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    request, rng = load(core, content).create_infer_request(), np.random.default_rng(5)
    for length in [3, 7, 5, 9] * (RUNS + 3):
        feed = rows_of(rng, length)
        for found, want in zip(request.infer(feed).values(), session.run(None, feed), strict=True):
            np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)
        assert sum(rounds() is not None for rounds in made) <= kept
    if kept == 100:  # each length once, and once more when its plan has settled
        assert len(made) <= 2 * 4


def test_lengths_that_take_turns_keep_nothing_that_was_given(core):
    nodes = [node("Mod", "rows row", "parts", fmod=1), node("Gather", "parts number", "p", axis=0)]
    width = 30_000  # what is small is copied
    content = by_length([*nodes, node("Sub", "b row", "q")], width)
    request, rng = load(core, content).create_infer_request(), np.random.default_rng(6)
    given = []
    for length in (3, 7, 5):
        feed = rows_of(rng, length, width)
        request.infer(feed)
        given.append(weakref.ref(feed["rows"]))
        del feed
    assert [rows() is None for rows in given[:-1]] == [True, True]


def chosen(core, rows, **config):
    """A request of an If that hands on and computes with x, or with its first row."""
    zero = numpy_helper.from_array(np.int64([0]), "zero")
    one = numpy_helper.from_array(np.int64([1]), "one")
    two = numpy_helper.from_array(np.float32(2), "two")
    shape = numpy_helper.from_array(np.int64([-1]), "flat")
    stays = numpy_helper.from_array(np.arange(6, dtype=np.float32), "stays")
    names = ["same", "again", "made", "joined", "flattened", "constant", "shaped"]

    def branch(name, made, x, constant):
        nodes = [
            node("Slice", "x zero one zero", f"{name}part"),
            node("Identity", x, f"{name}same"),
            node("Identity", x, f"{name}again"),
            node(made, f"{x} two", f"{name}made"),
            node("Concat", f"{x} {name}made", f"{name}joined", axis=0),
            node("Reshape", f"{x} flat", f"{name}flattened"),
            node("Identity", constant, f"{name}constant"),
            node("Reshape", "stays places", f"{name}shaped"),
        ]
        return helper.make_graph(
            nodes, name, [], [info(f"{name}{each}", F, None) for each in names]
        )

    branches = branch("then", "Mul", "x", "stays"), branch("else", "Sub", "elsepart", "two")
    made = helper.make_node("If", ["c"], names, then_branch=branches[0], else_branch=branches[1])
    inputs = [info("c", B, []), info("x", F, ["n", rows]), info("places", WHOLE, [2])]
    graph = helper.make_graph(
        [made], "g", inputs, [info(name, F, None) for name in names], [zero, one, two, shape, stays]
    )
    imports = [helper.make_opsetid("", 17)]
    content = helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()
    return content, load(core, content, **config).create_infer_request()


@pytest.mark.parametrize("rows", [3, 9000])
def test_what_a_branch_gives_is_its_own(core, rows):
    content, request = chosen(core, rows)
    session, rng = onnxruntime.InferenceSession(content), np.random.default_rng(5)
    kept = []
    for turn in range(8):
        feed = {
            "c": np.array(turn % 3 > 0),
            "x": rng.normal(size=(turn % 2 + 2, rows)).astype(np.float32),
            "places": np.int64([2, 3] if turn % 4 else [1, 6]),
        }
        names = [each.name for each in session.get_outputs()]
        want = dict(zip(names, session.run(None, feed), strict=True))
        got = dict(request.infer(feed))
        kept.append((got, want))
        arrays = [*got.values(), feed["x"]]
        for one, a in enumerate(arrays):
            assert not any(np.may_share_memory(a, b) for b in arrays[one + 1 :])
        if turn % 4 == 3:  # what was handed out is the user's
            for name, array in got.items():
                np.testing.assert_array_equal(array, want[name])
                array[...] = -7
                want[name] = np.full_like(want[name], -7)
    for got, want in kept:
        for name, array in want.items():
            np.testing.assert_array_equal(got[name], array)


def test_what_a_branch_gives_goes_where_the_user_wants_it(core):
    _, request = chosen(core, 9000)
    x = np.random.default_rng(6).normal(size=(2, 9000)).astype(np.float32)
    mine = np.zeros((2, 9000), np.float32)
    feed = {"c": np.array(True), "x": x, "places": np.int64([6, 1])}
    request.infer(feed)
    request.set_blob("made", mine)
    for sign in (1, -1):
        assert request.infer({**feed, "x": sign * x})["made"] is mine
        np.testing.assert_array_equal(mine, sign * x * 2)
