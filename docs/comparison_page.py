"""The page of comparisons with other runtimes, from the figures that benchmarks wrote."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MEASURED = Path(__file__).with_name("measured")

HEAD = """\
# Beside other runtimes

<!-- Written by scripts/docs from docs/measured; measure anew instead of editing. -->

Every figure here was measured by a program of this repository, which checks the answers before it
times anything and times all runtimes in turn, in one process. On a machine with nothing else to do
this measures them anew and writes this page:

```bash
python benchmarks/cpu.py --precisions f32,bf16 --json docs/measured/cpu.json
python benchmarks/overhead.py --json docs/measured/overhead.json
scripts/docs
```

Continuous integration has no quiet machine: it writes the page from the figures that are kept and
refuses one that says something else. GPUs, and PyTorch and tinygrad beside us there, are on the
page about [performance](performance.md). What programs of other runtimes find here is in
[coming from](coming-from.md), what of ONNX runs on which device in [conformance](conformance.md).
"""

CPU = """
## Models on CPU

{title}.

Milliseconds per inference of one request with one thread in f32, and what our time is of the faster
peer's, also with two threads, and in bf16 with one (there of OpenVINO's). Below 1 we are faster;
empty: the peer does not read the file, or has no such mode.

| model | polydevice | OpenVINO | ONNX Runtime | ratio | 2 threads | bf16 |
|---|---|---|---|---|---|---|
"""

CALL = """
## One call in Python

{title}.

Microseconds per call of a network that adds two vectors of four numbers, which takes next to no
time: what is left is the runtime's own.

| | polydevice | ONNX Runtime | OpenVINO |
|---|---|---|---|
"""

PEERS = ("polydevice", "openvino", "onnxruntime")


def comparison() -> str:
    """Return the page."""
    return HEAD + _cpu(measured("cpu")) + _call(measured("overhead"))


def measured(name: str) -> Any:
    """Return what a benchmark wrote."""
    return json.loads((MEASURED / f"{name}.json").read_text(encoding="utf-8"))


def ratios(rows: Sequence[Any], threads: int, precision: str) -> dict[str, float]:
    """Return model → our time over the faster peer's."""
    return {
        row["model"]: row["ratio"]
        for row in rows
        if (row["threads"], row["type"]) == (threads, precision) and "ratio" in row
    }


def mean(found: dict[str, float]) -> float:
    """Return the geometric mean."""
    return math.exp(sum(map(math.log, found.values())) / len(found))


def _cpu(found: Any) -> str:
    rows, lines = found["rows"], []
    columns = {
        "one thread": ratios(rows, 1, "f32"),
        "two threads": ratios(rows, 2, "f32"),
        "bf16": ratios(rows, 1, "bf16"),
    }
    for row in rows:
        if (row["threads"], row["type"]) == (1, "f32") and "ms" in row:
            times = [_cell(row["ms"].get(name), 3) for name in PEERS]
            shares = [column.get(row["model"]) for column in columns.values()]
            parts = ["" if ratio is None else f"{ratio:.2f}" for ratio in shares]
            lines.append(f"| {row['model']} | {' | '.join([*times, *parts])} |\n")
    means = ", ".join(
        f"{mean(column):.2f} ({what}, {len(column)} models)" for what, column in columns.items()
    )
    return CPU.format(title=found["title"]) + "".join(lines) + f"\nGeometric means: {means}.\n"


def _call(found: Any) -> str:
    lines = []
    for key, text in (("prepared", "inputs in place"), ("dict", "a dictionary of arrays")):
        names = ("polydevice", "onnxruntime", "openvino")
        cells = [_cell(found["us"].get(f"{name}, {key}"), 2) for name in names]
        lines.append(f"| {text} | {' | '.join(cells)} |\n")
    return CALL.format(title=found["title"]) + "".join(lines)


def _cell(value: float | None, digits: int) -> str:
    """Write a number with so many digits that count, two decimals at most; nothing for None."""
    if value is None:
        return ""
    decimals = digits - 1 - math.floor(math.log10(value))
    return f"{value:.{min(max(decimals, 0), 2)}f}"
