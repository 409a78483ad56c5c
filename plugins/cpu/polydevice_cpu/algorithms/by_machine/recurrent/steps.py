"""Recurrent layers by machine code: what it reads, as it reads it, and the calls for some sizes."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from polydevice.dtype import Array
from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.code import Told, told
from polydevice_cpu.algorithms.by_machine.recurrent.loop import (
    BLOCK,
    GATES,
    MOST_ITEMS,
    Form,
    items_at_once,
    loop,
)

_BYTES = 4
"""Of a number."""


class Layer(NamedTuple):
    """A layer, whatever its input's sizes are.

    Attributes:
        form: what is computed; its number of items does not count.
        backwards: of each direction, whether it begins at the end.
        hidden: states of an item.
    """

    form: Form
    backwards: tuple[bool, ...]
    hidden: int

    @property
    def gates(self) -> int:
        """How many there are."""
        return GATES[self.form.kind]

    @property
    def blocks(self) -> int:
        """Of states that are computed side by side."""
        return -(-self.hidden // BLOCK)

    @property
    def columns(self) -> int:
        """What the input brings to a step of an item: a number for each gate of each state."""
        return len(self.backwards) * self.gates * self.blocks * BLOCK

    @property
    def room(self) -> int:
        """Numbers that code wants room for."""
        return self.form.places * MOST_ITEMS * self.blocks * BLOCK

    @property
    def pairs(self) -> int:
        """Of states that are multiplied with weights."""
        return -(-self.hidden // 2)

    @property
    def weights(self) -> int:
        """Recurrent ones of a direction, as the loop reads them."""
        return self.gates * self.blocks * BLOCK * 2 * self.pairs


def entering_weights(layer: Layer, weights: Array) -> Array:
    """[D, gates * H, I] as [I, columns]; a bias [D, gates * H] as [1, columns]."""
    blocks = gate_blocks(layer, weights.reshape(*weights.shape[:2], -1))
    return np.ascontiguousarray(blocks.transpose(4, 0, 2, 1, 3).reshape(-1, layer.columns))


def recurrent_weights(layer: Layer, weights: Array) -> Array:
    """[D, gates * H, H] as the loop reads them, phase by phase, a row of zeros behind an odd H."""
    blocks = gate_blocks(layer, weights)
    padded = np.zeros((*blocks.shape[:4], 2 * layer.pairs), np.float32)
    padded[..., : layer.hidden] = blocks
    phases = [
        padded[:, list(gates)].transpose(0, 2, 4, 1, 3).reshape(len(weights), -1)
        for gates in layer.form.phases
    ]
    return np.ascontiguousarray(np.concatenate(phases, axis=1))


def whole_rows(layer: Layer, vectors: Array) -> Array:
    """[D, n * H] as [D, n, whole blocks]."""
    found = vectors.reshape(len(vectors), -1, layer.hidden)
    return np.pad(found, ((0, 0), (0, 0), (0, layer.blocks * BLOCK - layer.hidden)))


def gate_blocks(layer: Layer, weights: Array) -> Array:
    """[D, gates * H, C] as [D, gates, blocks, states of a block, C]."""
    count, _, channels = weights.shape
    result = np.zeros((count, layer.gates, layer.blocks * BLOCK, channels), weights.dtype)
    result[:, :, : layer.hidden] = weights.reshape(count, layer.gates, layer.hidden, channels)
    return result.reshape(count, layer.gates, layer.blocks, BLOCK, channels)


def steps(layer: Layer, time: int, batch: int) -> list[Told] | None:
    """Return calls that compute a layer for so many steps and items; None where there is no code.

    They are told `Form.names`: what enters the gates [T, B, columns]; states [D, B, H]; weights;
    vectors; lengths [B]; the result [T, B, D * H]; the last states, and room.
    """
    found: list[Told] = []
    for direction in range(len(layer.backwards)):
        first = 0
        while first < batch:
            items = min(batch - first, items_at_once(layer.form.kind))
            form = layer.form._replace(items=items)
            code = _function(form)
            if code is None:
                return None
            function, constants = code
            begins, numbers = numbers_of(layer, (time, batch), direction, first)
            given = [*(begins[name] for name in form.names), *numbers]
            pack = struct.Struct(f"@{len(given)}q{len(constants)}s").pack
            found.append((function, told(pack, *given, constants)))
            first += items
    return found


@lru_cache(maxsize=64)
def _function(form: Form) -> tuple[Any, bytes] | None:
    text, constants = loop(form)
    function = function_of(text)
    return None if function is None else (function, constants)


def numbers_of(
    layer: Layer, sizes: tuple[int, int], direction: int, first: int
) -> tuple[dict[str, int], list[int]]:
    """Where everything begins, by name, and what code is told behind that."""
    time, batch = sizes
    directions, hidden, row = len(layer.backwards), layer.hidden, layer.blocks * BLOCK * _BYTES
    turned = layer.backwards[direction]
    entering = layer.columns * _BYTES
    result = directions * hidden * _BYTES
    state = (direction * batch + first) * hidden * _BYTES
    last = time - 1 if turned else 0
    gates = layer.gates * row
    begins = {
        **dict.fromkeys(("state", "cell", "last", "last_cell"), state),
        "entering": (last * batch + first) * entering + direction * gates,
        "bias": direction * gates,
        "weights": direction * layer.weights * _BYTES,
        "peepholes": direction * 3 * row,
        "behind": direction * row,
        "lengths": first * layer.form.length_bytes,
        "result": (last * batch + first) * result + direction * hidden * _BYTES,
        "room": 0,
    }
    sign = -1 if turned else 1
    left = hidden - (layer.blocks - 1) * BLOCK
    return begins, [
        *(time, sign * batch * entering, sign * batch * result),
        *(entering, hidden * _BYTES, result, layer.blocks, layer.pairs),
        *((1 << left) - 1, last, sign, row, 0, 0),
    ]
