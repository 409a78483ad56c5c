"""How programs of these tests are compiled."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _compiled_sparingly(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a GPU that is a processor compile for answers alone.

    The same operations run in `tests/conformance` as users have them compiled.
    """
    if "device" in request.fixturenames and "GPU" in request.getfixturevalue("device"):
        from tests.gpu.graphs import compile_sparingly

        compile_sparingly(monkeypatch)
