"""MakeStateful: inputs and outputs that a model keeps between inferences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from polydevice.compat.openvino.errors import translated
from polydevice.compat.openvino.graph.node import Node
from polydevice.compat.openvino.models.model import Model
from polydevice.compat.openvino.passes.rewriting import ModelPass
from polydevice.node import Node as CoreNode
from polydevice.node import constant
from polydevice.ops.state import Assign, ReadValue


class MakeStateful(ModelPass):
    """Makes a variable of an input and the output that gives its next value."""

    def __init__(self, pairs_to_replace: Mapping[str, str] | Sequence[tuple[Node, Node]]) -> None:
        """Keep name of an input → name of an output, or pairs of their nodes."""
        self._pairs = pairs_to_replace

    @translated
    def run_on_model(self, model: Model) -> bool:
        """Replace the pairs; the variables begin with zeros.

        Raises:
            RuntimeError: no such input or output, or an input whose sizes are not known.
        """
        pairs: Any = self._pairs
        if isinstance(pairs, Mapping):
            named = [
                (model.input(a).get_node(), model.output(b).get_node()) for a, b in pairs.items()
            ]
        else:
            named = list(pairs)
        for parameter, result in named:
            _replace(model, parameter._node, result._node)
        return bool(named)


def _replace(model: Model, parameter: CoreNode, result: CoreNode) -> None:
    network, port = model._network, parameter.output
    if port.shape is None or not port.shape.is_static:
        raise RuntimeError(
            f"input {parameter.name!r} has the shape {port.shape}; reshape the model to known "
            "sizes before it becomes a variable"
        )
    name = f"{parameter.name}{result.name}"
    zeros = constant(f"{name}/start", np.zeros(port.shape.static, port.element_type.dtype))
    read = CoreNode(f"{name}/read", ReadValue(name, port.element_type, port.shape), [zeros.output])
    network.replace({port: read.output})
    network.parameters.remove(parameter)
    network.results.remove(result)
    network.sinks.append(CoreNode(f"{name}/assign", Assign(name), [result.inputs[0]]))
    network.infer()
