"""Launch lists: right numbers however they are replayed, clear errors, times."""

from __future__ import annotations

import ctypes
import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from polydevice.errors import DeviceError, OptionValueError
from polydevice_gpu import cl
from polydevice_gpu.cl import library
from polydevice_gpu.cl.programs.kernel_objects import KernelObjects
from polydevice_gpu.cl.queues import command_buffer
from polydevice_gpu.cl.queues.launch_loop import LAUNCH, launch_loop
from polydevice_gpu.cl.queues.profile import LaunchEvents
from tests.gpu.cl.kernels import SCALE

SOURCE = (
    SCALE
    + """
__kernel void place(__global int* out) {
    int w = get_global_size(0), h = get_global_size(1);
    int x = get_global_id(0), y = get_global_id(1), z = get_global_id(2);
    out[(z * h + y) * w + x] = 10000 * z + 100 * y + x;
}
__kernel void pair(__global int* out, int2 values) { out[0] = values.x; out[1] = values.y; }
"""
)
ITEMS = 96


@pytest.fixture(scope="module")
def program(opencl) -> cl.Program:
    return cl.ProgramBuilder(opencl).build("launch tests", SOURCE)


@pytest.fixture(params=["calls", "loop", "command buffer"])
def launches(opencl, request, monkeypatch) -> cl.LaunchList:
    replays = request.param == "command buffer"
    if replays and not opencl.capabilities.command_buffers:
        pytest.skip(f"{opencl.name}: {opencl.capability_reasons.get('command_buffers')}")
    if request.param == "calls":
        monkeypatch.setattr("polydevice_gpu.cl.queues.launch.launch_loop", lambda *_: None)
    return cl.LaunchList(opencl, use_command_buffer=replays)


def buffers(device: cl.Device, count: int) -> list[cl.Buffer]:
    return [device.memory.allocate(4 * ITEMS, f"b{n}") for n in range(count)]


def scaling(program: cl.Program, x: cl.Buffer, y: cl.Buffer, factor: int) -> tuple:
    local = cl.LocalMemory(4 * 16)
    return program.kernel("scale"), (ITEMS,), (16,), [x, y, np.int32(factor), local]


def test_kernel_objects_are_released_with_their_list(opencl, program, monkeypatch):
    """Each once, copies and the first one of a kernel among them, and no sooner."""
    made, released = [], []
    real = library.library()
    counted = SimpleNamespace(
        clReleaseKernel=lambda pointer: released.append(pointer) or real.clReleaseKernel(pointer)
    )
    taken = KernelObjects.take

    def take(owner: KernelObjects, pointer: int) -> int:
        made.append(pointer)
        return taken(owner, pointer)

    monkeypatch.setattr(KernelObjects, "take", take)
    x, y = buffers(opencl, 2)
    kernel, *sizes, arguments = scaling(program, x, y, 3)
    launches, copies = cl.LaunchList(opencl), KernelObjects()
    first = kernel.instance(copies)
    if opencl.capabilities.kernel_copies:
        made += copies.copies([first])[0]
    for _ in range(3):
        launches.add(kernel, *sizes, arguments)
    assert len(set(made)) >= 3
    gc.collect()  # of other tests
    monkeypatch.setattr(library, "library", lambda: counted)
    del launches
    gc.collect()
    assert sorted(released) == sorted(set(made[-3:]))
    del copies
    gc.collect()
    assert sorted(released) == sorted(set(made))


def test_launches_run_in_order_each_with_its_arguments(opencl, program, launches) -> None:
    a, b, c = buffers(opencl, 3)
    launches.add(*scaling(program, a, b, 2))
    launches.add(*scaling(program, b, c, 3))
    launches.add(*scaling(program, c, a, 5))
    assert len(launches) == 3
    data = np.arange(ITEMS, dtype=np.int32)
    with opencl.queue() as queue:
        queue.upload(a, data)
        for _ in range(3):
            launches.enqueue(queue)
        result = np.empty(ITEMS, np.int32)
        queue.download(a, result)
    assert np.array_equal(result, data * 30**3)


def test_argument_can_be_exchanged_between_runs(opencl, program, launches) -> None:
    a, b, c = buffers(opencl, 3)
    first = launches.add(*scaling(program, a, b, 2))
    launches.add(*scaling(program, b, c, 3))
    one, two = np.arange(ITEMS, dtype=np.int32), np.arange(ITEMS, dtype=np.int32) + 7
    other = buffers(opencl, 1)[0]
    result = np.empty(ITEMS, np.int32)
    with opencl.queue() as queue:
        queue.upload(a, one)
        queue.upload(other, two)
        for source, values in ((a, one), (other, two), (a, one)):
            launches.set_argument(first, 0, source)
            launches.enqueue(queue)
            queue.download(c, result)
            assert np.array_equal(result, values * 6)


def test_list_can_change_queues_and_grow(opencl, program, launches) -> None:
    a, b = buffers(opencl, 2)
    data, result = np.arange(ITEMS, dtype=np.int32), np.empty(ITEMS, np.int32)
    for expected in (2, 6, 30):
        launches.add(*scaling(program, a, b, {2: 2, 6: 3, 30: 5}[expected]))
        with opencl.queue() as queue:
            queue.upload(a, data)
            launches.enqueue(queue)
            queue.download(b, result)
        assert np.array_equal(result, data * {2: 2, 6: 3, 30: 5}[expected])


def test_three_dimensions(opencl, program) -> None:
    out = opencl.memory.allocate(4 * 60, "out")
    launches = cl.LaunchList(opencl)
    launches.add(program.kernel("place"), (5, 4, 3), (5, 2, 1), [out])
    result = np.empty((3, 4, 5), np.int32)
    with opencl.queue() as queue:
        launches.enqueue(queue)
        queue.download(out, result)
    z, y, x = np.indices((3, 4, 5))
    assert np.array_equal(result, 10000 * z + 100 * y + x)


def test_struct_as_bytes(opencl, program) -> None:
    out = opencl.memory.allocate(8, "out")
    launches = cl.LaunchList(opencl)
    launches.add(program.kernel("pair"), (1,), None, [out, np.array([7, -3], np.int32).tobytes()])
    result = np.empty(2, np.int32)
    with opencl.queue() as queue:
        launches.enqueue(queue)
        queue.download(out, result)
    assert result.tolist() == [7, -3]


def test_empty_list_does_nothing(opencl, launches) -> None:
    with opencl.queue() as queue:
        launches.enqueue(queue)


def test_requests_in_many_threads_do_not_disturb_each_other(opencl, program) -> None:
    kernel = program.kernel("scale")
    wrong: list[int] = []

    def request(number: int) -> None:
        a, b = buffers(opencl, 2)
        launches = cl.LaunchList(opencl)
        for _ in range(3):
            launches.add(kernel, (ITEMS,), (16,), [a, b, np.int32(number), cl.LocalMemory(64)])
        result = np.empty(ITEMS, np.int32)
        with opencl.queue() as queue:
            for round_ in range(20):
                queue.upload(a, np.full(ITEMS, round_, np.int32))
                launches.enqueue(queue)
                queue.download(b, result)
                if not (result == number * round_).all():
                    wrong.append(number)

    threads = [threading.Thread(target=request, args=(n,)) for n in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_queues_in_turn_are_prepared_once(opencl, program, launches, monkeypatch) -> None:
    """A request runs on whichever stream is free."""
    made, prepare = [], cl.LaunchList._prepare
    monkeypatch.setattr(
        cl.LaunchList, "_prepare", lambda self, q: made.append(q.pointer) or prepare(self, q)
    )
    launches._use_command_buffer = False
    a, b = buffers(opencl, 2)
    launches.add(*scaling(program, a, b, 2))
    launches.add(*scaling(program, b, a, 2))
    queues = [opencl.queue(), opencl.queue(profiling=True), opencl.queue()]
    result = np.empty(ITEMS, np.int32)
    queues[0].upload(a, np.ones(ITEMS, np.int32))
    for number in range(6):
        launches.enqueue(queues[number % 3])
        queues[number % 3].finish()
        assert (number % 3 != 1) or len(launches.profile()) == 2
    queues[0].download(a, result)
    assert (result == 4**6).all()
    assert made == [queue.pointer for queue in queues]
    with ThreadPoolExecutor(1) as other:
        assert other.submit(opencl.enqueuing.acquire, timeout=1).result()
        other.submit(opencl.enqueuing.release).result()


def test_times(opencl, program) -> None:
    a, b = buffers(opencl, 2)
    launches = cl.LaunchList(opencl)
    launches.add(*scaling(program, a, b, 2))
    launches.add(*scaling(program, b, a, 2), name="back")
    with pytest.raises(DeviceError, match="profiling=True"):
        launches.profile()
    with opencl.queue(profiling=True) as queue:
        queue.fill(a)
        launches.enqueue(queue)
        times = launches.profile()
    assert [t.name for t in times] == ["scale", "back"]
    for time in times:
        assert 0 < time.queued_ns <= time.started_ns <= time.ended_ns
        assert time.enqueuing_ns > 0
        assert time.duration_ns == time.ended_ns - time.started_ns
    assert times[0].ended_ns <= times[1].started_ns


@pytest.mark.parametrize(
    ("global_size", "local_size", "problem"),
    [
        ((), None, "1 to 3 dimensions"),
        ((4, 4, 4, 4), None, "1 to 3 dimensions"),
        ((0,), None, "1 or more"),
        ((96,), (16, 1), "same number of dimensions"),
        ((96,), (0,), "1 or more each"),
        ((96,), (13,), "does not divide"),
        ((1 << 22,), (1 << 22,), "work-items in a work-group"),
    ],
)
def test_sizes_that_are_not_possible(opencl, program, global_size, local_size, problem) -> None:
    a, b = buffers(opencl, 2)
    arguments = [a, b, np.int32(2), cl.LocalMemory(64)]
    with pytest.raises(DeviceError, match=f"kernel 'scale' with global size .*{problem}"):
        cl.LaunchList(opencl).add(program.kernel("scale"), global_size, local_size, arguments)


def test_arguments_that_do_not_fit(opencl, program) -> None:
    a, b = buffers(opencl, 2)
    launches = cl.LaunchList(opencl)
    kernel, local = program.kernel("scale"), cl.LocalMemory(64)
    with pytest.raises(DeviceError, match="has 4 parameters, not 2"):
        launches.add(kernel, (ITEMS,), (16,), [a, b])
    with pytest.raises(DeviceError, match=r"argument 2 of kernel 'scale' is 2; give a Buffer"):
        launches.add(kernel, (ITEMS,), (16,), [a, b, 2, local])  # type: ignore[list-item]
    with pytest.raises(DeviceError, match=r"argument 2 of kernel 'scale'.*CL_INVALID_ARG_SIZE"):
        launches.add(kernel, (ITEMS,), (16,), [a, b, np.int64(2), local])
    assert len(launches) == 0


def test_too_much_local_memory_is_refused_before_the_driver_sees_it(opencl, program) -> None:
    """PoCL 3.1 crashes the process at such a launch."""
    a, b = buffers(opencl, 2)
    launches = cl.LaunchList(opencl)
    too_much = [a, b, np.int32(2), cl.LocalMemory(opencl.facts.local_memory_bytes + 1)]
    with pytest.raises(DeviceError, match=r"kernel 'scale' needs \d+ bytes of local memory"):
        launches.add(program.kernel("scale"), (ITEMS,), (16,), too_much)
    number = launches.add(*scaling(program, a, b, 2))
    with pytest.raises(DeviceError, match=r"kernel 'scale' needs \d+ bytes of local memory"):
        launches.set_argument(number, 3, too_much[3])


def test_launch_that_the_driver_refuses_names_the_kernel(opencl, program) -> None:
    """A required work-group size is known to the driver only."""
    source = "__attribute__((reqd_work_group_size(8, 1, 1))) __kernel void f(__global int* x) {}"
    kernel = cl.ProgramBuilder(opencl).build("eight", source).kernel("f")
    (a,) = buffers(opencl, 1)
    launches = cl.LaunchList(opencl, use_command_buffer=False)
    launches.add(kernel, (16,), (4,), [a])
    with opencl.queue() as queue, pytest.raises(DeviceError, match=r"kernel 'f' .* size \(4,\)"):
        launches.enqueue(queue)


@pytest.mark.parametrize("refused", [None, 0, 3], ids=["all", "first", "fourth"])
def test_loop_hands_over_every_argument_and_stops_where_one_is_refused(opencl, refused) -> None:
    """In another thread, while this one holds Python's lock at times."""
    seen: list[tuple] = []
    handle, number = ctypes.c_void_p, ctypes.c_uint
    kind = ctypes.CFUNCTYPE(
        ctypes.c_int, *(handle, handle, number), *[handle] * 3, number, *[handle] * 2
    )

    @kind
    def enqueue(*arguments: int | None) -> int:
        seen.append(arguments)
        return -5 if len(seen) - 1 == refused else 0

    far = 2**47
    rows = [
        (far + n, 1 + n % 3, None, far + 8 * n, None if n % 2 else 7, n or None) for n in range(5)
    ]
    records = np.array([tuple(x or 0 for x in row) for row in rows], LAUNCH)
    loop = launch_loop(far + 99, records)
    if loop is None:
        pytest.skip("no loop for this system")
    loop = loop._replace(enqueue=ctypes.cast(enqueue, handle))
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(loop).result() == (5 if refused is None else refused)
    expected = [(far + 99, *row[:5], 0, None, row[5]) for row in rows]
    assert seen == expected[: None if refused is None else refused + 1]


def test_command_buffer_that_fails_falls_back_to_calls(opencl, program, monkeypatch) -> None:
    def refuse(*_: object) -> None:
        raise command_buffer.CommandBufferError("clCreateCommandBufferKHR", -59)

    monkeypatch.setattr(command_buffer, "CommandBuffer", refuse)
    monkeypatch.setattr("polydevice_gpu.cl.queues.launch._functions", lambda _: None)
    a, b = buffers(opencl, 2)
    launches = cl.LaunchList(opencl, use_command_buffer=True)
    launches.add(*scaling(program, a, b, 2))
    launches.add(*scaling(program, b, a, 2))
    result = np.empty(ITEMS, np.int32)
    with opencl.queue() as queue:
        queue.upload(a, np.ones(ITEMS, np.int32))
        launches.enqueue(queue)
        queue.download(a, result)
    assert (result == 4).all()


def test_list_gives_its_memory_back(opencl, program, launches) -> None:
    gc.collect()  # what other tests left behind must not be freed while this one counts
    before = opencl.memory.bytes_allocated
    a, b = buffers(opencl, 2)
    for _ in range(2):
        launches.add(*scaling(program, a, b, 2))
    with opencl.queue() as queue:
        queue.fill(a)
        launches.enqueue(queue)
    del a, b
    watched = weakref.ref(launches._added[0])
    launches._added.clear()
    launches._forget_prepared()
    gc.collect()
    assert watched() is None
    assert opencl.memory.bytes_allocated == before


@pytest.mark.parametrize(("hint", "key"), [("priority", "PRIORITY"), ("throttle", "THROTTLE")])
def test_queue_hint_that_the_device_lacks(opencl, hint, key) -> None:
    if f"cl_khr_{hint}_hints" in opencl.facts.extension_names:
        opencl.queue(**{hint: 1}).finish()
        return
    with pytest.raises(OptionValueError, match=f"GPU_PLUGIN_{key}=1: .* no cl_khr_{hint}_hints"):
        opencl.queue(**{hint: 1})


@pytest.mark.parametrize(
    ("marks", "begun", "enqueuing"),
    [([100, 140], [100] * 3, [40] * 3), ([100, 110, 115, 140], [100, 110, 115], [10, 5, 25])],
    ids=["of all", "of each"],
)
def test_what_is_known_of_the_time_on_the_host(marks, begun, enqueuing) -> None:
    events, slots = LaunchEvents(3), (ctypes.c_void_p * 3)()
    events.take(slots, marks)
    assert events.begun_ns == begun
    assert events.enqueuing_ns == enqueuing
