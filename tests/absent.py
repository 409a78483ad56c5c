"""Packages that this Python has no wheel of, or an old one: tests of them are skipped, and say so.

A new Python comes months before the last packages for it. Answers worked out by hand, and those of
NumPy and `onnx.reference`, are there from the first day.
"""

from __future__ import annotations

import sys
from importlib import metadata
from importlib.abc import MetaPathFinder

import pytest
from packaging.version import Version

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


def wants(package: str, version: str, why: str) -> pytest.MarkDecorator:
    """Skip a test where an older version of a package is all that there is for this Python.

    Args:
        package: what answers are compared with.
        version: the first one that is right.
        why: what older ones do: "{package} {theirs} …".
    """
    try:
        found = metadata.version(package)
    except metadata.PackageNotFoundError:
        found = version  # other tests say so
    return pytest.mark.skipif(
        Version(found) < Version(version), reason=f"{package} {found} {why}; {version} does not"
    )
