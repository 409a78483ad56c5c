"""Products computed in half: who gets them, how exact they are, and that they really are."""

from __future__ import annotations

import dataclasses
import importlib

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.ops.convolution import Convolution
from polydevice.ops.matmul import MatMul
from polydevice_gpu import cl
from polydevice_gpu.compiler.device_target import target_of
from polydevice_gpu.kernels.gemm.gemm_subgroup import ConvolutionSubgroup, MatmulSubgroup
from polydevice_gpu.kernels.gemm.gemm_tiled import ConvolutionTiled, MatmulTiled
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.tuning.candidates import candidates
from tests.gpu.graphs import Sketch, compiled, loaded
from tests.gpu.trials import only
from tests.seeds import seeded

GPU = {
    "local_memory_bytes": 49152,
    "scalar_lanes": 16,
    "compute_units": 8,
    "max_work_group_size": 1024,
}
UNIT = 2.0**-11
"""Rounding to f16 is off by so much of the value at most."""
STRIP = 16 * UNIT / (1 - 16 * UNIT)
"""Sums of 16 products in half are off by so much of the sum of magnitudes at most."""
SMALLEST = 2.0**-24
"""Smallest f16 above 0; a product that falls between two of them is off by half of it."""


@pytest.fixture(scope="module")
def builder(opencl):
    return cl.ProgramBuilder(opencl)


def convolution(x: np.ndarray, w: np.ndarray):
    """A 3 by 3 window over f16 data, with pads."""
    s = Sketch()
    op = Convolution(strides=(1, 1), pads_begin=(1, 1), pads_end=(1, 1), dilations=(1, 1))
    port = s.input("x", *x.shape, kind=ElementType.f16)
    return s.network(y=s.add("product", op, port, s.const("w", w)))


def convolved(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The answer in f64."""
    image = np.pad(x.astype("f8"), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3), (2, 3))
    return np.einsum("bcyxij,ocij->boyx", windows, w.astype("f8"))


def rows(x: np.ndarray, w: np.ndarray):
    """f16 rows times a constant matrix."""
    s = Sketch()
    port = s.input("x", *x.shape, kind=ElementType.f16)
    return s.network(y=s.add("product", MatMul(), port, s.const("w", w)))


def multiplied(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The answer in f64."""
    return x.astype("f8") @ w.astype("f8")


KERNELS = [
    (ConvolutionTiled(), Convolution),
    (ConvolutionSubgroup(), Convolution),
    (MatmulTiled(), MatMul),
    (MatmulSubgroup(), MatMul),
]


def smallest(kernel, *, half: bool) -> int:
    """Return the mode with the smallest tile, of sub-groups of 16 if any: it compiles soonest."""
    fitting = [
        (mode["TM"] * mode["TN"], number)
        for number, mode in enumerate(kernel.modes)
        if bool(mode.get("HALF")) == half and mode.get("SG", 16) == 16 and mode["SPLIT"] == 1
    ]
    return min(fitting)[1]


def run(monkeypatch, opencl, builder, kernel, op, network, x: np.ndarray, half: bool):
    """Return what a kernel computes in half, or in float."""
    real = target_of(opencl)
    if not real.fp16_arithmetic:
        pytest.skip(f"{opencl.facts.name} does not compute in half")
    if kernel.name == "gemm_subgroup" and 16 not in real.sub_group_sizes:
        pytest.skip(f"{opencl.facts.name} has no sub-groups of 16")
    target = dataclasses.replace(real, **GPU)
    mode = smallest(kernel, half=half)
    monkeypatch.setattr(
        importlib.import_module("polydevice_gpu.compiler.compiler"), "target_of", lambda _: target
    )
    monkeypatch.setattr(type(kernel), "default_mode", lambda *_: mode)
    only(monkeypatch, op, kernel)
    return loaded(network, opencl, builder).create_infer_request().infer({"x": x})["y"]


@pytest.mark.parametrize(("kernel", "op"), KERNELS, ids=lambda v: getattr(v, "name", ""))
def test_sums_stay_within_the_bound_of_sixteen_terms(monkeypatch, opencl, builder, kernel, op):
    random = seeded(f"half {kernel.name} {op.__name__}")
    if op is Convolution:
        x, w = random.standard_normal((2, 37, 9, 7)), random.standard_normal((45, 37, 3, 3))
        make, answer = convolution, convolved
    else:
        x, w = random.standard_normal((83, 301)), random.standard_normal((301, 45))
        make, answer = rows, multiplied
    x, w = x.astype("f2"), (w * 0.1).astype("f2")
    found = run(monkeypatch, opencl, builder, kernel, op, make(x, w), x, half=True)
    exact, magnitudes = answer(x, w), answer(np.abs(x), np.abs(w))
    terms = w.size // 45
    bound = STRIP * magnitudes + UNIT * np.abs(exact) + terms * SMALLEST
    off = np.abs(found.astype("f8") - exact)
    assert (off <= bound).all(), f"off by {np.max(off / bound):.2f} of the bound"
    # Errors of both signs: far less than the worst case is to be expected.
    assert np.sqrt(np.mean(off**2)) <= 0.2 * np.sqrt(np.mean(bound**2))


@pytest.mark.parametrize(("kernel", "op"), KERNELS, ids=lambda v: getattr(v, "name", ""))
def test_products_are_really_rounded_to_half_where_they_should_be(
    monkeypatch, opencl, builder, kernel, op
):
    """(1 + 2^-10)^2 - (1 + 2^-9) is 2^-20; rounded after the first product it is 0."""
    x, w = np.zeros((1, 2), "f2"), np.ones((2, 64), "f2")
    x[0] = 1 + 2.0**-10, -(1 + 2.0**-9)
    w[0] = 1 + 2.0**-10
    make = rows
    if op is Convolution:
        x, make = x.reshape(1, 2, 1, 1), convolution
        wide = np.zeros((64, 2, 3, 3), "f2")
        wide[:, :, 1, 1] = w.T
        w = wide
    for half, expected in ((True, 0.0), (False, 2.0**-20)):
        with monkeypatch.context() as patch:
            found = run(patch, opencl, builder, kernel, op, make(x, w), x, half=half)
        assert np.all(found.astype("f8") == expected)


@pytest.mark.parametrize("size", [16, 32])
def test_strips_of_sums_lose_no_term(monkeypatch, opencl, builder, size):
    """The same kernel with float in place of half, which any device runs: as exact as float."""
    module = importlib.import_module("polydevice_gpu.kernels.gemm.gemm_subgroup")
    real = module.declare_lanes
    monkeypatch.setattr(module, "declare_lanes", lambda call, mode, _: real(call, mode, "float"))
    kernel = MatmulSubgroup()
    mode = next(
        number
        for number, mode in enumerate(kernel.modes)
        if mode.get("HALF") and mode["SG"] == size and mode["SPLIT"] == 4
    )
    target = dataclasses.replace(
        target_of(opencl), **GPU, fp16_arithmetic=True, sub_group_sizes=(16, 32),
        sub_group_size_required=False,
    )  # fmt: skip
    monkeypatch.setattr(
        importlib.import_module("polydevice_gpu.compiler.compiler"), "target_of", lambda _: target
    )
    monkeypatch.setattr(MatmulSubgroup, "default_mode", lambda *_: mode)
    only(monkeypatch, MatMul, kernel)
    random = seeded(f"strips {size}")
    x, w = (random.standard_normal(shape).astype("f2") for shape in ((13, 301), (301, 45)))
    found = loaded(rows(x, w), opencl, builder).create_infer_request().infer({"x": x})["y"]
    exact = multiplied(x, w)
    assert (np.abs(found.astype("f8") - exact) <= UNIT * np.abs(exact) + 1e-4).all()


@pytest.mark.parametrize("more", [{}, {"sub_group_sizes": (16, 32)}], ids=["tiled", "sub-groups"])
def test_half_is_chosen_for_f16_where_it_is_faster_and_tuned_where_it_is_possible(more):
    shapes = (128, 256), (256, 512)
    x, w = (np.zeros(shape, "f2") for shape in shapes)
    halves = rows(x, w)
    s = Sketch()
    y = s.add("product", MatMul(), s.input("x", *shapes[0]), s.weights("w", *shapes[1]))
    floats = s.network(y=y)

    def node_of(network, **target):
        graph = compiled(network, **GPU, **more, **target)
        return next(node for node in graph.nodes if type(node.op) is MatMul)

    def chosen(network, **target):
        choice = node_of(network, **target).choice
        return bool(choice.kernel.modes[choice.mode].get("HALF"))

    def tried(network, **target):
        found = candidates(node_of(network, **target), Target(**GPU, **more, **target))
        return any(c.kernel.modes[c.mode].get("HALF") for c in found)

    able, faster = {"fp16_arithmetic": True}, {"fp16_arithmetic": True, "fp16_is_faster": True}
    assert chosen(halves, **faster)
    assert not chosen(halves, **able)
    assert tried(halves, **able)
    for network, target in ((halves, {}), (floats, faster)):
        assert not chosen(network, **target)
        assert not tried(network, **target)
