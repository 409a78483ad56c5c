"""Machine code of the CPU device: what its tables say is what they are, and what they compute."""

from __future__ import annotations

import inspect
import itertools
import re
import shutil
import subprocess
from collections.abc import Iterator

import numpy as np
import pytest

from polydevice_cpu.algorithms import suppression
from polydevice_cpu.algorithms.by_machine import (
    between_iterations,
    byte_table,
    code,
    greedy,
    texts,
)
from polydevice_cpu.algorithms.by_machine.indexed import scattered
from polydevice_cpu.algorithms.by_machine.indexed import taken as rows_taken
from polydevice_cpu.algorithms.by_machine.learned import coupling
from polydevice_cpu.algorithms.by_machine.ranking import above, best, order, unique, wide
from polydevice_cpu.algorithms.by_machine.regions import geometry
from polydevice_cpu.algorithms.by_machine.resampling import sampling
from polydevice_cpu.algorithms.by_machine.rows import norms, shares, short_rows, wide_rows
from polydevice_cpu.onednn.engine import address_of
from tests.cpu.loading import load
from tests.cpu.machine_code import missing_avx512, needs, with_avx2, with_avx512
from tests.cpu.models import answer, build
from tests.guard_pages import SIDES, guarded

F = np.float32
TABLES = {
    "above": (above, "_ABOVE"),
    "best": (best, "_BEST"),
    "bytes": (byte_table, "_LOOK"),
    "first": (best, "_FIRST"),
    "first of 8 bytes": (wide, "_FIRST"),
    "which are alike": (unique, "_UNIQUE"),
    "as many as are wanted": (order, "SELECT"),
    "pairs by counting": (order, "COUNT"),
    "pairs by digits": (order, "RADIX"),
    "rows taken": (rows_taken, "_TAKE"),
    "parts that a loop moves": (between_iterations, "_MOVE"),
    "a counter": (between_iterations, "_COUNT"),
    "a counter of 4 bytes": (between_iterations, "_COUNT_NARROW"),
    "a condition": (between_iterations, "_HOLDS"),
    "what a result begins with": (scattered, "_COPY"),
    "coupled pairs": (coupling, "_COUPLE"),
    "greedy": (greedy, "_KEEP"),
    "rows of f64": (wide_rows, "_ROWS"),
    "shares of f64": (wide_rows, "_SHARES"),
    "norms": (norms, "_NORMS"),
    "bins between elements": (geometry, "ALIGNED"),
    "bins of elements": (geometry, "BINNED"),
    "sampling": (sampling, "_SAMPLE"),
    "texts that an automaton walks": (texts, "_WALK"),
    "n-grams": (texts, "_COUNT"),
    "short rows": (short_rows, "_EXTREMES"),
    "threads that share calls": (code, "_SHARE"),
    "threads that claim calls": (code, "_CLAIM"),
    "threads in one call": (code, "_TOGETHER"),
    "shares of rows": (shares, "_ROWS"),
    "shares of columns": (shares, "_COLUMNS"),
    "shares of columns that are kept": (shares, "_KEPT_COLUMNS"),
    "logarithms of shares": (shares, "_LOGARITHMS"),
    "logarithms of shares of columns": (shares, "_COLUMN_LOGARITHMS"),
}


def comments_of(text: str, table: str) -> Iterator[str]:
    """The comments beside a table's bytes, and those of what it is put together from."""
    for line in text[text.index(f"{table} = ") :].split("\n)", maxsplit=1)[0].splitlines()[1:]:
        part = re.fullmatch(r" *(?:\+ )?(_[A-Z]+)", line)
        if part:
            yield from comments_of(text, part[1])
        else:
            yield line.partition("# ")[2]


@pytest.mark.skipif(shutil.which("as") is None, reason="no assembler")
@pytest.mark.parametrize("name", TABLES)
def test_the_comments_assemble_to_the_bytes(name, tmp_path):
    module, table = TABLES[name]
    comments = comments_of(inspect.getsource(module), table)
    code = "; ".join(comments).replace("; ", "\n")
    code = re.sub(r"^(\w+): ", r"\1:\n", code, flags=re.MULTILINE)
    source, made = tmp_path / "code.s", tmp_path / "code.o"
    source.write_text(f".intel_syntax noprefix\n.text\n{code}\n")
    subprocess.run(["as", "--64", str(source), "-o", str(made)], check=True)
    assert getattr(module, table) in made.read_bytes()


@pytest.mark.parametrize("crowd", [3, 40])
@pytest.mark.parametrize("limit", [None, 1, 7, 100])
@pytest.mark.parametrize("grouped", [True, False])
def test_boxes_stay_as_without_the_code(monkeypatch, crowd, limit, grouped):
    rng = np.random.default_rng(crowd)
    for _ in range(5):
        count = int(rng.integers(1, 200))
        place = rng.integers(0, crowd, (count, 2))
        boxes = np.concatenate([place, place + rng.integers(0, 9, (count, 2))], 1).astype(F)
        groups = np.sort(rng.integers(0, 5, count)) if grouped else None
        threshold = float(F(rng.choice([0, 0.3, 0.5, 1])))
        got = suppression.suppress(boxes, threshold, limit, groups=groups)
        with monkeypatch.context() as patch, np.errstate(all="ignore"):
            patch.setattr(suppression, "keep_greedily", lambda *_: None)
            want = suppression.suppress(boxes, threshold, limit, groups=groups)
        np.testing.assert_array_equal(got, want)


@with_avx2
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("length", [8, 9, 15, 16, 23, 80, 512])
@pytest.mark.parametrize("largest", [True, False])
def test_extremes_of_rows(side, length, largest):
    rng = np.random.default_rng(length)
    for count in (1, 2, 33):
        x = guarded(side, 4 * count * length).view(F).reshape(count, length)
        x[...] = rng.integers(-9, 9, x.shape)
        x[-1] = -np.inf if largest else np.inf
        got = guarded(side, 4 * count).view(F)
        assert short_rows.extremes(x, got, largest=largest)
        np.testing.assert_array_equal(got, x.max(1) if largest else x.min(1))
        for place in (0, length - 1):
            x[0, place] = np.nan
            assert not short_rows.extremes(x, got, largest=largest)
            x[0, place] = 0


@pytest.mark.parametrize("kind", ["ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("length", [1, 5, 8, 30, 64, 700])
def test_extremes_of_a_network(core, kind, length):
    model = build([(kind, ["x"], ["y"], {"axes": [-1]})], {"x": ["n", 3, length]}, ["y"], {})
    executable, rng = load(core, model), np.random.default_rng(length)
    for count in (1, 7, 40):
        x = rng.normal(size=(count, 3, length)).astype(F)
        want = x.max(-1, keepdims=True) if kind == "ReduceMax" else x.min(-1, keepdims=True)
        np.testing.assert_array_equal(executable.infer({"x": x})["y"], want)
        x[0, 1, length // 2] = np.nan
        got = executable.infer({"x": x})["y"]
        assert np.isnan(got[0, 1, 0])
        assert np.isnan(got).sum() == 1


def run(made, *arrays):
    """Call code twice, which begins anew each time."""
    before = arrays[0].copy()
    call = made.bound([address_of(array) for array in arrays])
    assert call() == 0
    arrays[0][...] = before
    assert call() == 0


def shares_of(x, axis):
    """SoftMax in f64."""
    terms = np.exp(x.astype(float) - x.max(axis, keepdims=True))
    return terms / terms.sum(axis, keepdims=True)


@with_avx512
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize(
    "shape",
    [
        *((1, 1, 1), (3, 5, 1), (2, 16, 1), (7, 65, 1), (3, 200, 1), (60, 300, 1)),
        *((1, 1, 4), (2, 3, 16), (3, 5, 17), (2, 9, 47), (300, 4, 35), (3, 150, 67), (2, 192, 64)),
        *((2, 20, 130), (1, 193, 130), (1, 768, 70), (1, 769, 70)),
    ],
)
def test_shares(side, threads, shape):
    rng = np.random.default_rng(shape[1])
    size = int(np.prod(shape))
    x, got = (guarded(side, 4 * size).view(F).reshape(shape) for _ in range(2))
    x[...] = rng.normal(0, rng.choice([1, 30]), shape)
    run(shares.code(shape, threads), x, got)
    np.testing.assert_allclose(got, shares_of(x, 1), rtol=1e-5, atol=1e-37)
    logarithms = guarded(side, 4 * size).view(F).reshape(shape)
    run(shares.code(shape, threads, logarithm=True), x, logarithms)
    want = x - x.max(1, keepdims=True).astype(float)
    want -= np.log(np.exp(want).sum(1, keepdims=True))
    np.testing.assert_allclose(logarithms, want, rtol=3e-7, atol=2e-7)
    run(shares.code(shape, threads), x, x)
    np.testing.assert_array_equal(x, got)


@with_avx512
@pytest.mark.parametrize("shape", [(1, 16384, 1), (1, 1024, 9), (1, 20000), (2, 8192, 1)])
def test_threads_leave_a_row_that_one_of_them_computes_in_place(shape):
    x = np.random.default_rng(3).normal(size=shape).astype(F)
    want = shares_of(x, 1) if len(shape) == 3 else x / np.sqrt((x.astype(float) ** 2).sum())
    is_share, got = len(shape) == 3, np.empty_like(x)
    made = shares.code(shape, 4) if is_share else norms.code(shape, 0.0, 0.0, 4)
    call = made.bound([address_of(got), address_of(got)])
    for _ in range(40):
        got[...] = x
        assert call() == 0
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-37)


@with_avx512
@pytest.mark.parametrize("behind", [1, 20])
def test_logarithms_of_sure_shares(behind):
    """Of which one is nearly 1: sums of f32 tell its logarithm to 6e-8."""
    x = np.zeros((40, 2, behind), F)
    x[:, 1] = -np.linspace(0, 30, 40)[:, None]
    got = np.empty_like(x)
    assert shares.softmax(x, got, logarithm=True)
    want = -np.log1p(np.exp(x[:, 1].astype(float)))
    np.testing.assert_allclose(got[:, 0], want, rtol=0, atol=7e-8)
    np.testing.assert_allclose(got[:, 1], want + x[:, 1], rtol=2e-7)
    odd = np.zeros((3, 20, behind), F)
    odd[0, 3], odd[1, 3], odd[2] = np.nan, np.inf, -np.inf
    assert shares.softmax(odd, odd, logarithm=True)
    assert np.isnan(odd).all()


@with_avx512
@pytest.mark.parametrize("behind", [1, 20])
def test_shares_of_what_is_no_number(behind):
    x = np.random.default_rng(0).normal(size=(5, 40, behind)).astype(F)
    x[0, :], x[0, 3] = -np.inf, 1
    x[1, 5], x[2, 6] = np.inf, np.nan
    x[3, :] = -np.inf
    x[4, ::2], x[4, 1] = -1e30, 3e38
    got = np.empty_like(x)
    assert shares.softmax(x, got)
    assert (got[0] == np.eye(40, dtype=F)[3, :, None]).all()
    assert np.isnan(got[1:4]).all()
    assert (got[4] == np.eye(40, dtype=F)[1, :, None]).all()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1])
@pytest.mark.parametrize("given", [(2, 40, 9, 30), (3, 5, 60, 2), (3, 1, 7, 5), (8, 30, 11, 3)])
def test_shares_of_a_network(core, threads, axis, given):
    """Behind a convolution, whose channels lie next to each other or do not, and open sizes."""
    rng = np.random.default_rng(axis + 1)
    weights = {"w": rng.normal(size=(given[1], given[1], 1, 1)).astype(F)}
    nodes = [("Conv", ["x", "w"], ["a"], {}), ("Softmax", ["a"], ["y"], {"axis": axis})]
    feed = {"x": rng.normal(size=given).astype(F)}
    for sizes in (given, ("n", given[1], "h", "v")):
        model = build(nodes, {"x": list(sizes)}, ["y"], weights)
        (want,) = answer(model, feed)
        got = load(core, model, CPU_THREADS_NUM=threads).infer(feed)["y"]
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


def test_shares_of_nothing(core):
    model = build([("Softmax", ["x"], ["y"], {"axis": 1})], {"x": ["n", "c", "h"]}, ["y"], {})
    executable = load(core, model)
    for shape in ((0, 3, 4), (2, 3, 0), (2, 0, 3), (1, 5, 6)):
        x = np.zeros(shape, F)
        (want,) = answer(model, {"x": x})
        np.testing.assert_allclose(executable.infer({"x": x})["y"], want, rtol=1e-6)


@with_avx512
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("kind", ["distinct", "equal", "no numbers"])
@pytest.mark.parametrize("descending", [True, False])
def test_the_best_of_rows(side, kind, descending):
    rng = np.random.default_rng(len(kind))
    for rows, length, count in ((1, 1, 1), (5, 40, 7), (3, 17, 9), (20, 600, 33), (2, 900, 80)):
        x = guarded(side, 4 * rows * length).view(F).reshape(rows, length)
        x[...] = rng.normal(size=x.shape) if kind == "distinct" else rng.integers(-3, 4, x.shape)
        x[0, -1], x[-1, length // 2] = -np.inf, -0.0
        if kind == "no numbers":
            x[rng.random(x.shape) < 0.02] = np.nan
        got = best.ranked(x, count, descending=descending)
        keys = np.where(np.isnan(x), np.inf, x)
        keys = np.stack([np.isnan(x), keys], 0) * (-1 if descending else 1)
        want = np.stack([np.lexsort((k, nan)) for k, nan in zip(keys[1], keys[0], strict=True)])
        np.testing.assert_array_equal(got, want[:, :count])
        above = float(rng.choice([-1, 0, 2.5, -np.inf]))
        got = best.ranked(x, count, descending=True, above=above)
        for row, found in zip(x, got, strict=True):
            order = np.argsort(-row, kind="stable")
            order = order[row[order] > above][:count]
            np.testing.assert_array_equal(found[: len(order)], order)
            assert (found[len(order) :] == best.NONE).all()


@with_avx512
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("length", [1, 7, 8, 9, 15, 16, 17, 31, 33, 250])
def test_all_that_is_above_a_number(side, length):
    """NaN, infinities, both zeros and ties; and no place in the result behind the last one."""
    rng = np.random.default_rng(length)

    def put(array):
        place = guarded(side, array.nbytes).view(array.dtype).reshape(array.shape)
        place[...] = array
        return place

    for rows, least in itertools.product((1, 5), (-np.inf, -0.5, -0.0, 0.0, 0.5, np.inf)):
        x = rng.normal(0, 1, (rows, length)).astype(F).round(int(rng.integers(0, 6)))
        x[rng.random(x.shape) < 0.1] = rng.choice(F([np.nan, np.inf, -np.inf, -0.0, 0.0]))
        orders = [np.argsort(-row, kind="stable")[: (row > least).sum()] for row in x]
        most = max(map(len, orders))
        for count in {most, most + 1, most + 20} - {0}:
            index, room = (
                put(np.zeros((rows, count), np.int64)),
                put(np.zeros(best.ROOM + count, np.int64)),
            )
            given = put(x)
            places = address_of(given), address_of(index), address_of(room)
            function, told = above.finding(places, x.shape, count, least)
            assert function(told) == 0
            for found, order_ in zip(index, orders, strict=True):
                np.testing.assert_array_equal(found[: len(order_)], order_)
                assert (found[len(order_) :][:1] == best.NONE).all()
        if most > 1:
            function, told = above.finding(places, x.shape, most - 1, least)
            assert function(told) != 0


@with_avx512
def test_the_best_of_what_ascends_are_sorted():
    x = np.arange(200_000, dtype=F)[np.newaxis]
    assert best.ranked(x, 150, descending=True) is None
    assert best.ranked(x, 150, descending=False)[0].tolist() == list(range(150))
    assert best.ranked(np.full((1, 9), np.nan, F), 2, descending=False) is None
    assert best.ranked(x[:, :300], 150, descending=True) is None
    assert best.ranked(x, 0, descending=True) is None


@pytest.mark.parametrize("crowd", [4, 60])
@pytest.mark.parametrize("limit", [3, 20, 70])
@pytest.mark.parametrize("center", [0, 1])
def test_boxes_of_a_network(core, crowd, limit, center):
    """In a crowd more boxes have to be looked at than the best ones."""
    rng = np.random.default_rng(limit)
    constants = {
        "most": np.array([limit], np.int64), "iou": F([0.4]), "least": F([0.3])
    }  # fmt: skip
    nodes = [("NonMaxSuppression", ["b", "s", *constants], ["y"], {"center_point_box": center})]
    model = build(nodes, {"b": ["n", "k", 4], "s": ["n", "c", "k"]}, ["y"], constants)
    executable = load(core, model)
    for images, classes, number in ((1, 5, 1600), (2, 3, 900), (1, 1, 40), (2, 2, 0)):
        at = rng.integers(0, crowd, (images, number, 2))
        boxes = np.concatenate([at, at + rng.uniform(0.5, 3, at.shape)], 2)
        boxes[:, ::3] = boxes[:, ::3, [2, 3, 0, 1]]
        if center:
            boxes[:, :, 2:] = rng.uniform(0.5, 3, at.shape)
        scores = rng.random((images, classes, number))
        feed = {"b": boxes.astype(F), "s": scores.astype(F)}
        (want,) = answer(model, feed)
        np.testing.assert_array_equal(executable.infer(feed)["y"], want)


@pytest.mark.parametrize("kind", ["Add", "Sub", "Mul", "Max"])
@pytest.mark.parametrize("columns", [2, 3, 4])
def test_short_rows_repeated_within_others(core, kind, columns):
    """Of either input, with an axis that both have, and one that neither has."""
    rng = np.random.default_rng(columns)
    pairs = [((90, 1, 1, columns), (1, 7, 7, columns)), ((1, 70, columns), (50, 1, columns)),
             ((3, 1, 1, columns), (1, 40, 50, columns)), ((200, 1, columns), (200, 60, columns)),
             ((columns,), (60, 70, columns)), ((60, 1, 1), (1, 70, columns))]  # fmt: skip
    for shapes in pairs:
        for first, second in (shapes, shapes[::-1]):
            sizes = {"a": list(first), "b": list(second)}
            model = build([(kind, ["a", "b"], ["y"], {})], sizes, ["y"], {})
            feed = {name: rng.normal(size=shape).astype(F) for name, shape in sizes.items()}
            (want,) = answer(model, feed)
            np.testing.assert_array_equal(load(core, model).infer(feed)["y"], want)


@needs(missing_avx512("avx512vbmi"))
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("count", [1, 63, 64, 65, 1000, 200_001])
@pytest.mark.parametrize("threads", [1, 3])
def test_bytes_in_a_table(side, count, threads):
    rng = np.random.default_rng(count)
    x, table, got = (guarded(side, size) for size in (count, 256, count))
    x[:], table[:] = rng.integers(0, 256, count), rng.integers(0, 256, 256)
    byte_table.look_up(x, table, got)
    np.testing.assert_array_equal(got, table[x])
    call = byte_table.code(table, count, threads).bound([address_of(x), address_of(got)])
    for _ in range(3):  # each begins anew
        got[:] = ~table[x]
        assert call() == 0
        np.testing.assert_array_equal(got, table[x])


@with_avx512
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("shape", [(1, 1), (3, 15), (2, 16), (5, 33), (4, 48), (70, 200)])
def test_norms(side, threads, shape):
    rng = np.random.default_rng(shape[1])
    x, got = (guarded(side, 4 * shape[0] * shape[1]).view(F).reshape(shape) for _ in range(2))
    x[...] = rng.normal(0, 3, shape)
    x[-1] = 0
    for added, least in ((1e-6, 0), (0, 1e-6), (0.5, 0), (0, 90)):
        run(norms.code(shape, added, least, threads), x, got)
        total = np.maximum(np.square(x.astype(float)).sum(1, keepdims=True) + added, least)
        np.testing.assert_allclose(got, x / np.sqrt(total), rtol=1e-5)
    x[0, 0] = np.nan
    norms.divide_by_norms(x, x, 0, 1e-6)
    assert np.isnan(x[0]).all()
    assert not np.isnan(x[1:]).any()


@pytest.mark.parametrize("sizes", [(3, 20), ("n", "k")])
def test_machine_code_between_primitives(core, monkeypatch, sizes):
    """It runs in one call with them, also as the first and the last, where arrays move."""
    if not missing_avx512():  # nothing of Python is called for it
        monkeypatch.setattr(shares, "softmax", None)
        monkeypatch.setattr(norms, "divide_by_norms", None)
    rng = np.random.default_rng(0)
    weights = {"w": rng.normal(size=(20, 20)).astype(F)} if sizes[0] == 3 else {}
    nodes = [
        ("Softmax", ["x"], ["a"], {"axis": -1}),
        ("MatMul", ["a", "w"], ["b"], {}) if weights else ("Exp", ["a"], ["b"], {}),
        ("LpNormalization", ["b"], ["c"], {"axis": -1, "p": 2}),
        ("Tanh", ["c"], ["d"], {}),
        ("Softmax", ["d"], ["y"], {"axis": -1}),
    ]
    model = build(nodes, {"x": list(sizes)}, ["y"], weights)
    executable = load(core, model, CPU_THREADS_NUM=1)
    requests = [executable.create_infer_request() for _ in range(2)]
    for count in (3, 3, 5, 7, 9, 3) if sizes[0] == "n" else (3, 3, 3):
        for request in requests:
            x = rng.normal(size=(count, 20)).astype(F)
            out = np.full((count, 20), 7, F)
            request.set_blob("y", out)
            (want,) = answer(model, {"x": x})
            for _ in range(3):
                np.testing.assert_allclose(request.infer({"x": x})["y"], want, rtol=1e-5)
