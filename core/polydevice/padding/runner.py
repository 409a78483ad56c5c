"""PaddedRunner: pads the inputs of a request, runs it on its device, and cuts the outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import (
    BlobError,
    DeviceMemoryError,
    InferenceError,
    InternalError,
    NetworkError,
)
from polydevice.executable_network import PortInfo
from polydevice.padding.labels import cut
from polydevice.profiling import LayerCount
from polydevice.remote import RemoteBlob
from polydevice.runtime.runner import Runner
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc

if TYPE_CHECKING:
    from polydevice.padding.network import PaddedNetwork

_UNFIT = (InferenceError, NetworkError, DeviceMemoryError)
"""What a network raises that does not take a size."""


class PaddedRunner(Runner):
    """Memory of its own for padded inputs; the rest is a request of the network on the device."""

    executable: PaddedNetwork

    def __init__(self, executable: PaddedNetwork) -> None:
        """Make a request on the device."""
        super().__init__(executable)
        self._request = executable.inner.create_infer_request()
        self._spaces: dict[str, Array] = {}  # memory of padded inputs, of the latest sizes
        self._masks: dict[str, tuple[int, Array]] = {}

    def run(self, stream: int) -> None:
        """Pad, run and cut; without padding where the network does not take it."""
        network = self.executable
        own = self._own_sizes()
        padded = {symbol.name: symbol.padded(own[symbol.name]) for symbol in network.symbols if own}
        sizes = tuple(padded.values())
        if not padded or sizes in network.unfit:
            self._infer(own, {}, stream)
            return
        try:
            self._infer(own, padded, stream)
        except _UNFIT as error:
            if isinstance(error, InternalError):
                raise
            self._infer(own, {}, stream)  # raises what is wrong with the inputs themselves
            network.give_up(sizes, error)

    def _own_sizes(self) -> dict[str, int]:
        """Return the sizes of the inputs by the names of those that are padded.

        None of them where two axes differ that are taken for one, such as one that is broadcast.
        """
        arrays = [self.array(name) for name in self.executable.inputs]
        found = {}
        for symbol in self.executable.symbols:
            sizes = {arrays[which].shape[axis] for which, axis in symbol.places}
            if len(sizes) > 1:
                return {}
            found[symbol.name] = sizes.pop()
        return found

    def _infer(self, own: Mapping[str, int], padded: Mapping[str, int], stream: int) -> None:
        """Infer with inputs of the padded sizes; as they are where there are none."""
        network = self.executable
        inputs: dict[str, Array] = {}
        for number, name in enumerate(network.inputs):
            array = self.array(name)
            shape = list(array.shape)
            for symbol in network.symbols if padded else ():
                for which, axis in symbol.places:
                    if which == number:
                        shape[axis] = padded[symbol.name]
            inputs[name] = self._padded(name, array, tuple(shape))
        for symbol_name, mask in network.masks.items():
            inputs[mask] = self._mask(symbol_name, own, padded)
        results = self._request.infer(inputs, stream=stream)
        for (name, port), labels in zip(
            network.outputs.items(), network.proof.outputs, strict=True
        ):
            result = results[name]
            is_cut = padded and padded != own
            self._hand_out(port, cut(result, labels, padded, own) if is_cut else result)

    def _padded(self, name: str, array: Array, shape: tuple[int, ...]) -> Array:
        """Return an array of this shape: the one given, and behind it its last items again."""
        if array.shape == shape:
            return array
        space = self._spaces.get(name)
        if space is None or space.shape != shape:
            desc = TensorDesc(self.executable.inputs[name].element_type, Shape(shape))
            size, what = desc.span_bytes or 0, f"padded input {name!r}"
            space = self.executable.memory.allocated(
                size, what, lambda: np.empty(shape, array.dtype)
            )
            self._spaces[name] = space
        space[tuple(map(slice, array.shape))] = array
        for axis, (size, whole) in enumerate(zip(array.shape, shape, strict=True)):
            if size < whole:
                index = [slice(None)] * axis + [slice(each) for each in array.shape[axis:]]
                last, index[axis] = slice(size - 1, size), slice(size, None)
                source = (*index[:axis], last, *index[axis + 1 :])
                space[tuple(index)] = space[source]
        return space

    def _mask(self, symbol: str, own: Mapping[str, int], padded: Mapping[str, int]) -> Array:
        if not padded:  # nothing is padded, and inputs may differ in size: true for all of them
            return np.ones(1, np.bool_)
        size, known = self._masks.get(symbol, (-1, np.empty(0, np.bool_)))
        if size != own[symbol] or known.shape[0] != padded[symbol]:
            known = np.arange(padded[symbol]) < own[symbol]
            self._masks[symbol] = own[symbol], known
        return known

    def _hand_out(self, port: PortInfo, result: Array) -> None:
        """Copy a result into the request's own memory, or the user's."""
        if port.key in self.given:
            self.check_memory(port.key, result.shape)
        else:
            held = self.blobs.get(port.key)
            if held is None or held.shape != result.shape:
                self.allocate(port.key, TensorDesc(port.element_type, Shape(result.shape)))
        np.copyto(self.blobs[port.key].array, result)

    def check_remote(self, port: PortInfo, blob: RemoteBlob) -> None:
        """Refuse device memory: inputs are padded, and outputs cut, on the host.

        Raises:
            BlobError: always.
        """
        raise BlobError(
            f"{port.kind} {port.name!r} cannot be {blob!r}: SHAPE_BUCKETS pads and cuts in host "
            "memory. Copy it with blob.copy_to(array), or load the network without the key"
        )

    def counts(self) -> list[LayerCount]:
        """Return the counters of the last inference, in execution order."""
        return self._request.runner.counts()

    def release(self) -> None:
        """Let go of the memory of padded inputs."""
        self._spaces.clear()
        self._masks.clear()
