"""What is kept of primitives: one for layers that are alike, and one description of each."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from polydevice_cpu.onednn import primitives
from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.constants import Arg, DataType
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.engine import MemoryObject
from polydevice_cpu.onednn.library import library
from polydevice_cpu.onednn.primitive import run_once
from polydevice_cpu.plan.step import PrimitiveStep
from polydevice_cpu.processor import has_int8
from tests.cpu.quantised_graphs import Graph, check, spread

pytestmark = pytest.mark.skipif(library() is None, reason="needs oneDNN")


@pytest.mark.skipif(not has_int8(), reason="computes in f32 on this processor")
@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_layers_that_round_to_other_steps_share_a_primitive(core, kind):
    """Scales and zero points are read at execution: the code is that of the sizes alone."""
    rng = np.random.default_rng(11)
    g, count, channels = Graph(rng), 5, 13
    value, results = g.source(kind), []
    for layer in range(count):
        w = g.store(rng.integers(-127, 128, (channels, channels, 3, 3)).astype(np.int8))
        w = g.emit("DequantizeLinear", w, *g.parameters(np.int8, 0.004 + 0.001 * layer, 0))
        bias = g.store(rng.normal(size=channels).astype(np.float32))
        y = g.emit("Conv", value, w, bias, pads=[1, 1, 1, 1])
        parameters = g.parameters(kind, 0.13 + 0.07 * layer, 3 + layer)
        results.append(g.emit("QuantizeLinear", y, *parameters))
    shape = (1, channels, 9, 7)
    model = g.model(shape, kind, dict.fromkeys(results, kind))
    feed, outputs = {"x": spread(rng, shape, kind)}, dict.fromkeys(results, 1)
    check(core, model, feed, outputs)
    executable = core.load_network(core.read_network(model), "CPU")
    steps = [
        step.primitive.number
        for step in executable.latest_plan().steps
        if isinstance(step, PrimitiveStep) and step.primitive.kind == "convolution"
    ]
    assert len(steps) == count
    assert len(set(steps)) == 1, executable.explain()


def test_what_a_primitive_chose_is_told_from_the_code_s_own_description():
    """The one that it was made from is let go meanwhile, which other threads may be reading."""
    for channels in range(17, 57):
        src = Descriptor.channels_last((1, channels, 11, 12), DataType.F32)
        dst = Descriptor.channels_last((1, 2 * channels, 11, 12), DataType.F32)
        sizes = (2 * channels, channels, 3, 3)
        made = primitives.convolution(
            src,
            Descriptor.any(sizes, DataType.F32),
            None,
            dst,
            (1, 1),
            (1, 1),
            (1, 1),
            (1, 1),
            Attributes(),
        )
        before = [made._handles.description.value]
        found: list[tuple[object, int]] = []
        begin = threading.Barrier(4)

        def ask(made=made, begin=begin, found=found) -> None:
            begin.wait()
            made._descriptors.clear()
            found.append((made.weights, made.scratchpad_bytes))

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        begin.wait()
        made.compile()
        for thread in threads:
            thread.join()
        assert [made._handles.description.value] != before
        made._descriptors.clear()
        assert all(layout == made.weights for layout, _ in found)
        assert len({size for _, size in found}) == 1
        assert made.src == src
        assert made.dst == dst


def test_what_is_compiled_runs_without_the_description_it_was_made_from():
    x = np.random.default_rng(0).standard_normal((3, 5, 4)).astype(np.float32)
    layout = Descriptor.dense(x.shape)
    made = primitives.reorder(layout, layout, Attributes())
    y = np.zeros_like(x)
    arguments = {
        Arg.SRC: MemoryObject(layout, x.ctypes.data),
        Arg.DST: MemoryObject(layout, y.ctypes.data),
    }
    run_once(made, arguments)
    assert made._handles._own is None
    np.testing.assert_array_equal(y, x)
