"""What a device author implements: `Plugin`, and what the core gives it: `Services`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from polydevice.dataclass import dataclass
from polydevice.dtype import Array
from polydevice.errors import DeviceError, UnknownMetricError, UnsupportedNetworkError, nearest
from polydevice.locks import Lock
from polydevice.ops.unknown import UnknownOperation
from polydevice.runtime.executor import Executor

if TYPE_CHECKING:
    from polydevice.executable_network import ExecutableNetwork
    from polydevice.network import Network
    from polydevice.node import Node
    from polydevice.ops.op import Op
    from polydevice.options import Options
    from polydevice.remote import RemoteContext


@dataclass(frozen=True)
class Version:
    """Version of a plugin, as `Core.get_versions` reports it."""

    description: str
    major: int
    minor: int
    build_number: str


@dataclass(frozen=True)
class DeviceReport:
    """What was found while looking for devices, and what became of it.

    Attributes:
        subject: what the line is about ("OpenCL platform …", "device …", "plugin …").
        status: "available", "left out", "failed", or "found" for what leads to devices (drivers).
        reason: why; empty for an available device.
        fix: what the user can do about it; empty when there is nothing to do.
        device: the device name for an available device ("GPU.0").
    """

    subject: str
    status: str
    reason: str = ""
    fix: str = ""
    device: str = ""


@dataclass(frozen=True)
class Line:
    """One line of `polydevice doctor`.

    Attributes:
        subject: what was asked.
        answer: what it is.
        reason: why, or where it comes from; may be empty.
        fix: what the user can do about it; empty when there is nothing to do.
    """

    subject: str
    answer: str
    reason: str = ""
    fix: str = ""

    @classmethod
    def of_report(cls, report: DeviceReport) -> Line:
        """Return what `Plugin.explain_devices` says as a line."""
        answer = f"{report.status} as {report.device}" if report.device else report.status
        return cls(report.subject, answer, report.reason, report.fix)


@dataclass(frozen=True)
class Section:
    """Lines of `polydevice doctor` about one thing."""

    title: str
    lines: tuple[Line, ...]


_SIMILAR_LIMIT = 50
"""For so many types a message looks for similar names; a file may have any number of types."""


def unsupported(network: Network, device: str, reasons: Mapping[str, str]) -> DeviceError:
    """Make the error for nodes that a device cannot run, grouped by operation.

    Args:
        network: what was to be loaded.
        device: the device's name.
        reasons: node name → why the device cannot run it.
    """
    groups: dict[tuple[str, str, str], list[Node]] = {}
    for node in network.nodes():
        if node.name in reasons:
            key = (node.op.type, node.op.opset, reasons[node.name])
            groups.setdefault(key, []).append(node)
    lines, unknown = [], 0
    for (kind, opset, reason), (node, *others) in groups.items():
        line = f"  {kind} ({opset}), {1 + len(others)} of them, the first {node.name!r}: {reason}"
        if isinstance(node.op, UnknownOperation):
            unknown += 1
            line += node.op.similar() if unknown <= _SIMILAR_LIMIT else ""
        lines.append(line)
    if unknown:
        step = (
            "Define what is not known as operations of a plugin (docs/adding-an-operator.md), or "
            "give GPU kernels for it in a CONFIG_FILE (docs/custom-layers.md)."
        )
    elif device.partition(".")[0] == "CPU":
        step = "Define them as operations of a plugin (docs/adding-an-operator.md)."
    else:
        step = f"Load the network on 'HETERO:{device},CPU' to run these nodes on the CPU."
    return UnsupportedNetworkError(
        f"{device} cannot run {len(reasons)} of the {len(network.nodes())} nodes of "
        f"{network.name!r}:\n" + "\n".join(lines) + f"\n{step}"
    )


class Services(Protocol):
    """What the core offers to plugins; plugins never import one another."""

    @property
    def available_devices(self) -> list[str]:
        """Names of the devices that can be used now."""

    def evaluate(self, op: Op, inputs: Sequence[Array]) -> list[Array] | None:
        """Compute one operation on host arrays; None when nothing here can."""

    def load_network(
        self, network: Network, device_name: str, config: Mapping[str, Any] | None = None
    ) -> ExecutableNetwork:
        """Load a network on another device."""

    def import_network(
        self, data: bytes, device_name: str, config: Mapping[str, Any] | None = None
    ) -> ExecutableNetwork:
        """Load what another device exported."""

    def unsupported_nodes(
        self, network: Network, device_name: str, config: Mapping[str, Any] | None = None
    ) -> dict[str, str]:
        """Return node name → reason for the nodes that a device cannot run."""

    def option_keys(self, device_name: str) -> list[str]:
        """Return the configuration keys that a device knows."""

    def get_metric(self, device_name: str, name: str) -> Any:
        """Return a metric of another device."""


class Plugin(ABC):
    """One family of devices, such as all OpenCL GPUs of the machine.

    Made once per `Core`, on first use of the family. Everything expensive (device libraries,
    looking for devices) belongs in the methods. All methods may be called from any thread.
    """

    option_type: ClassVar[type[Options]]
    """The configuration keys, as an `Options` model."""
    can_export: ClassVar[bool] = False
    """Whether its networks can be exported and imported, so that the core may cache them."""

    has_contexts: ClassVar[bool] = False
    """Whether it has contexts, in which networks and blobs share the device's memory."""

    members_key: ClassVar[str] = ""
    """The configuration key that lists the members of a composite device, such as HETERO, whose
    name takes them too: "HETERO:GPU,CPU". Empty for devices that have none."""

    def __init__(self, name: str, services: Services) -> None:
        """Keep the family's name and what the core offers."""
        self.name = name
        self.services = services
        self._exclusive: Executor | None = None
        self._making = Lock()

    @property
    def is_composite(self) -> bool:
        """Whether the device consists of others and is none of its own."""
        return bool(self.members_key)

    @property
    @abstractmethod
    def version(self) -> Version:
        """Description and version of the plugin."""

    @abstractmethod
    def device_ids(self, options: Options) -> list[str]:
        """Return the ids of the devices of this family that can be used now; may be empty."""

    @abstractmethod
    def unsupported_nodes(self, network: Network, options: Options) -> dict[str, str]:
        """Return node name → reason for every node that the device cannot run."""

    def query_network(self, network: Network, options: Options, device_id: str) -> dict[str, str]:
        """Return node name → device name for every node that the device can run."""
        refused = self.unsupported_nodes(network, options)
        name = f"{self.name}.{device_id}" if device_id else self.name
        return {node.name: name for node in network.nodes() if node.name not in refused}

    @abstractmethod
    def load_network(
        self,
        network: Network,
        options: Options,
        device_id: str,
        context: RemoteContext | None = None,
    ) -> ExecutableNetwork:
        """Compile a network for a device.

        Args:
            network: the plugin's own copy: shapes are inferred, input and output settings are part
                of the graph.
            options: the configuration.
            device_id: "" when the user named only the family.
            context: whose device and memory to use; None except where `has_contexts`, and there
                for the device's own.

        Raises:
            UnsupportedNetworkError: listing every node that the device cannot run.
            DeviceError: for a context of another plugin.
        """

    def import_network(
        self, data: bytes, options: Options, device_id: str, context: RemoteContext | None = None
    ) -> ExecutableNetwork:
        """Load what ``ExecutableNetwork.export`` of this plugin wrote; see `load_network`."""
        raise DeviceError(f"{self.name} cannot import networks; read the model again instead")

    def context(
        self, options: Options, device_id: str, params: Mapping[str, Any] | None = None
    ) -> RemoteContext:
        """Make a context of the user's objects; asked only where `has_contexts`.

        Args:
            options: the configuration.
            device_id: "" when the user named only the family.
            params: what the context is made of; None for the context of networks that are loaded by
                the device's name.

        Raises:
            UnknownOptionError: for a parameter that does not exist.
            OptionValueError: for a parameter that is missing or not legal.
        """
        raise DeviceError(f"{self.name} has no contexts")

    def explain_devices(self, options: Options) -> list[DeviceReport]:
        """Say what was found while looking for devices, and why things were left out."""
        return [
            DeviceReport(f"device {self.name}.{i}", "available", device=f"{self.name}.{i}")
            for i in self.device_ids(options)
        ]

    def diagnose(self, options: Options, seconds: float) -> list[Section]:
        """Say all that a bug report should hold about the devices and what they depend on.

        Args:
            options: the device family's configuration.
            seconds: how long it may take.
        """
        lines = tuple(map(Line.of_report, self.explain_devices(options)))
        return [Section(f"{self.name}: devices", lines)]

    def describe_operation(self, op: type[Op]) -> list[Line]:
        """Say how the device runs an operation and in which files that is written, best way first.

        Each line's subject is the way ("kernel softmax_held", "decomposed", "host"), its answer the
        file, and its reason when that way is taken; empty for an operation that it cannot run.
        """
        return []

    def merge_tuning(self, files: Sequence[Path], output: Path) -> int:
        """Merge files of tuned kernels into one; return how many choices that has.

        Of a layer that several have, the choice that was measured to be the fastest stays.

        Raises:
            DeviceError: the device has no such files.
            OptionValueError: a file is missing or broken, or the output cannot be written.
        """
        raise DeviceError(f"{self.name} has no tuning files")

    def metrics(self, options: Options, device_id: str) -> dict[str, Any]:
        """Return the metrics of a device: name → value, or name → function that computes it."""
        return {}

    def get_metric(self, name: str, options: Options, device_id: str) -> Any:
        """Return one metric of a device.

        Raises:
            UnknownMetricError: naming the ones that exist.
        """
        known: dict[str, Any] = {
            "AVAILABLE_DEVICES": lambda: self.device_ids(options),
            "SUPPORTED_CONFIG_KEYS": self.option_type.keys,
            **self.metrics(options, device_id),
        }
        known["SUPPORTED_METRICS"] = [*known, "SUPPORTED_METRICS"]
        if name not in known:
            raise UnknownMetricError(
                f"{self.name} has no metric {name!r}.{nearest(name, known)} "
                f"Legal: {', '.join(known)}"
            )
        value = known[name]
        return value() if callable(value) else value

    def identity(self, options: Options, device_id: str) -> str:
        """Return what a device and its driver are called: what was measured holds for these."""
        try:
            name = str(self.get_metric("FULL_DEVICE_NAME", options, device_id))
        except UnknownMetricError:
            name = f"{self.name}.{device_id}"
        return f"{name}, {self.version}"

    def exclusive_executor(self) -> Executor:
        """Return the thread that networks with EXCLUSIVE_ASYNC_REQUESTS share; made once."""
        with self._making:
            if self._exclusive is None:
                self._exclusive = Executor(f"{self.name}:exclusive", 1)
            return self._exclusive

    def close(self) -> None:
        """Release what the plugin holds; its networks are closed already."""

    def _close(self, end: float) -> None:
        """End the shared thread, waiting until `end` at most, and close."""
        with self._making:
            executor, self._exclusive = self._exclusive, None
        if executor is not None:
            executor.close(end)
        self.close()
