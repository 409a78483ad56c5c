"""HeteroRunner: runs the parts one after another and hands values from one to the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from polydevice.blob import Blob
from polydevice.dtype import Array
from polydevice.errors import BlobError, InferenceError, PolydeviceError
from polydevice.node import Port
from polydevice.passes.lower_state import zeros
from polydevice.profiling import LayerCount
from polydevice.remote import Copies, RemoteBlob
from polydevice.runtime.overlap import host_arrays
from polydevice.runtime.port_info import PortInfo
from polydevice.runtime.runner import Runner
from polydevice_hetero.state import HeteroVariable
from polydevice_hetero.values import Value, Values

if TYPE_CHECKING:
    from polydevice_hetero.executable import HeteroExecutable


class HeteroRunner(Runner):
    """One inference over all parts.

    Values pass between parts on one device as blobs in its memory, in place, and between others as
    host blobs, shared and not copied; a device that keeps its values elsewhere copies on its side.
    """

    executable: HeteroExecutable

    def __init__(self, executable: HeteroExecutable) -> None:
        """Make one request of every part."""
        super().__init__(executable)
        self.parts = [part.create_infer_request() for part in executable.parts]
        for part in self.parts:
            part.runner.is_part = True
        self._variables = [HeteroVariable(v) for v in executable.variables]
        self._values = Values()
        self._copies = Copies()
        self._ran: set[int] = set()
        self._given: dict[str, Array] = {}  # the outputs' memory, where the user set none
        for port in executable.sharing.kept:
            index, target = executable.sharing.producers[port]
            self.parts[index].keep_on_device(target)

    def variables(self) -> Sequence[HeteroVariable]:
        """Return the variables that are kept between inferences."""
        return self._variables

    @property
    def copies(self) -> Copies:
        """What the last inference copied, in all parts and between them."""
        return self._copies + self._values.copies

    # -- device memory ------------------------------------------------------------------------

    def check_remote(self, port: PortInfo, blob: RemoteBlob) -> None:
        """Refuse memory that no part which reads or writes it can use."""
        sharing = self.executable.sharing
        if port.kind == "input":
            users = sharing.readers.get(self.executable.parameters[port.name], [])
        else:
            producer = sharing.producers.get(self.executable.sources[port.key])
            users = [] if producer is None else [producer[0]]
        able = [index for index in users if sharing.takes(index, blob.context)]
        if not able:
            word = "read" if port.kind == "input" else "computed"
            where = [self.executable.subgraphs[index].device for index in users]
            raise BlobError(
                f"{port.kind} {port.name!r} cannot be {blob!r}: it is {word} on "
                f"{', '.join(dict.fromkeys(where)) or 'the host'}, outside of the blob's context. "
                "Use host memory for it, or a blob of executable.get_context()"
            )
        for index in able:
            self.parts[index].runner.check_remote(port, blob)

    def bind(self, name: str, blob: Blob) -> None:
        """Tell the parts about device memory."""
        before = self.blobs.get(name)
        super().bind(name, blob)
        if blob is before or not (isinstance(blob, RemoteBlob) or isinstance(before, RemoteBlob)):
            return
        sources = self.executable.sources
        for output in [name] if name in sources else self._remote_outputs():
            self._direct(sources[output])

    def _remote_outputs(self) -> dict[str, RemoteBlob]:
        """Return the outputs for which the user set device memory."""
        return {
            name: blob
            for name in self.executable.sources
            if isinstance(blob := self.blobs.get(name), RemoteBlob) and name not in self.kept
        }

    def keep(self, name: str, memory: RemoteBlob | None) -> None:
        """Leave an output on the device that computes it."""
        super().keep(name, memory)
        self._direct(self.executable.sources[name])

    def _direct(self, port: Port) -> None:
        """Tell the part that computes an output where to leave it.

        That is the user's memory, unless it is that of an input too, which other parts may read
        later; then the output is copied there in the end.
        """
        producer = self.executable.sharing.producers.get(port)
        if producer is None:
            return
        part, target = self.parts[producer[0]], producer[1]
        inputs = [self.blobs.get(name) for name in self.executable.inputs]
        for name, blob in self._remote_outputs().items():
            if self.executable.sources[name] is port and not any(
                isinstance(other, RemoteBlob) and other.overlaps(blob) for other in inputs
            ):
                part.set_blob(target, blob)
                return
        part.keep_on_device(target)

    def _check_outputs(self) -> None:
        written = list(self._remote_outputs().items())
        for number, (name, blob) in enumerate(written):
            if any(blob.overlaps(other) for _, other in written[:number]):
                raise BlobError(f"output {name!r} shares memory with another output; use two blobs")

    def written(self) -> list[Array]:
        """Return the outputs, and what the parts write: it was given to the user before."""
        parts = (array for part in self.parts for array in part.runner.written())
        return [*super().written(), *self._values.downloads(), *parts]

    # -- running ------------------------------------------------------------------------------

    def run(self, stream: int) -> None:
        """Run the parts that this inference needs."""
        executable, values = self.executable, self._values
        self._copies = Copies()
        self._check_outputs()
        values.begin()
        for name, port in executable.parameters.items():
            if name in executable.inputs:
                blob = self.blob(name)
                values[port] = blob if isinstance(blob, RemoteBlob) else blob.array
        self._ran.clear()
        starting = self._start_variables(stream)
        for index in executable.parts_to_run(starting):
            if index not in self._ran:
                self._run_part(index, stream)
        self._publish()
        self._keep_variables()

    def _start_variables(self, stream: int) -> frozenset[str]:
        """Feed the variables, and return the names of those whose first value was computed.

        The parts that compute a first value run before those that read it. A part that would need
        the variable to compute its own first value cannot exist: a variable's initial value never
        depends on the variable.
        """
        values = self._values
        starting: list[str] = []
        for variable, kept in zip(self.executable.variables, self._variables):
            port = variable.read
            if kept.value is not None:
                values[port] = kept.value
            elif variable.initial is None:
                values[port] = zeros(variable)
            else:
                self._compute_initial(variable.initial, stream)
                values[port] = values[variable.initial]
                starting.append(variable.name)
        return frozenset(starting)

    def _keep_variables(self) -> None:
        """Carry on what was assigned; what stays on the device, in memory of its own."""
        sharing, users = self.executable.sharing, list(self.blobs.values())
        for variable, kept in zip(self.executable.variables, self._variables):
            port = variable.assigned
            if port is None:
                continue
            value = self._values[port]
            owned = isinstance(value, RemoteBlob) and not any(value is blob for blob in users)
            if variable.name in sharing.variables and isinstance(value, RemoteBlob) and owned:
                index, target = sharing.producers[port]
                self.parts[index].keep_on_device(target, kept.advance(value))
            else:
                kept.value = self._values.on_host(port).copy()

    def _compute_initial(self, wanted: Port, stream: int) -> None:
        if wanted in self._values or wanted.node.type == "Const":
            return
        for index, part in enumerate(self.executable.subgraphs):
            if wanted in part.targets.values():
                for port in part.sources.values():
                    self._compute_initial(port, stream)
                self._run_part(index, stream)
                return
        raise InferenceError(f"no part computes {wanted.name!r}")

    def _run_part(self, index: int, stream: int) -> None:
        part, request = self.executable.subgraphs[index], self.parts[index]
        try:
            inputs = {name: self._input(index, port) for name, port in part.sources.items()}
            results = request.infer(inputs, stream=stream)
            for name, port in part.targets.items():
                array = results.get(name)
                if array is not None:
                    self._values[port] = array
                    continue
                blob = request.get_blob(name)
                assert isinstance(blob, RemoteBlob)
                self._values[port] = blob
        except PolydeviceError as error:
            raise type(error)(f"subgraph {index} on {part.device}: {error}") from error
        self._ran.add(index)
        self._copies += request.copies

    def _input(self, index: int, port: Port) -> Value:
        """Return a value in the form in which a part reads it with the fewest copies."""
        sharing = self.executable.sharing
        own = sharing.contexts[index]
        if own is None:
            return self._values.on_host(port)
        common = sharing.uploads.get(port)
        if isinstance(self._values[port], RemoteBlob) or (
            common is not None and own.shares_memory_with(common)
        ):
            return self._values.on_device(port, own)
        return self._values.on_host(port)

    def _publish(self) -> None:
        """Give the outputs to the user."""
        self._move_aside()
        taken: set[Port] = set()  # whose memory is an output's already
        for name, port in self.executable.sources.items():
            value, blob = self._values[port], self.blobs.get(name)
            if isinstance(value, RemoteBlob) and name in self.kept:
                self.blobs[name] = value
            elif isinstance(blob, RemoteBlob) and name not in self.kept:
                if blob is not value:  # two outputs of one value, or memory of an input
                    blob.copy_from(value)
                    self._copies += Copies(on_device=1)
            else:
                self._publish_on_host(name, port, taken)

    def _move_aside(self) -> None:
        """Copy values that lie where the user wants another output."""
        sources = self.executable.sources
        targets = host_arrays(self.blobs, sources)
        for name, target in targets.items():
            if target is self._given.get(name):
                continue
            assigned = [variable.assigned for variable in self.executable.variables]
            for port in [*sources.values(), *filter(None, assigned)]:
                value = self._values[port]
                if port is sources[name] or isinstance(value, RemoteBlob):
                    continue
                if np.may_share_memory(value, target):
                    self._values[port] = value.copy()

    def _publish_on_host(self, name: str, port: Port, taken: set[Port]) -> None:
        """Give an output in host memory: in place where the user set memory, else as it is.

        What a part computed is the request's to give away, once. Inputs, constants and variables
        are not: an output that is one of them gets a copy, and so does a second one of one value.
        """
        blob = self.blobs.get(name)
        own = None if blob is None or isinstance(blob, RemoteBlob) else blob.array
        array = self._values.on_host(port, own)
        fits = own is not None and own.shape == array.shape
        if name in self.given and own is not None and self.executable.has_fixed_inputs:
            self.check_memory(name, array.shape)  # only the data can have told its sizes
        if port in self.executable.sharing.producers and port not in taken:
            if own is array:
                taken.add(port)
                return
            if not fits or own is self._given.get(name):
                taken.add(port)
                self._give(name, array)
                return
        if own is None or not fits or own is array:
            self._give(name, array.copy(order="C"))
        else:
            own[...] = array

    def _give(self, name: str, array: Array) -> None:
        self._given[name] = array
        super().bind(name, self.executable.ports[name].blob(array))

    def counts(self) -> list[LayerCount]:
        """Return the counters of all parts that ran, in the order in which they did."""
        counts: list[LayerCount] = []
        for index, request in enumerate(self.parts):
            if self._ran and index not in self._ran:
                continue  # it computes first values of variables, which this inference had
            for count in request.runner.counts():
                counts.append(
                    LayerCount(
                        f"subgraph{index}: {count.name}",
                        count.status,
                        count.layer_type,
                        count.exec_type,
                        count.real_time_us,
                        count.cpu_time_us,
                        len(counts),
                    )
                )
        return counts
