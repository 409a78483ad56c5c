"""The command behind scripts/fuzz."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
from pathlib import Path

from tests.fuzz.campaign import Campaign, Plan

FOUND = 3
"""Exit status when devices failed; a defect of the fuzzer's own ends it with 1."""

CLASSES = (
    "models, onnx-mutants, ir-mutants, or beginnings of generators' names, such as patterns or "
    "spatial.pooling"
)
DEVICES = "CPU,GPU,HETERO:GPU,CPU"


def devices(text: str) -> tuple[str, ...]:
    """Split a comma list, in which HETERO:… with its own commas stands last."""
    plain, mark, members = text.partition("HETERO:")
    names = [name for name in plain.split(",") if name]
    return (*names, f"HETERO:{members}") if mark else tuple(names)


def main() -> int:
    """Fuzz for some minutes; exit status 3: something was found, 1: the fuzzer itself failed."""
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=main.__doc__)
    parser.add_argument("--minutes", type=float, default=2, help="how long (default: 2)")
    parser.add_argument("--seed", type=int, default=None, help="of everything (default: a new one)")
    parser.add_argument("--classes", default="", help=CLASSES)
    parser.add_argument("--device", default=DEVICES, help=f"comma list (default: {DEVICES})")
    parser.add_argument("--save", type=Path, default=None, help="folder for reduced failures")
    parser.add_argument(
        "--start", type=int, default=0, help="number of the first case (default: 0)"
    )
    parser.add_argument("--count", type=int, default=None, help="cases of each kind at most")
    parser.add_argument("--case", type=Path, default=None, help="run one saved case and say why")
    parser.add_argument("--operators", action="store_true", help="list operators never reached")
    asked = parser.parse_args()
    os.environ.setdefault("POLYDEVICE_GPU_DEVICES", "all-gpus,cpu")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if asked.case:
        return Campaign.repeat(asked.case, devices(asked.device))
    plan = Plan(
        minutes=asked.minutes,
        seed=secrets.randbits(32) if asked.seed is None else asked.seed,
        classes=tuple(c for c in asked.classes.split(",") if c),
        devices=devices(asked.device),
        save=asked.save,
        start=asked.start,
        count=asked.count,
    )
    campaign = Campaign(plan)
    campaign.run()
    campaign.report(operators=asked.operators)
    if not campaign.tried.total() or campaign.mistakes:
        return 1
    return FOUND if campaign.failures else 0


if __name__ == "__main__":
    sys.exit(main())
