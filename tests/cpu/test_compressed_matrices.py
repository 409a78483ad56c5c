"""Matrices of 4 and 8 bits are multiplied tile by tile, and no copy of them in f32 is made."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice_cpu.onednn.library import library
from polydevice_cpu.passes import prepare
from polydevice_cpu.passes.integers import compressed as compressing
from tests.absent import wants
from tests.cpu.quantised_graphs import reference


@pytest.fixture(autouse=True)
def small_matrices(monkeypatch) -> None:
    monkeypatch.setattr(compressing, "LEAST_ELEMENTS", 1)


def _model(nodes, stored, terms, columns, *, rows="rows") -> bytes:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, rows, terms])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, rows, columns])]
    kept = [numpy_helper.from_array(array, name) for name, array in stored.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, kept)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()


def _in_blocks(bits, block, blocks, columns, *, has_zeros) -> bytes:
    rng = np.random.default_rng(bits + block)
    packed = rng.integers(0, 256, (columns, blocks, block * bits // 8)).astype(np.uint8)
    stored = {"w": packed, "s": rng.uniform(0.1, 1, (columns, blocks)).astype(np.float32)}
    if has_zeros:
        stored["z"] = rng.integers(0, 256, (columns, -(-blocks * bits // 8))).astype(np.uint8)
    terms = block * blocks
    node = helper.make_node(
        "MatMulNBits", ["x", *stored], ["y"], domain="com.microsoft",
        K=terms, N=columns, bits=bits, block_size=block,
    )  # fmt: skip
    return _model([node], stored, terms, columns)


def _compressed(core, model) -> int:
    network = core.read_network(model)
    prepare(network)
    return sum(isinstance(node.op, compressing.CompressedMatMul) for node in network.nodes())


def _check(core, model, rows, terms) -> None:
    """Twice, with rows of very different sizes, against sums in f32 of the same numbers."""
    rng = np.random.default_rng(rows)
    request = core.load_network(core.read_network(model), "CPU").create_infer_request()
    for _ in range(2):
        x = rng.standard_normal((2, rows, terms)).astype(np.float32)
        x *= np.float32(10.0) ** rng.integers(-30, 30, (2, rows, 1))
        (answer,) = request.infer({"x": x}).values()
        right = reference(model, {"x": x})[0]
        allowed = 1e-5 * np.abs(right).max(axis=-1, keepdims=True)
        assert (np.abs(answer - right) <= allowed).all()


@pytest.mark.parametrize(
    ("bits", "block", "blocks", "has_zeros"),
    [(4, 32, 4, False), (4, 32, 3, True), (4, 256, 1, True), (8, 16, 4, True), (8, 64, 3, False)],
)
def test_blocks(core, bits, block, blocks, has_zeros) -> None:
    """Blocks that share a tile, that have gaps in it, that are several tiles or as large as one."""
    model = _in_blocks(bits, block, blocks, 70, has_zeros=has_zeros)
    assert _compressed(core, model) == 1
    for rows in (1, 11):
        _check(core, model, rows, block * blocks)


def test_columns_of_several_tiles(core, monkeypatch) -> None:
    if library() is None:
        pytest.skip("tiles are multiplied by oneDNN")
    from polydevice_cpu.lowering import compressed

    monkeypatch.setattr(compressed, "MOST_COLUMNS", 64)
    _check(core, _in_blocks(4, 32, 2, 150, has_zeros=False), 2, 64)


@wants("onnxruntime", "1.24", "multiplies blocks of 1024 terms wrong")
@pytest.mark.parametrize(
    ("bits", "block", "blocks", "has_zeros"),
    [(4, 32, 8, True), (4, 32, 34, False), (4, 1024, 2, False), (8, 64, 6, True), (8, 16, 8, True)],
)
def test_many_rows(core, monkeypatch, bits, block, blocks, has_zeros) -> None:
    """Tiles become numbers of f32: of several blocks, of one, and of a part of one."""
    if library() is None:
        pytest.skip("tiles are multiplied by oneDNN")
    from polydevice_cpu.lowering import compressed

    monkeypatch.setattr(compressed, "UNPACKING_MS", -1)
    monkeypatch.setattr(compressed, "UNPACKED_COLUMNS", 128)
    model = _in_blocks(bits, block, blocks, 192, has_zeros=has_zeros)
    _check(core, model, 9, block * blocks)
    network = core.load_network(core.read_network(model), "CPU")
    x = np.ones((2, 1, block * blocks), np.float32)
    x[1, 0, 3] = np.nan
    (answer,) = network.infer({"x": x}).values()
    assert np.isfinite(answer[0]).all() and np.isnan(answer[1]).all()
    assert f"tiles of {bits} bits in f32" in network.explain()


@pytest.mark.parametrize("turned", [False, True])
def test_one_scale_a_column(core, turned) -> None:
    rng = np.random.default_rng(3)
    terms, columns = 192, 33
    shape = (columns, terms) if turned else (terms, columns)
    stored = {"w": rng.integers(-128, 128, shape).astype(np.int8)}
    stored["s"] = rng.uniform(0.1, 1, columns).astype(np.float32)
    nodes = [helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=0 if turned else 1)]
    if turned:
        nodes.append(helper.make_node("Transpose", ["d"], ["t"], perm=[1, 0]))
    nodes.append(helper.make_node("MatMul", ["x", "t" if turned else "d"], ["y"]))
    model = _model(nodes, stored, terms, columns)
    assert _compressed(core, model) == 1
    _check(core, model, 3, terms)


def test_shorter_last_block(core) -> None:
    """Blocks of 128 terms of which there are 192: no two blocks of 96."""
    rng = np.random.default_rng(4)
    stored = {
        "w": rng.integers(-128, 128, (192, 5)).astype(np.int8),
        "s": rng.uniform(0.1, 1, (2, 5)).astype(np.float32),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=0, block_size=128),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    model = _model(nodes, stored, 192, 5)
    assert _compressed(core, model) == 0
    x = rng.standard_normal((2, 1, 192)).astype(np.float32)
    (answer,) = core.load_network(core.read_network(model), "CPU").infer({"x": x}).values()
    scales = np.repeat(stored["s"], 128, axis=0)[:192]
    np.testing.assert_allclose(answer, x @ (stored["w"] * scales), rtol=1e-4, atol=1e-3)


def test_rows_that_are_no_numbers(core) -> None:
    """NaN and infinity stay in their rows; a row of zeros gives zeros."""
    model = _in_blocks(4, 32, 2, 65, has_zeros=False)
    x = np.random.default_rng(5).standard_normal((2, 3, 64)).astype(np.float32)
    x[0, 0, 7], x[0, 2, 1], x[1, 1] = np.nan, np.inf, 0
    (answer,) = core.load_network(core.read_network(model), "CPU").infer({"x": x}).values()
    right = reference(model, {"x": x})[0]
    assert (np.isfinite(answer) == np.isfinite(right)).all()
    assert np.isnan(answer[0, 0]).all()
    infinite = np.isinf(right[0, 2])
    np.testing.assert_array_equal(answer[0, 2][infinite], right[0, 2][infinite])
    np.testing.assert_allclose(answer[1], right[1], rtol=1e-4, atol=1e-4)
    assert (answer[1, 1] == 0).all()


def test_what_is_told(core) -> None:
    """The code that runs, or why it is none for integers, also of a layer that became several."""
    if library() is None:
        pytest.skip("tiles are multiplied by oneDNN")
    model = _in_blocks(4, 32, 2, 65, has_zeros=True)
    network = core.load_network(core.read_network(model), "CPU")
    network.infer({"x": np.ones((2, 1, 64), np.float32)})
    (line,) = [line for line in network.explain().splitlines() if "MatMul " in line]
    assert ("tiles of 4 bits" in line) != ("with oneDNN's primitive: " in line), line
