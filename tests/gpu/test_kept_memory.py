"""Memory that launches keep from one inference to the next: zero at first, each piece its own."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import ElementType
from polydevice_gpu.cl.memory.blocks import Blocks
from polydevice_gpu.graph import Memory, Place
from polydevice_gpu.kernels.launch import Scratch
from polydevice_gpu.runtime.bound_plan import BoundPlan
from tests.gpu.graphs import Sketch


def test_kept_memory_is_zero_and_apart(core, opencl):
    s = Sketch()
    y = s.conv("b", s.conv("a", s.input("x", 1, 8, 9, 9), 8), 8)
    plan = core.load_network(s.network(y=y), "GPU").latest_plan()
    kept = [Memory(Place.KEPT, n, ElementType.u32, name=f"kept{n}") for n in (1, 77, 3, 1000)]
    for number, memory in enumerate(kept):
        step = plan.launching[number % 2]
        step.scratch[Scratch(memory.elements, ElementType.u32, kept=True)] = memory
    before = opencl.memory.bytes_allocated
    bound = BoundPlan(plan, Blocks(plan.device.memory))
    assert opencl.memory.bytes_allocated - before >= sum(memory.bytes for memory in kept)
    with opencl.queue() as queue:

        def held():
            arrays = [np.full(memory.elements, 9, np.uint32) for memory in kept]
            for memory, array in zip(kept, arrays, strict=True):
                queue.download(bound.region(memory), array)
            return arrays

        assert not any(array.any() for array in held())
        for number, memory in enumerate(kept, 1):
            queue.upload(bound.region(memory), np.full(memory.elements, number, np.uint32))
        for number, array in enumerate(held(), 1):
            assert (array == number).all()
        bound.clear_kept(queue)
        assert not any(array.any() for array in held())
