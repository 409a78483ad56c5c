"""query: which layers of a network no kernel takes, without compiling anything."""

from __future__ import annotations

from collections.abc import Mapping

from polydevice.errors import NetworkError, UnsupportedNetworkError
from polydevice.network import Network
from polydevice.node import Evaluate
from polydevice.passes.constant_folding import constant_folding
from polydevice.passes.lower_state import keep_variable, lower_state
from polydevice.shape import bounds
from polydevice.tensor import TensorDesc
from polydevice_gpu import views
from polydevice_gpu.cl.device import Device
from polydevice_gpu.compiler import check_memory, target_of
from polydevice_gpu.custom.layer import CustomLayer
from polydevice_gpu.custom.operation import use_custom_layers
from polydevice_gpu.kernels.kernel import kernels_of
from polydevice_gpu.passes.lower import lower
from polydevice_gpu.passes.select_kernels import place_constant

_SIZES = (1, 16, 256)


def unsupported_nodes(
    network: Network, device: Device, evaluate: Evaluate, custom_layers: Mapping[str, CustomLayer]
) -> dict[str, str]:
    """Return layer name to reason for the layers that no kernel takes.

    The network is not changed. One with dynamic shapes is asked with small ones.

    Raises:
        ModelLimitError: when a value is too large for any device.
    """
    copy = network.clone()
    copy.evaluate = evaluate
    use_custom_layers(copy, custom_layers)
    for variable in lower_state(copy):
        keep_variable(copy, variable)
    if copy.is_dynamic:
        _fix_sizes(copy)
    check_memory(copy, device)
    constant_folding(copy, evaluate)
    target = target_of(device)
    refused: dict[str, str] = {}
    for node in lower(copy, fp64=target.fp64).nodes:
        if node.on_host or views.is_view(node):
            continue
        for value in node.inputs:
            place_constant(value)
        if not any(kernel.supports(node, target) for kernel in kernels_of(type(node.op))):
            types = ", ".join(str(value.element_type) for value in node.inputs)
            for origin in node.origins:
                refused[origin] = f"no GPU kernel for {node.op.type} ({types})"
    return refused


def _fix_sizes(network: Network) -> None:
    """Give the inputs the smallest sizes of `_SIZES` with which every layer still makes sense."""
    for size in _SIZES:
        shapes = {node.name: _at_least(size, node.output.desc) for node in network.parameters}
        try:
            network.reshape(shapes)
        except NetworkError:  # a window or padding wider than its input, say
            if size == _SIZES[-1]:
                raise
        else:
            return


def _at_least(wanted: int, desc: TensorDesc) -> list[int]:
    if desc.shape is None:
        raise UnsupportedNetworkError(
            f"GPU needs inputs of known rank; {desc} has none. Call network.reshape() first"
        )
    limits = [bounds(size) for size in desc.shape]
    return [max(low, wanted if high is None else min(wanted, high)) for low, high in limits]
