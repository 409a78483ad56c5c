"""``openvino.frontend``: formats that are read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from polydevice.compat.openvino.devices.core import Core
from polydevice.compat.openvino.models.model import Model
from polydevice.compat.openvino.surface import Surface, missing

__all__ = [
    "FrontEnd",
    "FrontEndManager",
    "GeneralFailure",
    "InitializationFailure",
    "InputModel",
    "NotImplementedFailure",
    "OpConversionFailure",
    "OpValidationFailure",
]

_FORMATS = {"ir": (".xml", ".blob"), "onnx": (".onnx",)}
"""Format → suffixes of its files."""


class GeneralFailure(RuntimeError):  # noqa: N818 - its name
    """For programs that catch it; what is raised here is RuntimeError itself."""


class InitializationFailure(RuntimeError):  # noqa: N818 - its name
    """For programs that catch it; what is raised here is RuntimeError itself."""


class NotImplementedFailure(RuntimeError):  # noqa: N818 - its name
    """For programs that catch it; what is raised here is RuntimeError itself."""


class OpConversionFailure(RuntimeError):  # noqa: N818 - its name
    """For programs that catch it; what is raised here is RuntimeError itself."""


class OpValidationFailure(RuntimeError):  # noqa: N818 - its name
    """For programs that catch it; what is raised here is RuntimeError itself."""


class InputModel(Surface):
    """A model that a FrontEnd has loaded, and `FrontEnd.convert` makes a Model of."""

    def __init__(self, given: tuple[Any, ...]) -> None:
        """Keep what the model is read from."""
        self._given = given


class FrontEnd(Surface):
    """Reads a format."""

    def __init__(self, name: str) -> None:
        """Read the format of that name."""
        self._format = name

    def get_name(self) -> str:
        """Return the name of the format."""
        return self._format

    def supported(self, model: Any) -> bool:
        """Whether a file's suffix is one of the format's."""
        return Path(os.fspath(model)).suffix in _FORMATS[self._format]

    def load(self, *path: Any) -> InputModel:
        """Keep where a model is: its path, and that of its weights."""
        return InputModel(path)

    def convert(self, model: InputModel) -> Model:
        """Read the model; raises RuntimeError when that is not possible."""
        return Core().read_model(*model._given)


class FrontEndManager(Surface):
    """Says which formats are read."""

    def get_available_front_ends(self) -> list[str]:
        """Return the formats."""
        return list(_FORMATS)

    def load_by_framework(self, framework: str) -> FrontEnd:
        """Return what reads a format.

        Raises:
            RuntimeError: the format is not read.
        """
        if framework not in _FORMATS:
            raise RuntimeError(
                f"models of {framework!r} are not read; export them to ONNX. Read are: "
                f"{', '.join(_FORMATS)}"
            )
        return FrontEnd(framework)

    def load_by_model(self, model: Any) -> FrontEnd | None:
        """Return what reads a file; None when nothing does."""
        found = (FrontEnd(name) for name in _FORMATS)
        return next((each for each in found if each.supported(model)), None)


def __getattr__(name: str) -> object:
    raise missing(name, "frontend")
