"""sharing: which values stay in the memory of a device, because its parts alone need them there."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.errors import DeviceError
from polydevice.executable_network import ExecutableNetwork
from polydevice.node import Port
from polydevice.passes.lower_state import Variable
from polydevice.remote import RemoteContext
from polydevice_hetero.split import Subgraph


class Sharing:
    """Who computes and reads each value, and where it need not leave a device.

    Attributes:
        contexts: of each part, None where it uses host memory.
        producers: value → part that computes it, and the name of that part's output.
        readers: value → parts that read it.
        kept: values of `producers` that are read, or carried on as variables, in the memory in
            which they are computed.
        uploads: values of the host that several parts with one memory read → context of these.
        variables: names of the variables whose value is carried on in device memory.
    """

    def __init__(
        self,
        subgraphs: Sequence[Subgraph],
        parts: Sequence[ExecutableNetwork],
        variables: Sequence[Variable],
    ) -> None:
        """Work it out for a loaded network."""
        self.contexts = [_context(part) for part in parts]
        self.producers: dict[Port, tuple[int, str]] = {}
        self.readers: dict[Port, list[int]] = {}
        for index, part in enumerate(subgraphs):
            self.producers.update({port: (index, name) for name, port in part.targets.items()})
            for port in part.sources.values():
                self.readers.setdefault(port, []).append(index)
        self.kept: set[Port] = set()
        self.uploads: dict[Port, RemoteContext] = {}
        for port in self.readers:
            if self._sharers(port, port):
                self.kept.add(port)
            elif (context := self._common(port)) is not None:
                self.uploads[port] = context
        assigned = [variable.assigned for variable in variables]
        self.variables: set[str] = set()
        for variable in variables:
            first, following = variable.initial, variable.assigned
            if first is not None and self._sharers(first, variable.read):
                self.kept.add(first)
            if following is None or assigned.count(following) > 1:  # each needs memory of its own
                continue
            if self._sharers(following, variable.read):
                self.kept.add(following)
                self.variables.add(variable.name)

    def takes(self, index: int, context: RemoteContext) -> bool:
        """Whether a part can use blobs of a context."""
        own = self.contexts[index]
        return own is not None and own.shares_memory_with(context)

    def crosses(self, port: Port, reader: int) -> bool:
        """Whether a value that one part computes and another reads passes through the host."""
        context = self.contexts[self.producers[port][0]]
        return port not in self.kept or context is None or not self.takes(reader, context)

    def _sharers(self, port: Port, read: Port) -> list[int]:
        """Return the parts that can read one value in the memory where another is computed."""
        if port not in self.producers:
            return []
        context = self.contexts[self.producers[port][0]]
        if context is None or not context.holds(port.element_type):
            return []
        return [index for index in self.readers.get(read, []) if self.takes(index, context)]

    def _common(self, port: Port) -> RemoteContext | None:
        """Return a context whose memory several readers of a value share."""
        if port.desc.kind != "tensor":
            return None
        for index in self.readers[port]:
            context = self.contexts[index]
            if context is None or not context.holds(port.element_type):
                continue
            if sum(self.takes(other, context) for other in self.readers[port]) > 1:
                return context
        return None

    @property
    def devices_in_use(self) -> list[RemoteContext]:
        """One context for each memory that parts use besides the host's."""
        found: list[RemoteContext] = []
        for context in self.contexts:
            if context is not None and not any(c.shares_memory_with(context) for c in found):
                found.append(context)
        return found


def _context(part: ExecutableNetwork) -> RemoteContext | None:
    try:
        return part.get_context()
    except DeviceError:
        return None
