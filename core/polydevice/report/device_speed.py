"""measure_speed: what a device reaches in networks of one layer, and what a layer costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from polydevice import opset
from polydevice.errors import PolydeviceError
from polydevice.inspection.measured import Speed
from polydevice.network import Network
from polydevice.node import Port
from polydevice.report.peaks import measure_peaks, time_layer

if TYPE_CHECKING:
    from polydevice.core import Core

_CHAIN = 33
"""Layers of the longer of two networks whose times differ by launches alone."""

_INFERENCES = 50
_SIZES = (1024, 2048, 4096)
"""Rows and columns of matrices; larger ones follow while one takes less than `_ENOUGH_S`."""

_ENOUGH_S = 2e-3


def measure_speed(core: Core, device: str) -> Speed:
    """Measure for some seconds: products in each precision, a sum, launches and copies.

    Args:
        core: has the device.
        device: its name.

    Raises:
        PolydeviceError: the device cannot run a product, a sum or a softmax in f32.
    """
    keys = core.option_keys(device)
    half = "INFERENCE_PRECISION_HINT" in keys
    exact = {"INFERENCE_PRECISION_HINT": "f32"} if half else {}
    if "ENFORCE_BF16" in keys:
        exact["ENFORCE_BF16"] = "NO"
    peaks = measure_peaks(core, device, exact)
    rates = dict(peaks.operations)
    if half:
        rates["f16"] = _rate(core, device, {}, _product("f16"))
    if "ENFORCE_BF16" in keys and "BF16" in core.get_metric(device, "OPTIMIZATION_CAPABILITIES"):
        rates["bf16"] = _rate(core, device, {"ENFORCE_BF16": "YES"}, _product("f32"))
    if "LP_TRANSFORMS_MODE" in keys and core.get_config(device, "LP_TRANSFORMS_MODE") == "YES":
        rates["i8"] = _rate(core, device, {}, _int8_product)
    short, long = (_smallest_inference_s(core, device, count) for count in (1, _CHAIN))
    launch = max(0.0, long - short) / (_CHAIN - 1)
    return Speed(
        gops={kind: rate / 1e9 for kind, rate in rates.items() if np.isfinite(rate) and rate},
        bytes_per_s=peaks.bytes,
        launch_us=launch * 1e6,
        copy_us=max(0.0, short - launch) / 2 * 1e6,
    )


def _rate(
    core: Core, device: str, config: Mapping[str, str], product: Callable[[int], Port]
) -> float:
    """Return operations per second of a product; 0 where the device cannot run it."""
    best = 0.0
    for size in _SIZES:
        try:
            seconds, _ = time_layer(core, device, config, product(size))
        except PolydeviceError:
            break
        best = max(best, 2 * size**3 / seconds)
        if seconds > _ENOUGH_S:
            break
    return best


def _product(kind: str) -> Callable[[int], Port]:
    """Return what makes the product of an input and a matrix of a type."""

    def make(size: int) -> Port:
        a = opset.parameter([size, size], kind, name="a")
        weights = np.random.default_rng(0).standard_normal((size, size))
        made: Port = opset.mat_mul(a, weights.astype(a.element_type.dtype))
        return made

    return make


def _int8_product(size: int) -> Port:
    """Make the product of an input of bytes and a matrix of 8 bits, both with one scale."""
    a = opset.parameter([size, size], "u8", name="a")
    weights = np.random.default_rng(0).integers(-127, 128, (size, size)).astype(np.int8)
    made: Port = opset.mat_mul(
        opset.dequantize_linear(a, np.float32(0.1), np.uint8(3)),
        opset.dequantize_linear(weights, np.float32(0.1), np.int8(0)),
    )
    return made


def _smallest_inference_s(core: Core, device: str, count: int) -> float:
    """Return the shortest time of an inference of some layers on eight numbers."""
    value = opset.parameter([1, 8], "f32", name="a")
    y = value
    for _ in range(count):
        y = opset.softmax(y, axis=1)
    network: Network = opset.network("launches", {"y": y})
    data = {"a": np.zeros((1, 8), np.float32)}
    shortest = float("inf")
    with core.load_network(network, device) as executable:
        request = executable.create_infer_request()
        for _ in range(_INFERENCES):
            start = time.perf_counter()
            request.infer(data)
            shortest = min(shortest, time.perf_counter() - start)
    return shortest
