"""``polydevice tune``: finds the fastest kernels for the layers of a model."""

from __future__ import annotations

import argparse
import os
import sys

from polydevice.benchmark.options.arguments import positive
from polydevice.benchmark.options.texts import key_and_value
from polydevice.commands.output import table
from polydevice.commands.sizes import add_sizes, fix_sizes
from polydevice.core import Core


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to a parser."""
    add = parser.add_argument
    add("model", nargs="?", help="model file")
    add("-d", "--device", default="GPU", help="such as GPU.1")
    add("-w", "--weights", help=".bin of an IR, when it has another name")
    add_sizes(parser)
    add("--file", help="tuning file, made or extended")
    add("--merge", nargs="+", metavar="FILE", help="merge tuning files instead; needs --output")
    add("-o", "--output", help="what --merge writes")
    add("--budget", type=int, default=0, help="seconds; 0 for no limit")
    add("--limit", type=positive, default=60, help="seconds after which a candidate has hung")
    add("--again", action="store_true", help="also layers that the file has")
    add("--check", action="store_true", help="drop what is not faster than without tuning")
    add("-c", "--config", action="append", type=key_and_value, default=[], metavar="KEY=VALUE")


def run(options: argparse.Namespace) -> int:
    """Load a model with tuning, show progress, and then every layer before and after."""
    from rich.console import Console
    from rich.progress import Progress

    from polydevice.tuning.journal import VARIABLE, Journal
    from polydevice.tuning.supervisor import supervise

    if options.merge:
        return _merge(options)
    if not options.model or not options.file or options.output:
        wanted = "a model and --file, or --merge FILE... with --output"
        print(f"polydevice tune: give {wanted}", file=sys.stderr)
        return 2
    if os.environ.get(VARIABLE):
        return _tune_here(options)
    progress = Progress(console=Console(stderr=True), disable=not sys.stderr.isatty())
    bar = progress.add_task("tuning", total=None)

    def show(journal: Journal) -> None:
        if journal.layers:
            latest = journal.layers[-1]
            place = {"total": latest.count, "completed": latest.number}
            progress.update(bar, description=latest.name, **place)  # type: ignore[arg-type]

    with progress:
        found = supervise(
            _arguments_of_tune(options),
            options.limit,
            show,
            lambda said: print(said, file=sys.stderr),
            options.budget,
        )
    if found.failure:
        print(
            f"polydevice tune: the process that loads {options.model} {found.failure}, outside of "
            f"any candidate; {options.file} keeps what was found. `polydevice bench -m "
            f"{options.model} -d {options.device}` says whether it loads without tuning.",
            file=sys.stderr,
        )
    if found.status:
        return found.status if found.status > 0 else 1
    tuned = found.layers
    headings = ["Layer", "Before", "µs", "After", "µs", "Candidates", "Rejected"]
    timed = [layer for layer in tuned if not layer.skipped]
    rows = [
        [
            *(t.name, t.default, f"{t.default_ns / 1e3:.2f}", t.best, f"{t.best_ns / 1e3:.2f}"),
            *(str(t.candidates), str(t.rejected)),
        ]
        for t in timed
    ]
    table(headings, rows)
    if not tuned and not options.check:
        print(
            f"no layer was left to tune: {options.file} has all of {options.model} that have a "
            "choice on this device. --again tunes them anew",
            file=sys.stderr,
        )
    if len(timed) < len(tuned):
        left = len(tuned) - len(timed)
        print(f"{left} layers are left; run the command again to go on.", file=sys.stderr)
    if sys.stdout.isatty():
        before, after = (sum(getattr(t, w) for t in timed) for w in ("default_ns", "best_ns"))
        print(f"{before / 1e3:.1f} µs before, {after / 1e3:.1f} µs after; kept in {options.file}")
    return 0


def _merge(options: argparse.Namespace) -> int:
    """Merge tuning files."""
    if options.model or options.file or not options.output:
        print("polydevice tune: --merge takes --output, no model and no --file", file=sys.stderr)
        return 2
    with Core() as core:
        choices = core.merge_tuning(options.device, options.merge, options.output)
    if sys.stdout.isatty():
        print(f"{choices} choices in {options.output}")
    return 0


def _tune_here(options: argparse.Namespace) -> int:
    """Tune in this process, which another one watches."""
    from polydevice.tuning.supervisor import end_with_parent

    end_with_parent()
    config = dict(options.config)
    mode = "CHECK" if options.check else "RETUNE" if options.again else "CREATE"
    config["TUNING_MODE"] = f"TUNING_{mode}"
    config.update(TUNING_FILE=options.file, TUNING_BUDGET_S=str(options.budget))
    with Core() as core:
        network = core.read_network(options.model, options.weights)
        fix_sizes(network, options, "tuned")
        core.load_network(network, options.device, config)
    return 0


def _arguments_of_tune(options: argparse.Namespace) -> list[str]:
    """Write the command line anew, but for the budget."""
    words = [f"--file={options.file}", f"--device={options.device}"]
    words += [f"--weights={options.weights}"] if options.weights else []
    words += [f"--batch={options.batch}"] if options.batch else []
    words += [f"--shape={options.shape}"] if options.shape else []
    words += ["--again"] if options.again else []
    words += ["--check"] if options.check else []
    words += [f"--config={key}={value}" for key, value in options.config]
    return [*words, "--", options.model]
