"""What OpenVINO raises where polydevice raises an exception of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from polydevice.errors import PolydeviceError

P = ParamSpec("P")
R = TypeVar("R")


class OVError(Exception):
    """Root of the exceptions that OpenVINO's Python code raises; not raised here."""


class UserInputError(OVError):
    """Not raised here; programs name it."""


class OVTypeError(OVError, TypeError):
    """Not raised here; programs name it."""


def failure(error: PolydeviceError) -> RuntimeError:
    """Return what OpenVINO raises: a RuntimeError, whatever is wrong."""
    return RuntimeError(str(error))


def translated(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function raise RuntimeError where core raises an exception of its own."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except PolydeviceError as error:
            raise failure(error) from error

    return call
