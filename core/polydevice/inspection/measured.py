"""What `polydevice devices --measure` found out about a device, kept per device and driver."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from polydevice.errors import ModelFileError
from polydevice.files import cache_folder
from polydevice.files.safe_open import read_given

_FOLDER = "device-speed"
_SIZE_LIMIT_BYTES = 1 << 16


class Speed(BaseModel):
    """How fast a device is, in networks of one layer.

    Attributes:
        gops: element type ("f32", "f16", "bf16", "i8") → 10^9 operations per second of products.
        bytes_per_s: read and written by a sum of large arrays.
        launch_us: what one more small layer adds to an inference, in microseconds.
        copy_us: what an input or output of few bytes adds to an inference, in microseconds.
    """

    model_config = ConfigDict(frozen=True)

    gops: dict[str, float] = {}
    bytes_per_s: float = Field(0, ge=0, allow_inf_nan=False)
    launch_us: float = Field(0, ge=0, allow_inf_nan=False)
    copy_us: float = Field(0, ge=0, allow_inf_nan=False)


def load(identity: str) -> Speed | None:
    """Return what was measured of a device; None where nothing was, or it cannot be trusted.

    Args:
        identity: of device and driver, as `Plugin.identity` says it.
    """
    path = _path(identity)
    # Path.is_file() raises before Python 3.14 where one may not look.
    if not os.path.isfile(path) or cache_folder.why_unusable(path.parent):  # noqa: PTH113
        return None
    try:
        content = read_given(path, "measured speed", ModelFileError, _SIZE_LIMIT_BYTES)
        return Speed.model_validate_json(content)
    except (ModelFileError, ValidationError):
        return None


def store(identity: str, speed: Speed) -> Path:
    """Keep what was measured.

    Raises:
        ModelFileError: the folder or file cannot be written.
    """
    path = _path(identity)
    why = cache_folder.why_unusable(path.parent)
    if why:
        raise ModelFileError(f"the folder {str(path.parent)!r} {why}")
    try:
        cache_folder.write_atomically(path, speed.model_dump_json(indent=1).encode())
    except OSError as error:
        raise ModelFileError(f"{str(path)!r} cannot be written: {error}") from error
    return path


def _path(identity: str) -> Path:
    name = hashlib.sha256(identity.encode()).hexdigest()
    return cache_folder.default_folder() / _FOLDER / f"{name}.json"
