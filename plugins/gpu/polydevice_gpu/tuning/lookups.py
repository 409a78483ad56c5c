"""Lookups: which layers of a plan with formulas a tuning file may know, and for which sizes.

For most sizes it knows none. To find that out from the keys of all layers, they have to be made and
the keys written: half of what a new shape took (12 residual blocks as for an H200: 2.2 of 4 ms).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from polydevice.symbolic_size import Number, is_formula, is_symbolic
from polydevice_gpu.graph import GpuGraph, GpuNode, Value
from polydevice_gpu.tuning.layer_key import first_tensors, kind_of, part
from polydevice_gpu.tuning.tuning_file import Parts

Shape = Sequence[Number]


class _Group(NamedTuple):
    """Layers whose first tensors have one shape.

    Attributes:
        shape: with formulas; empty where it does not matter.
        sizes: of which files know such layers; None for any.
        nodes: the layers.
    """

    shape: Shape
    sizes: frozenset[tuple[int, ...]] | None
    nodes: list[GpuNode]


class Lookups:
    """What to look up when numbers take the place of a plan's formulas.

    Attributes:
        known: what the files know; of one that is None, nothing but hashes.
    """

    def __init__(self, graph: GpuGraph, known: Sequence[Parts | None]) -> None:
        """Find the layers of which files may know something.

        Args:
            graph: with formulas, of which no more notes are taken.
            known: what each file knows.
        """
        self.known = known
        groups: dict[object, _Group] = {}
        for node in graph.nodes:
            if node.choice is None or node.choice.tuned:
                continue
            first, *others = first_tensors(node)
            sizes = _sizes(node, others, known)
            if sizes is not None and not sizes:
                continue
            shape: Shape = () if sizes is None else first.shape
            named = tuple((is_symbolic(n), n.name if is_symbolic(n) else n) for n in shape)
            groups.setdefault((named, sizes), _Group(shape, sizes, [])).nodes.append(node)
        self._groups = list(groups.values())

    def nodes(self, filled: Callable[[Shape], tuple[Number, ...]]) -> Iterator[GpuNode]:
        """Yield the nodes that files may know, by a function that puts numbers into shapes."""
        for group in self._groups:
            if group.sizes is None or filled(group.shape) in group.sizes:
                yield from group.nodes


def _sizes(
    node: GpuNode, others: Sequence[Value], known: Sequence[Parts | None]
) -> frozenset[tuple[int, ...]] | None:
    """Return the sizes of which files may know a layer like this one; None for any."""
    kind, found = kind_of(node), set()
    mine = None if any(map(_varies, others)) else part(node)
    for parts in known:
        if parts is None:
            return None
        if mine is not None:
            found |= parts.get((kind, mine), set())
        else:
            found |= {s for (each, _), sizes in parts.items() if each == kind for s in sizes}
    return frozenset(found)


def _varies(value: Value) -> bool:
    """Whether what a key says of a tensor depends on sizes."""
    return is_formula(value.constant) or any(
        map(is_symbolic, (*value.shape, *value.placed.pitches))
    )
