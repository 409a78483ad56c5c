"""ONNX Runtime's own operators (com.microsoft), compared with ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice import Core
from polydevice.errors import UnsupportedOperationError
from polydevice.ops.attention import ScaledDotProductAttention
from tests.absent import wants
from tests.onnx.models import run

MS = "com.microsoft"
Arrays = dict[str, np.ndarray]


def _model(node: onnx.NodeProto, feeds: Arrays, stored: Arrays, opset: int) -> onnx.ModelProto:
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), list(array.shape)
        )
        for name, array in feeds.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    for output in outputs:  # ONNX Runtime finds the types itself
        output.type.tensor_type.elem_type = TensorProto.FLOAT
    initializers = [numpy_helper.from_array(array, name) for name, array in stored.items()]
    graph = helper.make_graph([node], "g", inputs, outputs, initializers)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(MS, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def check(
    op_type: str,
    inputs: list[np.ndarray | None],
    outputs: int = 1,
    *,
    stored: tuple[int, ...] = (),
    integers: tuple[int, ...] = (),
    domain: str = MS,
    opset: int = 17,
    atol: float = 2e-5,
    byte_output: bool | None = None,
    **attributes: Any,
) -> None:
    """Run one node here and in ONNX Runtime; `stored` inputs are initializers.

    Outputs are of uint8 where `byte_output`, or else the first input, says so.
    """
    names = [f"i{k}" if a is not None else "" for k, a in enumerate(inputs)]
    made = [f"o{k}" for k in range(outputs)]
    node = helper.make_node(op_type, names, made, domain=domain, **attributes)
    arrays = {n: a for n, a in zip(names, inputs, strict=True) if a is not None}
    constants = {names[k]: arrays[names[k]] for k in stored}
    feeds = {name: a for name, a in arrays.items() if name not in constants}
    proto = _model(node, feeds, constants, opset)
    for k in integers:
        proto.graph.output[k].type.tensor_type.elem_type = TensorProto.INT32
    if byte_output is None:
        byte_output = bool(feeds) and next(iter(feeds.values())).dtype == np.uint8
    if byte_output:
        for k in range(outputs):
            proto.graph.output[k].type.tensor_type.elem_type = TensorProto.UINT8
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    expected = session.run(None, feeds)
    results = run(proto, *feeds.values())
    assert len(results) == len(expected)
    for result, wanted in zip(results, expected, strict=True):
        assert result.dtype == wanted.dtype
        assert result.shape == wanted.shape
        np.testing.assert_allclose(
            result.astype(np.float64), wanted.astype(np.float64), rtol=1e-4, atol=atol
        )


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def _f(rng: np.random.Generator, *shape: int, scale: float = 0.5) -> np.ndarray:
    return (rng.standard_normal(shape) * scale).astype(np.float32)


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
    check("SimplifiedLayerNormalization", [_f(rng, 2, 3, 8), _f(rng, 8)], domain="", epsilon=1e-6)
    check(
        "SkipSimplifiedLayerNormalization",
        [_f(rng, 2, 3, 8), _f(rng, 2, 3, 8), _f(rng, 8)],
        epsilon=1e-5,
    )


def test_embed_layer_normalization(rng: np.random.Generator) -> None:
    ids = rng.integers(0, 11, (2, 5)).astype(np.int32)
    segments = rng.integers(0, 2, (2, 5)).astype(np.int32)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    tables = [_f(rng, 11, 8), _f(rng, 6, 8), _f(rng, 2, 8), _f(rng, 8), _f(rng, 8)]
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
    proto = _model(node, feeds, stored, 17)
    del proto.graph.output[1:3]
    y, total = run(proto, *feeds.values())
    want = feeds["x"].astype(np.float64) + feeds["skip"]
    np.testing.assert_allclose(total, want, rtol=1e-6)
    want = want / np.sqrt((want**2).mean(-1, keepdims=True) + 1e-5) * stored["scale"]
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5)
    read = _model(node, feeds, stored, 17)
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


@pytest.mark.parametrize("mask", ["none", "raw", "lengths", "ends and begins", "full"])
@pytest.mark.parametrize("causal", [0, 1])
def test_attention(mask: str, causal: int, rng: np.random.Generator) -> None:
    batch, length, heads, size = 2, 5, 2, 4
    width = heads * size
    masks = {
        "none": None,
        "raw": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32),
        "lengths": np.array([3, 5], np.int32),
        "ends and begins": np.array([5, 4, 0, 2], np.int32),
        "full": np.tril(np.ones((length, length), np.int32))[None].repeat(batch, 0),
    }
    check(
        "Attention",
        [_f(rng, batch, length, 6), _f(rng, 6, 3 * width), _f(rng, 3 * width), masks[mask]],
        stored=(1, 2),
        num_heads=heads,
        unidirectional=causal,
    )


def test_attention_with_past(rng: np.random.Generator) -> None:
    check(
        "Attention",
        [_f(rng, 2, 3, 6), _f(rng, 6, 24), _f(rng, 24), None, _f(rng, 2, 2, 2, 4, 4)],
        2,
        stored=(1, 2),
        num_heads=2,
        unidirectional=1,
    )


MASKS = {
    "mask": [[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]],
    "lengths": [4, 2],
    "lengths and where rows begin": [4, 2, 0, 3, 6, 0, 4, 6],
}


@pytest.mark.parametrize("variant", ["plain", "bias", *MASKS, "attention_bias", "scale"])
def test_multi_head_attention(variant: str, rng: np.random.Generator) -> None:
    q, k, v = _f(rng, 2, 3, 8), _f(rng, 2, 5, 8), _f(rng, 2, 5, 8)
    bias = _f(rng, 24) if variant == "bias" else None
    mask = np.array(MASKS[variant], np.int32) if variant in MASKS else None
    extra = _f(rng, 2, 2, 3, 5) if variant == "attention_bias" else None
    attributes = {"scale": 0.3} if variant == "scale" else {}
    check("MultiHeadAttention", [q, k, v, bias, mask, extra], num_heads=2, **attributes)


def test_multi_head_attention_with_past(rng: np.random.Generator) -> None:
    q, k, v = _f(rng, 2, 3, 8), _f(rng, 2, 3, 8), _f(rng, 2, 3, 8)
    past = [_f(rng, 2, 2, 4, 4), _f(rng, 2, 2, 4, 4)]
    check("MultiHeadAttention", [q, k, v, None, None, None, *past], 3, num_heads=2)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.parametrize("offset", [False, True])
def test_rotary_embedding(
    interleaved: int, rank: int, offset: bool, rng: np.random.Generator
) -> None:
    x = _f(rng, 2, 3, 16) if rank == 3 else _f(rng, 2, 2, 3, 8)
    positions = np.array([2]) if offset else np.array([[0, 1, 2], [4, 5, 6]])
    angles = rng.random((10, 4)).astype(np.float32)
    check(
        "RotaryEmbedding",
        [x, positions, np.cos(angles), np.sin(angles)],
        stored=(2, 3),
        interleaved=interleaved,
    )


@pytest.mark.parametrize("rotary", [0, 1])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("past", [0, 4])
def test_group_query_attention(
    rotary: int, packed: bool, past: int, rng: np.random.Generator
) -> None:
    batch, length, heads, groups, size = 2, 1 if past else 3, 4, 2, 16
    total = past + length
    q, k, v = (_f(rng, batch, length, n * size) for n in (heads, groups, groups))
    inputs: list[np.ndarray | None] = [q, k, v]
    if packed:
        inputs = [np.concatenate([q, k, v], -1), None, None]
    before = [_f(rng, batch, groups, past, size) for _ in range(2)]
    angles = rng.random((16, size // 2)).astype(np.float32)
    inputs += [*before, np.full(batch, total - 1, np.int32), np.array(total, np.int32)]
    if rotary:
        inputs += [np.cos(angles), np.sin(angles)]
    stored = (5, 6, *((7, 8) if rotary else ()))
    check(
        "GroupQueryAttention",
        inputs,
        3,
        stored=stored,
        num_heads=heads,
        kv_num_heads=groups,
        do_rotary=rotary,
    )


@wants("onnxruntime", "1.24", "reads the lengths of a batch wrong")
@pytest.mark.parametrize(("softcap", "operations"), [(0.0, 1), (2.0, 0)])
def test_attention_is_one_operation(
    softcap: float, operations: int, rng: np.random.Generator
) -> None:
    """Devices take it apart, or do not; only a cap on the scores needs steps."""
    q, k, v = (_f(rng, 2, 3, n * 16, scale=3.0) for n in (4, 2, 2))
    past = [_f(rng, 2, 2, 4, 16) for _ in range(2)]
    lengths = [np.array([6, 4], np.int32), np.array(7, np.int32)]
    inputs: list[np.ndarray | None] = [q, k, v, *past, *lengths]
    attributes = {"num_heads": 4, "kv_num_heads": 2, "softcap": softcap}
    check("GroupQueryAttention", [q, k, v, None, None, lengths[0] // 3, np.array(3, np.int32)],
          3, stored=(5, 6), **attributes)  # fmt: skip
    node = helper.make_node(
        "GroupQueryAttention", [f"i{n}" for n in range(7)], ["y", "k", "v"], domain=MS, **attributes
    )
    feeds = {f"i{n}": array for n, array in enumerate(inputs) if array is not None}
    network = Core().read_network(_model(node, feeds, {}, 17).SerializeToString())
    made = [n for n in network.nodes() if isinstance(n.op, ScaledDotProductAttention)]
    assert len(made) == operations


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


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("columns", [(), (5,)])
def test_dynamic_quantize_matmul(
    kind: type, columns: tuple[int, ...], rng: np.random.Generator
) -> None:
    """A is rounded to the 256 levels of ONNX Runtime: the sums are of the same integers."""
    zeros = rng.integers(100, 120, columns) if kind is np.uint8 else np.zeros(columns)
    scales = rng.uniform(0.01, 0.03, columns).astype(np.float32)
    for shape in ((3, 8), (2, 4, 8)):
        inputs = [_f(rng, *shape), _q(rng, 8, 5, kind=kind), scales, zeros.astype(kind), _f(rng, 5)]
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


def _q(rng: np.random.Generator, *shape: int, kind: type = np.uint8) -> np.ndarray:
    limits = np.iinfo(kind)
    return rng.integers(limits.min, limits.max + 1, shape).astype(kind)


def _scale(value: float) -> np.ndarray:
    return np.array(value, np.float32)


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


@pytest.mark.parametrize("per_column", [False, True])
def test_q_attention(per_column: bool, rng: np.random.Generator) -> None:
    hidden, heads = 12, 3
    shape = (3 * hidden,) if per_column else ()
    inputs: list[np.ndarray | None] = [
        _q(rng, 2, 5, hidden),
        _q(rng, hidden, 3 * hidden, kind=np.int8),
        _f(rng, 3 * hidden),
        _scale(0.01),
        rng.uniform(0.004, 0.008, shape).astype(np.float32),
        np.array([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]], np.int32),
        np.array(128, np.uint8),
        np.zeros(shape, np.int8),
    ]
    check("QAttention", inputs, num_heads=heads, stored=(1,), atol=2e-3, byte_output=False)


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
def test_gather_block_quantized(
    shape: tuple[int, ...], zeros: bool, rng: np.random.Generator
) -> None:
    rows, size, block = 9, 64, 16
    packed = _q(rng, rows, size // 2)
    scales = rng.uniform(0.01, 0.1, (rows, size // block)).astype(np.float32)
    points = _q(rng, rows, size // block // 2) if zeros else None
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
