"""Signatures: how many inputs and outputs ONNX's operators have, and which attributes.

They lie in ``signatures.jsonl``, which `scripts/onnx-signatures` writes: onnx makes all of its
definitions at the first question for one, which takes 10 ms and 7 MB. It is asked for what is
newer than the file, and for operators of domains that are not in it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from polydevice.dataclass import dataclass

_FILE = Path(__file__).with_name("signatures.jsonl")

Schema = Any
"""onnx.defs.OpSchema, whose published types lack what its functions are read with."""


@dataclass(frozen=True)
class Attribute:
    """An attribute of an operator.

    Attributes:
        type: one of AttributeProto's.
        default: what it is where a model does not say; None for nothing.
    """

    type: int
    default: Any = None


@dataclass(frozen=True)
class Signature:
    """The form of an operator from an opset on.

    Attributes:
        since: that opset.
        inputs: least and most.
        outputs: least and most.
        attributes: name → what it may be.
    """

    since: int
    inputs: tuple[int, int]
    outputs: tuple[int, int]
    attributes: Mapping[str, Attribute]


def find_schema(domain: str, op_type: str, version: int) -> Schema | None:
    """Return ONNX's own definition of an operator as of an opset version."""
    import onnx.defs  # 3 MB, for what few models have

    try:
        return onnx.defs.get_schema(op_type, version, domain)
    except (onnx.defs.SchemaError, TypeError):  # TypeError: the version is no 32-bit number
        return None


@functools.lru_cache(4096)  # files may name as many as they like
def find_signature(domain: str, op_type: str, version: int) -> Signature | None:
    """Return the form of an operator as of an opset version; None for one that is not ONNX's."""
    newest, lines = _table()
    if version > newest.get(domain, 0):
        schema = find_schema(domain, op_type, version)
        return None if schema is None else signature_of(schema)
    line = lines.get((domain, op_type))
    if line is None:
        return None
    forms = [_from_json(form) for form in json.loads(line)]
    return max((f for f in forms if f.since <= version), key=lambda f: f.since, default=None)


def newest_opset() -> int:
    """Return the newest opset of ONNX's own domain that is in the file."""
    return _table()[0][""]


def installed_opset() -> int:
    """Return the newest opset of ONNX's own domain that the installed onnx defines."""
    import onnx.defs

    return onnx.defs.onnx_opset_version()


def signature_of(schema: Schema) -> Signature:
    """Return what a definition of ONNX says of an operator's form."""
    from onnx.helper import get_attribute_value

    attributes = {}
    for name, each in schema.attributes.items():
        given = each.default_value
        default = _plain(get_attribute_value(given)) if given.type else None
        attributes[name] = Attribute(int(each.type.value), default)
    return Signature(
        schema.since_version,
        (schema.min_input, schema.max_input),
        (schema.min_output, schema.max_output),
        attributes,
    )


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    return value if isinstance(value, (int, float)) else [_plain(item) for item in value]


def written(schemas: list[Schema]) -> Iterator[str]:
    """Yield the lines of the file for all definitions of ONNX.

    The first holds onnx's version, and domain → newest opset; then follow domain and operator, and
    the forms of that operator.
    """
    forms: dict[tuple[str, str], list[Signature]] = {}
    newest: dict[str, int] = {"com.microsoft": 1}  # none of which is ONNX's
    for schema in schemas:
        forms.setdefault((schema.domain, schema.name), []).append(signature_of(schema))
        newest[schema.domain] = max(newest.get(schema.domain, 1), schema.since_version)
    import onnx

    newest[""] = max(newest[""], installed_opset())
    yield json.dumps([onnx.__version__, dict(sorted(newest.items()))])
    for key, each in sorted(forms.items()):
        each.sort(key=lambda form: form.since)
        yield json.dumps(key) + "\t" + json.dumps([_to_json(form) for form in each])


def _to_json(form: Signature) -> list[Any]:
    attributes = {
        name: [each.type] if each.default is None else [each.type, each.default]
        for name, each in sorted(form.attributes.items())
    }
    return [form.since, form.inputs, form.outputs, attributes]


def _from_json(form: list[Any]) -> Signature:
    since, inputs, outputs, attributes = form
    named = {name: Attribute(*each) for name, each in attributes.items()}
    return Signature(since, tuple(inputs), tuple(outputs), named)


@functools.cache
def _table() -> tuple[dict[str, int], dict[tuple[str, str], str]]:
    """Return domain → newest opset, and (domain, operator) → its forms as JSON."""
    head, *lines = _FILE.read_text(encoding="utf-8").splitlines()
    parts = [line.split("\t") for line in lines]
    return json.loads(head)[1], {tuple(json.loads(key)): forms for key, forms in parts}
