"""What gives a copy of a prepared network its shapes."""

from __future__ import annotations

from polydevice.network import Network
from polydevice.node import Node
from polydevice.ops.io import Constant
from polydevice.passes.lower_state import keep_variable, lower_state, start_variable
from polydevice.runtime.plan_cache import Shapes
from polydevice.symbolic_size import array_of
from polydevice_gpu.compiler import limits
from polydevice_gpu.compiler.preparation import Prepared
from polydevice_gpu.rewrites import compressed


def use_variables(prepared: Prepared, network: Network, shapes: Shapes) -> None:
    """Make variables inputs and outputs, or compute them where they have no value yet."""
    sizes = prepared.sizes(shapes)
    for variable in lower_state(network):
        if sizes[variable.input] is None:
            start_variable(network, variable)
        else:
            keep_variable(network, variable)


def use_size_inputs(prepared: Prepared, network: Network, shapes: Shapes) -> None:
    """Make constants of the inputs whose values say sizes; they stay inputs that nothing reads."""
    sizes = prepared.sizes(shapes)
    for node in network.parameters:
        if node.name in prepared.size_inputs:
            items, shape = sizes[node.name], node.output.desc.shape
            assert items is not None
            assert shape is not None
            kind = node.output.element_type
            value = array_of(items, kind.dtype).reshape(shape.static)
            made = Node(f"{node.name}/value", Constant(value, kind))
            network.replace({node.output: made.output})


def use_shapes(prepared: Prepared, network: Network, shapes: Shapes) -> None:
    """Give inputs their sizes.

    Raises:
        NetworkError: a layer cannot take them.
    """
    if prepared.has_shapes_to_set:
        sizes = prepared.sizes(shapes)
        said = prepared.size_inputs
        given = {name: s for name, s in sizes.items() if s is not None and name not in said}
        network.reshape(given)


def settle_matrices(prepared: Prepared, network: Network, _: Shapes) -> None:
    """Let products of many rows read floats, which all plans share.

    Raises:
        NetworkError: rows have other terms than a matrix.
    """
    shared = compressed.settle_matrices(network, prepared.matrices)
    prepared.constants.update(map(id, shared))


def check_memory(prepared: Prepared, network: Network, _: Shapes) -> None:
    """Check that memory can hold every value.

    Raises:
        ModelLimitError: naming the first node whose value is too large.
    """
    limits.check_memory(network, prepared.device)
