"""Machine code that runs in one call with primitives: rows taken, and where the largest is."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.algorithms.by_machine.indexed import taken as rows_taken
from polydevice_cpu.algorithms.by_machine.ranking import best
from polydevice_cpu.algorithms.by_machine.rows import shares
from polydevice_cpu.onednn.engine import address_of
from tests.cpu.loading import load
from tests.cpu.machine_code import by_machine_code, missing_avx512, with_avx512
from tests.cpu.models import answer, build
from tests.guard_pages import SIDES, guarded

F = np.float32


def run(prepared, *arrays):
    function, told = prepared
    function(shares.placed(told, *map(address_of, arrays)))


@with_avx512
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("element", [np.uint8, np.int16, F, np.float64])
@pytest.mark.parametrize("negative", [True, False])
def test_rows(side, kind, element, negative):
    rng = np.random.default_rng(3)
    for before, size, behind, count in ((1, 5, 1, 7), (3, 4, 16, 2), (2, 9, 67, 5), (1, 3, 200, 9)):
        bytes_of = np.dtype(element).itemsize
        x = guarded(side, before * size * behind * bytes_of).view(element)
        x[:] = rng.integers(0, 100, x.shape)
        index = guarded(side, count * np.dtype(kind).itemsize).view(kind)
        index[:] = rng.integers(-size - 2, size + 2, count)
        got = guarded(side, before * count * behind * bytes_of).view(element)
        got[:] = 77
        sizes, least = (bytes_of, index.itemsize), -size if negative else 0
        run(rows_taken.prepared((before, size, behind), 1, count, sizes, least), x, index, got)
        rows = x.reshape(before, size, behind)
        want = rows[:, np.clip(index, -size, size - 1)].copy()
        want[:, (index < least) | (index >= size)] = 0
        np.testing.assert_array_equal(got.reshape(want.shape), want)


@with_avx512
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("descending", [True, False])
def test_the_first_of_rows(side, kind, descending):
    rng = np.random.default_rng(4)
    for rows, length in ((1, 1), (3, 15), (2, 16), (5, 17), (4, 100), (1, 1000)):
        x = guarded(side, 4 * rows * length).view(F).reshape(rows, length)
        got = guarded(side, rows * np.dtype(kind).itemsize).view(kind)
        for values in ("equal", "distinct", "infinite", "no numbers"):
            x[...] = rng.integers(-2, 3, x.shape) if values == "equal" else rng.normal(size=x.shape)
            if values == "infinite":
                x[0], x[-1, -1] = -np.inf, np.inf
            if values == "no numbers":
                x[rng.random(x.shape) < 0.3] = np.nan
                x[-1] = np.nan
            is_wide = got.itemsize == 8
            run(best.prepared_first(rows, length, descending=descending, is_wide=is_wide), x, got)
            keys = np.where(np.isnan(x), np.inf, x)
            nan = np.isnan(x)
            for row in range(rows):
                order = (keys[row], nan[row]) if not descending else (-keys[row], ~nan[row])
                assert got[row] == np.lexsort(order)[0]


def test_calls_are_alike_wherever_they_run(core):
    """Several requests and shapes by turns, of which one has rows that the table does not have."""
    rng = np.random.default_rng(5)
    weights = {"t": rng.normal(size=(50, 24)).astype(F), "w": rng.normal(size=(24, 30)).astype(F)}
    nodes = [
        ("Gather", ["t", "i"], ["a"], {}),
        ("MatMul", ["a", "w"], ["b"], {}),
        ("ArgMax", ["b"], ["y"], {"axis": -1, "keepdims": 0}),
        ("ArgMin", ["b"], ["z"], {"axis": -1}),
    ]
    model = build(nodes, {"i": ["n", "k"]}, ["y", "z"], weights, element_type=np.int64)
    executable = load(core, model, CPU_THREADS_NUM=1)
    requests = [executable.create_infer_request() for _ in range(2)]
    for shape in ((1, 1), (2, 3), (5, 4), (3, 3), (4, 4), (1, 1)):
        for request in requests:
            feed = {"i": rng.integers(-50, 50, shape)}
            got, want = request.infer(feed), answer(model, feed)
            np.testing.assert_array_equal(got["y"], want[0])
            np.testing.assert_array_equal(got["z"], want[1])
    if not missing_avx512():
        assert by_machine_code(executable) == ["Gather", "TopK", "TopK"]
    outside = executable.infer({"i": np.array([[3, 50, -51]])})
    assert outside["y"].tolist()[0][1:] == [0, 0]  # of rows of zeros


def test_threads_at_once(core):
    rng = np.random.default_rng(6)
    model = build(
        [("Softmax", ["x"], ["a"], {"axis": -1}), ("ArgMax", ["a"], ["y"], {"axis": -1})],
        {"x": ["n", 40]}, ["y"], {},
    )  # fmt: skip
    executable = load(core, model, CPU_THROUGHPUT_STREAMS=2)
    feeds = [{"x": rng.normal(size=(n, 40)).astype(F)} for n in (3, 9, 200, 40)]
    requests = [executable.create_infer_request() for _ in feeds]
    for _ in range(20):
        for request, feed in zip(requests, feeds, strict=True):
            request.start_async(feed)
        for request, feed in zip(requests, feeds, strict=True):
            request.wait(-1)
            np.testing.assert_array_equal(request.get_blob("y"), feed["x"].argmax(1)[:, np.newaxis])
