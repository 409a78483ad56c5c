"""Blobs of several parts: the two planes of an NV12 image, and batches of those."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from polydevice.blob import Blob
from polydevice.dtype import Array
from polydevice.errors import BlobError


class NV12Blob:
    """An NV12 image as its two planes, host or device memory.

    For inputs whose preprocessing converts NV12, on devices that take the planes apart
    (GPU_NV12_TWO_INPUTS): ``request.set_blob("image", NV12Blob(y, uv))``.
    """

    __slots__ = ("uv", "y")

    def __init__(self, y: Blob | Array, uv: Blob | Array) -> None:
        """Join the planes, blobs or arrays to share.

        Args:
            y: u8 [1, H, W, 1].
            uv: u8 [1, H/2, W/2, 2].

        Raises:
            BlobError: planes of other types or shapes, or not C-contiguous.
        """
        y, uv = (plane if isinstance(plane, Blob) else Blob(plane) for plane in (y, uv))
        height, width = y.shape[1:3] if len(y.shape) == 4 else (0, 0)
        wanted = ((1, height, width, 1), (1, height // 2, width // 2, 2))
        types = {y.element_type.value, uv.element_type.value}
        if (
            types != {"u8"}
            or (y.shape, uv.shape) != wanted
            or not height
            or height % 2
            or width % 2
        ):
            raise BlobError(
                "the planes of an NV12 image are u8 [1, H, W, 1] and u8 [1, H/2, W/2, 2] with even "
                f"H and W, not {y.desc} and {uv.desc}"
            )
        self.y = y
        self.uv = uv

    def roi(self, x: int, y: int, width: int, height: int) -> NV12Blob:
        """Return a region, in pixels of the image; all four numbers are even.

        Raises:
            BlobError: odd numbers, or a region that is not inside.
        """
        if any(number % 2 for number in (x, y, width, height)):
            raise BlobError(
                f"region x={x}, y={y}, width={width}, height={height} of an NV12 image: use even "
                "numbers, since two pixels share a colour"
            )
        chroma = self.uv.roi(x // 2, y // 2, width // 2, height // 2, "NHWC")
        return NV12Blob(self.y.roi(x, y, width, height, "NHWC"), chroma)

    def __repr__(self) -> str:
        return f"NV12Blob({self.y!r}, {self.uv!r})"


class BatchedBlob:
    """Blobs for the items of a batch; the last one serves for the items beyond."""

    __slots__ = ("blobs",)

    def __init__(self, blobs: Sequence[NV12Blob]) -> None:
        """Join the items.

        Raises:
            BlobError: none, or items that are not NV12 images.
        """
        self.blobs = list(blobs)
        kinds = {type(blob).__name__ for blob in self.blobs}
        if kinds != {"NV12Blob"}:
            given = ", ".join(sorted(kinds)) or "nothing"
            raise BlobError(f"a batched blob holds one or more NV12Blobs, not {given}")

    def __repr__(self) -> str:
        return f"BatchedBlob({self.blobs!r})"


CompoundBlob = NV12Blob | BatchedBlob


def plane_blobs(name: str, blob: CompoundBlob, ports: Mapping[str, Any]) -> dict[str, Blob]:
    """Return the blob of each plane's port, for an input that was split into planes.

    Args:
        name: of the input, before it was split.
        blob: what is set.
        ports: the network's inputs by name: ``<name>_Y0``, ``<name>_UV0``, ``<name>_Y1`` …

    Raises:
        BlobError: the input takes no planes, or fewer items.
    """
    batch = 0
    while f"{name}_Y{batch}" in ports and f"{name}_UV{batch}" in ports:
        batch += 1
    if not batch:
        raise BlobError(
            f"there is no input {name!r} that takes the planes of an NV12 image. Load the network "
            "on GPU with GPU_NV12_TWO_INPUTS=YES and color_format NV12 in the input's "
            f"preprocessing; inputs now: {', '.join(ports)}"
        )
    items = blob.blobs if isinstance(blob, BatchedBlob) else [blob]
    if len(items) > batch:
        raise BlobError(f"{len(items)} NV12 images were given for {name!r}, whose batch is {batch}")
    found: dict[str, Blob] = {}
    for index in range(batch):
        item = items[min(index, len(items) - 1)]
        found[f"{name}_Y{index}"] = item.y
        found[f"{name}_UV{index}"] = item.uv
    return found
