"""How programs of these tests are compiled."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _compiled_sparingly(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a GPU that is a processor compile for answers alone what the quick tier leaves out.

    Of each operation set's operations a case is compiled as users have it, in the quick tier.
    """
    is_more = request.node.get_closest_marker("full") is not None
    if is_more and "device" in request.fixturenames and "GPU" in request.getfixturevalue("device"):
        from tests.gpu.graphs import compile_sparingly

        compile_sparingly(monkeypatch)
