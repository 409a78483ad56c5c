"""Matrices of 4 and 8 bits in networks that leave their number of rows open."""

from __future__ import annotations

import dataclasses
import re
import threading

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice.dtype import ElementType
from polydevice.errors import PolydeviceError
from polydevice.network import Network
from polydevice.node import Node, constant
from polydevice.ops.arithmetic import Multiply, Subtract
from polydevice.ops.convert import Convert
from polydevice.ops.io import Constant, Parameter, Result
from polydevice.ops.matmul import MatMul
from polydevice.ops.reshape import Reshape
from polydevice.shape import Dim, Shape
from polydevice_gpu.cl.programs.program import ProgramBuilder
from polydevice_gpu.compiler import preparation
from polydevice_gpu.compiler.compiler import Compiler
from polydevice_gpu.compiler.device_target import target_of
from polydevice_gpu.rewrites.compressed import hold_matrices
from tests.cpu import models
from tests.cpu.loading import image

TERMS, COLUMNS, BLOCK = 256, 83, 64
BLOCKS = TERMS // BLOCK
ROWS = ((1, 1), (1, 3), (2, 2), (1, 5), (5, 8))
MS = "com.microsoft"


@pytest.fixture(autouse=True, params=["few rows", "any rows"])
def takes_any(request, monkeypatch, opencl) -> bool:
    """Whether matrices are read as they are for any number of rows, as by processors.

    Small matrices are held as well, and no device makes floats for likely sizes.
    """
    takes_any = request.param == "any rows"
    if takes_any and target_of(opencl).is_throughput:
        pytest.skip("GPUs make floats for many rows")

    def hold(network, evaluate, target):
        lanes = 1 if takes_any else 32
        target = dataclasses.replace(target, scalar_lanes=lanes)
        return hold_matrices(network, evaluate, target, least=1)

    monkeypatch.setattr(Compiler, "builds_ahead", False)
    monkeypatch.setattr(preparation, "hold_matrices", hold)
    return takes_any


def made(nodes, stored, terms=TERMS, element_type=TensorProto.FLOAT, outputs=("y",)) -> bytes:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "open",
        [info("x", element_type, ["n", "length", terms])],
        [info(name, element_type, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in stored.items()],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()


def bits_of(bits, *, zeros=True, floats=np.float32):
    """A node and constants, random, of which floats are exact in f16."""
    rng = np.random.default_rng(bits)
    stored = {"w": rng.integers(0, 256, (COLUMNS, BLOCKS, BLOCK * bits // 8)).astype(np.uint8)}
    stored["s"] = rng.uniform(0.01, 0.1, (COLUMNS, BLOCKS)).astype(np.float16).astype(floats)
    if zeros:
        stored["z"] = rng.integers(0, 256, (COLUMNS, BLOCKS * bits // 8)).astype(np.uint8)
    attributes = {"K": TERMS, "N": COLUMNS, "bits": bits, "block_size": BLOCK}
    return helper.make_node("MatMulNBits", ["x", *stored], ["y"], domain=MS, **attributes), stored


def of_bits(bits, **how) -> bytes:
    node, stored = bits_of(bits, **how)
    return made([node], stored)


def dequantised(*, gathered=False, terms=TERMS) -> bytes:
    """Of 8 bits a number for each column; the rows of the matrix may be looked up as well."""
    rng = np.random.default_rng(3)
    stored = {"w": rng.integers(-128, 128, (TERMS, COLUMNS)).astype(np.int8)}
    stored["s"] = rng.uniform(0.01, 0.1, COLUMNS).astype(np.float32)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=1),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    if gathered:
        stored["at"] = np.array([5, 0, 7], np.int64)
        nodes.append(helper.make_node("Gather", ["d", "at"], ["rows"]))
        nodes.append(helper.make_node("ReduceSum", ["rows"], ["sum"], keepdims=0))
        nodes[1] = helper.make_node("MatMul", ["x", "d"], ["p"])
        nodes.append(helper.make_node("Add", ["p", "sum"], ["y"]))
    return made(nodes, stored, terms)


def near(got, wanted, tolerance=1e-5) -> None:
    scale = np.abs(wanted).max(initial=0)
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance * scale)


def weights_of(executable) -> int:
    """Bytes of constants, as the last plan has them."""
    found = re.search(r"weights (\d+) bytes", executable.explain())
    assert found
    return int(found[1])


MODELS = {
    "4 bits": lambda: of_bits(4),
    "8 bits": lambda: of_bits(8),
    "4 bits without zero points": lambda: of_bits(4, zeros=False),
    "DequantizeLinear": dequantised,
}


@pytest.fixture
def built(monkeypatch) -> list[str]:
    """Names of the programs that are built."""
    names: list[str] = []
    build_all = ProgramBuilder.build_all

    def noted(self, sources):
        names.extend(source.name for source in sources)
        return build_all(self, sources)

    monkeypatch.setattr(ProgramBuilder, "build_all", noted)
    return names


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_few_rows_and_many_in_turn(core, opencl, built, model, takes_any) -> None:
    """The floats are made for the first many rows, and nothing is when all have been there.

    Where no floats are, one program serves all of them.
    """
    content = model()
    executable = core.load_network(core.read_network(content), "GPU")
    request = executable.create_infer_request()
    floats = TERMS * COLUMNS * 4
    for turn in range(3):
        built.clear()
        for number, rows in enumerate(ROWS):
            x = image(number, *rows, TERMS)
            (got,) = request.infer({"x": x}).values()
            near(got, *models.answer(content, {"x": x}))
            few = not turn and rows[0] * rows[1] <= 4
            assert (weights_of(executable) < floats / 2) == (few or takes_any)
            assert not takes_any or not number or not any("matmul" in name for name in built)
            if takes_any:
                built.clear()
        assert not turn or not built or opencl.capabilities.local_memory_is_dedicated
    assert weights_of(executable) < 1.6 * floats  # one of floats, beside the other


@pytest.mark.parametrize("kind", [ElementType.u8, ElementType.i8, ElementType.u4])
def test_decompression_written_out(core, kind, takes_any) -> None:
    """As IR files have it: (Convert(w) - Convert(z)) * s of halves, in blocks, made f32 at last."""
    rng = np.random.default_rng(6)
    sizes, few = (COLUMNS, BLOCKS, BLOCK), (COLUMNS, BLOCKS, 1)
    low, high = {ElementType.u8: (0, 256), ElementType.i8: (-128, 128)}.get(kind, (0, 16))
    q, z = (rng.integers(low, high, each).astype(kind.dtype) for each in (sizes, few))
    s = rng.uniform(0.01, 0.1, few).astype(np.float16)
    x = Node("x", Parameter(ElementType.f32, Shape([Dim(), TERMS])))
    wide = [
        Node(name, Convert(destination_type=ElementType.f16), [Node(f"{name}/q", op).output])
        for name, op in (("w", Constant(q, kind)), ("z", Constant(z, kind)))
    ]
    less = Node("less", Subtract(), [each.output for each in wide])
    scaled = Node("scaled", Multiply(), [less.output, constant("s", s).output])
    target = constant("shape", np.array([COLUMNS, TERMS], np.int64)).output
    whole = Node("whole", Reshape(special_zero=False), [scaled.output, target])
    floats = Node("floats", Convert(destination_type=ElementType.f32), [whole.output])
    y = Node("y", MatMul(transpose_b=True), [x.output, floats.output])
    network = Network("n", [x], [Node("y/result", Result(output_name="y"), [y.output])])
    executable = core.load_network(network, "GPU")
    matrix = ((q.astype(float) - z) * s).reshape(COLUMNS, TERMS)
    for rows in (1, 4, 9):
        given = image(rows, rows, TERMS)
        (got,) = executable.infer({"x": given}).values()
        is_kept = takes_any or rows <= 4
        near(got, given @ matrix.T, 1e-5 if is_kept else 1e-3)  # numbers of halves are rounded
        assert (weights_of(executable) < TERMS * COLUMNS * 2) == is_kept


def test_halves(core) -> None:
    node, stored = bits_of(4, floats=np.float16)
    halves = made([node], stored, element_type=TensorProto.FLOAT16)
    executable = core.load_network(core.read_network(halves), "GPU")
    for number, rows in enumerate(ROWS):
        x = image(number, *rows, TERMS).astype(np.float16)
        (got,) = executable.infer({"x": x}).values()
        assert got.dtype == np.float16
        near(got, *models.answer(of_bits(4), {"x": x.astype(np.float32)}), 4e-3)


def test_no_rows_and_numbers_that_are_none(core) -> None:
    content = of_bits(4)
    executable = core.load_network(core.read_network(content), "GPU")
    for rows in (2, 0, 6, 1):
        x = image(rows, 1, rows, TERMS)
        x[:, :1, 3], x[:, 1:2, 5] = np.nan, np.inf
        (got,) = executable.infer({"x": x}).values()
        (wanted,) = models.answer(content, {"x": x})
        assert got.shape == wanted.shape
        np.testing.assert_array_equal(np.isfinite(got), np.isfinite(wanted))
        np.testing.assert_array_equal(np.isnan(got[:, :1]), np.isnan(wanted[:, :1]))
        near(got[:, 2:], wanted[:, 2:])


def test_what_is_read_as_floats_as_well_is_held_once(core) -> None:
    content = dequantised(gathered=True)
    executable = core.load_network(core.read_network(content), "GPU")
    for rows in (1, 7):
        x = image(rows, 1, rows, TERMS)
        (got,) = executable.infer({"x": x}).values()
        near(got, *models.answer(content, {"x": x}))
        assert (
            TERMS * COLUMNS * 4 <= weights_of(executable) < TERMS * COLUMNS * 5
        )  # in columns of 16
    assert not executable._prepared.matrices


def test_one_matrix_of_two_products(core) -> None:
    node, stored = bits_of(4)
    nodes = [
        node,
        helper.make_node("Neg", ["x"], ["less"]),
        helper.make_node("Exp", ["less"], ["other"]),
    ]
    again = helper.make_node(
        "MatMulNBits", ["other", *stored], ["again"], domain=MS,
        K=TERMS, N=COLUMNS, bits=4, block_size=BLOCK,
    )  # fmt: skip
    content = made([*nodes, again], stored, outputs=("y", "again"))
    executable = core.load_network(core.read_network(content), "GPU")
    for rows in (3, 9):
        x = image(rows, 1, rows, TERMS)
        for got, wanted in zip(
            executable.infer({"x": x}).values(), models.answer(content, {"x": x}), strict=True
        ):
            near(got, wanted)


@pytest.mark.parametrize("count", [2, 30])
def test_rows_that_an_inference_tells(core, count) -> None:
    """How many there are is known behind them only."""
    node, stored = bits_of(4)
    stored["i"] = np.array([0], np.int64)
    nodes = [
        helper.make_node("Squeeze", ["x", "i"], ["rows"]),
        helper.make_node("ReduceSum", ["rows", "one"], ["sums"], keepdims=0),
        helper.make_node("NonZero", ["sums"], ["which"]),
        helper.make_node("Squeeze", ["which", "i"], ["at"]),
        helper.make_node("Gather", ["rows", "at"], ["found"]),
    ]
    stored["one"] = np.array([1], np.int64)
    node.input[0] = "found"
    content = made([*nodes, node], stored)
    executable = core.load_network(core.read_network(content), "GPU")
    x = np.zeros((1, 40, TERMS), np.float32)
    x[0, :count] = image(count, count, TERMS)
    (got,) = executable.infer({"x": x}).values()
    near(got, *models.answer(content, {"x": x}))


def test_rows_of_other_lengths_are_refused(core) -> None:
    """Terms are open as well; kernels would read beyond the rows."""
    content = dequantised(terms="terms")
    executable = core.load_network(core.read_network(content), "GPU")
    for rows in (1, 6):
        x = image(rows, 1, rows, TERMS)
        (got,) = executable.infer({"x": x}).values()
        near(got, *models.answer(content, {"x": x}))
        for terms in (TERMS - 16, TERMS + 1):
            with pytest.raises(PolydeviceError):
                executable.infer({"x": image(1, 1, rows, terms)})


def test_exported_networks(core, takes_any) -> None:
    content = of_bits(4)
    executable = core.load_network(core.read_network(content), "GPU")
    inputs = [{"x": image(rows, 1, rows, TERMS)} for rows in (1, 6)]
    wanted = [models.answer(content, given) for given in inputs]
    for given in inputs:
        executable.infer(given)
    again = core.import_network(executable.export(), "GPU")
    for given, (right,) in zip(inputs, wanted, strict=True):
        (got,) = again.infer(given).values()
        near(got, right)
        is_kept = takes_any or given is inputs[0]
        assert (weights_of(again) < TERMS * COLUMNS * 2) == is_kept


def test_requests_in_many_threads_make_the_floats_once(core) -> None:
    content = of_bits(4)
    executable = core.load_network(core.read_network(content), "GPU", {"GPU_THROUGHPUT_STREAMS": 4})
    answers: dict[int, np.ndarray] = {}

    def run(rows: int) -> None:
        request = executable.create_infer_request()
        (answers[rows],) = request.infer({"x": image(rows, 1, rows, TERMS)}).values()

    threads = [threading.Thread(target=run, args=(rows,)) for rows in (1, 5, 6, 7, 8, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == len(threads)
    for rows, got in answers.items():
        near(got, *models.answer(content, {"x": image(rows, 1, rows, TERMS)}))
    assert weights_of(executable) < 1.6 * TERMS * COLUMNS * 4


def test_devices_that_build_ahead_do_so_for_single_rows(core, monkeypatch, built) -> None:
    monkeypatch.setattr(Compiler, "builds_ahead", True)
    content = of_bits(4)
    executable = core.load_network(core.read_network(content), "GPU")
    assert any("compressed" in name for name in built)
    built.clear()
    for rows in (1, 40):
        x = image(rows, 1, rows, TERMS)
        (got,) = executable.infer({"x": x}).values()
        near(got, *models.answer(content, {"x": x}))
        assert not built
