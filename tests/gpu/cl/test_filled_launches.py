"""Launches whose sizes and arguments come as arrays: right numbers, clear errors."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from polydevice.errors import DeviceError
from polydevice.processor import machine_code
from polydevice_gpu import cl
from polydevice_gpu.cl.queues import launch_loop
from tests.gpu.cl.kernels import SCALE

ITEMS = 96
SOURCE = (
    SCALE
    + """
__kernel void shift(__global int* y, float by, long width) {
    y[get_global_id(1) * width + get_global_id(0)] += (int) by;
}
"""
)
WORDS = {"a": 0, "b": 1, "factor": 2, "tile": 3, "by": 4, "width": 5}


@pytest.fixture(scope="module")
def table(opencl) -> cl.LaunchTable:
    """`scale` from a to b, and `shift` of b; the second one's local size is the driver's choice."""
    if not opencl.capabilities.kernel_copies:
        pytest.skip(f"{opencl.name}: {opencl.capability_reasons.get('kernel_copies')}")
    program = cl.ProgramBuilder(opencl).build("filled launches", SOURCE)
    scale, shift = program.kernel("scale"), program.kernel("shift")
    return cl.LaunchTable(
        [cl.TableLaunch(scale, "first", 1, True), cl.TableLaunch(shift, "second", 2, False)],
        [cl.Draft(scale, {}), cl.Draft(shift, {1: np.float32(3)})],
        [
            cl.TableArgument(0, 0, 8, WORDS["a"]),
            cl.TableArgument(0, 1, 8, WORDS["b"]),
            cl.TableArgument(0, 2, 4, WORDS["factor"]),
            cl.TableArgument(0, 3, 0, WORDS["tile"]),
            cl.TableArgument(1, 0, 8, WORDS["b"]),
            cl.TableArgument(1, 2, 8, WORDS["width"]),
        ],
    )


def filled(device, table, factor, *, local=16, tile=4 * 16, width=12, height=8):
    """The launches, their buffers, and what they read."""
    a, b = (device.memory.allocate(4 * ITEMS, name) for name in "ab")
    sizes = np.array([[[ITEMS, 1, 1], [local, 1, 1]], [[width, height, 1], [1, 1, 1]]])
    words = np.zeros(len(WORDS), np.uint64)
    words[[0, 1, 3, 5]] = a.pointer, b.pointer, tile, abs(width)
    words.view(np.int32)[2 * WORDS["factor"]] = factor
    return cl.FilledLaunches(device, table, sizes, words, {0: a, 1: b}), a, b


@pytest.mark.parametrize("way", ["calls", "loops", "timed"])
def test_each_list_has_sizes_and_arguments_of_its_own(opencl, table, monkeypatch, way) -> None:
    """Also when it is recorded, which the second run does where the device replays."""
    if way == "calls":
        monkeypatch.setattr(machine_code, "function_of", lambda _: None)
        monkeypatch.setattr(launch_loop, "function_of", lambda _: None)
    lists = [filled(opencl, table, factor) for factor in (5, -7)]
    data, result = np.arange(ITEMS, dtype=np.int32), np.empty(ITEMS, np.int32)
    with opencl.queue(profiling=way == "timed") as queue:
        for (launches, a, b), factor in zip(lists, (5, -7), strict=True):
            queue.upload(a, data)
            for _ in range(3):
                launches.enqueue(queue)
                queue.download(b, result)
                assert np.array_equal(result, data * factor + 3)
            if way == "timed":
                assert [time.name for time in launches.profile()] == ["first", "second"]
            other = opencl.memory.allocate(4 * ITEMS, "other")
            queue.upload(other, data[::-1].copy())
            launches.set_argument(0, 0, other)
            for _ in range(2):
                launches.enqueue(queue)
                queue.download(b, result)
                assert np.array_equal(result, data[::-1] * factor + 3)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"width": 0}, "kernel 'shift' with global size .0, 8.: 1 to 3 dimensions of 1 or more"),
        ({"width": -1}, "kernel 'shift' with global size .-1, 8.: 1 to 3 dimensions"),
        ({"local": 0}, "kernel 'scale' .* 1 or more each"),
        ({"local": 36}, "kernel 'scale' .* the local size does not divide the global size"),
        ({"tile": 1 << 40}, r"kernel 'scale' needs \d+ bytes of local memory"),
    ],
)
def test_sizes_that_do_not_fit(opencl, table, wrong, message) -> None:
    with pytest.raises(DeviceError, match=message):
        filled(opencl, table, 1, **{"tile": 64, **wrong})


def test_argument_that_the_driver_refuses_names_the_kernel(opencl, table) -> None:
    launches, drafts = table.launches, table.drafts
    wrong = [*table.arguments[:2], cl.TableArgument(0, 2, 8, 2), *table.arguments[3:]]
    with pytest.raises(DeviceError, match=r"argument 2 of kernel 'scale' .*CL_INVALID_ARG_SIZE"):
        filled(opencl, cl.LaunchTable(launches, drafts, wrong), 1)


@pytest.mark.parametrize("refused", [None, 0, 3], ids=["all", "first", "fourth"])
def test_loop_sets_every_argument_and_stops_where_one_is_refused(monkeypatch, refused) -> None:
    seen: list[tuple] = []
    handle, number, size = ctypes.c_void_p, ctypes.c_uint, ctypes.c_size_t

    @ctypes.CFUNCTYPE(ctypes.c_int, handle, number, size, handle)
    def set_argument(*arguments: int | None) -> int:
        seen.append(arguments)
        return -51 if len(seen) - 1 == refused else 0

    given = ctypes.cast(set_argument, handle)
    monkeypatch.setattr(launch_loop, "_address_of", lambda _: given)
    if machine_code.function_of(machine_code._CALLS) is None:
        pytest.skip("no loop for this system")
    far = 2**47
    rows = [(far + n, n, 2**33 + n, 0 if n % 2 else far + 8 * n) for n in range(5)]
    taken = launch_loop.set_arguments(np.array(rows, launch_loop.ARGUMENT))
    assert taken == (5 if refused is None else refused)
    expected = [(*row[:3], row[3] or None) for row in rows]
    assert seen == expected[: None if refused is None else refused + 1]
