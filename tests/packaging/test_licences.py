"""Models, photographs and data that others made have their source and licence beside them."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KINDS = (".onnx", ".xml", ".bin", ".jpg", ".xz")
FOLDERS = ("samples/images", "samples/models", "tests/models/data", "tests/onnx/data")
FILES = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in KINDS]
"""Answers (.npz) are made by our own tests; `tests/models/answers/README.md` says how."""


def test_files_of_others_are_found() -> None:
    assert len(FILES) > 10


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_source_and_licence_lie_beside_it(path: Path) -> None:
    text = " ".join((path.parent / "SOURCE.md").read_text().split())
    assert f"`{path.name}`" in text or f"| {path.name} |" in text
    assert list(path.parent.glob("LICENSE*")) or "public domain" in text
    listed = re.search(rf"\| {re.escape(path.name)} \| ([0-9a-f]{{64}}) \|", text)
    if listed:
        assert hashlib.sha256(path.read_bytes()).hexdigest() == listed[1]
