"""Reductions, softmax and normalisations of long rows, cut into parts for many work-groups."""

from __future__ import annotations

import dataclasses
import importlib

import numpy as np
import pytest

from polydevice import Core
from polydevice.dtype import ElementType
from polydevice.ops import reduce
from polydevice.ops.activation import Relu
from polydevice.ops.math import Abs
from polydevice.ops.normalization import MVN, EpsMode, NormalizeL2
from polydevice.ops.pooling import AvgPool
from polydevice.ops.softmax import LogSoftmax, SoftMax
from polydevice.ops.transpose import Transpose
from polydevice_gpu.compiler import compiler
from polydevice_gpu.compiler.device_target import target_of
from polydevice_gpu.kernels.kernel import kernels_of
from polydevice_gpu.kernels.row.row import RowKernel
from polydevice_gpu.kernels.target import Target
from tests.gpu import graphs
from tests.gpu.graphs import Sketch, compiled
from tests.seeds import seeded
from tests.tiers import is_quick

GPU = Target(scalar_lanes=32, compute_units=132, local_memory_bytes=49152, max_work_group_size=1024)
RELU = Relu()
MEAN, PEAK = reduce.ReduceMean, reduce.ReduceMax

# Shape, order of axes in memory, axes of a row: dense rows, rows side by side, terms that are
# neither; and numbers that no part, group, vector or lane divides.
ROWS = [
    ((2, 8209), (0, 1), (1,)),
    ((8209, 45), (0, 1), (0,)),
    ((1, 41, 33, 37), (0, 2, 3, 1), (2, 3)),
    ((1, 5, 43, 61), (0, 2, 3, 1), (0, 1, 2, 3)),
    ((3, 67, 5, 29), (2, 0, 3, 1), (1, 3)),
    ((13, 3, 677), (1, 2, 0), (0, 2)),
]


def _parting(op):
    """Return the kernels that can cut rows into parts: by work-groups, and by work-items."""
    return [kernel for kernel in kernels_of(op) if "PARTS" in kernel.modes[0]]


MODES = [
    pytest.param((kernel, mode), marks=() if mode in ends else pytest.mark.full)
    for kernel in kernels_of(MEAN)
    for ends in [(0, len(kernel.modes) - 1)]
    for mode in range(len(kernel.modes))
]


@pytest.fixture(scope="module")
def builder(opencl):
    return graphs.SparingBuilder(opencl, threads=1)


@pytest.fixture(scope="module")
def core():
    with Core() as made:
        yield made


@pytest.fixture
def run(monkeypatch, opencl, builder, core):
    """Return a function that infers one node on a view of x, in a kernel's mode, twice."""

    select = importlib.import_module("polydevice_gpu.passes.select_kernels")

    def runs(op, place, mode, x, order, *constants, after=RELU):
        kernel = _parting(type(op))[place]
        target = dataclasses.replace(GPU if place == 0 else target_of(opencl), compute_units=4)
        monkeypatch.setattr(compiler, "target_of", lambda _: target)
        monkeypatch.setattr(
            select, "kernels_of", lambda o: [kernel] if o is type(op) else kernels_of(o)
        )
        monkeypatch.setattr(type(kernel), "default_mode", lambda *_: mode)
        stored = np.ascontiguousarray(x.transpose(order))
        s = Sketch()
        given = s.input("x", *stored.shape, kind=ElementType.of(x.dtype))
        back = s.const("order", np.argsort(order))
        view = s.add("view", Transpose(), given, back)
        y = s.add("y", op, view, *(s.const(f"c{i}", c) for i, c in enumerate(constants)))
        network = s.network(y=s.add("fused", after, y))
        loaded = graphs.loaded(network, opencl, builder, core)
        request = loaded.create_infer_request()
        first = request.infer({"x": stored})["y"].copy()
        np.testing.assert_array_equal(request.infer({"x": stored})["y"], first)
        loaded.close()
        return first

    return runs


def _possible(op, place, mode, terms) -> bool:
    return _parting(type(op))[place].modes[mode]["PARTS"] * 16 <= max(terms, 16)


def _right(op, x, axes):
    x = x.astype("f8")
    if isinstance(op, MVN):
        centred = x - x.mean(axes, keepdims=True)
        return centred / np.sqrt((centred**2).mean(axes, keepdims=True) + op.eps)
    if isinstance(op, NormalizeL2):
        return x / np.sqrt((x**2).sum(axes, keepdims=True) + op.eps)
    if isinstance(op, SoftMax):
        peak = x.max(axes, keepdims=True)
        total = np.exp(x - peak).sum(axes, keepdims=True)
        logarithm = x - peak - np.log(total)
        return logarithm if isinstance(op, LogSoftmax) else np.exp(logarithm)
    return x.mean(axes) if isinstance(op, MEAN) else x.max(axes)


OPERATIONS = [
    MEAN(),
    PEAK(),
    MVN(normalize_variance=True, eps=1e-3, eps_mode=EpsMode.INSIDE_SQRT),
    NormalizeL2(eps=1e-2, eps_mode=EpsMode.ADD),
    SoftMax(axis=1),
]


@pytest.mark.parametrize("kind", ["f4", "f2"])
@pytest.mark.parametrize(("shape", "order", "axes"), ROWS)
@pytest.mark.parametrize("op", OPERATIONS, ids=lambda op: type(op).__name__)
def test_every_mode(run, opencl, op, shape, order, axes, kind, pytestconfig):
    x = (seeded(f"{op} {shape}").standard_normal(shape) + 0.5).astype(kind)
    is_softmax = isinstance(op, SoftMax)
    along = (op.axis,) if is_softmax else axes
    right = np.maximum(_right(op, x, along), 0)
    terms = int(np.prod([shape[axis] for axis in along]))
    constants = [] if is_softmax else [np.array(axes, np.int64)]
    wrong = isinstance(op, MVN) and graphs.has_trouble(opencl.facts, "normalisations")
    for place in (1,) if wrong else (0, 1):
        kernel = _parting(type(op))[place]
        long_enough = place or terms >= kernel.least_terms
        modes = [m for m in range(len(kernel.modes)) if _possible(op, place, m, terms)]
        every = kind == "f4" and not is_quick(pytestconfig)
        for mode in (modes if every else modes[-1:]) if long_enough else ():
            found = run(op, place, mode, x, order, *constants)
            assert found.dtype == x.dtype and found.shape == right.shape
            tolerance = (2e-5, 2e-6) if kind == "f4" else (2e-3, 2e-3)
            np.testing.assert_allclose(found, right, *tolerance, err_msg=f"{kernel.name} {mode}")


@pytest.mark.parametrize("kernel_mode", MODES, ids=lambda pair: f"{pair[0].name}-{pair[1]}")
def test_what_is_no_number(run, kernel_mode):
    """The largest of NaN and others is NaN; parts that are -infinity add nothing; rows of it do."""
    kernel, mode = kernel_mode
    place = kernels_of(MEAN).index(kernel)
    x = seeded("no number").standard_normal((4, 8209)).astype("f4")
    x[1, 77] = np.nan
    x[2, :8000] = -np.inf
    x[3] = -np.inf
    found = run(PEAK(), place, mode, x, (0, 1), np.array([1]))
    right = [max(x[0].max(), 0), np.nan, max(x[2].max(), 0), 0]
    assert np.isnan(found[1]) or found[1] == 0  # what Relu makes of NaN is the device's
    np.testing.assert_array_equal(found[[0, 2, 3]], np.array(right, "f4")[[0, 2, 3]])
    found = run(SoftMax(axis=1), place, mode, x, (0, 1))
    np.testing.assert_allclose(found[[0, 2]], _right(SoftMax(), x[[0, 2]], (1,)), 2e-5, 1e-9)
    mean_of_nan = run(MEAN(), place, mode, x[:2], (0, 1), np.array([1]))
    assert mean_of_nan.shape == (2,)


@pytest.mark.parametrize("kernel_mode", MODES, ids=lambda pair: f"{pair[0].name}-{pair[1]}")
def test_variance_far_from_zero(run, kernel_mode):
    """A mean a thousand times the deviation: sums of squares would lose all of it."""
    kernel, mode = kernel_mode
    place = kernels_of(MEAN).index(kernel)
    x = (3000 + seeded("far").standard_normal((2, 20011))).astype("f4")
    op = MVN(normalize_variance=True, eps=1e-6, eps_mode=EpsMode.INSIDE_SQRT)
    found = run(op, place, mode, x, (0, 1), np.array([1]))
    np.testing.assert_allclose(found, np.maximum(_right(op, x, (1,)), 0), 0, 2e-3)


@pytest.mark.parametrize("kind", ["i4", "i8", "f8"])
@pytest.mark.parametrize("mode", [2, 5])
def test_other_types(run, opencl, kind, mode):
    if kind == "f8" and not opencl.capabilities.fp64:
        pytest.skip("no double precision")
    x = np.abs(seeded(kind).standard_normal((2, 8209)) * 100).astype(kind)
    for op, right in ((reduce.ReduceSum(), x.sum(1)), (reduce.ReduceMin(), x.min(1))):
        found = run(op, 0, mode, x, (0, 1), np.array([1]))
        np.testing.assert_allclose(found, right, 1e-12 if kind == "f8" else 0)
    if kind == "f8":
        found = run(reduce.ReduceL2(), 0, mode, x, (0, 1), np.array([1]))
        np.testing.assert_allclose(found, np.sqrt((x**2).sum(1)), 1e-12)


@pytest.mark.parametrize("kernel_mode", MODES, ids=lambda pair: f"{pair[0].name}-{pair[1]}")
@pytest.mark.parametrize(
    ("kind", "value", "mean", "norm"), [("u1", 2, 2, 181), ("i2", -30000, -30000, 0)]
)
def test_means_and_norms_of_integers(run, kernel_mode, kind, value, mean, norm):
    """256 terms, and sums and squares that exceed the type when their mean does not."""
    kernel, mode = kernel_mode
    place = kernels_of(MEAN).index(kernel)
    x = np.full((3, 8192), value, kind)
    np.testing.assert_array_equal(
        run(MEAN(), place, mode, x, (0, 1), np.array([1])), np.full(3, max(mean, 0), kind)
    )
    if norm:  # the square root of 4 * 8192
        found = run(reduce.ReduceL2(), place, mode, x, (0, 1), np.array([1]))
        np.testing.assert_array_equal(found, np.full(3, norm, kind))


@pytest.mark.parametrize("place", [0, 1])
def test_mean_of_256_bytes(run, place):
    """256 is 0 in a byte."""
    x = np.full((2, 256), 200, "u1")
    found = run(MEAN(), place, 0, x, (0, 1), np.array([1]))
    np.testing.assert_array_equal(found, np.array([200, 200], "u1"))


def test_mean_of_no_integers(run):
    """No number, but no trap either."""
    assert run(MEAN(), 1, 0, np.zeros((3, 0), "i4"), (0, 1), np.array([1])).shape == (3,)


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("mode", [EpsMode.ADD, EpsMode.MAX])
def test_norm_of_what_is_no_number(run, place, mode):
    """NaN is not less than epsilon: the whole row is NaN, and no other."""
    x = seeded("norm of NaN").standard_normal((2, 300)).astype("f4")
    x[0, 7] = np.nan
    op = NormalizeL2(eps=1e-2, eps_mode=mode)
    found = run(op, place, 0, x, (0, 1), np.array([1]), after=Abs())
    assert np.isnan(found[0]).all()
    right = np.abs(x[1]) / np.sqrt((x[1].astype("f8") ** 2).sum())
    np.testing.assert_allclose(found[1], right, 1e-4, 1e-6)


def _choices(op, shape, *constants, target=GPU):
    s = Sketch()
    given = [s.const(f"c{i}", c) for i, c in enumerate(constants)]
    graph = compiled(
        s.network(y=s.add("y", op, s.input("x", *shape), *given)), **dataclasses.asdict(target)
    )
    return [n for n in graph.nodes if n.choice and isinstance(n.choice.kernel, RowKernel)]


@pytest.mark.parametrize(
    ("op", "shape", "constants"),
    [
        (MEAN(), (1, 64, 512, 512), [np.arange(4)]),
        (MEAN(keep_dims=True), (1, 16, 1024, 1024), [np.array([2, 3])]),
        (PEAK(), (4_000_000,), [np.array([0])]),
        (OPERATIONS[2], (1, 3, 2048, 2048), [np.array([1, 2, 3])]),
        (OPERATIONS[3], (2, 1_000_000), [np.array([1])]),
        (SoftMax(axis=1), (1, 1_000_000), []),
        (AvgPool(kernel=(640, 480), strides=(1, 1), exclude_pad=True), (1, 8, 640, 480), []),
    ],
    ids=lambda v: type(v).__name__,
)  # fmt: skip
def test_few_long_rows_are_given_to_many_groups(op, shape, constants):
    """All processors of a large GPU get work; on processor cores all of those."""
    (node,) = _choices(op, shape, *constants)
    kernel, mode = node.choice.kernel, node.choice.kernel.modes[node.choice.mode]
    launches = kernel.launches(node, mode, GPU)
    groups = [
        np.prod([g // n for g, n in zip(x.global_size, x.local_size, strict=True)])
        for x in launches
    ]
    assert len(launches) == 2 and groups[0] >= 132
    cores = Target(compute_units=8)
    (node,) = _choices(op, shape, *constants, target=cores)
    mode = node.choice.kernel.modes[node.choice.mode]
    first = node.choice.kernel.launches(node, mode, cores)[0]
    assert np.prod(first.global_size) >= 8


@pytest.mark.parametrize(
    ("op", "shape", "constants"),
    [
        (MEAN(), (32, 2048, 7, 7), [np.array([2, 3])]),
        (MEAN(), (128, 768), [np.array([1])]),
        (SoftMax(axis=-1), (12, 384, 384), []),
        (SoftMax(axis=1), (1, 1000), []),
        (OPERATIONS[2], (1, 384, 768), [np.array([2])]),
    ],
    ids=lambda v: type(v).__name__,
)
def test_many_or_short_rows_take_one_launch(op, shape, constants):
    (node,) = _choices(op, shape, *constants)
    assert node.choice.kernel.modes[node.choice.mode]["PARTS"] == 1


def test_averages_of_whole_images(opencl, builder):
    x = seeded("whole").standard_normal((2, 3, 37, 29)).astype("f4")
    s = Sketch()
    pool = AvgPool(kernel=(37, 29), strides=(1, 1), exclude_pad=False)
    network = s.network(y=s.add("y", pool, s.input("x", *x.shape)))
    with Core() as core:
        loaded = graphs.loaded(network, opencl, builder, core)
        found = loaded.create_infer_request().infer({"x": x})["y"]
        ran = [n.choice.kernel.name for n in loaded.plan((x.shape,)).graph.nodes if n.choice]
    assert ran in (["reduce_ref"], ["reduce_group"])
    np.testing.assert_allclose(found, x.astype("f8").mean((2, 3), keepdims=True), 1e-5, 1e-7)
