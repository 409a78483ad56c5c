"""ONNX Runtime's GroupQueryAttention, whose keys lie in a cache, compared with ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from polydevice import Core
from polydevice.errors import UnsupportedOperationError
from tests.absent import wants
from tests.onnx.models import run

MS = "com.microsoft"

pytestmark = pytest.mark.usefixtures("compiled_sparingly")


def _floats(rng: np.random.Generator, *shape: int, scale: float = 0.5) -> np.ndarray:
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def _model(
    names: list[str], feeds: dict[str, np.ndarray], attributes: dict[str, Any]
) -> onnx.ModelProto:
    node = helper.make_node("GroupQueryAttention", names, ["y", "k", "v"], domain=MS, **attributes)
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), list(array.shape)
        )
        for name, array in feeds.items()
    ]
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("y", "k", "v")]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(MS, 1)]
    graph = helper.make_graph([node], "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


SITUATIONS: dict[str, dict[str, Any]] = {
    "a padded prompt": {"totals": [5, 3, 2], "length": 5, "past": 0},
    "a prompt into a buffer": {"totals": [5, 2, 4], "length": 5, "past": 12},
    "items of different lengths": {"totals": [8, 5, 2], "past": 7},
    "into a buffer": {"totals": [8, 5, 3], "past": 12},
    "several words into a buffer": {"totals": [10], "length": 3, "past": 16},
    "a window": {"totals": [10, 6], "past": 9, "local_window_size": 4},
    "without rotation": {"totals": [8, 4], "past": 7, "do_rotary": 0},
    "angles that nobody asks for": {"totals": [8, 4], "past": 7, "do_rotary": 0, "angles": True},
    "pairs": {"totals": [8, 4], "past": 7, "rotary_interleaved": 1},
    "a cap": {"totals": [8, 4], "past": 7, "softcap": 5.0},
    "given positions": {"totals": [8, 5], "past": 7, "positions": [[3], [20]]},
    "a bias": {"totals": [8, 8], "past": 7, "bias": (2, 4, 1, 8)},
    "a bias of one item": {"totals": [4], "length": 4, "past": 0, "bias": (1, 1, 4, 4)},
    "sinks": {"totals": [8, 5], "past": 7, "sinks": True},
    "sinks of a prompt": {"totals": [4], "length": 4, "past": 0, "sinks": True, "softcap": 3.0},
    "a smooth softmax": {"totals": [8, 5], "past": 7, "smooth_softmax": 1},
    "a scale": {"totals": [8, 5], "past": 7, "scale": 0.1},
    "as many groups as heads": {"totals": [8, 5], "past": 9, "groups": 4},
    "every key": {"totals": [4], "length": 4, "past": 0, "causal": 0},
}


@wants("onnxruntime", "1.24", "reads the lengths of a batch wrong")
@pytest.mark.parametrize("situation", SITUATIONS)
def test_keys_lie_where_each_item_has_room(
    situation: str, device: str, rng: np.random.Generator
) -> None:
    given = {"length": 1, "groups": 2, "positions": None, "bias": None, "sinks": False}
    given |= SITUATIONS[situation]
    has_angles = given.pop("angles", given.get("do_rotary", 1))
    totals, length, past, groups, positions, bias, sinks = (
        given.pop(name)
        for name in ("totals", "length", "past", "groups", "positions", "bias", "sinks")
    )
    batch, heads, size, angles = len(totals), 4, 16, rng.random((32, 8))
    feeds = {
        "query": _floats(rng, batch, length, heads * size),
        **{name: _floats(rng, batch, length, groups * size) for name in ("key", "value")},
        **{name: _floats(rng, batch, groups, past, size) for name in ("past_key", "past_value")},
        "seqlens": np.array(totals, np.int32) - 1,
        "total": np.array(max(totals), np.int32),
        "cos": np.cos(angles).astype(np.float32),
        "sin": np.sin(angles).astype(np.float32),
    }
    if not has_angles:
        del feeds["cos"], feeds["sin"]
    names = [*feeds, *[""] * (9 - len(feeds)), "positions", "bias", "sinks"]
    for name, value in (("positions", positions), ("bias", bias), ("sinks", sinks or None)):
        if value is None:
            names[names.index(name)] = ""
    if positions is not None:
        feeds["positions"] = np.array(positions, np.int64)
    if bias is not None:
        feeds["bias"] = _floats(rng, *bias)
    if sinks:
        feeds["sinks"] = _floats(rng, heads, scale=2)
    attributes = {"num_heads": heads, "kv_num_heads": groups, "do_rotary": 1, **given}
    proto = _model(names, feeds, attributes)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    expected = session.run(None, feeds)
    for value in proto.graph.input[:5]:
        for axis in (0, 1 if value.name in ("query", "key", "value") else 2):
            value.type.tensor_type.shape.dim[axis].dim_param = f"{value.name}{axis}"
    y, k, v = run(proto, *feeds.values(), device=device)
    assert [a.shape for a in (y, k, v)] == [a.shape for a in expected]
    for item, total in enumerate(totals):  # what pads an item is anyone's guess
        rows = slice(0, total) if past in (0, 12) and length == 5 else slice(None)
        np.testing.assert_allclose(y[item, rows], expected[0][item, rows], 1e-4, 2e-5)
        for made, wanted in ((k, expected[1]), (v, expected[2])):
            np.testing.assert_allclose(made[item, :, :total], wanted[item, :, :total], 1e-4, 2e-5)


@pytest.mark.parametrize("place", [12, 16])
def test_inputs_that_would_change_the_answer_are_not_overlooked(place: int) -> None:
    names = ["q", "k", "v", "", "", "lengths", "total", *[""] * (place - 7), "more"]
    feeds = {name: np.zeros((1, 1, 8), np.float32) for name in ("q", "k", "v", "more")}
    feeds |= {name: np.ones(1, np.int32) for name in ("lengths", "total")}
    proto = _model(names, feeds, {"num_heads": 1, "kv_num_heads": 1})
    with pytest.raises(UnsupportedOperationError, match=rf"input {place} \('more'\) is not"):
        Core().read_network(proto.SerializeToString())
