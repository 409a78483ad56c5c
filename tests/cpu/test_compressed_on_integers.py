"""Matrices of 4 and 8 bits are multiplied on integers, or in tiles: exactly, or as is allowed."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice_cpu.algorithms.by_machine.compressed import packing, product
from polydevice_cpu.onednn.engine import address_of
from polydevice_cpu.passes.integers import compressed as compressing
from tests.absent import wants
from tests.cpu.machine_code import missing_avx512, missing_tiles, needs
from tests.cpu.quantised_graphs import reference
from tests.guard_pages import SIDES, guarded

with_products_of_bytes = needs(missing_avx512("avx512_vnni"))
with_tiles = needs(missing_tiles("avx512_vnni", "amx_bf16"))


@pytest.fixture(autouse=True)
def small_matrices(monkeypatch) -> None:
    monkeypatch.setattr(compressing, "LEAST_ELEMENTS", 1)


def _model(bits, block, blocks, columns, *, level=0) -> bytes:
    """MatMulNBits with random integers, and scales of both signs and of very different sizes."""
    rng = np.random.default_rng(bits + block)
    packed = rng.integers(0, 256, (columns, blocks, block * bits // 8)).astype(np.uint8)
    scales = rng.standard_normal((columns, blocks)) * 10.0 ** rng.integers(-2, 2, (columns, 1))
    stored = {"w": packed, "s": scales.astype(np.float32)}
    node = helper.make_node(
        "MatMulNBits", ["x", *stored], ["y"], domain="com.microsoft",
        K=block * blocks, N=columns, bits=bits, block_size=block, accuracy_level=level,
    )  # fmt: skip
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", block * blocks])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", columns])],
        [numpy_helper.from_array(array, name) for name, array in stored.items()],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()


def _rows(rows, terms) -> np.ndarray:
    """Rows of very different sizes; of one block in each, numbers are small."""
    rng = np.random.default_rng(rows)
    x = rng.standard_normal((rows, terms)) * 10.0 ** rng.integers(-20, 20, (rows, 1))
    x[:, :16] *= 1e-3
    return x.astype(np.float32)


def _numbers(model) -> np.ndarray:
    """The matrix [terms, columns] of a model, by ONNX Runtime."""
    eye = np.eye(_terms(model), dtype=np.float32)
    return reference(model, {"x": eye})[0]


def _terms(model) -> int:
    import onnx

    (node,) = onnx.load_from_string(model).graph.node
    return next(each.i for each in node.attribute if each.name == "K")


@with_products_of_bytes
@wants("onnxruntime", "1.23", "multiplies 8 bits otherwise")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("bits", "block", "blocks"), [(4, 32, 4), (4, 128, 2), (8, 32, 3)])
def test_rows_are_rounded_as_the_model_allows(core, bits, block, blocks, threads) -> None:
    """With accuracy_level 4, as ONNX Runtime: of 8 bits, each block with a factor of its own.

    A number at half a step may be rounded to either side: 1 of 127 steps of its block, times a
    weight. Most answers have none such, and are the same but for roundings of f32.
    """
    model = _model(bits, block, blocks, 150, level=4)
    plain = _model(bits, block, blocks, 150)
    matrix, terms = np.abs(_numbers(plain)), block * blocks
    request = core.load_network(
        core.read_network(model), "CPU", {"CPU_THREADS_NUM": threads}
    ).create_infer_request()
    for rows in (1, 2, 5, 7, 40):
        x = _rows(rows, terms)
        steps = np.abs(x.reshape(rows, blocks, block)).max(axis=2) / 127
        one = (steps.repeat(block, axis=1)[..., np.newaxis] * matrix).max(axis=1)
        exact, rounded = reference(plain, {"x": x})[0], reference(model, {"x": x})[0]
        reach = np.abs(x) @ matrix
        for _ in range(2):
            answer = request.infer({"x": x})["y"]
            away = np.abs(answer - rounded)
            assert (away <= one + 1e-5 * reach).all()
            assert np.mean(away <= 1e-5 * reach) > 0.9
            assert np.mean(np.abs(answer - exact) <= 1e-5 * reach) < 0.1


@with_products_of_bytes
@pytest.mark.parametrize("how", ["written", "exported", "pickled"])
def test_what_a_model_allows_is_kept(core, how, tmp_path) -> None:
    """By files of IR, of compiled networks, and copies."""
    model, x = _model(4, 32, 4, 70, level=4), _rows(5, 128)
    network = core.read_network(model)
    wanted = core.load_network(network, "CPU").infer({"x": x})["y"]
    if how == "written":
        core.read_network(model).serialize(tmp_path / "copy.xml")
        network = core.read_network(tmp_path / "copy.xml")
    elif how == "pickled":
        network = pickle.loads(pickle.dumps(core.read_network(model)))
    executable = core.load_network(network, "CPU")
    if how == "exported":
        executable = core.import_network(executable.export(), "CPU")
    np.testing.assert_array_equal(executable.infer({"x": x})["y"], wanted)
    exact = core.load_network(core.read_network(_model(4, 32, 4, 70)), "CPU").infer({"x": x})["y"]
    assert not np.array_equal(wanted, exact)


@with_products_of_bytes
def test_integers_may_be_forbidden(core) -> None:
    model = _model(4, 32, 4, 70, level=4)
    x = _rows(5, 128)
    answer = core.load_network(core.read_network(model), "CPU", {"LP_TRANSFORMS_MODE": "NO"}).infer(
        {"x": x}
    )["y"]
    exact = reference(_model(4, 32, 4, 70), {"x": x})[0]
    reach = np.abs(x) @ np.abs(_numbers(_model(4, 32, 4, 70)))
    assert (np.abs(answer - exact) <= 1e-5 * reach).all()


@with_products_of_bytes
@pytest.mark.parametrize(("size", "group"), [(16, 16), (40, 32), (1000, 64)])
@pytest.mark.parametrize("bits", [4, 8])
def test_groups_of_rows_are_rounded_by_wish(core, bits, size, group) -> None:
    """Half a step of 127 of the largest of each group at most, and a part of that as a rule."""
    model = _model(bits, 64, 3, 70)
    how = {"DYNAMIC_QUANTIZATION_GROUP_SIZE": size}
    network = core.load_network(core.read_network(model), "CPU", how)
    matrix = np.abs(_numbers(model))
    for rows in (1, 3, 9, 30):
        x = _rows(rows, 192)
        halves = np.abs(x.reshape(rows, -1, group)).max(axis=2).repeat(group, axis=1) / 254
        away = np.abs(network.infer({"x": x})["y"] - reference(model, {"x": x})[0])
        assert (away <= halves @ matrix + 1e-5 * (np.abs(x) @ matrix)).all()
        assert np.mean(away > 1e-5 * (np.abs(x) @ matrix)) > 0.9


@with_products_of_bytes
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("digits", [1, 3])
@pytest.mark.parametrize("bits", [4, 8])
def test_nothing_beside_is_read_or_written(side, bits, digits) -> None:
    """Rows, results and room between pages that must not be touched; the arrays of integers too."""
    for columns, terms, block in ((64, 32, 16), (130, 96, 24), (33, 64, 8), (70, 192, 64)):
        _check_beside(side, (bits, columns, terms, block), digits, (1, 2, 3, 5, 18))


@with_tiles
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("bits", [4, 8])
def test_nothing_beside_tiles_is_read_or_written(monkeypatch, side, bits) -> None:
    """The same of steps of 8, 16 and 32 terms, whole blocks at once and parts of one."""
    assert product.has_tiles("amx_bf16")
    monkeypatch.setattr(product, "MOST_FEW", 0)
    monkeypatch.setattr(product, "LEAST_BLOCK", 1)
    monkeypatch.setattr(product, "PIECE", 96)
    monkeypatch.setattr(packing, "MOST_TERMS", 112)
    for columns, terms, block in ((64, 48, 16), (130, 96, 24), (33, 64, 8), (70, 448, 224)):
        _check_beside(side, (bits, columns, terms, block), 3, (1, 15, 16, 17, 32, 33, 70))


def _check_beside(side, sizes, digits, many_rows) -> None:
    bits, columns, terms, block = sizes
    rng = np.random.default_rng(columns)

    def placed(array):
        place = guarded(side, array.nbytes)[: array.nbytes].view(array.dtype).reshape(array.shape)
        place[...] = array
        return place

    low, high = (0, 16) if bits == 4 else (-128, 128)
    q = rng.integers(low, high, (columns, terms)).astype(np.uint8 if bits == 4 else np.int8)
    scales = rng.uniform(0.1, 1, (columns, terms // block)).astype(np.float32)
    center = 8 if bits == 4 else 0
    packed, spread = packing.packed(q, bits, center), packing.spread(scales, block)
    matrix = packing.Matrix(bits, placed(packed), placed(spread), columns, terms)
    wanted = ((q.astype(float) - center) * scales.repeat(block, axis=1)).T
    for rows in many_rows:
        given = rng.standard_normal((rows, terms)).astype(np.float32)
        x, y = placed(given), placed(np.full((rows, columns), np.nan, np.float32))
        size = product.room(matrix, rows, digits, 1)
        room = placed(np.full(size, 255, np.uint8))
        code = product.code_of(matrix, rows, digits, 1)
        call = code.bound([address_of(a) for a in (x, y, room)])
        reach = (np.abs(given) @ np.abs(wanted)).max()
        for _ in range(2):
            y[...] = np.nan
            assert call() == 0
            assert np.abs(y - given @ wanted).max() <= (1e-5 if digits == 3 else 1e-2) * reach
        product.multiplied(matrix, x, y)
        assert np.abs(y - given @ wanted).max() <= 1e-5 * reach
        for number in (np.nan, -np.inf):
            x[rows - 1, terms - 1] = number
            assert call() & 0xFFFFFFFF == 1


@with_products_of_bytes
def test_sums_of_long_blocks_fit() -> None:
    """The largest digits times the largest bytes; blocks that might not fit are left to floats."""
    assert product.has_code(8, 8 * 4099)
    assert product.has_code(8, 8 * 12503 * 128)
    assert not product.has_code(8, 8 * 12503)
    terms = 8 * 4099
    q = np.full((64, terms), 127, np.int8)
    q[1::2] = -128
    matrix = packing.Matrix(
        8, packing.packed(q, 8, 0), packing.spread(np.ones((64, 1), np.float32), terms), 64, terms
    )
    for digits in (1, 3):
        x = np.ones((3, terms), np.float32)
        x[1], x[2, ::2] = -1, -1
        y = np.empty((3, 64), np.float32)
        room = np.empty(product.room(matrix, 3, digits, 1), np.uint8)
        call = product.code_of(matrix, 3, digits, 1).bound([address_of(a) for a in (x, y, room)])
        assert call() == 0
        reach = np.abs(q.astype(float)).sum(axis=1)
        assert (np.abs(y - x.astype(float) @ q.T.astype(float)) <= 1e-6 * reach).all()


@with_products_of_bytes
def test_integers_with_another_center() -> None:
    """Signed ones of 4 bits, and unsigned ones of 8."""
    rng = np.random.default_rng(1)
    for bits, kind, low, high, center in (
        (4, np.int8, -8, 8, 0),
        (8, np.uint8, 0, 256, 128),
    ):
        q = rng.integers(low, high, (70, 32)).astype(kind)
        scales = np.ones((70, 2), np.float32)
        packed = packing.packed(q, bits, center)
        matrix = packing.Matrix(bits, packed, packing.spread(scales, 16), 70, 32)
        np.testing.assert_array_equal(packing.as_floats(matrix), q.astype(np.float32) - center)
