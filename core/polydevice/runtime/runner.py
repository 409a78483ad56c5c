"""Runner: what a device writes to compute the inferences of one request.

A request (`polydevice.infer_request`) is the same on every device: it checks what it is given,
waits, calls back and keeps the order. It has a runner, which a device makes for it, and which only
computes. A device that runs networks of other devices, as HETERO does, uses their requests, and
``InferRequest.runner`` where it needs more than users do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from polydevice.blob import Blob
from polydevice.dtype import Array, ElementType
from polydevice.errors import BlobError, InferenceError, RequestError
from polydevice.remote import Copies, RemoteBlob
from polydevice.runtime.overlap import host_arrays
from polydevice.runtime.spare_memory import SpareMemory
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc

if TYPE_CHECKING:
    from polydevice.executable_network import ExecutableNetwork
    from polydevice.profiling import LayerCount
    from polydevice.runtime.follower import Follower
    from polydevice.runtime.port_info import PortInfo
    from polydevice.runtime.variable import RequestVariable


class Runner(ABC):
    """Computes the inferences of one request, one at a time, on memory of its own.

    A device implements `run`; the rest is for devices that do more: times, variables, memory of
    their own. The request calls it from any thread, but never twice at once, and the blobs it
    binds fit: names, element types and shapes are checked.

    Attributes:
        executable: the network.
        blobs: key (`PortInfo.key`, nearly always the name) → memory of the inputs and outputs
            that have some; see `blob`. What is called name below is this key.
        kept: outputs to be left in device memory → what may be used for it, or None. Only devices
            with contexts look at it, and put the blob where such an output lies into `blobs`.
        given: outputs whose memory a user set, as long as it fits.
        is_part: whether the runner of another request has this one run, and hands on what it
            returns. Then outputs are not put back into memory that they had for other shapes: who
            got it meanwhile is not known here.
        spare: memory of outputs that had other sizes.
    """

    def __init__(self, executable: ExecutableNetwork) -> None:
        """Prepare everything that can be before inputs are known."""
        self.executable = executable
        self.blobs: dict[str, Blob] = {}
        self.kept: dict[str, RemoteBlob | None] = {}
        self.given: set[str] = set()
        self.is_part = False
        self.spare = SpareMemory(executable.memory)

    # -- computing ----------------------------------------------------------------------------

    @abstractmethod
    def run(self, stream: int) -> None:
        """Compute the outputs from the inputs; returns when they are ready.

        Whatever in it may last calls ``polydevice.bounds.current_bounds().check()`` from time to
        time, which raises when the inference is cancelled or its time is over.

        Args:
            stream: number of the network's stream whose thread calls; 0 for a thread of the
                user's.
        """

    def begin(self) -> Callable[[], None] | None:
        """Hand an asynchronous inference to the device in the caller's thread, if order matters.

        Returns:
            What waits for its end, in a stream's thread, instead of `run`; None to have `run`
            compute it there.
        """
        return None

    def start(self, end: Callable[[BaseException | None], None]) -> bool:
        """Take an asynchronous inference, if the device computes in threads that are its own.

        The bounds of the calling thread (`polydevice.bounds.current_bounds`) are the inference's.

        Args:
            end: to be called once, from any thread, when the outputs are ready, with None; or with
                what went wrong. It runs the user's callback; from then on the request may be
                started again.

        Returns:
            Whether it was taken; False has one of the network's streams call `begin` or `run`.
        """
        return False

    def withdraw(self) -> bool:
        """Forget what `start` took, if it has not begun; says whether `end` will not be called."""
        return False

    def wait(self, seconds: float | None) -> bool:
        """Wait for what `run` left for somebody else to wait for; True once nothing is left.

        Args:
            seconds: how long at most; None without limit.
        """
        return True

    # -- inputs and outputs -------------------------------------------------------------------

    def array(self, name: str) -> Array:
        """Return the host memory of an input or output: what to read, or where to write."""
        return self.blob(name).array

    def blob(self, name: str) -> Blob:
        """Return the memory of an input or output; allocates it, zeroed, where it has none.

        Raises:
            BlobError: a dynamic shape, before anything fixed it.
        """
        found = self.blobs.get(name)
        if found is None:
            port = self._port(name)
            if not port.desc.is_static:
                raise BlobError(
                    f"{port.kind} {name!r} has the dynamic shape {port.shape}; "
                    + ("set it with set_blob() first" if port.kind == "input" else "infer first")
                )
            self.allocate(name, port.desc).array[...] = 0
            found = self.blobs[name]
        return found

    def allocate(self, name: str, desc: TensorDesc) -> Blob:
        """Give an input or output host memory of this type and shape, not initialised.

        Raises:
            DeviceMemoryError: it is more than the network may use (MEMORY_LIMIT).
        """
        what, size = f"{self._port(name).kind} {name!r}", desc.span_bytes or 0
        array = self.executable.memory.allocated(size, what, lambda: Blob.empty(desc).array)
        return self._bound(name, array, desc.element_type)

    def allocate_sizes(self, name: str, sizes: tuple[int, ...]) -> Blob:
        """Do the same of these sizes and the port's type, in memory that was there if possible."""
        element_type = self.executable.ports[name].element_type
        what = f"{self._port(name).kind} {name!r}"
        return self._bound(name, self.spare.array(sizes, element_type.dtype, what), element_type)

    def _bound(self, name: str, array: Array, element_type: ElementType) -> Blob:
        made = Blob(array, element_type)
        self.given.discard(name)
        self.bind(name, made)
        return made

    def give(self, name: str, array: Array) -> None:
        """Make what was computed the memory of an output."""
        self.bind(name, self._port(name).blob(array))

    def publish(self, name: str, array: Array, *, is_new: bool = False) -> None:
        """Hand out an output whose sizes only the data told, in memory that is its own.

        Where a user set memory for it, it is written there.

        Args:
            name: of the output.
            array: the result, of which a copy is handed out…
            is_new: …unless nobody else has it.

        Raises:
            BlobError: that memory has another shape.
        """
        if name not in self.given:
            is_own = is_new and array.flags.c_contiguous and not array.dtype.hasobject
            self.give(name, array if is_own else array.copy(order="C"))
            return
        self.check_memory(name, array.shape)
        np.copyto(self.blobs[name].array, array)

    def check_memory(self, name: str, sizes: tuple[int, ...]) -> None:
        """Refuse memory of an output that a user set and that has other sizes than the result."""
        held, port = self.blobs[name], self._port(name)
        if held.shape != sizes:
            raise BlobError(
                f"output {port.name!r} has shape {Shape(sizes)} with this data, but its memory has "
                f"{Shape(held.shape)}; set a blob of that shape"
            )

    def bind(self, name: str, blob: Blob) -> None:
        """Note that `blob` now is the memory of an input or output.

        Devices that prepare calls on addresses do so here, and call this one first.
        """
        self.blobs[name] = blob

    def copies_input(self, blob: Blob | None) -> bool:
        """Whether `run` copies an input's memory before it writes anything.

        Such an input may share memory with outputs, and be replaced without looking for what does.
        """
        return False

    def written(self) -> list[Array]:
        """Return the host memory that an inference writes and that a user may hold."""
        return list(host_arrays(self.blobs, self.executable.output_keys).values())

    def _port(self, name: str) -> PortInfo:
        return self.executable.ports[name]

    # -- device memory ------------------------------------------------------------------------

    def check_remote(self, port: PortInfo, blob: RemoteBlob) -> None:
        """Refuse device memory that cannot be the memory of this input or output.

        Raises:
            BlobError: always, for devices that use host memory only.
        """
        device = self.executable.device
        raise BlobError(
            f"{port.kind} {port.name!r} of a network on {device} cannot be {blob!r}: {device} uses "
            "host memory only. Copy it with blob.copy_to(array), or load the network in the "
            "blob's context: core.load_network(network, blob.context)"
        )

    def keep(self, name: str, memory: RemoteBlob | None) -> None:
        """Note that an output is to be left in device memory; see `InferRequest.keep_on_device`."""
        self.kept[name] = memory

    @property
    def copies(self) -> Copies:
        """What the last inference copied between host and device, and within the device."""
        return Copies()

    # -- what only some devices have ----------------------------------------------------------

    def follow(self, followers: tuple[Follower, ...]) -> None:
        """Tell these followers, and no others, from now on what runs in `run`, and when.

        Whole inferences are told by the request; a device that cannot tell more does nothing.
        """

    def counts(self) -> list[LayerCount]:
        """Return the counters of the last inference, in execution order.

        Raises:
            InferenceError: the network was not loaded for counting, or the device cannot.
        """
        raise InferenceError(f"{self.executable.device} does not count times")

    def variables(self) -> Sequence[RequestVariable]:
        """Return the variables that are kept between inferences."""
        return ()

    def set_batch(self, size: int) -> None:
        """Let the next inferences compute only the first `size` items of the batch.

        Raises:
            RequestError: the network was not loaded for that, or has no such batch.
        """
        raise RequestError(
            f"{self.executable.device} computes whole batches of {self.executable.name!r}; load it "
            "on CPU or GPU with DYN_BATCH_ENABLED=YES, or reshape() it to a dynamic batch"
        )

    def release(self) -> None:
        """Let go of the memory for computing, once the network is closed; blobs stay."""
