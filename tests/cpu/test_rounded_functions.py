"""Functions of what has been rounded to 16 bits, which are looked up."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from polydevice_cpu.algorithms.by_machine.indexed import levels
from polydevice_cpu.algorithms.by_machine.indexed.levels import Grid
from polydevice_cpu.onednn.engine import address_of
from polydevice_cpu.onednn.library import library
from tests.cpu.machine_code import missing_avx512, missing_tiles, with_vectors
from tests.cpu.quantised_graphs import Graph, check, pick
from tests.guard_pages import SIDES, guarded

GRIDS = [Grid(3e-3, 0, -32768), Grid(2e-5, 0, 0), Grid(0.7, 65535, 0), Grid(0.02, -777, -32768)]

with_library = pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")


def numbers(rng, grid, count):
    """Numbers of a grid, both ends among them, and their levels from 0."""
    found = rng.integers(0, 65536, count)
    found[: min(count, 2)] = [0, 65535][: min(count, 2)]
    x = (found + grid.least - grid.zero).astype(np.float32) * np.float32(grid.scale)
    return x, found


@with_vectors
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 31, 33, 100, 1000])
@pytest.mark.parametrize("grid", GRIDS)
def test_any_number_of_numbers(count, grid, side):
    rng = np.random.default_rng(count)
    x, found = numbers(rng, grid, count)
    table = guarded(side, 4 * 65536).view(np.float32)
    table[...] = rng.normal(size=65536)
    source, got = (guarded(side, x.nbytes).view(np.float32) for _ in range(2))
    source[...] = x
    code = levels.code(grid, table, count, 1)
    assert code is not None
    call = code.bound([address_of(source), address_of(got)])
    for _ in range(2):
        assert call() == 0
        np.testing.assert_array_equal(got, table[found])
    np.testing.assert_array_equal(levels.looked_up(grid, table, x), table[found])


@with_vectors
def test_many_numbers_by_threads():
    rng = np.random.default_rng(3)
    x, found = numbers(rng, GRIDS[3], 200_001)
    table = rng.normal(size=65536).astype(np.float32)
    code = levels.code(GRIDS[3], table, x.size, 2)
    got = np.empty_like(x)
    assert code is not None
    assert code.bound([address_of(x), address_of(got)])() == 0
    np.testing.assert_array_equal(got, table[found])


@with_vectors
def test_what_is_no_number_of_the_grid_is_the_nearest_one():
    """NaN is the least one, as where machine code rounds it."""
    grid = Grid(0.25, 5, -32768)
    x = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 0.25, -0.0], np.float32)
    table = np.arange(65536, dtype=np.float32)
    wanted = [0, 65535, 0, 65535, 0, 32768 + 5 + 1, 32768 + 5]
    got, code = np.empty_like(x), levels.code(grid, table, x.size, 1)
    assert code is not None
    assert code.bound([address_of(x), address_of(got)])() == 0
    np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(levels.looked_up(grid, table, x), wanted)


def gelu(g, x, rounded):
    root = g.store(np.float32(np.sqrt(2)))
    one, half = g.store(np.float32(1)), g.store(np.float32(0.5))
    y = rounded(g.emit("Erf", g.emit("Div", x, root)), 4e-5)
    y = rounded(g.emit("Mul", x, rounded(g.emit("Add", y, one), 8e-5)), 4e-4)
    return g.emit("Mul", y, half)


FUNCTIONS = {
    "silu": lambda g, x, rounded: g.emit("Mul", x, rounded(g.emit("Sigmoid", x), 4e-5)),
    "gelu": gelu,
    "tanh": lambda g, x, _: g.emit("Tanh", x),
    "softplus": lambda g, x, rounded: rounded(g.emit("Softplus", g.emit("Neg", x)), 2e-4),
}


@with_library
@pytest.mark.parametrize("kind", FUNCTIONS)
@pytest.mark.parametrize("seed", range(6))
def test_functions_between_roundings(core, kind, seed):
    g = Graph(np.random.default_rng(seed))
    dtype = pick(g.rng, np.uint16, np.int16)
    middle = 0x8000 + np.iinfo(dtype).min

    def rounded(y: str, scale: float) -> str:
        zero = int(middle + g.rng.integers(-900, 900))
        return g.quantised_by(y, g.parameters(dtype, scale, zero))

    shape = 2, 20, 31, 37
    weights = g.store((g.rng.normal(size=(20, 20, 1, 1)) * 0.3).astype(np.float32))
    x = rounded(g.emit("Conv", "x", weights), 3e-4)
    if g.rng.random() < 0.5:
        x = g.emit("Transpose", x, perm=[0, 2, 3, 1])
    y = rounded(FUNCTIONS[kind](g, x, rounded), 2e-4)
    results = {y: 6.1e-4}  # a step of the convolution, and what follows from it
    if g.rng.random() < 0.5:  # other readers of what is rounded
        y = g.emit("Relu", g.emit("Add", y, x))
        results = {y: 9.1e-4}
    model = g.model(shape, np.float32, dict.fromkeys(results, np.float32), opset=21)
    feed = {"x": g.rng.normal(size=shape).astype(np.float32)}
    found = check(core, model, feed, results, least="")
    assert ("RoundedFunction" in found) is (not missing_avx512()), found


def of_size(kind, rows):
    g = Graph(np.random.default_rng(1))

    def rounded(y, scale):
        return g.quantised_by(y, g.parameters(np.int16, scale, 0))

    x = rounded("x", 2e-4)
    y = rounded(kind(g, x), 2e-4)
    model = g.model((rows, 64), np.float32, {y: np.float32}, opset=21)
    feed = {"x": g.rng.normal(size=(rows, 64)).astype(np.float32)}
    return model, feed, {y: 4.1e-4}


@with_library
@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        (lambda g, x: g.emit("Sigmoid", x), 30),  # few numbers
        (lambda g, x: g.emit("Abs", x), 1000),  # nothing that takes long
        (lambda g, x: g.emit("Mul", g.emit("Sigmoid", x), "x"), 1000),  # of two values
        (lambda g, x: g.emit("Mul", g.emit("Tanh", x), g.store(np.ones(64, "f"))), 1000),
    ],
)
def test_other_functions_are_computed(core, kind, rows):
    model, feed, results = of_size(kind, rows)
    found = check(core, model, feed, results, least="")
    looked_up = [each for each in found if "RoundedFunction" in each]
    assert len(looked_up) <= 1 and ("Multiply" in "".join(found) or not looked_up), found


@with_library
def test_functions_that_are_no_numbers_somewhere_are_computed(core):
    model, feed, results = of_size(lambda g, x: g.emit("Abs", g.emit("Log", x)), 1000)
    feed = {"x": np.abs(feed["x"]) + 0.1}
    found = check(core, model, feed, results, least="")
    assert "RoundedFunction" not in found, found


@with_library
def test_what_was_looked_up_is_rounded_for_products(core):
    """A product that follows multiplies digits, as it does behind a rounding."""
    g = Graph(np.random.default_rng(2))
    x = g.quantised_by("x", g.parameters(np.int16, 2e-4, 0))
    y = g.quantised_by(g.emit("Tanh", x), g.parameters(np.int16, 4e-5, 0))
    y = g.emit("Conv", y, g.weights((40, 64, 1, 1), 0))
    model = g.model((1, 64, 30, 30), np.float32, {y: np.float32}, opset=21)
    feed = {"x": g.rng.normal(size=(1, 64, 30, 30)).astype(np.float32)}
    check(core, model, feed, {y: 3e-3}, least="")
    executable = core.load_network(core.read_network(model), "CPU")
    kinds = {step.type: step.implementation for step in executable.latest_plan().steps}
    assert missing_tiles("amx_int8", "fsrm") or "amx" in str(kinds["Convolution"])


@with_library
def test_empty_and_open_shapes(core):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64])
    g = Graph(np.random.default_rng(5))
    y = g.quantised_by("x", g.parameters(np.int16, 2e-4, 0))
    y = g.quantised_by(g.emit("Sigmoid", y), g.parameters(np.int16, 4e-5, 0))
    out = helper.make_tensor_value_info(y, TensorProto.FLOAT, None)
    graph = helper.make_graph(g.nodes, "g", [x], [out], g.stored)
    imports = [helper.make_opsetid("", 21)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
    executable = core.load_network(core.read_network(model), "CPU")
    for rows in (0, 3, 1000, 5):
        given = g.rng.normal(size=(rows, 64)).astype(np.float32)
        (got,) = executable.infer({"x": given}).values()
        wanted = np.rint(1 / (1 + np.exp(-np.rint(given / 2e-4) * 2e-4)) / 4e-5) * 4e-5
        assert np.abs(got - np.clip(wanted, 0, 32767 * 4e-5)).max(initial=0) <= 4.1e-5
