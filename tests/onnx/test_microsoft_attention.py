"""Attention of ONNX Runtime's own operators (com.microsoft), compared with ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from polydevice import Core
from polydevice.errors import UnsupportedOperationError
from polydevice.ops.attention import ScaledDotProductAttention
from tests.absent import wants
from tests.onnx.microsoft import MS, check, model_of
from tests.onnx.microsoft import codes as _q
from tests.onnx.microsoft import floats as _f
from tests.onnx.microsoft import scale as _scale


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


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
        [
            _f(rng, batch, length, 6),
            _f(rng, 6, 3 * width),
            _f(rng, 3 * width),
            masks[mask],
        ],
        stored=(1, 2),
        num_heads=heads,
        unidirectional=causal,
    )


def test_attention_with_heads_of_two_sizes(rng: np.random.Generator) -> None:
    """What keys and values become later is one tensor, which both have to fit."""
    inputs = [_f(rng, 2, 3, 6), _f(rng, 6, 28), _f(rng, 28)]
    sizes = {"num_heads": 2, "qkv_hidden_sizes": [8, 8, 12]}
    check("Attention", inputs, stored=(1, 2), **sizes)
    node = helper.make_node("Attention", ["x", "w", "b"], ["y", "p"], domain=MS, **sizes)
    content = model_of(node, dict(zip("xwb", inputs, strict=True)), {}, 17).SerializeToString()
    with pytest.raises(UnsupportedOperationError, match=r"different sizes, \[8, 12\]"):
        Core().read_network(content)


def test_attention_with_past(rng: np.random.Generator) -> None:
    check(
        "Attention",
        [
            _f(rng, 2, 3, 6),
            _f(rng, 6, 24),
            _f(rng, 24),
            None,
            _f(rng, 2, 2, 2, 4, 4),
        ],
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


@pytest.mark.parametrize(
    ("queries", "keys", "past"), [(2, 4, 0), (4, 3, 0), (3, 3, 0), (1, 5, 0), (3, 3, 4), (3, 5, 2)]
)
def test_multi_head_attention_to_no_later_keys(queries, keys, past, rng) -> None:
    """Query i sees key i and those before it, past ones too; the last one sees all there are."""
    q, k, v = _f(rng, 2, queries, 8), _f(rng, 2, keys, 8), _f(rng, 2, keys, 8)
    before = [_f(rng, 2, 2, past, 4), _f(rng, 2, 2, past, 4)] if past else []
    inputs = [q, k, v, *([None] * 3 if past else []), *before]
    check("MultiHeadAttention", inputs, 3 if past else 1, num_heads=2, unidirectional=1)


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
    network = Core().read_network(model_of(node, feeds, {}, 17).SerializeToString())
    made = [n for n in network.nodes() if isinstance(n.op, ScaledDotProductAttention)]
    assert len(made) == operations


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
    check("QAttention", inputs, num_heads=heads, stored=(1, 7), atol=2e-3, byte_output=False)
