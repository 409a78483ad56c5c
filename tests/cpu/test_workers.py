"""OpenMP's worker threads: as many as a step is worth, and gone where nothing is computed."""

from __future__ import annotations

import os
import sys
import time
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

from polydevice import Core
from polydevice_cpu.algorithms.by_machine.rows import product
from polydevice_cpu.onednn import openmp
from polydevice_cpu.onednn.library import library
from polydevice_cpu.plan.step import PrimitiveStep
from tests.cpu import models

LARGE = (64, 2, 56)
"""Channels, batch and size of a network that is worth two threads."""

TASKS = Path("/proc/self/task")


def workers() -> int:
    return len(list(TASKS.iterdir()))


def settled(limit: int) -> int:
    """The number of threads, once it is down to a limit or two seconds have passed."""
    end = time.monotonic() + 2
    while workers() > limit and time.monotonic() < end:
        time.sleep(0.01)
    return workers()


@pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts threads through /proc")
def test_only_the_thread_that_computes_has_workers():
    with Core() as core:
        network = core.read_network(models.residual(*LARGE))
        executable = core.load_network(network, "CPU", {"CPU_THREADS_NUM": "2"})
        given = {n: np.zeros(p.sizes, np.float32) for n, p in executable.inputs.items()}
        request = executable.create_infer_request()
        request.start_async(given)
        request.wait()
        time.sleep(0.3)
        alone = workers()  # with the stream's thread, whose workers have ended
        request.infer(given)
        assert workers() == alone + 1
        request.start_async(given)
        request.wait()
        assert settled(alone) == alone


def cores_of(task: str) -> set[int]:
    try:
        return os.sched_getaffinity(int(task))
    except ProcessLookupError:  # it has ended
        return set()


@pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads threads through /proc")
@pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="there is one core",
)
def test_workers_keep_off_the_core_of_the_thread_that_computes():
    allowed = cores_of("0")
    before = {task.name for task in TASKS.iterdir()}
    with Core() as core:
        network = core.read_network(models.residual(*LARGE))
        executable = core.load_network(network, "CPU", {"CPU_THREADS_NUM": "2"})
        given = {n: np.zeros(p.sizes, np.float32) for n, p in executable.inputs.items()}
        request = executable.create_infer_request()
        for used in (allowed, {min(allowed)}, allowed):
            os.sched_setaffinity(0, used)  # what the user says stays
            try:
                for _ in range(3):
                    request.infer(given)
                    assert cores_of("0") == used
            finally:
                os.sched_setaffinity(0, allowed)
        started = {task.name for task in TASKS.iterdir()} - before
        assert [len(cores_of(task)) for task in started].count(len(allowed) - 1) == 1
        openmp.stop_workers()
        request.infer(given)
        assert cores_of("0") == allowed


def step_threads(executable) -> list[int]:
    """With how many threads the primitives of a static network's plan run, one after another."""
    plan = executable.latest_plan()
    counts = [step.primitive.threads for step in plan.steps if isinstance(step, PrimitiveStep)]
    return [count for count, _ in groupby(counts)]


def sandwich(small: int) -> bytes:
    """A product that is worth threads, so many that are not, and the large one again."""
    rng = np.random.default_rng(0)
    weights = {
        "wide": rng.normal(0, 0.05, (512, 512)).astype(np.float32),
        "narrow": rng.normal(0, 0.2, (16, 16)).astype(np.float32),
        "down": rng.normal(0, 0.2, (512, 16)).astype(np.float32),
        "up": rng.normal(0, 0.2, (16, 512)).astype(np.float32),
    }
    nodes = [
        ("MatMul", ["x", "wide"], ["large"], {}),
        ("ReduceMax", ["large"], ["row"], {"axes": [0]}),
        ("MatMul", ["row", "down"], ["s0"], {}),
    ]
    for i in range(small):
        nodes.append(("MatMul", [f"s{i}", "narrow"], [f"p{i}"], {}))
        nodes.append(("Tanh", [f"p{i}"], [f"s{i + 1}"], {}))
    nodes.append(("MatMul", [f"s{small}", "up"], ["added"], {}))
    nodes.append(("Add", ["large", "added"], ["sum"], {}))
    nodes.append(("MatMul", ["sum", "wide"], ["y"], {}))
    return models.build(nodes, {"x": [512, 512]}, ["y"], weights)


@pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")
@pytest.mark.parametrize(
    ("model", "threads"),
    [
        (models.residual(12, 2, 14), [1]),
        (models.residual(*LARGE), [3]),  # its small steps lie between large ones
        (sandwich(4), [3]),
        (sandwich(120), [3, 1, 3]),
    ],
    ids=["small", "large", "few small steps", "many small steps"],
)
def test_small_networks_and_long_stretches_of_small_steps_run_in_one_thread(
    rng, monkeypatch, model, threads
):
    monkeypatch.setattr(product, "MOST", 0)  # which is no primitive's
    get, set_ = openmp.functions()
    own = get()
    set_(2)  # what the user has set is there again after inferring
    try:
        with Core() as core:
            config = {"CPU_THREADS_NUM": "3", "PERF_COUNT": "YES"}
            for settings in ({"CPU_THREADS_NUM": "3"}, config):
                executable = core.load_network(core.read_network(model), "CPU", settings)
                assert step_threads(executable) == threads
                given = {
                    name: rng.normal(size=port.sizes).astype(np.float32)
                    for name, port in executable.inputs.items()
                }
                expected = models.answer(model, given)
                for _ in range(2):
                    found = executable.requests[0].infer(given)
                    for mine, theirs in zip(found.values(), expected, strict=True):
                        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-3)
                    assert get() == 2
    finally:
        set_(own)
