"""``openvino.runtime``, as releases before 2026.4 had it: all of `openvino`, under that name."""

from __future__ import annotations

import sys

import polydevice.compat.openvino as _whole
from polydevice.compat.openvino import *  # noqa: F403 - an alias

__version__ = _whole.__version__
__all__ = _whole.__all__

for _name in [name for name in sys.modules if name.startswith(_whole.__name__ + ".")]:
    if not _name.startswith(__name__):
        sys.modules[__name__ + _name[len(_whole.__name__) :]] = sys.modules[_name]


def __getattr__(name: str) -> object:
    return getattr(_whole, name)
