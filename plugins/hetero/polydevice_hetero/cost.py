"""cost: where the parts of a network run soonest, by times that are measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from polydevice.dataclass import dataclass
from polydevice.dtype import Array
from polydevice.errors import PolydeviceError
from polydevice.executable_network import ExecutableNetwork
from polydevice.inspection.placement import bytes_of
from polydevice.network import Network
from polydevice.node import Node
from polydevice_hetero.affinity import Assignment
from polydevice_hetero.split import Subgraph

SECONDS = 0.5
"""For measuring one executable, after its first inference."""

RUNS = 20
"""Inferences that are measured at most; the least time counts, which others disturb least."""

GAIN = 0.95
"""A member is left for another that takes less than this share of its time."""


CONFIRMED = 3
"""How often in a row a member or placement has to be quicker to be taken."""


@dataclass(frozen=True)
class Estimate:
    """What a part costs on each member that runs it.

    Attributes:
        part: its number in the default cut.
        milliseconds: member → least time of an inference with inputs and outputs in host memory,
            hence with all transfers.
        transfer_bytes: of its inputs and outputs.
    """

    part: int
    milliseconds: dict[str, float]
    transfer_bytes: int

    def describe(self) -> str:
        """Say it in a line."""
        times = ", ".join(f"{ms:.3g} ms on {member}" for member, ms in self.milliseconds.items())
        return f"part {self.part}: {times}, {self.transfer_bytes} bytes in and out"


def random_inputs(executable: ExecutableNetwork) -> dict[str, Array] | None:
    """Return inputs to measure with; None where a size is not known."""
    rng = np.random.default_rng(0)
    inputs: dict[str, Array] = {}
    for name, port in executable.inputs.items():
        if port.sizes is None or port.dtype == object:
            return None
        if port.element_type.is_float:
            inputs[name] = rng.standard_normal(port.sizes).astype(port.dtype)
        else:
            inputs[name] = np.zeros(port.sizes, port.dtype)
    return inputs


def measure(*executables: ExecutableNetwork) -> list[float] | None:
    """Return the least milliseconds of an inference on each; None where one cannot be measured.

    They infer by turns, so that what disturbs one for a while, or passes with time, disturbs all.
    """
    every = [(each.create_infer_request(), random_inputs(each)) for each in executables]
    pairs = [(request, inputs) for request, inputs in every if inputs is not None]
    if len(pairs) < len(every):
        return None
    best = [float("inf")] * len(pairs)
    try:
        for request, inputs in pairs:
            request.infer(inputs)
        end = time.perf_counter() + SECONDS * len(pairs)
        for _ in range(RUNS):
            for number, (request, inputs) in enumerate(pairs):
                begin = time.perf_counter()
                request.infer(inputs)
                best[number] = min(best[number], time.perf_counter() - begin)
            if time.perf_counter() > end:
                break
    except PolydeviceError:
        return None  # random inputs are not for this network
    return [seconds * 1e3 for seconds in best]


def compare(
    incumbent: ExecutableNetwork, challenger: ExecutableNetwork
) -> tuple[list[float] | None, bool]:
    """Return the least milliseconds of both, and whether the second is to take the first's place.

    A lead is measured again before it counts: on two cores with twenty busy programs a network of
    9 ms took 40 in the best of 14 turns, and one of 24 ms took 33.
    """
    best: list[float] | None = None
    for _ in range(CONFIRMED):
        taken = measure(incumbent, challenger)
        if taken is None:
            return best, False
        best = taken if best is None else [min(pair) for pair in zip(best, taken, strict=True)]
        if best[1] >= GAIN * best[0]:
            return best, False
    return best, True


def estimate(
    subgraphs: Sequence[Subgraph],
    candidates: Callable[[Subgraph], Sequence[str]],
    load: Callable[[Network, str], ExecutableNetwork],
) -> list[Estimate]:
    """Measure every part on every member that may run it.

    Args:
        subgraphs: the default cut.
        candidates: returns the members that run a part, that of the default first.
        load: loads a part on a member.
    """
    found: list[Estimate] = []
    for number, part in enumerate(subgraphs):
        times: dict[str, float] = {}
        for member in candidates(part):
            try:
                executable = load(part.network.clone(), member)
            except PolydeviceError:
                continue  # the default loads it again, and says why it cannot
            try:
                taken = measure(executable)
            finally:
                executable.close()
            if taken is not None:
                (times[member],) = taken
        ports = [*part.sources.values(), *part.targets.values()]
        crossing = sum(bytes_of(port.desc) or 0 for port in ports)
        found.append(Estimate(number, times, crossing))
    return found


def choose(
    subgraphs: Sequence[Subgraph],
    placed: dict[Node, Assignment],
    estimates: Sequence[Estimate],
) -> dict[Node, Assignment]:
    """Return the placement with every part on the member that takes least.

    A part stays where nothing is known, or where little is gained.
    """
    made = dict(placed)
    for part, found in zip(subgraphs, estimates, strict=True):
        own = found.milliseconds.get(part.device)
        if own is None:
            why = "COST measured nothing: sizes are not known, or random inputs are not for it"
            made.update(
                {n: replace(placed[n], reason=f"{placed[n].reason}; {why}") for n in part.nodes}
            )
            continue
        best = min(found.milliseconds, key=lambda member: found.milliseconds[member])
        device = best if found.milliseconds[best] < GAIN * own else part.device
        for node in part.nodes:
            reason = f"{found.describe()}; {placed[node].reason}"
            made[node] = Assignment(device, reason)
    return made
