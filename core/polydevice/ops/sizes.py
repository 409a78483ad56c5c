"""Sizes that several inputs of an operation share, as the docstrings write them: [N, C, H, W]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from polydevice.errors import ShapeError
from polydevice.shape import Dim, DimLike, merge_dim
from polydevice.tensor import TensorDesc

Layout = Sequence[str | DimLike]
"""Of each axis the letter that stands for its size, or the size."""


def shared_sizes(
    inputs: Mapping[str, tuple[TensorDesc, Layout]], known: Mapping[str, DimLike] | None = None
) -> dict[str, DimLike]:
    """Compare inputs with layouts; return letter → size, as far as it is known.

    Args:
        inputs: name → input and its layout.
        known: letter → size that is known otherwise.

    Raises:
        ShapeError: an input has another rank or size; the message names it and the layout.
    """
    sizes = dict(known or {})
    for name, (desc, layout) in inputs.items():
        found: Sequence[DimLike] = [Dim()] * len(layout) if desc.shape is None else desc.shape
        if len(found) != len(layout):
            raise ShapeError(f"{name} {desc.shape} must be {_text(layout)}")
        for size, item in zip(found, layout, strict=True):
            wanted = sizes.get(item, Dim()) if isinstance(item, str) else item
            try:
                agreed = merge_dim(size, wanted)
            except ShapeError:
                why = f", where {item} is {wanted}" if isinstance(item, str) else ""
                raise ShapeError(f"{name} {desc.shape} must be {_text(layout)}{why}") from None
            if isinstance(item, str):
                sizes[item] = agreed
    return sizes


def _text(layout: Layout) -> str:
    return f"[{', '.join(map(str, layout))}]"
