"""Two matrix products around a softmax become one launch: which patterns, and the same answers."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from polydevice import rewrites
from polydevice.dtype import ElementType
from polydevice.ops.arithmetic import Add, Divide, Multiply
from polydevice.ops.attention import ScaledDotProductAttention
from polydevice.ops.comparison import Greater
from polydevice.ops.convert import Convert
from polydevice.ops.matmul import MatMul
from polydevice.ops.reshape import Reshape
from polydevice.ops.select import Select
from polydevice.ops.softmax import LogSoftmax, SoftMax
from polydevice.ops.transpose import Transpose
from tests.gpu.graphs import Sketch, SparingBuilder, compiled, loaded, random_inputs

RANDOM = np.random.default_rng(99)


@pytest.fixture(scope="module")
def builder(opencl):
    return SparingBuilder(opencl)


@pytest.fixture
def unfused(monkeypatch, opencl, builder):
    """Return a function that loads a network without recognising attention."""

    def load(network):
        rest = tuple(stage for stage in rewrites.ORDER if stage[0] != "recognise attention")
        with monkeypatch.context() as patch:
            patch.setattr(rewrites, "ORDER", rest)
            return loaded(network, opencl, builder)

    return load


def split_heads(s, name, x, heads):
    """[B, L, N * E] → [B, N, L, E], as exporters write it."""
    batch, length, width = x.shape.static
    shape = s.const(f"{name}/shape", np.array([batch, length, heads, width // heads]))
    x = s.add(f"{name}/parts", Reshape(special_zero=False), x, shape)
    return s.add(f"{name}/turn", Transpose(), x, s.const(f"{name}/order", np.array([0, 2, 1, 3])))


def bert(mask_shape=(2, 1, 1, 11), scale=Divide):
    s = Sketch()
    q, k, v = (
        split_heads(s, name, s.input(name, 2, length, 3 * 10), 3)
        for name, length in (("q", 7), ("k", 11), ("v", 11))
    )
    turned = s.add("k/swap", Transpose(), k, s.const("swap", np.array([0, 1, 3, 2])))
    y = s.add("scores", MatMul(), q, turned)
    y = s.add("scale", scale(), y, s.const("root", np.float32(np.sqrt(10))))
    y = s.add("mask", Add(), y, s.input("m", *mask_shape))
    y = s.add("weights", SoftMax(axis=3), y)
    y = s.add("sum", MatMul(), y, v)
    y = s.add("back", Transpose(), y, s.const("order", np.array([0, 2, 1, 3])))
    shape = s.const("flat/shape", np.array([2, 7, 30]))
    return s.network(y=s.add("flat", Reshape(special_zero=False), y, shape))


def nodes_of(graph):
    """What is launched, views left out."""
    return [node for node in graph.nodes if not node.is_view]


def attention_in(graph):
    found = [n for n in graph.nodes if isinstance(n.op, ScaledDotProductAttention)]
    return found[0] if found else None


def check_same(network, opencl, builder, unfused, kernel="attention_", given=None):
    given = given or random_inputs(network)
    fused, plain = loaded(network, opencl, builder), unfused(network)
    assert kernel in fused.explain()
    assert kernel not in plain.explain()
    expected = plain.create_infer_request().infer(given)
    request = fused.create_infer_request()
    for _ in range(2):
        outputs = request.infer(given)
        for name, answer in expected.items():
            np.testing.assert_allclose(outputs[name], answer, 1e-4, 1e-5)
    return given, outputs


def test_the_attention_of_an_encoder_is_one_launch(opencl, builder, unfused):
    network = bert()
    graph = compiled(network)
    node = attention_in(graph)
    assert repr(node).split("] = ", 1)[1].startswith("ScaledDotProductAttention(q/turn, ")
    assert node.origins == ["sum", "scores", "weights", "mask", "scale"]
    assert {n.name for n in nodes_of(graph)} <= {"sum", "k/swap/turned0/reorder", "k/turn/reorder",
                                                 node.inputs[1].name}  # fmt: skip
    given, outputs = check_same(network, opencl, builder, unfused)
    q, k, v = (
        given[n].astype("f8").reshape(2, -1, 3, 10).transpose(0, 2, 1, 3) for n in ("q", "k", "v")
    )
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(10) + given["m"]
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    y = weights / weights.sum(-1, keepdims=True) @ v
    y = y.transpose(0, 2, 1, 3).reshape(2, 7, 30)
    np.testing.assert_allclose(outputs["y"], y, 1e-4, 1e-5)


def test_the_report_says_what_became_of_its_layers(opencl, builder):
    text = loaded(bert(), opencl, builder).explain()
    rows = {line.split()[0]: line for line in text.splitlines()}
    assert "runs by attention_" in rows["sum"]
    assert all("fused into sum" in rows[name] for name in ("scores", "scale", "mask", "weights"))


@pytest.mark.parametrize("shape", [(11,), (7, 1), (2, 3, 7, 11), (1, 1, 7, 11)])
def test_masks_of_every_shape_are_added(shape, opencl, builder, unfused):
    check_same(bert(shape, Multiply), opencl, builder, unfused)


def test_the_result_lies_like_the_queries_so_that_joining_heads_is_a_view():
    graph = compiled(bert())
    assert all(node.is_view for node in graph.nodes if node.name in ("back", "flat"))


def test_scales_of_queries_and_keys_before_the_product_go_along(opencl, builder, unfused):
    s = Sketch()
    q, k, v = (s.input(name, 2, length, 9) for name, length in (("q", 5), ("k", 6), ("v", 6)))
    q = s.add("q/scale", Multiply(), q, s.const("c", np.float32(0.7)))
    k = s.add("k/scale", Multiply(), s.const("d", np.float32(0.5)), k)
    y = s.add("scores", MatMul(transpose_b=True), q, k)
    y = s.add("sum", MatMul(), s.add("weights", SoftMax(axis=-1), y), v)
    network = s.network(y=y)
    node = attention_in(compiled(network))
    assert float(node.inputs[4].constant) == pytest.approx(0.35)
    assert set(node.origins) == {"sum", "scores", "weights", "q/scale", "k/scale"}
    check_same(network, opencl, builder, unfused)


def test_heads_may_be_joined_with_the_batch_around_the_mask(opencl, builder, unfused):
    """BART: products of [B * N, L, E], the mask added to [B, N, L, S]."""
    s = Sketch()
    q, k, v = (s.input(name, 6, length, 8) for name, length in (("q", 5), ("k", 7), ("v", 7)))
    y = s.add("scores", MatMul(transpose_b=True), q, k)
    y = s.add("out", Reshape(special_zero=False), y, s.const("a", np.array([2, 3, 5, 7])))
    y = s.add("mask", Add(), y, s.input("m", 2, 1, 5, 7))
    y = s.add("in", Reshape(special_zero=False), y, s.const("b", np.array([6, 5, 7])))
    y = s.add("sum", MatMul(), s.add("weights", SoftMax(axis=-1), y), v)
    network = s.network(y=y)
    assert attention_in(compiled(network)).output.shape == (2, 3, 5, 8)
    check_same(network, opencl, builder, unfused)


@pytest.mark.parametrize("far", [np.finfo("f4").min, -1e4])
@pytest.mark.parametrize("known", [True, False], ids=["constant mask", "mask as input"])
def test_a_selecting_mask_is_added_so_that_hidden_rows_stay_defined(
    known, far, opencl, builder, unfused
):
    s = Sketch()
    q, k, v = (s.input(name, 2, n, 8) for name, n in (("q", 5), ("k", 7), ("v", 7)))
    seen = RANDOM.random((5, 7)) < 0.5
    seen[1] = False
    mask = (
        s.const("seen", seen)
        if known
        else s.add("seen", Greater(), s.input("m", 5, 7), s.const("0", np.float32(0)))
    )
    y = s.add("scores", MatMul(transpose_b=True), q, k)
    y = s.add("mask", Select(), mask, y, s.const("far", np.float32(far)))
    y = s.add("sum", MatMul(), s.add("weights", SoftMax(axis=-1), y), v)
    network = s.network(y=y)
    given = {**random_inputs(network), **({} if known else {"m": seen.astype("f4")})}
    given, outputs = check_same(network, opencl, builder, unfused, given=given)
    np.testing.assert_allclose(outputs["y"][:, 1], given["v"].mean(1), 1e-4, 1e-5)


@pytest.mark.parametrize("far", [-np.inf, np.finfo("f4").min])
def test_a_constant_triangle_becomes_the_causal_attribute(far, opencl, builder, unfused):
    s = Sketch()
    q, k, v = (s.input(name, 2, 67, 8) for name in "qkv")
    triangle = np.triu(np.full((1, 67, 67), far, "f4"), 1)
    y = s.add("scores", MatMul(transpose_b=True), q, k)
    y = s.add("mask", Add(), y, s.const("triangle", triangle))
    y = s.add("sum", MatMul(), s.add("weights", SoftMax(axis=-1), y), v)
    network = s.network(y=y)
    assert attention_in(compiled(network)).op.causal
    check_same(network, opencl, builder, unfused)


def test_a_triangle_that_hides_one_key_more_is_an_ordinary_mask(opencl, builder, unfused):
    s = Sketch()
    q, k, v = (s.input(name, 1, 9, 8) for name in "qkv")
    triangle = np.triu(np.full((9, 9), -np.inf, "f4"), 1)
    triangle[5, 2] = -np.inf
    y = s.add("scores", MatMul(transpose_b=True), q, k)
    y = s.add("mask", Add(), y, s.const("triangle", triangle))
    y = s.add("sum", MatMul(), s.add("weights", SoftMax(axis=-1), y), v)
    network = s.network(y=y)
    assert not attention_in(compiled(network)).op.causal
    check_same(network, opencl, builder, unfused)


def test_casts_around_the_softmax_are_no_obstacle(opencl, builder, unfused):
    s = Sketch()
    q, k, v = (s.input(name, 2, 6, 8, kind=ElementType.f16) for name in "qkv")
    y = s.add("scores", MatMul(transpose_b=True), q, k)
    y = s.add("widen", Convert(destination_type=ElementType.f32), y)
    y = s.add("weights", SoftMax(axis=-1), y)
    y = s.add("narrow", Convert(destination_type=ElementType.f16), y)
    network = s.network(y=s.add("sum", MatMul(), y, v))
    given = {name: a.astype("f2") for name, a in random_inputs(network).items()}
    q, k, v = (given[name].astype("f8") for name in "qkv")
    weights = np.exp(q @ k.swapaxes(-1, -2))
    expected = weights / weights.sum(-1, keepdims=True) @ v
    exec_net = loaded(network, opencl, builder)
    assert "attention_" in exec_net.explain()
    y = exec_net.create_infer_request().infer(given)["y"]
    np.testing.assert_allclose(y.astype("f8"), expected, 5e-3, 5e-3)


def plain(s, softmax=None, mask_first=False, read_weights=False, scale_mask=False):
    q, k, v = (s.input(name, 2, 6, 6) for name in "qkv")
    y = s.add("scores", MatMul(transpose_b=True), q, k)
    if mask_first:
        y = s.add("mask", Add(), y, s.input("m", 6, 6))
        y = s.add("scale", Multiply(), y, s.const("c", np.float32(2)))
    y = s.add("weights", softmax or SoftMax(axis=-1), y)
    outputs = {"w": y} if read_weights else {}
    return s.network(y=s.add("sum", MatMul(), y, v), **outputs)


@pytest.mark.parametrize(
    "settings",
    [
        {"softmax": SoftMax(axis=1)},
        {"softmax": LogSoftmax(axis=-1)},
        {"mask_first": True},
        {"read_weights": True},
    ],
)
def test_what_means_something_else_is_left_alone(settings):
    assert attention_in(compiled(plain(Sketch()))) is not None
    assert attention_in(compiled(plain(Sketch(), **settings))) is None


def test_pointwise_layers_join_the_attention():
    s = Sketch()
    q, k, v = (s.input(name, 2, 6, 6) for name in "qkv")
    y = s.add("attention", ScaledDotProductAttention(), q, k, v)
    y = s.add("residual", Add(), y, s.input("x", 2, 6, 6))
    (node,) = [n for n in nodes_of(compiled(s.network(y=y))) if n.origins]
    assert str(node.epilogue) == "Add(i0, i1)"
    assert node.own_inputs == node.inputs[:3]


def test_double_precision_is_computed_by_its_parts():
    s = Sketch()
    q, k, v = (s.input(name, 2, 6, 6, kind=ElementType.f64) for name in "qkv")
    graph = compiled(s.network(y=s.add("attention", ScaledDotProductAttention(), q, k, v)))
    assert attention_in(graph) is None
    assert len(nodes_of(graph)) > 2


@pytest.mark.parametrize(
    ("queries", "keys", "size", "values"), [(1, 300, 80, 80), (130, 130, 257, 3)]
)
@pytest.mark.parametrize("dtype", ["f4", "f2"])
def test_long_keys_and_large_heads(queries, keys, size, values, dtype, opencl, builder):
    s = Sketch()
    kind = ElementType.of(np.dtype(dtype))
    q = s.input("q", 2, 3, queries, size, kind=kind)
    k = s.input("k", 2, 3, keys, size, kind=kind)
    v = s.input("v", 1, 1, keys, values, kind=kind)
    network = s.network(y=s.add("attention", ScaledDotProductAttention(), q, k, v))
    given = {name: a.astype(dtype) for name, a in random_inputs(network).items()}
    q, k, v = (given[name].astype("f8") for name in "qkv")
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(size)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights / weights.sum(-1, keepdims=True) @ v
    y = loaded(network, opencl, builder).create_infer_request().infer(given)["y"]
    tolerance = 1e-4 if dtype == "f4" else 3e-3
    np.testing.assert_allclose(y.astype("f8"), expected, tolerance, tolerance)


def test_rows_whose_keys_are_all_hidden_are_not_numbers(opencl, builder):
    s = Sketch()
    q, k, v = (s.input(name, 1, 70, 8) for name in "qkv")
    seen = np.ones((70, 70), bool)
    seen[3] = False
    seen[4, :64] = False
    op = ScaledDotProductAttention()
    network = s.network(y=s.add("attention", op, q, k, v, s.const("seen", seen)))
    given = random_inputs(network)
    y = loaded(network, opencl, builder).create_infer_request().infer(given)["y"]
    assert np.isnan(y[0, 3]).all()
    assert np.isfinite(np.delete(y, 3, axis=1)).all()


@pytest.mark.parametrize(("size", "values"), [(520, 16), (16, 520), (512, 512)])
def test_heads_that_no_work_item_holds_are_products_around_a_softmax(
    opencl, builder, core, size, values
):
    """As where channels attend to each other, each of which has an element for each place."""
    s = Sketch()
    q, k, v = s.input("q", 2, 5, size), s.input("k", 2, 6, size), s.input("v", 2, 6, values)
    network = s.network(y=s.add("y", ScaledDotProductAttention(), q, k, v))
    kinds = {node.op.type for node in compiled(network).nodes}
    assert ("ScaledDotProductAttention" in kinds) == (max(size, values) <= 512)
    given = random_inputs(network, size)
    (found,) = loaded(network, opencl, builder, core).infer(given).values()
    scores = given["q"].astype("f8") @ given["k"].swapaxes(1, 2) / np.sqrt(size)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    right = weights / weights.sum(-1, keepdims=True) @ given["v"]
    np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-5)


def test_open_heads_on_both_sides_of_the_largest_one(core):
    node = helper.make_node("Attention", ["q", "k", "v"], ["y"])
    rows = {"q": 5, "k": 6, "v": 6}
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2, count, "e"])
        for name, count in rows.items()
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    model = helper.make_model(
        helper.make_graph([node], "g", inputs, [output]),
        opset_imports=[helper.make_opsetid("", 23)], ir_version=10,
    ).SerializeToString()  # fmt: skip
    request = core.load_network(core.read_network(model), "GPU").create_infer_request()
    for size in (300, 600, 520, 512, 513, 64):
        shapes = {name: (1, 2, count, size) for name, count in rows.items()}
        given = {name: RANDOM.standard_normal(shape, "f4") for name, shape in shapes.items()}
        (found,) = request.infer(given).values()
        scores = given["q"].astype("f8") @ given["k"].swapaxes(2, 3) / np.sqrt(size)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        right = weights / weights.sum(-1, keepdims=True) @ given["v"]
        np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-5)
