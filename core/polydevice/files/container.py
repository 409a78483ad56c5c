"""Container: named sections of bytes behind a version and a checksum; exported networks and caches.

    magic  SHA-256 of the rest  length of the header (8 bytes)  header (JSON)  sections

Nothing in it is ever executed or unpickled. The checksum finds damage, not forgery: import files
only from where you would take a model from.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from polydevice.errors import ModelFormatError

_MAGIC = b"polydevice container 1\n"
_DIGEST_BYTES = 32
_LENGTH_BYTES = 8


def pack(kind: str, sections: Mapping[str, bytes]) -> bytes:
    """Return sections as one piece of bytes.

    Args:
        kind: what it is, such as "network on GPU"; `unpack` insists on the same.
        sections: name → content.
    """
    sizes = {name: len(content) for name, content in sections.items()}
    header = json.dumps({"kind": kind, "sections": sizes}).encode()
    rest = [len(header).to_bytes(_LENGTH_BYTES, "little"), header, *sections.values()]
    digest = hashlib.sha256()
    for part in rest:
        digest.update(part)
    return b"".join([_MAGIC, digest.digest(), *rest])


def unpack(content: bytes, kind: str) -> dict[str, bytes]:
    """Return the sections of what `pack` made.

    Raises:
        ModelFormatError: it is something else, another version or kind, or damaged.
    """
    if not content.startswith(_MAGIC):
        known = content[: len(_MAGIC) - 2] == _MAGIC[:-2]
        raise ModelFormatError(
            "this was exported by another version of polydevice; export it again with this one"
            if known
            else "this is no exported network; give bytes or a file from ExecutableNetwork.export()"
        )
    start = len(_MAGIC) + _DIGEST_BYTES
    rest = memoryview(content)[start:]
    if hashlib.sha256(rest).digest() != content[len(_MAGIC) : start]:
        raise ModelFormatError(
            f"the exported network is damaged or cut off ({len(content)} bytes, the checksum does "
            "not match); export it again"
        )
    length = int.from_bytes(rest[:_LENGTH_BYTES], "little")
    try:
        header = json.loads(bytes(rest[_LENGTH_BYTES : _LENGTH_BYTES + length]))
        sections = _cut(rest[_LENGTH_BYTES + length :], header["sections"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelFormatError(f"the exported network's header is not valid: {error}") from None
    if header.get("kind") != kind:
        raise ModelFormatError(f"this holds a {header.get('kind')!r}, not a {kind!r}")
    return sections


def _cut(body: memoryview, sizes: Mapping[str, Any]) -> dict[str, bytes]:
    if any(not isinstance(size, int) or size < 0 for size in sizes.values()):
        raise ValueError("sizes are not numbers")
    if sum(sizes.values()) != len(body):
        raise ValueError("sizes do not add up")
    found, start = {}, 0
    for name, size in sizes.items():
        found[name] = bytes(body[start : start + size])
        start += size
    return found
