"""Machine code of learned models: trees, against walks through them, and coupled pairs."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.network import Network
from polydevice.node import Node
from polydevice.ops.coupling import PairwiseCoupling
from polydevice.ops.io import Constant, Parameter, Result
from polydevice.ops.trees import Aggregate, TreeEnsemble
from polydevice.shape import Dim, Shape
from polydevice_cpu.algorithms import forest as packing
from polydevice_cpu.algorithms.by_machine.code import Code
from polydevice_cpu.algorithms.by_machine.learned import coupling, trees
from polydevice_cpu.algorithms.forest import Forest, Layout, Votes, packed
from polydevice_cpu.implement import run
from polydevice_cpu.onednn.engine import address_of
from polydevice_cpu.onednn.library import library
from polydevice_cpu.ops.coupling import NEAR
from polydevice_cpu.plan.step import MACHINE_CODE_OF_ANY
from tests.cpu.machine_code import missing, needs
from tests.guard_pages import SIDES, guarded
from tests.ops.forests import MEMBER, random_forest, walked

with_code = needs(missing("avx"))
F = np.float32


def some_rows(rng, rows, features, kind):
    """Numbers of which many are equal to splits, some nearly so, and some are none."""
    x = rng.integers(-3, 4, (rows, features)).astype(kind)
    for number in (np.nan, -np.nan, np.inf, -np.inf, -0.0, np.nextafter(kind(1), kind(2)), 1e-45):
        x[rng.random(x.shape) < 0.06] = number
    return x


def by_code(x, tables, depth, side="after", aggregate=Aggregate.SUM, threads=1):
    """What code computes, with all memory beside pages that nobody may touch; None without any."""
    made = packed(Forest(*tables), x.shape[1], depth, aggregate)
    if not made.size:
        return None
    layout = Layout.of(made)
    item = x.dtype.itemsize
    sizes = [
        x.nbytes,
        made.nbytes,
        len(x) * layout.targets * item,
        trees.key_rows(len(x)) * layout.columns * item,
    ]
    given, nodes, y, keys = (guarded(side, size) for size in sizes)
    given.view(x.dtype)[...] = x.reshape(-1)
    nodes.view(np.int64)[...] = made
    code = trees.code_of(x.shape, x.dtype, layout, aggregate, threads)
    call = code.bound([address_of(each) for each in (given, nodes, y, keys)])
    for _ in range(2):
        assert call() == 0
    return y.view(x.dtype).reshape(len(x), -1).copy()


@with_code
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("kind", [F, np.float64])
@pytest.mark.parametrize("rows", [1, 7, 8, 9, 40])
@pytest.mark.parametrize(("targets", "votes"), [(1, "all"), (3, "one"), (2, "all"), (7, "all")])
def test_every_comparison(side, kind, rows, targets, votes):
    rng = np.random.default_rng(rows * 10 + targets)
    for count in (1, 8, 11):
        tables, depth = random_forest(rng, kind, count, 5, targets, votes=votes)
        x = some_rows(rng, rows, 6, kind)
        np.testing.assert_array_equal(by_code(x, tables, depth, side), walked(x, *tables))


@with_code
@pytest.mark.parametrize("mode", range(MEMBER + 1))
def test_one_comparison_alone(mode):
    rng = np.random.default_rng(mode)
    modes = [mode, 0] if mode == MEMBER else [mode]
    tables, depth = random_forest(rng, F, 9, 6, 1, modes=modes)
    x = some_rows(rng, 33, 6, F)
    np.testing.assert_array_equal(by_code(x, tables, depth), walked(x, *tables))


@with_code
@pytest.mark.parametrize("aggregate", [Aggregate.MIN, Aggregate.MAX])
@pytest.mark.parametrize(("targets", "votes"), [(1, "all"), (6, "all")])
def test_extremes(aggregate, targets, votes):
    rng = np.random.default_rng(targets)
    tables, depth = random_forest(rng, F, 5, 4, targets, votes=votes)
    x = some_rows(rng, 19, 6, F)
    join = np.minimum if aggregate is Aggregate.MIN else np.maximum
    alone = [walked(x, *tables[:5], tables[5][n : n + 1], *tables[6:]) for n in range(5)]
    np.testing.assert_array_equal(
        by_code(x, tables, depth, aggregate=aggregate), join.reduce(alone)
    )


@with_code
@pytest.mark.parametrize("rows", [1, 9, 300])
@pytest.mark.parametrize("threads", [2, 3])
def test_threads_share_rows(monkeypatch, rows, threads):
    monkeypatch.setattr(trees, "SHARED", 1)
    monkeypatch.setattr(trees, "KEYS_BYTES", 1 << 10)
    rng = np.random.default_rng(rows)
    tables, depth = random_forest(rng, F, 17, 6, 2)
    x = some_rows(rng, rows, 6, F)
    np.testing.assert_array_equal(by_code(x, tables, depth, threads=threads), walked(x, *tables))


@with_code
def test_many_rows_go_in_parts(monkeypatch):
    monkeypatch.setattr(trees, "KEYS_BYTES", 1 << 10)
    rng = np.random.default_rng(0)
    tables, depth = random_forest(rng, F, 10, 5, 1)
    x = some_rows(rng, 117, 6, F)
    np.testing.assert_array_equal(by_code(x, tables, depth), walked(x, *tables))


def test_kinds_of_votes():
    rng = np.random.default_rng(1)
    for targets, votes, wanted in ((1, "all", "ONE"), (4, "one", "SINGLE"), (4, "all", "ALL")):
        tables, depth = random_forest(rng, F, 6, 4, targets, votes=votes)
        made = packed(Forest(*tables), 6, depth, Aggregate.SUM)
        assert Layout.of(made).votes_kind == Votes[wanted].value


def changed(place, index, number):
    rng = np.random.default_rng(2)
    tables, depth = random_forest(rng, F, 3, 4, 2)
    tables[place] = tables[place].copy()
    tables[place][index] = number
    return tables, depth


@pytest.mark.parametrize(
    ("place", "index", "number"),
    [
        (0, 0, 6), (0, 1, -1), (2, 0, 7), (4, (0, 0), -1), (4, (1, 1), 10_000), (5, 0, -1),
        (5, 1, 1 << 30), (4, (0, 0), 0), (4, (0, 1), 0),
    ],
)  # fmt: skip
def test_what_is_no_forest_has_no_code(place, index, number):
    tables, depth = changed(place, index, number)
    assert not packed(Forest(*tables), 6, depth, Aggregate.SUM).size


def test_trees_deeper_than_they_say_and_votes_without_order_have_no_code():
    rng = np.random.default_rng(2)
    tables, depth = random_forest(rng, F, 3, 4, 2)
    assert not packed(Forest(*tables), 6, depth - 1, Aggregate.SUM).size
    tables[6][0, 0] = np.nan
    assert not packed(Forest(*tables), 6, depth, Aggregate.MAX).size
    assert packed(Forest(*tables), 6, depth, Aggregate.SUM).size


def test_long_lists_of_members_have_no_code():
    rng = np.random.default_rng(2)
    tables, depth = random_forest(rng, F, 3, 4, 2)
    tables[2][:] = MEMBER
    tables[7] = np.broadcast_to(np.arange(packing.MOST_LEVELS, dtype=F), (len(tables[0]), 512))
    assert not packed(Forest(*tables), 6, depth, Aggregate.SUM).size


def network_of(tables, depth, kind, rows):
    x = Node("x", Parameter(element_type=kind, shape=Shape([rows, 6])))
    constants = [
        Node(f"table {n}", Constant(each, ElementType.of(each.dtype)))
        for n, each in enumerate(tables)
    ]
    node = Node("y", TreeEnsemble(depth), [x.output, *(each.output for each in constants)])
    return Network("trees", [x], [Node("r", Result(), [node.output])])


@with_code
@pytest.mark.parametrize("kind", [ElementType.f32, ElementType.f64, ElementType.f16])
@pytest.mark.parametrize("rows", [13, Dim()])
def test_a_network(core, kind, rows):
    rng = np.random.default_rng(4)
    tables, depth = random_forest(rng, kind.dtype.type, 10, 5, 3)
    executable = core.load_network(network_of(tables, depth, kind, rows), "CPU")
    request = executable.create_infer_request()
    for count in (13,) if rows == 13 else (13, 1, 40, 0, 8, 13):
        x = some_rows(rng, count, 6, kind.dtype.type)
        np.testing.assert_array_equal(request.infer({"x": x})["y"], walked(x, *tables))
        steps = executable.latest_plan().steps
        found = [step.implementation for step in steps if step.type == "TreeEnsemble"]
        way = "numpy" if library() is None else MACHINE_CODE_OF_ANY  # NumPy's plans have no code
        assert found == [way] * bool(count)


@with_code
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("classes", [2, 3, 9])
def test_coupled_pairs(side, classes):
    """By machine code as by NumPy, to the bit, and next to pages that nobody may touch."""
    rng = np.random.default_rng(classes)
    x = rng.uniform(0.001, 0.999, (40, classes * (classes - 1) // 2)).astype(F)
    x[0], x[1, 0] = np.nan, 1 - 1e-7
    given, y, room = (
        guarded(side, 4 * size).view(F)
        for size in (x.size, len(x) * classes, coupling.room(classes))
    )
    given[...] = x.reshape(-1)
    made = Code.of([coupling.coupling(len(x), classes, 100, NEAR / classes)])
    assert made.bound([address_of(each) for each in (given, y, room)])() == 0
    (want,) = run(PairwiseCoupling(classes), [x])
    np.testing.assert_allclose(y.reshape(want.shape), want, 2e-6, 1e-7)
