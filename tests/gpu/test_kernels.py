"""Every kernel in every mode, chosen or not, against outside oracles on sizes that fit nothing.

What goes in and out lies in the ways of `arrangements`. Of the many combinations as many run as it
takes for every case and arrangement to occur in f32, and of the modes every two values of two
macros for the first of a kernel's operations, for the others every value of each macro. f16
differs in the types of loads and stores, which are the kernel's: there it is every arrangement and
every value of each macro for the first operation, and one trial for the others. The quick tier runs
the first of these, which show most. With POLYDEVICE_TEST_MODES=all every mode meets every
arrangement.
"""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import os

import numpy as np
import pytest

from polydevice import Core
from polydevice.executable_network import ExecutableNetwork
from polydevice.testing.inference import TOLERANCES
from polydevice_gpu import cl
from polydevice_gpu.compiler.device_target import target_of
from polydevice_gpu.compiler.settings import CompileSettings
from polydevice_gpu.kernels.kernel import Kernel, Mode
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.one_launch import choose
from polydevice_gpu.one_launch.function import why_no_function
from polydevice_gpu.runtime.bound_plan import BoundPlan
from tests.gpu import graphs
from tests.gpu.trials import (
    OPERATIONS,
    PAIRS,
    SUB_GROUPS,
    candidates,
    chosen,
    named,
    only,
    simulated,
)
from tests.tiers import is_quick

MODES = "POLYDEVICE_TEST_MODES"
MOST_ELEMENTS = 6_000
"""Of inputs, where a simulator executes one instruction after the other; or else the fewest."""

CALLED = 1
"""How many trials of each kernel run as a function: its text is the same as that of a launch, so
that the first of its operations stands for all."""

QUICK = 1
"""How many trials of each kernel's first operation, in f32 and in f16, the quick tier runs.

Compiling one takes 0.2 to 3 s on PoCL. `tests/conformance` runs each operation's default kernel.
"""

FEW = 8
"""How many candidates there are to choose from, where few trials run: to find all takes longer
than to compile those."""


def _modes(kernel: Kernel) -> dict[int, Mode]:
    """All modes, or those whose numbers the environment gives."""
    asked = os.environ.get(MODES, "all")
    numbers = range(len(kernel.modes)) if asked == "all" else map(int, asked.split(","))
    return {number: kernel.modes[number] for number in numbers if number < len(kernel.modes)}


def _small(modes: dict[int, Mode]) -> dict[int, Mode]:
    """Leave the modes whose work-items compute the smallest tiles: large ones take seconds."""
    tiles = {number: mode.get("TM", 1) * mode.get("TN", 1) for number, mode in modes.items()}
    return {n: mode for n, mode in modes.items() if tiles[n] == min(tiles.values())}


def _last(kernel: Kernel) -> dict[int, Mode]:
    return {len(kernel.modes) - 1: kernel.modes[-1]}


def _is_first(op: type, kernel: Kernel) -> bool:
    """Whether an operation is the first of those that a kernel runs."""
    return op is next(
        o for o, kernels in OPERATIONS.items() if any(type(k) is type(kernel) for k in kernels)
    )


def _facts(op: type, kernel: Kernel, dtype: str) -> tuple[str, ...]:
    """What must occur in a kernel's trials."""
    if asked := os.environ.get(MODES):
        mode = "pair" if asked == "all" else "mode"
        return ("case", mode) if dtype == "f4" else (mode,)
    if dtype == "f2":
        return "arrangement", "value"
    if _is_first(op, kernel):
        return "case", "arrangement", "value", "values"
    return "case", "arrangement", "value"


@pytest.fixture(scope="module")
def core():
    with Core() as made:
        yield made


@pytest.fixture(scope="module")
def builder(opencl):
    return graphs.SparingBuilder(opencl, threads=1)  # oclgrind compiles one program at a time


@pytest.fixture
def load(monkeypatch, opencl, builder, core):
    """Return a function that loads a network with one operation bound to a kernel and mode."""
    compiler = importlib.import_module("polydevice_gpu.compiler.compiler")
    target = _willing(opencl)
    if simulated():
        # oclgrind 21.10 loses track of what was written through regions of a buffer.
        def region(self, memory):
            if memory not in self._regions:
                self._regions[memory] = opencl.memory.allocate(max(memory.bytes, 1), memory.name)
            return self._regions[memory]

        monkeypatch.setattr(BoundPlan, "region", region)

    def loaded(network, op: type, kernel: Kernel, mode: int) -> ExecutableNetwork:
        monkeypatch.setattr(compiler, "target_of", lambda _: target)
        monkeypatch.setattr(type(kernel), "default_mode", lambda *_: mode)
        only(monkeypatch, op, kernel)
        return graphs.loaded(network, opencl, builder, core)

    return loaded


@pytest.fixture
def load_called(monkeypatch, opencl, load):
    """The same, with the kernel called as a function by another, even if it is the only one."""
    monkeypatch.setattr(choose, "FEWEST", 1)
    monkeypatch.setattr(choose, "BARRIERS_ANYWHERE", "Intel" not in opencl.facts.platform_name)
    settings = CompileSettings(single_launch="YES")
    monkeypatch.setattr(CompileSettings, "of", lambda *_: settings)

    def loaded(*arguments) -> ExecutableNetwork:
        executable = load(*arguments)
        plan = executable.latest_plan()
        assert len(plan.joined) + len(plan.apart) == len(plan.steps)
        for number, why in plan.apart.items():
            launches = plan.steps[number].launches
            assert why in [why_no_function(each) for each in launches] or "CPUs take" in why, why
        return executable

    return loaded


def _willing(device: cl.Device) -> Target:
    """Return the device without what would only be slow on it.

    Local memory that is ordinary memory, and lanes that hand each other values through it.
    """
    real = target_of(device)
    sizes = real.sub_group_sizes if real.sub_group_size_required else SUB_GROUPS
    return dataclasses.replace(
        real,
        local_memory_bytes=device.capabilities.local_memory_bytes,
        max_work_group_size=1024,
        sub_group_sizes=sizes,
    )


TRIED = [
    pytest.param(pair, dtype, marks=() if _is_first(*pair) else pytest.mark.full)
    for pair, dtype in PAIRS
]


@pytest.mark.parametrize(("pair", "dtype"), TRIED, ids=named)
def test_kernel(load, opencl, pair, dtype, pytestconfig):
    quick = is_quick(pytestconfig)
    modes = _small(_modes(pair[1])) if quick else _modes(pair[1])
    _check(load, opencl, pair, dtype, modes, _facts(*pair, dtype), QUICK if quick else None)


@pytest.mark.full
@pytest.mark.parametrize(
    "pair", [pair for pair, dtype in PAIRS if dtype == "f4" and _is_first(*pair)], ids=named
)
def test_called_kernel(load_called, opencl, pair):
    steps = pair[1].name in {"recurrent_group", "recurrent_ref"}
    if steps and "Portable" in opencl.facts.platform_name:
        pytest.skip("PoCL computes steps with barriers wrong in a function; nobody calls them")
    _check(load_called, opencl, pair, "f4", _modes(pair[1]), _facts(*pair, "f4"), CALLED)


def _check(load, opencl, pair, dtype, modes, facts, most) -> None:
    """Run an operation's cases in these modes, twice each, on a simulator once; `most` of them."""
    op, kernel = pair
    ran = 0
    if dtype == "f2" and not _is_first(op, kernel) and (simulated() or MODES not in os.environ):
        most = 1  # f4 has the same places, the kernel's first operation the other loads and stores
    offered = candidates(op, kernel, dtype, _willing(opencl))
    found = [*itertools.islice(offered, None if simulated() or most is None else FEW)]
    if simulated():
        found = [each for each in found if not _has_signed_bytes(each.trial)]
    if found and (simulated() or most is not None):
        size = max(MOST_ELEMENTS, min(each.trial.elements for each in found))
        found = [each for each in found if each.trial.elements <= size]
    for trial, mode in itertools.islice(chosen(found, modes, facts), most):
        what = f"{trial.case.op} mode {mode}, {trial.arrangement}"
        answers = trial.answers()
        request = load(trial.network.clone(), op, kernel, mode).create_infer_request()
        for _ in range(1 if simulated() else 2):
            outputs = request.infer(trial.given)
            for name, answer in answers.items():
                _compare(outputs[name], answer, trial.case, what)
        ran += 1
    if not ran:
        pytest.skip(f"{kernel.name} in modes {[*modes]} needs what {opencl.facts.name} lacks")


def _has_signed_bytes(trial) -> bool:
    """Beside these stands their absolute value, which oclgrind 21.10 lacks (llvm.abs.i8)."""
    return any(np.asarray(each).dtype == np.int8 for each in trial.given.values())


def _compare(output, answer, case, what):
    assert output.shape == answer.shape, what
    kind = next(t for t in TOLERANCES if t.dtype == output.dtype) if output.dtype.kind == "f" else 0
    relative, absolute = case.tolerance or (TOLERANCES[kind] if kind else (0, 0))
    np.testing.assert_allclose(
        output.astype("f8"), answer.astype("f8"), relative, absolute, err_msg=what
    )
