"""``openvino.inference_engine.ie_api``, where some programs import from."""

from __future__ import annotations

from polydevice.compat.inference_engine import *  # noqa: F403 - an alias
