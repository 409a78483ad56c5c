"""The version of polydevice, which its plugins may ask for."""

from __future__ import annotations

__version__ = "0.1.0"
