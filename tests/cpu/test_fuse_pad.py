"""Borders of zeros become padding of convolutions; others stay; answers are ONNX Runtime's."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.cpu.loading import image, load
from tests.cpu.models import answer


def network(border, kernel, *, mode="constant", value=None, opens=(), other="", **attributes):
    """Pad, then a convolution; `other` reads the padded value as well."""
    rank, groups = len(border) // 2, attributes.get("group", 1)
    rng = np.random.default_rng(len(border) + sum(kernel))
    stored = {
        "w": rng.normal(size=(2 * groups, 4 // groups, *kernel)).astype(np.float32),
        "pads": np.array(border, np.int64),
    }
    if value is not None:
        stored["value"] = np.float32(value)
    inputs = ["x", "pads", *(["value"] if value is not None else [])]
    nodes = [
        helper.make_node("Pad", inputs, ["padded"], "pad", mode=mode),
        helper.make_node("Conv", ["padded", "w"], ["y"], "conv", **attributes),
    ]
    outputs = ["y"]
    if other:
        nodes.append(helper.make_node(other, ["padded"], ["z"], "other"))
        outputs.append("z")
    sizes = [2, 4, 9, 8, 7][:rank]
    shape = [f"n{axis}" if axis in opens else size for axis, size in enumerate(sizes)]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in stored.items()],
    )
    imports = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()
    return model, sizes


def planned(core, model, sizes):
    """The operations that a network is planned as, once its answers are right."""
    executable = load(core, model)
    request, x = executable.create_infer_request(), image(3, *sizes)
    for ours, theirs in zip(request.infer({"x": x}).values(), answer(model, {"x": x}), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    return [node.type for node in executable.compiled.network.nodes()]


@pytest.mark.parametrize("opens", [(), (0,), (2, 3)], ids=["static", "batch", "sizes"])
@pytest.mark.parametrize(
    ("pads", "kernel", "attributes"),
    [
        ([0, 0, 0, 1, 0, 0, 1, 0], (3, 2), {"strides": [2, 1]}),
        ([0, 0, 1, 2, 0, 0, 0, 3], (3, 3), {"pads": [1, 0, 0, 1], "dilations": [2, 1]}),
        ([0, 0, 1, 1, 0, 0, 1, 1], (3, 3), {"group": 4}),
        ([0, 0, 2, 0, 0, 1], (4,), {"group": 2}),
        ([0, 0, 1, 0, 1, 0, 0, 0, 2, 1], (2, 2, 2), {"auto_pad": "VALID"}),
    ],
)
def test_zeros_are_padded_by_the_convolution(core, pads, kernel, attributes, opens):
    model, sizes = network(pads, kernel, opens=opens, **attributes)
    assert "Pad" not in planned(core, model, sizes)


def test_automatic_padding_is_of_what_was_padded(core):
    for how in ("SAME_UPPER", "SAME_LOWER"):
        for value in (None, 0.0):
            pads = [0, 0, 1, 0, 0, 0, 1, 3]
            model, sizes = network(pads, (4, 3), strides=[2, 3], auto_pad=how, value=value)
            assert "Pad" not in planned(core, model, sizes)
        model, sizes = network([0, 0, 1, 0, 0, 0, 1, 3], (4, 3), auto_pad=how, opens=(2,))
        assert "Pad" in planned(core, model, sizes)  # how much that is depends on the size


@pytest.mark.parametrize(
    "form",
    [
        {"value": 0.5},
        {"mode": "edge"},
        {"mode": "reflect"},
        {"pads": [0, 0, 1, -1, 0, 0, 1, 0]},
        {"pads": [1, 0, 1, 1, 0, 0, 0, 0]},
    ],
    ids=lambda form: "".join(map(str, form.values())),
)
def test_other_borders_stay(core, form):
    pads = form.pop("pads", [0, 0, 1, 1, 0, 0, 1, 1])
    model, sizes = network(pads, (3, 3), **form)
    assert "Pad" in planned(core, model, sizes)


def test_channels_of_zeros_stay(core):
    model, sizes = network([0, 0, 0, 0, 0, 0, 0, 0], (2, 2))
    assert "Pad" not in planned(core, model, sizes)  # which pads nothing
    nodes = [
        helper.make_node("Pad", ["x", "pads"], ["p"]),
        helper.make_node("Conv", ["p", "w"], ["y"]),
    ]
    stored = {
        "pads": np.array([0, 1, 0, 0, 0, 0, 0, 0], np.int64),
        "w": image(5, 3, 5, 2, 2),
    }
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in stored.items()],
    )
    imports = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()
    assert "Pad" in planned(core, model, sizes)


def test_who_else_reads_the_zeros_has_them(core):
    pads = [0, 0, 1, 1, 0, 0, 0, 2]
    found = planned(core, *network(pads, (3, 3), other="Exp"))
    assert "Pad" in found
    assert "Convolution" in found


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
def test_a_border_of_no_width_is_none(core, mode):
    model, sizes = network([0] * 8, (3, 3), mode=mode, other="Exp", opens=(0,))
    assert "Pad" not in planned(core, model, sizes)
