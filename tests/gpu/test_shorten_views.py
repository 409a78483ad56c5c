"""Reshapes that merge axes around a transpose; ONNX Runtime is the judge of the answers."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from polydevice import Core
from polydevice.ops.activation import Relu
from polydevice.ops.reshape import Reshape
from polydevice.ops.transpose import Transpose
from tests.gpu.graphs import Sketch, compiled
from tests.seeds import seeded


def _chain(*steps: tuple[int, ...], start: tuple[int, ...]):
    """A network of reshapes (to shapes) and transposes (by orders), behind and before a layer."""
    s = Sketch()
    x = s.add("first", Relu(), s.input("x", *start))
    for number, (kind, *numbers) in enumerate(steps):
        pattern = s.const(f"p{number}", np.array(numbers, np.int64))
        op = Reshape(special_zero=False) if kind == "reshape" else Transpose()
        x = s.add(f"step{number}", op, x, pattern)
    return s.network(y=s.add("last", Relu(), x))


def _views(network) -> list[str]:
    return [node.op.type for node in compiled(network).nodes if node.op.type != "Fused"]


def test_heads_flattened_around_a_transpose():
    network = _chain(
        ("reshape", 6, 5, 4), ("transpose", 0, 2, 1), ("reshape", 2, 3, 4, 5), start=(2, 3, 5, 4)
    )
    assert _views(network) == ["Transpose", "Reshape"]


def test_only_what_comes_behind_a_cut_is_shortened():
    network = _chain(
        ("reshape", 2, 5, 3, 4),
        ("transpose", 0, 2, 1, 3),
        ("reshape", 6, 5, 4),
        ("transpose", 0, 2, 1),
        ("reshape", 2, 3, 4, 5),
        start=(2, 5, 12),
    )
    assert _views(network) == ["Reshape", "Transpose", "Reshape"]


@pytest.mark.parametrize(
    "last",
    [(3, 2, 4, 5), (6, 20), (2, 3, 20)],
    ids=["other axes", "axes that stay merged", "some that stay merged"],
)
def test_what_is_no_exchange_of_axes_stays(last):
    steps = (("reshape", 6, 5, 4), ("transpose", 0, 2, 1), ("reshape", *last))
    network = _chain(*steps, start=(2, 3, 5, 4))
    assert _views(network) == ["Reshape", "Transpose", "Reshape"]


@pytest.mark.usefixtures("needs_gpu")
@pytest.mark.parametrize("number", range(12))
def test_random_chains_keep_their_answers(number):
    random = seeded(f"chain of views {number}")
    shape = tuple(int(n) for n in random.choice([1, 2, 3, 4], int(random.integers(2, 6))))
    nodes, patterns, name, sizes = [], [], "a", list(shape)
    for step in range(int(random.integers(3, 8))):
        if step % 2:
            order = [int(n) for n in random.permutation(len(sizes))]
            nodes.append(helper.make_node("Transpose", [name], [f"v{step}"], perm=order))
            sizes = [sizes[axis] for axis in order]
        else:
            sizes = _regrouped(random, sizes)
            patterns.append(numpy_helper.from_array(np.array(sizes, np.int64), f"s{step}"))
            nodes.append(helper.make_node("Reshape", [name, f"s{step}"], [f"v{step}"]))
        name = f"v{step}"
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["a"]), *nodes, helper.make_node("Neg", [name], ["y"])],
        "views", [value("x", 1, shape)], [value("y", 1, None)], patterns,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    content = model.SerializeToString()
    session = onnxruntime.InferenceSession(content)
    with Core() as core, core.load_network(core.read_network(content), "GPU") as network:
        for _ in range(2):
            x = random.standard_normal(shape).astype("f4")
            (want,) = session.run(None, {"x": x})
            np.testing.assert_array_equal(network.infer({"x": x})["y"], want)


def _regrouped(random: np.random.Generator, sizes: list[int]) -> list[int]:
    """Merge neighbouring axes, or take one apart, at random."""
    found = list(sizes)
    if len(found) > 1 and random.random() < 0.6:
        at = int(random.integers(len(found) - 1))
        found[at : at + 2] = [found[at] * found[at + 1]]
    else:
        at = int(random.integers(len(found)))
        part = next((n for n in (2, 3) if found[at] % n == 0), 1)
        found[at : at + 1] = [part, found[at] // part]
    return found
