"""Layers of one launch call the functions of others, by hand-worked times."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.ops.convolution import Convolution, GroupConvolution
from polydevice.ops.matmul import MatMul
from polydevice.ops.reduce import ReduceMean
from polydevice.ops.softmax import SoftMax
from polydevice_gpu.compiler import sharing
from polydevice_gpu.compiler.settings import CompileSettings
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.convolution.image_floats_mma import ConvolutionImageFloatsMma
from polydevice_gpu.kernels.kernel import Choice, Kernel
from polydevice_gpu.kernels.launch import Body, Launch, Scratch
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.one_launch import choose
from polydevice_gpu.runtime.plan import Step, scratch_memory
from polydevice_gpu.tuning.candidates import launches_of
from tests.gpu.graphs import Sketch, SparingBuilder, compiled, loaded, random_inputs
from tests.gpu.test_copies_ahead import HOPPER

TIMES = {
    "first": (4.0, 4.5, 9.0),
    "second": (5.5, 5.0, 9.0),
    "third": (5.6, 5.0, 9.0),
    "fourth": (9.0, 9.0, 4.0),
}
"""Layer → microseconds of each mode."""


class Untimed(Kernel):
    """A kernel whose modes are functions of their own."""

    name = "untimed"
    modes = ({"N": 0}, {"N": 1}, {"N": 2})

    def launches(self, node, mode, target):
        body = Body((), f"// mode {mode['N']}", ("__global float* parts",))
        scratch = [Scratch(4 << mode["N"], ElementType.f32)]
        return [Launch(self.name, f"{body.text} alone", (64,), (64,), scratch, body=body)]


class Timed(Untimed):
    """One that knows what they take."""

    name = "timed"

    def expected_us(self, node, number, target) -> float:
        return TIMES[node.name][number]


KERNEL = Timed()


def step(name: str, mode: int, kernel: Kernel | None = None, tuned: str = "") -> Step:
    node = GpuNode(name, SoftMax(axis=0), [], [])
    node.choice = Choice(kernel or KERNEL, mode, tuned=tuned)
    launches = node.choice.kernel.launches(node, node.choice.kernel.modes[mode], Target())
    return Step(node, launches, scratch=scratch_memory(launches))


def shared(*steps: Step) -> list[int]:
    sharing.share_functions(steps, Target())
    return [each.node.choice.mode for each in steps]


def test_a_function_goes_that_brings_less_than_it_costs() -> None:
    """Mode 0 costs second and third 0.5 + 0.6 us, a function 1.5, and mode 1 costs first 0.5."""
    steps = step("first", 0), step("second", 1), step("third", 1)
    assert shared(*steps) == [1, 1, 1]
    assert steps[0].launches[0].text == "// mode 1 alone"
    assert [scratch.elements for scratch in steps[0].scratch] == [8]
    assert steps[0].node.choice.passed == {
        "timed[0]": "its function would be one more, and that of others takes 0.5 us longer"
    }


def test_a_function_stays_that_brings_more(monkeypatch) -> None:
    """Fourth would lose 5 us. Of first and second alone, one goes if a function costs above 0.5."""
    assert shared(step("first", 0), step("fourth", 2)) == [0, 2]
    monkeypatch.setattr(sharing, "FUNCTION_US", 0.4)
    assert shared(step("first", 0), step("second", 1)) == [0, 1]
    monkeypatch.setattr(sharing, "FUNCTION_US", 0.6)
    assert len(set(shared(step("first", 0), step("second", 1)))) == 1


def test_no_function_comes_in() -> None:
    """Two layers whose third mode would be one function for both: that is not looked for."""
    assert shared(step("fourth", 2)) == [2]
    assert shared(step("first", 2), step("second", 2)) == [2, 2]


def test_what_was_tuned_stays_and_serves_others() -> None:
    tuned = step("first", 0, tuned="tuning")
    assert shared(tuned, step("second", 1)) == [0, 0]
    tuned = step("first", 0, tuned="tuning")
    assert shared(tuned, step("fourth", 2, tuned="tuning")) == [0, 2]


def test_other_kernels_stay() -> None:
    """What they take is not known; one that calls the same function keeps it, too."""
    assert shared(step("first", 0, Untimed()), step("second", 1)) == [0, 1]
    assert shared(step("first", 1, Untimed()), step("first", 0), step("second", 1)) == [1, 1, 1]


@pytest.mark.parametrize(("size", "modes"), [(112, [(32, 64), (64, 64)]), (56, [(32, 64)] * 2)])
def test_work_groups_run_side_by_side(size, modes) -> None:
    """392 groups of 128 work-items, of 264 with room, would take 5 steps of 0.23 us twice.

    196 take 5 of 0.25 once: as a launch of their own 0.1 us longer, in one launch 1.05 less.
    """
    s = Sketch()
    x = s.input("x", 1, 3, size, size, kind=ElementType.f16)
    weights = s.const("w", np.ones((64, 3, 7, 7), "f2"))
    around = Convolution((1, 1), (3, 3), (3, 3), (1, 1))
    graph = compiled(s.network(y=s.add("y", around, x, weights)), **dataclasses.asdict(HOPPER))
    (node,) = (node for node in graph.nodes if isinstance(node.op, Convolution))

    def tile() -> tuple[int, int]:
        mode = node.choice.kernel.modes[node.choice.mode]
        assert (node.choice.kernel.name, mode["SPLIT"]) == ("gemm_mma", 1)
        return mode["BM"], mode["BN"]

    found = [tile()]
    launches = launches_of(node.choice, node, HOPPER)
    sharing.share_functions([Step(node, launches, scratch=scratch_memory(launches))], HOPPER)
    assert [*found, tile()] == modes


@pytest.mark.parametrize(
    ("channels", "size", "kind", "modes"),
    [
        (32, 112, ElementType.f16, [(4, 2), (8, 2)]),  # 50,176 work-items of 33,792, or 25,088
        (192, 28, ElementType.f16, [(4, 1), (4, 2)]),
        (36, 112, ElementType.f16, [(4, 2), (4, 4)]),  # no 8 channels side by side
        (384, 14, ElementType.f16, [(4, 1), (4, 1)]),  # 18,816
        (32, 112, ElementType.f32, [(4, 2), (4, 2)]),  # not measured
        (32, 448, ElementType.f16, [(4, 8), (4, 8)]),  # more than twice too many
    ],
)
def test_work_items_compute_more_where_not_all_run_at_once(channels, size, kind, modes) -> None:
    s = Sketch()
    x = s.input("x", 1, channels, size, size, kind=kind)
    weights = s.const("w", np.ones((channels, 1, 1, 3, 3), kind.dtype))
    network = s.network(y=s.add("y", GroupConvolution((1, 1), (1, 1), (1, 1), (1, 1)), x, weights))
    graph = compiled(network, **dataclasses.asdict(HOPPER))
    (node,) = (node for node in graph.nodes if isinstance(node.op, GroupConvolution))
    found = [node.choice]
    launches = launches_of(node.choice, node, HOPPER)
    sharing.share_functions([Step(node, launches, scratch=scratch_memory(launches))], HOPPER)
    found.append(node.choice)
    assert {choice.kernel.name for choice in found} == {"convolution_depthwise"}
    chosen = [choice.kernel.modes[choice.mode] for choice in found]
    assert [(mode["LANES"], mode["PIXELS"]) for mode in chosen] == modes


def test_nothing_is_known_of_how_long_products_of_images_wait() -> None:
    node = GpuNode("y", Convolution((1, 1), (0, 0), (0, 0), (1, 1)), [], [])
    assert sharing.waiting_us(node, Choice(ConvolutionImageFloatsMma(), 0), HOPPER) == 0


def test_reductions_of_rows_share() -> None:
    """Two of one kernel in different modes: what each takes in that of the other is asked."""
    s, axes = Sketch(), np.array([2, 3])
    small, large = s.input("small", 1, 16, 80, 80), s.input("large", 1, 3, 640, 640)
    mean = ReduceMean(keep_dims=True)
    network = s.network(
        a=s.add("a", mean, small, s.const("of a", axes)),
        b=s.add("b", mean, large, s.const("of b", axes)),
    )
    graph = compiled(network, **dataclasses.asdict(HOPPER))
    nodes = [node for node in graph.nodes if node.choice is not None]
    kernel = nodes[0].choice.kernel
    modes = [node.choice.mode for node in nodes]
    assert kernel is nodes[1].choice.kernel
    assert [kernel.modes[mode]["PARTS"] for mode in modes] == [1, 128]
    steps = []
    for node in nodes:
        launches = launches_of(node.choice, node, HOPPER)
        steps.append(Step(node, launches, scratch=scratch_memory(launches)))
    sharing.share_functions(steps, HOPPER)
    for node, mine, other in zip(nodes, modes, reversed(modes), strict=True):
        mine_us, other_us = (kernel.expected_us(node, each, HOPPER) for each in (mine, other))
        assert 0 < mine_us < other_us


def test_large_stages_keep_launches_of_their_own(monkeypatch) -> None:
    monkeypatch.setattr(sharing, "LARGE_BYTES", 16)  # 4 elements of 4 bytes
    assert shared(step("first", 0), step("second", 1)) == [0, 1]


@pytest.mark.parametrize("meets", [True, False])
def test_plans_that_may_be_one_launch_share(meets, opencl, lockstep, monkeypatch) -> None:
    """Two products of which the first is as fast in the tiles of the second, but for 0.02 us."""
    can = dataclasses.replace(opencl.capabilities, groups_meet=meets)
    monkeypatch.setattr(opencl, "capabilities", can)
    monkeypatch.setattr(choose, "BARRIERS_ANYWHERE", True)  # what would be one is not built here
    s = Sketch()
    first = s.add("first", MatMul(), s.input("x", 500, 32), s.weights("v", 32, 128))
    network = s.network(y=s.add("second", MatMul(), first, s.weights("w", 128, 64)))
    settings = CompileSettings(single_launch="AUTO")
    executable = loaded(network, opencl, SparingBuilder(opencl), settings=settings)
    steps = executable.latest_plan().launching
    modes = [step.node.choice.kernel.modes[step.node.choice.mode] for step in steps]
    assert (modes[0] == modes[1]) is meets
    assert len({launch.text for step in steps for launch in step.launches}) == 2 - meets
    assert ("its function would be one more" in executable.explain()) is meets
    inputs = random_inputs(network)
    wanted = inputs["x"] @ weights(network, "v") @ weights(network, "w")
    np.testing.assert_allclose(executable.infer(inputs)["y"], wanted, 1e-4, 1e-4)


def weights(network, name: str):
    """The constant of that name."""
    return next(node.constant for node in network.nodes() if node.name == name)
