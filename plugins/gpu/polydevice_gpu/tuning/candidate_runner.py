"""CandidateRunner: runs a node on random data, in any of the ways it may be computed, timed."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence

import numpy as np

from polydevice.dataclass import dataclass
from polydevice.dtype import Array
from polydevice.errors import DeviceError
from polydevice_gpu import cl
from polydevice_gpu.graph import GpuNode, Memory, Place, Value
from polydevice_gpu.kernels.kernel import Choice
from polydevice_gpu.kernels.launch import Launch
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.ops import RecurrentSteps
from polydevice_gpu.runtime.plan import argument_of, scratch_memory
from polydevice_gpu.runtime.weights import WeightStore

_WARM_UP_RUNS = 1
_RUNS = 5
_SECONDS_OF_RUNS = 0.2
"""A candidate that takes longer is run less often."""


@dataclass(frozen=True)
class Outcome:
    """What a candidate gave: everything in its outputs' memory, and its best time."""

    outputs: tuple[Array, ...]
    time_ns: int


class CandidateRunner:
    """Runs a node alone; its memory is released with the runner."""

    def __init__(
        self, node: GpuNode, target: Target, device: cl.Device, builder: cl.ProgramBuilder
    ) -> None:
        """Allocate the node's inputs and outputs and fill the inputs with random numbers."""
        self._node = node
        self._target = target
        self._device = device
        self._builder = builder
        self._programs: list[cl.Program] = []
        self._queue = device.queue(profiling=True)
        self._buffers: dict[Memory, cl.Buffer] = {}
        random = np.random.default_rng(2021)
        for value in (*node.inputs, *node.outputs):
            memory = value.memory
            assert memory is not None
            if memory.place is Place.WEIGHTS or memory in self._buffers:
                continue
            buffer = device.memory.allocate(max(memory.bytes, 1), "tuning")
            self._buffers[memory] = buffer
            data = _numbers(node, value, memory, random)
            self._queue.upload(buffer, data)

    def build(self, choices: Sequence[Choice]) -> None:
        """Build the programs of several ways at the same time; those that fail, fail in `run`."""
        sources = [
            cl.ProgramSource(launch.kernel, launch.text, launch.options)
            for choice in choices
            for launch in self._launches(choice)
        ]
        with contextlib.suppress(DeviceError):
            self._programs = self._builder.build_all(sources)

    def run(
        self, choice: Choice, *, timed: bool = True, patience_ns: float = math.inf
    ) -> Outcome | None:
        """Run the node in one way; None when that does not build or run.

        Args:
            choice: the way.
            timed: whether to run it several times; its first run tells little.
            patience_ns: what takes longer in its first run is not run again.
        """
        try:
            return self._run(choice, timed, patience_ns)
        except DeviceError:
            return None

    def _run(self, choice: Choice, timed: bool, patience_ns: float) -> Outcome:
        launches = self._launches(choice)
        buffers = dict(self._buffers)
        scratch = scratch_memory(launches)
        for piece in scratch.values():
            buffers[piece] = self._device.memory.zeros(max(piece.bytes, 1), "tuning")
        weights = WeightStore(self._device)  # of this candidate alone, as each wants another form
        prepared = cl.LaunchList(self._device)
        for launch in launches:
            program = self._builder.build(launch.kernel, launch.text, launch.options)
            arguments = [
                argument_of(a, scratch, weights, buffers.__getitem__) for a in launch.arguments
            ]
            kernel = program.kernel(launch.kernel)
            prepared.add(kernel, launch.global_size, launch.local_size, arguments)
        written = dict.fromkeys(value.memory for value in self._node.outputs)
        read = {value.memory for value in self._node.inputs}
        memories = [memory for memory in written if memory is not None]
        for memory in memories:
            if memory not in read:  # other parts of a concatenation may be
                self._queue.fill(buffers[memory])
        times = [self._time(prepared) for _ in range(_WARM_UP_RUNS)]
        if timed and times[0] <= patience_ns:
            often = max(1, min(_RUNS, int(_SECONDS_OF_RUNS * 1e9 / max(times[0], 1))))
            times = [self._time(prepared) for _ in range(often)]
        outputs = [np.empty(memory.elements, memory.storage.dtype) for memory in memories]
        for memory, output in zip(memories, outputs, strict=True):
            self._queue.download(buffers[memory], output)
        return Outcome(tuple(outputs), min(times))

    def _launches(self, choice: Choice) -> list[Launch]:
        return choice.kernel.launches(self._node, choice.kernel.modes[choice.mode], self._target)

    def _time(self, launches: cl.LaunchList) -> int:
        """Return nanoseconds on the device."""
        launches.enqueue(self._queue)
        return sum(time.duration_ns for time in launches.profile())


def _numbers(node: GpuNode, value: Value, memory: Memory, random: np.random.Generator) -> Array:
    """Return random content for a value's memory; sequences have their full length."""
    dtype = memory.storage.dtype
    op = node.op
    lengths = 2 + op.layer.states if isinstance(op, RecurrentSteps) and op.has_lengths else None
    if lengths is not None and value is node.inputs[lengths]:
        return np.full(memory.elements, node.inputs[0].shape[1], dtype)
    if dtype.kind == "f":
        return random.standard_normal(memory.elements, np.float32).astype(dtype)
    return random.integers(0, 2, memory.elements).astype(dtype)


def agrees(output: Array, right: Array) -> bool:
    """Whether two results are the same but for rounding, which grows with the largest value."""
    if output.dtype.kind not in "fV":
        return bool(np.array_equal(output, right))
    a, b = output.astype(np.float64), right.astype(np.float64)
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return False
    a, b = a[np.isfinite(a)], b[np.isfinite(b)]
    # Sums in another order: 1e-4 of the largest in f32; 2e-3, two units of f16, in f16.
    tolerance = 1e-4 if output.dtype.itemsize >= 4 else 4e-3
    limit = tolerance * max(float(np.abs(b).max(initial=0)), 1e-3)
    return bool(np.abs(a - b).max(initial=0) <= limit)
