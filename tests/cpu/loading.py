"""What tests of planned networks share: loading on CPU, inputs, and the steps of a plan."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from polydevice_cpu.onednn.library import Library, has_instructions
from polydevice_cpu.processor import has_int8


def load(core, model, **config):
    return core.load_network(core.read_network(model), "CPU", config)


def image(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def steps(executable):
    """The types of the planned steps of a static network."""
    request = executable.create_infer_request()
    request.infer()
    return [step.type for step in request.runner.bound.plan.steps]


def assert_integers(executable, found, wanted="IntegerProduct"):
    """That a step of such a type is planned, where the processor multiplies bytes exactly.

    Older ones clip sums of two products to 16 bits, which shows in most products, not in all.
    """
    assert not has_int8() or any(wanted in step for step in found), executable.explain()


def asked_from_now(monkeypatch):
    """The list to which each question to oneDNN for an implementation adds its function's name."""
    asked = []
    ask = Library.create_if_supported

    def noted(self, name, *arguments):
        asked.append(name)
        return ask(self, name, *arguments)

    monkeypatch.setattr(Library, "create_if_supported", noted)
    return asked


_AVX2, _AVX512 = 0x7, 0x27
"""oneDNN's bits of these instruction sets."""


def has_avx2():
    """Whether oneDNN has code with AVX2: with less it fuses less."""
    return has_instructions(_AVX2)


def assert_same_sums(found, before, terms):
    """That products of so many terms have come out as before, when other rows were computed.

    To the bit, but where oneDNN 3.2 multiplies without AVX-512 (`gemm:jit:f32`): it adds one row
    up otherwise than many, and with AVX2, by which it takes six rows, the last one to three. Two
    orders differ by a rounding for each term at most.
    """
    if has_instructions(_AVX512):
        np.testing.assert_array_equal(found, before)
    else:
        most = terms * np.finfo(np.float32).eps * np.abs(before).max()
        np.testing.assert_allclose(found, before, rtol=0, atol=most)


def wait_for_settling():
    """Until the threads that replace plans by those for one shape alone have ended."""
    for thread in threading.enumerate():
        if thread.name == "polydevice-cpu-settling":
            thread.join()


def at_once(work, threads):
    """Call `work` with 0, 1… in threads of their own; raise what the first of them raises."""
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))
