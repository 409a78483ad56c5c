"""A campaign: cases and mutants in turn for some minutes, and the report of what they did."""

# ruff: noqa: T201 - a command that prints its totals

from __future__ import annotations

import collections
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import onnx

from polydevice import Core
from tests.fuzz import coverage, files, jobs, mutants, reduce
from tests.fuzz.check import MISTAKE, PASSED, UNSUPPORTED, Outcome
from tests.fuzz.generate import Case
from tests.fuzz.worker import Batch, Done, Limits, Single, Workplace

MUTANT_LIMITS = Limits(cpu_s=20)
BATCH = {"models": 20, "onnx-mutants": 200, "ir-mutants": 200}


@dataclass(frozen=True)
class Plan:
    """What to run; the fields are the command's options."""

    minutes: float
    seed: int
    classes: tuple[str, ...] = ()
    devices: tuple[str, ...] = ("CPU",)
    save: Path | None = None
    start: int = 0
    count: int | None = None

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of job that were asked for; all of them when no class was."""
        asked = tuple(c for c in self.classes if c in BATCH)
        return asked or (("models",) if self.classes else tuple(BATCH))

    @property
    def generators(self) -> tuple[str, ...]:
        return tuple(c for c in self.classes if c not in BATCH)

    def batches(self, kind: str) -> Iterator[Batch]:
        """Yield batches; devices take turns. Mutants run where no kernels are compiled."""
        end = None if self.count is None else self.start + self.count
        for turn, start in enumerate(itertools.count(self.start, BATCH[kind])):
            if end is not None and start >= end:
                return
            device = self.devices[turn % len(self.devices)]
            if kind != "models" and "CPU" in self.devices:
                device = "CPU"
            count = BATCH[kind] if end is None else min(BATCH[kind], end - start)
            yield Batch(kind, self.seed, start, count, device, self.generators)


@dataclass
class Failure:
    """One failure: which number of which batch, and what happened."""

    batch: Batch
    number: int
    outcome: Outcome
    saved: Path | None = None


@dataclass
class Campaign:
    """Runs a plan and keeps count."""

    plan: Plan
    tried: collections.Counter[str] = field(default_factory=collections.Counter)
    kinds: collections.Counter[tuple[str, str]] = field(default_factory=collections.Counter)
    operators: collections.Counter[tuple[str, str, int]] = field(
        default_factory=collections.Counter
    )
    failures: list[Failure] = field(default_factory=list)
    _reducer: Workplace = field(default_factory=lambda: Workplace(MUTANT_LIMITS))

    def run(self) -> None:
        """Run until the time is over or the counts are reached."""
        plan = self.plan
        print(f"seed {plan.seed}; {', '.join(plan.kinds)} on {', '.join(plan.devices)}", flush=True)
        end = time.monotonic() + plan.minutes * 60
        queues = {kind: plan.batches(kind) for kind in plan.kinds}
        with Workplace() as cases, Workplace(MUTANT_LIMITS) as damaged, self._reducer:
            while queues and time.monotonic() < end:
                for kind in list(queues):
                    batch = next(queues[kind], None)
                    if batch is None:
                        del queues[kind]
                        continue
                    for done in (cases if kind == "models" else damaged).run(batch):
                        self._note(batch, done)
                        if time.monotonic() > end:
                            break

    @property
    def mistakes(self) -> list[Failure]:
        """Failures of the fuzzer, not of a device."""
        return [failure for failure in self.failures if failure.outcome.kind == MISTAKE]

    def _note(self, batch: Batch, done: Done) -> None:
        self.tried[f"{batch.kind} on {batch.device}"] += 1
        self.operators.update(done.operators)
        outcome = done.outcome
        said = outcome.detail if outcome.kind == PASSED else ""
        if outcome.kind == UNSUPPORTED:
            said = outcome.signature.partition(": ")[2]
        self.kinds[batch.kind, f"{outcome.kind} {said}".strip()] += 1
        if outcome.failed:
            same = [f for f in self.failures if f.batch.device == batch.device and
                    f.outcome.signature == outcome.signature]  # fmt: skip
            failure = Failure(batch, done.number, outcome)
            self.failures.append(failure)
            print(f"{batch.kind} {done.number} on {batch.device}: {outcome.kind}: "
                  f"{outcome.detail[:300]}", flush=True)  # fmt: skip
            if self.plan.save and len(same) < 3 and outcome.kind != MISTAKE:
                failure.saved = self._save(failure, self.plan.save)
                print(f"  reduced: {failure.saved}", flush=True)

    def _save(self, failure: Failure, folder: Path) -> Path:
        batch, device = failure.batch, failure.batch.device
        name = f"{batch.kind}-{batch.seed}-{failure.number}-{device.replace(':', '_')}"
        if batch.kind == "models":
            return self._save_case(failure, folder / name)
        core = Core()
        sound = mutants.base(batch.seed, batch.kind, failure.number, core)
        bad = jobs.files_of(batch, failure.number, core)
        assert sound and bad
        small = reduce.reduce_files(
            sound, bad, lambda f: self._reducer.one(Single(batch.kind, f, device)).failed
        )
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}{'.onnx' if batch.kind == 'onnx-mutants' else '.xml'}"
        path.write_bytes(small[0])
        if batch.kind == "ir-mutants":
            path.with_suffix(".bin").write_bytes(small[1])
        return path

    def _save_case(self, failure: Failure, stem: Path) -> Path:
        case = jobs.case_of(failure.batch, failure.number)
        device, signature = failure.batch.device, failure.outcome.signature

        def fails(model: onnx.ModelProto, feeds: list) -> bool:
            single = Single("models", (model.SerializeToString(), feeds), device)
            return self._reducer.one(single).signature == signature

        small = case
        if fails(case.model, case.feeds):
            small = reduce.reduce_case(case, fails)
        files.save(Case(small.model, small.feeds, [], {}), stem)
        ops = [node.op_type for node in small.model.graph.node]
        print(f"  {' '.join(ops)}; scripts/fuzz --device {device} --case {stem}.onnx", flush=True)
        return stem.with_suffix(".onnx")

    def report(self, operators: bool = False) -> None:
        """Print what was tried, what failed, and which operators were reached."""
        print(f"\nseed {self.plan.seed}")
        for name, count in sorted(self.tried.items()):
            print(f"{count:8} {name}")
        for (kind, outcome), count in sorted(self.kinds.items()):
            print(f"{count:8} {kind}: {outcome}")
        if self.operators:
            print(coverage.summary(self.operators, every=operators))
        groups: dict[tuple[str, str], list[Failure]] = {}
        for failure in self.failures:
            groups.setdefault((failure.batch.device, failure.outcome.signature), []).append(failure)
        for (device, signature), members in sorted(groups.items(), key=lambda g: -len(g[1])):
            numbers = ", ".join(f"{f.batch.kind} {f.number}" for f in members[:4])
            print(f"{len(members):8} failed on {device}: {signature} ({numbers})")
        if not self.failures:
            print("Nothing failed")

    @staticmethod
    def repeat(path: Path, devices: tuple[str, ...]) -> int:
        """Run a saved case or mutant on devices and print the outcomes; 1 when one failed."""
        failed = False
        for device in devices:
            with Workplace() as place:
                if path.suffix == ".xml":
                    content = path.read_bytes(), path.with_suffix(".bin").read_bytes()
                    outcome = place.one(Single("ir-mutants", content, device))
                elif path.with_suffix(".npz").exists():
                    case = files.load(path)
                    content = case.model.SerializeToString(), case.feeds
                    outcome = place.one(Single("models", content, device))
                else:
                    outcome = place.one(Single("onnx-mutants", (path.read_bytes(), b""), device))
            print(f"{device}: {outcome.kind}: {outcome.detail}")
            failed |= outcome.failed
        return int(failed)
