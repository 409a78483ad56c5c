"""Other runtimes' Python interfaces, for programs that were written for them.

Each package here is imported like the one that it stands in for::

    import polydevice.compat.onnxruntime as ort

and `polydevice run --as onnxruntime program.py` puts it in place of the import for programs that
cannot be edited. The packages translate names and forms; what they do is done by core.
"""

from __future__ import annotations

_chosen: str | None = None


def choose_device(name: str | None) -> None:
    """Load every network of this process's facades on one device, whatever the program names.

    Args:
        name: such as "GPU.1" or "HETERO:GPU,CPU"; None leaves it to the program.
    """
    global _chosen  # noqa: PLW0603 - it is the process's, as what replaces an import is
    _chosen = name


def chosen_device() -> str | None:
    """Return the device that `choose_device` named; None when the program chooses."""
    return _chosen
