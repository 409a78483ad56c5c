"""The eleven steps of benchmark_app, for each device in turn."""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from polydevice.benchmark import report, turns
from polydevice.benchmark.first_inference import measure_first_inference
from polydevice.benchmark.inputs import make_inputs
from polydevice.benchmark.measure import (
    Statistics,
    measure_async,
    measure_phases,
    measure_sync,
)
from polydevice.benchmark.memory import peak_device_bytes, peak_host_bytes
from polydevice.benchmark.options.arguments import CUMULATIVE, Limits
from polydevice.benchmark.options.configuration import make_configuration
from polydevice.benchmark.options.network_options import (
    data_shapes,
    reshape,
    set_precisions,
    warn_of_unread,
)
from polydevice.benchmark.peers import compare
from polydevice.benchmark.printing import info, progress_bar
from polydevice.benchmark.recorder import Load, Recorder
from polydevice.core import Core
from polydevice.dtype import Array
from polydevice.errors import OptionValueError
from polydevice.executable_network import ExecutableNetwork
from polydevice.network import Network
from polydevice.trace import Trace
from polydevice.version import __version__

_TITLES = (
    "Parsing and validating input arguments",
    "Loading polydevice",
    "Setting device configuration",
    "Reading network files",
    "Resizing network to match image sizes and given batch",
    "Configuring input of the model",
    "Loading the model to the device",
    "Querying optimal runtime parameters",
    "Creating infer requests and filling input blobs with data",
    "Measuring performance",
    "Dumping statistics report",
)


class Application:
    """One run of the tool on one device."""

    def __init__(
        self, options: argparse.Namespace, device: str, trace: Trace | None = None
    ) -> None:
        """Keep the command line and the device of this run, and the trace of all runs."""
        self._trace = trace
        self.options = options
        self.device = device
        self.figures: dict[str, Any] = {"device": device, "model": options.path_to_model}
        self._step = 0
        self._recorder: Recorder | None = None

    def run(self) -> dict[str, Any]:
        """Run all steps, print as benchmark_app does, and return every figure."""
        self._next()
        for module in filter(None, self.options.path_to_extension.split(",")):
            load_extension(module.strip())
        with Core() as core:
            self.device = cumulative(core, self.options, self.device)
            if self.options.report:
                self._recorder = Recorder(core, self.device)
            try:
                self._run(core)
            finally:
                if self._recorder is not None:
                    self._recorder.end_memory()
                    self.figures.update(self._recorder.figures())
        return self.figures

    def _run(self, core: Core) -> None:
        """Run the steps that need devices."""
        self._next()
        self._print_versions(core)
        self._next()
        config = make_configuration(core, self.options, self.device)
        self.figures["config"] = dict(config)
        executable = self._load(core, config)
        try:
            if self.options.number_iterations == 0:
                info("The network is compiled; with -niter 0 nothing is measured")
            else:
                self._measure(core, executable, config)
        finally:
            executable.close()
        if self._recorder is not None:
            self._recorder.profile(config)

    # -- steps 4 to 7 -------------------------------------------------------------------------

    def _load(self, core: Core, config: Mapping[str, str]) -> ExecutableNetwork:
        options = self.options
        path = options.path_to_model
        number = 1 if options.api == "sync" else options.number_infer_requests or 0
        if path.endswith(".blob") or options.load_from_file:
            warn_of_unread(options)
        if path.endswith(".blob"):
            self._skip(3)
            self._next()
            executable = self._timed(
                "import network time (ms)",
                config,
                lambda config: core.import_network(path, self.device, config),
            )
            wanted = number or executable.get_metric("OPTIMAL_NUMBER_OF_INFER_REQUESTS")
            executable._reserve_requests(wanted)
            return executable
        if options.load_from_file:
            self._skip(3)
            self._next()
            return self._timed(
                "load network time (ms)",
                config,
                lambda config: core.load_network(path, self.device, config, number),
            )
        self._next()
        begin = time.perf_counter()
        network = core.read_network(path)
        self._note("read network time (ms)", (time.perf_counter() - begin) * 1e3)
        self._next()
        self._reshape(network)
        self._next()
        set_precisions(network, options)
        self._next()
        if self._recorder is not None:
            self._recorder.network = network
        return self._timed(
            "load network time (ms)",
            config,
            lambda config: core.load_network(network, self.device, config, number),
        )

    def _reshape(self, network: Network) -> None:
        begin = time.perf_counter()
        reshape(network, self.options)
        self._note("reshape network time (ms)", (time.perf_counter() - begin) * 1e3)
        info(f"Network batch size: {network.batch_size}")
        self.figures["shapes"] = {
            name: [int(size) if isinstance(size, int) else str(size) for size in info.shape or ()]
            for name, info in network.inputs.items()
        }

    # -- steps 8 to 11 ------------------------------------------------------------------------

    def _measure(
        self, core: Core, executable: ExecutableNetwork, config: Mapping[str, str]
    ) -> None:
        options = self.options
        self._next()
        streams = executable.streams
        info(
            f"{self.device}: {streams} streams, "
            f"{executable.get_metric('OPTIMAL_NUMBER_OF_INFER_REQUESTS')} requests are optimal"
        )
        self._next()
        requests = len(executable.requests)
        shapes = data_shapes(options, list(executable.inputs))
        least = 1 if options.shapes else max(2, requests)
        sets = max([least, *map(len, shapes.values())])
        inputs = make_inputs(executable.inputs, options.paths_to_input, options.seed, sets, shapes)
        limits = Limits.of(options, requests, self.device)
        summary = (
            f"{options.api}, {requests} inference requests, {streams} streams on {self.device}, "
            f"limits: {limits}"
        )
        self._next(summary)
        if not options.no_warmup:
            begin = time.perf_counter()
            executable.requests[0].infer(inputs[0])
            self._note("first inference time (ms)", (time.perf_counter() - begin) * 1e3)
            info(f"First inference took {self.figures['first inference time (ms)']:.2f} ms")
        new = inputs[1:] or inputs if options.shapes else []  # the first is warm by now
        first = turns.first_times(executable.requests[0].infer, new)
        batch = _batch(executable, inputs[0])
        statistics = self._loop(executable, inputs, limits, batch)
        if options.shapes:
            self.figures["over shapes (ms)"] = turns.over_shapes(first, statistics)
        if self._recorder is not None:
            self._recorder.inputs = inputs
            self._recorder.keep_latencies(statistics)
        self._compare(executable, inputs)
        self._next()
        self._report(executable, statistics, inputs, summary, config)

    def _loop(
        self,
        executable: ExecutableNetwork,
        inputs: Sequence[Mapping[str, Array]],
        limits: Limits,
        batch: int,
    ) -> Statistics:
        options = self.options
        fills = not options.inference_only
        if options.inference_only is None:
            fills = options.api == "sync" or bool(options.data_shape or options.shapes)
        how: dict[str, Any] = {"fills": fills, "rate": options.maximum_inference_rate}
        if self._trace is not None:
            self._trace.follow(executable)
        try:
            with progress_bar("measuring", options) as progress:
                if options.api == "sync":
                    run = executable.requests[0].infer
                    return measure_sync(run, inputs, limits, batch, progress, **how)
                return measure_async(executable, inputs, limits, batch, progress, **how)
        finally:
            if self._trace is not None:
                self._trace.leave()

    def _compare(
        self, executable: ExecutableNetwork, inputs: Sequence[Mapping[str, Array]]
    ) -> None:
        if names := [name for name in self.options.compare.split(",") if name]:
            self.figures["compare (ms)"] = compare(names, executable, inputs, self.options)

    def _report(
        self,
        executable: ExecutableNetwork,
        statistics: Statistics,
        inputs: Sequence[Mapping[str, Array]],
        summary: str,
        config: Mapping[str, str],
    ) -> None:
        options = self.options
        phases = measure_phases(executable, inputs)
        self.figures.update(
            {
                "number of iterations": statistics.iterations,
                "total execution time (ms)": statistics.duration_ms,
                "throughput (FPS)": statistics.throughput,
                "phases (ms)": vars(phases),
                "peak host memory (bytes)": peak_host_bytes(),
                "peak device memory (bytes)": peak_device_bytes(executable),
                **{f"latency p{p} (ms)": statistics.percentile(p) for p in (50, 90, 99)},
            }
        )
        info(
            f"One request: inputs {phases.set_inputs:.3f} ms, inference "
            f"{phases.inference:.3f} ms, outputs {phases.read_outputs:.3f} ms"
        )
        self._print_memory()
        if self._recorder is not None:
            with self._recorder.new_processes(config) as empty:
                self._first_inference(executable, inputs[0], empty)
        elif options.first_inference:
            self._first_inference(executable, inputs[0], config)
        counters = self._counters(executable, inputs, config)
        if options.exec_graph_path:
            executable.get_exec_graph_info().serialize(options.exec_graph_path)
        if options.report_type:
            self._write_reports(counters, summary)
        if options.pcseq:
            shapes = [" ".join(f"{n}{list(a.shape)}" for n, a in one.items()) for one in inputs]
            for line in report.lines_by_shape(statistics, shapes, options.latency_percentile):
                info(line)
        for line in turns.lines(self.figures.get("over shapes (ms)", {}), len(inputs)):
            info(line[0].upper() + line[1:])
        for line in report.closing_lines(statistics, options.latency_percentile):
            print(line)

    def _print_memory(self) -> None:
        for place in ("host", "device"):
            size = self.figures[f"peak {place} memory (bytes)"]
            if size is not None:
                info(f"Peak {place} memory: {size / 2**20:.1f} MiB")

    def _first_inference(
        self,
        executable: ExecutableNetwork,
        inputs: Mapping[str, Array],
        config: Mapping[str, str],
    ) -> None:
        shapes = {  # of the network, whose inputs may have other layouts here
            name: sizes
            for name, sizes in self.figures.get("shapes", {}).items()
            if all(isinstance(size, int) for size in sizes)
        }
        ports = executable.inputs.items()
        data = {name: inputs[name].shape for name, port in ports if port.sizes is None}
        for name in ("cold", "warm"):
            found = measure_first_inference(
                *(self.options.path_to_model, self.device, config, shapes, data)
            )
            self.figures[f"first inference, {name} process (ms)"] = vars(found)
            info(
                f"First answer of a {name} process: {found.total:.0f} ms (start {found.start:.0f}, "
                f"imports {found.imports:.0f}, read {found.read:.0f}, load {found.load:.0f}, "
                f"first run {found.first_run:.1f})"
            )

    def _counters(
        self,
        executable: ExecutableNetwork,
        inputs: Sequence[Mapping[str, Array]],
        config: Mapping[str, str],
    ) -> list[report.Counters]:
        if config.get("PERF_COUNT") != "YES":
            return []
        counters: list[report.Counters] = []
        for index, request in enumerate(executable.requests):
            request.infer(inputs[index % len(inputs)])
            counters.append(request.get_perf_counts())
            if self.options.perf_counts:
                info(f"Performance counts for infer request {index}")
                for line in report.counter_lines(counters[-1], self.options.perf_counts_sort):
                    print(line)
        return counters

    def _write_reports(self, counters: Sequence[report.Counters], summary: str) -> None:
        options = self.options
        sections: dict[str, Mapping[str, Any]] = {
            "Command line parameters": {f"-{k}": v for k, v in vars(options).items() if v},
            "Configuration setup": {
                "topology": Path(options.path_to_model).stem,
                "target device": self.device,
                "API": options.api,
                "summary": summary,
                **self.figures["config"],
            },
            "Execution results": {
                key: value for key, value in self.figures.items() if isinstance(value, (int, float))
            },
        }
        folder = Path(options.report_folder or ".")
        written = report.write_reports(
            folder, sections, counters, options.report_type, options.json_stats
        )
        for path in written:
            info(f"Statistics report is stored to {path}")

    # -- printing -----------------------------------------------------------------------------

    def _next(self, extra: str = "") -> None:
        self._step += 1
        title = _TITLES[self._step - 1] + (f" ({extra})" if extra else "")
        print(f"[Step {self._step}/{len(_TITLES)}] {title}", flush=True)
        if self._recorder is not None:
            self._recorder.begins(self._step)

    def _skip(self, steps: int) -> None:
        for _ in range(steps):
            self._next()
            info("Skipping the step for a network that is loaded from a file")

    def _timed(self, name: str, config: Mapping[str, str], load: Load) -> ExecutableNetwork:
        """Load the network, note how long that took, and how to load it again."""
        if self._recorder is not None:
            self._recorder.load = load
        begin = time.perf_counter()
        result = load(config)
        self._note(name, (time.perf_counter() - begin) * 1e3)
        return result

    def _note(self, name: str, milliseconds: float) -> None:
        self.figures[name] = milliseconds
        if name != "first inference time (ms)":
            info(f"{name.removesuffix(' (ms)').capitalize()} took {milliseconds:.2f} ms")

    def _print_versions(self, core: Core) -> None:
        info(f"polydevice{'':.<24} {__version__}")
        for family, version in core.get_versions(self.device).items():
            info(
                f"{family}: {version.description} {version.major}.{version.minor}, "
                f"build {version.build_number}"
            )


def load_extension(module: str) -> None:
    """Import a module that defines operations.

    Raises:
        OptionValueError: it cannot be imported.
    """
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise OptionValueError(f"-l {module!r} cannot be imported: {error}") from error


def _batch(executable: ExecutableNetwork, inputs: Mapping[str, Array]) -> int:
    for name, port in executable.inputs.items():
        sizes = port.sizes or inputs[name].shape
        if len(sizes) > 1:
            return int(sizes[0])
    return 1


def cumulative(core: Core, options: argparse.Namespace, device: str) -> str:
    """Return the device for -hint cumulative_throughput: all candidates of AUTO at once."""
    family, _, members = device.partition(":")
    if options.perf_hint not in CUMULATIVE or family != "AUTO":
        return device
    found = f"MULTI:{members or ','.join(core.available_devices)}"
    info(f"-hint {options.perf_hint}: {device} is {found}")
    return found
