"""ServedModel: a model on a device, its queue, and what clients are told of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from polydevice.core import Core
from polydevice.dataclass import dataclass
from polydevice.dtype import Array
from polydevice.errors import (
    DeviceNameError,
    NetworkError,
    PolydeviceError,
    UnsupportedNetworkError,
)
from polydevice.executable_network import ExecutableNetwork
from polydevice.network import Network
from polydevice.network.dynamic_batch import follow_batch
from polydevice.runtime.port_info import PortInfo
from polydevice.serve.call import Call
from polydevice.serve.datatypes import datatype_of
from polydevice.serve.models.batching import Batcher, planned_sizes
from polydevice.serve.models.limits import Limits
from polydevice.serve.models.statistics import Statistics
from polydevice.serve.refusal import Reason, RefusedError
from polydevice.serve.time_limit import time_limit
from polydevice.shape import Dim, DimLike

_log = logging.getLogger(__name__)

WARM_ELEMENTS = 1 << 28
"""Inputs with more elements are not made up to warm a model."""


@dataclass(frozen=True)
class ModelSpec:
    """What a model is loaded from, and how.

    Attributes:
        path: of the model file; or a network that was read already.
        name: by which clients ask for it; the file's without its ending if left out.
        version: a number, as text.
        device: on which it runs.
        config: the device's configuration.
        shapes: name → sizes of inputs, where the model leaves them open or has others.
    """

    path: str | Path | Network
    name: str = ""
    version: str = "1"
    device: str = "AUTO"
    config: Mapping[str, Any] = field(default_factory=dict)
    shapes: Mapping[str, Sequence[DimLike | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check name and version.

        Raises:
            DeviceNameError: for a name or version that cannot stand in an address.
        """
        own = self.path.name if isinstance(self.path, Network) else Path(self.path).stem
        object.__setattr__(self, "name", self.name or own)
        legal = all(char.isalnum() or char in "._-" for char in self.name)
        if not legal or not self.name.isascii() or not 0 < len(self.name) <= 128:
            raise DeviceNameError(
                f"a model cannot be served as {self.name!r}; name it with letters, digits, '.', "
                "'_' and '-', as in resnet=model.onnx"
            )
        if not (self.version.isascii() and self.version.isdigit() and len(self.version) < 18):
            raise DeviceNameError(
                f"{self.version!r} is no version of model {self.name!r}; use a number, as in "
                f"{self.name}:2=model.onnx"
            )


class ServedModel:
    """A version of a model, which answers calls from the moment it is made.

    Attributes:
        name: by which clients ask for it.
        version: a number, as text.
        executable: the network, loaded.
        inputs: name → type and shape; `outputs` likewise.
        batched: whether requests are computed together, along the first size of every input.
        statistics: what it did.
        batcher: its queue.
    """

    def __init__(self, core: Core, spec: ModelSpec, limits: Limits) -> None:
        """Read and load the model, and run it once with each planned batch.

        Raises:
            PolydeviceError: whatever reading and loading raise.
            UnsupportedNetworkError: its inputs or outputs have types that the protocol lacks, or
                it does not compute the items of a batch independently of one another.
        """
        self.name, self.version, self.spec = spec.name, spec.version, spec
        self.limits = limits
        self.batched = limits.max_batch > 1
        given = spec.path
        network = given.clone() if isinstance(given, Network) else core.read_network(given)
        if spec.shapes:
            network.reshape(spec.shapes)
        if self.batched:
            _open_batch(network, limits.max_batch)
        config = dict(spec.config)
        if spec.device.partition(":")[0] == "AUTO":
            # Clients are not to wait for what is warmed on the CPU to be compiled elsewhere.
            config.setdefault("ENABLE_STARTUP_FALLBACK", "NO")
        self.executable: ExecutableNetwork = core.load_network(network, spec.device, config)
        try:
            self.inputs, self.outputs = self.executable.inputs, self.executable.outputs
            for port in (*self.inputs.values(), *self.outputs.values()):
                _check_type(port)
            self._warm()
            self.statistics = Statistics()
            self.batcher = Batcher(self.name, self.executable, limits, self.statistics)
        except BaseException:
            self.executable.close()
            raise

    def _warm(self) -> None:
        """Infer with each planned batch, so that the first clients need not wait for plans.

        Raises:
            UnsupportedNetworkError: an item's answer depends on the others of its batch.
        """
        request = self.executable.create_infer_request()
        alone: dict[str, Array] = {}
        for size in planned_sizes(self.limits.max_batch):
            inputs = self._made_up(size)
            if inputs is None:
                return  # the first request will say
            try:
                outputs = request.infer(inputs)
            except PolydeviceError as error:
                _log.warning("model %r does not infer random numbers: %s", self.name, error)
                return
            firsts = {name: array[:1].copy() for name, array in outputs.items() if self.batched}
            alone = alone or firsts
            for name, first in firsts.items():
                if not _is_close(first, alone[name]):
                    raise UnsupportedNetworkError(
                        f"max_batch={self.limits.max_batch} is not possible for {self.name!r}: "
                        f"output {name!r} of an item changes with the other items. Leave it out"
                    )

    def _made_up(self, size: int) -> dict[str, Array] | None:
        """Return random inputs of so many items, the same ones first; None for open shapes."""
        inputs: dict[str, Array] = {}
        for name, port in self.inputs.items():
            sizes = port.sizes or self._batch_sizes(port, size)
            if sizes is None or prod(sizes) > WARM_ELEMENTS:
                return None
            rng = np.random.default_rng(0)
            if port.element_type.is_float:
                inputs[name] = rng.standard_normal(sizes).astype(port.dtype)
            else:
                fill = "" if port.dtype == object else 0
                inputs[name] = np.full(sizes, fill, port.dtype)
        return inputs

    def _batch_sizes(self, port: PortInfo, size: int) -> tuple[int, ...] | None:
        rest = [each for each in (port.shape or ())[1:] if isinstance(each, int)]
        if not self.batched or port.shape is None or len(rest) != len(port.shape) - 1:
            return None
        return (size, *rest)

    def check_items(self, inputs: Mapping[str, Array]) -> None:
        """Check that all inputs have the same number of items.

        Raises:
            RefusedError: they have not, or there are none.
        """
        if not self.batched:
            return
        numbers = {len(array) for array in inputs.values()}
        if len(numbers) != 1 or 0 in numbers:
            raise RefusedError(
                Reason.INVALID,
                "the first size of every input is the batch, the same for all and at least 1; "
                f"given: {', '.join(map(str, sorted(numbers)))}",
            )

    async def answer(self, call: Call) -> dict[str, Array]:
        """Return name → array of the outputs of a call.

        Raises:
            RefusedError: it was not computed; says why.
            PolydeviceError: it could not be.
        """
        future = self.batcher.submit(call.inputs, call.seconds)
        seconds = min(call.seconds or self.limits.request_seconds, self.limits.request_seconds)
        try:
            with time_limit(seconds):
                outputs = await asyncio.wrap_future(future)
        except TimeoutError:
            raise RefusedError(
                Reason.TIMEOUT, f"the request was not answered within {seconds:g} s"
            ) from None
        return {name: outputs[name] for name in call.outputs}

    def metadata(self, versions: Sequence[str]) -> dict[str, Any]:
        """Return what the protocol tells of a model."""
        return {
            "name": self.name,
            "versions": list(versions),
            "platform": "polydevice",
            "inputs": [_described(port) for port in self.inputs.values()],
            "outputs": [_described(port) for port in self.outputs.values()],
        }

    def close(self, end: float) -> None:
        """Answer what waits until `end`, of ``time.monotonic()``, and close the network."""
        self.batcher.close(end)
        self.executable.close()


def _open_batch(network: Network, most: int) -> None:
    """Give a network every batch from 1 to `most`.

    Raises:
        UnsupportedNetworkError: it does not compute items independently, or has other open sizes.
    """
    shapes = {name: info.shape for name, info in network.inputs.items()}
    try:
        trial = network.clone()
        trial.reshape({name: [most, *(shape or ())[1:]] for name, shape in shapes.items()})
        follow_batch(trial, network.evaluate)
        network.reshape(
            {name: [Dim(1, most), *(shape or ())[1:]] for name, shape in shapes.items()}
        )
        for name, port in network.output_ports():
            if port.shape is None or not len(port.shape) or port.shape[0] != Dim(1, most):
                raise UnsupportedNetworkError(f"output {name!r} does not follow the batch")
    except (NetworkError, UnsupportedNetworkError) as error:
        raise UnsupportedNetworkError(
            f"max_batch={most} is not possible for {network.name!r}: {error}. Leave it out, or "
            "give the other sizes of the inputs"
        ) from error


def _is_close(one: Array, other: Array) -> bool:
    """Whether floating-point answers differ by rounding alone; NaN and infinities count as equal.

    A plan for another batch adds in another order, in half precision perhaps; items that enter
    an answer change it by much more.
    """
    if one.dtype.kind != "f" or one.shape != other.shape:
        return one.shape == other.shape
    known = np.isfinite(one) & np.isfinite(other)
    if not known.any():
        return True
    a, b = one[known].astype("f8"), other[known].astype("f8")
    return bool(np.abs(a - b).max() <= 0.02 * max(np.abs(a).max(), np.abs(b).max()) + 1e-30)


def _check_type(port: PortInfo) -> None:
    if port.desc.kind != "tensor" or datatype_of(port.element_type) is None:
        kind = port.element_type if port.desc.kind == "tensor" else port.desc.kind
        raise UnsupportedNetworkError(
            f"{port.kind} {port.name!r} is of type {kind}, which the Open Inference Protocol does "
            "not have; convert it in the model"
        )


def _described(port: PortInfo) -> dict[str, Any]:
    sizes = [size if isinstance(size, int) else -1 for size in port.shape or ()]
    return {"name": port.name, "datatype": datatype_of(port.element_type), "shape": sizes}
