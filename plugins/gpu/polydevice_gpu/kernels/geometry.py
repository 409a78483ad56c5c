"""What sliding-window kernels have in common: everything as three spatial axes z, y, x."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.dataclass import dataclass
from polydevice_gpu.graph import Value
from polydevice_gpu.kernels.addressing import Groups
from polydevice_gpu.kernels.source import Call

AXES = ("Z", "Y", "X")


def image_groups(rank: int) -> list[tuple[int, ...]]:
    """Return the axes behind the coordinates batch, channel, z, y, x of data of that rank."""
    spatial: list[tuple[int, ...]] = [(axis,) for axis in range(2, rank)]
    return [(0,), (1,), *[()] * (5 - rank), *spatial]


def written_groups(rank: int) -> list[tuple[int, ...]]:
    """Return the same in the order batch, z, y, x, channel, for results written by channel."""
    batch, channel, *spatial = image_groups(rank)
    return [batch, *spatial, channel]


def spatial(shape: Sequence[int]) -> tuple[int, int, int]:
    """Return the sizes z, y, x of data of rank 3 to 5."""
    sizes = tuple(shape[2:])
    z, y, x = (1,) * (3 - len(sizes)) + sizes
    return z, y, x


def three(values: Sequence[int], default: int) -> tuple[int, int, int]:
    """Extend per-axis values to z, y, x."""
    z, y, x = (default,) * (3 - len(values)) + tuple(values)
    return z, y, x


@dataclass(frozen=True)
class Geometry:
    """A window over z, y, x.

    Attributes:
        kernel, strides, dilations: of the window.
        pads: before the first element.
    """

    kernel: tuple[int, int, int]
    strides: tuple[int, int, int]
    dilations: tuple[int, int, int]
    pads: tuple[int, int, int]

    @classmethod
    def of(
        cls,
        kernel: Sequence[int],
        strides: Sequence[int],
        dilations: Sequence[int],
        pads: Sequence[int],
    ) -> Geometry:
        """Make it from values of 1 to 3 axes."""
        return cls(three(kernel, 1), three(strides, 1), three(dilations, 1), three(pads, 0))

    @property
    def taps(self) -> int:
        """Positions of the window."""
        return self.kernel[0] * self.kernel[1] * self.kernel[2]

    def declare(self, call: Call) -> None:
        """Define KERNEL_Z … PAD_X as macros: loops over a window are worth unrolling."""
        for name, values in (
            ("KERNEL", self.kernel),
            ("STRIDE", self.strides),
            ("DILATION", self.dilations),
            ("PAD", self.pads),
        ):
            for axis, value in zip(AXES, values, strict=True):
                call.define(**{f"{name}_{axis}": value})


def declare_sizes(call: Call, role: str, value: Value) -> None:
    """Pass the spatial sizes of data as ROLE_Z, ROLE_Y, ROLE_X."""
    for axis, size in zip(AXES, spatial(value.shape), strict=True):
        call.scalars(**{f"{role}_{axis}": size})


def weight_groups(rank: int, grouped: bool) -> Groups:
    """Return the axes behind the coordinates group, out, in, z, y, x of a weight tensor."""
    first: list[tuple[int, ...]] = [(0,), (1,), (2,)] if grouped else [(), (0,), (1,)]
    start = 3 if grouped else 2
    spatial_axes: list[tuple[int, ...]] = [(axis,) for axis in range(start, rank)]
    return [*first, *[()] * (3 - len(spatial_axes)), *spatial_axes]
