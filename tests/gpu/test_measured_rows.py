"""Products that measure the rows which they make, for those that normalise them; NumPy in f64."""

from __future__ import annotations

import dataclasses
import importlib

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.ops.arithmetic import Add, Multiply
from polydevice.ops.gather import Gather
from polydevice.ops.matmul import MatMul
from polydevice.ops.normalization import MVN, EpsMode
from polydevice.ops.transpose import Transpose
from polydevice_gpu.compiler.device_target import target_of
from polydevice_gpu.compiler.settings import CompileSettings
from polydevice_gpu.kernels.product.gemm_warps import MatmulWarps
from polydevice_gpu.kernels.product.measured import MeasuredWarps, MomentsWgmma
from polydevice_gpu.measured_ops import MeasuredGather, MeasuredMatMul, MomentsMatMul
from polydevice_gpu.ops import NormalizedMatMul
from tests.gpu import graphs, mma_in_c, wgmma_in_c
from tests.gpu.kernel_cases import cases_of
from tests.gpu.test_copies_ahead import HOPPER
from tests.gpu.test_products_by_warps import READ_IN_C

EPSILON = 1e-5

EXCHANGED = """
#undef FROM_LANE
#define FROM_LANE(to, from, bit) \\
    { \\
        exchange[thread] = as_uint(from); \\
        barrier(CLK_LOCAL_MEM_FENCE); \\
        to = as_float(exchange[thread ^ (bit)]); \\
        barrier(CLK_LOCAL_MEM_FENCE); \\
    }
"""


@pytest.fixture
def use_modes(monkeypatch, opencl):
    """Let warps measure rows here, and products be told of it, both in given modes."""
    if graphs.has_trouble(opencl.facts, "normalisations"):
        pytest.skip(f"{opencl.facts.platform_version} computes such kernels wrong, written in C")
    compiler = importlib.import_module("polydevice_gpu.compiler.compiler")
    target = dataclasses.replace(
        target_of(opencl), matrix_unit=True, warp_group_unit=True, compute_units=132
    )
    measured, told = MeasuredWarps.launches, MomentsWgmma.launches

    def measuring(*given):
        return [mma_in_c.in_c(launch, READ_IN_C + EXCHANGED) for launch in measured(*given)]

    def normalising(*given):
        return [wgmma_in_c.in_c(launch, exchanges=True) for launch in told(*given)]

    def use(width: int, mode: int) -> None:
        first = next(n for n, mode in enumerate(MatmulWarps.modes) if mode["BN"] == width)
        monkeypatch.setattr(compiler, "target_of", lambda _: target)
        monkeypatch.setattr(MatmulWarps, "default_mode", lambda *_: first)
        monkeypatch.setattr(MeasuredWarps, "launches", measuring)
        monkeypatch.setattr(MomentsWgmma, "launches", normalising)
        monkeypatch.setattr(MomentsWgmma, "default_mode", lambda *_: mode)

    return use


def _half(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("f2")


def _normal(s, x, size):
    norm = MVN(normalize_variance=True, eps=EPSILON, eps_mode=EpsMode.INSIDE_SQRT)
    y = s.add("n", norm, x, s.const("axes", np.array([-1])))
    return s.add("scaled", Multiply(), y, s.const("gamma", _half(size)))


@pytest.mark.parametrize(
    ("rows", "terms", "middle", "columns", "width", "mode"),
    [
        (35, 104, 200, 72, 24, 0),  # the last slot has eight columns
        pytest.param(70, 152, 264, 136, 48, 0, marks=pytest.mark.full),
        pytest.param(33, 72, 104, 40, 96, 1, marks=pytest.mark.full),
    ],
)
def test_rows_far_from_zero(core, opencl, use_modes, rows, terms, middle, columns, width, mode):
    use_modes(width, mode)
    random = np.random.default_rng(rows)
    x = random.standard_normal((rows, terms)).astype("f2")
    more = random.standard_normal((rows, middle)) + random.uniform(-40, 40, (rows, 1))
    more = more.astype("f2")
    more[rows // 2] = np.nan  # which no other row may show
    first, second, bias = _half(terms, middle), _half(middle, columns), _half(columns)
    s = graphs.Sketch()
    given = s.input("x", rows, terms, kind=ElementType.f16)
    y = s.add("first", MatMul(), given, s.const("first/w", first))
    y = s.add("sum", Add(), y, s.input("more", rows, middle, kind=ElementType.f16))
    y = s.add("second", MatMul(), _normal(s, y, middle), s.const("second/w", second))
    network = s.network(y=s.add("biased", Add(), y, s.const("bias", bias)))
    executable = graphs.loaded(network, opencl, graphs.SparingBuilder(opencl), core)
    kinds = [type(node.op) for node in executable.latest_plan().graph.nodes if not node.is_view]
    assert kinds == [MeasuredMatMul, MomentsMatMul]
    made = (x.astype("f8") @ first.astype("f8") + more).astype("f2").astype("f8")
    centred = made - made.mean(-1, keepdims=True)
    normal = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON)
    right = (normal * _half(middle).astype("f8")) @ second.astype("f8") + bias
    for _ in range(2):
        (found,) = executable.infer({"x": x, "more": more}).values()
        np.testing.assert_allclose(found, right, 3e-3, 1e-1)


@pytest.mark.parametrize(("rows", "terms", "columns"), [(35, 200, 72), (70, 768, 136)])
def test_rows_of_a_table(core, opencl, use_modes, rows, terms, columns):
    use_modes(24, 0)
    random = np.random.default_rng(rows)
    table = (random.standard_normal((50, terms)) + random.uniform(-9, 9, (50, 1))).astype("f2")
    indices = random.integers(-50, 50, (1, rows))
    places, second, bias = _half(rows, terms), _half(terms, columns), _half(columns)
    s = graphs.Sketch()
    words = s.input("words", 1, rows, kind=ElementType.i64)
    y = s.add("rows", Gather(), s.const("table", table), words, s.const("axis", np.array(0)))
    y = s.add("sum", Add(), y, s.const("places", places[None]))
    z = s.add("second", MatMul(), _normal(s, y, terms), s.const("second/w", second))
    network = s.network(y=y, z=s.add("biased", Add(), z, s.const("bias", bias)))
    executable = graphs.loaded(network, opencl, graphs.SparingBuilder(opencl), core)
    kinds = [type(node.op) for node in executable.latest_plan().graph.nodes if not node.is_view]
    assert kinds == [MeasuredGather, MomentsMatMul]
    made = (table[indices[0]].astype("f8") + places).astype("f2").astype("f8")
    centred = made - made.mean(-1, keepdims=True)
    normal = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON)
    right = (normal * _half(terms).astype("f8")) @ second.astype("f8") + bias
    for _ in range(2):
        found = executable.infer({"words": indices})
        np.testing.assert_allclose(found["y"][0], made, 1e-3, 1e-2)
        np.testing.assert_allclose(found["z"][0], right, 3e-3, 1e-1)


def test_moments_that_lie_otherwise(core, opencl, use_modes):
    use_modes(24, 0)
    (case,) = (each for each in cases_of(MomentsMatMul, "f2") if each.inputs[0].shape == (3, 5, 72))
    x, w, sums, shift, moments = case.inputs
    s = graphs.Sketch()
    turned = s.input("moments", *moments.T.shape)
    order = s.const("order", np.array([2, 1, 0]))
    constants = (s.const(name, a) for name, a in (("w", w), ("sums", sums), ("shift", shift)))
    given = s.input("x", *x.shape, kind=ElementType.f16)
    y = s.add("y", case.op, given, *constants, s.add("back", Transpose(), turned, order))
    executable = graphs.loaded(s.network(y=y), opencl, graphs.SparingBuilder(opencl), core)
    assert "moments_wgmma" in executable.explain()
    (found,) = executable.infer({"x": x, "moments": np.ascontiguousarray(moments.T)}).values()
    np.testing.assert_allclose(found, case.answers()[0], *case.tolerance)


@pytest.mark.parametrize("rows", [128, 197])
def test_on_matrix_units_by_itself_and_as_one_launch(core, opencl, rows):
    if not target_of(opencl).warp_group_unit:
        pytest.skip(f"{opencl.facts.name} has no matrix units of warp groups")
    random = np.random.default_rng(rows)
    x = random.standard_normal((rows, 768)).astype("f2")
    more = random.standard_normal((rows, 768)) + random.uniform(-9, 9, (rows, 1))
    more = more.astype("f2")
    first, second = (_half(768, columns) / 32 for columns in (768, 3072))
    s = graphs.Sketch()
    y = s.add("first", MatMul(), s.input("x", rows, 768, kind=ElementType.f16), s.const("w", first))
    y = s.add("sum", Add(), y, s.input("more", rows, 768, kind=ElementType.f16))
    y = s.add("second", MatMul(), _normal(s, y, 768), s.const("v", second))
    network = s.network(y=s.add("third", MatMul(), y, s.const("u", second.T / 16)))
    made = (x.astype("f8") @ first.astype("f8") + more).astype("f2").astype("f8")
    centred = made - made.mean(-1, keepdims=True)
    normal = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON)
    right = (normal * _half(768)) @ second.astype("f8") @ (second.T / 16).astype("f8")
    answers = []
    for how in ("NO", "YES"):
        settings = CompileSettings(single_launch=how)
        builder = graphs.SparingBuilder(opencl)
        executable = graphs.loaded(network.clone(), opencl, builder, core, settings)
        assert "moments_wgmma" in executable.explain()
        assert bool(executable.latest_plan().joined) == (how == "YES")
        (found,) = executable.infer({"x": x, "more": more}).values()
        answers.append(found)
    np.testing.assert_array_equal(*answers)
    np.testing.assert_allclose(answers[0], right, 1e-2, 1e-2 * np.abs(right).max())


def _ops(build, rows=128, **target):
    """Return the operations that `build(sketch, x)` of rows of 768 halves becomes."""
    s = graphs.Sketch()
    x = s.input("x", rows, 768, kind=ElementType.f16)
    network = s.network(**build(s, x))
    graph = graphs.compiled(network, **{**dataclasses.asdict(HOPPER), **target})
    return [type(node.op) for node in graph.nodes if not node.is_view]


def _product(s, x, name, columns, terms=768):
    return s.add(name, MatMul(), x, s.const(f"{name}/w", _half(terms, columns)))


def _block(s, x, columns=768):
    """Make rows, which are normalised for one product and added to another one's."""
    made = s.add("made", Add(), _product(s, x, "out", columns), _product(s, x, "beside", columns))
    up = _product(s, _normal(s, made, columns), "up", 3072, columns)
    return made, up


def test_a_product_is_told_what_another_one_measured():
    def build(s, x):
        made, up = _block(s, x)
        return {"up": up, "made": s.add("twice", Add(), made, made)}

    ops = _ops(build)
    assert ops.count(MeasuredMatMul) == ops.count(MomentsMatMul) == 1
    assert NormalizedMatMul not in ops and MVN not in ops


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(lambda s, x: {"y": _product(s, _normal(s, x, 768), "y", 2304)}, id="an input"),
        pytest.param(
            lambda s, x: {"y": _product(s, _normal(s, s.add("z", Add(), x, x), 768), "y", 2304)},
            id="a sum",
        ),
    ],
)
def test_rows_that_no_product_makes_are_measured_by_who_reads_them(build):
    ops = _ops(build)
    assert NormalizedMatMul in ops and MeasuredMatMul not in ops


def test_many_rows_have_a_launch_for_their_normalisation():
    assert MVN in _ops(lambda s, x: dict(zip("ab", _block(s, x), strict=True)), rows=300)
