"""``openvino.utils.decorators``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from polydevice.compat.openvino.graph.node import Node, port_of
from polydevice.compat.openvino.graph.ports import Output
from polydevice.compat.openvino.surface import missing

__all__ = ["custom_preprocess_function"]


def custom_preprocess_function(custom_function: Callable[..., Any]) -> Callable[[Node], Output]:
    """Let a function of a step of preprocessing return a node in place of its output."""

    @functools.wraps(custom_function)
    def wrapper(node: Node) -> Output:
        return Output(port_of(custom_function(node)))

    return wrapper


def __getattr__(name: str) -> object:
    raise missing(name, "utils.decorators")
