"""The command behind scripts/mutate."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.mutation.covering import Covering, record
from tests.mutation.faults import Fault, faults_of
from tests.mutation.trial import Outcome, Workspace

ROOT = Path(__file__).resolve().parents[2]
# How many of sixty faults each area gets, more or less.
SHARES = {
    "core": 22,
    "plugins/auto": 4,
    "plugins/cpu": 12,
    "plugins/gpu": 15,
    "plugins/hetero": 7,
}


def chosen(number: int, seed: int) -> list[Fault]:
    """Return that many faults of all areas, the same for the same seed and sources."""
    picker = random.Random(seed)
    whole = sum(SHARES.values())
    faults: list[Fault] = []
    for area, share in SHARES.items():
        faults += picker.sample(_faults_in(area), max(1, round(number * share / whole)))
    return faults


def chosen_in(place: str, number: int, seed: int) -> list[Fault]:
    """Return that many faults of one folder or file, or all that it can have."""
    places = _faults_in(place)
    return random.Random(seed).sample(places, min(number, len(places)))


def _faults_in(place: str) -> list[Fault]:
    path = ROOT / place
    files = [path] if path.is_file() else sorted(path.rglob("*.py"))
    return [fault for file in files for fault in faults_of(ROOT, file.relative_to(ROOT))]


def try_all(
    faults: list[Fault], tests_of: Callable[[Fault], Sequence[str]], jobs: int
) -> list[Outcome]:
    """Try every fault, several at a time, and print each outcome as it is known."""
    free: SimpleQueue[Workspace] = SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="polydevice-mutation-") as folder:
        for number in range(jobs):
            free.put(Workspace(ROOT, Path(folder) / str(number)))

        def one(fault: Fault, tests: Sequence[str]) -> Outcome:
            workspace = free.get()
            try:
                outcome = workspace.try_fault(fault, tests)
            finally:
                free.put(workspace)
            word = "caught " if outcome.caught else "SLIPPED"
            print(f"{word} {fault}\n        {outcome.tests} tests: {outcome.by}", flush=True)
            return outcome

        tests = [tests_of(fault) for fault in faults]
        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(one, faults, tests))


def main() -> int:
    """Put faults into copies of the sources, one at a time, and see which ones no test notices."""
    parser = argparse.ArgumentParser(prog="scripts/mutate", description=main.__doc__)
    parser.add_argument("--number", type=int, default=60, help="of faults (default: 60)")
    parser.add_argument("--seed", type=int, default=1, help="that chooses them (default: 1)")
    parser.add_argument("--jobs", type=int, default=2, help="faults at a time (default: 2)")
    parser.add_argument("--only", metavar="PATH", help="faults in this folder or file")
    parser.add_argument(
        "--tests",
        nargs="+",
        metavar="TEST",
        help="run these for every fault, instead of those that run its line",
    )
    parser.add_argument("--list", action="store_true", help="show the faults, try none")
    parser.add_argument(
        "--coverage",
        type=Path,
        default=ROOT / ".cache" / "mutation" / "coverage",
        help="which test runs what; recorded first where the file is missing",
    )
    asked = parser.parse_args()
    number, seed = asked.number, asked.seed
    faults = chosen_in(asked.only, number, seed) if asked.only else chosen(number, seed)
    if asked.list:
        print(*faults, sep="\n")
        return 0
    if asked.tests:
        outcomes = try_all(faults, lambda _: asked.tests, asked.jobs)
    else:
        if not asked.coverage.exists():
            record(ROOT, asked.coverage)
        outcomes = try_all(faults, Covering(asked.coverage).tests_of, asked.jobs)
    slipped = [o for o in outcomes if not o.caught]
    print(f"\n{len(outcomes) - len(slipped)} of {len(outcomes)} faults caught; seed {asked.seed}")
    for outcome in slipped:
        print(f"    {outcome.fault}  ({outcome.by})")
    return 1 if slipped else 0


if __name__ == "__main__":
    sys.exit(main())
