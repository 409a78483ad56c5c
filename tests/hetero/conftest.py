"""The core with an OpenCL device that tests of HETERO on GPU use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from polydevice import Core


@pytest.fixture
def core() -> Iterator[Core]:
    with Core() as made:
        if not any(name.partition(".")[0] == "GPU" for name in made.available_devices):
            pytest.skip("needs an OpenCL device; `polydevice devices --why` says what is missing")
        yield made
