"""How programs of these tests are compiled."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _answers_alone(request: pytest.FixtureRequest) -> None:
    """Compile sparingly: `tests/conformance` has every operation as users have it compiled."""
    if "device" in request.fixturenames and "GPU" in request.getfixturevalue("device"):
        request.getfixturevalue("compiled_sparingly")
