"""Damage to ONNX models: to fields, dims, attributes and names, and to the bytes themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx
from google.protobuf.message import Message

from tests.fuzz.builder import Rng

INTEGERS = (0, 1, -1, 2, 3, 7, 8, 16, 17, 63, 64, 255, 4096, 2**20, 2**31 - 1, -(2**31), 2**32,
            2**40, 2**62, 2**63 - 1, -(2**63))  # fmt: skip
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-45, 1e38, float("inf"), float("-inf"), float("nan"))
OPERATORS = tuple(sorted(s.name for s in onnx.defs.get_all_schemas() if s.domain == ""))
TEXTS = ("", "x0", "t1", "t2", "t3", "../x", "a" * 300, "é", "axis", "axes", "perm", "pads",
         "kernel_shape", "ai.onnx.ml", "com.microsoft", "%s%n")  # fmt: skip


def mutate(model: bytes, rng: Rng) -> bytes:
    """Return a model with one to four damages."""
    count = int(rng.choice((1, 1, 1, 2, 3, 4)))
    if rng.random() < 0.15:
        for _ in range(count):
            model = damage_bytes(model, rng)
        return model
    proto = onnx.ModelProto.FromString(model)
    for _ in range(count):
        damage_field(proto, rng)
    return proto.SerializeToString()


def damage_bytes(data: bytes, rng: Rng) -> bytes:
    """Return bytes with some overwritten, left out, repeated, or cut off."""
    if not data:
        return data
    at, length = int(rng.integers(len(data))), int(rng.integers(1, 9))
    way = int(rng.integers(5))
    if way == 0:
        return data[:at] + rng.bytes(length) + data[at + length :]
    if way == 1:
        return data[:at] + data[at + length :]
    if way == 2:
        return data[:at] + data[max(0, at - length * 8) : at] + data[at:]
    if way == 3:
        return data[:at]
    return data[:at] + bytes([data[at] ^ (1 << int(rng.integers(8)))]) + data[at + 1 :]


def damage_field(proto: Message, rng: Rng) -> None:
    """Change one field somewhere in a message, in place."""
    places = list(_places(proto))
    if not places:
        return
    message, field = places[int(rng.integers(len(places)))]
    if _repeated(field):
        _damage_list(message, field, rng, proto)
    elif field.message_type:
        if rng.random() < 0.5:
            message.ClearField(field.name)
        else:
            _copy_over(getattr(message, field.name), rng, proto)
    else:
        setattr(message, field.name, _scalar(field, getattr(message, field.name), rng))


def _repeated(field: Any) -> bool:
    # What older protobuf says in `label`, newer ones say in `is_repeated`.
    found = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED if found is None else found)


def _places(message: Message) -> Iterator[tuple[Message, Any]]:
    for field, value in message.ListFields():
        yield message, field
        if field.message_type:
            for child in value if _repeated(field) else (value,):
                yield from _places(child)


def _damage_list(message: Message, field: Any, rng: Rng, root: Message) -> None:
    values = getattr(message, field.name)
    at = int(rng.integers(len(values)))
    way = int(rng.integers(5))
    if way == 0:
        del values[at]
    elif way == 1:
        values.extend([values[at]])
    elif way == 2 and len(values) > 1:
        other = int(rng.integers(len(values)))
        items = [_copied(v) for v in values]
        items[at], items[other] = items[other], items[at]
        del values[:]
        values.extend(items)
    elif field.message_type:
        _copy_over(values[at], rng, root)
    else:
        values[at] = _scalar(field, values[at], rng)


def _copied(value: Any) -> Any:
    if not isinstance(value, Message):
        return value
    made = type(value)()
    made.CopyFrom(value)
    return made


def _copy_over(target: Message, rng: Rng, root: Message) -> None:
    """Replace a message by another one of its kind from elsewhere in the model."""
    kin = [m for m in _messages(root) if m.DESCRIPTOR is target.DESCRIPTOR and m is not target]
    if kin:
        source = _copied(kin[int(rng.integers(len(kin)))])
        target.CopyFrom(source)
    else:
        target.Clear()


def _messages(message: Message) -> Iterator[Message]:
    yield message
    for field, value in message.ListFields():
        if field.message_type:
            for child in value if _repeated(field) else (value,):
                yield from _messages(child)


def _scalar(field: Any, value: Any, rng: Rng) -> Any:
    kind = field.cpp_type
    if kind == field.CPPTYPE_STRING:
        if field.type == field.TYPE_BYTES:
            return damage_bytes(value, rng)
        texts = OPERATORS if field.name == "op_type" and rng.random() < 0.8 else TEXTS
        return texts[int(rng.integers(len(texts)))]
    if kind in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return FLOATS[int(rng.integers(len(FLOATS)))]
    if kind == field.CPPTYPE_ENUM:
        numbers = [v.number for v in field.enum_type.values]
        return numbers[int(rng.integers(len(numbers)))]
    if kind == field.CPPTYPE_BOOL:
        return not value
    number = INTEGERS[int(rng.integers(len(INTEGERS)))]
    if rng.random() < 0.3:
        number = value + int(rng.integers(-2, 3))
    bits = 32 if kind in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32) else 64
    if kind in (field.CPPTYPE_UINT32, field.CPPTYPE_UINT64):
        return number % 2**bits
    return max(-(2 ** (bits - 1)), min(2 ** (bits - 1) - 1, number))
