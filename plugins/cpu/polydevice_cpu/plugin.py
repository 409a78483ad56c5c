"""CpuPlugin: the device family CPU, which has one device."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polydevice.errors import OptionValueError
from polydevice.exec_graph import as_dot
from polydevice.exported import ExportedNetwork
from polydevice.inspection.source_place import source_place
from polydevice.network import Network
from polydevice.network.dynamic_batch import dynamic_batch_limit
from polydevice.ops.io import Constant, Parameter, Result
from polydevice.ops.op import Op
from polydevice.ops.unknown import UnknownOperation
from polydevice.options import Options
from polydevice.plugin import Line, Plugin, Section, Version, unsupported
from polydevice.remote import RemoteContext
from polydevice_cpu import processor
from polydevice_cpu.lower import find_lowering
from polydevice_cpu.onednn.library import absence, library
from polydevice_cpu.options import CpuOptions, available_cores

if TYPE_CHECKING:
    from polydevice_cpu.executable import CpuExecutableNetwork


class CpuPlugin(Plugin):
    """Runs networks on the host's processor."""

    option_type = CpuOptions
    can_export = True

    @property
    def version(self) -> Version:
        """Description and version."""
        return Version("polydevice CPU plugin", 0, 1, "0")

    def device_ids(self, options: Options) -> list[str]:
        """Return the one id there always is."""
        return ["0"]

    def diagnose(self, options: Options, seconds: float) -> list[Section]:
        """Say what the processor is and which oneDNN computes on it."""
        lines = [
            Line("processor", processor.name(), ", ".join(processor.capabilities())),
            Line("cores that this process may use", str(available_cores())),
        ]
        missing = absence()
        lines.append(Line("oneDNN", "not used", missing) if missing else Line("oneDNN", _onednn()))
        return [Section(f"{self.name}: device", tuple(lines))]

    def describe_operation(self, op: type[Op]) -> list[Line]:
        """Say which primitive and which function of NumPy's compute it."""
        from polydevice_cpu.plan.array_steps.start import starter_of

        lines = []
        if (lowering := find_lowering(op)) is not None:
            lines.append(Line("oneDNN", source_place(lowering), _first_line(lowering)))
        if (function := starter_of(op)) is not None:
            lines.append(Line("NumPy", source_place(function), "where oneDNN does not"))
        return lines

    def metrics(self, options: Options, device_id: str) -> dict[str, Any]:
        """Return the metrics of the device."""
        return {
            "FULL_DEVICE_NAME": processor.name,
            "OPTIMIZATION_CAPABILITIES": processor.capabilities,
            "RANGE_FOR_ASYNC_INFER_REQUESTS": (1, 1, 1),
            "RANGE_FOR_STREAMS": lambda: (1, available_cores()),
            "ONEDNN": _onednn,
        }

    def unsupported_nodes(self, network: Network, options: Options) -> dict[str, str]:
        """Return the nodes that nothing here computes."""
        from polydevice_cpu.plan.array_steps.start import has_starter

        return {
            node.name: node.op.hint
            if isinstance(node.op, UnknownOperation)
            else "CPU has no implementation of it"
            for node in network.nodes()
            if not isinstance(node.op, (Parameter, Constant, Result))
            and not has_starter(type(node.op))
        }

    def load_network(
        self,
        network: Network,
        options: Options,
        device_id: str,
        context: RemoteContext | None = None,
    ) -> CpuExecutableNetwork:
        """Compile a network.

        Raises:
            UnsupportedNetworkError: listing every node that nothing here computes; or saying why
                DYN_BATCH_ENABLED is not possible.
            OptionValueError: ENFORCE_BF16 or ENFORCE_F16 on a processor without such products, or
                both.
        """
        from polydevice_cpu.executable import CpuExecutableNetwork  # 70 ms, not for `evaluate`

        assert isinstance(options, CpuOptions)
        refused = self.unsupported_nodes(network, options)
        if refused:
            raise unsupported(network, self.name, refused)
        _check_precision(options)
        executor = self.exclusive_executor() if options.exclusive_async_requests else None
        limit = dynamic_batch_limit(network, self.services) if options.has_dynamic_batch else 0
        loaded = CpuExecutableNetwork(network, options, executor, limit)
        if options.dot_prefix and not network.is_dynamic:
            _write_dot(loaded, options.dot_prefix)
        return loaded

    def import_network(
        self, data: bytes, options: Options, device_id: str, context: RemoteContext | None = None
    ) -> CpuExecutableNetwork:
        """Load what `CpuExecutableNetwork.export` wrote."""
        found = ExportedNetwork.read(self.name, data, self.services.evaluate)
        return self.load_network(found.network, options.over(found.config), device_id)


def _check_precision(options: CpuOptions) -> None:
    if options.enforce_bf16 and options.enforce_f16:
        raise OptionValueError("ENFORCE_BF16=YES and ENFORCE_F16=YES exclude each other; give one")
    for key, wanted, there, kind in (
        ("ENFORCE_BF16", options.enforce_bf16, processor.has_bf16(), "bfloat16"),
        ("ENFORCE_F16", options.enforce_f16, processor.has_f16(), "float16"),
    ):
        if wanted and not there:
            raise OptionValueError(
                f"{key}=YES is not possible on {processor.name()}: "
                + (absence() or f"it has no {kind} instructions")
                + "; leave the key out"
            )


def _onednn() -> str:
    loaded = library()
    return absence() if loaded is None else f"{loaded.version} from {loaded.path}"


def _write_dot(executable: CpuExecutableNetwork, prefix: str) -> None:
    """Write the executed graph for Graphviz.

    Raises:
        OptionValueError: the file cannot be written.
    """
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", executable.name)
    path = Path(f"{prefix}_{name}.dot")
    try:
        path.write_text(as_dot(executable.get_exec_graph_info()), encoding="utf-8")
    except OSError as error:
        raise OptionValueError(
            f"DUMP_EXEC_GRAPH_AS_DOT={prefix!r}: {str(path)!r} cannot be written: {error.strerror}"
        ) from error


def _first_line(function: object) -> str:
    return (function.__doc__ or "").strip().partition("\n")[0]
