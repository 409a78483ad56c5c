"""Reductions, softmax and normalisations of all kinds of rows: the chosen mode against all others.

    python benchmarks/rows.py            # the first device that the rule admits
    python benchmarks/rows.py --modes    # every mode's time beside what was expected of it

Times are the device's, of one layer alone on random f32 data; best of five runs.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("POLYDEVICE_GPU_DEVICES", "all-gpus,cpu")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from polydevice.ops import reduce
from polydevice.ops.normalization import MVN, EpsMode, NormalizeL2
from polydevice.ops.op import Op
from polydevice.ops.softmax import SoftMax
from polydevice.ops.transpose import Transpose
from polydevice_cpu.implement import evaluate
from polydevice_gpu import cl
from polydevice_gpu.compiler.device_target import target_of
from polydevice_gpu.compiler.settings import CompileSettings
from polydevice_gpu.compiler.stages import build_graph
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.row.row import RowKernel
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.tuning.candidate_runner import CandidateRunner
from polydevice_gpu.tuning.candidates import candidates
from tests.gpu.graphs import Sketch

MEAN = reduce.ReduceMean()
DEVIATION = MVN(normalize_variance=True, eps=1e-5, eps_mode=EpsMode.INSIDE_SQRT)
NORM = NormalizeL2(eps=1e-5, eps_mode=EpsMode.ADD)
SOFTMAX = SoftMax(axis=-1)
LAST = (0, 2, 3, 1)  # channels side by side

# Operation, shape, order of the axes in memory, axes of a row.
CASES: list[tuple[Op, tuple[int, ...], tuple[int, ...] | None, list[int]]] = [
    (MEAN, (1, 64, 512, 512), None, [0, 1, 2, 3]),
    (MEAN, (1, 64, 512, 512), None, [2, 3]),
    (MEAN, (1, 64, 512, 512), LAST, [2, 3]),
    (MEAN, (32, 64, 112, 112), LAST, [2, 3]),
    (MEAN, (1, 1280, 14, 14), LAST, [2, 3]),
    (MEAN, (1, 2048, 7, 7), LAST, [2, 3]),
    (MEAN, (1, 10_000), None, [1]),
    (MEAN, (1, 1_000_000), None, [1]),
    (MEAN, (16, 100_000), None, [1]),
    (MEAN, (128, 768), None, [1]),
    (MEAN, (1000, 1000), None, [0]),
    (DEVIATION, (1, 384, 768), None, [2]),
    (DEVIATION, (1, 32, 262_144), None, [2]),
    (DEVIATION, (1, 64, 512, 512), None, [1, 2, 3]),
    (SOFTMAX, (1, 1000), None, []),
    (SOFTMAX, (1, 100_000), None, []),
    (SOFTMAX, (8, 1_000_000), None, []),
    (SOFTMAX, (12, 384, 384), None, []),
    (SOFTMAX.replace(axis=1), (1, 21, 512, 512), None, []),
    (NORM, (4, 1_000_000), None, [1]),
]


def main() -> int:
    """Time all cases and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--modes", action="store_true", help="list the times of all modes")
    options = parser.parse_args()
    device = cl.open_device(cl.discover().devices[0])
    builder, target = cl.ProgramBuilder(device), target_of(device)
    print(f"{device.facts.name}: µs of the chosen mode, and of the best")
    for op, shape, order, axes in CASES:
        node = _node(op, shape, order, axes, target)
        runner = CandidateRunner(node, target, device, builder)
        choices = candidates(node, target)
        runner.build(choices)
        times = {c: found.time_ns / 1e3 for c in choices if (found := runner.run(c)) is not None}
        chosen, best = choices[0], min(times, key=lambda choice: times[choice])
        print(
            f"{times[chosen]:9.1f} {chosen!s:23} {times[best]:9.1f} {best!s:23} "
            f"{type(op).__name__} {shape} over {axes or op.attributes()['axis']}"
            f"{' channels last' if order else ''}",
            flush=True,
        )
        for choice, time in sorted(times.items(), key=lambda item: item[1]):
            if options.modes:
                kernel, mode = choice.kernel, choice.kernel.modes[choice.mode]
                assert isinstance(kernel, RowKernel)
                expected = kernel.expected_us(node, choice.mode, target)
                print(f"{time:19.1f} µs, expected {expected:.0f}: {choice} {mode}")
    return 0


def _node(
    op: Op, shape: tuple[int, ...], order: tuple[int, ...] | None, axes: list[int], target: Target
) -> GpuNode:
    """Return the operation as the node of a graph."""
    s = Sketch()
    x = s.input("x", *(shape[axis] for axis in order or range(len(shape))))
    if order:
        x = s.add("view", Transpose(), x, s.const("order", np.argsort(order)))
    network = s.network(y=s.add("y", op, x, *([s.const("axes", np.array(axes))] if axes else [])))
    graph = build_graph(network.clone(), target, evaluate, CompileSettings())
    return next(n for n in graph.nodes if n.choice and isinstance(n.choice.kernel, RowKernel))


if __name__ == "__main__":
    sys.exit(main())
