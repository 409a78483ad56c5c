"""Buffers, regions, shared memory, transfers, accounting and guard zones."""

from __future__ import annotations

import gc
from dataclasses import replace

import numpy as np
import pytest

from polydevice.errors import DeviceMemoryError
from polydevice_gpu import cl
from polydevice_gpu.cl.memory.allocator import Allocator
from tests.gpu.strict import refuse_empty_transfers

WRITE = "__kernel void write(__global uchar* x, int at) { x[at] = 1; }"


@pytest.fixture
def memory(opencl) -> Allocator:
    """An account of its own."""
    return Allocator(opencl.context, opencl.handle, opencl.facts, opencl.region_alignment_bytes)


def random_bytes(size: int) -> np.ndarray:
    return np.random.default_rng(7).integers(0, 256, size, np.uint8)


@pytest.mark.parametrize("size", [1, 3, 4097, 1 << 20])
@pytest.mark.parametrize("wait", [True, False])
def test_up_and_down(opencl, memory, size, wait) -> None:
    buffer = memory.allocate(size, "x")
    sent, back = random_bytes(size), np.zeros(size, np.uint8)
    with opencl.queue() as queue:
        queue.upload(buffer, sent, wait=wait)
        queue.download(buffer, back, wait=wait)
    assert np.array_equal(sent, back)


@pytest.mark.parametrize("wait", [True, False])
def test_transfers_of_nothing_reach_no_driver(opencl, memory, monkeypatch, wait) -> None:
    refused = refuse_empty_transfers(monkeypatch)
    one, two = memory.allocate(64, "one"), memory.allocate(64, "two")
    nothing, sent, back = np.empty((0, 3), np.float32), random_bytes(64), np.zeros(64, np.uint8)
    with opencl.queue() as queue:
        queue.upload(one, sent)
        queue.upload(one, nothing, wait=wait)
        queue.download(one, nothing, wait=wait)
        queue.copy(two, one, 0)
        queue.copy_block(two, one, (0, 0, 0), (4, 0, 1), (8, 64))
        queue.fill(one, size_bytes=0)
        queue.download(one, back)
        copies = replace(queue.copies)
    assert not refused
    assert np.array_equal(back, sent)
    assert (copies.uploads, copies.downloads, copies.on_device) == (1, 1, 0)


def test_zeros(opencl, memory) -> None:
    used = memory.allocate(4096, "used")
    with opencl.queue() as queue:
        queue.fill(used, b"\x5a")
    del used
    buffer = memory.zeros(4096, "zeros")
    got = np.full(4096, 7, np.uint8)
    with opencl.queue() as queue:
        queue.download(buffer, got)
    assert not got.any()


def test_regions_share_the_memory_and_keep_it_alive(opencl, memory) -> None:
    step = memory.region_alignment_bytes
    whole = memory.allocate(3 * step, "arena")
    sent, back = random_bytes(3 * step), np.zeros(step, np.uint8)
    middle = whole.region(step, step, "middle")
    inner = whole.region(step, 2 * step).region(step, step)
    with opencl.queue() as queue:
        queue.upload(whole, sent)
        queue.download(middle, back)
        assert np.array_equal(back, sent[step : 2 * step])
        queue.download(inner, back)
        assert np.array_equal(back, sent[2 * step :])
    del whole, inner
    gc.collect()
    assert memory.bytes_allocated == 3 * step
    with opencl.queue() as queue:
        queue.download(middle, back)
    assert np.array_equal(back, sent[step : 2 * step])
    del middle
    gc.collect()
    assert memory.bytes_allocated == 0


@pytest.mark.parametrize(
    ("offset", "size"), [(-128, 4), (0, 0), (0, 2049), (2048, 1), (1, 4), (1 << 70, 4)]
)
def test_region_that_does_not_fit(memory, offset, size) -> None:
    buffer = memory.allocate(2048, "arena")
    with pytest.raises(DeviceMemoryError, match=r"region .*'arena'"):
        buffer.region(offset, size)


def test_account_and_peak(memory) -> None:
    one, two = memory.allocate(1000, "one"), memory.allocate(2000, "two")
    assert (memory.bytes_allocated, memory.peak_bytes) == (3000, 3000)
    del one
    assert (memory.bytes_allocated, memory.peak_bytes) == (2000, 3000)
    del two
    assert memory.bytes_allocated == 0


def test_allocating_a_thousand_times_leaves_nothing(opencl, memory) -> None:
    for _ in range(1000):
        memory.allocate(1 << 16, "x").region(0, 128)
    assert memory.bytes_allocated == 0


def test_limit_fails_cleanly_at_every_allocation_in_turn(memory) -> None:
    """Whichever allocation fails, those before stay usable and nothing leaks."""
    for limit in range(0, 5000, 1000):
        memory.limit_bytes = limit
        held = []
        with pytest.raises(DeviceMemoryError, match=r"cannot allocate 1000 bytes for 'part \d'"):
            held.extend(memory.allocate(1000, f"part {number}") for number in range(9))
        assert len(held) == limit // 1000
        assert memory.bytes_allocated == limit
        held.clear()
        assert memory.bytes_allocated == 0


@pytest.mark.parametrize("size", [0, -1, 1 << 60])
def test_size_that_is_not_possible(memory, size) -> None:
    with pytest.raises(DeviceMemoryError, match=f"cannot allocate {size} bytes for 'x'"):
        memory.allocate(size, "x")
    assert memory.bytes_allocated == 0


def test_refusal_by_the_driver_is_taken_out_of_the_account(opencl) -> None:
    boastful = replace(opencl.facts, max_allocation_bytes=1 << 62, global_memory_bytes=1 << 62)
    memory = Allocator(opencl.context, opencl.handle, boastful, opencl.region_alignment_bytes)
    if not opencl.facts.is_cpu:
        pytest.skip("drivers of GPUs may set memory aside on first use, and refuse nothing before")
    with pytest.raises(DeviceMemoryError, match=f"allocating {1 << 61} bytes for 'x'.*CL_"):
        memory.allocate(1 << 61, "x")
    assert memory.bytes_allocated == 0
    memory.allocate(64, "y")


def test_transfers_say_what_does_not_fit(opencl, memory) -> None:
    buffer = memory.allocate(64, "x")
    read_only = np.zeros(8, np.uint8)
    read_only.flags.writeable = False
    with opencl.queue() as queue:
        with pytest.raises(DeviceMemoryError, match="65 bytes do not fit into the 64 of 'x'"):
            queue.upload(buffer, np.zeros(65, np.uint8))
        with pytest.raises(DeviceMemoryError, match="C-contiguous"):
            queue.upload(buffer, np.zeros((8, 8), np.uint8)[:, ::2])
        with pytest.raises(DeviceMemoryError, match="read-only"):
            queue.download(buffer, read_only)
        with pytest.raises(DeviceMemoryError, match=r"make it with Allocator\.shared"):
            queue.publish(buffer)


def test_copy_and_fill(opencl, memory) -> None:
    one, two = memory.allocate(100, "one"), memory.allocate(200, "two")
    back = np.zeros(200, np.uint8)
    with opencl.queue() as queue:
        queue.fill(one, b"\x03")
        queue.fill(two)
        queue.copy(one, two)
        queue.download(two, back)
        with pytest.raises(DeviceMemoryError, match="do not fit"):
            queue.copy(two, one)
    assert back.tolist() == [3] * 100 + [0] * 100


def test_shared_memory_goes_both_ways_again_and_again(opencl, memory) -> None:
    source = "__kernel void f(__global const int* x, __global int* y) {"
    source += " int i = get_global_id(0); y[i] = x[i] + 1; }"
    kernel = cl.ProgramBuilder(opencl).build("add", source).kernel("f")
    x, y = memory.shared(4000, "x"), memory.shared(4000, "y")
    launches = cl.LaunchList(opencl)
    launches.add(kernel, (1000,), None, [x, y])
    with opencl.queue() as queue:
        for round_ in range(5):
            x.host.view(np.int32)[:] = np.arange(1000) * round_
            queue.publish(x)
            queue.publish(y)
            launches.enqueue(queue)
            queue.fetch(x, wait=False)
            queue.fetch(y)
            assert np.array_equal(y.host.view(np.int32), np.arange(1000) * round_ + 1)


def test_array_of_shared_memory_outlives_the_buffer(memory) -> None:
    array = memory.shared(1 << 16, "x").host
    gc.collect()
    array[:] = 5
    assert array.sum() == 5 << 16


@pytest.mark.parametrize(("at", "hurt"), [(0, False), (99, False), (-1, True), (100, True)])
def test_guards_find_writes_outside(opencl, memory, at, hurt) -> None:
    memory.guard_bytes = 64
    buffer = memory.allocate(100, "victim")
    kernel = cl.ProgramBuilder(opencl).build("write", WRITE).kernel("write")
    launches = cl.LaunchList(opencl)
    launches.add(kernel, (1,), None, [buffer, np.int32(at)])
    with opencl.queue() as queue:
        launches.enqueue(queue)
    if hurt:
        with pytest.raises(DeviceMemoryError, match=f"outside of 'victim': byte {at} of 100"):
            memory.check_guards()
    else:
        memory.check_guards()
    del buffer, launches
    gc.collect()
    memory.check_guards()
    assert memory.bytes_allocated == 0
