"""Matrices of 4 and 8 bits are multiplied piece by piece, and no copy of them in f32 is made."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice_cpu.algorithms.by_machine.code import may_share
from polydevice_cpu.algorithms.by_machine.compressed import product as on_integers
from polydevice_cpu.algorithms.by_machine.panels import product
from polydevice_cpu.onednn.engine import address_of
from polydevice_cpu.onednn.library import library
from polydevice_cpu.passes import prepare
from polydevice_cpu.passes.integers import compressed as compressing
from polydevice_cpu.plan.tables.plan import TablePlan
from tests.absent import wants
from tests.cpu.machine_code import with_avx512
from tests.cpu.quantised_graphs import reference
from tests.guard_pages import SIDES, guarded


@pytest.fixture(autouse=True)
def small_matrices(monkeypatch) -> None:
    monkeypatch.setattr(compressing, "LEAST_ELEMENTS", 1)
    monkeypatch.setattr(compressing, "LEAST_IN_TILES", 1)


@pytest.fixture(params=["integers", "floats"])
def code(request, monkeypatch) -> None:
    """With the processor's products of bytes, and as where it has AVX-512 alone."""
    if request.param == "floats":
        monkeypatch.setattr(on_integers, "has_code", lambda *_: False)


@pytest.fixture
def by_tiles(monkeypatch) -> None:
    """As on processors without AVX-512."""
    if library() is None:
        pytest.skip("tiles are multiplied by oneDNN")
    monkeypatch.setattr("polydevice_cpu.lowering.compressed.has_avx512", lambda: False)


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


def _check(core, model, rows, terms, threads=1) -> None:
    """Twice, with rows of very different sizes, against sums in f32 of the same numbers."""
    rng = np.random.default_rng(rows)
    how = {"CPU_THREADS_NUM": threads}
    request = core.load_network(core.read_network(model), "CPU", how).create_infer_request()
    for _ in range(2):
        x = rng.standard_normal((2, rows, terms)).astype(np.float32)
        x *= np.float32(10.0) ** rng.integers(-30, 30, (2, rows, 1))
        (answer,) = request.infer({"x": x}).values()
        right = reference(model, {"x": x})[0]
        allowed = 1e-5 * np.abs(right).max(axis=-1, keepdims=True)
        assert (np.abs(answer - right) <= allowed).all()


BLOCKS = pytest.mark.parametrize(
    ("bits", "block", "blocks", "has_zeros"),
    [(4, 32, 4, False), (4, 32, 3, True), (4, 256, 1, True), (8, 16, 4, True), (8, 64, 3, False)],
)


@pytest.mark.usefixtures("code")
@pytest.mark.parametrize("threads", [1, 2])
@BLOCKS
def test_blocks(core, bits, block, blocks, has_zeros, threads) -> None:
    """Few rows and many, of panels of 64 columns and one that is not whole."""
    model = _in_blocks(bits, block, blocks, 214, has_zeros=has_zeros)
    assert _compressed(core, model) == 1
    for rows in (1, 2, 3, 8, 11, 40):
        _check(core, model, rows, block * blocks, threads)


@BLOCKS
@pytest.mark.usefixtures("by_tiles")
def test_blocks_of_tiles(core, bits, block, blocks, has_zeros) -> None:
    """Blocks that share a tile, that have gaps in it, that are several tiles or as large as one."""
    model = _in_blocks(bits, block, blocks, 70, has_zeros=has_zeros)
    for rows in (1, 11):
        _check(core, model, rows, block * blocks)


@pytest.mark.usefixtures("code")
@pytest.mark.parametrize("threads", [1, 2])
def test_more_terms_than_are_unpacked_at_once(core, monkeypatch, threads) -> None:
    monkeypatch.setattr(product, "MOST_TERMS", 70)
    monkeypatch.setattr(on_integers, "PIECE", 70)
    monkeypatch.setattr(on_integers, "LEAST_BLOCK", 1)
    for bits in (4, 8):
        model = _in_blocks(bits, 32, 5, 150, has_zeros=bits == 4)
        for rows in (2, 9, 21):
            _check(core, model, rows, 160, threads)


@with_avx512
@pytest.mark.usefixtures("code")
@pytest.mark.parametrize("bits", [4, 8])
def test_one_scale_for_more_terms_than_are_unpacked_at_once(core, monkeypatch, bits) -> None:
    monkeypatch.setattr(product, "MOST_TERMS", 70)
    monkeypatch.setattr(on_integers, "PIECE", 70)
    model = _in_blocks(bits, 256, 2, 90, has_zeros=False)
    for rows in (2, 9, 21):
        _check(core, model, rows, 512)


@with_avx512
@pytest.mark.parametrize("rows", [3, 40])
def test_without_threads_that_share_work_one_does_it(core, monkeypatch, rows) -> None:
    """As with an oneDNN whose OpenMP is another one; of whole panels and one that is not."""
    q, scales = np.zeros((214, 64), np.uint8), np.ones((214, 2), np.float32)
    panels = product.Panels(4, product.packed(q, 4, 8), product.spread(scales), 214)
    if may_share():
        assert product.code_of(panels, rows, 2).threads == 2
    monkeypatch.setattr(product, "may_share", lambda: False)
    assert product.code_of(panels, rows, 2).threads == 1
    _check(core, _in_blocks(4, 32, 4, 214, has_zeros=False), rows, 128, threads=2)


@with_avx512
def test_room_of_many_threads_is_bounded() -> None:
    q, scales = np.zeros((8192, 2048), np.uint8), np.ones((8192, 1), np.float32)
    panels = product.Panels(4, product.packed(q, 4, 8), product.spread(scales), 8192)
    of_each = 4 * 2048 * 64
    assert 4 * product.room(panels, 1) == of_each
    assert 4 * product.room(panels, 4) == 8 * of_each
    assert 4 * product.room(panels, 24) == 32 * of_each == product.MOST_ROOM_BYTES
    assert 4 * product.room(panels, 64) == 64 * of_each


@pytest.mark.usefixtures("by_tiles")
def test_columns_of_several_tiles(core, monkeypatch) -> None:
    from polydevice_cpu.lowering import compressed

    monkeypatch.setattr(compressed, "MOST_COLUMNS", 64)
    _check(core, _in_blocks(4, 32, 2, 150, has_zeros=False), 2, 64)


@wants("onnxruntime", "1.24", "multiplies blocks of 1024 terms wrong")
@pytest.mark.parametrize(
    ("bits", "block", "blocks", "has_zeros"),
    [(4, 32, 8, True), (4, 32, 34, False), (4, 1024, 2, False), (8, 64, 6, True), (8, 16, 8, True)],
)
@pytest.mark.usefixtures("by_tiles")
def test_many_rows(core, monkeypatch, bits, block, blocks, has_zeros) -> None:
    """Tiles become numbers of f32: of several blocks, of one, and of a part of one."""
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


@pytest.mark.parametrize("rows", [3, 20])
@pytest.mark.parametrize("how", ["code", "by_tiles"])
def test_rows_that_are_no_numbers(core, how, rows, request) -> None:
    """NaN and infinity stay in their rows; a row of zeros gives zeros."""
    if how == "by_tiles":
        request.getfixturevalue("by_tiles")
    model = _in_blocks(4, 64, 1, 65, has_zeros=False)
    x = np.random.default_rng(5).standard_normal((2, rows, 64)).astype(np.float32)
    x[0, 0, 7], x[0, 2, 1], x[1, 1] = np.nan, np.inf, 0
    (answer,) = core.load_network(core.read_network(model), "CPU").infer({"x": x}).values()
    right = reference(model, {"x": x})[0]
    assert (np.isfinite(answer) == np.isfinite(right)).all()
    assert np.isnan(answer[0, 0]).all()
    infinite = np.isinf(right[0, 2])
    np.testing.assert_array_equal(answer[0, 2][infinite], right[0, 2][infinite])
    np.testing.assert_allclose(answer[1], right[1], rtol=1e-4, atol=1e-4)
    assert (answer[1, 1] == 0).all()


@pytest.mark.usefixtures("by_tiles")
def test_what_is_told(core) -> None:
    """The code that runs, or why it is none for integers, also of a layer that became several."""
    model = _in_blocks(4, 32, 2, 65, has_zeros=True)
    network = core.load_network(core.read_network(model), "CPU")
    network.infer({"x": np.ones((2, 1, 64), np.float32)})
    (line,) = [line for line in network.explain().splitlines() if "MatMul " in line]
    assert ("tiles of 4 bits" in line) != ("with oneDNN's primitive: " in line), line


@with_avx512
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("bits", [4, 8])
def test_nothing_beside_is_read_or_written(side, bits) -> None:
    """Rows, results and room between pages that must not be touched; the arrays of integers too."""
    rng = np.random.default_rng(bits)

    def placed(array):
        place = guarded(side, array.nbytes)[: array.nbytes].view(array.dtype).reshape(array.shape)
        place[...] = array
        return place

    for columns, terms, block in ((64, 32, 16), (130, 96, 32), (33, 64, 64)):
        low, high = (0, 16) if bits == 4 else (-128, 128)
        q = rng.integers(low, high, (columns, terms)).astype(np.uint8 if bits == 4 else np.int8)
        scales = rng.uniform(0.1, 1, (columns, terms // block)).astype(np.float32)
        center = 8 if bits == 4 else 0
        panels = product.Panels(
            bits,
            placed(product.packed(q, bits, center)),
            placed(product.spread(scales)),
            columns,
        )
        matrix = ((q.astype(float) - center) * scales.repeat(block, axis=1)).T
        for rows in (1, 3, 4, 18, 30):
            x = placed(rng.standard_normal((rows, terms)).astype(np.float32))
            y = placed(np.full((rows, columns), np.nan, np.float32))
            room = placed(np.zeros(product.room(panels, 1), np.float32))
            call = product.code_of(panels, rows, 1).bound([address_of(a) for a in (x, x, y, room)])
            for _ in range(2):
                y[...] = np.nan
                assert call() == 0
                np.testing.assert_allclose(y, x @ matrix, rtol=1e-4, atol=1e-4)
            product.multiplied(panels, x, y)
            np.testing.assert_allclose(y, x @ matrix, rtol=1e-4, atol=1e-4)


@with_avx512
@pytest.mark.usefixtures("code")
@pytest.mark.parametrize("block", [32, 64])
def test_any_number_of_rows(core, block) -> None:
    """Texts of changing lengths, whose plans are tables; one of few rows after one of many."""
    model = _in_blocks(4, block, 128 // block, 100, has_zeros=True)
    network = core.load_network(core.read_network(model), "CPU", {"CPU_THREADS_NUM": 1})
    request = network.create_infer_request()
    for seed, rows in enumerate([3, 40, 9, 8, 60, 1, 2, 33, 7, 50, 4]):
        x = np.random.default_rng(seed).standard_normal((2, rows, 128)).astype(np.float32)
        if seed == 5:
            assert isinstance(request.runner.bound.plan, TablePlan)
        wanted = reference(model, {"x": x})[0]
        for _ in range(2):
            np.testing.assert_allclose(request.infer({"x": x})["y"], wanted, rtol=1e-3, atol=1e-4)
