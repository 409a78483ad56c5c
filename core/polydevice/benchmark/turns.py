"""Shapes that take turns: what ``polydevice bench --shapes`` says, and what is told of them."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Mapping, Sequence

from polydevice.benchmark.measure import Statistics, nearest_rank
from polydevice.dtype import Array
from polydevice.errors import OptionValueError
from polydevice.network import Network
from polydevice.shape import DimLike, dim

COUNT = 30
"""How many shapes ``random:`` makes where it does not say."""
MOST = 100_000
_PERCENTILES = (50, 90, 99)

Turns = dict[str, list[list[int]]]
"""Input → its shapes, one a turn."""


def parse_turns(text: str, inputs: Sequence[str], seed: int) -> Turns:
    """Read ``1x3x224x224,1x3x320x200``, or ``random:`` and a shape with ranges.

    A shape is that of every input; of inputs that differ it is ``a=1x8+b=1x1``. After ``random:``
    the number of shapes may follow, ``random:50:1x3x32..640x32..640``; a range that occurs twice is
    drawn twice, but once for all inputs of a shape without names.

    Raises:
        OptionValueError: saying what the text should look like.
    """
    draw = random.Random(seed)  # noqa: S311 - sizes, no secrets
    kind, colon, rest = text.partition(":")
    if not colon:
        shapes = [_shape(item, inputs, text, None) for item in text.split(",")]
    elif kind == "random":
        count, colon, shape = rest.partition(":")
        number = int(count) if colon and count.isdecimal() else COUNT
        if not 1 <= number <= MOST or (colon and not count.isdecimal()):
            raise OptionValueError(f"--shapes {text!r}: {count!r} is no number from 1 to {MOST}")
        one = shape if colon else count
        shapes = [_shape(one, inputs, text, draw) for _ in range(number)]
    else:
        raise OptionValueError(f"--shapes {text!r} begins with {kind!r}; write random:1x3x8..64")
    return {name: [shape[name] for shape in shapes] for name in inputs}


def open_shapes(turns: Turns) -> dict[str, list[DimLike | None]]:
    """Return the shapes that a network needs to take all of these."""
    found: dict[str, list[DimLike | None]] = {}
    for name, shapes in turns.items():
        if len({len(shape) for shape in shapes}) > 1:
            raise OptionValueError(f"--shapes gives input {name!r} different numbers of sizes")
        found[name] = [dim(min(sizes), max(sizes)) for sizes in zip(*shapes, strict=True)]
    return found


def prepare(network: Network, turns: Turns) -> None:
    """Let a network take all of these shapes.

    Raises:
        OptionValueError: an input is given different numbers of sizes.
        NetworkError: the network does not take them.
    """
    network.reshape(open_shapes(turns))


def first_times(
    run: Callable[[Mapping[str, Array]], object], inputs: Sequence[Mapping[str, Array]]
) -> list[float]:
    """Return the milliseconds of an inference with each set of inputs, one after the other."""
    times = []
    for one in inputs:
        begin = time.perf_counter()
        run(one)
        times.append((time.perf_counter() - begin) * 1e3)
    return times


def over_shapes(first: Sequence[float], statistics: Statistics) -> dict[str, dict[str, float]]:
    """Return percentiles over shapes: of the first inference with each, and of later ones' medians.

    Args:
        first: milliseconds, one of each shape.
        statistics: of the measuring loop, in which the shapes took turns.
    """
    later = [nearest_rank(times, 50) for times in statistics.by_inputs if times]
    return {"first": _percentiles(first), "later": _percentiles(later)}


def lines(figures: Mapping[str, Mapping[str, float]], count: int) -> list[str]:
    """Return what is printed of `over_shapes`."""
    title = {"first": "first inference with each of", "later": "later, while these take turns,"}
    return [
        f"{title[name]} {count} shapes: "
        + ", ".join(f"{key} {value:.2f} ms" for key, value in values.items())
        for name, values in figures.items()
        if values
    ]


def _percentiles(times: Sequence[float]) -> dict[str, float]:
    ordered = sorted(times)
    if not ordered:
        return {}
    return {**{f"p{p}": nearest_rank(ordered, p) for p in _PERCENTILES}, "most": ordered[-1]}


def _shape(
    item: str, inputs: Sequence[str], text: str, draw: random.Random | None
) -> dict[str, list[int]]:
    """One turn: the shape of each input."""
    if "=" not in item:
        sizes = _sizes(item, text, draw)
        return dict.fromkeys(inputs, sizes)
    found = {}
    for part in item.split("+"):
        name, _, shape = part.partition("=")
        found[name] = _sizes(shape, text, draw)
    if set(found) != set(inputs):
        raise OptionValueError(
            f"--shapes {text!r}: {item!r} names {', '.join(found)}; the inputs are "
            f"{', '.join(inputs)}"
        )
    return found


def _sizes(item: str, text: str, draw: random.Random | None) -> list[int]:
    sizes = []
    for size in item.strip().split("x"):
        match = re.fullmatch(r"(\d{1,9})(?:\.\.(\d{1,9}))?", size)
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if low > high or (draw is None and low < high):
            example = "1x3x224x224" if draw is None else "1x3x32..640x32..640"
            raise OptionValueError(
                f"--shapes {text!r}: {size!r} in {item!r} is no size; write {example}"
            )
        sizes.append(low if draw is None else draw.randint(low, high))
    return sizes
