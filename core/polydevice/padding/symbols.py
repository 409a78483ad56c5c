"""Symbols: the unknown sizes of a network's inputs that are padded, and which axes have them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from polydevice.dataclass import dataclass
from polydevice.errors import OptionValueError, UnsupportedNetworkError
from polydevice.network import Network
from polydevice.options.shape_buckets import Ladder, ShapeBuckets
from polydevice.shape import bounds

TRIALS = 3
"""Sizes that are tried. Sizes of results are sums, products and exact quotients of few sizes (what
rounds or limits them is refused), so what follows a size in three that are small, even and odd, and
without a common factor, follows it always."""

_TRIED = (
    *((5, 38, 61), (7, 46, 71), (11, 34, 73), (13, 58, 97), (17, 62, 101), (19, 74, 103)),
    *((23, 82, 107), (29, 86, 109), (31, 94, 113), (41, 106, 127), (43, 118, 131), (47, 122, 137)),
)
"""No two have an element in common, and the first fit tables of 77 positions."""

Place = tuple[int, int]
"""Number of an input, and an axis of it."""


@dataclass(frozen=True)
class Symbol:
    """A size that is padded.

    Attributes:
        name: as the model calls it, or the axis by its number.
        places: the axes of inputs that have it, which must be equal.
        ladder: what it is padded to.
        most: the largest size that the network admits, if it says so.
        trials: sizes that are tried.
        is_batch: whether it is the first axis of some input.
    """

    name: str
    places: tuple[Place, ...]
    ladder: Ladder
    most: int | None
    trials: tuple[int, ...]
    is_batch: bool

    @property
    def title(self) -> str:
        """How messages call it: its name, and the axis that it is of."""
        axes = " and ".join(str(axis) for axis in sorted({axis for _, axis in self.places}))
        named = f", called {self.name!r}" if not self.name.startswith("axis ") else ""
        return f"axis {axes} of the inputs{named}"

    def padded(self, size: int) -> int:
        """Return the size that one is padded to."""
        return self.ladder.above(size, self.most)


def symbols(network: Network, buckets: ShapeBuckets, *, by_name: bool = True) -> list[Symbol]:
    """Return the sizes of a network's inputs that are to be padded; none where all are known.

    Args:
        network: whose inputs are padded.
        buckets: what SHAPE_BUCKETS says.
        by_name: whether sizes that an ONNX file calls by one name are one, and of others those of
            one axis; else those of one axis are one, whatever they are called.

    Raises:
        OptionValueError: sizes are given for an axis of which no input leaves the size open.
        UnsupportedNetworkError: too few sizes are admitted to try.
    """
    found: dict[str, list[tuple[Place, Ladder]]] = {}
    open_axes = set()
    for number, node in enumerate(network.parameters):
        names = network.dimension_names(node.name) if by_name else {}
        for axis, size in enumerate(node.output.shape or ()):
            if isinstance(size, int) or node.output.desc.kind != "tensor":
                continue
            open_axes.add(axis)
            ladder = buckets.of(axis)
            if ladder is not None:
                name = names.get(axis, "")
                if not any(map(str.isalnum, name)):  # Paddle writes "?" for any size
                    name = f"axis {axis}"
                found.setdefault(name, []).append(((number, axis), ladder))
    for axis, _ in buckets.axes:
        if axis not in open_axes and open_axes:
            legal = ", ".join(map(str, sorted(open_axes)))
            raise OptionValueError(
                f"SHAPE_BUCKETS={str(buckets)!r}: no input of {network.name!r} has an unknown size "
                f"along axis {axis}; legal here: {legal}"
            )
    used: set[int] = set()
    made = []
    for name, each in found.items():
        made.append(_symbol(network, used, name, [place for place, _ in each], each[0][1]))
        used.update(made[-1].trials)
    return made


def _symbol(
    network: Network, used: set[int], name: str, places: Sequence[Place], ladder: Ladder
) -> Symbol:
    shapes = [node.output.shape or () for node in network.parameters]
    limits = [bounds(shapes[which][axis]) for which, axis in places]
    least = max(low for low, _ in limits)
    most = min((high for _, high in limits if high is not None), default=None)
    own = next((each for each in _candidates(max(least, 2), most, used)), None)
    if own is None:
        raise UnsupportedNetworkError(
            f"axis {places[0][1]} of its inputs admits {least} to {most} alone, too few sizes"
        )
    is_batch = any(axis == 0 for _, axis in places)
    return Symbol(name, tuple(places), ladder, most, own, is_batch)


def _candidates(least: int, most: int | None, used: set[int]) -> Iterator[tuple[int, ...]]:
    """Yield sizes to try from `least` to `most`, none of them used or with a common factor."""
    moved = (tuple(least + size for size in each) for each in _TRIED)
    near = range(least, (least + 4096 if most is None else min(most, least + 4096)) + 1)
    free = [size for size in near if size not in used]
    spread = free[:: len(free) // 6 | 1]  # odd, for even sizes and odd ones
    for each in itertools.chain(_TRIED, moved, itertools.combinations(spread, TRIALS)):
        fits = least <= min(each) and (most is None or max(each) <= most)
        if fits and math.gcd(*each) == 1 and not used & set(each):
            yield each
