"""Reports: the closing lines, counters as a table, CSV and JSON files."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from polydevice.benchmark.measure import Statistics, nearest_rank

Counters = Mapping[str, Mapping[str, Any]]


def closing_lines(statistics: Statistics, percent: int, with_latency: bool = True) -> list[str]:
    """Return benchmark_app's last lines: count, duration, latency, throughput."""
    lines = [
        f"{'Count:':<12}{statistics.iterations} iterations",
        f"{'Duration:':<12}{statistics.duration_ms:.2f} ms",
    ]
    if with_latency:
        name = "Latency:" if percent == 50 else f"Latency ({percent} percentile):"
        lines.append(f"{name:<12}{' ' * (percent != 50)}{statistics.percentile(percent):.2f} ms")
        points = "  ".join(f"p{p} {statistics.percentile(p):.2f}" for p in (50, 90, 99))
        lines.append(f"{'':<12}{points} ms")
    lines.append(f"{'Throughput:':<12}{statistics.throughput:.2f} FPS")
    return lines


def lines_by_shape(statistics: Statistics, shapes: Sequence[str], percent: int) -> list[str]:
    """Return the latencies of inferences with each set of inputs that ran, by their shapes.

    Args:
        statistics: what was measured.
        shapes: of each set of inputs; sets of the same shapes count together.
        percent: the percentile.
    """
    together: dict[str, list[float]] = {}
    for shape, times in zip(shapes, statistics.by_inputs):
        together.setdefault(shape, []).extend(times)
    return [
        f"{shape}: {len(times)} iterations, p{percent} {nearest_rank(sorted(times), percent):.2f} "
        f"ms, from {min(times):.2f} to {max(times):.2f} ms"
        for shape, times in together.items()
        if times
    ]


def counter_lines(counters: Counters, order: str = "") -> list[str]:
    """Return one row per layer, then the totals.

    Args:
        counters: of one request.
        order: "sort" for the slowest layer first, "simple_sort" for those that were executed, else
            all in execution order.
    """
    lines = []
    rows = sorted(counters.items(), key=lambda item: item[1]["execution_index"])
    if order == "sort":
        rows.sort(key=lambda item: -item[1]["real_time"])
    elif order == "simple_sort":
        rows = [item for item in rows if item[1]["status"] == "EXECUTED"]
    for name, row in rows:
        shown = name if len(name) <= 30 else name[:26] + "..."
        lines.append(
            f"{shown:<30}{row['status']:<15}"
            f"{'layerType: ' + str(row['layer_type']):<30}"
            f"{'realTime: ' + str(row['real_time']):<20}"
            f"{'cpu: ' + str(row['cpu_time']):<20}"
            f"{'execType: ' + str(row['exec_type']):<20}"
        )
    lines.append(f"Total time:     {sum(r['real_time'] for _, r in rows)} microseconds")
    lines.append(f"Total CPU time: {sum(r['cpu_time'] for _, r in rows)} microseconds")
    return lines


def average(counters: Sequence[Counters]) -> dict[str, dict[str, Any]]:
    """Average the times over requests; the counters given are not changed."""
    result: dict[str, dict[str, Any]] = {}
    for name, row in counters[0].items():
        others = [one[name] for one in counters if name in one]
        result[name] = {
            **row,
            "real_time": sum(o["real_time"] for o in others) / len(others),
            "cpu_time": sum(o["cpu_time"] for o in others) / len(others),
        }
    return result


def write_csv_report(folder: Path, sections: Mapping[str, Mapping[str, Any]]) -> Path:
    """Write ``benchmark_report.csv``: one section after another, separated by blank lines."""
    path = folder / "benchmark_report.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=";")
        for title, rows in sections.items():
            writer.writerow([title])
            writer.writerows([key, value] for key, value in rows.items())
            writer.writerow([])
    return path


def write_csv_counters(folder: Path, name: str, tables: Sequence[Counters]) -> Path:
    """Write counters, one table per request; times in milliseconds."""
    path = folder / name
    heading = ["layerName", "execStatus", "layerType", "execType", "realTime (ms)", "cpuTime (ms)"]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=";")
        for table in tables:
            writer.writerow(heading)
            rows = sorted(table.items(), key=lambda item: item[1]["execution_index"])
            writer.writerows(
                [
                    layer,
                    row["status"],
                    row["layer_type"],
                    row["exec_type"],
                    row["real_time"] / 1e3,
                    row["cpu_time"] / 1e3,
                ]
                for layer, row in rows
            )
            totals = [sum(r[key] for _, r in rows) / 1e3 for key in ("real_time", "cpu_time")]
            writer.writerow(["Total", "", "", "", *totals])
            writer.writerow([])
    return path


def write_reports(
    folder: Path,
    sections: Mapping[str, Mapping[str, Any]],
    tables: Sequence[Counters],
    kind: str,
    as_json: bool,
) -> list[Path]:
    """Write the report, and the counters of requests if there are any; return the files.

    Args:
        folder: made if need be.
        sections: title → rows.
        tables: counters by request.
        kind: "detailed_counters", "average_counters" or "no_counters".
        as_json: JSON instead of CSV.
    """
    folder.mkdir(parents=True, exist_ok=True)
    name = f"benchmark_{kind}_report"
    shown = [] if kind == "no_counters" or not tables else list(tables)
    if shown and kind == "average_counters":
        shown = [average(tables)]
    if not as_json:
        written = [write_csv_report(folder, sections)]
        return [*written, write_csv_counters(folder, f"{name}.csv", shown)] if shown else written
    written = [folder / "benchmark_report.json"]
    write_json(written[0], sections)
    if shown:
        written.append(folder / f"{name}.json")
        write_json(written[1], {"requests": shown})
    return written


def write_json(path: Path, figures: Mapping[str, Any]) -> None:
    """Write every figure as JSON."""
    path.write_text(json.dumps(figures, indent=4, default=str) + "\n", encoding="utf-8")
