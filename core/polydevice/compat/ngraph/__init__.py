"""``ngraph`` of 2021: models built in Python for `openvino.inference_engine`, on polydevice.

Its functions are those of opset7, and its classes those of `polydevice.compat.openvino`, which came
after it. ``function_from_cnn(network)`` shows an IENetwork as a Function, and
``IENetwork(Function.to_capsule(function))`` makes one of a Function.
"""

from __future__ import annotations

from typing import Any

from polydevice.compat.inference_engine.network import IENetwork
from polydevice.compat.ngraph import impl
from polydevice.compat.ngraph.impl import Dimension, Function, Node, PartialShape, Shape
from polydevice.compat.openvino.models import opsets
from polydevice.compat.openvino.modules import enter_module

__all__ = [
    "Dimension",
    "Function",
    "Node",
    "PartialShape",
    "Shape",
    "function_from_cnn",
    "function_to_cnn",
    "impl",
    "partial_shape_from_data",
    "shape_from_data",
]

_DEFAULT = "opset7"
_SETS = [f"opset{number}" for number in range(1, 9)]
for _name in _SETS:
    globals()[_name] = opsets.MODULES[_name]
    enter_module(opsets.MODULES[_name], f"{__name__}.{_name}")
__all__ += _SETS  # noqa: PLE0605 - it is a list


def function_from_cnn(cnn_network: IENetwork) -> Function:
    """Return the graph of a network; both stay one."""
    return Function._of(cnn_network._network)


def function_to_cnn(ng_function: Function) -> IENetwork:
    """Return a network of a graph; both stay one."""
    return IENetwork._of(ng_function._network)


def shape_from_data(data: Any) -> Shape:
    """Return the sizes of an output of a model, or of what describes one."""
    return Shape(list(data.shape))


def partial_shape_from_data(data: Any) -> PartialShape:
    """Return the sizes of an output of a model, known or not."""
    return PartialShape(list(data.shape))


def __getattr__(name: str) -> object:
    if name.startswith("__"):
        raise AttributeError(name)
    try:
        return getattr(opsets.MODULES[_DEFAULT], name)
    except AttributeError:
        raise AttributeError(
            f"polydevice's stand-in for ngraph has no {name!r}; it has the functions of "
            f"{_DEFAULT}, and {', '.join(__all__)}"
        ) from None
