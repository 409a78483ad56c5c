"""Quantised networks: every value is on the level that the definition gives, halves included.

FakeQuantize is judged by its definition (OpenVINO, FakeQuantize-1) in NumPy's f32, QuantizeLinear
and DequantizeLinear by ONNX's reference implementation, where that does not overflow.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from polydevice.ops.quantize import FakeQuantize
from tests.gpu.graphs import Sketch

f32 = np.float32
HINTS = ["undefined", "f32", "f16"]


def fake_quantized(x, low, high, out_low, out_high, levels):
    """The definition, rounded to f32 after every operation."""
    with np.errstate(all="ignore"):
        level = np.rint((x - low) / (high - low) * f32(levels - 1))
        inside = level / f32(levels - 1) * (out_high - out_low) + out_low
    below, above = x <= np.minimum(low, high), x > np.maximum(low, high)
    return np.where(below, out_low, np.where(above, out_high, inside)).astype(f32)


RANGES = {
    "symmetric": (-1, 1, -1, 1), "i8": (-1.28, 1.27, -1.28, 1.27), "zero": (0, 2.55, 0, 2.55),
    "inverted": (1, -1, 3, -3), "negative": (-3, -1, -3, -1), "empty": (0.5, 0.5, 1, 2),
    "onto one": (-5, 5, 0, 0), "onto more": (2, 5, 10, -10),
}  # fmt: skip


@pytest.mark.parametrize("levels", [2, 16, 255, 256, 65_536])
@pytest.mark.parametrize("name", RANGES)
def test_fake_quantize(core, name, levels) -> None:
    low, high, *_ = limits = [f32(v) for v in RANGES[name]]
    x = np.random.default_rng(0).uniform(min(low, high) - 1, max(low, high) + 1, (2, 4, 500))
    x = x.astype(f32)
    k = np.arange(500) % levels
    half = (low + (k + f32(0.5)) * (high - low) / f32(levels - 1)).astype(f32)
    x[0] = half, np.nextafter(half, f32(9)), np.nextafter(half, f32(-9)), half - f32(0.5)
    _check_fake_quantize(core, x, limits, levels, "undefined")


@pytest.mark.parametrize("hint", HINTS)
def test_fake_quantize_for_each_channel(core, hint) -> None:
    """Limits stay f32 in networks that are stored as f16, or all levels would be wrong a little."""
    low = f32([-0.7, 0, -3.3, 1.1]).reshape(4, 1)
    high = f32([0.9, 1.7, -1, 2.9]).reshape(4, 1)
    x = np.random.default_rng(1).uniform(-4, 4, (2, 4, 500)).astype(f32)
    _check_fake_quantize(core, x, [low, high, low, high], 256, hint)


def _check_fake_quantize(core, x, limits, levels, hint) -> None:
    s = Sketch()
    ports = [s.const(f"limit{i}", limit) for i, limit in enumerate(limits)]
    network = s.network(y=s.add("q", FakeQuantize(levels), s.input("x", *x.shape), *ports))
    executable = core.load_network(network, "GPU", {"INFERENCE_PRECISION_HINT": hint})
    y = executable.infer({"x": x})["y"]
    # The last multiplication and addition may be one instruction, which rounds once.
    right = fake_quantized(x, *limits, levels)
    largest = np.abs(right).max()
    np.testing.assert_allclose(y, right, rtol=0, atol=np.spacing(largest))


KINDS = {
    TensorProto.UINT8: (0, 255), TensorProto.INT8: (-128, 127), TensorProto.UINT16: (0, 65_535),
    TensorProto.INT16: (-32_768, 32_767), TensorProto.UINT4: (0, 15), TensorProto.INT4: (-8, 7),
}  # fmt: skip
NAMES = {kind: TensorProto.DataType.Name(kind) for kind in KINDS}


def _model(kind, scale, zero) -> bytes:
    names = ["s"] if zero is None else ["s", "z"]
    settings = {"output_dtype": kind} if zero is None else {}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", *names], ["q"], axis=1, **settings),
        helper.make_node("DequantizeLinear", ["q", *names], ["y"], axis=1),
    ]
    numbers = np.asarray(scale, f32)
    constants = [helper.make_tensor("s", TensorProto.FLOAT, numbers.shape, numbers.reshape(-1))]
    if zero is not None:
        points = np.asarray(zero)
        constants.append(helper.make_tensor("z", kind, points.shape, points.reshape(-1)))
    graph = helper.make_graph(
        nodes,
        "quantised",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 300])],
        [
            helper.make_tensor_value_info("q", kind, [2, 3, 300]),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3, 300]),
        ],
        constants,
    )
    imports = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()


@pytest.mark.parametrize("hint", HINTS)
@pytest.mark.parametrize("channels", [False, True])
@pytest.mark.parametrize("zero", ["none", "middle", "lowest", "highest"])
@pytest.mark.parametrize("kind", KINDS, ids=NAMES.get)
def test_linear_quantisation(core, kind, zero, channels, hint) -> None:
    """Levels and halves between them, and up to 40 levels beyond either end."""
    low, high = KINDS[kind]
    point = {"none": 0, "middle": (low + high + 1) // 2, "lowest": low, "highest": high}[zero]
    scale = f32([0.01, 0.5, 3]) if channels else f32(0.037)
    points = np.full(3, point) if channels else np.asarray(point)
    content = _model(kind, scale, None if zero == "none" else points)
    random = np.random.default_rng(kind)
    level = random.integers(low - 40, high + 40, (2, 3, 300)) - point
    column = scale.reshape(-1, 1)
    x = np.stack([(level[0] + 0.5) * column, level[1] * column]).astype(f32)
    quantised, right = ReferenceEvaluator(content).run(None, {"x": x})
    config = {"INFERENCE_PRECISION_HINT": hint}
    results = core.load_network(core.read_network(content), "GPU", config).infer({"x": x})
    np.testing.assert_array_equal(results["q"].astype(int), np.asarray(quantised).astype(int))
    np.testing.assert_array_equal(results["y"], right)


def test_what_lies_far_outside_takes_the_last_level(core) -> None:
    """3e38 and infinities saturate; ONNX's reference overflows there."""
    x = np.zeros((2, 3, 300), f32)
    x[0, 0, :4] = 3e38, -3e38, np.inf, -np.inf
    executable = core.load_network(core.read_network(_model(TensorProto.INT8, 0.5, 3)), "GPU")
    found = executable.infer({"x": x})
    np.testing.assert_array_equal(found["q"][0, 0, :5].astype(int), [127, -128, 127, -128, 3])
    np.testing.assert_array_equal(found["y"][0, 0, :5], [62, -65.5, 62, -65.5, 0])
