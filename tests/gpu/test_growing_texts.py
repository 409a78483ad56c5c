"""Texts that grow by a token at each inference: what is planned and built for the next one."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice_gpu.cl.programs.program import ProgramBuilder
from polydevice_gpu.compiler.new_shapes.specialiser import Specialiser
from tests.cpu import models
from tests.cpu.loading import image
from tests.gpu.test_classes_of_sizes import cached

HEADS, GROUPS, SIZE = 4, 2, 16
MS = "com.microsoft"


@pytest.fixture(autouse=True)
def _on_a_processor(opencl):
    if opencl.capabilities.local_memory_is_dedicated:
        pytest.skip("work-items in lockstep choose among more tiles, which are classes of sizes")


def buffered(sizes):
    """A cache with room for what is to come, as ONNX Runtime's own operations take it."""
    width = (HEADS + 2 * GROUPS) * SIZE
    angles = np.arange(32)[:, None] / 100.0 ** (np.arange(SIZE // 2)[None] / SIZE)
    weights = {
        "w": image(1, HEADS * SIZE, width), "one": np.array([1], np.int64),
        "last": np.array(1, np.int64), "cos": np.cos(angles).astype(np.float32),
        "sin": np.sin(angles).astype(np.float32),
    }  # fmt: skip
    node = helper.make_node
    inner = ["past_k", "past_v", "known", "total", "cos", "sin"]
    attributes = {"num_heads": HEADS, "kv_num_heads": GROUPS, "do_rotary": 1}
    nodes = [
        node("ReduceSum", ["mask", "one"], ["counted"], keepdims=1),
        node("Sub", ["counted", "one"], ["before"]),
        node("Cast", ["before"], ["known"], to=TensorProto.INT32),
        node("Shape", ["mask"], ["sizes"]),
        node("Gather", ["sizes", "last"], ["length"], axis=0),
        node("Cast", ["length"], ["total"], to=TensorProto.INT32),
        node("MatMul", ["x", "w"], ["packed"]),
        node(
            "GroupQueryAttention", ["packed", "", "", *inner], ["y", "k", "v"],
            domain=MS, **attributes,
        ),
    ]  # fmt: skip
    cache = ["n", GROUPS, "room", SIZE]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "text",
        [
            info("x", TensorProto.FLOAT, ["n", "length", HEADS * SIZE]),
            info("mask", TensorProto.INT64, ["n", "all"]),
            *(info(name, TensorProto.FLOAT, cache) for name in ("past_k", "past_v")),
        ],
        [info(name, TensorProto.FLOAT, None) for name in ("y", "k", "v")],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(MS, 1)]
    made = helper.make_model(graph, opset_imports=imports, ir_version=9)
    room = np.arange(24)[:, None]  # what is behind the keys is anyone's guess, of zeros not
    return made.SerializeToString(), [
        {
            "x": image(k, n, length, HEADS * SIZE),
            "mask": np.ones((n, before + length), np.int64),
            "past_k": image(k + 1, n, GROUPS, 24, SIZE) * (room < before),
            "past_v": image(k + 2, n, GROUPS, 24, SIZE) * (room < before),
        }
        for k, (n, length, before) in enumerate(sizes)
    ]


@pytest.mark.parametrize("make", [cached, buffered])
def test_all_is_there_from_the_third_inference_on(core, opencl, monkeypatch, make):
    """Nobody waits for a thread: what the second one needs serves all that follow at once."""
    built = []
    build_all = ProgramBuilder.build_all

    def noted(self, sources):
        built.extend(source.name for source in sources)
        return build_all(self, sources)

    monkeypatch.setattr(ProgramBuilder, "build_all", noted)
    model, inputs = make([(1, 9, 0), *((1, 1, before) for before in range(9, 20))])
    executable = core.load_network(core.read_network(model), "GPU")
    request = executable.create_infer_request()
    for number, given in enumerate(inputs):
        built.clear()
        got = request.infer(given)
        assert number < 2 or built == []
        for ours, theirs in zip(got.values(), models.answer(model, given), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    assert executable._prepared.templates.filled >= len(inputs) - 2, executable.explain()


def test_one_template_is_made_of_plans_that_wait_for_it(core, opencl, monkeypatch):
    """Several plans are made with numbers before the thread behind gets to the first."""
    model, inputs = cached([(2, 9, 4), (1, 1, 9), (1, 1, 10), (1, 1, 11)])
    executable = core.load_network(core.read_network(model), "GPU")
    templates = executable._prepared.templates
    monkeypatch.setattr(templates, "_at_once", 0)
    begin, specialise = threading.Event(), Specialiser._specialise

    def late(self, *given):
        assert begin.wait(60)
        specialise(self, *given)

    monkeypatch.setattr(Specialiser, "_specialise", late)
    request = executable.create_infer_request()
    for given in inputs:
        request.infer(given)
    begin.set()
    executable._specialiser.wait(time.monotonic() + 60)
    assert templates._tried == 1
    (got, _) = request.infer(inputs[0]).values()
    np.testing.assert_allclose(got, models.answer(model, inputs[0])[0], rtol=1e-4, atol=1e-4)
