"""What a device can do at most, measured by networks of one layer that run on it as any other.

So the roof is what this runtime reaches on the device where a layer is as simple and large as can
be, not what a data sheet promises: a share of it says what a layer loses against that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from polydevice import opset
from polydevice.node import Port
from polydevice.report.run import PEAK_TYPES, Peaks
from polydevice.runtime.follower import Batch, Follower, Step

if TYPE_CHECKING:
    from polydevice.core import Core

_SIZES = (1024, 2048, 4096)
"""Rows and columns of the matrices; larger ones follow while one takes less than `_ENOUGH_S`."""

_ENOUGH_S = 2e-3

_ELEMENTS = 1 << 24
"""Of what is added to: 64 MiB in f32, more than caches hold."""

_INFERENCES = 5


class _Fastest(Follower):
    """Notes the least time of an inference's steps and kernels together."""

    def __init__(self) -> None:
        self.seconds = float("inf")

    def steps(self, steps: Sequence[Step], marks: Sequence[int]) -> None:
        self._note(marks[-1] - marks[0])

    def batch(self, batch: Batch) -> None:
        kernels = [each for each in batch.commands() if each.kind == "kernel"]
        self._note(sum(each.end_ns - each.start_ns for each in kernels))

    def _note(self, nanoseconds: int) -> None:
        if nanoseconds > 0:
            self.seconds = min(self.seconds, nanoseconds / 1e9)


def measure_peaks(core: Core, device: str, config: Mapping[str, str]) -> Peaks:
    """Measure for a second or so; the peaks are 0 where the device tells no times.

    Args:
        core: has the device.
        device: its name.
        config: as the network was loaded with, so that threads and precision are the same.

    Raises:
        PolydeviceError: the device cannot run a product or a sum.
    """
    rng = np.random.default_rng(0)
    rate, kind, size = 0.0, "f32", _SIZES[0]
    for size in _SIZES:
        a = opset.parameter([size, size], name="a")
        weights = rng.standard_normal((size, size)).astype(np.float32)
        seconds, kind = time_layer(core, device, config, opset.mat_mul(a, weights))
        rate = max(rate, 2 * size**3 / seconds)
        if seconds > _ENOUGH_S:
            break
    x = opset.parameter([_ELEMENTS // 1024, 1024], name="a")
    seconds, stored = time_layer(core, device, config, opset.add(x, np.float32(1)))
    width = {"f16": 2, "bf16": 2}.get(stored, 4)
    how = f"measured by a product of {size} × {size} matrices and by x + 1 on {_ELEMENTS} elements"
    return Peaks(operations={kind: rate}, bytes=2 * width * _ELEMENTS / seconds, how=how)


def time_layer(
    core: Core, device: str, config: Mapping[str, str], output: Port
) -> tuple[float, str]:
    """Return the least time of a network of one layer, in seconds, and its element type.

    Args:
        core: has the device.
        device: its name.
        config: as for `measure_peaks`.
        output: of the layer, which reads one input "a".

    Raises:
        PolydeviceError: the device cannot run it.
    """
    network = opset.network("peak", {"y": output})
    shape = network.inputs["a"].shape
    assert shape is not None
    kind = network.inputs["a"].element_type.dtype
    data = np.full(shape.static, 0.5 if kind.kind == "f" else 1, kind)
    fastest = _Fastest()
    with core.load_network(network, device, config) as executable:
        request = executable.create_infer_request()
        request.infer({"a": data})
        executable.follow(fastest)
        for _ in range(_INFERENCES):
            request.infer({"a": data})
        executable.leave(fastest)
        nodes = executable.get_exec_graph_info().nodes()
        kinds = [
            str(node.rt_info["runtimePrecision"])
            for node in nodes
            if output.node.type in str(node.rt_info.get("layerType", ""))
        ]
    return fastest.seconds, PEAK_TYPES.get(kinds[0] if kinds else "", "f32")
