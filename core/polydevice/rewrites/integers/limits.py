"""Linear quantisation said by limits: FakeQuantize and Convert, as OpenVINO's readers write it."""

from __future__ import annotations

import numpy as np

from polydevice.dataclass import dataclass
from polydevice.dtype import ElementType
from polydevice.emitter import Emitter
from polydevice.node import Node, Port
from polydevice.ops.convert import Convert
from polydevice.ops.quantize import FakeQuantize
from polydevice.rewrites.integers.quantised import NARROW, known

SCALE_NOTE = "quantisation_scale"
"""Note of a FakeQuantize in files: several scales may have the same limits in f32."""

_LEVELS = 256
_LARGEST = 1e36
"""Scales beyond it would have limits that are no f32 numbers."""


@dataclass(frozen=True)
class Quantisation:
    """round(x / scale) + zero, within the range of u8 or i8; the scale is an f32 number."""

    scale: float
    zero: int
    kind: ElementType

    @property
    def limits(self) -> tuple[float, float]:
        """What the least and the largest integer stand for, rounded to f32 as OpenVINO does."""
        least, most = _ends(self.kind)
        scale = np.float32(self.scale)
        return float((least - self.zero) * scale), float((most - self.zero) * scale)


def by_limits(build: Emitter, node: Node, x: Port, said: Quantisation) -> Port:
    """Make what takes the place of a QuantizeLinear of x: the integers."""
    limits = [np.float32(number) for number in (*said.limits, *_ends(said.kind))]
    levels = build.emit(FakeQuantize(levels=_LEVELS), x, *map(np.asarray, limits))
    levels.node.rt_info[SCALE_NOTE] = {"value": repr(said.scale)}
    return build.replacement(node, Convert(destination_type=said.kind), levels)


def said_by_limits(node: Node) -> tuple[Port, Quantisation] | None:
    """What a Convert of FakeQuantize quantises, and how; None for anything else.

    Only with limits that some scale has exactly. The quotient of the limits and its neighbours are
    tried where no scale is noted.
    """
    kind, levels = node.output.element_type, node.inputs[0].node
    if kind not in NARROW or not isinstance(levels.op, FakeQuantize) or levels.op.levels != _LEVELS:
        return None
    x, *limits = levels.inputs
    arrays = [known(port) for port in limits]
    if x.element_type is not ElementType.f32 or any(a is None or a.size != 1 for a in arrays):
        return None
    low, high, *ends = (float(a.reshape(-1)[0]) for a in arrays if a is not None)
    if (*ends,) != _ends(kind) or not (np.isfinite([low, high]).all() and low < high):
        return None
    quotient = np.float32((high - low) / (_LEVELS - 1))
    zero = int(ends[0]) - round(low / float(quotient)) if quotient > 0 else None
    if zero is None or not ends[0] <= zero <= ends[1]:
        return None
    near = (quotient, *(np.nextafter(quotient, np.float32(end)) for end in (0, np.inf)))
    for scale in (*_noted(levels), *map(float, near)):
        said = Quantisation(scale, zero, kind)
        if said.limits == (low, high):
            return x, said
    return None


def _ends(kind: ElementType) -> tuple[int, int]:
    """The least and the largest integer of a type."""
    limits = np.iinfo(kind.dtype)
    return limits.min, limits.max


def _noted(levels: Node) -> list[float]:
    """The scale that a file notes, if there is one."""
    note = levels.rt_info.get(SCALE_NOTE)
    try:
        scale = float(note["value"]) if isinstance(note, dict) else 0.0
    except (KeyError, ValueError):
        return []
    return [float(np.float32(scale))] if 0 < scale < _LARGEST else []
