"""Several threads give way to one while other programs keep the cores busy; the bits stay."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice import Core
from polydevice.errors import DeviceMemoryError
from polydevice_cpu.algorithms.by_machine.code import may_share
from polydevice_cpu.onednn.library import library
from polydevice_cpu.plan import settling
from polydevice_cpu.plan.binding import giving_way
from polydevice_cpu.plan.binding.giving_way import GivingWay
from polydevice_cpu.plan.compiled import CompiledNetwork
from tests.cpu import models
from tests.cpu.loading import wait_for_settling
from tests.cpu.machine_code import by_machine_code, with_vectors

MS = 1_000_000


class Clock:
    """Time that passes when told, and the part of it that a thread computes, and that others do."""

    def __init__(self) -> None:
        self.now = self.used = self.others = 0

    def pass_(self, milliseconds: float, computing: float, others: float = 0.0) -> None:
        self.now += int(milliseconds * MS)
        self.used += int(computing * MS)
        self.others += int(others * MS)

    def perf_counter_ns(self) -> int:
        return self.now

    def thread_time_ns(self) -> int:
        return self.used

    def process_time_ns(self) -> int:
        return self.used + self.others


class Machine:
    """Runs take 2 ms on all threads, of which 1.8 or 0.4 are computing, and 3 on one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, alone: bool = True) -> None:
        self.clock, self.ran, self.made, self.busy = Clock(), "", 0, False
        self.together, self.one, self.spinning = (2.0, 1.8), 3.0, 0.0
        monkeypatch.setattr(giving_way, "time", self.clock)
        monkeypatch.setattr(giving_way, "LEAST_NS", 8 * MS)
        self._alone = self if alone else None
        self.way = GivingWay(60, self._make)  # 12 ms are lost before a plan of 60 steps

    def _make(self):
        self.made += 1
        return self._alone

    def run(self) -> None:
        self.ran += "1"
        self.clock.pass_(self.one, self.one, self.one * self.spinning)

    def _together(self) -> None:
        self.ran += "n"
        self.clock.pass_(*((6, 0.4) if self.busy else self.together))

    def infer(self, times: int) -> str:
        self.ran = ""
        for _ in range(times):
            self.way.run(self._together)
        return self.ran


def test_threads_that_have_cores_stay(monkeypatch):
    machine = Machine(monkeypatch)
    assert machine.infer(1000) == "n" * 1000
    assert not machine.made


def test_one_thread_computes_while_the_cores_are_taken_and_no_longer(monkeypatch):
    machine = Machine(monkeypatch)
    machine.busy = True
    assert machine.infer(5) == "nnnn1"  # 4 x 3.8 ms more waiting than usual, of 12
    assert machine.infer(200).count("n") < 20  # trials, ever fewer
    machine.busy = False
    assert machine.infer(400)[-200:] == "n" * 200  # 2 ms are less than 3
    assert machine.made == 1
    machine.busy = True
    assert machine.infer(12)[-3:] == "111"


def test_threads_of_the_same_program_that_let_go_are_noticed_at_once(monkeypatch):
    """As those of another runtime do, which spin for a while after an inference."""
    machine = Machine(monkeypatch)
    machine.busy, machine.spinning = True, 0.9
    machine.infer(300)
    for _ in range(5):
        machine.infer(40)  # pauses are long by now
        machine.busy, machine.spinning = False, 0.0
        assert machine.infer(20)[-10:] == "n" * 10
        machine.busy, machine.spinning = True, 0.9
    assert "1" in machine.infer(40)


@pytest.mark.parametrize(("one", "stays"), [(1.2, "n"), (0.7, "1")])
def test_what_is_short_is_tried_on_one_thread(monkeypatch, one, stays):
    machine = Machine(monkeypatch)
    machine.together, machine.one = (0.9, 0.8), one
    assert machine.infer(140) == "n" * 134 + "1" * 6  # 134 x 0.9 ms are 10 x 12
    machine.infer(300)
    assert machine.infer(300).count(stays) > 280
    assert machine.made == 1


def test_where_nothing_computes_the_same_alone_threads_stay(monkeypatch):
    machine = Machine(monkeypatch, alone=False)
    machine.busy = True
    assert machine.infer(9) == "nnnnnnnnn"
    assert not machine.way.is_possible
    assert machine.made == 1


@pytest.fixture
def at_once(monkeypatch):
    """Gives way after the first inference, and for good; notes the plans that were made for it."""
    made = []
    plan_alone = CompiledNetwork.plan_alone

    def noting(self, plan, shapes):
        made.append(plan_alone(self, plan, shapes))
        return made[-1]

    monkeypatch.setattr(giving_way, "STEP_NS", 0)
    monkeypatch.setattr(giving_way, "LEAST_NS", 0)
    monkeypatch.setattr(giving_way, "WAITING", -1e9)
    monkeypatch.setattr(giving_way, "LEAST_PAUSE_NS", 10**15)
    monkeypatch.setattr(CompiledNetwork, "plan_alone", noting)
    return made


def random_inputs(rng, executable):
    return {
        name: rng.normal(size=port.sizes).astype(np.float32)
        for name, port in executable.inputs.items()
    }


@pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")
def test_the_answers_stay_the_same_bits_wherever_inputs_and_outputs_lie(rng, at_once):
    model = models.residual(64, 2, 56)
    with Core() as core:
        executable = core.load_network(core.read_network(model), "CPU", {"CPU_THREADS_NUM": "2"})
        request = executable.create_infer_request()
        first = random_inputs(rng, executable)
        expected = {name: array.copy() for name, array in request.infer(first).items()}
        for mine, theirs in zip(expected.values(), models.answer(model, first), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-3)
        for given in (first, random_inputs(rng, executable), first):
            found = request.infer(given)
            for mine, theirs in zip(found.values(), models.answer(model, given), strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-3)
        for name, array in request.infer(first).items():
            np.testing.assert_array_equal(array, expected[name])
        (plan,) = at_once
        assert plan is not None
        assert {step.primitive.threads for step in plan.steps if hasattr(step, "primitive")} == {1}


@pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")
def test_without_the_memory_for_it_threads_stay(rng, at_once, monkeypatch):
    def refuse(self, plan, shapes):
        raise DeviceMemoryError("no memory for another plan")

    monkeypatch.setattr(CompiledNetwork, "plan_alone", refuse)
    with Core() as core:
        network = core.read_network(models.residual(64, 2, 56))
        executable = core.load_network(network, "CPU", {"CPU_THREADS_NUM": "2"})
        given = random_inputs(rng, executable)
        request = executable.create_infer_request()
        expected = {name: array.copy() for name, array in request.infer(given).items()}
        for name, array in request.infer(given).items():
            np.testing.assert_array_equal(array, expected[name])


@with_vectors
@pytest.mark.skipif(not may_share(), reason="this oneDNN has no OpenMP whose threads share work")
def test_threads_that_share_machine_code_give_way_too(rng, at_once):
    """Convolutions along one axis of the third length, which is filled in, are code of ours."""
    w = rng.standard_normal((64, 64, 5)).astype(np.float32) / 18
    nodes = [("Conv", [a, "w"], [b], {"pads": [2, 2]}) for a, b in (("x", "h"), ("h", "y"))]
    model = models.build(nodes, {"x": [1, 64, "length"]}, ["y"], {"w": w})
    with Core() as core:
        executable = core.load_network(core.read_network(model), "CPU", {"CPU_THREADS_NUM": "2"})
        request = executable.create_infer_request()
        for count, length in enumerate((900, 1100, 1000), 1):
            given = {"x": rng.standard_normal((1, 64, length)).astype(np.float32)}
            (right,) = models.answer(model, given)
            for _ in range(3):
                np.testing.assert_allclose(request.infer(given)["y"], right, rtol=1e-4, atol=1e-4)
            assert len(at_once) == count
        assert by_machine_code(executable)


@with_vectors
def test_long_sums_of_new_shapes_stay_the_same_bits(rng, at_once, monkeypatch):
    """Of channels that machine code adds up otherwise in networks of one thread.

    Once a plan has run often, what computes the same in one thread is one that has, too.
    """
    monkeypatch.setattr(settling, "RUNS", 3)
    weights = {"w": rng.standard_normal((900, 300)).astype(np.float32) / 30}
    weights["v"] = rng.standard_normal((900, 300)).astype(np.float32) / 30
    nodes = [("MatMul", ["x", "w"], ["a"], {}), ("Relu", ["a"], ["b"], {})]
    nodes += [("MatMul", ["x", "v"], ["c"], {}), ("Add", ["c", "b"], ["y"], {})]
    model = models.build(nodes, {"x": [1, "rows", 900]}, ["y"], weights)
    with Core() as core:
        executable = core.load_network(core.read_network(model), "CPU", {"CPU_THREADS_NUM": "2"})
        request = executable.create_infer_request()
        for rows in (90, 110, 100, 77):
            given = {"x": rng.standard_normal((1, rows, 900)).astype(np.float32)}
            (right,) = models.answer(model, given)
            first = request.infer(given)["y"].copy()
            np.testing.assert_allclose(first, right, rtol=1e-4, atol=1e-4)
            for _ in range(settling.RUNS):
                np.testing.assert_array_equal(request.infer(given)["y"], first)
            wait_for_settling()
            for _ in range(3):
                np.testing.assert_array_equal(request.infer(given)["y"], first)
            assert at_once[-1] is not None
