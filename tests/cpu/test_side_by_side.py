"""Requests of one network that infer at the same time, by code that has room for what it keeps."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from onnx import helper, numpy_helper

from tests.cpu.loading import load
from tests.cpu.models import answer

RNG = np.random.default_rng(2)
TOPK = [("TopK", ["x", "k"], ["v", "i"], {"axis": 1})]
KINDS = {
    "largest of f64": (TOPK, np.float64, lambda n: (n, 40 + n)),
    "largest of i64": (TOPK, np.int64, lambda n: (n, 40 + n)),
    "largest of f16": (TOPK, np.float16, lambda n: (n, 40 + n)),
    "alike": ([("Unique", ["x"], ["v", "f", "i", "c"], {})], np.int64, lambda n: (n, 60)),
    "maxima": (
        [("MaxPool", ["x"], ["v", "i"], {"kernel_shape": [3, 3], "storage_order": 1})],
        np.float32,
        lambda n: (n, 8, 20 + n, 21),
    ),
    "products of f64": (
        [("MatMul", ["x", "w"], ["p"], {}), ("Softmax", ["p"], ["v"], {})],
        np.float64,
        lambda n: (n, 30),
    ),
    "reordered": (
        [("Mul", ["x", "x"], ["s"], {}), ("Transpose", ["s"], ["v"], {"perm": [0, 2, 1, 3]})],
        np.float32,
        lambda n: (n, 9 + n, 4, 32),
    ),
}
WEIGHTS = {"k": np.array([5]), "w": RNG.normal(size=(30, 20))}


def model_of(nodes, dtype, rank):
    made = [helper.make_node(kind, given, wanted, **how) for kind, given, wanted, how in nodes]
    used = {name for node in made for name in node.input}
    outputs = [name for name in made[-1].output if name]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        made,
        "side by side",
        [helper.make_tensor_value_info("x", kind, [f"n{axis}" for axis in range(rank)])],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(a, name) for name, a in WEIGHTS.items() if name in used],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", KINDS)
def test_requests_at_the_same_time(core, name, threads):
    nodes, dtype, shape = KINDS[name]
    model = model_of(nodes, dtype, len(shape(1)))
    executable = load(core, model, CPU_THREADS_NUM=threads)
    feeds = [{"x": (RNG.normal(size=shape(n)) * 30).astype(dtype)} for n in range(1, 7)]
    wanted, wrong = [answer(model, feed) for feed in feeds], []

    def infer(first):
        request = executable.create_infer_request()
        for turn in range(120):
            number = (7 * turn + first) % len(feeds)
            got = request.infer(feeds[number]).values()
            for ours, theirs in zip(got, wanted[number], strict=True):
                if not np.allclose(ours, theirs, rtol=1e-5, atol=1e-6):
                    wrong.append((number, ours, theirs))

    workers = [threading.Thread(target=infer, args=(first,)) for first in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong
