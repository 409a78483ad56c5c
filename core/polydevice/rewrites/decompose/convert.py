"""Conversions whose type the inputs tell are plain ones, or none."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.emitter import Emitter
from polydevice.node import Port
from polydevice.ops.convert import Convert, ConvertLike, ConvertPromoteTypes
from polydevice.rewrites.rule import decomposes


@decomposes(Convert, where=lambda op, x: op.destination_type is x[0].element_type)
def _same_type(build: Emitter, op: Convert, inputs: Sequence[Port]) -> list[Port]:
    return [inputs[0]]


@decomposes(ConvertLike)
def _convert_like(build: Emitter, op: ConvertLike, inputs: Sequence[Port]) -> list[Port]:
    return [build.convert(inputs[0], inputs[1].element_type)]


@decomposes(ConvertPromoteTypes)
def _promote(build: Emitter, op: ConvertPromoteTypes, inputs: Sequence[Port]) -> list[Port]:
    a, b = (port.desc for port in inputs)
    kind = op.promoted(a, b)
    return [build.convert(port, kind) for port in inputs]
