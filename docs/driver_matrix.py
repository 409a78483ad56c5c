"""Writes docs/drivers.md: what was run on which OpenCL driver, and what was found there.

    polydevice doctor --json | python docs/driver_matrix.py NAME "what was run" RESULT

keeps what doctor says about GPU.0 as docs/drivers/NAME.json, from which ``scripts/docs`` writes.
Load a network on the device first: doctor does not wait for probes that take long.
RESULT is the file that pytest wrote with ``--junitxml``, or words.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from defusedxml import ElementTree

RECORDS = Path(__file__).parent / "drivers"

INTRODUCTION = """\
# OpenCL drivers: what was run, what they get wrong

<!-- Written by scripts/docs from docs/drivers/ and the code; edit those instead. -->

polydevice asks a driver what it can do and believes what a small kernel computed, not what the
driver claims. `polydevice doctor` shows those answers and the known troubles of the drivers at
hand; this page has all that were tried. Drivers that are not here work as far as their probes say.

## What was run
"""

TROUBLES_HEADING = """\
## What they get wrong

Found by running them. polydevice lives with all of it by itself unless the last column says what a
user can do.
"""

ANSWERS_HEADING = """\
## What each driver can do

The answers of the probes, one column a record above; what they mean is in
[opencl](opencl.md#how-devices-are-found). `docs/driver_matrix.py` keeps a new record.
"""


def drivers() -> str:
    """Return the page."""
    from polydevice_gpu.cl.capabilities import ProbedCapabilities
    from polydevice_gpu.cl.discovery.troubles import TROUBLES

    records = [json.loads(path.read_text()) for path in sorted(RECORDS.glob("*.json"))]
    runs = [[r["driver"], r["device"], r["run"], r["result"]] for r in records]
    wrong = [[t.driver, f"It {t.wrong}.", f"It {t.answer}.", t.fix] for t in TROUBLES]
    probed = [record for record in records if record["probes"]]
    names = [each.name for each in fields(ProbedCapabilities)]
    rows = [[f"`{name}`", *(r["probes"].get(name, "not asked") for r in probed)] for name in names]
    return "\n".join(
        [
            INTRODUCTION,
            *table(["driver", "device", "what was run", "result"], runs),
            "",
            TROUBLES_HEADING,
            *table(["driver", "what it does", "what polydevice does", "what a user can do"], wrong),
            "",
            ANSWERS_HEADING,
            *table(["probe", *(r["driver"] for r in probed)], rows),
            "",
        ]
    )


def table(headings: list[str], rows: list[list[str]]) -> list[str]:
    """Return the lines of a table."""
    lines = [headings, ["---"] * len(headings), *rows]
    return [f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines]


def counts(report: Path) -> str:
    """Return how many tests passed and failed, from a file in JUnit's form."""
    totals = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    for suite in ElementTree.parse(report).getroot().iter("testsuite"):
        for key in totals:
            totals[key] += int(suite.get(key, 0))
    failed = totals["failures"] + totals["errors"]
    passed = totals["tests"] - failed - totals["skipped"]
    return f"{passed:,} passed, {failed:,} failed"


def record(name: str, run: str, result: str, said: dict[str, Any]) -> None:
    """Keep what doctor says about GPU.0."""
    (section,) = [s for s in said["sections"] if s["title"].startswith("GPU.0: ")]
    title = re.fullmatch(r"GPU\.0: (.*), (.*), driver (.*)", section["title"])
    assert title is not None, section["title"]
    assert not any("," in line["subject"] for line in section["lines"]), "not all probes answered"
    device, platform, version = title.groups()
    platform = platform.replace("Portable Computing Language", "PoCL")
    content = {
        "driver": version if platform in version else f"{platform} {version}",
        "device": device,
        "run": run,
        "result": counts(Path(result)) if result.endswith(".xml") else result,
        "probes": {line["subject"]: line["answer"] for line in section["lines"]},
    }
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    (RECORDS / f"{name}.json").write_text(text)


if __name__ == "__main__":
    record(*sys.argv[1:4], json.load(sys.stdin))
