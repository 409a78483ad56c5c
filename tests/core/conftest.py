"""Fixtures for testing the core with a device that is not real."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polydevice import Core
from polydevice.dtype import ElementType
from polydevice.network import Network
from polydevice.node import Node
from polydevice.ops.activation import Relu
from polydevice.ops.io import Parameter, Result
from polydevice.shape import Shape


def _import_echo() -> Any:
    """Import the echo plugin under a plain name, so that the registry can."""
    if "echo_plugin" not in sys.modules:
        path = Path(__file__).with_name("echo_plugin.py")
        spec = importlib.util.spec_from_file_location("echo_plugin", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["echo_plugin"] = module
        spec.loader.exec_module(module)
    return sys.modules["echo_plugin"]


@pytest.fixture
def core() -> Iterator[Core]:
    _import_echo()
    with Core() as made:
        made.register_plugin("echo_plugin", "ECHO")
        yield made


def relu_network(shape: Any = (2, 3), element_type: ElementType = ElementType.f32) -> Network:
    x = Node("x", Parameter(element_type=element_type, shape=Shape(shape)))
    relu = Node("relu", Relu(), [x.output])
    return Network("tiny", [x], [Node("out", Result(), [relu.output])])


@pytest.fixture
def network() -> Network:
    return relu_network()


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng().standard_normal((2, 3)).astype(np.float32)
