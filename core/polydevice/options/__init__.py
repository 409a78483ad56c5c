"""Options: the configuration of a device, declared once per key."""

from __future__ import annotations

from polydevice.options.options import Bytes, Flag, OptionInfo, Options, as_text, option

__all__ = ["Bytes", "Flag", "OptionInfo", "Options", "as_text", "option"]
