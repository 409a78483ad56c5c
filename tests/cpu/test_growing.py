"""Loops whose sizes grow, each iteration bound once; ONNX Runtime judges what they compute."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice.errors import InferTimeoutError
from polydevice_cpu.plan.binding.loops import growing as module
from polydevice_cpu.plan.binding.loops.growing import MOST_LINKS, Growing
from tests.cpu.loading import at_once, load, wait_for_settling

F, WHOLE, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def info(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)


def node(kind, inputs, outputs, **attributes):
    return helper.make_node(kind, inputs.split(), outputs.split(), **attributes)


def search(most="n"):
    """Appends to `seq` the best of a score that all of `state`, its sum and `memory` make.

    Ends where the score reaches a limit; every score, and how many rows there were, is kept.
    """
    body = helper.make_graph(
        [
            node("MatMul", "state w", "mixed"), node("Add", "mixed memory", "moved"),
            node("Tanh", "moved", "next"), node("ArgMax", "next", "best", axis=1, keepdims=1),
            node("Mod", "best three", "part"), node("Div", "best three", "row"),
            node("Add", "part row", "token"), node("Concat", "seq token", "longer", axis=1),
            node("Cast", "number", "step", to=F), node("ReduceSum", "next", "all", keepdims=0),
            node("Add", "all step", "score"), node("Less", "score limit", "goes"),
        ],
        "body",
        [info("number", WHOLE, []), info("given", B, []), info("seq", WHOLE, None),
         info("state", F, None)],
        [info("goes", B, []), info("longer", WHOLE, None), info("next", F, None),
         info("score", F, None), info("token", WHOLE, None)],
        [numpy_helper.from_array(np.array(3), "three")],
    )  # fmt: skip
    names = ["longest", "state_out", "scores", "tokens"]
    loop = helper.make_node("Loop", [most, "", "begin", "h"], names, body=body)
    w = (np.random.default_rng(0).standard_normal((9, 9)) / 4).astype(np.float32)
    graph = helper.make_graph(
        [loop], "g",
        [info("n", WHOLE, []), info("begin", WHOLE, ["rows", "from"]), info("h", F, ["rows", 9]),
         info("memory", F, ["rows", 9]), info("limit", F, [])],
        [info(name, F if name in ("state_out", "scores") else WHOLE, None) for name in names],
        [numpy_helper.from_array(w, "w")],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()


def drafted(most="n"):
    """Appends the best of what a row of `memory` gives, until the row's sum is above a limit."""
    body = helper.make_graph(
        [
            node("Add", "number one", "behind"), node("Unsqueeze", "number zero", "from"),
            node("Unsqueeze", "behind zero", "to"), node("Slice", "memory from to zero", "row"),
            node("Add", "row state", "next_"), node("Tanh", "next_", "moved"),
            node("ArgMax", "state", "best", axis=1, keepdims=1),
            node("Concat", "seq best", "longer", axis=0), node("Mul", "moved state", "scaled"),
            node("Sub", "scaled row", "apart"), node("ReduceSum", "apart", "score", keepdims=0),
            node("Add", "state half", "next"), node("Less", "score limit", "goes"),
        ],
        "body",
        [info("number", WHOLE, []), info("given", B, []), info("seq", WHOLE, None),
         info("state", F, None)],
        [info("goes", B, []), info("longer", WHOLE, None), info("next", F, None),
         info("score", F, None)],
        [numpy_helper.from_array(np.array(v), k) for k, v in (("one", 1), ("zero", [0]))]
        + [numpy_helper.from_array(np.float32(0.5), "half")],
    )  # fmt: skip
    names = ["longest", "state_out", "scores"]
    loop = helper.make_node("Loop", [most, "", "begin", "h"], names, body=body)
    graph = helper.make_graph(
        [loop], "g",
        [info("n", WHOLE, []), info("begin", WHOLE, ["rows", 1]), info("h", F, [1, 9]),
         info("memory", F, ["steps", 9]), info("limit", F, [])],
        [info(name, WHOLE if name == "longest" else F, None) for name in names],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()


def given(seed, count=7, rows=3, begin=1, limit=1e9):
    rng = np.random.default_rng(seed)
    return {
        "n": np.array(count),
        "begin": rng.integers(0, 9, (rows, begin)),
        "h": rng.standard_normal((rows, 9)).astype(np.float32),
        "memory": rng.standard_normal((rows, 9)).astype(np.float32),
        "limit": np.array(limit, np.float32),
    }


def assert_right(made, request, feed):
    session = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
    found = request.infer(feed)
    for name, right in zip([out.name for out in session.get_outputs()], session.run(None, feed)):
        np.testing.assert_allclose(found[name], right, rtol=1e-4, atol=1e-4, err_msg=name)


@pytest.fixture
def ran(monkeypatch):
    """The number of iterations that were bound calls, one entry for each loop."""
    found = []
    run = Growing.run

    def noted(self, *arguments):
        made = run(self, *arguments)
        found.append(made[0])
        return made

    monkeypatch.setattr(Growing, "run", noted)
    return found


def test_iterations_are_bound_once(core, ran, monkeypatch):
    made = search()
    request = load(core, made, CPU_THREADS_NUM=1).create_infer_request()
    counts = (5, 7, 7, 4, 1, 9, 9, 2)
    for seed, count in enumerate(counts):
        assert_right(made, request, given(seed, count))
    assert ran == [*counts[1:]]  # the first inference may be the only one of its sizes
    for seed in range(4):  # until plans that were filled in have become others
        assert_right(made, request, given(seed, 9))
        wait_for_settling()
    assert_right(made, request, given(10, 9))
    monkeypatch.setattr(module, "BoundPlan", None)
    assert_right(made, request, given(11, 9))


def test_a_condition_ends_them(core, ran):
    made = search()
    request = load(core, made, CPU_THREADS_NUM=1).create_infer_request()
    for seed in range(12):
        assert_right(made, request, given(seed, 30, limit=6 + seed % 5))
    assert all(0 < count < 30 for count in ran)
    assert len(set(ran)) > 2


def test_what_else_an_iteration_gives_may_be_of_any_size(core, ran):
    """A row that there may not be."""
    made = drafted()
    request = load(core, made, CPU_THREADS_NUM=1).create_infer_request()
    for seed in range(14):
        feed = given(seed, 5 + seed % 3, rows=8, limit=4 + seed % 7)
        feed["h"], feed["begin"] = feed["h"][:1], feed["begin"][:3]
        assert_right(made, request, feed)
    assert len(set(ran)) > 1


def test_sizes_of_the_beginning_come_back(core, ran):
    made = search()
    request = load(core, made, CPU_THREADS_NUM=1).create_infer_request()
    for seed in range(40):
        rows, begin = 1 + seed % 3, 1 + seed % (2 if seed < 20 else 6)
        assert_right(made, request, given(seed, 6, rows, begin))
    assert ran


def test_more_of_them_than_are_bound_run_one_by_one(core, ran, monkeypatch):
    made = search()
    for most, bytes_ in ((5, 1 << 23), (MOST_LINKS, 1 << 20)):
        monkeypatch.setattr(module, "MOST_LINKS", most)
        monkeypatch.setattr(module, "LINKS_BYTES", bytes_)
        request = load(core, made, CPU_THREADS_NUM=1).create_infer_request()
        for seed, count in enumerate((MOST_LINKS + 9, MOST_LINKS + 9, 3, 20)):
            assert_right(made, request, given(seed, count))
    assert max(ran) < MOST_LINKS


def test_what_all_iterations_read_may_be_large(core, ran, monkeypatch):
    monkeypatch.setattr(module, "COPIED_BYTES", 16)
    made = search()
    request = load(core, made, CPU_THREADS_NUM=1).create_infer_request()
    for seed in range(6):
        assert_right(made, request, given(seed, 4 + seed % 3))
    assert len(ran) == 5


def test_iterations_are_bound_anew_once_a_plan_is_not_the_last_one(core, monkeypatch):
    links, forgotten = [], []
    link, forget = module.Growing._link, module.Growing._forget
    monkeypatch.setattr(
        module.Growing, "_link", lambda own, feed: (links.append(link(own, feed)), links[-1])[1]
    )
    monkeypatch.setattr(
        module.Growing, "_forget", lambda own: (forgotten.append(len(links)), forget(own))[1]
    )
    made = search()
    request = load(core, made, CPU_THREADS_NUM=1).create_infer_request()
    for seed in range(4):
        assert_right(made, request, given(seed, 6))
    wait_for_settling()
    assert_right(made, request, given(4, 6))
    bound = len(links)
    assert bound
    forgotten.clear()
    assert_right(made, request, given(4, 6))
    assert len(links) == bound
    assert not forgotten
    plan = links[-1].bound.plan
    plan.is_final = False  # as one that was filled in, until it has settled
    assert_right(made, request, given(4, 6))
    plan.is_final = True
    assert_right(made, request, given(5, 6))
    assert forgotten == [bound]
    assert len(links) > bound
    assert links[bound] not in links[:bound]


def test_requests_at_once(core):
    made = search()
    executable = load(core, made, CPU_THREADS_NUM=1, CPU_THROUGHPUT_STREAMS=2)

    def work(thread):
        request = executable.create_infer_request()
        for seed in range(15):
            assert_right(made, request, given(seed, 5 + seed % 3, rows=1 + thread))

    at_once(work, 3)


def test_results_stay(core):
    """What was handed out is not what the next inference writes."""
    made = search()
    request = load(core, made, CPU_THREADS_NUM=1).create_infer_request()
    for seed in range(3):
        request.infer(given(seed))
    before = request.infer(given(3))
    kept = {name: array.copy() for name, array in before.items()}
    request.infer(given(4))
    np.testing.assert_array_equal(kept["longest"], before["longest"])


def test_an_inference_may_be_ended_between_them(core, ran, monkeypatch):
    made = search()
    request = load(core, made, CPU_THREADS_NUM=1).create_infer_request()
    for seed in range(3):
        assert_right(made, request, given(seed, 20))

    def late(self, *arguments):
        raise InferTimeoutError("too late")

    with monkeypatch.context() as patch:
        for name in ("_run", "_run_each"):
            patch.setattr(Growing, name, late)
        with pytest.raises(InferTimeoutError):
            request.infer(given(4, 20))
    assert_right(made, request, given(5, 20))
