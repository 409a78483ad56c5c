"""``openvino.frontend``: formats that are read."""

from __future__ import annotations

from polydevice.compat.openvino.surface import Surface, missing

__all__ = ["FrontEndManager"]


class FrontEndManager(Surface):
    """Says which formats are read; `Core.read_model` reads them."""

    def get_available_front_ends(self) -> list[str]:
        """Return the formats."""
        return ["ir", "onnx"]


def __getattr__(name: str) -> object:
    raise missing(name, "frontend")
