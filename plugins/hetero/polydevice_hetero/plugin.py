"""HeteroPlugin: places the nodes of a network on its members and loads the parts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from polydevice.bounds import Bounds, enter_bounds, network_budget
from polydevice.dataclass import dataclass
from polydevice.device_name import DeviceName
from polydevice.errors import (
    DeviceError,
    DeviceNotFoundError,
    ModelFormatError,
    PolydeviceError,
    UnknownMetricError,
    UnsupportedNetworkError,
)
from polydevice.executable_network import ExecutableNetwork
from polydevice.exported import ExportedNetwork
from polydevice.network import Network
from polydevice.node import Node
from polydevice.options import Options
from polydevice.options.composite import check_member_keys, config_for
from polydevice.passes.constant_folding import constant_folding
from polydevice.passes.lower_state import Variable, lower_state
from polydevice.plugin import Plugin, Version
from polydevice.remote import RemoteContext
from polydevice_hetero.affinity import (
    AFFINITY,
    Assignment,
    assign,
    claims,
    is_follower,
    place_followers,
)
from polydevice_hetero.cost import choose, compare, estimate
from polydevice_hetero.dot import write_dot
from polydevice_hetero.executable import MEMBERS, PART, HeteroExecutable
from polydevice_hetero.options import HeteroOptions
from polydevice_hetero.room import SHARE, make_room, parse_memory, weight_bytes
from polydevice_hetero.split import Subgraph, split


@dataclass(frozen=True)
class _Pieces:
    """What every placement of one network starts from.

    Attributes:
        whole: the network as the user gave it.
        network: the same with constants folded and variables made inputs and outputs.
        options: the configuration.
        variables: what a request carries from one inference to the next.
        exports: parts that members exported before.
    """

    whole: Network
    network: Network
    options: HeteroOptions
    variables: Sequence[Variable]
    exports: Mapping[str, bytes]

    def cut(self, placed: Mapping[Node, Assignment]) -> list[Subgraph]:
        """Cut the network where devices change."""
        starts = [v.initial for v in self.variables if v.initial is not None]
        return split(self.network, lambda node: placed[node].device, starts)


class HeteroPlugin(Plugin):
    """One network over several devices, reached through the core."""

    option_type = HeteroOptions
    members_key = "TARGET_FALLBACK"
    can_export = True

    @property
    def version(self) -> Version:
        """Return the plugin's version."""
        return Version("heteroPlugin", 2, 1, "polydevice")

    def device_ids(self, options: Options) -> list[str]:
        """Return nothing: HETERO is no device of its own."""
        return []

    def metrics(self, options: Options, device_id: str) -> dict[str, Any]:
        """Return the plugin's metrics."""
        return {"FULL_DEVICE_NAME": "HETERO", "IMPORT_EXPORT_SUPPORT": True}

    def unsupported_nodes(self, network: Network, options: Options) -> dict[str, str]:
        """Return the nodes that no member can run."""
        assert isinstance(options, HeteroOptions)
        members = self._members(options)
        refused = [self._refused(network, member, options) for member in members]
        return {
            name: "; ".join(f"{m}: {r[name]}" for m, r in zip(members, refused))
            for name in refused[0]
            if all(name in others for others in refused)
        }

    def query_network(self, network: Network, options: Options, device_id: str) -> dict[str, str]:
        """Return node name → the member, as it was named, that would be given the node."""
        assert isinstance(options, HeteroOptions)
        members = self._members(options)
        refused = {member: self._refused(network, member, options) for member in members}
        return claims(network, members, refused)

    def load_network(
        self,
        network: Network,
        options: Options,
        device_id: str,
        context: RemoteContext | None = None,
    ) -> ExecutableNetwork:
        """Place, cut, and load every part on its member.

        Raises:
            UnsupportedNetworkError: listing nodes that no member can run.
            UnknownOptionError: for a configuration key that neither HETERO nor a member knows.
        """
        return self._load(network, options, {})

    def import_network(
        self, data: bytes, options: Options, device_id: str, context: RemoteContext | None = None
    ) -> ExecutableNetwork:
        """Load what `HeteroExecutable.export` wrote: the same cut, the members' own exports.

        Raises:
            ModelFormatError: the bytes are damaged, or from another version.
        """
        found = ExportedNetwork.read(self.name, data, self.services.evaluate)
        content = dict(found.extra)
        try:
            members = json.loads(content.pop(MEMBERS, b"{}"))
        except ValueError as error:
            raise ModelFormatError(f"the exported network is not consistent: {error}") from None
        kept = options.over(found.config).updated({**members, **_forwarded(options)})
        return self._load(found.network, kept, content)

    def _load(
        self, network: Network, options: Options, exports: Mapping[str, bytes]
    ) -> ExecutableNetwork:
        """Place, cut and load; a part that a member exported before is imported instead."""
        assert isinstance(options, HeteroOptions)
        members = self._members(options)
        check_member_keys("HETERO", members, options, self.services)
        whole = network.clone()
        constant_folding(network, self.services.evaluate)
        variables = lower_state(network)
        manual = any(AFFINITY in node.rt_info for node in network.nodes())
        refused = {} if manual else {m: self._refused(network, m, options) for m in members}
        placed = assign(network, members, refused)
        pieces = _Pieces(whole, network, options, variables, exports)
        if manual:
            return self._assembled(pieces, placed)
        fitting = self._in_room(network, placed, members, refused, options)
        if options.affinity == "COST" and fitting is placed:
            return self._quickest(pieces, placed, members, refused)
        return self._assembled(pieces, fitting)

    def _in_room(
        self,
        network: Network,
        placed: dict[Node, Assignment],
        members: Sequence[str],
        refused: Mapping[str, Mapping[str, str]],
        options: HeteroOptions,
    ) -> dict[Node, Assignment]:
        """Return the placement itself where the weights fit, else one over further members."""
        limits = parse_memory(options.memory, members)
        for member in members:
            try:
                size = int(self.services.get_metric(member, "GPU_DEVICE_TOTAL_MEM_SIZE"))
            except (UnknownMetricError, DeviceError):
                continue
            limits.setdefault(member, int(size * SHARE))
        if not limits or weight_bytes(network) <= min(limits.values()):
            return placed
        made = make_room(network, placed, members, refused, limits)
        place_followers(network, made, members[0])
        return made

    def _quickest(
        self,
        pieces: _Pieces,
        placed: dict[Node, Assignment],
        members: Sequence[str],
        refused: Mapping[str, Mapping[str, str]],
    ) -> HeteroExecutable:
        """Load the network as `placed`, or as measuring says, whichever infers in less time."""
        network, options = pieces.network, pieces.options

        def able(nodes: Sequence[Node]) -> list[str]:
            return [m for m in members if not any(n.name in refused[m] for n in nodes)]

        def load(part: Network, member: str) -> ExecutableNetwork:
            config = config_for(member, options, self.services)
            return self.services.load_network(part, member, config)

        subgraphs = pieces.cut(placed)
        estimates = estimate(subgraphs, lambda part: able(part.nodes), load)
        chosen = choose(subgraphs, placed, estimates)
        plans = {"as by FIRST": {n: Assignment(placed[n].device, chosen[n].reason) for n in placed}}
        plans["by parts"] = chosen
        computing = [node for node in network.nodes() if not is_follower(node)]
        for member in able(computing):
            whole = {n: Assignment(member, chosen[n].reason) for n in computing}
            plans[f"all on {member}"] = whole
        return self._best(pieces, plans, members[0])

    def _best(
        self, pieces: _Pieces, plans: Mapping[str, dict[Node, Assignment]], default: str
    ) -> HeteroExecutable:
        """Load every plan, the first of which is the default, and keep the quickest.

        Each is measured beside the quickest one before, by turns with it.
        """
        found: HeteroExecutable | None = None
        times: dict[str, float] = {}
        tried: list[list[str]] = []
        best = ""
        for name, plan in plans.items():
            computing = {n: where for n, where in plan.items() if not is_follower(n)}
            devices = [where.device for where in computing.values()]
            if devices in tried:
                continue
            tried.append(devices)
            place_followers(pieces.network, computing, default)
            try:
                made = self._assembled(pieces, computing)
            except PolydeviceError:
                if found is None:
                    raise
                continue  # the default works
            if found is None:
                found, best = made, name
                continue
            taken, leads = compare(found, made)
            times |= dict(zip([best, name], taken or [], strict=False))
            (found if leads else made).close()
            if leads:
                found, best = made, name
        assert found is not None
        found.explain_choice(times)
        return found

    def _assembled(self, pieces: _Pieces, placed: Mapping[Node, Assignment]) -> HeteroExecutable:
        """Cut, and load every part on its member."""
        options = pieces.options
        subgraphs = pieces.cut(placed)
        if options.dump_graph_dot:
            write_dot(pieces.network, placed, subgraphs)
        parts: list[ExecutableNetwork] = []
        members = self._members(options)
        name = pieces.whole.name
        memory = network_budget(options.memory_limit, f"network {name!r} on {self.name}")
        entered = enter_bounds(Bounds(memory=memory))  # of all parts together
        try:
            for index, part in enumerate(subgraphs):
                config = config_for(part.device, options, self.services)
                known = pieces.exports.get(f"{PART}{index}")
                if known is not None:
                    parts.append(self.services.import_network(known, part.device, config))
                else:
                    parts.append(self.services.load_network(part.network, part.device, config))
                _check_inputs(part, parts[-1])
        except BaseException:
            for executable in parts:
                executable.close()
            raise
        else:
            return HeteroExecutable(
                pieces.whole,
                pieces.network,
                _name(members),
                options,
                subgraphs,
                parts,
                placed,
                pieces.variables,
            )
        finally:
            enter_bounds(entered)

    def _members(self, options: HeteroOptions) -> list[str]:
        if not options.target_fallback:
            raise DeviceNotFoundError(
                "HETERO needs members: name them, as in 'HETERO:GPU,CPU', or set TARGET_FALLBACK"
            )
        return [str(m) for m in DeviceName.parse(f"HETERO:{options.target_fallback}").members]

    def _refused(self, network: Network, member: str, options: HeteroOptions) -> dict[str, str]:
        """Return node name → reason; a member that cannot tell is not given any."""
        config = config_for(member, options, self.services)
        try:
            return self.services.unsupported_nodes(network, member, config)
        except UnsupportedNetworkError as error:
            return {node.name: str(error).partition("\n")[0] for node in network.nodes()}


def _forwarded(options: Options) -> dict[str, Any]:
    assert isinstance(options, HeteroOptions)
    return options.member_config


def _check_inputs(part: Subgraph, executable: ExecutableNetwork) -> None:
    """Refuse configurations by which a member gives its part other inputs.

    Raises:
        DeviceError: naming both.
    """
    if executable.inputs.keys() != part.sources.keys():
        raise DeviceError(
            f"{part.device} loaded a part of the network with the inputs "
            f"{', '.join(executable.inputs)} instead of {', '.join(part.sources)}; leave out the "
            f"configuration of {part.device} that does so (GPU_NV12_TWO_INPUTS, for example)"
        )


def _name(members: Sequence[str]) -> str:
    return f"HETERO:{','.join(members)}"
