"""Tuner: looks choices up in a tuning file, and finds those that are not there by timing."""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from polydevice.errors import OptionValueError
from polydevice.tuning import TunedLayer, report
from polydevice.tuning.journal import Journal
from polydevice_gpu import cl
from polydevice_gpu.cl.discovery.facts import DeviceFacts
from polydevice_gpu.graph import GpuGraph, GpuNode
from polydevice_gpu.kernels.kernel import Choice
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.options import GpuOptions
from polydevice_gpu.tuning.candidate_runner import CandidateRunner, Outcome, agrees
from polydevice_gpu.tuning.candidates import candidates, find_choice, has_several, reference
from polydevice_gpu.tuning.check import time_in_turn
from polydevice_gpu.tuning.layer_key import LayerKey, layer_key
from polydevice_gpu.tuning.lookups import Lookups
from polydevice_gpu.tuning.pretuned import pretuned
from polydevice_gpu.tuning.tuning_file import Entry, Parts, TuningFile, parts_of

T = TypeVar("T")

_LOST = 86
"""Exit status of a process that lost its device."""

_ROUNDS = 3
"""So often the winner and the choice without tuning are timed again, in turn."""

_PATIENCE = 5.0
"""A candidate that takes so many times the shortest time in its first run has lost."""


class TuningMode(enum.Enum):
    """What a tuner does: which of looking up, timing unknown layers, and writing."""

    USE_EXISTING = "TUNING_USE_EXISTING"
    CREATE = "TUNING_CREATE"
    UPDATE = "TUNING_UPDATE"
    RETUNE = "TUNING_RETUNE"
    CHECK = "TUNING_CHECK"

    @property
    def times(self) -> bool:
        """Whether layers are timed."""
        return self in {TuningMode.CREATE, TuningMode.RETUNE}


class Tuner:
    """Changes the choices of a graph's nodes.

    Attributes:
        applied: the choices that were made, by (kind, text), for an exported network.
        exported: choices that count before the file's: those of an exported network.
    """

    def __init__(
        self,
        mode: TuningMode,
        file: TuningFile,
        budget_s: float = 0,
        shipped: TuningFile | None = None,
    ) -> None:
        """Use a file.

        Args:
            mode: what to do.
            file: the choices.
            budget_s: seconds after which no further layer is timed; 0 for no limit.
            shipped: choices for layers that the file does not have; see `pretuned`.
        """
        self.mode = mode
        self.file = file
        self.shipped = shipped
        self.applied: dict[tuple[str, str], Entry] = {}
        self.exported: dict[tuple[str, str], Entry] = {}
        self._ends = time.monotonic() + budget_s if budget_s else float("inf")
        self._journal = Journal.of_environment()

    @classmethod
    def open(cls, options: GpuOptions, facts: DeviceFacts) -> Tuner | None:
        """Return the tuner of a configuration; None when it would have nothing to choose from.

        Raises:
            OptionValueError: TUNING_FILE is not set, missing, or no tuning file.
        """
        mode, path, budget_s = options.tuning_mode, options.tuning_file, options.tuning_budget_s
        looks_up = mode in {"TUNING_DISABLED", "TUNING_USE_EXISTING"}
        shipped = pretuned(facts) if looks_up and options.tuning_pretuned else None
        if mode == "TUNING_DISABLED":
            if shipped is None:
                return None
            return cls(TuningMode.USE_EXISTING, TuningFile(None), shipped=shipped)
        kind = TuningMode(mode)
        if not path:
            raise OptionValueError(f"TUNING_MODE={mode} needs TUNING_FILE; give a path")
        file = TuningFile.open(Path(path), must_exist=not kind.times)
        return cls(kind, file, budget_s, shipped)

    def tune(
        self, graph: GpuGraph, target: Target, device: cl.Device, builder: cl.ProgramBuilder
    ) -> None:
        """Choose kernels for the nodes that can be tuned."""
        layers = [
            (node, key)
            for node in graph.nodes
            if (key := layer_key(node, device.facts.name)) is not None
            and (not self.mode.times or has_several(node, target))
        ]
        units = device.facts.max_compute_units
        done: set[LayerKey] = set()
        for number, (node, key) in enumerate(layers, 1):
            name = f"{key.kind};{key.text}"
            if self.mode is TuningMode.CHECK:
                if key not in done and name not in self._journal.done:
                    found = self._check(node, key, name, target, device, builder)
                    self._report(name, TunedLayer(node.name, number, len(layers), **found))
                done.add(key)
                continue
            again = (
                self.mode is TuningMode.RETUNE
                and key not in done
                and name not in self._journal.done
            )
            done.add(key)
            if not again and self._look_up(node, key, units, target):
                continue
            if not self.mode.times:
                continue
            if time.monotonic() > self._ends:
                late = TunedLayer(node.name, number, len(layers), skipped="the time is over")
                self._report(name, late)
                continue
            runner = CandidateRunner(node, target, device, builder)
            tuned = TunedLayer(
                node.name, number, len(layers), **self._time(node, name, target, runner, device)
            )
            self._keep(node, key)
            assert node.choice is not None
            kept = node.choice.kernel.name, node.choice.mode
            self.file.store(units, key, kept, tuned.best_ns)
            self._report(name, tuned)

    def lookups(self, graph: GpuGraph, device: cl.Device, before: Lookups | None = None) -> Lookups:
        """Return which layers of a plan with formulas it may know; `before` if that is the same."""
        units = device.facts.max_compute_units
        known = [file.parts(units) for file in self._files]
        if self.exported:
            known.append(self._exported_parts)
        return before if before is not None and before.known == known else Lookups(graph, known)

    def has_others(self, nodes: Iterable[GpuNode], device: cl.Device) -> bool:
        """Whether it knows a choice for a node that has none of its choices yet."""
        units, name = device.facts.max_compute_units, device.facts.name
        for node in nodes:
            key = layer_key(node, name)
            if key is None or (node.choice is not None and node.choice.tuned):
                continue
            if (key.kind, key.text) in self.exported or any(
                file.find(units, key) for file in self._files
            ):
                return True
        return False

    @functools.cached_property
    def _exported_parts(self) -> Parts:
        return parts_of(self.exported)  # which are there before the first plan

    @property
    def _files(self) -> list[TuningFile]:
        return [file for file in (self.file, self.shipped) if file and not file.is_empty]

    def _report(self, name: str, layer: TunedLayer) -> None:
        report(layer)
        self._journal.tuned(name, layer)

    def _check(
        self,
        node: GpuNode,
        key: LayerKey,
        name: str,
        target: Target,
        device: cl.Device,
        builder: cl.ProgramBuilder,
    ) -> dict[str, Any]:
        """Drop the file's choice where it is that without tuning, or is not faster."""
        units, default = device.facts.max_compute_units, node.choice
        assert default is not None
        entry = self.file.find(units, key)
        if entry is None:
            return {"skipped": "the file does not have it"}
        choice, before, after, faster = find_choice(node, *entry, target), 0, 0, False
        if choice is not None and str(choice) != str(default):
            runner = CandidateRunner(node, target, device, builder)

            def run(way: Choice) -> Outcome | None:
                return self._run(f"{name}|{way} checked", device, lambda: runner.run(way))

            before, after, faster = time_in_turn(default, choice, run)
        self.file.store(units, key, entry if faster else None, after if faster else 0)
        return {
            "candidates": 2,
            "rejected": int(not faster),
            "default": str(default),
            "default_ns": before,
            "best": str(choice if faster else default),
            "best_ns": after if faster else before,
        }

    def _look_up(self, node: GpuNode, key: LayerKey, units: int, target: Target) -> bool:
        """Take the file's choice; False when there is none that can run the node."""
        entry = self.exported.get((key.kind, key.text)) or self.file.find(units, key)
        choice = find_choice(node, *entry, target) if entry is not None else None
        if self.mode is TuningMode.UPDATE and entry is not None:
            self.file.store(units, key, entry if choice is not None else None)
        how = "tuning"
        if choice is None and self.shipped is not None:
            entry, how = self.shipped.find(units, key), "the pretuned file"
            choice = find_choice(node, *entry, target) if entry is not None else None
        if choice is None:
            return False
        node.choice = choice
        self._keep(node, key, how)
        return True

    def _keep(self, node: GpuNode, key: LayerKey, how: str = "tuning") -> None:
        assert node.choice is not None
        node.choice = dataclasses.replace(node.choice, tuned=how)
        self.applied[key.kind, key.text] = (node.choice.kernel.name, node.choice.mode)

    def _time(
        self, node: GpuNode, name: str, target: Target, runner: CandidateRunner, device: cl.Device
    ) -> dict[str, Any]:
        """Give the node its fastest choice; the one it has counts, whatever it computes."""
        default = node.choice
        assert default is not None
        all_ = candidates(node, target)

        def run(choice: Choice, purpose: str = "", **how: Any) -> Outcome | None:
            return self._run(f"{name}|{choice}{purpose}", device, lambda: runner.run(choice, **how))

        self._run(f"{name}|build", device, lambda: runner.build([reference(node, target), *all_]))
        right = run(reference(node, target), " as reference", timed=False)
        own = run(default)
        best, shortest = default, own.time_ns if own is not None else 0
        rejected = 0
        for choice in all_[1:]:
            patience = _PATIENCE * shortest if own is not None else math.inf
            outcome = run(choice, patience_ns=patience)
            if outcome is None or not _is_right(outcome, right):
                rejected += 1
            elif own is None or outcome.time_ns < shortest:
                best, shortest, own = choice, outcome.time_ns, own or outcome
        if best is not default and own is not None:
            pairs = [(run(default), run(best)) for _ in range(_ROUNDS)]
            times = [(a.time_ns, b.time_ns) for a, b in pairs if a is not None and b is not None]
            if times and median(b for _, b in times) >= median(a for a, _ in times):
                best, shortest = default, own.time_ns
        node.choice = best
        return {
            "candidates": len(all_),
            "rejected": rejected,
            "default": str(default),
            "default_ns": own.time_ns if own is not None else 0,
            "best": str(best),
            "best_ns": shortest,
        }

    def _run(self, name: str, device: cl.Device, do: Callable[[], T]) -> T | None:
        """Do something that may end the process; what did so before is left out."""
        if name in self._journal.lost:
            return None
        if self._journal.path is None:
            return do()
        with self._journal.step(name):
            result = do()
            if not device.is_usable:
                # Not noted as ended: as good as a crash, and the process has no device any more.
                os._exit(_LOST)
        return result


def _is_right(outcome: Outcome, right: Outcome | None) -> bool:
    return right is not None and all(
        agrees(own, other) for own, other in zip(outcome.outputs, right.outputs, strict=True)
    )
