"""``openvino.tools.ovc``: the model converter, as programs import it."""

from __future__ import annotations

from polydevice.compat.openvino.tools import convert_model

__all__ = ["convert_model"]
