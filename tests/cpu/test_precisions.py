"""Networks of bf16, f16 and quantised numbers on CPU."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice.errors import OptionValueError
from polydevice.processor.machine_code import processor_flags
from polydevice_cpu import processor
from polydevice_cpu.onednn.library import library
from tests.cpu import models
from tests.cpu.loading import assert_integers, image, load, steps
from tests.cpu.machine_code import by_machine_code, missing_avx512

needs_onednn = pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")
needs_bf16 = pytest.mark.skipif(not processor.has_bf16(), reason="no bfloat16 on this processor")


@needs_bf16
def test_bf16(core):
    model = models.residual(32)
    x = image(9, 2, 3, 14, 14)
    executable = load(core, model, ENFORCE_BF16="YES")
    request = executable.create_infer_request()
    got = request.infer({"x": x})
    want = models.answer(model, {"x": x})
    # 8 bits of precision: 2^-8 relative to the largest, over some layers.
    for ours, theirs in zip(got.values(), want, strict=True):
        assert ours.dtype == np.float32
        assert np.abs(ours - theirs).max() < 0.03 * np.abs(theirs).max()
    heavy = [
        step.implementation
        for step in request.runner.bound.plan.steps
        if step.type.startswith("Convolution")
    ]
    assert heavy
    # AMX has code for matrices of bytes and of bfloat16 alone.
    assert all("bf16" in name or "amx" in name for name in heavy), heavy


@needs_bf16
@pytest.mark.parametrize("other", [False, True])
def test_bf16_is_written_in_f32_for_depthwise_convolutions(core, other):
    """What a convolution in f32 alone reads needs no copy; what another reads too does."""
    rng = np.random.default_rng(3)
    weights = {
        "w": rng.normal(0, 0.3, (64, 16, 1, 1)).astype(np.float32),
        "b": rng.normal(size=(1, 64, 1, 1)).astype(np.float32),
        "d": rng.normal(0, 0.3, (64, 1, 3, 3)).astype(np.float32),
        "v": rng.normal(0, 0.2, (16, 64, 1, 1)).astype(np.float32),
    }
    nodes = [
        ("Conv", ["x", "w"], ["c"], {}),
        ("Add", ["c", "b"], ["a"], {}),
        ("Relu", ["a"], ["r"], {}),
        ("Conv", ["r", "d"], ["e"], {"group": 64, "pads": [2] * 4, "dilations": [2, 2]}),
        ("Conv", ["e", "v"], ["y"], {}),
        *([("Conv", ["r", "v"], ["z"], {})] if other else []),
    ]
    names = ["y", "z"] if other else ["y"]
    model = models.build(nodes, {"x": [1, 16, 20, 20]}, names, weights)
    x = image(9, 1, 16, 20, 20)
    request = load(core, model, ENFORCE_BF16="YES").create_infer_request()
    got = request.infer({"x": x})
    for name, want in zip(names, models.answer(model, {"x": x}), strict=True):
        assert np.abs(got[name] - want).max() < 0.03 * np.abs(want).max()
    planned = request.runner.bound.plan.steps
    first = next(step for step in planned if step.type.startswith("Convolution"))
    wide = first.arguments[first.outputs[0]].dtype == np.float32
    assert wide is not other, [step.type for step in planned]


@needs_bf16
@pytest.mark.parametrize("shape", [(36, 120), (1, 36, 120), (2, 18, 120)])
def test_bf16_products_of_few_rows_and_many_columns(core, shape):
    rng = np.random.default_rng(4)
    weights = {
        "w": rng.normal(0, 0.1, (120, 6625)).astype(np.float32),
        "b": rng.normal(size=6625).astype(np.float32),
    }
    nodes = [
        ("MatMul", ["x", "w"], ["m"], {}),
        ("Add", ["m", "b"], ["a"], {}),
        ("Relu", ["a"], ["y"], {}),
    ]
    model = models.build(nodes, {"x": list(shape)}, ["y"], weights)
    x = rng.normal(size=shape).astype(np.float32)
    executable = load(core, model, ENFORCE_BF16="YES")
    got = executable.infer({"x": x})["y"]
    (want,) = models.answer(model, {"x": x})
    assert got.shape == want.shape
    assert np.abs(got - want).max() < 0.01 * np.abs(want).max()
    codes = [step.implementation for step in executable.latest_plan().steps]
    if "amx_bf16" in processor_flags():
        assert any("amx" in code for code in codes), codes


def test_bf16_is_refused_by_a_processor_that_has_none(core, monkeypatch):
    monkeypatch.setattr(processor, "has_bf16", lambda: False)
    with pytest.raises(OptionValueError, match="ENFORCE_BF16=YES is not possible on .*leave the"):
        load(core, models.residual(32), ENFORCE_BF16="YES")


@pytest.mark.skipif(
    not processor.has_f16(),
    reason=f"{processor.name()} has no AVX512-FP16, without which oneDNN multiplies no float16",
)
def test_f16(core):
    model = models.residual(32)
    x = image(9, 2, 3, 14, 14)
    executable = load(core, model, ENFORCE_F16="YES")
    got = executable.infer({"x": x})
    # 11 bits of precision: 2^-11 relative to the largest, over some layers.
    for ours, theirs in zip(got.values(), models.answer(model, {"x": x}), strict=True):
        assert ours.dtype == np.float32
        assert np.abs(ours - theirs).max() < 0.004 * np.abs(theirs).max()
    assert any("fp16" in step.implementation for step in executable.latest_plan().steps)


@pytest.mark.skipif(processor.has_f16(), reason="this processor multiplies float16")
def test_f16_is_refused_by_a_processor_that_has_none(core):
    assert "FP16" not in core.get_metric("CPU", "OPTIMIZATION_CAPABILITIES")
    with pytest.raises(OptionValueError, match="ENFORCE_F16=YES is not possible on .*leave the"):
        load(core, models.residual(32), ENFORCE_F16="YES")


@needs_onednn
def test_what_has_no_code_in_f16_stays_in_f32(core, monkeypatch):
    """On a processor without f16 that is all there is."""
    monkeypatch.setattr(processor, "has_f16", lambda: True)
    model = models.residual(32)
    x = image(9, 2, 3, 14, 14)
    executable = load(core, model, ENFORCE_F16="YES")
    for ours, theirs in zip(
        executable.infer({"x": x}).values(), models.answer(model, {"x": x}), strict=True
    ):
        assert np.abs(ours - theirs).max() < 0.004 * np.abs(theirs).max()
    heavy = [s for s in executable.latest_plan().steps if s.type.startswith("Convolution")]
    assert heavy
    assert all(step.implementation != "numpy" for step in heavy)
    monkeypatch.undo()
    if not processor.has_f16():
        assert "oneDNN has no code for it in F16" in executable.explain()


def test_bf16_and_f16_at_once(core):
    with pytest.raises(OptionValueError, match="exclude each other; give one"):
        load(core, models.residual(32), ENFORCE_F16="YES", ENFORCE_BF16="YES")


@needs_bf16
@pytest.mark.parametrize("channels", [2, 5])
def test_bf16_with_a_number_for_each_of_few_channels(core, channels):
    """Added in rows of many pixels, which are of bfloat16 too."""
    taps = image(1, channels, 1, 1, 9)
    weights = {"w": taps, "b": image(2, channels)}
    at = {"group": channels, "strides": [1, 2], "pads": [0, 3, 0, 3]}
    nodes = [("ConvTranspose", ["x", "w", "b"], ["up"], at), ("Relu", ["up"], ["y"], {})]
    model = models.build(nodes, {"x": [2, channels, 1, 13]}, ["y"], weights)
    executable = load(core, model, ENFORCE_BF16="YES")
    x = image(3, 2, channels, 1, 13)
    (ours,), (theirs,) = executable.infer({"x": x}).values(), models.answer(model, {"x": x})
    assert np.abs(ours - theirs).max() < 0.02 * np.abs(theirs).max()
    assert "Add+ReLU" in steps(executable)


@needs_bf16
@pytest.mark.parametrize("kind", ["Add", "Mul"])
def test_bf16_groups_joined_with_another_tensor(core, kind):
    """oneDNN offers code that fuses this and computes it wrongly."""
    weights = {"w": image(12, 36, 8, 3, 3) / 8}
    nodes = [
        ("Conv", ["x", "w"], ["a"], {"group": 3}),
        ("Relu", ["a"], ["b"], {}),
        ("Conv", ["x", "w"], ["c"], {"group": 3, "strides": [1, 1]}),
        (kind, ["c", "b"], ["y"], {}),
    ]
    model = models.build(nodes, {"x": [1, 24, 9, 9]}, ["y"], weights)
    x = image(13, 1, 24, 9, 9)
    (got,) = load(core, model, ENFORCE_BF16="YES").infer({"x": x}).values()
    (want,) = models.answer(model, {"x": x})
    assert np.abs(got - want).max() < 0.02 * np.abs(want).max()


@pytest.mark.parametrize("kind", [np.float16])
def test_half_precision_networks(core, kind):
    """A network in f16 keeps its inputs and outputs in f16 and computes in f32 between."""
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.normal(0, 0.2, (8, 3, 3, 3)).astype(kind),
        "m": rng.normal(0, 0.2, (6, 4)).astype(kind),
        "one": np.array(1, kind),
    }
    nodes = [
        ("Conv", ["x", "w"], ["c"], {"pads": [1, 1, 1, 1]}),
        ("Relu", ["c"], ["r"], {}),
        ("MatMul", ["r", "m"], ["p"], {}),
        ("Add", ["p", "one"], ["y"], {}),
    ]
    model = models.build(nodes, {"x": [1, 3, 5, 6]}, ["y"], weights, element_type=kind)
    x = rng.normal(size=(1, 3, 5, 6)).astype(kind)
    executable = load(core, model)
    got = executable.infer({"x": x})
    wide = models.build(
        nodes, {"x": [1, 3, 5, 6]}, ["y"], {k: v.astype(np.float32) for k, v in weights.items()}
    )
    (want,) = models.answer(wide, {"x": x.astype(np.float32)})
    (y,) = got.values()
    assert y.dtype == kind
    np.testing.assert_allclose(y.astype(np.float32), want, rtol=1e-3, atol=1e-3)
    if library() is not None:
        assert any(step.startswith("Convolution") for step in steps(executable))


@needs_onednn
@pytest.mark.parametrize("per_channel", [False, True])
def test_quantised_network(core, per_channel):
    """QuantizeLinear and DequantizeLinear become post-operations; values are those of ONNX."""
    rng = np.random.default_rng(1)
    channels = 8
    weights = {
        "s": np.array(0.02, np.float32),
        "z": np.array(3, np.uint8),
        "w": rng.integers(-127, 128, (channels, 3, 3, 3)).astype(np.int8),
        "ws": rng.uniform(0.001, 0.004, channels).astype(np.float32),
        "wz": np.zeros(channels, np.int8),
        "s2": rng.uniform(0.02, 0.05, channels).astype(np.float32)
        if per_channel
        else np.array(0.03, np.float32),
        "z2": np.zeros(channels if per_channel else (), np.int8),
    }
    axis = {"axis": 1} if per_channel else {}
    nodes = [
        ("QuantizeLinear", ["x", "s", "z"], ["q"], {}),
        ("DequantizeLinear", ["q", "s", "z"], ["d"], {}),
        ("DequantizeLinear", ["w", "ws", "wz"], ["dw"], {"axis": 0}),
        ("Conv", ["d", "dw"], ["c"], {}),
        ("Relu", ["c"], ["r"], {}),
        ("QuantizeLinear", ["r", "s2", "z2"], ["q2"], axis),
        ("DequantizeLinear", ["q2", "s2", "z2"], ["y"], axis),
    ]
    model = models.build(nodes, {"x": [1, 3, 9, 8]}, ["y"], weights)
    x = rng.uniform(-3, 3, (1, 3, 9, 8)).astype(np.float32)
    executable = load(core, model)
    (y,) = executable.infer({"x": x}).values()
    (want,) = models.answer(model, {"x": x})
    step = np.broadcast_to(weights["s2"].reshape(1, -1, 1, 1), want.shape)
    # A sum of rounded products may round to the neighbouring level, in another order of adding.
    assert (np.abs(y - want) <= step * 1.001).all()
    assert (np.abs(y - want) > step * 0.5).mean() < 0.01
    found = steps(executable)
    fused = [step for step in found if "ReLU+Quantize" in step]
    assert fused, found
    assert_integers(executable, fused)


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_quantised_mask_whose_limits_overflow(core, kind):
    """A mask of -3.4e38, quantised: 128 steps of its scale are no f32 number."""
    limits = np.iinfo(kind)
    weights = {
        "s": np.array(np.finfo(np.float32).max / 127, np.float32),
        "z": np.array(0 if kind is np.int8 else limits.max, kind),
    }
    nodes = [
        ("QuantizeLinear", ["x", "s", "z"], ["q"], {}),
        ("DequantizeLinear", ["q", "s", "z"], ["y"], {}),
    ]
    model = models.build(nodes, {"x": ["n", 6]}, ["y"], weights)
    x = np.array([[0, 5, -0.5, np.finfo(np.float32).min, 1e37, -1e38]], np.float32)
    (y,) = load(core, model).infer({"x": x}).values()
    (want,) = models.answer(model, {"x": x})
    np.testing.assert_array_equal(y, want)


@needs_onednn
@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("shape", [(3, 40, 7), (2, 3, 5, 8), (1, 1), (6,)])
def test_quantize_linear(core, kind, known, shape):
    """Exact at halves, at the limits and in any memory order; scale known or computed."""
    rng = np.random.default_rng(8)
    scale, zero = np.array(0.07, np.float32), np.array(5, kind)
    order = list(range(len(shape)))[::-1]
    sizes = ["n"] * len(shape)
    graph = helper.make_graph(
        [
            helper.make_node("Transpose", ["x"], ["t"], perm=order),
            helper.make_node("QuantizeLinear", ["t", "s", "z"], ["y"]),
        ],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes),
            helper.make_tensor_value_info("s", TensorProto.FLOAT, []),
            helper.make_tensor_value_info("z", helper.np_dtype_to_tensor_dtype(zero.dtype), []),
        ][: 1 if known else 3],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(scale, "s"), numpy_helper.from_array(zero, "z")][
            : 2 if known else 0
        ],
    )
    opset = [helper.make_opsetid("", 13)]
    proto = helper.make_model(graph, opset_imports=opset, ir_version=8)
    proto.graph.output[0].type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(zero.dtype)
    model = proto.SerializeToString()
    x = rng.choice([rng.uniform(-20, 20), 1e30, -1e30, 0.0], shape).astype(np.float32)
    steps_ = rng.integers(-200, 200, shape)
    x = np.where(rng.random(shape) < 0.8, np.float32(0.07) * (steps_ + np.float32(0.5)), x)
    given = {"x": x.astype(np.float32)} | ({} if known else {"s": scale, "z": zero})
    executable = load(core, model, PERF_COUNT="YES")
    request = executable.create_infer_request()
    (y,) = request.infer(given).values()
    (want,) = models.answer(model, given)
    assert y.dtype == kind
    np.testing.assert_array_equal(y, want)
    counts = request.get_perf_counts().values()
    kernels = {c["exec_type"] for c in counts if c["layer_type"] == "QuantizeLinear"}
    assert "numpy" not in kernels
    assert kernels


@needs_bf16
@pytest.mark.parametrize("last", [False, True])
def test_what_bf16_does_not_help_is_computed_in_f32(core, last):
    """Groups of one channel, and sums along axes, which would lose what they are made of."""
    rng = np.random.default_rng(2)
    weights = {
        "w": rng.normal(0, 0.2, (32, 8, 3, 3)).astype(np.float32),
        "d": rng.normal(0, 0.3, (32, 1, 3, 3)).astype(np.float32),
    }
    nodes = [
        ("Conv", ["x", "w"], ["a"], {"pads": [1] * 4}),
        ("Conv", ["a", "d"], ["b"], {"pads": [1] * 4, "group": 32}),
        ("ReduceMean", ["a" if last else "b"], ["m"], {"axes": [1]}),
        ("Mul", ["b", "m"], ["y"], {}),
    ]
    model = models.build(nodes, {"x": [2, 8, 14, 13]}, ["y"], weights)
    executable = load(core, model, ENFORCE_BF16="YES")
    x = image(3, 2, 8, 14, 13)
    request = executable.create_infer_request()
    for _ in range(2):
        found = request.infer({"x": x})["y"]
        (want,) = models.answer(model, {"x": x})
        assert np.abs(found - want).max() < 0.02 * np.abs(want).max()
    ran = {step.type.partition("+")[0]: step for step in request.runner.bound.plan.steps}
    assert "bf16" not in ran["GroupConvolution"].implementation
    assert ran["ReduceMean"].values[0].dtype == np.float32


@needs_bf16
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", ["Softmax", "LogSoftmax"])
def test_bf16_products_before_softmax_are_written_in_f32(core, kind, threads):
    """As machine code takes them, so that nothing is converted on the way to the result."""
    rng = np.random.default_rng(6)
    weights = {
        "w": rng.normal(0, 0.2, (64, 130)).astype(np.float32),
        "b": rng.normal(size=130).astype(np.float32),
    }
    nodes = [
        ("MatMul", ["x", "w"], ["c"], {}),
        ("Add", ["c", "b"], ["a"], {}),
        (kind, ["a"], ["y"], {"axis": -1}),
    ]
    model, x = models.build(nodes, {"x": [40, 64]}, ["y"], weights), image(5, 40, 64)
    executable = load(core, model, ENFORCE_BF16="YES", CPU_THREADS_NUM=threads)
    got = executable.create_infer_request().infer({"x": x})["y"]
    (want,) = models.answer(model, {"x": x})
    assert np.abs(got - want).max() < 0.03 * np.abs(want).max()
    if not missing_avx512():
        assert [each.lower() for each in by_machine_code(executable)] == [kind.lower()]
        product, _ = executable.latest_plan().steps[-2:]
        assert product.arguments[product.outputs[0]].dtype == np.float32


@needs_bf16
def test_bf16_attention(core):
    """SoftMax between two products: the scores in f32, what is mixed in bfloat16 again."""
    rng = np.random.default_rng(7)
    given = {name: rng.normal(size=(1, 4, 33, 32)).astype(np.float32) for name in "qkv"}
    nodes = [
        ("Transpose", ["k"], ["t"], {"perm": [0, 1, 3, 2]}),
        ("MatMul", ["q", "t"], ["s"], {}),
        ("Mul", ["s", "f"], ["m"], {}),
        ("Softmax", ["m"], ["p"], {"axis": -1}),
        ("MatMul", ["p", "v"], ["y"], {}),
    ]
    shapes = {name: list(array.shape) for name, array in given.items()}
    model = models.build(nodes, shapes, ["y"], {"f": np.float32(32**-0.5)})
    executable = load(core, model, ENFORCE_BF16="YES")
    got = executable.create_infer_request().infer(given)["y"]
    (want,) = models.answer(model, given)
    assert np.abs(got - want).max() < 0.03 * np.abs(want).max()
    assert missing_avx512() or by_machine_code(executable) == ["SoftMax"]


@needs_bf16
@pytest.mark.parametrize("tail", ["Resize", "Sub"])
def test_bf16_is_made_f32_where_only_that_has_code(core, tail):
    """Resizing by products, and NumPy's arithmetic, in the order in which channels lie."""
    rng = np.random.default_rng(8)
    weights = {
        "w": rng.normal(0, 0.3, (16, 16, 3, 3)).astype(np.float32),
        "none": np.zeros(0, np.float32),
        "sizes": np.array([1, 16, 27, 19]),
        "row": rng.normal(size=(1, 16, 1, 11)).astype(np.float32),
    }
    modes = {"mode": "cubic", "coordinate_transformation_mode": "align_corners"}
    nodes = [
        ("Conv", ["x", "w"], ["c"], {"pads": [1] * 4}),
        ("Resize", ["c", "none", "none", "sizes"], ["y"], modes)
        if tail == "Resize"
        else ("Sub", ["row", "c"], ["y"], {}),
    ]
    model, x = models.build(nodes, {"x": [1, 16, 13, 11]}, ["y"], weights), image(6, 1, 16, 13, 11)
    executable = load(core, model, ENFORCE_BF16="YES")
    got = executable.create_infer_request().infer({"x": x})["y"]
    (want,) = models.answer(model, {"x": x})
    assert np.abs(got - want).max() < 0.03 * np.abs(want).max()
    steps = [step.type for step in executable.latest_plan().steps if step.implementation == "numpy"]
    assert "Interpolate" not in steps, steps


@needs_bf16
def test_parts_of_bf16_without_elements_are_joined(core):
    """Of which oneDNN converts nothing: what a rotary embedding leaves of heads that it turns."""
    rng = np.random.default_rng(8)
    turns = rng.uniform(0, 6, (50, 4)).astype(np.float32)
    weights = {
        "w": rng.normal(0, 0.3, (24, 64)).astype(np.float32),
        "cos": np.cos(turns),
        "sin": np.sin(turns),
        "all": np.arange(5)[None],
    }
    nodes = [
        ("MatMul", ["x", "w"], ["a"], {}),
        ("RotaryEmbedding", ["a", "cos", "sin", "all"], ["b"], {"num_heads": 8}),
        ("MatMul", ["b", "v"], ["y"], {}),
    ]
    weights["v"] = rng.normal(0, 0.3, (64, 16)).astype(np.float32)
    model = models.build(nodes, {"x": ["n", "m", 24]}, ["y"], weights, opset=23)
    x = image(6, 1, 5, 24)
    got = load(core, model, ENFORCE_BF16="YES").create_infer_request().infer({"x": x})["y"]
    (want,) = models.answer(model, {"x": x})
    assert np.abs(got - want).max() < 0.03 * np.abs(want).max()
