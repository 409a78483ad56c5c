"""Products of one row with matrices of 4 and 8 bits on a GPU: every kernel's time beside a copy's.

    python benchmarks/compressed.py            # of the chosen kernel, and of the best
    python benchmarks/compressed.py --modes    # every mode's time

Times are the device's, of one layer alone on random data; best of five runs. A copy reads and
writes as many bytes as the matrix with its scales has (x + 1 of half as many, by the same clock).
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("POLYDEVICE_GPU_DEVICES", "all-gpus,cpu")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from polydevice.network import Network
from polydevice.ops.arithmetic import Add
from polydevice_cpu.implement import evaluate
from polydevice_gpu import cl
from polydevice_gpu.compiler.device_target import target_of
from polydevice_gpu.compiler.settings import CompileSettings
from polydevice_gpu.compiler.stages import build_graph
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.ops import CompressedMatMul
from polydevice_gpu.tuning.candidate_runner import CandidateRunner, agrees
from polydevice_gpu.tuning.candidates import candidates
from tests.gpu.graphs import Sketch

# Columns, terms, bits, terms of a block.
CASES = [
    (columns, terms, bits, block)
    for bits, block in ((4, 128), (4, 32), (8, 128))
    for columns, terms in ((14336, 4096), (4096, 14336), (4096, 4096))
]


def main() -> int:
    """Time all cases and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--modes", action="store_true", help="list the times of all modes")
    options = parser.parse_args()
    device = cl.open_device(cl.discover().devices[0])
    builder, target = cl.ProgramBuilder(device), target_of(device)
    print(f"{device.facts.name}: µs of the chosen mode, of the best, and of a copy")
    for columns, terms, bits, block in CASES:
        node = _node(_product(columns, terms, bits, block), target)
        runner = CandidateRunner(node, target, device, builder)
        choices = candidates(node, target)
        runner.build(choices)
        found = {c: outcome for c in choices if (outcome := runner.run(c)) is not None}
        right = found[choices[-1]].outputs[0]
        wrong = [c for c in choices if c not in found or not agrees(found[c].outputs[0], right)]
        for choice in wrong:
            print(f"{choice} of {columns}x{terms} is {'wrong' if choice in found else 'refused'}")
        times = {c: outcome.time_ns / 1e3 for c, outcome in found.items() if c not in wrong}
        chosen, best = choices[0], min(times, key=lambda choice: times[choice])
        bytes_read = columns * (terms * bits // 8 + terms // block * 5)
        copy = _copy_us(bytes_read, device, builder, target)
        print(
            f"{columns:6}x{terms:<6}{bits} bits, blocks of {block:<5}"
            f"{times.get(chosen, 0):9.1f} {chosen!s:28}{times[best]:9.1f} {best!s:28}"
            f"{copy:9.1f} copied: {copy / times[best]:.2f}",
            flush=True,
        )
        for choice, time in sorted(times.items(), key=lambda item: item[1]):
            if options.modes:
                print(f"{time:19.1f} µs: {choice} {choice.kernel.modes[choice.mode]}")
    return 0


def _product(columns: int, terms: int, bits: int, block: int) -> Network:
    random = np.random.default_rng(columns + terms)
    s = Sketch()
    q = random.integers(0, 256, (columns, terms * bits // 8)).astype(np.uint8)
    zeros = random.integers(0, 1 << bits, (columns, terms // block)).astype(np.uint8)
    scales = random.uniform(0.01, 0.1, zeros.shape).astype(np.float32)
    constants = [s.const(*each) for each in (("q", q), ("s", scales), ("z", zeros))]
    return s.network(y=s.add("y", CompressedMatMul(bits), s.input("x", 1, terms), *constants))


def _node(network: Network, target: Target) -> GpuNode:
    """Return the one node that is computed."""
    graph = build_graph(network.clone(), target, evaluate, CompileSettings())
    return next(node for node in graph.nodes if node.choice is not None and not node.is_view)


def _copy_us(size: int, device: cl.Device, builder: cl.ProgramBuilder, target: Target) -> float:
    """What it takes to read and write so many bytes."""
    s = Sketch()
    network = s.network(y=s.add("y", Add(), s.input("x", size // 8), s.const("1", np.float32(1))))
    node = _node(network, target)
    assert node.choice is not None
    outcome = CandidateRunner(node, target, device, builder).run(node.choice)
    assert outcome is not None
    return outcome.time_ns / 1e3


if __name__ == "__main__":
    sys.exit(main())
