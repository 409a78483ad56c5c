"""A Core for tests of the CPU device."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from polydevice import Core


@pytest.fixture
def core() -> Iterator[Core]:
    with Core() as made:
        yield made
