"""What gives a copy of a prepared network its shapes."""

from __future__ import annotations

from polydevice.network import Network
from polydevice.passes.lower_state import keep_variable, lower_state, start_variable
from polydevice.runtime.plan_cache import Shapes
from polydevice_gpu.compiler import limits
from polydevice_gpu.compiler.preparation import Prepared


def use_variables(prepared: Prepared, network: Network, shapes: Shapes) -> None:
    """Make variables inputs and outputs, or compute them where they have no value yet."""
    sizes = prepared.sizes(shapes)
    for variable in lower_state(network):
        if sizes[variable.input] is None:
            start_variable(network, variable)
        else:
            keep_variable(network, variable)


def use_shapes(prepared: Prepared, network: Network, shapes: Shapes) -> None:
    """Give inputs their sizes.

    Raises:
        NetworkError: a layer cannot take them.
    """
    if prepared.has_shapes_to_set:
        sizes = prepared.sizes(shapes)
        network.reshape({name: size for name, size in sizes.items() if size is not None})


def check_memory(prepared: Prepared, network: Network, _: Shapes) -> None:
    """Check that memory can hold every value.

    Raises:
        ModelLimitError: naming the first node whose value is too large.
    """
    limits.check_memory(network, prepared.device)
