"""dynamic_batch: whether a network computes the items of its batch independently of one another."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from polydevice.errors import NetworkError, UnsupportedNetworkError
from polydevice.network import Network
from polydevice.shape import Dim

if TYPE_CHECKING:
    from polydevice.node import Evaluate
    from polydevice.plugin import Services


def dynamic_batch_limit(network: Network, services: Services) -> int:
    """Return the network's batch, after a check that any smaller one is possible too.

    Raises:
        UnsupportedNetworkError: naming what does not follow the batch.
    """
    try:
        return follow_batch(network, services.evaluate)
    except UnsupportedNetworkError as error:
        raise UnsupportedNetworkError(
            f"DYN_BATCH_ENABLED=YES is not possible for {network.name!r}: {error}. "
            "Leave the key out"
        ) from error.__cause__


def follow_batch(network: Network, evaluate: Evaluate | None) -> int:
    """Return the network's batch, after a check that any other one is possible too.

    Every input and output has the batch as its first size; and with it changed on the inputs,
    every value changes in that one size alone. Values that mix items cannot do that.

    Args:
        network: with sizes that are all known.
        evaluate: computes shape arithmetic.

    Raises:
        UnsupportedNetworkError: naming what does not follow the batch; the reason alone.
    """
    if network.is_dynamic:
        raise UnsupportedNetworkError(
            "its shapes are dynamic already; infer with the batch you have"
        )
    if network.state_variables():
        raise UnsupportedNetworkError("its variables keep values of the whole batch")
    sizes = {node.name: node.output.desc.shape.static for node in network.parameters}  # type: ignore[union-attr]
    firsts = {shape[:1] for shape in sizes.values()}
    if len(firsts) != 1 or firsts == {()}:
        raise UnsupportedNetworkError("its inputs do not have the same first size")
    ((limit,),) = firsts
    trials = [_with_batch(network, evaluate, sizes, size) for size in (limit, limit + 1)]
    names = {node.name for node in network.nodes()}
    if any(node.name not in names for node in trials[1].nodes()):
        raise UnsupportedNetworkError("a Reshape of it has the batch written out")
    for one, other in zip(*(trial.nodes() for trial in trials), strict=True):
        for port, more in zip(one.outputs, other.outputs, strict=True):
            if port.shape is None or more.shape is None or port.shape == more.shape:
                continue
            same = len(port.shape) == len(more.shape) and port.shape[1:] == more.shape[1:]
            if not same or (port.shape[0], more.shape[0]) != (limit, limit + 1):
                raise UnsupportedNetworkError(f"{one.title} moves or mixes the items of a batch")
    for name, port in trials[1].output_ports():
        if port.shape is None or not len(port.shape) or port.shape[0] != limit + 1:
            raise UnsupportedNetworkError(
                f"output {name!r} does not follow the batch of the inputs"
            )
    return limit


def open_batch(network: Network, limit: int) -> None:
    """Leave the batch of a network open, so that nothing of it that depends on it is a constant.

    A network in which no open batch is possible stays as it is.
    """
    shapes = {node.name: node.output.desc.shape for node in network.parameters}
    batch = Dim(1, limit)
    with contextlib.suppress(NetworkError):
        network.reshape({name: [batch, *shape[1:]] for name, shape in shapes.items() if shape})


def _with_batch(
    network: Network, evaluate: Evaluate | None, sizes: dict[str, tuple[int, ...]], batch: int
) -> Network:
    trial = network.clone()
    trial.evaluate = evaluate
    try:
        trial.reshape({name: (batch, *shape[1:]) for name, shape in sizes.items()})
    except NetworkError as error:
        raise UnsupportedNetworkError(f"another batch is not possible: {error}") from error
    return trial
