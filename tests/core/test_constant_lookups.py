"""Lookups at places that constants tell are made ahead; ONNX Runtime judges what comes out."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice import Core
from polydevice.errors import PolydeviceError
from polydevice.ops.gather import Gather
from polydevice.rewrites.look_up_constants import look_up_constants
from tests.cpu.models import answer, build

F = np.float32
RNG = np.random.default_rng(4)
POSITIONS = np.arange(9)[None]

SIZES = [
    ("Shape", ["x"], ["shape"], {}),
    ("Gather", ["shape", "at_0"], ["n"], {}),
    ("Gather", ["shape", "at_1"], ["l"], {}),
    ("Concat", ["n", "l"], ["both"], {"axis": 0}),
]
SLICED = ("Slice", ["places", "zero", "l", "axis"], ["some"], {})
LOOKED_UP = [
    ("Gather", ["table", "some"], ["rows"], {"axis": 0}), ("Add", ["x", "rows"], ["y"], {}),
]  # fmt: skip


def read(nodes, places, outputs=("y",), table=None, axis=1):
    table = RNG.normal(size=(9, 5)).astype(F) if table is None else table
    weights = {"at_0": [0], "at_1": [1], "zero": [0], "axis": [axis]}
    constants = {name: np.array(value) for name, value in weights.items()}
    constants |= {"table": table, "places": np.asarray(places)}
    return build([*SIZES, *nodes], {"x": ["n", "l", 5]}, outputs, constants, opset=18)


def check(model, sizes=((2, 3), (1, 9), (4, 1), (2, 3))):
    """The number of lookups that were made ahead, and of those that are left."""
    with Core() as core:
        network = core.read_network(model)
        made = look_up_constants(network)
        left = [node for node in network.nodes() if isinstance(node.op, Gather)]
        assert look_up_constants(network) == 0
        for executable in (core.load_network(network, "CPU"), core.load_network(model, "CPU")):
            for n, length in sizes:
                feed = {"x": RNG.normal(size=(n, length, 5)).astype(F)}
                for got, want in zip(
                    executable.infer(feed).values(), answer(model, feed), strict=True
                ):
                    assert got.shape == want.shape
                    np.testing.assert_allclose(got, want, rtol=1e-5)
        return made, len([node for node in left if node.inputs[1].node.constant is None])


@pytest.mark.parametrize("axis", [1, -1])
@pytest.mark.parametrize("places", [POSITIONS, POSITIONS[:, ::-1], POSITIONS % 4 - 4], ids=str)
def test_the_first_places_are_rows_of_a_table_in_their_order(places, axis):
    assert check(read([SLICED, *LOOKED_UP], places, axis=axis)) == (1, 0)


def test_places_that_are_moved_again():
    """Cut from a row without an axis for items, which they get then."""
    nodes = [
        ("Slice", ["places", "zero", "l"], ["cut"], {}),
        ("Unsqueeze", ["cut", "zero"], ["row"], {}), ("Expand", ["row", "both"], ["some"], {}),
        *LOOKED_UP,
    ]  # fmt: skip
    assert check(read(nodes, POSITIONS[0])) == (1, 0)


@pytest.mark.parametrize("place", [2, -1])
def test_equal_places_are_one_row(place):
    """However they are moved; the row is repeated where nobody else does it."""
    nodes = [
        SLICED, ("Cast", ["some"], ["cast"], {"to": 6}),
        ("Expand", ["cast", "both"], ["all"], {}), ("Transpose", ["all"], ["turned"], {}),
        ("Gather", ["table", "turned"], ["looked up"], {}),
        ("Transpose", ["looked up"], ["rows"], {"perm": [1, 0, 2]}),
        ("Add", ["x", "rows"], ["y"], {}),
    ]  # fmt: skip
    assert check(read(nodes, np.full((1, 9), place), ("y", "rows"))) == (1, 0)


def test_numbers_of_a_table_without_rows():
    nodes = [
        SLICED, ("Expand", ["some", "both"], ["all"], {}),
        ("Gather", ["table", "all"], ["numbers"], {}), ("Unsqueeze", ["numbers", "two"], ["c"], {}),
        ("Add", ["x", "c"], ["y"], {}),
    ]  # fmt: skip
    nodes.insert(0, ("Constant", [], ["two"], {"value_ints": [2]}))
    for places in (POSITIONS, np.full((1, 9), 3)):
        assert check(read(nodes, places, table=RNG.normal(size=9).astype(F))) == (1, 0)


def test_rows_that_would_take_more_than_the_table_are_looked_up_when_needed():
    large = RNG.normal(size=(9, 2000)).astype(F)
    nodes = [
        SLICED, ("Gather", ["table", "some"], ["all"], {}),
        ("ReduceSum", ["all", "last"], ["rows"], {}), ("Add", ["x", "rows"], ["y"], {}),
    ]  # fmt: skip
    nodes.insert(0, ("Constant", [], ["last"], {"value_ints": [2]}))
    assert check(read(nodes, np.arange(30)[None] % 9, table=large), ((2, 3), (1, 30)))[0] == 0
    again = [*nodes, ("ReduceMax", ["table"], ["most"], {"keepdims": 0})]
    assert check(read(again, POSITIONS, ("y", "most"), table=large))[0] == 0
    assert check(read(nodes, POSITIONS, table=large)) == (1, 0)


@pytest.mark.parametrize("outside", [9, -10])
def test_places_outside_of_the_table_are_looked_up_as_before(outside):
    """Which gives zeros."""
    for places in (np.where(POSITIONS > 6, outside, 0), np.full((1, 9), outside)):
        model = read([SLICED, *LOOKED_UP], places)
        with Core() as core:
            network = core.read_network(model)
            assert look_up_constants(network) == 0
            found = core.load_network(network, "CPU").infer({"x": np.ones((2, 9, 5), F)})["y"]
        np.testing.assert_array_equal(found[:, 7:], np.ones((2, 2, 5), F))


def test_places_that_the_input_tells_stay():
    nodes = [("Cast", ["x"], ["some"], {"to": 7}), ("Gather", ["table", "some"], ["y"], {})]
    model = read(nodes, POSITIONS)
    with Core() as core:
        network = core.read_network(model)
        assert look_up_constants(network) == 0


def test_a_row_is_read_where_it_lies():
    """Not as many copies of it as there are; unless these stretch the other operand."""
    stretched = [
        ("Expand", ["row", "many"], ["rows"], {}), ("Add", ["x", "rows"], ["y"], {}),
        ("Sub", ["rows", "x"], ["z"], {}),
    ]  # fmt: skip
    model = build(
        [("Shape", ["x"], ["shape"], {}), ("Max", ["shape", "least"], ["many"], {}), *stretched],
        {"x": ["n", "l", 5]}, ["y", "z"],
        {"row": RNG.normal(size=5).astype(F), "least": np.array([1, 3, 1])}, opset=18,
    )  # fmt: skip
    with Core() as core:
        executable = core.load_network(model, "CPU")
        for length, repeats in ((3, False), (4, False), (1, True), (5, False), (1, True)):
            feed = {"x": RNG.normal(size=(2, length, 5)).astype(F)}
            for got, want in zip(executable.infer(feed).values(), answer(model, feed), strict=True):
                assert got.shape == want.shape
                np.testing.assert_array_equal(got, want)
            found = [step.type for step in executable.latest_plan().steps]
            assert ("Broadcast" in found) is repeats
        with pytest.raises(PolydeviceError, match="node 'y'"):
            executable.infer({"x": np.ones((2, 2, 5), F)})
