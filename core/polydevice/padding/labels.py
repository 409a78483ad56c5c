"""Labels: what the size of an axis consists of, such as the batch times 12 heads.

An axis has a label, a tuple of factors: numbers, and names of sizes that are padded. Elements of
such an axis are in the factors' order, the last one fastest, so that a value's own elements are
those whose positions lie below every factor's own size. An axis of size 1 has no factors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import ShapeError

Factor = int | str
Label = tuple[Factor, ...]
Labels = tuple[Label, ...]
Sizes = tuple[int, ...]
"""Of one axis or factor, in each of the shapes that are tried."""

Factors = Mapping[str, Sizes]
"""Name of a size that is padded → the sizes that are tried."""


def fixed(size: int) -> Label:
    """Return the label of an axis whose size is always the same."""
    return () if size == 1 else (size,)


def symbols_of(label: Label) -> list[str]:
    """Return the sizes that are padded and that an axis follows."""
    return [factor for factor in label if isinstance(factor, str)]


def simplified(factors: Sequence[Factor]) -> Label:
    """Return the factors without ones, and with neighbouring numbers multiplied."""
    made: list[Factor] = []
    for factor in factors:
        if isinstance(factor, int) and made and isinstance(made[-1], int):
            made[-1] = made[-1] * factor
        elif factor != 1:
            made.append(factor)
    return tuple(made)


def sizes_of(label: Label, known: Factors, count: int) -> Sizes:
    """Return the size of an axis in each of the `count` shapes that are tried."""
    return tuple(
        math.prod(known[factor][trial] if isinstance(factor, str) else factor for factor in label)
        for trial in range(count)
    )


def label_of(sizes: Sizes, known: Factors) -> Label | None:
    """Return the label of an axis of these sizes that is a number or one padded size, else None."""
    if len(set(sizes)) == 1:
        return fixed(sizes[0])
    return next(((name,) for name, own in known.items() if own == sizes), None)


def regrouped(labels: Labels, wanted: Sequence[Sizes], known: Factors) -> Labels | None:
    """Return the labels of the same elements in another shape; None where an axis has none.

    Args:
        labels: of the axes now.
        wanted: the sizes of each axis of the other shape.
        known: the padded sizes.
    """
    left = list(reversed(simplified([factor for label in labels for factor in label])))
    if 0 in left or any(0 in sizes for sizes in wanted):
        return None  # no elements, of which any axis may have any number
    made: list[Label] = []
    for sizes in wanted:
        label: list[Factor] = []
        need = list(sizes)
        while any(size != 1 for size in need):
            if not left:
                return None
            factor = left.pop()
            own = known[factor] if isinstance(factor, str) else (factor,) * len(need)
            if all(size % each == 0 for size, each in zip(need, own, strict=True)):
                need = [size // each for size, each in zip(need, own, strict=True)]
                label.append(factor)
                continue
            if isinstance(factor, str) or len(set(need)) != 1 or factor % need[0]:
                return None
            left.append(factor // need[0])
            label.append(need[0])
            need = [1] * len(need)
        made.append(simplified(label))
    return None if left else tuple(made)


def cut(array: Array, labels: Labels, padded: Mapping[str, int], own: Mapping[str, int]) -> Array:
    """Return the elements of a value that are no padding; a view where that is possible.

    Args:
        array: computed from padded inputs.
        labels: of its axes; a number that is the only one in a label may be another by now, of an
            axis whose size is unknown and not padded.
        padded: name of a size → what it was padded to.
        own: name of a size → what it was.

    Raises:
        ShapeError: an axis has another size than its label says, as where a table ends.
    """
    whole: list[int] = []
    part: list[int] = []
    sizes: list[int] = []
    for label, size in zip(labels, array.shape, strict=True):
        names = symbols_of(label)
        rest = size // max(math.prod(padded[name] for name in names), 1)
        numbers = [factor for factor in label if isinstance(factor, int)]
        factors = [rest if len(numbers) < 2 and f in numbers else f for f in label] or [rest]
        found = [padded[f] if isinstance(f, str) else f for f in factors]
        if math.prod(found) != size:
            raise ShapeError(f"an output has an axis of {size} elements instead of {found}")
        whole += found
        part += [own[f] if isinstance(f, str) else f for f in factors]
        sizes.append(math.prod(own[f] if isinstance(f, str) else f for f in factors))
    if whole == part:
        return array
    return np.reshape(array, whole)[tuple(map(slice, part))].reshape(sizes)
