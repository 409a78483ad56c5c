"""PriorBox and PriorBoxClustered: the default boxes of SSD detectors."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.dtype import ElementType
from polydevice.errors import ShapeError
from polydevice.ops.op import Op, attribute, operation
from polydevice.ops.sizes import shared_sizes
from polydevice.shape import Dim, DimLike, Shape
from polydevice.tensor import TensorDesc


def _boxes(inputs: Sequence[TensorDesc], priors: int, op: str) -> list[TensorDesc]:
    """Describe [2, 4 × H × W × priors] for the layer shape in the first input."""
    for desc in inputs:
        if not desc.element_type.is_integer:
            raise ShapeError(f"{op} takes shapes as integers, not {desc.element_type}")
    shared_sizes({"layer_shape": (inputs[0], (2,)), "image_shape": (inputs[1], (2,))})
    sizes = inputs[0].sizes
    total: DimLike = Dim()
    if sizes is not None:
        if any(isinstance(size, int) and size < 0 for size in sizes):
            raise ShapeError(f"the layer shape {sizes} is negative")
        total = sizes[0] * sizes[1] * (4 * priors)
    return [TensorDesc(ElementType.f32, Shape([2, total]))]


@operation("PriorBox", since=(1, 8))
class PriorBox(Op):
    """Boxes of several sizes and aspect ratios around each cell of a feature map.

    Inputs:  layer_shape  [2], integer: height and width of the feature map
             image_shape  [2], integer: height and width of the image
    Outputs: y            [2, 4 × height × width × priors], f32: the boxes as parts of the image
                          (x1, y1, x2, y2), and their variances
    Raises:  ShapeError when the layer shape has not two elements
    Source:  OpenVINO opset1 and opset8 PriorBox
    """

    sized_by_values = True

    min_size: tuple[float, ...] = attribute(default=())
    max_size: tuple[float, ...] = attribute(default=())
    aspect_ratio: tuple[float, ...] = attribute(default=())
    density: tuple[float, ...] = attribute(default=())
    fixed_ratio: tuple[float, ...] = attribute(default=())
    fixed_size: tuple[float, ...] = attribute(default=())
    clip: bool = attribute(default=False)
    flip: bool = attribute(default=False)
    step: float = attribute(default=0.0)
    offset: float = attribute(default=0.0)
    variance: tuple[float, ...] = attribute(default=())
    scale_all_sizes: bool = attribute(default=True)
    min_max_aspect_ratios_order: bool = attribute(default=True)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the number of boxes from the layer shape."""
        self.check_count(inputs, 2)
        if len(self.variance) not in (0, 1, 4):
            raise ShapeError(f"variance {self.variance} has not one or four numbers")
        if len(self.density) != len(self.fixed_size):
            raise ShapeError(
                f"density {self.density} and fixed_size {self.fixed_size} differ in length"
            )
        for name in ("min_size", "max_size", "aspect_ratio", "fixed_ratio", "fixed_size"):
            if not all(number > 0 for number in getattr(self, name)):
                raise ShapeError(f"{name} {getattr(self, name)} must be positive")
        return _boxes(inputs, self.priors, "PriorBox")

    @property
    def ratios(self) -> list[float]:
        """The aspect ratios, 1 first, each one once; with `flip` each is followed by 1 / it."""
        found = [1.0]
        for ratio in self.aspect_ratio:
            if any(abs(ratio - known) < 1e-6 for known in found):
                continue
            found.append(ratio)
            if self.flip:
                found.append(1.0 / ratio)
        return found

    @property
    def priors(self) -> int:
        """Number of boxes around one cell."""
        others = len(self.ratios) - 1
        shaped = others * (len(self.min_size) if self.scale_all_sizes else bool(self.min_size))
        scaled = len(self.min_size) + min(len(self.max_size), len(self.min_size)) + shaped
        per_place = len(self.fixed_ratio) or len(self.ratios)
        return scaled + sum(per_place * int(density) ** 2 for density in self.density)


@operation("PriorBoxClustered")
class PriorBoxClustered(Op):
    """Boxes of given sizes around each cell of a feature map.

    Inputs:  layer_shape  [2], integer: height and width of the feature map
             image_shape  [2], integer: height and width of the image
    Outputs: y            [2, 4 × height × width × priors], f32: the boxes as parts of the image
                          (x1, y1, x2, y2), and their variances
    Raises:  ShapeError when widths and heights differ in number
    Source:  OpenVINO opset1 PriorBoxClustered
    """

    sized_by_values = True

    width: tuple[float, ...] = attribute(default=())
    height: tuple[float, ...] = attribute(default=())
    clip: bool = attribute(default=True)
    step_w: float = attribute(default=0.0)
    step_h: float = attribute(default=0.0)
    step: float = attribute(default=0.0)
    offset: float = attribute(default=0.0)
    variance: tuple[float, ...] = attribute(default=())

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the number of boxes from the layer shape."""
        self.check_count(inputs, 2)
        if len(self.width) != len(self.height):
            raise ShapeError(f"{len(self.width)} widths and {len(self.height)} heights differ")
        if len(self.variance) not in (0, 1, 4):
            raise ShapeError(f"variance {self.variance} has not one or four numbers")
        return _boxes(inputs, len(self.width), "PriorBoxClustered")
