"""Modules that are made, not read from files."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType


def enter_module(module: ModuleType, name: str | None = None) -> None:
    """Let a module be imported by its name, or by another one."""
    if module.__spec__ is None:
        module.__spec__ = ModuleSpec(module.__name__, None)
    sys.modules[name or module.__name__] = module
