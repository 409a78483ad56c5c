"""ONNX Runtime's own operators (com.microsoft), compared with ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from polydevice import Core
from polydevice.errors import ModelFormatError, UnsupportedOperationError
from tests.absent import wants
from tests.onnx.microsoft import MS, check, model_of
from tests.onnx.microsoft import codes as _q
from tests.onnx.microsoft import floats as _f
from tests.onnx.microsoft import scale as _scale
from tests.onnx.models import onnxruntime_outputs, run


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.mark.parametrize("name", ["Gelu", "FastGelu", "QuickGelu"])
def test_gelus(name: str, rng: np.random.Generator) -> None:
    check(name, [_f(rng, 3, 5, scale=2)], atol=2e-3 if name == "FastGelu" else 2e-5)


def test_bias_gelu(rng: np.random.Generator) -> None:
    check("BiasGelu", [_f(rng, 3, 7), _f(rng, 7)])
    check("FastGelu", [_f(rng, 3, 7), _f(rng, 7)], atol=1e-4)


@pytest.mark.parametrize("bias", [False, True])
def test_skip_layer_normalization(bias: bool, rng: np.random.Generator) -> None:
    extra = [_f(rng, 9)] if bias else []
    check(
        "SkipLayerNormalization",
        [_f(rng, 2, 3, 9), _f(rng, 2, 3, 9), _f(rng, 9), _f(rng, 9), *extra],
        epsilon=1e-5,
    )


def test_simplified_normalizations(rng: np.random.Generator) -> None:
    check(
        "SimplifiedLayerNormalization",
        [_f(rng, 2, 3, 8), _f(rng, 8)],
        domain="",
        epsilon=1e-6,
    )
    check(
        "SkipSimplifiedLayerNormalization",
        [_f(rng, 2, 3, 8), _f(rng, 2, 3, 8), _f(rng, 8)],
        epsilon=1e-5,
    )


def test_embed_layer_normalization(rng: np.random.Generator) -> None:
    ids = rng.integers(0, 11, (2, 5)).astype(np.int32)
    segments = rng.integers(0, 2, (2, 5)).astype(np.int32)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    tables = [
        _f(rng, 11, 8),
        _f(rng, 6, 8),
        _f(rng, 2, 8),
        _f(rng, 8),
        _f(rng, 8),
    ]
    check("EmbedLayerNormalization", [ids, segments, *tables, mask], 2, integers=(1,), epsilon=1e-5)
    check("EmbedLayerNormalization", [ids, segments, *tables], 2, integers=(1,), epsilon=1e-5)


def test_outputs_that_are_not_computed_may_have_names_that_nobody_reads(
    rng: np.random.Generator,
) -> None:
    """As statistics for training do."""
    feeds = {"x": _f(rng, 2, 3, 8), "skip": _f(rng, 2, 3, 8)}
    stored = {"scale": _f(rng, 8)}
    node = helper.make_node(
        "SkipSimplifiedLayerNormalization", ["x", "skip", "scale"],
        ["y", "mean", "deviation", "sum"], domain=MS, epsilon=1e-5,
    )  # fmt: skip
    proto = model_of(node, feeds, stored, 17)
    del proto.graph.output[1:3]
    y, total = run(proto, *feeds.values())
    want = feeds["x"].astype(np.float64) + feeds["skip"]
    np.testing.assert_allclose(total, want, rtol=1e-6)
    want = want / np.sqrt((want**2).mean(-1, keepdims=True) + 1e-5) * stored["scale"]
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5)
    read = model_of(node, feeds, stored, 17)
    with pytest.raises(UnsupportedOperationError, match=r"output 1 \('mean'\) of SkipSimplified"):
        run(read, *feeds.values())
    inner = helper.make_graph(
        [helper.make_node("Neg", ["deviation"], ["z"])], "b", [],
        [helper.make_empty_tensor_value_info("z")],
    )  # fmt: skip
    proto.graph.node.append(
        helper.make_node("If", ["yes"], ["w"], then_branch=inner, else_branch=inner)
    )
    proto.graph.initializer.append(numpy_helper.from_array(np.array(True), "yes"))
    with pytest.raises(UnsupportedOperationError, match=r"output 2 \('deviation'\)"):
        run(proto, *feeds.values())


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("block", [16, 32])
def test_matmul_n_bits(zeros: bool, block: int, rng: np.random.Generator) -> None:
    size, rows = 64, 5
    blocks = size // block
    packed = rng.integers(0, 256, (rows, blocks, block // 2)).astype(np.uint8)
    scales = rng.random(rows * blocks).astype(np.float32)
    points = rng.integers(0, 256, (rows * (-(-blocks // 2)))).astype(np.uint8) if zeros else None
    inputs = [_f(rng, 3, size), packed, scales, *([points] if zeros else [])]
    check(
        "MatMulNBits",
        inputs,
        stored=tuple(range(1, len(inputs))),
        K=size,
        N=rows,
        bits=4,
        block_size=block,
        atol=1e-3,
    )


def test_fused_products(rng: np.random.Generator) -> None:
    check("FusedMatMul", [_f(rng, 2, 4, 3), _f(rng, 2, 5, 4)], transA=1, transB=1, alpha=0.5)
    check("FusedGemm", [_f(rng, 3, 4), _f(rng, 4, 5), _f(rng, 5)], activation="Relu")


@pytest.mark.parametrize("activation", ["Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid"])
def test_fused_conv(activation: str, rng: np.random.Generator) -> None:
    params = {"LeakyRelu": [0.1], "HardSigmoid": [0.2, 0.5]}.get(activation)
    attributes = {"activation_params": params} if params else {}
    check(
        "FusedConv",
        [_f(rng, 1, 3, 7, 6), _f(rng, 4, 3, 3, 3), _f(rng, 4)],
        stored=(1, 2),
        activation=activation,
        pads=[1, 1, 1, 1],
        **attributes,
    )


@pytest.mark.parametrize("name", ["QLinearAdd", "QLinearMul"])
def test_qlinear_binary(name: str, rng: np.random.Generator) -> None:
    a, b = (rng.integers(0, 256, (3, 5)).astype(np.uint8) for _ in range(2))
    scales = [np.float32(s) for s in (0.02, 0.03, 0.04)]
    zeros = [np.uint8(z) for z in (120, 100, 110)]
    inputs = [a, scales[0], zeros[0], b, scales[1], zeros[1], scales[2], zeros[2]]
    # ONNX Runtime adds in integers with rounded factors, which may differ by one step.
    check(name, [np.asarray(i) for i in inputs], stored=(1, 2, 4, 5, 6, 7), atol=1.01)


def test_qlinear_sigmoid(rng: np.random.Generator) -> None:
    x = rng.integers(0, 256, (3, 5)).astype(np.uint8)
    inputs = [x, np.float32(0.05), np.uint8(128), np.float32(1 / 256), np.uint8(0)]
    check("QLinearSigmoid", [np.asarray(i) for i in inputs], stored=(1, 2, 3, 4), atol=1.01)


@pytest.mark.parametrize("axis", [0, 1, -2, None])
@pytest.mark.parametrize("opset", [1, 12, 13])
def test_qlinear_softmax_as_its_opset_has_it(rng, opset, axis):
    constants = {"s": _scale(0.03), "z": np.uint8(9), "t": _scale(1 / 256), "u": np.uint8(0)}
    given = {"opset": opset} if axis is None else {"opset": opset, "axis": axis}
    node = helper.make_node("QLinearSoftmax", ["x", *constants], ["y"], domain=MS, **given)
    x = _q(rng, 3, 5, 7)
    model = model_of(node, {"x": x}, {k: np.asarray(v) for k, v in constants.items()}, 17)
    model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.UINT8
    (wanted,), (found,) = onnxruntime_outputs(model, x), run(model, x)
    np.testing.assert_allclose(found.astype(int), wanted.astype(int), rtol=0, atol=1)


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("columns", [(), (5,)])
def test_dynamic_quantize_matmul(
    kind: type, columns: tuple[int, ...], rng: np.random.Generator
) -> None:
    """A is rounded to the 256 levels of ONNX Runtime: the sums are of the same integers."""
    zeros = rng.integers(100, 120, columns) if kind is np.uint8 else np.zeros(columns)
    scales = rng.uniform(0.01, 0.03, columns).astype(np.float32)
    for shape in ((3, 8), (2, 4, 8)):
        inputs = [
            _f(rng, *shape),
            _q(rng, 8, 5, kind=kind),
            scales,
            zeros.astype(kind),
            _f(rng, 5),
        ]
        check("DynamicQuantizeMatMul", list(map(np.asarray, inputs)), stored=(1, 2, 3, 4))


@pytest.mark.parametrize("fixed", [True, False])
def test_matmul_integer_to_float(fixed: bool, rng: np.random.Generator) -> None:
    a, b = _q(rng, 3, 8), _q(rng, 8, 5, kind=np.int8)
    inputs = [a, b, _scale(0.02), rng.uniform(0.01, 0.03, 5).astype(np.float32)]
    inputs += [np.array(130, np.uint8), np.zeros(5, np.int8), _f(rng, 5)]
    stored = (1, 2, 3, 4, 5, 6) if fixed else (1, 3, 5, 6)
    check("MatMulIntegerToFloat", list(inputs), stored=stored, atol=1e-4, byte_output=False)


@pytest.mark.parametrize(
    ("activation", "parameters"),
    [
        ("LeakyRelu", {"activation_alpha": 0.3}),
        ("LeakyRelu", {}),
        ("Elu", {"activation_alpha": 0.7}),
        ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4}),
        ("Softplus", {}),
        ("Tanh", {}),
    ],
)
def test_fused_gemm(
    activation: str, parameters: dict[str, float], rng: np.random.Generator
) -> None:
    if "activation_alpha" not in parameters and activation == "LeakyRelu":
        parameters = {"activation_alpha": 0.01}  # ONNX Runtime always writes it
    inputs: list[np.ndarray | None] = [_f(rng, 3, 6), _f(rng, 5, 6), _f(rng, 5)]
    check("FusedGemm", inputs, transB=1, activation=activation, **parameters)


@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("quantised", [False, True])
def test_qgemm(per_column: bool, quantised: bool, rng: np.random.Generator) -> None:
    shape = (5,) if per_column else ()
    scales = rng.uniform(0.01, 0.03, shape).astype(np.float32)
    points = rng.integers(100, 140, shape).astype(np.uint8)
    inputs: list[np.ndarray | None] = [
        *(_q(rng, 4, 7), _scale(0.02), np.array(120, np.uint8)),
        *(_q(rng, 5, 7), scales, points),
        rng.integers(-500, 500, 5).astype(np.int32),
    ]
    if quantised:
        inputs += [_scale(0.05), np.array(128, np.uint8)]
    check_quantised("QGemm", inputs, quantised, transB=1)


def check_quantised(
    op_type: str, inputs: list[np.ndarray | None], quantised: bool, **attributes: Any
) -> None:
    """As `check`; a quantised result may be one step off where the exact value is a half."""
    check(op_type, inputs, atol=1.0 if quantised else 2e-4, byte_output=quantised, **attributes)


def test_qlinear_average_pool(rng: np.random.Generator) -> None:
    inputs: list[np.ndarray | None] = [
        *(_q(rng, 2, 3, 8, 9), _scale(0.02), np.array(120, np.uint8)),
        *(_scale(0.015), np.array(110, np.uint8)),
    ]
    check_quantised(
        "QLinearAveragePool", inputs, True, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1]
    )


def test_qlinear_where(rng: np.random.Generator) -> None:
    inputs: list[np.ndarray | None] = [
        rng.integers(0, 2, (2, 3, 4)).astype(bool),
        *(_q(rng, 2, 3, 4), _scale(0.02), np.array(120, np.uint8)),
        *(_q(rng, 3, 1), _scale(0.03), np.array(100, np.uint8)),
        *(_scale(0.025), np.array(110, np.uint8)),
    ]
    check_quantised("QLinearWhere", inputs, True)


@wants("onnxruntime", "1.24", "refuses a scale of fewer numbers")
@pytest.mark.parametrize(("axis", "scale"), [(-2, (3, 1)), (-1, (4,)), (1, (3, 4))])
def test_layer_normalization_with_its_statistics(
    axis: int, scale: tuple[int, ...], rng: np.random.Generator
) -> None:
    check("LayerNormalization", [_f(rng, 2, 3, 4), _f(rng, *scale)], 3, domain="", axis=axis)


def test_layer_normalization_before_its_opset(rng: np.random.Generator) -> None:
    """What ONNX Runtime's optimiser writes into models of opset 7 to 16."""
    inputs: list[np.ndarray | None] = [_f(rng, 2, 5, 8), _f(rng, 8), _f(rng, 8)]
    check("LayerNormalization", inputs, domain="", opset=14, axis=-1, epsilon=1e-6)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
@pytest.mark.parametrize("size", [64, 48, 24])
def test_gather_block_quantized(
    shape: tuple[int, ...], zeros: bool, size: int, rng: np.random.Generator
) -> None:
    """Two values to a byte; where a row has an odd number of blocks, half a byte is left."""
    rows, block = 9, 16
    blocks = -(-size // block)
    packed = _q(rng, rows, size // 2)
    scales = rng.uniform(0.01, 0.1, (rows, blocks)).astype(np.float32)
    points = _q(rng, rows, -(-blocks // 2)) if zeros else None
    indices = rng.integers(0, rows, shape)
    inputs = [packed, indices, scales, points]
    if points is None:
        inputs.pop()
    stored = (0, 2, 3) if zeros else (0, 2)
    check(
        *("GatherBlockQuantized", inputs),
        stored=stored, gather_axis=0, quantize_axis=1, block_size=block, bits=4,
    )  # fmt: skip


@pytest.mark.parametrize("variant", ["order", "float zeros"])
def test_matmul_n_bits_variants(variant: str, rng: np.random.Generator) -> None:
    size, rows, block = 64, 6, 32
    blocks = size // block
    inputs: list[np.ndarray | None] = [
        *(_f(rng, 3, size), _q(rng, rows, blocks, block // 2)),
        rng.uniform(0.01, 0.1, rows * blocks).astype(np.float32),
    ]
    if variant == "order":
        inputs += [None, rng.permutation(np.arange(size) // block).astype(np.int32)]
    else:
        inputs.append(rng.uniform(6, 9, rows * blocks).astype(np.float32))
    stored = tuple(k for k in range(1, len(inputs)) if inputs[k] is not None)
    check("MatMulNBits", inputs, stored=stored, K=size, N=rows, bits=4, block_size=block)


@pytest.mark.parametrize("per_column", [False, True])
def test_dynamic_quantize_lstm(per_column: bool, rng: np.random.Generator) -> None:
    size, hidden = 6, 4
    shape = (1, 4 * hidden) if per_column else (1,)
    inputs: list[np.ndarray | None] = [
        _f(rng, 5, 2, size),
        _q(rng, 1, size, 4 * hidden, kind=np.int8),
        _q(rng, 1, hidden, 4 * hidden, kind=np.int8),
        _f(rng, 1, 8 * hidden),
        *(None, None, None, None),
        *(rng.uniform(0.002, 0.004, shape).astype(np.float32), np.zeros(shape, np.int8)),
        *(rng.uniform(0.002, 0.004, shape).astype(np.float32), np.zeros(shape, np.int8)),
    ]
    stored = (1, 2, 3, 8, 9, 10, 11)
    # ONNX Runtime rounds X and H to 8 bits.
    check("DynamicQuantizeLSTM", inputs, 3, stored=stored, hidden_size=hidden, atol=2e-2)


@pytest.mark.parametrize("k", [None, 0, 1, -2, 9])
@pytest.mark.parametrize("upper", [0, 1])
def test_trilu(k: int | None, upper: int, rng: np.random.Generator) -> None:
    inputs = [_f(rng, 2, 3, 5), *([] if k is None else [np.array(k)])]
    check("Trilu", inputs, upper=upper)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
@pytest.mark.parametrize("stored", [(), (1,)])
def test_expand_dims(axis: int, stored: tuple[int, ...], rng: np.random.Generator) -> None:
    if stored:
        check("ExpandDims", [_f(rng, 3, 5), np.array(axis, np.int32)], stored=stored)
    else:  # an axis that an inference gives: only the rank of the result is known
        check("ExpandDims", [_f(rng, 3, 5), np.array([axis], np.int32)])


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic", None])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [0, 1])
def test_grid_sample(mode: str | None, padding: str, align: int, rng: np.random.Generator) -> None:
    grid = rng.uniform(-1.5, 1.5, (2, 3, 4, 2)).astype(np.float32)
    given = {} if mode is None else {"mode": mode}
    x = _f(rng, 2, 3, 5, 7)
    check("GridSample", [x, grid], padding_mode=padding, align_corners=align, **given)


def test_embeddings_of_bytes(rng: np.random.Generator) -> None:
    ids = rng.integers(0, 11, (2, 5)).astype(np.int32)
    segments = rng.integers(0, 2, (2, 5)).astype(np.int32)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    tables = [_q(rng, 11, 8), _q(rng, 6, 8), _q(rng, 2, 8), _q(rng, 8), _q(rng, 8)]
    scales = [_scale(0.01 * k) for k in range(1, 6)]
    zeros = [np.array(100 + k, np.uint8) for k in range(5)]
    for last in (mask, None):
        inputs: list[np.ndarray | None] = [ids, segments, *tables, last, *scales, *zeros]
        check(
            "QEmbedLayerNormalization", inputs, 2, integers=(1,), stored=tuple(range(2, 7)),
            epsilon=1e-5, byte_output=False,
        )  # fmt: skip


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize(("rows", "size", "block"), [(6, 32, 16), (5, 21, 32)])
def test_products_with_floats_of_4_bits(kind, rows, size, block, rng) -> None:
    count = rows * size
    packed = rng.integers(0, 256, -(-count // 2)).astype(np.uint8)
    largest = rng.uniform(0.5, 2, -(-count // block)).astype(np.float32)
    check(
        "MatMulBnb4", [_f(rng, 2, 3, size), packed, largest], stored=(1, 2), K=size, N=rows,
        block_size=block, quant_type=kind,
    )  # fmt: skip


@pytest.mark.parametrize(
    "change", [{"quant_type": 2}, {"transB": 0}, {"block_size": 0}, {"K": 30}, {"N": 0}]
)
def test_floats_of_4_bits_that_are_refused(change, rng) -> None:
    given = {"K": 32, "N": 6, "block_size": 16, "quant_type": 0} | change
    node = helper.make_node("MatMulBnb4", ["x", "b", "m"], ["y"], domain=MS, **given)
    stored = {"b": np.zeros(96, np.uint8), "m": np.ones(12, np.float32)}
    proto = model_of(node, {"x": _f(rng, 2, 32)}, stored, 17)
    with Core() as core, pytest.raises((UnsupportedOperationError, ModelFormatError)):
        core.read_network(proto.SerializeToString())


def test_inverses(rng: np.random.Generator) -> None:
    check("Inverse", [_f(rng, 2, 3, 3) + np.eye(3, dtype=np.float32)])


@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize("step", [None, 0.75])
def test_range(shape, step, rng) -> None:
    del rng
    given = [np.full(shape, k, np.float32) for k in (-1, 4, step) if k is not None]
    check("Range", [*given], stored=tuple(range(len(given))))


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
@pytest.mark.parametrize("shape", [(6,), (1, 6)])
def test_pad(mode, shape, rng) -> None:
    pads = np.array([0, 1, 2, 1, 0, 1]).reshape(shape)
    value = [np.array([1.5], np.float32)] if mode == "constant" else []
    check("Pad", [_f(rng, 2, 3, 4), pads, *value], stored=(1,), mode=mode)


def test_gather_nd(rng: np.random.Generator) -> None:
    check("GatherND", [_f(rng, 3, 4, 2), np.array([[0, 1], [2, -1], [1, 3]])])


def test_unique(rng: np.random.Generator) -> None:
    x = rng.integers(0, 5, 30).astype(np.float32)
    node = helper.make_node("Unique", ["x"], ["y", "i", "n"], domain=MS)
    proto = model_of(node, {"x": x}, {}, 17)
    for output in proto.graph.output[1:]:
        output.type.tensor_type.elem_type = onnx.TensorProto.INT64
    for got, want in zip(run(proto, x), onnxruntime_outputs(proto, x), strict=True):
        np.testing.assert_array_equal(got, want)
