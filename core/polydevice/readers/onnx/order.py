"""in_order: nodes after what they read, as ONNX asks for and not every converter writes."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from polydevice.readers.onnx.protos.messages import AttributeProto, NodeProto


def in_order(nodes: Sequence[NodeProto]) -> Sequence[NodeProto]:
    """Return nodes so that each stands behind those whose outputs it reads.

    ONNX Runtime takes nodes in any order, and converters (of float16, say) put nodes at the end
    that belong in front. Nodes in a legal order, and those in a cycle, stay as they are.
    """
    producers = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    needed = [
        {producers[name] for name in _read_by(node) if name in producers} - {index}
        for index, node in enumerate(nodes)
    ]
    if all(max(before, default=-1) < index for index, before in enumerate(needed)):
        return nodes
    readers: list[list[int]] = [[] for _ in nodes]
    for index, before in enumerate(needed):
        for each in before:
            readers[each].append(index)
    waiting = [len(before) for before in needed]
    ready = [index for index, count in enumerate(waiting) if not count]
    found: list[NodeProto] = []
    while ready:
        index = heapq.heappop(ready)
        found.append(nodes[index])
        for each in readers[index]:
            waiting[each] -= 1
            if not waiting[each]:
                heapq.heappush(ready, each)
    return found if len(found) == len(nodes) else nodes


def _read_by(node: NodeProto) -> Iterator[str]:
    """Yield the names that a node reads, also from inside its graphs."""
    yield from node.input
    for attribute in node.attribute:
        if attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
            for graph in (attribute.g, *attribute.graphs):
                for inner in graph.node:
                    yield from _read_by(inner)
                yield from (value.name for value in graph.output)
