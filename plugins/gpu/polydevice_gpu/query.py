"""query: which layers of a network no kernel takes, without compiling anything."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping

from polydevice.errors import ModelLimitError, NetworkError, PolydeviceError
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
"""Sizes to ask with where the network leaves them open."""

_RANKS = (4, 3, 2, 5, 1, 0)
"""Likewise of inputs whose number of dimensions is open."""


def unsupported_nodes(
    network: Network, device: Device, evaluate: Evaluate, custom_layers: Mapping[str, CustomLayer]
) -> dict[str, str]:
    """Return layer name to reason for the layers that no kernel takes.

    The network is not changed. One with dynamic shapes is asked with two sets of sizes that its
    layers accept; a layer counts as refused if it is with both.

    Raises:
        ModelLimitError: when a value is too large for any device.
        UnsupportedNetworkError: when no sizes of dynamic inputs fit.
        NetworkError: when none of the sizes tried fits all layers.
    """
    copy = network.clone()
    copy.evaluate = evaluate
    use_custom_layers(copy, custom_layers)
    for variable in lower_state(copy):
        keep_variable(copy, variable)
    if not copy.is_dynamic:
        return _refused(copy, device, evaluate)
    found: dict[str, str] | None = None
    error: PolydeviceError | None = None
    for shapes in _tried(copy):
        trial = copy.clone()
        try:
            trial.reshape(shapes)
            refused = _refused(trial, device, evaluate)
        except (NetworkError, ModelLimitError) as reason:  # a window wider than its input, say
            error = reason
            continue
        if found is not None:
            return {name: reason for name, reason in found.items() if name in refused}
        found = refused
        if not found:
            return found
    if found is None:
        assert error is not None
        raise error
    return found


def _refused(network: Network, device: Device, evaluate: Evaluate) -> dict[str, str]:
    """Ask about a network of static shapes, which is changed."""
    check_memory(network, device)
    constant_folding(network, evaluate)
    target = target_of(device)
    refused: dict[str, str] = {}
    for node in lower(network, fp64=target.fp64).nodes:
        if node.on_host or views.is_view(node):
            continue
        for value in node.inputs:
            place_constant(value)
        if not any(kernel.supports(node, target) for kernel in kernels_of(type(node.op))):
            types = ", ".join(str(value.element_type) for value in node.inputs)
            for origin in node.origins:
                refused[origin] = f"no GPU kernel for {node.op.type} ({types})"
    return refused


def _tried(network: Network) -> Iterator[dict[str, list[int]]]:
    """Yield shapes of all inputs, within what the network says of them, smallest first."""
    descs = {node.name: node.output.desc for node in network.parameters}
    known = all(desc.shape is not None for desc in descs.values())
    for rank, size in itertools.product((0,) if known else _RANKS, _SIZES):
        yield {name: _at_least(size, rank, desc) for name, desc in descs.items()}


def _at_least(wanted: int, rank: int, desc: TensorDesc) -> list[int]:
    if desc.shape is None:
        return [wanted] * rank
    limits = [bounds(size) for size in desc.shape]
    return [max(low, wanted if high is None else min(wanted, high)) for low, high in limits]
