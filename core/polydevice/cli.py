"""The command line: ``polydevice devices | plugins | ops | validate | place | bench | …``.

Tables on a terminal; when the output goes into a pipe or file, one line a row with tabs between
the columns and no heading, for `grep`, `cut` and `awk`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polydevice import __version__
from polydevice.benchmark.arguments import add_arguments, positive
from polydevice.benchmark.texts import key_and_value, parse_static_shapes, writable_place
from polydevice.comparison import command as comparison
from polydevice.compat import launcher
from polydevice.core import Core
from polydevice.errors import OptionValueError, PolydeviceError, nearest
from polydevice.report import command as report
from polydevice.serve import command as serving

if TYPE_CHECKING:
    from polydevice.devices.plugin_names import Entry
    from polydevice.devices.registry import Registry
    from polydevice.network import Network
    from polydevice.plugin import Line


class _Parser(argparse.ArgumentParser):
    """A parser that knows every option by its whole name only.

    By itself argparse reads the unknown ``-inferences_only`` as ``-i nferences_only``.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **settings})

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        known = self._option_string_actions
        for text in args or ():
            if text == "--":
                break
            name = text.partition("=")[0]
            if re.match("--?[A-Za-z]", name) and name not in known:
                self.error(f"unknown option {name}.{nearest(name, known)}")
        return super().parse_known_args(args, namespace)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="polydevice", description="Inference on every device: what is here and what it can do."
    )
    parser.add_argument("--version", action="version", version=f"polydevice {__version__}")
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=_Parser
    )
    command = commands.add_parser("devices", help="list the devices that can be used now")
    command.add_argument(
        "--why", action="store_true", help="also what was left out, why, and what to do about it"
    )
    command.add_argument(
        "--measure",
        nargs="*",
        metavar="DEVICE",
        help="measure rates, bandwidth and latencies of these devices, or of all, and keep them",
    )
    _add_json(command)
    command.set_defaults(run=_devices)
    command = commands.add_parser("doctor", help="one page about this machine for a bug report")
    _add_json(command)
    command.set_defaults(run=_doctor)
    command = commands.add_parser("plugins", help="list the installed plugins and their state")
    _add_json(command)
    command.set_defaults(run=_plugins)
    command = commands.add_parser("ops", help="list the operations that networks may use")
    _add_json(command)
    command.add_argument("name", nargs="?", help="one operation: where it is and how it runs")
    command.add_argument("-d", "--device", help="how this device runs operations, such as GPU")
    command.set_defaults(run=_ops)
    command = commands.add_parser("place", help="say which device runs each node, and why")
    command.add_argument("model", help="model file")
    command.add_argument("-d", "--device", default="HETERO:GPU,CPU", help="such as HETERO:GPU,CPU")
    command.add_argument("-w", "--weights", help=".bin of an IR, when it has another name")
    command.add_argument("--svg", metavar="FILE", help="also draw a picture")
    command.add_argument(
        "-c", "--config", action="append", type=key_and_value, default=[], metavar="KEY=VALUE"
    )
    _add_json(command)
    command.set_defaults(run=_place)
    command = commands.add_parser("explain", help="say what becomes of each layer on a device")
    command.add_argument("model", help="model file")
    command.add_argument("-d", "--device", default="CPU", help="such as GPU.1")
    command.add_argument(
        "-b", "--batch", type=positive, help="batch; the model's if left out, 1 if it is not known"
    )
    command.add_argument(
        "-shape", "--shape", default="", help="of the inputs: [1,3,224,224], or name[1,3],other[2]"
    )
    command.add_argument("-w", "--weights", help=".bin of an IR, when it has another name")
    command.add_argument(
        "-c", "--config", action="append", type=key_and_value, default=[], metavar="KEY=VALUE"
    )
    _add_json(command)
    command.set_defaults(run=_explain)
    command = commands.add_parser(
        "completion", help="print what lets a shell complete commands; see docs/quickstart.md"
    )
    command.add_argument("shell", choices=("bash", "zsh", "fish"))
    command.set_defaults(run=_completion)
    command = commands.add_parser(
        "validate", help="check a model file without loading it; the exit status is 1 if it fails"
    )
    command.add_argument("model", help="model file")
    command.add_argument("-w", "--weights", help=".bin of an IR, when it has another name")
    command.add_argument("-d", "--device", action="append", help="ask and require this device")
    command.add_argument(
        "--limits", nargs="+", default=[], metavar="NAME=NUMBER", help="such as layers=1000"
    )
    command.add_argument("--json", action="store_true", help="everything, for machines")
    command.set_defaults(run=_validate)
    command = commands.add_parser(
        "bench", help="measure a network, like benchmark_app", add_help=False
    )
    add_arguments(command)
    command.set_defaults(run=_bench)
    command = commands.add_parser(
        "report", help="write an HTML page of what `bench --json` measured, once or twice"
    )
    report.add_arguments(command)
    command.set_defaults(run=report.run)
    command = commands.add_parser(
        "compare", help="compare a model on a device with a reference, value by value"
    )
    comparison.add_arguments(command)
    command.set_defaults(run=comparison.run)
    command = commands.add_parser(
        "serve", help="answer requests over the network: Open Inference Protocol, REST and gRPC"
    )
    serving.add_arguments(command)
    command.set_defaults(run=serving.run)
    command = commands.add_parser("cache", help="look after a folder that CACHE_DIR names")
    command.add_argument("action", choices=("info", "verify", "clear"))
    command.add_argument("folder", help="the folder")
    command.set_defaults(run=_cache)
    command = commands.add_parser("tune", help="find the fastest kernels for a model's layers")
    command.add_argument("model", nargs="?", help="model file")
    command.add_argument("-d", "--device", default="GPU", help="such as GPU.1")
    command.add_argument("-w", "--weights", help=".bin of an IR, when it has another name")
    command.add_argument("--file", help="tuning file, made or extended")
    command.add_argument(
        "--merge", nargs="+", metavar="FILE", help="merge tuning files instead; needs --output"
    )
    command.add_argument("-o", "--output", help="what --merge writes")
    command.add_argument("--budget", type=int, default=0, help="seconds; 0 for no limit")
    command.add_argument(
        "--limit", type=positive, default=60, help="seconds after which a candidate has hung"
    )
    command.add_argument("--again", action="store_true", help="also layers that the file has")
    command.add_argument(
        "-c", "--config", action="append", type=key_and_value, default=[], metavar="KEY=VALUE"
    )
    command.set_defaults(run=_tune)
    command = commands.add_parser("run", help="run a program that was written for another runtime")
    launcher.add_arguments(command)
    if "_ARGCOMPLETE" in os.environ:  # a shell asks, through what `completion` printed
        import argcomplete

        argcomplete.autocomplete(parser)
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["run"]:  # outside of the `try` below: what it raises is the program's own
        own, rest = launcher.split(given[1:])
        return launcher.run(parser.parse_args(["run", *own]), rest)
    options = parser.parse_args(given)
    try:
        status: int = options.run(options)
        sys.stdout.flush()  # here, where a closed pipe is no error
    except PolydeviceError as error:
        print(f"polydevice: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("polydevice: interrupted", file=sys.stderr)
        return 130  # what shells expect of Ctrl-C
    except BrokenPipeError:  # `polydevice ops | head`: what is left has nowhere to go
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # a file of the command line, which went away or cannot be written
        print(f"polydevice: {error}", file=sys.stderr)
        return 1
    return status


def _validate(options: argparse.Namespace) -> int:
    """Say what a model asks for and which devices could run it; 1 if it is refused."""
    from polydevice.validation import validate

    limits = dict(item.partition("=")[::2] for item in options.limits)
    found = validate(options.model, options.weights, limits=limits, devices=options.device)
    lacking = bool(options.device) and any(found.devices.values())
    if options.json:
        print(json.dumps(found.as_dict(), indent=2))
        return int(not found.is_valid or lacking)
    rows = [["problem", problem.error, problem.message] for problem in found.problems]
    rows += [["file", path, ""] for path in found.files]
    rows += [["count", name, str(number)] for name, number in found.counts.items()]
    rows += [["loop", name, _number(trips, "its condition")] for name, trips in found.loops.items()]
    rows += [["operation", name, str(number)] for name, number in sorted(found.operations.items())]
    for device, reasons in found.devices.items():
        rows.append(
            ["device", device, f"cannot run {len(reasons)} nodes" if reasons else "runs all"]
        )
        rows += [["device", f"{device}: {node}", reason] for node, reason in reasons.items()]
    _table(["What", "Name", "Value"], rows)
    return int(not found.is_valid or lacking)


def _bench(options: argparse.Namespace) -> int:
    if options.server:
        from polydevice.serve import measure

        return measure.run(options)
    from polydevice.benchmark.application import run

    return run(options)


def _cache(options: argparse.Namespace) -> int:
    """Say what is in a cache folder, check every file, or delete them; 1 if some are bad."""
    from polydevice.files.file_cache import BAD_SUFFIX, KERNELS_SUFFIX, MODELS_SUFFIX, files_of

    folder = Path(options.folder)
    if not folder.is_dir():
        print(f"polydevice: {str(folder)!r} is not a folder", file=sys.stderr)
        return 1
    files = files_of(folder)
    if options.action == "verify":
        bad = [file for file in files if not file.is_good]
        _table(["Bad file", "Bytes"], [[str(f.path), str(f.size_bytes)] for f in bad])
        if sys.stdout.isatty():
            print(f"{len(files) - len(bad)} of {len(files)} files are good.")
        return 1 if bad else 0
    if options.action == "clear":
        for file in files:
            file.path.unlink(missing_ok=True)
    kinds = {"compiled kernels": KERNELS_SUFFIX, "networks": MODELS_SUFFIX, "bad": BAD_SUFFIX}
    rows = []
    for kind, suffix in kinds.items():
        sizes = [file.size_bytes for file in files if file.path.suffix == suffix]
        rows.append([kind, str(len(sizes)), str(sum(sizes))])
    _table(["Deleted" if options.action == "clear" else "Contents", "Files", "Bytes"], rows)
    return 0


def _tune(options: argparse.Namespace) -> int:
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
    _table(headings, rows)
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
    config["TUNING_MODE"] = "TUNING_RETUNE" if options.again else "TUNING_CREATE"
    config.update(TUNING_FILE=options.file, TUNING_BUDGET_S=str(options.budget))
    with Core() as core:
        network = core.read_network(options.model, options.weights)
        core.load_network(network, options.device, config)
    return 0


def _arguments_of_tune(options: argparse.Namespace) -> list[str]:
    """Write the command line anew, but for the budget."""
    words = [f"--file={options.file}", f"--device={options.device}"]
    words += [f"--weights={options.weights}"] if options.weights else []
    words += ["--again"] if options.again else []
    words += [f"--config={key}={value}" for key, value in options.config]
    return [*words, "--", options.model]


def _devices(options: argparse.Namespace) -> int:
    with Core() as core:
        names = core.available_devices
        if options.measure is not None:
            return _measure(options, core, options.measure or names)
        if not options.why:
            found = [{"device": name, "name": _full_name(core, name)} for name in names]
            _show(options, {"device": "Device", "name": "Name"}, found)
            if sys.stdout.isatty() and not options.json:
                print("`polydevice devices --why` says what was left out.")
            return 0 if names else 1
        reports = core.explain_devices()
    if options.json:
        print(json.dumps([asdict(report) for report in reports], indent=2))
    elif not sys.stdout.isatty():
        _table([], [[r.device or "-", r.subject, r.status, r.reason, r.fix] for r in reports])
    else:
        for report in reports:
            place = f" ({report.device})" * bool(report.device)
            print(f"{report.status}: {report.subject}{place}")
            if report.reason:
                print(f"    why: {report.reason}")
            if report.fix:
                print(f"    fix: {report.fix}")
    return 0 if names else 1


def _measure(options: argparse.Namespace, core: Core, names: Sequence[str]) -> int:
    """Measure devices, keep what was found for their drivers, and print it."""
    from polydevice.inspection import measured
    from polydevice.report.device_speed import measure_speed

    found = {}
    for name in names:
        found[name] = measure_speed(core, name)
        measured.store(core.device_identity(name), found[name])
    if options.json:
        rows = [{"device": name, **speed.model_dump()} for name, speed in found.items()]
        print(json.dumps(rows, indent=2))
        return 0 if rows else 1
    headings = ["Device", *(f"{kind} Gop/s" for kind in _RATES), "GB/s", "Launch µs", "Copy µs"]
    cells = []
    for name, speed in found.items():
        rates = [f"{speed.gops[kind]:.1f}" if kind in speed.gops else "" for kind in _RATES]
        times = [f"{speed.launch_us:.1f}", f"{speed.copy_us:.1f}"]
        cells.append([name, *rates, f"{speed.bytes_per_s / 1e9:.1f}", *times])
    _table(headings, cells)
    return 0 if found else 1


_RATES = ("f32", "f16", "bf16", "i8")


def _doctor(options: argparse.Namespace) -> int:
    from polydevice import doctor

    sections = doctor.examine()
    print(doctor.as_json(sections) if options.json else doctor.page(sections))
    return 0


def _full_name(core: Core, device: str) -> str:
    try:
        return str(core.get_metric(device, "FULL_DEVICE_NAME"))
    except PolydeviceError:
        return ""  # a device need not have a longer name


def _plugins(options: argparse.Namespace) -> int:
    from polydevice.devices.registry import Registry

    registry = Registry()
    registry.load_all()
    rows = [_plugin_row(registry, name, entry) for name, entry in registry.entries.items()]
    rows += [
        [c.device, c.entry.module, _with_version(c.entry.distribution), "", c.reason]
        for c in registry.conflicts
    ]
    headings = ["Device", "Module", "Distribution", "Hooks", "State"]
    keys = {heading.lower(): heading for heading in headings}
    _show(options, keys, [dict(zip(keys, row)) for row in sorted(rows)])
    return 0


def _plugin_row(registry: Registry, name: str, entry: Entry) -> list[str]:
    failure = registry.failures.get(name)
    plugin = registry.hooks.get_plugin(entry.module)
    callers = (registry.hooks.get_hookcallers(plugin) if plugin is not None else None) or []
    hooks = ", ".join(sorted(caller.name for caller in callers))
    state = "ready" if failure is None else str(failure)
    return [name, entry.module, _with_version(entry.distribution), hooks, state]


def _with_version(distribution: str) -> str:
    import importlib_metadata

    try:
        return f"{distribution} {importlib_metadata.version(distribution)}"
    except importlib_metadata.PackageNotFoundError:
        return f"{distribution} ?"


def _place(options: argparse.Namespace) -> int:
    from polydevice.inspection.placement_svg import placement_svg

    if options.svg:
        writable_place("--svg", Path(options.svg))
    with Core() as core:
        network = core.read_network(options.model, options.weights)
        rows = core.load_network(network, options.device, dict(options.config)).placement()
    if options.svg:
        Path(options.svg).write_text(placement_svg(network, rows), encoding="utf-8")
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return 0
    headings = ["Node", "Operation", "Device", "Part", "Bytes in", "Reason"]
    cells = [
        [r.node, r.type, r.device, _number(r.subgraph, ""), _number(r.bytes_in, "?"), r.reason]
        for r in rows
    ]
    _table(headings, cells)
    if sys.stdout.isatty():
        devices = Counter(r.device for r in rows if r.device)
        crossing = sum(r.bytes_in or 0 for r in rows)
        counts = ", ".join(f"{count} nodes on {device}" for device, count in devices.items())
        print(f"{counts}; {crossing} bytes cross between devices in one inference.")
    return 0


def _explain(options: argparse.Namespace) -> int:
    """Print what `ExecutableNetwork.explain` says of a model."""
    config = dict(options.config)
    with Core() as core:
        network = core.read_network(options.model, options.weights)
        _fix_shapes(network, options)
        loaded = core.load_network(network, options.device, config)
        text = loaded.explain()
    if options.json:
        lines = text.splitlines()
        print(json.dumps({"network": loaded.name, "device": loaded.device, "lines": lines}))
    else:
        print(text)
    return 0


def _fix_shapes(network: Network, options: argparse.Namespace) -> None:
    """Give the inputs the sizes of the command line; a batch that is not known is 1.

    Raises:
        OptionValueError: sizes that are still not known.
    """
    if shapes := parse_static_shapes(options.shape, list(network.inputs)):
        network.reshape(shapes)
    if options.batch:
        network.batch_size = options.batch
    elif network.is_dynamic and not isinstance(network.batch_size, int):
        print(
            "polydevice: the batch is not known and is set to 1; -b sets another", file=sys.stderr
        )
        network.batch_size = 1
    unknown = [
        f"{name}{info.shape}"
        for name, info in network.inputs.items()
        if info.shape is None or not info.shape.is_static
    ]
    if unknown:
        raise OptionValueError(
            f"layers are explained for known sizes; give those of {', '.join(unknown)} with "
            "--shape, such as --shape name[1,3,224,224]"
        )


def _completion(options: argparse.Namespace) -> int:
    from argcomplete.shell_integration import shellcode

    print(shellcode(["polydevice"], shell=options.shell))
    return 0


def _number(value: int | None, unknown: str) -> str:
    return unknown if value is None else str(value)


def _ops(options: argparse.Namespace) -> int:
    import polydevice.ops  # noqa: F401 - importing it defines every operation
    from polydevice.devices.registry import Registry
    from polydevice.ops.op import operations

    Registry().define_operations(seen=0)
    if options.name or options.device:
        return _places(options)
    rows = {
        (
            cls.type,
            f"{cls.domain} {', '.join(map(str, cls.since))}",
            ", ".join(cls.onnx_types),
            (cls.__doc__ or "").strip().partition("\n")[0],
        )
        for cls in operations()
    }
    keys = {
        "operation": "Operation",
        "versions": "Set, versions",
        "onnx": "ONNX",
        "computes": "What it computes",
    }
    _show(options, keys, [dict(zip(keys, row)) for row in sorted(rows)])
    return 0


def _add_json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="the same for machines")


def _show(
    options: argparse.Namespace, headings: Mapping[str, str], rows: Sequence[Mapping[str, str]]
) -> None:
    """Print rows, as JSON with --json.

    Args:
        options: the command line.
        headings: key of a row → heading of the column.
        rows: key → cell.
    """
    if options.json:
        print(json.dumps([dict(row) for row in rows], indent=2))
    else:
        _table(list(headings.values()), [[row[key] for key in headings] for row in rows])


def _places(options: argparse.Namespace) -> int:
    """Say where operations are written, and how a device runs them."""
    from polydevice.errors import OptionValueError, nearest
    from polydevice.inspection.source_place import source_place
    from polydevice.ops.op import operations
    from polydevice.plugin import Line

    found = list(operations())
    if options.name:
        wanted = options.name.lower()
        named = [(cls, {cls.type, *cls.onnx_types}) for cls in found]
        found = [cls for cls, names in named if wanted in {name.lower() for name in names}]
        if not found:
            known = sorted(set().union(*(names for _, names in named)))
            raise OptionValueError(
                f"no operation is called {options.name!r}.{nearest(options.name, known)} "
                "`polydevice ops` lists all"
            )
    rows = []
    with Core() as core:
        devices = [options.device] if options.device else ["CPU", "GPU"]
        for cls in sorted(found, key=lambda cls: (cls.type, cls.since)):
            name = f"{cls.type} {cls.domain}{'/'.join(map(str, cls.since))}"
            if options.name:
                rows.append(_way(name, Line("definition", source_place(cls))))
            for device in devices:
                lines = core.describe_operation(cls, device) or [Line("not run", "")]
                rows += [_way(name, line, f"{device}: ") for line in lines]
    headings = {"operation": "Operation", "how": "How", "where": "Where", "when": "When"}
    _show(options, headings, rows)
    return 0


def _way(name: str, line: Line, device: str = "") -> dict[str, str]:
    how = device + line.subject
    return {"operation": name, "how": how, "where": line.answer, "when": line.reason}


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if not sys.stdout.isatty():
        for row in rows:
            print("\t".join(" ".join(cell.split()) for cell in row))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(cell.replace("[", r"\[") for cell in row))
    Console().print(table)
