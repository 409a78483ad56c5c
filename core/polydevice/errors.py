"""Every exception of polydevice, in one tree.

PolydeviceError
├── ModelError                a model cannot be read or is not valid
│   ├── ModelFileError        the file is missing, empty, truncated, or not allowed to be read
│   ├── ModelFormatError      the content is not a well-formed IR or ONNX model
│   ├── WeightsError          weights are missing, too short, or out of bounds
│   ├── UnsupportedOperationError   operations that nothing here defines (all of them listed)
│   └── ModelLimitError       the model asks for more than the configured limits
├── NetworkError              a network or node is not consistent
│   ├── ShapeError            shapes do not fit an operation
│   └── ElementTypeError      element types do not fit an operation
├── DeviceError               something about a device
│   ├── DeviceNameError       the device string does not follow the grammar
│   ├── DeviceNotFoundError   no such device here (with the reason for each one left out)
│   ├── PluginError           a plugin cannot be loaded or breaks its contract
│   ├── UnsupportedNetworkError   the device cannot run these nodes (all of them listed)
│   ├── KernelBuildError      device code does not compile
│   ├── DeviceMemoryError     the device has too little memory
│   └── DeviceLostError       the device or its driver failed
├── OptionError               configuration
│   ├── UnknownOptionError    no such key
│   ├── OptionValueError      the value is not legal
│   └── UnknownMetricError    no such metric
├── InternalError             polydevice itself is wrong; the message says how to report it
└── RequestError              running an inference
    ├── BlobError             wrong name, shape, type or memory of an input or output
    ├── RequestBusyError      the request is running
    ├── InferCancelledError   the inference was cancelled
    ├── InferTimeoutError     the inference took longer than INFER_TIMEOUT_MS
    └── InferenceError        the inference failed
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PolydeviceError(Exception):
    """Root of every exception that polydevice raises on purpose."""


class InternalError(PolydeviceError):
    """Something in polydevice broke an assumption of its own; the message says how to report it."""


class ModelError(PolydeviceError):
    """A model cannot be read or is not valid."""


class ModelFileError(ModelError):
    """A model file is missing, empty, truncated, or outside the folder it may be read from."""


class ModelFormatError(ModelError):
    """The content is not a well-formed IR or ONNX model."""


class WeightsError(ModelError):
    """Weights are missing, too short, or referred to outside their bounds."""


class UnsupportedOperationError(ModelError):
    """The model has operations that nothing here defines; the message lists all of them."""


class ModelLimitError(ModelError):
    """The model asks for more nodes, bytes or nesting than the limits allow."""


class NetworkError(PolydeviceError):
    """A network, node or connection is not consistent."""


class ShapeError(NetworkError):
    """Shapes or attributes do not fit an operation."""


class ElementTypeError(NetworkError):
    """Element types do not fit an operation."""


class DeviceError(PolydeviceError):
    """Something about a device or its plugin."""


class DeviceNameError(DeviceError):
    """The device string does not follow the grammar."""


class DeviceNotFoundError(DeviceError):
    """No such device on this machine; the message says what was left out and why."""


class PluginError(DeviceError):
    """A plugin cannot be loaded, is of another version, or breaks its contract."""


class UnsupportedNetworkError(DeviceError):
    """The device cannot run some nodes; the message lists them and what would run them."""


class KernelBuildError(DeviceError):
    """Device code does not compile; the message shows the kernel, the source line and the log."""


class DeviceMemoryError(DeviceError):
    """The device has too little memory for what was asked."""


class DeviceLostError(DeviceError):
    """The device or its driver failed; load the network again."""


class OptionError(PolydeviceError):
    """Something about the configuration of a device."""


class UnknownOptionError(OptionError):
    """The device has no such configuration key."""


class OptionValueError(OptionError):
    """The value of a configuration key is not legal."""


class UnknownMetricError(OptionError):
    """The device or executable network has no such metric."""


class RequestError(PolydeviceError):
    """Something about running an inference."""


class BlobError(RequestError):
    """An input or output has the wrong name, shape, element type or memory."""


class RequestBusyError(RequestError):
    """The request is running; wait for it first."""


class InferCancelledError(RequestError):
    """The inference was cancelled before it completed, or its network was closed."""


class InferTimeoutError(RequestError):
    """The inference took longer than INFER_TIMEOUT_MS, and was given up."""


class InferenceError(RequestError):
    """The inference failed; the cause is chained."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `` Did you mean 'x'?`` for the known names closest to `name`, or an empty string."""
    close = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    return " Did you mean " + " or ".join(repr(c) for c in close) + "?" if close else ""
