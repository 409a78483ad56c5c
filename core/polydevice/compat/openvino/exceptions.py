"""``openvino.exceptions``."""

from __future__ import annotations

from polydevice.compat.openvino.errors import OVError, OVTypeError, UserInputError

__all__ = ["OVError", "OVTypeError", "UserInputError"]
