"""Parts whose sizes only data tells, once for all sizes of the inputs; ONNX Runtime judges."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice_cpu.onednn.library import library
from polydevice_cpu.plan import settling
from polydevice_cpu.plan.compiled import CompiledNetwork
from polydevice_cpu.plan.step import TailStep
from polydevice_cpu.plan.tails.tail import Tail
from tests.cpu.loading import at_once, image, load, wait_for_settling
from tests.cpu.models import answer

F = TensorProto.FLOAT

CLOSE = 1e-4
"""Of answers to ONNX Runtime's: two or three products of 8 terms in f32, and sums of up to 30."""


def network(nodes, outputs, constants, inputs=None):
    made = [
        helper.make_node(kind, reads.split(), gives.split(), **attributes)
        for kind, reads, gives, attributes in nodes
    ]
    given = [
        helper.make_tensor_value_info(name, kind, sizes)
        for name, (kind, sizes) in (inputs or {"x": (F, ["n", "l", 8])}).items()
    ]
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    stored = [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    graph = helper.make_graph(made, "g", given, results, stored)
    imports = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()


CHOSEN = [
    ("MatMul", "x w", "h", {}), ("Tanh", "h", "t", {}),
    ("ReduceSum", "t last", "sums", {"keepdims": 0}), ("Greater", "sums none", "mask", {}),
    ("NonZero", "mask", "at", {}), ("Transpose", "at", "rows", {"perm": [1, 0]}),
    ("GatherND", "t rows", "chosen", {}),
]  # fmt: skip
"""The rows of h [n, l, 8] whose sum is above 0."""

FOLLOWS = {
    "heavy": [("MatMul", "chosen w2", "p", {}), ("Relu", "p", "y", {})],
    "sizes of the input": [
        # Each item's mean is added to its rows, which are dealt out to as many as there are items.
        ("ReduceMean", "t", "mean", {"axes": [1], "keepdims": 0}),
        ("Split", "rows", "a b", {"axis": 1}), ("Squeeze", "a i1s", "items", {}),
        ("Gather", "mean items", "means", {}), ("Add", "chosen means", "q", {}),
        ("MatMul", "q w2", "r", {}), ("Shape", "h", "sizes", {}),
        ("Slice", "sizes zero one", "n", {}),
        ("Concat", "n one", "n_times", {"axis": 0}), ("Tile", "r n_times", "u", {}),
        ("Concat", "n m1 eight", "wanted", {"axis": 0}), ("Reshape", "u wanted", "y", {}),
    ],
    "sizes of what is chosen": [
        ("Shape", "chosen", "count", {}), ("Slice", "count zero one zero", "k", {}),
        ("Concat", "k two4", "apart", {"axis": 0}), ("MatMul", "chosen w2", "p", {}),
        ("Reshape", "p apart", "q", {}), ("Transpose", "q", "r", {"perm": [0, 2, 1]}),
        ("Concat", "k two4 one", "again", {"axis": 0}), ("MatMul", "r w3", "s", {}),
        ("Reshape", "s again", "y", {}),
    ],
    "light": [
        ("Tanh", "chosen", "a", {}), ("Neg", "a", "b", {}), ("Exp", "b", "c", {}),
        ("Abs", "c", "d", {}), ("Relu", "d", "e", {}), ("Neg", "e", "f", {}),
        ("Tanh", "f", "g", {}), ("Exp", "g", "y", {}),
    ],
    "a list of sizes": [
        # Distances within what is chosen, as far as there are positions in an item.
        ("Shape", "t", "sizes", {}), ("Gather", "sizes i1", "l", {}),
        ("Range", "i0 l i1", "steps", {}), ("Cast", "steps", "f", {"to": F}),
        ("ReduceMax", "f", "furthest", {"keepdims": 0}), ("MatMul", "chosen w2", "p", {}),
        ("Mul", "p furthest", "y", {}),
    ],
}  # fmt: skip

CONSTANTS = {
    "w": image(1, 8, 8), "w2": image(2, 8, 8), "w3": image(3, 2, 2), "last": [2],
    "none": np.float32(0), "one": [1], "zero": [0], "m1": [-1], "eight": [8], "two4": [2, 4],
    "i0": 0, "i1": 1, "i1s": [1],
}  # fmt: skip


def follows(name):
    return network([*CHOSEN, *FOLLOWS[name]], ["y", "h"], CONSTANTS)


def feed(seed):
    drawn = np.random.default_rng(seed)
    return {"x": image(seed, int(drawn.integers(1, 4)), int(drawn.integers(3, 30)), 8)}


def check(request, model, given):
    for found, right in zip(request.infer(given).values(), answer(model, given), strict=True):
        assert found.shape == right.shape
        np.testing.assert_allclose(found, right, rtol=CLOSE, atol=CLOSE)


@pytest.fixture
def made(monkeypatch):
    """The compiled networks, the whole ones and parts."""
    found, init = [], CompiledNetwork.__init__

    def noted(self, *arguments, **options):
        found.append(self)
        init(self, *arguments, **options)

    monkeypatch.setattr(CompiledNetwork, "__init__", noted)
    return found


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", FOLLOWS)
def test_one_tail_serves_all_sizes(core, made, name, threads, monkeypatch):
    monkeypatch.setattr(settling, "RUNS", 4)
    model = follows(name)
    executable = load(core, model, CPU_THREADS_NUM=threads)
    request, tails = executable.create_infer_request(), set()
    for seed in range(24):
        check(request, model, feed(seed % 17))
        (tail,) = [s for s in executable.latest_plan().steps if isinstance(s, TailStep)]
        tails.add(tail.start)
        wait_for_settling()
    assert tail.is_shared
    assert len(tails) <= 2  # of formulas fewer values are known ahead than of numbers
    assert len(made) <= 1 + len(tails)
    assert executable.compiled.templates.filled > 8
    # Sizes of "light" come back before it is planned; without oneDNN nothing is heavy.
    if name != "light" and library() is not None:
        assert max(each.templates.filled for each in made[1:]) > 6


def test_requests_at_once(core):
    models = {name: follows(name) for name in FOLLOWS}
    executables = {name: load(core, model) for name, model in models.items()}
    rights = {
        (name, seed): answer(model, feed(seed))
        for name, model in models.items()
        for seed in range(8)
    }

    def infer(number):
        for name, executable in executables.items():
            request = executable.create_infer_request()
            for seed in range(16):
                seed = (seed * (number + 3)) % 8
                found = request.infer(feed(seed)).values()
                for got, right in zip(found, rights[name, seed], strict=True):
                    np.testing.assert_allclose(got, right, rtol=CLOSE, atol=CLOSE)

    at_once(infer, 4)


def test_nothing_chosen_and_everything(core):
    for name in ("heavy", "sizes of what is chosen", "light"):
        model = follows(name)
        request = load(core, model).create_infer_request()
        for seed in range(18):
            given = feed(seed)
            if seed % 3 == 1:
                given["x"][...] = 0
            check(request, model, given)


def test_what_follows_from_sizes_otherwise_is_for_these_alone(core, monkeypatch):
    """An If whose condition sizes tell has another branch in for each of them."""
    branches = [
        helper.make_graph(
            [helper.make_node("Tanh" if first else "Relu", ["t"], ["b"])], "g", [],
            [helper.make_tensor_value_info("b", F, None)],
        )
        for first in (True, False)
    ]  # fmt: skip
    nodes = [
        ("MatMul", "x w", "t", {}), ("Shape", "x", "sizes", {}), ("Gather", "sizes i1", "l", {}),
        ("Greater", "l ten", "is_long", {}),
        ("If", "is_long", "c", {"then_branch": branches[0], "else_branch": branches[1]}),
        ("ReduceSum", "c last", "sums", {"keepdims": 0}), ("Greater", "sums none", "mask", {}),
        ("NonZero", "mask", "at", {}), ("Transpose", "at", "rows", {"perm": [1, 0]}),
        ("GatherND", "c rows", "chosen", {}), ("MatMul", "chosen w2", "y", {}),
    ]  # fmt: skip
    model = network(nodes, ["y"], {**CONSTANTS, "ten": 10})
    executable = load(core, model)
    request = executable.create_infer_request()
    for seed in range(14):
        check(request, model, feed(seed))
    (tail,) = [s for s in executable.latest_plan().steps if isinstance(s, TailStep)]
    assert not tail.is_shared


def test_a_tail_within_a_loop(core):
    """The body's own, for every length of its rows."""
    inner = [
        helper.make_node(kind, reads.split(), gives.split(), **attributes)
        for kind, reads, gives, attributes in [
            ("Add", "state row", "moved", {}), ("Greater", "moved none", "mask", {}),
            ("NonZero", "mask", "at", {}), ("Transpose", "at", "places", {"perm": [1, 0]}),
            ("GatherND", "moved places", "kept", {}),
            ("ReduceSum", "kept", "sum", {"keepdims": 0}), ("Mul", "moved half", "half_of", {}),
            ("Sub", "half_of sum", "less", {}), ("Tanh", "less", "next", {}),
        ]
    ]  # fmt: skip
    body = helper.make_graph(
        inner, "body",
        [helper.make_tensor_value_info(name, F, ["l"]) for name in ("state", "row")],
        [helper.make_tensor_value_info("next", F, ["l"]),
         helper.make_tensor_value_info("sum", F, [])],
        [numpy_helper.from_array(np.float32(v), k) for k, v in (("none", 0), ("half", 0.5))],
    )  # fmt: skip
    nodes = [("Scan", "begin x", "final sums", {"body": body, "num_scan_inputs": 1})]
    model = network(nodes, ["final", "sums"], {}, {"begin": (F, ["l"]), "x": (F, ["n", "l"])})
    request = load(core, model).create_infer_request()
    for seed in range(16):
        drawn = np.random.default_rng(seed)
        count, length = map(int, drawn.integers(1, 12, 2))
        check(request, model, {"begin": image(seed, length), "x": image(seed + 50, count, length)})


def test_a_closed_network_lets_go_of_its_tails(core):
    executable = load(core, follows("heavy"))
    request = executable.create_infer_request()
    for seed in range(6):
        request.infer(feed(seed))
    tails = executable.compiled._tails
    assert any(isinstance(each, Tail) for each in tails._made.values())
    context = request.runner._context
    assert len(context.tails) == 1
    executable.close()
    assert not tails._made
    assert not context.tails


ROWS = [
    ("Greater", "x none", "mask", {}), ("NonZero", "mask", "at", {}),
    ("Transpose", "at", "rows", {"perm": [1, 0]}), ("Slice", "rows zero one one", "items", {}),
    ("Squeeze", "items one", "i", {}), ("Gather", "x i", "chosen", {}),
]  # fmt: skip
ONES = {"value": numpy_helper.from_array(np.array([1]))}

CASES = {
    # Of no rows it is known how many are chosen, and a row is read where it lies.
    "empty first": (
        [*ROWS, ("ReduceMax", "r", "row", {"axes": [0], "keepdims": 0}),
         ("Shape", "chosen", "sh", {}), ("Expand", "row sh", "copies", {}),
         ("Add", "chosen copies", "y", {})],
        {"x": ["n", 8], "r": [3, 8]}, [(0, 8), (5, 8), (0, 8), (7, 8), (5, 8)],
    ),
    # Places among ones are known ahead of few rows, and of many only once they are counted.
    "known of few": (
        [("Shape", "x", "sh", {}), ("Slice", "sh zero one", "n", {}), ("Tanh", "r", "row", {}),
         ("ConstantOfShape", "n", "ones", ONES), ("NonZero", "ones", "at", {}),
         ("Squeeze", "at zero", "i", {}), ("Gather", "x i", "g", {}), ("Reshape", "g sh", "u", {}),
         ("Expand", "row sh", "copies", {}), ("Add", "u copies", "t", {}),
         ("MatMul", "t w2", "y", {})],
        {"x": ["n", 8], "r": [8]}, [(3, 8), (100_000, 8), (4, 8)],
    ),
    # One size is told of what has an open one besides, and that nobody reads.
    "a size of what is open": (
        [*CHOSEN, ("ReduceMax", "sums", "col", {"axes": [0], "keepdims": 0}),
         ("Greater", "col none", "cm", {}), ("Compress", "t cm", "d", {"axis": 1}),
         ("Shape", "d", "ds", {}), ("Slice", "ds zero one zero", "n", {}),
         ("Cast", "n", "f", {"to": F}), ("MatMul", "chosen w2", "p", {}), ("Mul", "p f", "y", {})],
        {"x": ["n", "l", 8]}, [(2, 3, 8), (1, 5, 8), (3, 10, 8), (2, 3, 8), (2, 9, 8), (5, 2, 8)],
    ),
    "a size of what may be open": (
        [*CHOSEN, ("Shape", "x", "sh", {}), ("Slice", "sh one two", "l", {}),
         ("ConstantOfShape", "l", "ones", ONES), ("NonZero", "ones", "nz", {}),
         ("Squeeze", "nz zero", "i", {}), ("Gather", "t i", "d", {"axis": 1}),
         ("Shape", "d", "ds", {}), ("Slice", "ds zero one", "n", {}), ("Cast", "n", "f", {"to": F}),
         ("MatMul", "chosen w2", "p", {}), ("Div", "p f", "y", {})],
        {"x": ["n", "l", 8]}, [(2, 3, 8), (1, 70_000, 8), (2, 5, 8), (1, 70_000, 8)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_what_is_known_of_some_sizes_alone(core, name, backwards):
    nodes, inputs, shapes = CASES[name]
    declared = {key: (F, sizes) for key, sizes in inputs.items()}
    model = network(nodes, ["y"], {**CONSTANTS, "two": [2]}, declared)
    request = load(core, model).create_infer_request()
    for number, shape in enumerate(shapes[::-1] if backwards else shapes):
        given = {"x": image(number, *shape)}
        if "r" in inputs:
            given["r"] = image(number + 50, *inputs["r"])
        check(request, model, given)


def test_what_is_behind_texts_is_of_the_tail(core):
    """Where copies of a row are read as the model says."""
    nodes = [
        ("Cast", "v", "s", {"to": TensorProto.STRING}), ("Cast", "s", "f", {"to": F}),
        ("Shape", "x", "sh", {}), ("Tanh", "r", "row", {}), ("Unsqueeze", "f m1", "u", {}),
        ("Expand", "row sh", "copies", {}), ("Add", "u copies", "t", {}),
        ("MatMul", "t w2", "y", {}),
    ]  # fmt: skip
    model = network(nodes, ["y"], CONSTANTS, {"v": (F, ["n"]), "x": (F, ["n", 8]), "r": (F, [8])})
    request = load(core, model).create_infer_request()
    for rows in (3, 5, 3, 7, 2, 9, 4):
        given = {
            "v": np.arange(rows).astype(np.float32),
            "x": image(rows, rows, 8),
            "r": image(1, 8),
        }
        check(request, model, given)
