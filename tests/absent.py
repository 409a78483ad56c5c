"""Packages that have no wheel for this Python: tests that import one are skipped, and say so.

A new Python comes months before the last packages for it. Answers worked out by hand, and those of
NumPy and `onnx.reference`, are there from the first day.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder

import pytest

PACKAGES = {
    "grpc": "the server speaks its protocol",
    "onnxruntime": "its answers are compared with",
    "openvino": "its answers are compared with",
    "ray": "networks run on a cluster of its; polydevice[ray] is not part of polydevice[dev]",
    "skimage": "its photographs are looked at",
    "tritonclient": "it asks the server",
    "opentelemetry": "it is handed spans",
    "prometheus_client": "it is handed figures",
}


class _Skipping(MetaPathFinder):
    """Asked last, when nobody else has found a module."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname in PACKAGES:
            version = ".".join(map(str, sys.version_info[:2]))
            reason = f"{fullname} is not installed (Python {version}): {PACKAGES[fullname]}"
            pytest.skip(reason, allow_module_level=True)


def skip_what_needs_them() -> None:
    """Skip tests, or modules of tests, from where they import a package that is absent."""
    if not any(isinstance(finder, _Skipping) for finder in sys.meta_path):
        sys.meta_path.append(_Skipping())
