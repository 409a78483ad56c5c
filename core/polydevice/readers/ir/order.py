"""Which layers are needed, and an order in which producers come before consumers."""

from __future__ import annotations

from polydevice.errors import ModelFormatError, UnsupportedOperationError
from polydevice.readers.ir.layers import GraphRecord, LayerRecord
from polydevice.readers.ir.operations import operation_of


def producers_first(graph: GraphRecord) -> list[LayerRecord]:
    """Return every layer after all that feed it, else in the file's order.

    Raises:
        ModelFormatError: the layers form a cycle, which is spelled out.
    """
    order: list[LayerRecord] = []
    state: dict[int, int] = {}  # 1 while its producers are visited, 2 when done
    for root in graph.layers:
        stack = [root]
        while stack:
            number = stack[-1]
            if state.get(number) == 2:
                stack.pop()
                continue
            layer = graph.layers[number]
            if state.get(number) == 1:
                state[number] = 2
                order.append(layer)
                stack.pop()
                continue
            state[number] = 1
            for producer, _ in graph.feeds(layer):
                if state.get(producer) == 1:
                    _refuse_cycle(graph, [n for n in stack if state.get(n) == 1], producer)
                if producer not in state:
                    stack.append(producer)
    return order


def _refuse_cycle(graph: GraphRecord, path: list[int], start: int) -> None:
    cycle = [graph.layers[n].name for n in path[path.index(start) :]]
    shown = [*cycle[:6], "…"] if len(cycle) > 6 else cycle
    raise ModelFormatError(
        f"the layers form a cycle, each fed by the next: {' ← '.join(map(repr, shown))} "
        f"← {graph.layers[start].name!r}"
    )


def needed(graph: GraphRecord) -> set[int]:
    """Return the ids of inputs, results, layers with a side effect, and all that feed them."""
    wanted: set[int] = set()
    stack = [number for number, layer in graph.layers.items() if _is_root(layer)]
    while stack:
        number = stack.pop()
        if number in wanted:
            continue
        wanted.add(number)
        stack += [producer for producer, _ in graph.feeds(graph.layers[number])]
    return wanted


def _is_root(layer: LayerRecord) -> bool:
    if layer.type.lower() in ("result", "parameter"):
        return True
    try:
        return operation_of(layer)[0].has_side_effect
    except UnsupportedOperationError:
        return False
