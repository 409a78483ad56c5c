"""Products in the registers of sub-groups: all ways of sharing values, and who gets such kernels.

Devices without sub-groups run what kernels do where sub-groups turn out to have another size than
they were written for: values go through local memory.
"""

from __future__ import annotations

import dataclasses
import importlib

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.ops.activation import Clamp, Relu
from polydevice.ops.arithmetic import Add, Multiply
from polydevice.ops.convolution import Convolution
from polydevice.ops.matmul import MatMul
from polydevice_gpu import cl
from polydevice_gpu.compiler.device_target import target_of
from polydevice_gpu.kernels.gemm.gemm_subgroup import ConvolutionSubgroup, MatmulSubgroup
from polydevice_gpu.kernels.gemm.gemm_tiled import ConvolutionTiled
from polydevice_gpu.kernels.product.batched import BatchedSubgroup
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.tuning.candidates import candidates
from tests.gpu.graphs import Sketch, SparingBuilder, compiled, loaded, random_inputs
from tests.gpu.trials import only, simulated

GPU = {
    "local_memory_bytes": 32768,
    "scalar_lanes": 16,
    "compute_units": 96,
    "max_work_group_size": 1024,
}
INTEL = {
    "sub_group_sizes": (8, 16, 32),
    "sub_group_size_required": True,
    "sub_group_share": "intel_sub_group_shuffle",
}
SHARES = ("", "sub_group_broadcast", "sub_group_shuffle", "intel_sub_group_shuffle")
SIZES = (8, 16, 32, 64)
TOLERANCES = {ElementType.f32: 1e-5, ElementType.f16: 5e-3}
"""f16: inputs and weights are given as f16, sums are f32, the result is rounded once."""


@pytest.fixture(scope="module")
def builder(opencl):
    return SparingBuilder(opencl, threads=1)  # oclgrind compiles one program at a time


def can(device: cl.Device, share: str) -> bool:
    """Whether the device has the function."""
    has = device.capabilities
    return {
        "": True,
        "sub_group_broadcast": has.sub_groups,
        "sub_group_shuffle": has.sub_group_shuffle,
        "intel_sub_group_shuffle": has.sub_group_shuffle_intel,
    }[share]


def convolution(kind: ElementType):
    """Window with stride, dilation and pads, 21 channels to 35, and what follows it; the answer."""
    s, w = Sketch(), weights(kind, 35, 21, 3, 2)
    x = s.input("x", 2, 21, 11, 9, kind=kind)
    op = Convolution(strides=(2, 1), pads_begin=(2, 0), pads_end=(1, 1), dilations=(1, 2))
    y = s.add("product", op, x, s.const("w", w))
    y = s.add("scaled", Multiply(), y, s.input("scale", 35, 1, 1, kind=kind))
    y = s.add("sum", Add(), y, s.input("more", 2, 35, 6, 8, kind=kind))
    network = s.network(y=s.add("clamp", Clamp(min=-1.0, max=2.5), y))

    def answer(x, scale, more):
        image = np.pad(x, ((0, 0), (0, 0), (2, 1), (0, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3), (2, 3))[:, :, ::2]
        result = np.einsum("bcyxij,ocij->boyx", windows[..., ::2], w.astype("f8"))
        return np.clip(result * scale + more, -1.0, 2.5)

    return network, answer


def rows(kind: ElementType):
    """Rows of two batches times a constant matrix, 300 terms; the answer."""
    s, w = Sketch(), weights(kind, 41, 300)
    y = s.add("product", MatMul(transpose_b=True), s.input("x", 2, 19, 300, kind=kind),
              s.const("w", w))  # fmt: skip
    y = s.add("biased", Add(), y, s.input("bias", 41, kind=kind))
    network = s.network(y=s.add("relu", Relu(), y))
    return network, lambda x, bias: np.maximum(x @ w.astype("f8").T + bias, 0)


def weights(kind: ElementType, *shape: int) -> np.ndarray:
    """Return small random numbers."""
    return (np.random.default_rng(5).standard_normal(shape) * 0.1).astype(kind.dtype)


def batches(kind: ElementType):
    """Three products of two variables, 70 terms, the second factor's batch repeated; the answer."""
    s = Sketch()
    a, b = s.input("a", 3, 21, 70, kind=kind), s.input("b", 1, 70, 54, kind=kind)
    y = s.add("product", MatMul(), a, b)
    y = s.add("sum", Add(), y, s.input("more", 3, 1, 54, kind=kind))
    return s.network(y=s.add("relu", Relu(), y)), lambda a, b, more: np.maximum(a @ b + more, 0)


def turned(kind: ElementType):
    """Both factors transposed, 37 columns; the answer."""
    s = Sketch()
    a, b = s.input("a", 2, 50, 19, kind=kind), s.input("b", 2, 37, 50, kind=kind)
    network = s.network(y=s.add("product", MatMul(transpose_a=True, transpose_b=True), a, b))
    return network, lambda a, b: a.swapaxes(1, 2) @ b.swapaxes(1, 2)


KERNELS = [
    (ConvolutionSubgroup(), Convolution, convolution),
    (MatmulSubgroup(), MatMul, rows),
    (BatchedSubgroup(), MatMul, batches),
    (BatchedSubgroup(), MatMul, turned),
]


def check(monkeypatch, opencl, builder, kernel, op, size, made, kind, **target) -> None:
    """Run a network on one kernel with sub-groups of that size, on a device that is changed."""
    network, answer = made(kind)
    mode = mode_of(kernel, size)
    changed = dataclasses.replace(target_of(opencl), **target)
    monkeypatch.setattr(
        importlib.import_module("polydevice_gpu.compiler.compiler"), "target_of", lambda _: changed
    )
    monkeypatch.setattr(type(kernel), "default_mode", lambda *_: mode)
    given = {n: a.astype(kind.dtype) for n, a in random_inputs(network).items()}
    expected = answer(**{name: array.astype("f8") for name, array in given.items()})
    only(monkeypatch, op, kernel)
    request = loaded(network, opencl, builder).create_infer_request()
    for _ in range(1 if simulated() else 2):
        found = request.infer(given)["y"].astype("f8")
        np.testing.assert_allclose(found, expected, TOLERANCES[kind], TOLERANCES[kind])


def mode_of(kernel, size: int, split: int = 1) -> int:
    """Return the first mode with sub-groups of that size and so many parts."""
    return next(
        number
        for number, mode in enumerate(kernel.modes)
        if mode["SG"] == size and mode.get("SPLIT", 1) == split
    )


# Intel's compiler takes long for wide sub-groups: two of these ran out of 300 s on two cores that a
# dozen other programs kept busy.
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("share", "size", "kind"),
    [
        *(("", size, ElementType.f32) for size in SIZES),
        *(("intel_sub_group_shuffle", size, ElementType.f32) for size in SIZES),
        ("", 16, ElementType.f16),
        ("intel_sub_group_shuffle", 16, ElementType.f16),
        ("sub_group_shuffle", 16, ElementType.f32),
        ("sub_group_shuffle", 8, ElementType.f16),
        ("sub_group_broadcast", 16, ElementType.f32),
        ("sub_group_broadcast", 32, ElementType.f16),
    ],
)
def test_lanes_share_values_by_every_function_that_the_device_has(
    monkeypatch, opencl, builder, share, size, kind
):
    has = target_of(opencl)
    skip_without(opencl, share)
    if share and not (has.sub_group_size_required and size in has.sub_group_sizes):
        pytest.skip(f"{opencl.facts.name} gives no kernel sub-groups of {size}")
    if share and size > 8 and is_pocl(opencl):
        pytest.skip("PoCL makes a barrier of each value that is shared: minutes of compiling")
    blocks = share.startswith("intel")
    target = {
        "sub_group_sizes": SIZES,
        "sub_group_share": share,
        "sub_group_size_required": bool(share),
        "sub_group_block_read": blocks and has.sub_group_block_read,
        "sub_group_block_read_16bit": blocks and has.sub_group_block_read_16bit,
        # PoCL 6 writes over the heap where a sub-group ends before others of its work-group.
        "sub_groups_end_alone": not is_pocl(opencl),
    }
    for kernel, op, made in KERNELS:
        check(monkeypatch, opencl, builder, kernel, op, size, made, kind, **GPU, **target)


@pytest.mark.parametrize("share", SHARES[1:])
@pytest.mark.parametrize("size", [8, 32])
def test_sub_groups_of_another_size_than_expected_share_through_local_memory(
    monkeypatch, opencl, builder, share, size
):
    """Where no kernel may ask for a size, the compiler picks one: not both of these."""
    skip_without(opencl, share)
    if is_pocl(opencl):
        pytest.skip("PoCL compiles barriers that depend on a condition for minutes; it has sizes")
    target = {"sub_group_sizes": SIZES, "sub_group_share": share, "sub_group_size_required": False}
    for kernel, op, made in KERNELS:
        check(
            monkeypatch, opencl, builder, kernel, op, size, made, ElementType.f32,
            **GPU, **target,
        )  # fmt: skip


def is_pocl(device: cl.Device) -> bool:
    """Whether sub-groups are PoCL's: loops over the work-group."""
    return "portable" in device.facts.platform_name.lower()


def skip_without(opencl, share: str) -> None:
    """Skip where the device lacks a function, and where it has some but none is asked for."""
    if not can(opencl, share):
        pytest.skip(f"{opencl.facts.name} has no {share}")
    if not share and opencl.capabilities.sub_groups:
        pytest.skip(f"{opencl.facts.name} has functions for it")


def convolved():
    """A convolution whose result another one reads, so that it may lie channels-last."""
    s = Sketch()
    x = s.input("x", 1, 64, 28, 28)
    return s.network(y=s.conv("after", s.conv("conv", x, 64), 8, 1))


def product_of(graph):
    """The node of the first convolution or product."""
    return next(node for node in graph.nodes if type(node.op) in (Convolution, MatMul))


def test_a_gpu_with_sub_groups_uses_them_where_local_memory_is_not_expected_to_be_faster():
    for target, name in (({}, "gemm_tiled"), (INTEL, "gemm_subgroup")):
        node = product_of(compiled(convolved(), **GPU, **target))
        assert node.choice.kernel.name == name
    kernel, mode = node.choice.kernel, node.choice.mode
    changed = Target(**GPU, **INTEL)
    tiled = ConvolutionTiled()
    others = [tiled.expected_us(node, n, changed) for n in range(len(tiled.modes))]
    assert kernel.expected_us(node, mode, changed) <= min(others)
    assert kernel.modes[mode]["SG"] in INTEL["sub_group_sizes"]


def test_processor_cores_use_vectors_and_tuning_tries_sub_groups_of_their_width():
    target = {**INTEL, "vector_width": 16}
    node = product_of(compiled(convolved(), **target))
    assert node.choice.kernel.name == "convolution_direct"
    tried = [c for c in candidates(node, Target(**target)) if c.kernel.name == "gemm_subgroup"]
    assert {c.kernel.modes[c.mode]["SG"] for c in tried} == {16}


def test_devices_without_sub_groups_have_no_such_kernel():
    node = product_of(compiled(convolved(), **GPU))
    assert not [c for c in candidates(node, Target(**GPU)) if c.kernel.name == "gemm_subgroup"]
