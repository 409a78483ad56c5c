"""trial_networks: a network with the sizes that a proof tries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from polydevice.errors import PolydeviceError, UnsupportedNetworkError
from polydevice.network import Network
from polydevice.node import Evaluate
from polydevice.padding.symbols import TRIALS, Symbol
from polydevice.shape import DimLike, bounds

_USUAL_SIZES = (64, 32, 128, 48, 224, 16, 8, 256)
"""What unknown sizes that are not padded are tried with: the first two that the network takes."""


def trial_networks(
    network: Network, symbols: Sequence[Symbol], evaluate: Evaluate | None
) -> Iterator[list[Network]]:
    """Yield the network with the sizes that are tried; twice if it leaves others open.

    Raises:
        UnsupportedNetworkError: it does not take them, or one size alone of those left open.
    """
    failure: PolydeviceError | None = None
    tried: list[dict[str, list[DimLike]]] = []
    places = {place for symbol in symbols for place in symbol.places}
    is_open = any(
        not isinstance(size, int) and (which, axis) not in places
        for which, node in enumerate(network.parameters)
        for axis, size in enumerate(node.output.shape or ())
    )
    for usual in _USUAL_SIZES:
        if len(tried) > is_open:
            return
        made = []
        try:
            shapes = _shapes(network, symbols, 0, usual)
            if shapes in tried:
                continue
            for number in range(TRIALS):
                trial = network.clone()
                trial.evaluate = evaluate
                trial.reshape(_shapes(network, symbols, number, usual))
                made.append(trial)
        except PolydeviceError as error:
            failure = failure or error
            continue
        tried.append(shapes)
        yield made
    if len(tried) <= is_open:
        reason = failure or "too few sizes of axes that are not padded are admitted"
        raise UnsupportedNetworkError(f"its sizes are not free to change: {reason}") from failure


def _shapes(
    network: Network, symbols: Sequence[Symbol], number: int, usual: int
) -> dict[str, list[DimLike]]:
    padded = {place: symbol.trials[number] for symbol in symbols for place in symbol.places}
    shapes: dict[str, list[DimLike]] = {}
    for which, node in enumerate(network.parameters):
        if node.output.shape is None:
            raise UnsupportedNetworkError(f"input {node.name!r} may have any number of axes")
        shapes[node.name] = [
            padded.get((which, axis), size if isinstance(size, int) else _within(size, usual))
            for axis, size in enumerate(node.output.shape)
        ]
    return shapes


def _within(size: DimLike, usual: int) -> int:
    low, high = bounds(size)
    return max(low, usual if high is None else min(usual, high))
