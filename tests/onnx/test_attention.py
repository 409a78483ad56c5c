"""ONNX's Attention, one operation or in steps, compared with ONNX's reference implementation."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from polydevice import Core
from polydevice.network import Network
from polydevice.ops.attention import ScaledDotProductAttention
from tests.absent import wants

pytestmark = [
    pytest.mark.usefixtures("compiled_sparingly"),
    wants("onnx", "1.23", "gives NaN for queries that see nothing, and has no windows"),
]

BATCH, QUERIES, SIZE = 2, 5, 7
Feeds = dict[str, np.ndarray]

ONE: dict[str, dict[str, Any]] = {
    "plain": {},
    "flat": {"flat": True},
    "values of another size": {"values": 3, "flat": True},
    "causal": {"is_causal": 1},
    "causal, of grouped heads": {"is_causal": 1, "groups": 2},
    "causal, fewer keys than queries": {"is_causal": 1, "keys": 3},
    "a scale": {"scale": 0.25, "is_causal": 1},
    "grouped heads": {"groups": 2, "flat": True, "scale": 2.0},
    "a mask of one number each": {"mask": (QUERIES, 6), "keys": 6},
    "a mask of some heads": {"mask": (2, 4, QUERIES, 6), "keys": 6, "groups": 2},
    "a mask of heads alone": {"mask": (4, 1, 6), "keys": 6, "groups": 2},
    "a mask of keys": {"mask": (6,), "keys": 6, "groups": 2},
    "what is hidden": {"mask": (2, 1, 1, 6), "keys": 6, "hides": True},
    "what is hidden, causal": {"mask": (QUERIES, QUERIES), "hides": True, "is_causal": 1},
    "a mask, causal": {"mask": (2, 1, QUERIES, QUERIES), "is_causal": 1, "groups": 2},
    "far numbers": {"mask": (QUERIES, 6), "keys": 6, "far": True},
    "a past": {"past": 4, "flat": True},
    "a past, causal": {"past": 4, "is_causal": 1, "groups": 2},
    "no past yet": {"past": 0, "is_causal": 1, "flat": True},
    "a word behind others": {"past": 6, "is_causal": 1, "queries": 1, "keys": 1},
    "words behind a mask": {"past": 3, "is_causal": 1, "mask": (QUERIES, QUERIES + 3)},
    "a cache of known lengths": {"lengths": [6, 2], "keys": 6},
    "a cache, causal": {"lengths": [9, 3], "keys": 9, "is_causal": 1, "groups": 2},
    "an empty cache": {"lengths": [4, 0], "keys": 6, "flat": True},
    "a mask of few keys": {"mask": (2, 4, QUERIES, 4), "keys": 6, "opset": 24, "hides": True},
    "a window": {"opset": 25, "left_window_size": 2, "right_window_size": 1, "groups": 2},
    "a window behind others": {"opset": 25, "left_window_size": 2, "past": 4, "is_causal": 1},
    "a window that is empty": {
        "opset": 25,
        "right_window_size": 1,
        "left_window_size": 0,
        "keys": 3,
    },
    "numbers of few keys": {"mask": (QUERIES, 4), "keys": 6, "opset": 24, "groups": 2},
}

STEPS: dict[str, tuple[dict[str, Any], str]] = {
    "a cap": ({"softcap": 2.0}, "its scores have a cap (softcap)"),
    "scores": ({"scores": True, "qk_matmul_output_mode": 2}, "its scores are an output"),
    "shares": ({"scores": True, "qk_matmul_output_mode": 3}, "its scores are an output"),
    "of f64": ({"dtype": np.float64}, "it is computed in f64"),
    "rounded": ({"softmax_precision": 10}, "its softmax has a precision of its own"),
    "no scale": ({"scale": 0.0}, "its scale is 0.0"),
}


def _model(rng: np.random.Generator, given: dict[str, Any]) -> tuple[onnx.ModelProto, Feeds]:
    """Make a model of one Attention, whose sizes but those of heads are open, and inputs."""
    given = dict(given)
    heads, groups = 4, given.pop("groups", 4)
    queries, past = given.pop("queries", QUERIES), given.pop("past", None)
    keys, values = given.pop("keys", QUERIES), given.pop("values", SIZE)
    flat, dtype = given.pop("flat", False), given.pop("dtype", np.float32)
    scores, lengths = given.pop("scores", False), given.pop("lengths", None)
    opset = given.pop("opset", 23 if lengths is None else 24)
    shapes = {
        "q": (BATCH, heads, queries, SIZE),
        "k": (BATCH, groups, keys, SIZE),
        "v": (BATCH, groups, keys, values),
    }
    feeds = {name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}
    if flat:
        given |= {"q_num_heads": heads, "kv_num_heads": groups}
        turned = {name: array.transpose(0, 2, 1, 3) for name, array in feeds.items()}
        feeds = {name: a.reshape(*a.shape[:2], -1).copy() for name, a in turned.items()}
    feeds |= _mask(rng, given)
    if past is not None:
        for name, size in (("past_k", SIZE), ("past_v", values)):
            feeds[name] = rng.standard_normal((BATCH, groups, past, size)).astype(dtype)
    if lengths is not None:
        feeds["lengths"] = np.array(lengths, np.int64)
    names = ("q", "k", "v", "mask", "past_k", "past_v", *(["lengths"] if opset > 23 else []))
    outputs = ["y", *(["k_out", "v_out"] if past is not None else [])]
    outputs += ["", "", "scores"] if scores else []
    node = helper.make_node(
        "Attention", [n if n in feeds else "" for n in names], outputs, "a", **given
    )
    kept = 2 if flat else 1  # heads, or what they are joined to
    inputs = [
        helper.make_tensor_value_info(
            name,
            helper.np_dtype_to_tensor_dtype(array.dtype),
            _open(name, array, kept) if name in "qkv" else _open(name, array, 1),
        )
        for name, array in feeds.items()
    ]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    made = [helper.make_tensor_value_info(name, kind, None) for name in outputs if name]
    graph = helper.make_graph([node], "g", inputs, made)
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10), feeds


def _open(name: str, array: np.ndarray, kept: int) -> list[int | str]:
    return [size if i == kept else f"{name}{i}" for i, size in enumerate(array.shape)]


def _mask(rng: np.random.Generator, given: dict[str, Any]) -> Feeds:
    shape, hides, far = given.pop("mask", None), given.pop("hides", False), given.pop("far", False)
    if shape is None:
        return {}
    seen = rng.random(shape) < 0.6
    seen.reshape(-1, shape[-1])[0] = False
    if hides:
        return {"mask": seen}
    least = np.finfo(np.float32).min if far else -np.inf
    return {"mask": np.where(seen, rng.standard_normal(shape), least).astype(np.float32)}


def _check(proto: onnx.ModelProto, feeds: Feeds, device: str) -> Network:
    core = Core()
    network = core.read_network(proto.SerializeToString())
    expected = ReferenceEvaluator(proto).run(None, feeds)
    request = core.load_network(network, device).create_infer_request()
    for _ in range(2):
        got = list(request.infer(feeds).values())
        for ours, theirs in zip(got, expected, strict=True):
            assert ours.dtype == theirs.dtype
            np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-5)
    return network


@pytest.mark.parametrize("name", ONE)
def test_attention_is_one_operation(name: str, device: str, rng: np.random.Generator) -> None:
    with np.errstate(all="ignore"):
        network = _check(*_model(rng, ONE[name]), device)
    kinds = [type(node.op) for node in network.nodes()]
    assert kinds.count(ScaledDotProductAttention) == 1


@pytest.mark.parametrize("name", STEPS)
def test_attention_in_steps_says_why(name: str, rng: np.random.Generator) -> None:
    given, reason = STEPS[name]
    proto, feeds = _model(rng, given)
    if name == "rounded":  # in other places than the reference does
        network = Core().read_network(proto.SerializeToString())
    else:
        network = _check(proto, feeds, "CPU")
    assert not any(isinstance(node.op, ScaledDotProductAttention) for node in network.nodes())
    executable = Core().load_network(network, "CPU")
    executable.create_infer_request().infer(feeds)
    assert f"attention in steps: a/AttnWeightSoftmax: {reason}" in executable.explain()


def test_heads_that_only_inference_tells_are_left_in_steps(rng: np.random.Generator) -> None:
    proto, feeds = _model(rng, {"is_causal": 1})
    proto.graph.input[1].type.tensor_type.shape.dim[1].dim_param = "heads"
    network = _check(proto, feeds, "CPU")
    assert not any(isinstance(node.op, ScaledDotProductAttention) for node in network.nodes())


def test_a_decoder_reads_more_keys_with_every_word(device: str, rng: np.random.Generator) -> None:
    proto, _ = _model(rng, {"past": 0, "is_causal": 1, "flat": True, "groups": 2})
    core, reference = Core(), ReferenceEvaluator(proto)
    network = core.read_network(proto.SerializeToString())
    request = core.load_network(network, device).create_infer_request()
    for queries, past in ((9, 0), (1, 9), (1, 10), (3, 11), (1, 14), (1, 15)):
        given = {"past": past, "is_causal": 1, "flat": True, "groups": 2}
        _, feeds = _model(rng, {**given, "queries": queries, "keys": queries})
        got = list(request.infer(feeds).values())
        for ours, theirs in zip(got, reference.run(None, feeds), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-5)
