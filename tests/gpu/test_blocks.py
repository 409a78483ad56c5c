"""The memory that the plans of one request take in turn."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

from polydevice.errors import DeviceMemoryError
from polydevice.memory_budget import MemoryBudget
from polydevice_gpu.cl.memory.blocks import Blocks
from tests.cpu import models


def rows(width: int = 24):
    """Rows times two matrices, of any number; what they are is worked out by NumPy."""
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal((width, width)).astype(np.float32) for _ in range(2))
    nodes = [("MatMul", ["x", "a"], ["h"], {}), ("Relu", ["h"], ["r"], {})]
    nodes += [("MatMul", ["r", "b"], ["y"], {})]
    model = models.build(nodes, {"x": ["rows", width]}, ["y"], {"a": a, "b": b})
    return model, lambda x: np.maximum(x.astype(np.float64) @ a, 0) @ b


def test_blocks_that_are_large_enough_are_taken_again(opencl) -> None:
    budget = MemoryBudget(1 << 30, "a network")
    before = opencl.memory.bytes_allocated
    blocks = Blocks(opencl.memory, budget)
    first = blocks.of([1000, 500])
    assert opencl.memory.bytes_allocated - before == 1500
    again = blocks.of([700])
    assert again == first[:1]
    other = blocks.of([1000, 600])
    assert other[0] is first[0]
    assert other[1].buffer.size_bytes == 750, "half as much again as before"
    assert opencl.memory.bytes_allocated - before == 1000 + 500 + 750
    assert blocks.bytes_kept_by(first) == 500
    assert blocks.bytes_kept_by(other) == 0, "the next plan would take them"
    del first, again
    gc.collect()
    assert opencl.memory.bytes_allocated - before == 1750, "nobody uses it, though it was the first"
    assert budget.used_bytes == 1750
    blocks.clear()
    del other
    gc.collect()
    assert opencl.memory.bytes_allocated == before
    assert budget.used_bytes == 0


def test_blocks_behind_one_that_grows_are_kept(opencl) -> None:
    blocks = Blocks(opencl.memory)
    first = blocks.of([100, 200, 300])
    other = blocks.of([120, 190, 300])
    assert [block.buffer.size_bytes for block in other] == [150, 200, 300]
    assert other[1:] == first[1:]
    assert blocks.of([150, 200, 200]) == other


def test_what_the_network_may_not_use_is_not_asked_of_the_device(opencl, monkeypatch) -> None:
    def allocate(size: int, name: str) -> None:
        raise AssertionError(f"{name}: {size} bytes")

    monkeypatch.setattr(opencl.memory, "allocate", allocate)
    blocks = Blocks(opencl.memory, MemoryBudget(1000, "a network"))
    with pytest.raises(DeviceMemoryError, match="a network"):
        blocks.of([2000])


def test_it_grows_by_what_is_needed_where_there_is_no_more(opencl) -> None:
    budget = MemoryBudget(2300, "a network")
    blocks = Blocks(opencl.memory, budget)
    blocks.of([1000])
    (block,) = blocks.of([2200])
    assert block.buffer.size_bytes == 2200
    blocks.clear()
    with pytest.raises(DeviceMemoryError, match="a network"):
        blocks.of([2400])


def test_sizes_in_any_order(core) -> None:
    """Larger ones take other memory; what was bound to the memory before is still right."""
    model, right = rows()
    executable = core.load_network(core.read_network(model), "GPU")
    request, rng = executable.create_infer_request(), np.random.default_rng(1)
    sizes = [3, 40, 3, 5, 300, 40, 1, 299, 3]
    for count in [*sizes, *rng.permutation(sizes).tolist()]:
        x = rng.standard_normal((count, 24)).astype(np.float32)
        answer = np.array(request.infer({"x": x})["y"])
        np.testing.assert_allclose(answer, right(x), rtol=1e-4, atol=1e-3)


def test_an_output_on_the_device_stays_when_another_size_runs(core) -> None:
    model, right = rows()
    executable = core.load_network(core.read_network(model), "GPU")
    request, rng = executable.create_infer_request(), np.random.default_rng(2)
    x, other = (rng.standard_normal((count, 24)).astype(np.float32) for count in (7, 5))
    request.keep_on_device("y")
    request.infer({"x": x})
    first = request.get_blob("y")
    request.infer({"x": other})
    for blob, given in ((first, x), (request.get_blob("y"), other)):
        answer = np.empty((len(given), 24), np.float32)
        blob.copy_to(answer)
        np.testing.assert_allclose(answer, right(given), rtol=1e-4, atol=1e-3)


def test_two_requests_have_memory_of_their_own(core) -> None:
    model, right = rows()
    executable = core.load_network(core.read_network(model), "GPU")
    wrong: list[int] = []

    def infer(seed: int) -> None:
        request, rng = executable.create_infer_request(), np.random.default_rng(seed)
        for count in rng.integers(1, 60, 25).tolist():
            x = rng.standard_normal((count, 24)).astype(np.float32)
            if not np.allclose(request.infer({"x": x})["y"], right(x), rtol=1e-4, atol=1e-3):
                wrong.append(count)

    threads = [threading.Thread(target=infer, args=(seed,)) for seed in (4, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
