"""Inferences that run again just as the last one did, and what ends that."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from polydevice import Copies, Core
from polydevice.errors import BlobError, DeviceError, PolydeviceError
from polydevice.runtime.follower import Follower
from polydevice_gpu.compiler.new_shapes.specialiser import Specialiser
from polydevice_gpu.runtime.bound_plan import BoundPlan
from polydevice_gpu.runtime.plan import Plan
from tests.gpu.graphs import SparingBuilder, loaded, random_inputs
from tests.gpu.remote import affine, desc, exact, held
from tests.gpu.test_one_launch import TOGETHER, let_wait_in_vain, small

SHAPE = (3, 37)


@pytest.fixture
def replayed(monkeypatch) -> list[BoundPlan]:
    """What was replayed, from now on."""
    seen: list[BoundPlan] = []
    replay = BoundPlan.replay

    def noted(self, queue) -> None:
        seen.append(self)
        replay(self, queue)

    monkeypatch.setattr(BoundPlan, "replay", noted)
    return seen


@pytest.fixture
def final(monkeypatch) -> None:
    """Let no plan of open shapes want programs for its very sizes, for which inferences count."""
    monkeypatch.setattr(Plan, "is_final", True)


@pytest.fixture
def executable(core):
    return core.load_network(core.read_network(affine(*SHAPE)), "GPU")


def on_device(executable, array: np.ndarray):
    blob = executable.get_context().create_blob(desc(array))
    blob.copy_from(array)
    return blob


def request_of(executable, x: np.ndarray):
    """Return a request that reads and writes device memory."""
    request = executable.create_infer_request()
    request.set_blob("x", on_device(executable, x))
    request.keep_on_device("y")
    return request


def test_new_content_of_the_same_memory_is_computed(executable, rng, replayed) -> None:
    request = request_of(executable, exact(rng, *SHAPE))
    for _ in range(6):
        x = exact(rng, *SHAPE)
        request.get_blob("x").copy_from(x)
        assert request.infer() == {}
        assert request.copies == Copies()
        np.testing.assert_array_equal(held(request.get_blob("y")), x * 3 + 1)
    assert len(replayed) == 5


def test_other_memory_is_used(executable, rng, replayed) -> None:
    request = request_of(executable, exact(rng, *SHAPE))
    request.infer()
    request.infer()
    for place in ("input", "output", "host"):
        x = exact(rng, *SHAPE)
        if place == "output":
            request.set_blob("y", on_device(executable, np.zeros(SHAPE, "f4")))
            request.get_blob("x").copy_from(x)
        else:
            request.set_blob("x", on_device(executable, x))
        found = request.infer({"x": x} if place == "host" else None)
        assert not found
        np.testing.assert_array_equal(held(request.get_blob("y")), x * 3 + 1)
    assert len(replayed) == 1


@pytest.mark.parametrize("name", ["x", "y"])
def test_memory_that_cannot_be_used_is_refused(executable, rng, replayed, name) -> None:
    x = exact(rng, *SHAPE)
    request = request_of(executable, x)
    request.set_blob("y", on_device(executable, np.zeros(SHAPE, "f4")))
    for _ in range(2):
        request.infer()
    blob = request.get_blob(name)
    with blob.map("r"), pytest.raises(BlobError, match="mapped"):
        request.infer()
    request.infer()
    np.testing.assert_array_equal(held(request.get_blob("y")), x * 3 + 1)
    request.infer()
    blob.release()
    with pytest.raises(BlobError, match="released"):
        request.infer()
    request.set_blob(name, on_device(executable, x))
    request.infer()
    np.testing.assert_array_equal(held(request.get_blob("y")), x * 3 + 1)
    assert replayed


@pytest.mark.usefixtures("final")
def test_other_shapes_in_between(core, rng, replayed) -> None:
    """Each shape has memory of its own, so that each change is looked at."""
    network = core.read_network(affine("n", 5))
    executable = core.load_network(network, "GPU")
    request = executable.create_infer_request()
    request.keep_on_device("y")
    blobs = {rows: on_device(executable, exact(rng, rows, 5)) for rows in (2, 7)}
    for rows in (2, 2, 2, 7, 7, 2, 2):
        request.set_blob("x", blobs[rows])
        for _ in range(2):
            request.infer()
            np.testing.assert_array_equal(
                held(request.get_blob("y")), held(blobs[rows]) * 3 + 1, err_msg=str(rows)
            )
    assert replayed


def test_inferences_that_count_towards_a_better_plan_are_not_replayed(
    executable, rng, replayed, monkeypatch
) -> None:
    monkeypatch.setattr(Plan, "is_final", False)
    noted: list[Plan] = []
    monkeypatch.setattr(Specialiser, "note", lambda _, shapes, plan: noted.append(plan))
    request = request_of(executable, exact(rng, *SHAPE))
    noted.clear()
    for _ in range(3):
        request.infer()
    assert len(noted) == 3
    assert not replayed


def test_a_plan_that_took_its_place_runs(executable, rng, replayed) -> None:
    x = exact(rng, *SHAPE)
    request = request_of(executable, x)
    request.infer()
    request.infer()
    old = executable.plans.latest()
    shapes = request.runner._replay.known.job.shapes
    executable.plans.remake(shapes, old, lambda: executable._compile(shapes))
    request.infer()
    assert executable.plans.latest() is not old
    assert request.runner.last.plan is executable.plans.latest()
    request.infer()
    assert [each.plan is old for each in replayed] == [True, False]
    np.testing.assert_array_equal(held(request.get_blob("y")), x * 3 + 1)


@pytest.mark.usefixtures("final")
def test_a_plan_in_use_is_the_last_to_go(core, rng, replayed) -> None:
    """Other requests take other shapes; what is replayed counts as used."""
    network = core.read_network(affine("n", 5))
    executable = core.load_network(network, "GPU")
    request = executable.create_infer_request()
    request.set_blob("x", on_device(executable, exact(rng, 2, 5)))
    request.keep_on_device("y")
    request.infer()
    mine = request.runner.last.plan
    executable.infer({"x": exact(rng, 3, 5)})
    for _ in range(2):
        request.infer()
        executable.infer({"x": exact(rng, 3, 5)})
    assert executable.plans.plans()[-1] is not mine
    request.infer()
    assert replayed
    assert executable.plans.plans()[-1] is mine


def test_followers_are_told_from_then_on(executable, rng, replayed) -> None:
    class Counting(Follower):
        told = 0

        def inference(self, done) -> None:
            self.told += 1

    request = request_of(executable, exact(rng, *SHAPE))
    for _ in range(3):
        request.infer()
    assert len(replayed) == 2
    follower = Counting()
    executable.follow(follower)
    for _ in range(3):
        request.infer()
    executable.leave(follower)
    assert follower.told == 3
    assert len(replayed) == 2


def test_a_closed_network_is_refused(rng, replayed) -> None:
    with Core() as core:
        executable = core.load_network(core.read_network(affine(*SHAPE)), "GPU")
        request = request_of(executable, exact(rng, *SHAPE))
        for _ in range(3):
            request.infer()
        executable.close()
        with pytest.raises(DeviceError, match="closed"):
            request.infer()
    assert replayed


def test_a_wait_in_vain_is_repeated(opencl, replayed) -> None:
    network = small()
    executable = loaded(network, opencl, SparingBuilder(opencl), settings=TOGETHER)
    inputs = random_inputs(network)
    request = executable.create_infer_request()
    for name, array in inputs.items():
        request.set_blob(name, on_device(executable, array))
    for name in executable.outputs:
        request.keep_on_device(name)
    for _ in range(2):
        request.infer()
    wanted = {name: held(request.get_blob(name)) for name in executable.outputs}
    if not replayed:
        assert request.runner.last.joined[0].stretch.tells
        pytest.skip("each run is asked whether it ended: the device has no clock")
    let_wait_in_vain(request.runner.last.joined[0], opencl)
    for _ in range(3):
        request.infer()
        for name, array in wanted.items():
            np.testing.assert_array_equal(held(request.get_blob(name)), array)
    assert request.runner.last.joined[0].stretch.failed


def test_threads_with_requests_of_their_own(executable, rng) -> None:
    """They share a queue; whether inferences are replayed depends on who waited for it."""
    given = [exact(rng, *SHAPE) for _ in range(3)]
    requests = [request_of(executable, x) for x in given]
    wrong: list[object] = []

    def work(number: int) -> None:
        try:
            for turn in range(200):
                x = given[number] + np.float32(turn % 5)
                requests[number].get_blob("x").copy_from(x)
                requests[number].infer()
                if not np.array_equal(held(requests[number].get_blob("y")), x * 3 + 1):
                    wrong.append((number, turn))
        except PolydeviceError as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_kept_memory_that_was_released_is_allocated_anew(executable, rng, replayed) -> None:
    request = request_of(executable, exact(rng, *SHAPE))
    for _ in range(3):
        request.infer()
    first = request.get_blob("y")
    first.release()
    request.infer()
    assert request.get_blob("y") is not first
    np.testing.assert_array_equal(held(request.get_blob("y")), held(request.get_blob("x")) * 3 + 1)
    assert len(replayed) == 2
    request.infer()
    assert len(replayed) == 3
