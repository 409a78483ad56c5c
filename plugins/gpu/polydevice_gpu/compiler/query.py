"""query: which layers of a network no kernel takes, without compiling anything."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence

from polydevice.errors import (
    ModelLimitError,
    NetworkError,
    PolydeviceError,
    UnsupportedNetworkError,
)
from polydevice.network import Network
from polydevice.node import Evaluate
from polydevice.ops.unknown import UnknownOperation
from polydevice.passes.lower_state import keep_variable, lower_state
from polydevice.rewrites import rewrite
from polydevice.runtime.plan_cache import Shapes
from polydevice.shape import bounds
from polydevice.tensor import TensorDesc
from polydevice_gpu import views
from polydevice_gpu.cl.device import Device
from polydevice_gpu.compiler.device_target import target_of
from polydevice_gpu.compiler.limits import check_memory
from polydevice_gpu.custom.layer import CustomLayer
from polydevice_gpu.custom.operation import Custom, use_custom_layers
from polydevice_gpu.passes.lower import lower
from polydevice_gpu.passes.select_kernels import choose_kernel, place_constant, refusal
from polydevice_gpu.rewrites import gpu_wishes

_SIZES = (1, 16, 256)
"""Sizes to ask with where the network leaves them open."""

_RANKS = (4, 3, 2, 5, 1, 0)
"""Likewise of inputs whose number of dimensions is open."""

_PICTURE_SIZES = (32, 48, 64, 128, 224, 320, 512)
"""Heights and widths to ask with after those."""

SECONDS_FOR_SIZES = 5.0
"""How long to look for sizes of dynamic inputs; a trial takes 1 to 100 ms."""


def unsupported_nodes(
    network: Network, device: Device, evaluate: Evaluate, custom_layers: Mapping[str, CustomLayer]
) -> dict[str, str]:
    """Return layer name to reason for the layers that no kernel takes.

    The network is not changed. One with dynamic shapes is asked with two sets of sizes that its
    layers accept; a layer counts as refused if it is with both.

    Raises:
        ModelLimitError: when a value is too large for any device.
        UnsupportedNetworkError: when no sizes of dynamic inputs fit.
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
    for shapes in tried_shapes(copy):
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
        raise UnsupportedNetworkError(
            f"GPU found no sizes for the dynamic inputs of {network.name!r} with which every layer "
            f"makes sense. Call network.reshape() with sizes first. The last it tried: {error}"
        )
    return found


def _refused(network: Network, device: Device, evaluate: Evaluate) -> dict[str, str]:
    """Ask about a network of static shapes, which is changed."""
    check_memory(network, device)
    target = target_of(device)
    rewrite(network, gpu_wishes(target), evaluate)
    refused: dict[str, str] = {}
    for node in lower(network, target).nodes:
        if isinstance(node.op, UnknownOperation):
            refused[node.name] = node.op.hint
            continue
        if isinstance(node.op, Custom) and node.on_host:
            refused[node.name] = "its custom layer needs sizes that are known beforehand"
        if node.on_host or views.is_view(node):
            continue
        for value in node.inputs:
            place_constant(value)
        kernel, passed = choose_kernel(node, target)
        if kernel is None:
            refused.update(dict.fromkeys(node.origins, refusal(node, passed)))
    return refused


def tried_shapes(network: Network) -> Iterator[dict[str, list[int]]]:
    """Yield shapes of all inputs, within what the network says of them, until time is up.

    First the same size everywhere, the smallest first; then pictures of batch 1, since many
    networks take any width, but only the one height that they were trained for.
    """
    descs = {node.name: node.output.desc for node in network.parameters}
    ranks = (0,) if all(desc.shape is not None for desc in descs.values()) else _RANKS
    end = time.monotonic() + SECONDS_FOR_SIZES
    same = [(size, size, size) for size in _SIZES]
    square = [(1, size, size) for size in _PICTURE_SIZES]
    others = [(1, *sizes) for sizes in itertools.permutations(_PICTURE_SIZES, 2)]
    for trial, rank in [*itertools.product(same, ranks), *itertools.product(square + others, (4,))]:
        yield {name: _sizes(trial, rank, desc) for name, desc in descs.items()}
        if time.monotonic() > end:
            return


_MOST_SUMMED = 2
"""Likely sizes of which sums are tried as well."""
_LIKELY_BATCHES = (1, 64)
_LIKELY_SIZES = (128, 224, 64, 320, 32)
_ODD_SIZES = (125, 221, 61, 317, 31)
"""What a network is compiled for before its inputs tell their sizes. Vectors align for none of the
latter, so that what is made for them is right for all others too."""


def likely_shapes(network: Network, *, single: bool = False) -> list[list[Shapes]]:
    """Return shapes of all inputs, within what the network says of them, the likeliest first.

    With `single`, one row has programs of its own as well: those of a text's next token.

    There is a list for odd sizes, and for each batch, of one item and of many, which take programs
    of their own; one less where the batch is known, and none where inputs have no known rank or
    are no tensors.
    """
    descs = [node.output.desc for node in network.parameters]
    if any(desc.shape is None or desc.kind != "tensor" for desc in descs):
        return []
    kinds: list[tuple[int, tuple[int, ...]]] = [(b, _LIKELY_SIZES) for b in _LIKELY_BATCHES]
    kinds += [(1, (1,))] if single else []
    found: list[list[Shapes]] = []
    for batch, sizes in [(1, _ODD_SIZES), *kinds]:
        trials = [(batch, size, size) for size in sizes]
        shapes: list[Shapes] = [
            tuple(tuple(_sizes(trial, 0, desc)) for desc in descs) for trial in trials
        ]
        shapes += _with_sums(network, shapes[:_MOST_SUMMED])
        if shapes not in found:
            found.append(shapes)
    return found


def _with_sums(network: Network, shapes: Sequence[Shapes]) -> list[Shapes]:
    """Return shapes of which one open size is a sum of two others, or one more than another.

    As a mask is as long as a text and what came before it.
    """
    named: dict[str, list[tuple[int, int]]] = {}
    for number, node in enumerate(network.parameters):
        for axis, name in network.dimension_names(node.name).items():
            if axis:
                named.setdefault(name, []).append((number, axis))
    found: list[Shapes] = []
    for given, more in itertools.product(shapes, (0, 1)):
        for places in named.values() if len(named) > 1 else ():
            summed = [list(shape) for shape in given if shape is not None]
            for number, axis in places:
                summed[number][axis] += 1 if more else summed[number][axis]
            found.append(tuple(map(tuple, summed)))
    return found


def takes(network: Network, shapes: Shapes) -> bool:
    """Whether a network takes these shapes of its inputs, as far as shape inference tells."""
    trial = network.clone()
    names = [node.name for node in trial.parameters]
    try:
        trial.reshape({name: list(shape or ()) for name, shape in zip(names, shapes, strict=True)})
    except NetworkError:
        return False
    return True


def _sizes(trial: tuple[int, int, int], rank: int, desc: TensorDesc) -> list[int]:
    """Return batch, height and width as sizes of an input, of `rank` where it has none."""
    limits = [(0, None)] * rank if desc.shape is None else [bounds(size) for size in desc.shape]
    batch, height, width = trial
    wanted = [batch, *[height] * (len(limits) - 2), width][: len(limits)]
    return [
        max(low, size if high is None else min(size, high))
        for size, (low, high) in zip(wanted, limits, strict=True)
    ]
