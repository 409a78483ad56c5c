"""Opening devices: once, again after a failure, never where it would take the program down."""

from __future__ import annotations

import copy
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from polydevice.errors import DeviceLostError, DeviceNotFoundError
from polydevice_gpu import cl
from polydevice_gpu.cl import device as device_module
from polydevice_gpu.cl.capabilities import ProbedCapabilities
from polydevice_gpu.cl.memory.allocator import Allocator


def test_same_object_for_all_threads(opencl) -> None:
    admitted = cl.discover().devices[0]
    seen: list[cl.Device] = []
    threads = [
        threading.Thread(target=lambda: seen.append(cl.open_device(admitted))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(map(id, seen)) == {id(opencl)}


def test_device_whose_context_died_is_opened_anew(opencl, monkeypatch) -> None:
    monkeypatch.setattr(device_module, "_open", dict(device_module._open))
    admitted = cl.discover().devices[0]
    assert cl.open_device(admitted) is opencl
    real = Allocator.is_usable
    dead = opencl.memory
    monkeypatch.setattr(
        Allocator, "is_usable", property(lambda self: self is not dead and real.fget(self))
    )
    again = cl.open_device(admitted)
    assert again is not opencl
    assert cl.open_device(admitted) is again
    again.queue().finish()


def test_driver_that_dies_in_every_probe_makes_no_context_here(opencl, monkeypatch) -> None:
    monkeypatch.setattr(device_module, "_open", {})
    reasons = {"open": "the driver crashed in this probe (killed by SIGSEGV)"}
    monkeypatch.setattr(
        device_module, "probed_capabilities", lambda *_: (ProbedCapabilities(), reasons)
    )
    monkeypatch.setattr(device_module, "_make_context", lambda *_: pytest.fail("made a context"))
    with pytest.raises(DeviceLostError, match=r"killed by SIGSEGV\)\. To mend it, update it"):
        cl.open_device(cl.discover().devices[0])


@pytest.mark.parametrize("step", ["_find", "_make_context"])
def test_a_context_is_made_while_others_go_on(opencl, monkeypatch, step) -> None:
    monkeypatch.setattr(device_module, "_open", {})
    go_on, may_go_on = getattr(device_module, step), threading.Event()

    def wait(*arguments):
        assert may_go_on.wait(60)
        return go_on(*arguments)

    monkeypatch.setattr(device_module, step, wait)
    device = cl.open_device(cl.discover().devices[0])
    assert device.capabilities == opencl.capabilities
    may_go_on.set()
    assert device.context != opencl.context
    assert device.handle == opencl.handle
    device.queue().finish()
    assert cl.open_device(cl.discover().devices[0]) is device


def test_threads_that_ask_at_once_share_the_memory(opencl, monkeypatch) -> None:
    monkeypatch.setattr(device_module, "_open", {})
    device = cl.open_device(cl.discover().devices[0])
    make, both = device._memory_of, threading.Barrier(2)

    def slowly(context):
        made = make(context)
        time.sleep(0.05)
        return made

    def ask(_):
        both.wait(60)
        return type(device).memory.func(device)  # Python 3.11's own lock would hold one back

    monkeypatch.setattr(device, "_memory_of", slowly)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(ask, range(2))
    assert first is second is device.memory


def test_a_context_that_no_driver_makes_is_asked_for_again(opencl, monkeypatch) -> None:
    monkeypatch.setattr(device_module, "_open", {})

    def refuse(*_):
        raise DeviceLostError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(device_module, "_make_context", refuse)
        device = cl.open_device(cl.discover().devices[0])
        for _ in range(2):
            with pytest.raises(DeviceLostError, match="out of memory"):
                device.queue()
    again = cl.open_device(cl.discover().devices[0])
    assert again is not device
    again.queue().finish()


def test_device_that_this_process_does_not_have(opencl) -> None:
    admitted = cl.discover().devices[0]
    elsewhere = replace(admitted, facts=replace(admitted.facts, name="Elsewhere"))
    with pytest.raises((DeviceNotFoundError, DeviceLostError), match="no device 'Elsewhere' on"):
        cl.open_device(elsewhere)


def test_hints_of_queues_are_the_bits_of_their_extensions(opencl, monkeypatch) -> None:
    """1 to 3 are low, medium and high; CL_QUEUE_PRIORITY_HIGH_KHR is bit 0, LOW is bit 2."""
    asked, real = [], device_module.ocl.CommandQueue

    def noting(context, handle, properties):
        asked.append(properties)
        return real(context, handle)

    monkeypatch.setattr(device_module.ocl, "CommandQueue", noting)
    device = copy.copy(opencl)
    device.facts = replace(opencl.facts, extensions="cl_khr_priority_hints cl_khr_throttle_hints")
    for priority in (1, 2, 3):
        device.queue(priority=priority, throttle=4 - priority).finish()
    head = [0x1093, 0, 0x1096]
    assert asked == [[*head, 4, 0x1097, 1, 0], [*head, 2, 0x1097, 2, 0], [*head, 1, 0x1097, 4, 0]]
