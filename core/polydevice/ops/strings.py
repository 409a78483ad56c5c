"""ONNX's operations on strings. Strings are Python's, in arrays of objects."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from polydevice.dtype import ElementType
from polydevice.errors import ElementTypeError, ShapeError
from polydevice.ops.op import EVERYWHERE, Op, attribute, operation
from polydevice.shape import Dim, DimLike, Shape, broadcast
from polydevice.tensor import TensorDesc


def _expect_strings(op: Op, *descs: TensorDesc) -> None:
    for desc in descs:
        if desc.element_type is not ElementType.string:
            raise ElementTypeError(f"{op.type} needs strings, not {desc.element_type}")


@operation("StringConcat", domain="onnx", onnx="StringConcat")
class StringConcat(Op):
    """Join the strings of two tensors.

    Inputs:  a, b  broadcastable, strings
    Outputs: y     broadcast shape, strings
    Source:  ONNX StringConcat-20
    """

    strings_at = EVERYWHERE

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the broadcast shape."""
        a, b = inputs
        _expect_strings(self, a, b)
        return [TensorDesc(ElementType.string, broadcast(a.shape, b.shape))]


@operation("StringSplit", domain="onnx", onnx="StringSplit")
class StringSplit(Op):
    """Split each string at a delimiter.

    An empty delimiter splits at runs of white space. `maxsplit` bounds the number of splits.

    Inputs:  x       any shape, strings
    Outputs: parts   shape of x and an axis as long as the longest list; filled up with ""
             counts  shape of x, i64
    Source:  ONNX StringSplit-20
    """

    delimiter: str = attribute(default="", ir="", onnx="delimiter")
    maxsplit: int | None = attribute(default=None, ir="", onnx="maxsplit")
    strings_at = EVERYWHERE

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Add an axis of unknown size."""
        (x,) = inputs
        _expect_strings(self, x)
        parts = None if x.shape is None else Shape([*x.shape, Dim()])
        return [TensorDesc(ElementType.string, parts), TensorDesc(ElementType.i64, x.shape)]


class CaseChange(Enum):
    """What StringNormalizer does with letters."""

    NONE = "NONE"
    LOWER = "LOWER"
    UPPER = "UPPER"


@operation("StringNormalizer", domain="onnx", onnx="StringNormalizer")
class StringNormalizer(Op):
    """Remove stop words and change the case; if nothing is left, one empty string is.

    Inputs:  x  [C] or [1, C], strings
    Outputs: y  [number] or [1, number], strings
    Raises:  ShapeError for another shape
    Source:  ONNX StringNormalizer-10
    """

    case_change_action: CaseChange = attribute(
        default=CaseChange.NONE, ir="", onnx="case_change_action"
    )
    is_case_sensitive: bool = attribute(default=False, ir="", onnx="is_case_sensitive")
    stopwords: tuple[str, ...] = attribute(default=(), ir="", onnx="stopwords")
    strings_at = EVERYWHERE

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Free the number of strings where some may go."""
        (x,) = inputs
        _expect_strings(self, x)
        if x.shape is None or not self.stopwords:
            return [x.without_value()]
        if len(x.shape) not in (1, 2) or (len(x.shape) == 2 and x.shape[0] not in (1, Dim())):
            raise ShapeError(f"StringNormalizer takes [C] or [1, C], not {x.shape}")
        return [x.with_shape([*x.shape[:-1], Dim(1)])]


@operation("RegexFullMatch", domain="onnx", onnx="RegexFullMatch")
class RegexFullMatch(Op):
    """Whether the whole of each string matches a regular expression of RE2's syntax.

    Inputs:  x  any shape, strings
    Outputs: y  shape of x, boolean
    Source:  ONNX RegexFullMatch-20
    """

    pattern: str = attribute(default="", ir="", onnx="pattern")
    strings_at = EVERYWHERE

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the shape of x."""
        (x,) = inputs
        _expect_strings(self, x)
        return [TensorDesc(ElementType.boolean, x.shape)]


class TfIdfMode(Enum):
    """What TfIdfVectorizer counts."""

    TF = "TF"
    """How often each n-gram occurs."""
    IDF = "IDF"
    """Its weight, if it occurs."""
    TFIDF = "TFIDF"
    """The weight times the number."""


@operation("TfIdfVectorizer", domain="onnx")
class TfIdfVectorizer(Op):
    """Count the n-grams of a pool in each row.

    The n-grams of length n + 1 begin at ``starts[n]`` of the pool; n-gram i is counted in column
    ``columns[i]`` with weight ``weights[i]``. Those of `shortest` to `longest` elements count, at
    distances of 1 to `longest_skip` + 1 between them.

    Inputs:  x  [C] or [N, C], strings or integers
    Outputs: y  [columns] or [N, columns], f32
    Raises:  ShapeError for inconsistent attributes
    Source:  ONNX TfIdfVectorizer-9
    """

    pool: tuple[str, ...] | tuple[int, ...] = attribute(ir="")
    starts: tuple[int, ...] = attribute(ir="")
    columns: tuple[int, ...] = attribute(ir="")
    shortest: int = attribute(ir="")
    longest: int = attribute(ir="")
    longest_skip: int = attribute(ir="")
    mode: TfIdfMode = attribute(ir="")
    weights: tuple[float, ...] = attribute(default=(), ir="")
    strings_at = EVERYWHERE

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the number of columns."""
        (x,) = inputs
        if x.rank not in (None, 1, 2):
            raise ShapeError(f"TfIdfVectorizer: x has the shape {x.shape}; rank is 1 or 2")
        counts = self.grams()
        if len(self.columns) != len(counts) or not all(c >= 0 for c in self.columns):
            raise ShapeError(
                f"TfIdfVectorizer: {len(self.columns)} columns for {len(counts)} n-grams"
            )
        if self.weights and len(self.weights) != len(counts):
            raise ShapeError(
                f"TfIdfVectorizer: {len(self.weights)} weights for {len(counts)} n-grams"
            )
        width = max(self.columns, default=-1) + 1
        sizes: list[DimLike] = [Dim(), width]
        if x.shape is not None:
            sizes = [*x.shape[:-1], width]
        return [TensorDesc(ElementType.f32, Shape(sizes))]

    def grams(self) -> list[tuple[str, ...] | tuple[int, ...]]:
        """Return the n-grams of the pool, in order."""
        ends = [*self.starts[1:], len(self.pool)]
        made: list[tuple[str, ...] | tuple[int, ...]] = []
        for n, (start, end) in enumerate(zip(self.starts, ends, strict=True), 1):
            if not 0 <= start <= end <= len(self.pool) or (end - start) % n:
                raise ShapeError(
                    f"TfIdfVectorizer: elements {start} to {end} of the pool are not {n}-grams"
                )
            made += [self.pool[i : i + n] for i in range(start, end, n)]
        return made


@operation("LabelEncoder", domain="onnx")
class LabelEncoder(Op):
    """Replace each element by the value of the key that it equals.

    Inputs:  x  any shape, type of the keys
    Outputs: y  shape of x, `destination_type`
    Raises:  ShapeError when keys and values differ in number
    Source:  ONNX (ai.onnx.ml) LabelEncoder-4
    """

    keys: tuple[str, ...] | tuple[int, ...] | tuple[float, ...] = attribute(ir="")
    values: tuple[str, ...] | tuple[int, ...] | tuple[float, ...] = attribute(ir="")
    default: str | int | float = attribute(ir="")
    destination_type: ElementType = attribute(ir="")
    strings_at = EVERYWHERE

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the shape of x."""
        (x,) = inputs
        if len(self.keys) != len(self.values):
            raise ShapeError(f"LabelEncoder: {len(self.keys)} keys for {len(self.values)} values")
        return [x.with_type(self.destination_type)]
