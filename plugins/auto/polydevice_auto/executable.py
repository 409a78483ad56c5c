"""SharedExecutable: a network that several devices can run, each as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from polydevice.errors import DeviceError, UnknownOptionError
from polydevice.executable_network import ExecutableNetwork
from polydevice.inspection.placement import Placement
from polydevice.network import Network
from polydevice.options import Options
from polydevice.runtime.follower import Follower
from polydevice_auto.member import Member
from polydevice_auto.runner import SharedRunner
from polydevice_auto.schedule import Schedule


class SharedExecutable(ExecutableNetwork):
    """A network loaded on several devices, one of which runs each request.

    Attributes:
        schedule: chooses the device.
        has_variables: whether requests keep values on their device from one inference to the next.
        notes: what was decided when the network was loaded, and why; one line each.
    """

    survives_fork = True  # as far as its members do, which are asked

    def __init__(
        self,
        network: Network,
        device: str,
        options: Options,
        schedule: Schedule,
        notes: Sequence[str],
        streams: int,
    ) -> None:
        """Take over what was loaded; see the class for the arguments."""
        super().__init__(network, device, options, streams=streams)
        self.schedule = schedule
        self.has_variables = has_variables(network)
        self.notes = list(notes)

    def create_runner(self) -> SharedRunner:
        """Make what runs one request on any of the devices."""
        return SharedRunner(self)

    def ran(self, runner: SharedRunner, member: Member) -> None:
        """Called after every inference, with the device that ran it or failed to."""

    def freed(self, member: Member) -> None:
        """Called then, when the device may run something else."""

    def follow(self, follower: Follower) -> None:
        """Tell a follower of inferences, and of what runs on the devices."""
        super().follow(follower)
        for member in self.schedule.working:
            member.executable.follow(follower)

    def leave(self, follower: Follower) -> None:
        """Tell a follower nothing more."""
        super().leave(follower)
        for member in self.schedule.members:
            member.executable.leave(follower)

    def export(self) -> bytes:
        """Refuse: where the network is imported, other devices may be there, or be chosen.

        Raises:
            DeviceError: always, naming the devices that export what they compiled.
        """
        devices = ", ".join(member.device for member in self.schedule.working)
        raise DeviceError(
            f"{self.device} does not export networks, since it chooses devices when it loads one. "
            f"Load the network on one of {devices} and export that; CACHE_DIR keeps what members "
            "compile as it is"
        )

    def get_exec_graph_info(self) -> Network:
        """Return the graph that the preferred device runs."""
        return self._preferred.executable.get_exec_graph_info()

    def explain(self) -> str:
        """Say which devices run the network and why, then what became of each layer there."""
        members = self.schedule.members
        texts = ["\n".join([*self.notes, *(member.describe() for member in members)])]
        for member in self.schedule.working:
            try:
                layers = member.executable.explain()
            except DeviceError as error:  # with dynamic shapes, before the first inference
                layers = str(error)
            texts.append(f"\non {member.device}:\n{layers}")
        return "\n".join(texts)

    def placement(self) -> list[Placement]:
        """Say for every node on which devices it runs, and why."""
        devices = ",".join(member.executable.device for member in self.schedule.working)
        reason = f"{self.device} runs the whole network there: {'; '.join(self.notes)}"
        return [replace(row, device=devices, reason=reason) for row in super().placement()]

    def get_config(self, key: str) -> str:
        """Return the value of a key of its own, or of the first device that knows the key."""
        try:
            return super().get_config(key)
        except UnknownOptionError:
            for member in self.schedule.members:
                known = member.executable.get_metric("SUPPORTED_CONFIG_KEYS")
                if key.removeprefix("KEY_") in known:
                    return member.executable.get_config(key)
            raise

    def metrics(self) -> dict[str, Any]:
        """Return which devices run the network, and how many inferences each ran."""
        working = self.schedule.working
        return {
            "OPTIMAL_NUMBER_OF_INFER_REQUESTS": self._optimal(working),
            "EXECUTION_DEVICES": [member.executable.device for member in working],
            "INFERENCES": {m.device: m.inferences for m in self.schedule.members},
            "EXPLANATION": "\n".join(self.notes),
        }

    def _optimal(self, working: Sequence[Member]) -> int:
        return max(1, sum(member.slots for member in working))

    @property
    def _preferred(self) -> Member:
        return (self.schedule.working or self.schedule.members)[0]

    def release(self) -> None:
        """Close the devices' networks, which nothing runs any more."""
        for member in self.schedule.members:
            member.close(self.closing_end)


def has_variables(network: Network) -> bool:
    """Whether a network keeps values from one inference to the next."""
    return any(node.type in ("ReadValue", "Assign") for node in network.nodes())
