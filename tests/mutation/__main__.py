"""The command behind scripts/mutate."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
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
    faults: list[Fault] = []
    for area, share in SHARES.items():
        files = sorted((ROOT / area).rglob("*.py"))
        places = [f for path in files for f in faults_of(ROOT, path.relative_to(ROOT))]
        faults += picker.sample(places, max(1, round(number * share / sum(SHARES.values()))))
    return faults


def try_all(faults: list[Fault], covering: Covering, jobs: int) -> list[Outcome]:
    """Try every fault, several at a time, and print each outcome as it is known."""
    free: SimpleQueue[Workspace] = SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="polydevice-mutation-") as folder:
        for number in range(jobs):
            free.put(Workspace(ROOT, Path(folder) / str(number)))

        def one(fault: Fault, tests: list[str]) -> Outcome:
            workspace = free.get()
            try:
                outcome = workspace.try_fault(fault, tests)
            finally:
                free.put(workspace)
            word = "caught " if outcome.caught else "SLIPPED"
            print(f"{word} {fault}\n        {outcome.tests} tests: {outcome.by}", flush=True)
            return outcome

        tests = [covering.tests_of(fault) for fault in faults]
        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(one, faults, tests))


def main() -> int:
    """Put faults into copies of the sources, one at a time, and see which ones no test notices."""
    parser = argparse.ArgumentParser(prog="scripts/mutate", description=main.__doc__)
    parser.add_argument("--number", type=int, default=60, help="of faults (default: 60)")
    parser.add_argument("--seed", type=int, default=1, help="that chooses them (default: 1)")
    parser.add_argument("--jobs", type=int, default=2, help="faults at a time (default: 2)")
    parser.add_argument("--list", action="store_true", help="show the faults, try none")
    parser.add_argument(
        "--coverage",
        type=Path,
        default=ROOT / ".cache" / "mutation" / "coverage",
        help="which test runs what; recorded first where the file is missing",
    )
    asked = parser.parse_args()
    faults = chosen(asked.number, asked.seed)
    if asked.list:
        print(*faults, sep="\n")
        return 0
    if not asked.coverage.exists():
        record(ROOT, asked.coverage)
    outcomes = try_all(faults, Covering(asked.coverage), asked.jobs)
    slipped = [o for o in outcomes if not o.caught]
    print(f"\n{len(outcomes) - len(slipped)} of {len(outcomes)} faults caught; seed {asked.seed}")
    for outcome in slipped:
        print(f"    {outcome.fault}  ({outcome.by})")
    return 1 if slipped else 0


if __name__ == "__main__":
    sys.exit(main())
