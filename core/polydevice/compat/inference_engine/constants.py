"""The enumerations."""

from __future__ import annotations

from enum import IntEnum

from polydevice.network.preprocess import ColorFormat, ResizeAlgorithm

__all__ = ["ColorFormat", "MeanVariant", "ResizeAlgorithm", "StatusCode", "WaitMode"]


class MeanVariant(IntEnum):
    """What is subtracted."""

    MEAN_IMAGE = 0
    MEAN_VALUE = 1
    NONE = 2


class WaitMode(IntEnum):
    """How long to wait."""

    RESULT_READY = -1
    STATUS_ONLY = 0


class StatusCode(IntEnum):
    """What became of an inference, or of a call."""

    OK = 0
    GENERAL_ERROR = -1
    NOT_IMPLEMENTED = -2
    NETWORK_NOT_LOADED = -3
    PARAMETER_MISMATCH = -4
    NOT_FOUND = -5
    OUT_OF_BOUNDS = -6
    UNEXPECTED = -7
    REQUEST_BUSY = -8
    RESULT_NOT_READY = -9
    NOT_ALLOCATED = -10
    INFER_NOT_STARTED = -11
    NETWORK_NOT_READ = -12
