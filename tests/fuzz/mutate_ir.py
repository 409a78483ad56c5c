"""Damage to IR models: to attributes, elements and sizes of the XML, and to the weights."""

from __future__ import annotations

import re

from tests.fuzz.builder import Rng
from tests.fuzz.mutate_onnx import damage_bytes

ODD = """
-1 0 1 2 3 17 -9223372036854775808 9223372036854775807 18446744073709551616 1e308 nan inf ? ...
1..2 , 0,0 1,2 -1,-1 2147483648,2147483648 true false f16 f32 i64 u1 i4 bf16 string dynamic boolean
Const Result Parameter If Loop TensorIterator Split Convolution MatMul Reshape opset1 opset8 opset15
%s%n ../x é
""".encode().split()
ODD += [b"", b"1" * 300]
VALUE = re.compile(rb'="([^"]*)"')
SIZE = re.compile(rb"<dim>([^<]*)</dim>")
ELEMENT = re.compile(rb"<[^<>?]*?/>|<(layer|port|dim|edge|data|input|output) ?.*?</\1>", re.DOTALL)


def mutate(topology: bytes, weights: bytes, rng: Rng) -> tuple[bytes, bytes]:
    """Return XML and BIN with one to four damages."""
    for _ in range(int(rng.choice((1, 1, 1, 2, 3, 4)))):
        way = int(rng.integers(12))
        if way < 4:
            topology = _exchange(topology, VALUE, rng)
        elif way < 6:
            topology = _exchange(topology, SIZE, rng)
        elif way < 9:
            topology = _move(topology, rng)
        elif way == 9:
            topology = damage_bytes(topology, rng)
        else:
            weights = damage_bytes(weights, rng)
    return topology, weights


def _exchange(text: bytes, pattern: re.Pattern[bytes], rng: Rng) -> bytes:
    found = list(pattern.finditer(text))
    if not found:
        return text
    start, end = found[int(rng.integers(len(found)))].span(1)
    way = rng.random()
    if way < 0.6:
        value = ODD[int(rng.integers(len(ODD)))]
    elif way < 0.8:
        value = found[int(rng.integers(len(found)))].group(1)
    else:
        old = text[start:end]
        value = str(int(old) + int(rng.integers(-2, 3))).encode() if old.isdigit() else b"2"
    return text[:start] + value + text[end:]


def _move(text: bytes, rng: Rng) -> bytes:
    """Leave out, repeat or exchange whole elements, so that the text stays well-formed."""
    found = list(ELEMENT.finditer(text))
    if not found:
        return text
    a, b = (found[int(i)] for i in sorted(rng.integers(len(found), size=2)))
    way = int(rng.integers(3))
    if way == 0:
        return text[: a.start()] + text[a.end() :]
    if way == 1:
        return text[: b.start()] + a.group() + text[b.start() :]
    if a.end() > b.start():
        return text
    return text[: a.start()] + b.group() + text[a.end() : b.start()] + a.group() + text[b.end() :]
