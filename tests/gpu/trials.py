"""Which cases, in which arrangements and modes, show a kernel right: chosen so that all occur."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NoReturn

import pytest

from polydevice.errors import UnsupportedNetworkError
from polydevice.ops.generate import Range, Range1
from polydevice.ops.op import Op
from polydevice.ops.python_operation import PythonOperation
from polydevice.testing.op_case import OpCase
from polydevice_cpu.implement import evaluate
from polydevice_gpu.compiler.network_stages import Work
from polydevice_gpu.compiler.settings import CompileSettings
from polydevice_gpu.compiler.stages import GRAPH, NETWORK
from polydevice_gpu.custom.operation import Custom
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.kernel import Kernel, Mode, all_kernels, kernels_of
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.ops import QuantisedConvolution, ResampleYuv
from tests.gpu.arrangements import ARRANGEMENTS, Arrangement, Trial
from tests.gpu.kernel_cases import cases_of
from tests.seeds import seeded

SUB_GROUPS = (4, 8, 16, 32, 64)
"""Sizes of sub-groups that some kernel has a mode for."""

_PROCESSOR = Target(
    vector_width=16, local_memory_bytes=98304, max_work_group_size=1024, matrix_unit=True,
    async_copy=True, warp_group_unit=True, warp_shuffle=True, sub_group_sizes=SUB_GROUPS,
    fp16_arithmetic=True, byte_product="x86 assembly",
)  # fmt: skip
ABLE = (
    _PROCESSOR,
    dataclasses.replace(_PROCESSOR, scalar_lanes=32, vector_width=4, byte_product="ptx"),
)
"""Devices, with and without lanes in lockstep, that can all that kernels ask for."""


# Custom layers and operations written in Python bring their own kernels, and no single operation
# becomes one of the next two, and ranges are constants unless sizes are formulas;
# test_custom_layers, test_python_operation, test_fused_frames, test_image_products and
# test_new_shapes have those.
ELSEWHERE = (Custom, PythonOperation, ResampleYuv, QuantisedConvolution, Range, Range1)
OPERATIONS = {op: kernels for op, kernels in all_kernels().items() if op not in ELSEWHERE}
KERNELS = [(op, kernel) for op, kernels in OPERATIONS.items() for kernel in kernels]

ONE_TYPE = {
    "gemm_mma": "f2",
    "gemm_fed": "f2",
    "gemm_wgmma": "f2",
    "gemm_warps": "f2",
    "moments_wgmma": "f2",
    "attention_mma": "f2",
    "gemm_async": "f4",
}
"""Kernels that multiply in one type only; single operations bring it as their own."""
PAIRS = [
    (pair, dtype)
    for pair in KERNELS
    for dtype in ("f4", "f2")
    if ONE_TYPE.get(pair[1].name, dtype) == dtype
]


def simulated() -> bool:
    """Whether a simulator runs kernels, one instruction after the other; then once is enough.

    What a second inference shows, a plan that is used again, is the same on every device.
    """
    return os.environ.get("POLYDEVICE_TEST_SEPARATE_BUFFERS") == "1"


def named(value: tuple[type, Kernel] | str) -> str:
    """Name a parameter of a test."""
    return value if isinstance(value, str) else f"{value[0].__name__}-{value[1].name}"


@dataclass(frozen=True)
class Candidate:
    """A trial that a kernel takes.

    Attributes:
        trial: the network.
        case: number of its case.
        modes: the modes that can run it.
    """

    trial: Trial
    case: int
    modes: tuple[int, ...]


def candidates(op: type[Op], kernel: Kernel, kind: str, target: Target) -> Iterator[Candidate]:
    """Arrange every case of an operation in every way, and keep what the kernel takes."""
    for number in range(len(_cases(op, kind))):
        for arrangement in ARRANGEMENTS:
            trial, work = _rewritten(op, kind, number, arrangement, target)
            nodes = nodes_run_by(work, op, kernel)
            modes = tuple(
                mode
                for mode in range(len(kernel.modes))
                if nodes
                and all(kernel.mode_supports(node, kernel.modes[mode], target) for node in nodes)
            )
            if modes:
                yield Candidate(trial, number, modes)


@lru_cache(maxsize=4)
def _cases(op: type[Op], kind: str) -> list[OpCase]:
    return [*cases_of(op, kind)]


@lru_cache(maxsize=512)  # what costs most is the same for all kernels of an operation
def _rewritten(
    op: type[Op], kind: str, number: int, arrangement: Arrangement, target: Target
) -> tuple[Trial, Work]:
    """Return an arranged case, and its network as far as no choice of a kernel can matter."""
    name = f"{op.__name__} {kind} {number} {arrangement.name}"
    trial = arrangement.trial(_cases(op, kind)[number], seeded(name))
    trial.network.evaluate = evaluate
    trial.network.infer()
    work = Work(trial.network.clone(), target, evaluate, CompileSettings(), _no_bodies)
    for stage in NETWORK[:-1]:
        stage(work)
    return trial, work


def _no_bodies(*_: object) -> NoReturn:
    raise AssertionError("these networks have no loops or branches")


def nodes_run_by(work: Work, op: type[Op], kernel: Kernel) -> list[GpuNode]:
    """Make a graph with no other kernel for the operation; return the nodes it runs, or none."""
    with pytest.MonkeyPatch.context() as patch:
        only(patch, op, kernel)
        patch.setattr(type(kernel), "default_mode", lambda *_: 0)  # callers ask for all modes
        try:
            NETWORK[-1](work)
            graph = work.graph
            assert graph is not None
            for stage in GRAPH:
                stage(graph, work.target)
        except UnsupportedNetworkError:
            return []
    return [
        node
        for node in graph.nodes
        if type(node.op) is op and node.choice is not None and "op" in node.origins
    ]


def only(patch: pytest.MonkeyPatch, op: type[Op], kernel: Kernel) -> None:
    """Let an operation have this kernel alone."""
    module = importlib.import_module("polydevice_gpu.passes.select_kernels")
    patch.setattr(
        module, "kernels_of", lambda asked: [kernel] if asked is op else kernels_of(asked)
    )
    patch.setattr(type(kernel), "yields", lambda *_: "")


def chosen(
    found: Collection[Candidate], modes: Mapping[int, Mode], facts: Collection[str]
) -> Iterator[tuple[Trial, int]]:
    """Choose trials and modes, few, in which all of some facts occur at least once.

    Args:
        found: what the kernel takes.
        modes: the modes that may run: number → values of its macros.
        facts: of "case", "arrangement", "value" (of each macro), "values" (of every two macros),
            "mode" and "pair" (each mode in each arrangement) those that must occur. Of trials that
            are as good, the one with most that is new is chosen; without any word about modes, each
            trial runs in the last.
    """
    offers = [
        (candidate, mode, _facts(candidate, mode, modes[mode]))
        for candidate in found
        for mode in _sparse([m for m in candidate.modes if m in modes], facts)
    ]
    unseen = {fact for _, _, each in offers for fact in each}
    missing = {fact for fact in unseen if fact[0] in facts}
    while missing:
        candidate, mode, seen = max(
            offers, key=lambda offer: (len(offer[2] & missing), len(offer[2] & unseen))
        )
        missing -= seen
        unseen -= seen
        yield candidate.trial, mode


def _sparse(modes: list[int], facts: Collection[str]) -> list[int]:
    if {"value", "values", "mode", "pair"} & set(facts):
        return modes
    return modes[-1:]


def _facts(candidate: Candidate, mode: int, values: Mode) -> set[tuple[str, object]]:
    arrangement = candidate.trial.arrangement
    return {
        ("case", candidate.case),
        ("arrangement", arrangement),
        *(("value", item) for item in values.items()),
        *(("values", two) for two in itertools.combinations(values.items(), 2)),
        ("mode", mode),
        ("pair", (mode, arrangement)),
    }
