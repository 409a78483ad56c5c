"""GpuPlugin: the device family GPU, all OpenCL devices that the rule for devices admits."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from polydevice.errors import (
    DeviceError,
    ModelFormatError,
    OptionValueError,
    UnsupportedNetworkError,
)
from polydevice.exported import ExportedNetwork
from polydevice.files.container import unpack
from polydevice.inspection import measured
from polydevice.locks import Lock
from polydevice.network import Network
from polydevice.network.kept_layers import KeptLayers
from polydevice.options import Options
from polydevice.plugin import (
    DeviceReport,
    Line,
    Plugin,
    Section,
    Services,
    Version,
    unsupported,
)
from polydevice.remote import RemoteContext
from polydevice_gpu import cl
from polydevice_gpu.cl.discovery import enumerate_once
from polydevice_gpu.cl.discovery.facts import DeviceFacts, Verdict
from polydevice_gpu.options import GpuOptions
from polydevice_gpu.reports.peak import gops, measured_gops

if TYPE_CHECKING:
    from pathlib import Path

    from polydevice.ops.op import Op
    from polydevice_gpu.blobs.context import GpuContext
    from polydevice_gpu.cl.discovery.report import Report
    from polydevice_gpu.compiler.compiler import Compiler
    from polydevice_gpu.executable import GpuExecutable
    from polydevice_gpu.tuning.tuner import Tuner

_NEO = re.compile(r" ?NEO(?!.*NEO).*", re.IGNORECASE | re.DOTALL)
_STATUS = {Verdict.ADMITTED: "available", Verdict.FOUND: "found", Verdict.REJECTED: "left out"}


class GpuPlugin(Plugin):
    """Runs networks on OpenCL devices. One context per device serves all networks."""

    option_type = GpuOptions
    can_export = True
    has_contexts = True

    def __init__(self, name: str, services: Services) -> None:
        """Make the plugin; drivers are looked for when the first device is asked for."""
        super().__init__(name, services)
        self._contexts: dict[cl.Device, GpuContext] = {}
        self._lock = Lock()

    @property
    def version(self) -> Version:
        """Description and version."""
        return Version("polydevice GPU plugin (OpenCL)", 0, 1, "0")

    # -- devices ------------------------------------------------------------------------------

    def device_ids(self, options: Options) -> list[str]:
        """Return ids in the order integrated GPUs, other GPUs, other devices."""
        return [device.id for device in self._report(options).devices]

    def explain_devices(self, options: Options) -> list[DeviceReport]:
        """Describe every driver, platform, device and GPU of the machine that was looked at."""
        report = self._report(options)
        alone = len(report.devices) == 1
        reports = []
        for finding in report.findings:
            available = finding.verdict is Verdict.ADMITTED
            reports.append(
                DeviceReport(
                    f"OpenCL {finding.kind} {finding.name}",
                    _STATUS[finding.verdict],
                    "" if available else finding.reason,
                    finding.fix,
                    (self.name if alone else finding.reason) if available else "",
                )
            )
        return reports

    def diagnose(self, options: Options, seconds: float) -> list[Section]:
        """Say how OpenCL was found, what every probe of a device answered, and known troubles."""
        from polydevice_gpu.reports.diagnosis import diagnose

        enumerate_once(timeout_s=seconds / 2)
        report = self._report(options)
        lines = tuple(map(Line.of_report, self.explain_devices(options)))
        return [Section(f"{self.name}: drivers and devices", lines), *diagnose(report, seconds / 2)]

    def metrics(self, options: Options, device_id: str) -> dict[str, Any]:
        """Return the metrics of one device, in the Inference Engine's order."""
        facts = self._report(options).device(device_id or "0").facts
        return {
            "FULL_DEVICE_NAME": full_name(facts),
            "OPTIMIZATION_CAPABILITIES": lambda: _optimizations(self._open(options, device_id)),
            "RANGE_FOR_ASYNC_INFER_REQUESTS": (1, 2, 1),
            "RANGE_FOR_STREAMS": (1, 2),
            "DEVICE_TYPE": "integrated" if facts.unified_memory else "discrete",
            "DEVICE_PCI_ADDRESS": facts.pci_address,
            "DEVICE_GOPS": lambda: self._gops(options, device_id),
            "GPU_DEVICE_TOTAL_MEM_SIZE": facts.global_memory_bytes,
            "GPU_UARCH_VERSION": _architecture(facts),
            "GPU_EXECUTION_UNITS_COUNT": facts.max_compute_units,
        }

    def identity(self, options: Options, device_id: str) -> str:
        """Return platform, device and driver, with their versions."""
        facts = self._report(options).device(device_id or "0").facts
        return ", ".join([*map(str, facts.identity), str(self.version)])

    def _gops(self, options: Options, device_id: str) -> dict[str, float]:
        """Return nominal rates, and beside them those that were measured."""
        facts = self._report(options).device(device_id or "0").facts
        nominal = gops(facts, self._open(options, device_id).capabilities)
        known = measured.load(self.identity(options, device_id))
        return {**nominal, **(measured_gops(known) if known is not None else {})}

    def _report(self, options: Options) -> Report:
        assert isinstance(options, GpuOptions)
        return cl.discover(options.selection)

    def _open(self, options: Options, device_id: str) -> cl.Device:
        return cl.open_device(self._report(options).device(device_id or "0"))

    def describe_operation(self, op: type[Op]) -> list[Line]:
        """Say which kernels, expressions, views and decompositions there are, or why the host."""
        from polydevice_gpu.reports.operations import describe_operation

        return describe_operation(op)

    def merge_tuning(self, files: Sequence[Path], output: Path) -> int:
        """Merge TUNING_FILEs into one; return how many choices that has."""
        from polydevice_gpu.tuning.tuning_file import TuningFile

        return len(TuningFile.merge(files, output))

    # -- contexts -----------------------------------------------------------------------------

    def context(
        self, options: Options, device_id: str, params: Mapping[str, Any] | None = None
    ) -> GpuContext:
        """Make a context of a user's OpenCL context; without one, that of networks loaded by name.

        Raises:
            UnknownOptionError: for a parameter that does not exist.
            OptionValueError: for a parameter that is missing or not legal.
        """
        from polydevice_gpu.blobs.user_context import user_context

        if params is None:
            return self._own(None, options, device_id)
        return user_context(self.name, self._report(options), params, device_id)

    def _own(self, context: RemoteContext | None, options: Options, device_id: str) -> GpuContext:
        """Return the context that a network is given, or that of networks loaded by name."""
        from polydevice_gpu.blobs.context import GpuContext

        if isinstance(context, GpuContext):
            return context
        if context is not None:
            raise DeviceError(f"{context!r} is no context of {self.name}; create one for it")
        device = self._open(options, device_id)
        with self._lock:
            if device not in self._contexts:
                self._contexts[device] = GpuContext(f"{self.name}.{device_id or '0'}", device)
            return self._contexts[device]

    # -- networks -----------------------------------------------------------------------------

    def unsupported_nodes(self, network: Network, options: Options) -> dict[str, str]:
        """Return the nodes that no kernel takes."""
        from polydevice_gpu.compiler.query import unsupported_nodes

        assert isinstance(options, GpuOptions)
        device = self._open(options, options.device_id)
        return unsupported_nodes(network, device, self.services.evaluate, options.custom_layers)

    def import_network(
        self, data: bytes, options: Options, device_id: str, context: RemoteContext | None = None
    ) -> GpuExecutable:
        """Load what `GpuExecutable.export` wrote; on the same device and driver nothing compiles.

        Elsewhere the exported kernels do not fit and are compiled again.

        Raises:
            DeviceError: for a context of another plugin.
        """
        from polydevice_gpu.executable import KERNELS, choices_from

        assert isinstance(options, GpuOptions)
        if options.tuning_mode != "TUNING_DISABLED":
            raise OptionValueError(
                f"TUNING_MODE={options.tuning_mode} is not possible for exported networks, which "
                "keep the kernels they were exported with; load the model instead"
            )
        found = ExportedNetwork.read(self.name, data, self.services.evaluate)
        parts = unpack(found.extra.get(KERNELS, b""), KERNELS)
        options = options.over(found.config)
        assert isinstance(options, GpuOptions)
        try:
            binaries = {bytes.fromhex(key): binary for key, binary in parts.items()}
        except ValueError as error:
            raise ModelFormatError(f"the exported network is not consistent: {error}") from None
        own = self._own(context, options, device_id)
        builder = cl.ProgramBuilder(
            own.device,
            options.cache_dir or None,
            threads=options.compile_threads,
            binaries=binaries,
        )
        return self._load(found.network, options, own, builder, choices_from(found.extra))

    def load_network(
        self,
        network: Network,
        options: Options,
        device_id: str,
        context: RemoteContext | None = None,
    ) -> GpuExecutable:
        """Compile a network for a device, in its context or that of a user.

        Raises:
            DeviceError: for a context of another plugin.
            UnsupportedNetworkError: listing every node that no kernel takes.
            OptionValueError: for a priority or throttle that the device does not have, or for
                what a user's queue makes impossible.
        """
        assert isinstance(options, GpuOptions)
        with ThreadPoolExecutor(1, "polydevice-open") as pool:  # a driver starts in 0.2 s
            opening = pool.submit(self._own, context, options, device_id)
            import_compiler()
            own = opening.result()
        from polydevice_gpu.tuning.tuner import Tuner

        builder = own.builder(options.cache_dir, options.compile_threads)
        tuner = Tuner.open(options, own.device.facts)
        return self._load(network, options, own, builder, tuner)

    def _load(
        self,
        network: Network,
        options: GpuOptions,
        context: GpuContext,
        builder: cl.ProgramBuilder,
        tuner: Tuner | None,
    ) -> GpuExecutable:
        from polydevice_gpu.compiler.compiler import Compiler
        from polydevice_gpu.compiler.settings import CompileSettings
        from polydevice_gpu.executable import GpuExecutable

        settings = replace(
            CompileSettings.of(options, tuner),
            kept=KeptLayers.of(network),
            on_users_queue=context.has_queue,
        )
        compiler = Compiler(context.device, settings, self.services, builder)
        if not context.has_queue:  # a user's, on which nothing waits but what the user lets wait

            def load_part(part: Network) -> GpuExecutable:
                return GpuExecutable(compiler.prepare(part), compiler, options, context)

            compiler.load_part = load_part
        prepared = compiler.prepare(network)
        if network.is_dynamic:
            self._check_supported(network, compiler)
        exclusive = options.exclusive_async_requests and (context.has_queue or options.streams == 1)
        executor = self.exclusive_executor() if exclusive else None
        try:
            return GpuExecutable(prepared, compiler, options, context, executor)
        except UnsupportedNetworkError:
            self._check_supported(network, compiler)
            raise

    def _check_supported(self, network: Network, compiler: Compiler) -> None:
        """Raise UnsupportedNetworkError listing every layer that no kernel takes.

        A network with dynamic shapes is compiled at its first inference; what no kernel takes
        whatever the shapes is known before. Where no shapes could be guessed, nothing is said.
        """
        try:
            refused = compiler.unsupported_nodes(network)
        except UnsupportedNetworkError:
            return
        if refused:
            raise unsupported(network, self.name, refused)

    def close(self) -> None:
        """Forget the contexts."""
        with self._lock:
            self._contexts.clear()


def import_compiler() -> None:
    """Import what compiles a network, all kernels and all rewrites: that takes 0.2 s."""
    from polydevice.rewrites.rule import rules
    from polydevice_gpu import executable  # noqa: F401
    from polydevice_gpu.blobs import context  # noqa: F401
    from polydevice_gpu.kernels.kernel import all_kernels
    from polydevice_gpu.tuning import tuner  # noqa: F401

    all_kernels()
    rules()


def full_name(facts: DeviceFacts) -> str:
    """Return the device's name without Intel's driver name, and what kind of device it is."""
    name = _NEO.sub("", facts.name).strip() or facts.name
    if not facts.is_gpu:
        return f"{name} ({facts.kind})"
    return f"{name} ({'iGPU' if facts.unified_memory else 'dGPU'})"


def _optimizations(device: cl.Device) -> list[str]:
    can = device.capabilities
    found = ["FP32", "BIN", "BATCHED_BLOB"]
    found += ["FP16"] if can.fp16_arithmetic or can.tensor_cores_ptx else []
    found += ["INT8"] if can.integer_dot_product else []
    found += ["GPU_HW_MATMUL"] if can.matrix_units else []
    return found


def _architecture(facts: DeviceFacts) -> str:
    """Return Intel's "major.minor.revision", NVIDIA's "major.minor", or "unknown"."""
    packed = facts.ip_version_intel
    if packed and facts.is_gpu:
        return f"{packed >> 16}.{packed >> 8 & 0xFF}.{packed & 0xFF}"
    if facts.compute_capability_major_nv:
        return f"{facts.compute_capability_major_nv}.{facts.compute_capability_minor_nv}"
    return "unknown"
