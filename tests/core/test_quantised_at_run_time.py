"""What is quantised by scales and zero points that are computed, written out as IR holds it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice import Core
from polydevice.rewrites.integers.written_out import put_together


def dynamic(mode: str = "DynamicQuantizeLinear") -> bytes:
    """A product of integers, of which one factor is quantised at run time."""
    rng = np.random.default_rng(3)
    weights = numpy_helper.from_array(rng.integers(-127, 128, (33, 20)).astype(np.int8), "w")
    nodes = [
        helper.make_node(mode, ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", "w", "z"], ["sums"]),
        helper.make_node("Cast", ["sums"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["floats", "s"], ["y"]),
    ]
    sides = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", ["n", 7, 33]), ("y", None))
    ]
    graph = helper.make_graph(nodes, "g", sides[:1], sides[1:], [weights])
    imports = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()


def kinds(network) -> Counter[str]:
    return Counter(node.op.type for node in network.nodes())


def test_it_is_one_operation_again_and_computes_the_same(tmp_path):
    with Core() as core:
        given = core.read_network(dynamic())
        given.serialize(tmp_path / "written.xml")
        written = core.read_network(tmp_path / "written.xml")
        assert "QuantizeLinear" not in kinds(written)
        x = np.random.default_rng(4).normal(size=(2, 7, 33)).astype(np.float32)
        answers = [core.load_network(n, "CPU").infer({"x": x})["y"] for n in (given, written)]
        np.testing.assert_array_equal(*answers)
        assert put_together(written) == 1
        assert kinds(written)["QuantizeLinear"] == 1


@pytest.mark.parametrize("other", ["other limits", "another mode of rounding"])
def test_what_says_something_else_stays(other, tmp_path):
    with Core() as core:
        core.read_network(dynamic()).serialize(tmp_path / "written.xml")
        path = tmp_path / "written.xml"
        text = path.read_text()
        if other == "another mode of rounding":
            text = text.replace("half_to_even", "half_away_from_zero")
        else:
            text = text.replace('max="255.0"', 'max="127.0"').replace('max="255"', 'max="127"')
        path.write_text(text)
        written = core.read_network(path)
        before = kinds(written)
        assert put_together(written) == 0
        assert kinds(written) == before
