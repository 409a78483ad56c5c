"""HeteroExecutable: the loaded parts of a network, in the order in which they run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from polydevice.errors import DeviceError, UnknownOptionError
from polydevice.exec_graph import ExecutedGraph, Execution
from polydevice.executable_network import ExecutableNetwork
from polydevice.exported import export_network
from polydevice.inspection.placement import Placement, bytes_of
from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.passes.lower_state import Variable
from polydevice.remote import RemoteContext
from polydevice.runtime.follower import Follower
from polydevice_hetero.affinity import AFFINITY, Assignment
from polydevice_hetero.options import HeteroOptions
from polydevice_hetero.runner import HeteroRunner
from polydevice_hetero.sharing import Sharing
from polydevice_hetero.split import Subgraph

PART, MEMBERS = "part", "members"
"""Names of the sections of an exported network: each member's export, and the members' keys."""


class HeteroExecutable(ExecutableNetwork):
    """A network cut over several devices.

    Its streams let one request run on a device while the next runs on another.
    """

    survives_fork = True  # as far as its parts do, which are asked

    def __init__(
        self,
        whole: Network,
        network: Network,
        device: str,
        options: HeteroOptions,
        subgraphs: Sequence[Subgraph],
        parts: Sequence[ExecutableNetwork],
        placed: Mapping[Node, Assignment],
        variables: Sequence[Variable],
    ) -> None:
        """Take over the loaded parts.

        Args:
            whole: the network as the user gave it.
            network: the same with constants folded and variables made inputs and outputs.
            device: "HETERO:GPU,CPU".
            options: the configuration.
            subgraphs: the parts, in running order.
            parts: the parts, loaded.
            placed: node of `network` → where it runs and why.
            variables: what a request carries from one inference to the next.
        """
        streams = 1 if options.exclusive_async_requests else max(2, len(parts))
        super().__init__(whole, device, options, streams=streams)
        self._whole = whole
        self.subgraphs = list(subgraphs)
        self.parts = list(parts)
        self.variables = list(variables)
        self.sharing = Sharing(subgraphs, parts, variables)
        self._to_run: dict[frozenset[str], list[int]] = {}
        self.sources: dict[str, Port] = dict(
            zip(self.output_keys, (port for _, port in network.output_ports()))
        )
        self.parameters = {node.name: node.output for node in network.parameters}
        self.results = dict(network.output_ports())
        self.has_fixed_inputs = all(port.sizes is not None for port in self.inputs.values())
        self._placement = _placement(whole, network, placed, subgraphs, self.sharing)

    def explain_choice(self, times: Mapping[str, float]) -> None:
        """Add to every reason how long placements of the whole network took, in milliseconds."""
        text = ", ".join(f"{taken:.3g} ms {name}" for name, taken in times.items())
        self._placement = [
            replace(row, reason=f"{row.reason}; whole network: {text}")
            if text and row.subgraph is not None
            else row
            for row in self._placement
        ]

    def create_runner(self) -> HeteroRunner:
        """Make what runs the parts for one request."""
        return HeteroRunner(self)

    def follow(self, follower: Follower) -> None:
        """Tell a follower of inferences, and of what runs in the parts."""
        for part in self.parts:
            part.follow(follower)
        super().follow(follower)

    def leave(self, follower: Follower) -> None:
        """Tell a follower nothing more."""
        super().leave(follower)
        for part in self.parts:
            part.leave(follower)

    def parts_to_run(self, starting: frozenset[str]) -> list[int]:
        """Return the parts that an inference needs, in order.

        Args:
            starting: names of the variables whose first value is to be computed; what computes
                the first values of others alone does not run.
        """
        if starting not in self._to_run:
            wanted = set(self.sources.values())
            for variable in self.variables:
                wanted.update([variable.assigned] if variable.assigned is not None else [])
                if variable.name in starting and variable.initial is not None:
                    wanted.add(variable.initial)
            found: list[int] = []
            for index in reversed(range(len(self.subgraphs))):
                part = self.subgraphs[index]
                if part.network.sinks or not wanted.isdisjoint(part.targets.values()):
                    wanted.update(part.sources.values())
                    found.append(index)
            self._to_run[starting] = found[::-1]
        return self._to_run[starting]

    def placement(self) -> list[Placement]:
        """Say for every node on which device it runs, why, and what crosses to reach it."""
        return self._placement

    def get_exec_graph_info(self) -> Network:
        """Return what the parts run, joined; every node notes its `subgraph` and `device`.

        Raises:
            DeviceError: a part cannot describe what it runs (yet).
        """
        made = ExecutedGraph()
        ports: dict[Port, Port] = {}
        for name, port in self.parameters.items():
            precision = [port.element_type.precision]
            execution = Execution("input", [name], precisions=precision)
            ports[port] = made.input(name, port.desc.without_value(), execution)
        for index in self.parts_to_run(frozenset(variable.name for variable in self.variables)):
            part = self.subgraphs[index]
            graph = self.parts[index].get_exec_graph_info()
            sources = {name: ports[port] for name, port in part.sources.items()}
            where = {"subgraph": str(index), "device": part.device}
            found = made.include(graph, f"subgraph{index}: ", sources, where)
            ports.update({port: found[name] for name, port in part.targets.items()})
        for name, port in self.sources.items():
            if port not in ports:  # known at load
                (ports[port],) = made.layer(
                    name, "Const", [], [port.desc.without_value()], Execution()
                )
            made.output(name, ports[port])
        return made.network("runtime_hetero_graph")

    def explain(self) -> str:
        """Say where each layer runs and why, then what became of it there.

        Raises:
            DeviceError: a part cannot explain what it runs (yet).
        """
        texts = [super().explain()]
        for index, (part, loaded) in enumerate(zip(self.subgraphs, self.parts, strict=True)):
            texts.append(f"\nsubgraph{index} on {part.device}:\n{loaded.explain()}")
        return "\n".join(texts)

    def get_config(self, key: str) -> str:
        """Return the value of a key of HETERO, or of the first part that knows the key."""
        try:
            return super().get_config(key)
        except UnknownOptionError:
            for part in self.parts:
                if key.removeprefix("KEY_") in part.get_metric("SUPPORTED_CONFIG_KEYS"):
                    return part.get_config(key)
            raise

    def get_context(self) -> RemoteContext:
        """Return the context of the one device with contexts that takes part.

        Raises:
            DeviceError: no such device, or several, takes part.
        """
        found = self.sharing.devices_in_use
        if not found:
            raise DeviceError(
                f"no part of {self.name!r} on {self.device} runs on a device with contexts; "
                "its inputs and outputs are host memory"
            )
        if len(found) > 1:
            names = ", ".join(context.device_name for context in found)
            raise DeviceError(
                f"the parts of {self.name!r} are in {len(found)} contexts ({names}), none of which "
                "is that of the network; use core.get_default_context() of a device"
            )
        return found[0]

    def export(self) -> bytes:
        """Return the network with its placement, and what each member exports of its part.

        A member that cannot export loads its part again when the network is imported.
        """
        assert isinstance(self.options, HeteroOptions)
        annotated = self._whole.clone()
        devices = {row.node: row.device for row in self._placement}
        for node in annotated.nodes():
            node.rt_info[AFFINITY] = devices[node.name] or self.subgraphs[0].device
        extra = {MEMBERS: json.dumps(self.options.member_config, default=str).encode()}
        for index, part in enumerate(self.parts):
            try:
                extra[f"{PART}{index}"] = part.export()
            except DeviceError:
                continue  # it has no export; importing compiles this part
        return export_network("HETERO", annotated, self.options, extra)

    def release(self) -> None:
        """Close the parts, which nothing runs any more."""
        for part in self.parts:
            part.close_by(self.closing_end)


def _placement(
    whole: Network,
    network: Network,
    placed: Mapping[Node, Assignment],
    subgraphs: Sequence[Subgraph],
    sharing: Sharing,
) -> list[Placement]:
    number = {node: i for i, part in enumerate(subgraphs) for node in part.nodes}
    by_name = {node.name: node for node in network.nodes()}
    rows: list[Placement] = []
    for node in whole.nodes():
        inner = by_name.get(node.name)
        if inner is None:
            rows.append(Placement(node.name, node.type, "", "computed when the network was loaded"))
            continue
        crossing = [
            bytes_of(port.desc)
            for port in dict.fromkeys(inner.inputs)
            if inner in number
            and number.get(port.node, number[inner]) != number[inner]
            and sharing.crosses(port, number[inner])
        ]
        known = [size for size in crossing if size is not None]
        rows.append(
            Placement(
                node.name,
                node.type,
                placed[inner].device,
                placed[inner].reason,
                number.get(inner),
                sum(known) if len(known) == len(crossing) else None,
            )
        )
    return rows
