"""RequestMemory: the inputs and outputs of a request, and what they are bound to."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Union

import numpy as np

from polydevice.arguments import shown
from polydevice.blob import Blob, RoiBlob
from polydevice.compound_blob import BatchedBlob, CompoundBlob, NV12Blob, plane_blobs
from polydevice.dtype import Array
from polydevice.errors import BlobError, RequestBusyError, nearest
from polydevice.locks import attempts
from polydevice.remote import RemoteBlob
from polydevice.runtime.port_info import PortInfo

if TYPE_CHECKING:
    from polydevice.executable_network import ExecutableNetwork
    from polydevice.runtime.runner import Runner

_BLOBS = (Blob, NV12Blob, BatchedBlob)

PortKind = Literal["input", "output"]

Inputs = Union[  # noqa: UP007 - evaluated at import, on Python 3.10 too
    Mapping[str, Any], Mapping[int, Any], list[Any], tuple[Any, ...], Array, Blob
]
"""Name or number → value; all values in order; or the value of the only input."""


class RequestMemory:
    """What every request has: named inputs and outputs, which nobody changes while it runs.

    Attributes:
        executable: the network.
        runner: computes; for devices that run networks of others.
    """

    def __init__(self, executable: ExecutableNetwork, runner: Runner) -> None:
        """Begin with the memory that the runner has."""
        self.executable = executable
        self.runner = runner
        self._ports: dict[str | int, PortInfo] = dict(enumerate(executable.inputs.values()))
        self._ports.update(executable.outputs)
        self._ports.update(executable.inputs)
        self._blobs = runner.blobs
        self._rebound = False  # since `_shared` was found
        self._is_plain = True  # nothing is rebound or shared, and nobody follows
        self._busy = threading.Lock()
        self._takes = attempts(self._busy)

    def set_blob(
        self, name: str, blob: Blob | CompoundBlob | Array, kind: PortKind | None = None
    ) -> None:
        """Use this memory for an input or output, in place.

        Args:
            name: of the input or output; for the planes of an NV12 image, of the input that was
                split into them.
            blob: a blob, in host or device memory, or an array to share; kept until it is replaced.
            kind: "input" or "output", where both have the name; None is the input then.

        Raises:
            BlobError: unknown name, wrong element type or shape, or memory that cannot be used.
            RequestBusyError: while the request runs.
        """
        self._enter()
        try:
            for port, made in self._checked(name, blob, kind):
                self.runner.kept.pop(port.key, None)
                self._rebound, self._is_plain = True, False
                self.runner.bind(port.key, made)
                if port.kind == "output":
                    self.runner.given.add(port.key)
        finally:
            self._busy.release()

    def keep_on_device(self, name: str, memory: RemoteBlob | None = None) -> None:
        """Leave an output in device memory that the request allocates, whatever its sizes.

        After an inference `get_blob` returns it, a `RemoteBlob` that the next inference overwrites.
        Devices without contexts, outputs whose sizes are known only when they are computed, and
        types that the device holds as others go on using host memory. `set_blob` ends it.

        Args:
            name: of the output.
            memory: what the request may use instead of new memory, if the output has its shape.

        Raises:
            BlobError: unknown name, an input, or memory that cannot be used.
            RequestBusyError: while the request runs.
        """
        self._enter()
        try:
            port = self._port(name, "output")
            if memory is not None:
                if not isinstance(memory, RemoteBlob):
                    raise BlobError(
                        f"output {name!r} cannot be kept in {type(memory).__name__}, which is not "
                        "device memory; give a RemoteBlob, or nothing to have it allocated"
                    )
                self._checked(port.name, memory, "output")
            self.runner.keep(port.key, memory)
        finally:
            self._busy.release()

    def _checked(
        self, name: str | int, value: Any, kind: PortKind | None = None
    ) -> list[tuple[PortInfo, Blob]]:
        """Return what a blob becomes the memory of, after all checks."""
        if isinstance(value, (NV12Blob, BatchedBlob)):
            planes = plane_blobs(str(name), value, self.executable.inputs)
            return [each for plane in planes.items() for each in self._checked(*plane)]
        port = self._port(name, kind)
        blob = value if isinstance(value, Blob) else Blob(value)
        port.check(blob.element_type, blob.shape)
        if isinstance(blob, RemoteBlob):
            self.runner.check_remote(port, blob)
        elif port.kind == "input" and port.desc.kind != "tensor":
            port.check_items(blob.array)
        elif port.kind == "output" and isinstance(blob, RoiBlob):
            raise BlobError(f"output {name!r} cannot be a region; only inputs can")
        elif port.kind == "output" and not blob.array.flags.writeable:
            raise BlobError(
                f"output {name!r} cannot be a read-only array, which the inference would write; "
                "give an array that may be written (a copy of it; a memmap opened with mode 'r+')"
            )
        return [(port, blob)]

    def get_blob(self, name: str, kind: PortKind | None = None) -> Blob:
        """Return the memory of an input or output; live, not a copy.

        Args:
            name: of the input or output.
            kind: "input" or "output", where both have the name; None is the input then.

        Raises:
            BlobError: unknown name; or a dynamic shape, before anything fixed it.
            RequestBusyError: while the request runs.
        """
        self._enter()
        try:
            return self.runner.blob(self._port(name, kind).key)
        finally:
            self._busy.release()

    def _named(self, given: Inputs) -> Mapping[Any, Any]:
        """Return inputs by name or number, in whichever form they were given."""
        if isinstance(given, Mapping):
            return given
        values = given if isinstance(given, (list, tuple)) else [given]
        names: Mapping[str, Any] = self.executable.inputs
        if len(values) != len(names):
            raise BlobError(
                f"{len(values)} inputs are given; network {self.executable.name!r} has "
                f"{len(names)}: {', '.join(names)}"
            )
        return dict(zip(names, values, strict=True))

    def _port(self, name: str | int, kind: PortKind | None = None) -> PortInfo:
        if not isinstance(name, (str, int)):
            raise BlobError(f"{shown(name)} names no input or output; give a name, or a number")
        if kind is not None and kind not in ("input", "output"):
            raise BlobError(f"kind={shown(kind)} is not possible; use 'input' or 'output'")
        port = self._ports.get(name)
        if kind == "output" and isinstance(name, str) and name in self.executable.outputs:
            port = self.executable.outputs[name]
        if port is None and isinstance(name, str):
            port = self.executable.port_by_tensor_name(name)
        if port is None:
            raise BlobError(
                f"network {self.executable.name!r} has no input or output {name!r}; inputs: "
                f"{', '.join(self.executable.inputs)}; outputs: "
                f"{', '.join(self.executable.outputs)}."
                + nearest(str(name), [*self.executable.inputs, *self.executable.outputs])
            )
        if kind is not None and port.kind != kind:
            others = self.executable.inputs if kind == "input" else self.executable.outputs
            raise BlobError(f"{name!r} is an {port.kind}; {kind}s: {', '.join(others)}")
        return port

    def _set_inputs(self, given: Inputs, copy: bool) -> None:
        """Check every input, then bind them: all of them, or none when one does not fit."""
        inputs: Mapping[Any, Any] = given if type(given) is dict else self._named(given)
        changes: list[tuple[str, Blob]] = []
        for name, value in inputs.items():
            if type(value) is not np.ndarray and isinstance(value, _BLOBS):
                for port, blob in self._checked(name, value):
                    self._refuse_output(port)
                    changes.append((port.name, blob))
                continue
            port = self._ports.get(name) or self._port(name)
            self._refuse_output(port)
            array = port.as_array(value)
            held = self._blobs.get(port.key)
            if type(held) is Blob and held.array is array and not copy:
                continue
            if copy and (array is value or array.base is not None):
                array = array.copy()
            changes.append((port.name, port.blob(array)))
        bind, copies = self.runner.bind, self.runner.copies_input
        for name, blob in changes:
            if not copies(blob):
                self._rebound, self._is_plain = True, False
            bind(name, blob)

    def _refuse_output(self, port: PortInfo) -> None:
        if port.kind != "input":
            names = ", ".join(self.executable.inputs)
            raise BlobError(f"{port.name!r} is an output; inputs: {names}")

    @property
    def input_blobs(self) -> dict[str, Blob]:
        """Name → memory of every input; live, not copies."""
        return {name: self.get_blob(name, "input") for name in self.executable.inputs}

    @property
    def output_blobs(self) -> dict[str, Blob]:
        """Name → memory of every output; live, not copies."""
        return {name: self.get_blob(name, "output") for name in self.executable.outputs}

    def _enter(self) -> None:
        for taken in self._takes:
            if taken:
                break
            raise self._busy_error()

    def _busy_error(self) -> RequestBusyError:
        self.executable.check_open()  # who closes it takes requests for a moment, to wait for them
        return RequestBusyError(
            f"a request of {self.executable.name!r} is running; wait() for it, or use another "
            "request of the network's `requests`"
        )
