"""``openvino.properties.log``: names of properties, which make pairs when they are called."""

from __future__ import annotations

from polydevice.compat.openvino.properties.property import Listed, Property

__all__ = [
    "Level",
    "level",
]


class Level(Listed):
    """Which messages are shown."""

    NO = -1
    ERR = 0
    WARNING = 1
    INFO = 2
    DEBUG = 3
    TRACE = 4


level = Property("LOG_LEVEL")
