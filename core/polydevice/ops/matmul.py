"""Matrix products: MatMul, GroupedMatMul and Einsum."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.dtype import ElementType
from polydevice.errors import ElementTypeError, ShapeError
from polydevice.ops.op import Op, attribute, operation
from polydevice.ops.pointwise import common_type
from polydevice.shape import DimLike, Shape, broadcast, broadcast_dim, merge, merge_dim
from polydevice.tensor import TensorDesc


@operation("MatMul")
class MatMul(Op):
    """Matrix product of the last two axes, broadcast over the others.

    A vector as first input is a row, as second input a column; that axis is dropped from the
    result. Transposing does not concern vectors.

    Inputs:  a  [..., M, K] ([..., K, M] with transpose_a), numeric
             b  [..., K, N] ([..., N, K] with transpose_b), same type
    Outputs: y  [..., M, N], their type
    Raises:  ShapeError if the shapes do not fit
    Source:  OpenVINO opset1 MatMul; ONNX MatMul-13
    """

    transpose_a: bool = attribute(default=False)
    transpose_b: bool = attribute(default=False)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return [..., M, N]."""
        a, b = inputs
        element_type = common_type(self, a, b)
        if a.shape is None or b.shape is None:
            return [TensorDesc(element_type)]
        if not a.shape or not b.shape:
            raise ShapeError(f"MatMul does not take scalars ({a.shape} and {b.shape})")
        left, right = list(a.shape), list(b.shape)
        left = [1, *left] if len(left) == 1 else left
        right = [*right, 1] if len(right) == 1 else right
        if self.transpose_a and len(a.shape) > 1:
            left[-2:] = left[-1], left[-2]
        if self.transpose_b and len(b.shape) > 1:
            right[-2:] = right[-1], right[-2]
        try:
            merge_dim(left[-1], right[-2])
        except ShapeError:
            raise ShapeError(
                f"MatMul: {a.shape} and {b.shape} (transpose_a={self.transpose_a}, "
                f"transpose_b={self.transpose_b}) share no inner size"
            ) from None
        batch = broadcast(Shape(left[:-2]), Shape(right[:-2]))
        assert batch is not None
        sizes: list[DimLike] = list(batch)
        if len(a.shape) > 1:
            sizes.append(left[-2])
        if len(b.shape) > 1:
            sizes.append(right[-1])
        return [TensorDesc(element_type, Shape(sizes))]


@operation("GroupedMatMul", since=17)
class GroupedMatMul(Op):
    """Matrix products of groups of rows, each with a matrix of its own (mixture of experts).

    With offsets, rows offsets[g - 1] to offsets[g] of `a` are multiplied with matrix g; the first
    group begins at row 0, and rows behind the last one give 0. Without offsets the groups are the
    first axis of `a`.

    Inputs:  a        [T, K] with offsets, [G, M, K] without; numeric
             b        [G, N, K], same type
             offsets  [G], integer: ends of the groups, ascending, at most T
    Outputs: y        [T, N] or [G, M, N], their type
    Raises:  ShapeError if the shapes do not fit
    Source:  OpenVINO opset17 GroupedMatMul
    """

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return [T, N] or [G, M, N]."""
        self.check_count(inputs, 2, 3)
        a, b, *offsets = inputs
        element_type = common_type(self, a, b)
        if offsets and offsets[0].element_type.is_float:
            raise ElementTypeError(f"the offsets are {offsets[0].element_type}, not integers")
        if a.shape is None or b.shape is None:
            return [TensorDesc(element_type)]
        rank = 2 if offsets else 3
        if len(a.shape) != rank or len(b.shape) != 3:
            raise ShapeError(
                f"inputs {a.shape} and {b.shape} {'with' if offsets else 'without'} offsets; "
                "legal: [T,K], [G,N,K] with them, [G,M,K], [G,N,K] without"
            )
        try:
            merge_dim(a.shape[-1], b.shape[-1])
            if not offsets:
                groups = merge_dim(a.shape[0], b.shape[0])
                return [TensorDesc(element_type, Shape([groups, a.shape[1], b.shape[1]]))]
            merge(offsets[0].shape, Shape([b.shape[0]]))
        except ShapeError as error:
            raise ShapeError(f"inputs {a.shape} and {b.shape} do not fit: {error}") from None
        return [TensorDesc(element_type, Shape([a.shape[0], b.shape[1]]))]


@operation("Einsum", since=7, onnx="Einsum")
class Einsum(Op):
    """Einstein summation.

    Each input has labels for its axes; axes with one label are multiplied along, labels that
    the output lacks are summed over. Without ``->`` the output has the labels that occur once, in
    alphabetical order, after the ellipsis.

    Inputs:  one or more tensors, numeric, same type
    Outputs: y  type of the inputs
    Raises:  ShapeError if equation and shapes do not fit
    Source:  OpenVINO opset7 Einsum; ONNX Einsum-12
    """

    equation: str = attribute(onnx="equation")

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Collect the size of every label, then lay out the output's."""
        element_type = inputs[0].element_type
        for other in inputs[1:]:
            element_type = common_type(self, inputs[0], other)
        if element_type in (ElementType.boolean, ElementType.string):
            raise ElementTypeError(f"Einsum does not take {element_type}; convert to a number")
        terms, output = parse_equation(self.equation, len(inputs))
        sizes: dict[str, DimLike] = {}
        ellipsis: Shape | None = Shape()
        for term, desc in zip(terms, inputs, strict=True):
            if desc.shape is None:
                if "." in term:
                    ellipsis = None
                continue
            ellipsis = self._collect(term, desc.shape, sizes, ellipsis)
        if ellipsis is None and "." in output:
            return [TensorDesc(element_type)]
        result: list[DimLike | None] = []
        for label in output:
            result += list(ellipsis or ()) if label == "." else [sizes.get(label)]
        return [TensorDesc(element_type, Shape(result))]

    def _collect(
        self, term: str, shape: Shape, sizes: dict[str, DimLike], ellipsis: Shape | None
    ) -> Shape | None:
        """Enter the sizes of one input; return the sizes known for the ellipsis."""
        named = len(term.replace(".", ""))
        hidden = len(shape) - named
        if hidden < 0 or (hidden > 0 and "." not in term):
            raise ShapeError(
                f"Einsum {self.equation!r}: an input of {shape} does not fit its labels {term!r}"
            )
        position, own = 0, dict[str, DimLike]()
        for label in term:
            if label == ".":
                if ellipsis is not None:
                    ellipsis = broadcast(ellipsis, Shape(shape[position : position + hidden]))
                position += hidden
                continue
            size = shape[position]
            try:
                own[label] = merge_dim(own.get(label, size), size)  # a diagonal repeats nothing
                sizes[label] = broadcast_dim(sizes.get(label, size), size)
            except ShapeError:
                raise ShapeError(
                    f"Einsum {self.equation!r}: label {label!r} has sizes {sizes[label]} and {size}"
                ) from None
            position += 1
        return ellipsis


def parse_equation(equation: str, inputs: int) -> tuple[list[str], str]:
    """Split an equation into the labels of each input and of the output; ``...`` becomes ``.``.

    Raises:
        ShapeError: when it is not well formed or does not have that many inputs.
    """
    text = "".join(equation.split()).replace("...", ".")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != inputs:
        raise ShapeError(f"Einsum {equation!r} describes {len(terms)} inputs, {inputs} are given")
    for term in [*terms, right]:
        if not all((c.isascii() and c.isalpha()) or c == "." for c in term) or term.count(".") > 1:
            raise ShapeError(f"Einsum {equation!r}: {term!r} must be letters with at most one ...")
    if not arrow:
        labels = "".join(terms).replace(".", "")
        right = "." if "." in left else ""
        right += "".join(sorted(label for label in set(labels) if labels.count(label) == 1))
    unknown = set(right) - set(left)
    if unknown - {"."} or len(set(right)) != len(right):
        raise ShapeError(f"Einsum {equation!r}: the output's labels must each occur in an input")
    return terms, right if "." in left else right.replace(".", "")
