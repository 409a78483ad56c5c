"""The GPU graph's own operations: fused pointwise operations, resampling, recurrent steps.

Everything else in the graph is an operation of the core. A `Fragment` is a small program of
pointwise operations; as the operation `Fused` it is a launch of its own, as a node's epilogue it
runs on the node's result before that is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from polydevice.dataclass import dataclass
from polydevice.dtype import ElementType
from polydevice.ops.color import FromYuv
from polydevice.ops.convolution import Convolution, GroupConvolution
from polydevice.ops.matmul import MatMul
from polydevice.ops.op import Op
from polydevice.ops.recurrent import Direction, Recurrent
from polydevice.shape import Shape, broadcast
from polydevice.tensor import TensorDesc


@dataclass(frozen=True)
class Step:
    """One pointwise operation of a fragment.

    Attributes:
        op: what is computed.
        arguments: numbers of the values it reads; a fragment's inputs come first, then the
            results of its steps.
        element_type: type of the result.
    """

    op: Op
    arguments: tuple[int, ...]
    element_type: ElementType


@dataclass(frozen=True)
class Fragment:
    """Pointwise operations in order; the last one's result is the fragment's.

    A fragment without steps hands its first input on: a copy.

    Attributes:
        inputs: element types of the inputs. Of an epilogue, input 0 is the host's result.
        steps: the operations.
    """

    inputs: tuple[ElementType, ...]
    steps: tuple[Step, ...] = ()

    @property
    def element_type(self) -> ElementType:
        """Type of the result."""
        return self.steps[-1].element_type if self.steps else self.inputs[0]

    def value_type(self, number: int) -> ElementType:
        """Type of an input or of a step's result."""
        if number < len(self.inputs):
            return self.inputs[number]
        return self.steps[number - len(self.inputs)].element_type

    @property
    def types(self) -> list[ElementType]:
        """Types of all inputs and results."""
        return [*self.inputs, *(step.element_type for step in self.steps)]

    def then(self, consumer: Fragment, positions: Sequence[int]) -> Fragment:
        """Return this fragment continued by `consumer`.

        Args:
            consumer: a fragment that reads this one's result.
            positions: the consumer's inputs that are this fragment's result; its other inputs
                become inputs of the whole, after this fragment's own.
        """
        others = [i for i in range(len(consumer.inputs)) if i not in positions]
        inputs = self.inputs + tuple(consumer.inputs[i] for i in others)
        shift = len(inputs) - len(self.inputs)
        own = len(self.inputs)

        def moved(number: int) -> int:
            return number if number < own else number + shift

        steps = [
            Step(s.op, tuple(moved(a) for a in s.arguments), s.element_type) for s in self.steps
        ]
        result = len(inputs) + len(steps) - 1 if steps else 0
        numbers = {i: own + place for place, i in enumerate(others)}
        numbers.update(dict.fromkeys(positions, result))
        for index, step in enumerate(consumer.steps):
            numbers[len(consumer.inputs) + index] = len(inputs) + len(self.steps) + index
            arguments = tuple(numbers[a] for a in step.arguments)
            steps.append(Step(step.op, arguments, step.element_type))
        return Fragment(inputs, tuple(steps))

    def reading(self, producer: Fragment, positions: Sequence[int]) -> Fragment:
        """Return this fragment with another's result computed in it.

        Args:
            producer: computes what this fragment reads.
            positions: the inputs that are its result. They go, and its inputs come behind the
                others.
        """
        kept = [i for i in range(len(self.inputs)) if i not in positions]
        inputs = tuple(self.inputs[i] for i in kept) + producer.inputs
        own, count = len(producer.inputs), len(inputs) + len(producer.steps)
        result = count - 1 if producer.steps else len(kept)

        def theirs(number: int) -> int:
            return number + (len(kept) if number < own else len(inputs) - own)

        numbers = {i: place for place, i in enumerate(kept)}
        numbers.update(dict.fromkeys(positions, result))
        numbers.update({len(self.inputs) + i: count + i for i in range(len(self.steps))})
        steps = [
            Step(s.op, tuple(theirs(a) for a in s.arguments), s.element_type)
            for s in producer.steps
        ]
        steps += [
            Step(s.op, tuple(numbers[a] for a in s.arguments), s.element_type) for s in self.steps
        ]
        return Fragment(inputs, tuple(steps))

    def __str__(self) -> str:
        names = [f"i{n}" for n in range(len(self.inputs))]
        for number, step in enumerate(self.steps):
            names.append(f"{step.op.type}({', '.join(names[a] for a in step.arguments)})")
            if number < len(self.steps) - 1 and self._uses(len(names) - 1) > 1:
                names[-1] = f"[{names[-1]}]"
        return names[-1] if self.steps else "i0"

    def _uses(self, number: int) -> int:
        return sum(step.arguments.count(number) for step in self.steps)


def single(op: Op, inputs: Sequence[ElementType], element_type: ElementType) -> Fragment:
    """Return the fragment that is one operation on all its inputs."""
    return Fragment(tuple(inputs), (Step(op, tuple(range(len(inputs))), element_type),))


@dataclass(frozen=True)
class Fused(Op):
    """Pointwise operations in one launch, their inputs broadcast to the result's shape.

    Inputs:  those of the fragment, broadcastable
    Outputs: y  of the broadcast shape
    Source:  made by the pass that lowers a network; not in any model file
    """

    type = "Fused"
    domain = "polydevice_gpu"

    fragment: Fragment

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the broadcast shape and the fragment's type."""
        shape: Shape | None = Shape([])
        for x in inputs:
            shape = broadcast(shape, x.shape)
        return [TensorDesc(self.fragment.element_type, shape)]


@dataclass(frozen=True)
class Resample(Op):
    """Weighted sums of elements chosen by tables, along some axes: every kind of interpolation.

    Inputs:  x               any shape, numeric
             for each axis:  index [size, taps] i32, weight [size, taps] f32
    Outputs: y               the sizes of the tables at `axes`, type of x
    Source:  made from Interpolate and Resize
    """

    type = "Resample"
    domain = "polydevice_gpu"

    axes: tuple[int, ...]
    half_away: bool = False
    """Whether integers are rounded with halves away from zero instead of to even."""

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return x's shape with the tables' sizes."""
        x = inputs[0]
        assert x.shape is not None
        sizes = list(x.shape)
        for place, axis in enumerate(self.axes):
            table = inputs[1 + 2 * place].shape
            assert table is not None
            sizes[axis] = table[0]
        return [x.with_shape(sizes)]


@dataclass(frozen=True)
class ResampleYuv(Op):
    """A resized image out of a YUV frame, whose colours are computed only where they are read.

    Inputs:  planes    the frame's, as `colors` takes them
             index, weight  of rows, then of columns: tables as for `Resample`
    Outputs: y         [N, 3, rows, columns], floating point, 0 to 255
    Source:  made from Resample of a converted frame; values of integer frames are rounded before
             they are weighted, as in the original
    """

    type = "ResampleYuv"
    domain = "polydevice_gpu"

    colors: FromYuv
    element_type: ElementType = ElementType.f32

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the tables' sizes."""
        rows, columns = inputs[-4].shape, inputs[-2].shape
        frame = self.colors.infer(inputs[:-4])[0].shape
        assert rows is not None
        assert columns is not None
        assert frame is not None
        return [TensorDesc(self.element_type, Shape([frame[0], 3, rows[0], columns[0]]))]


@dataclass(frozen=True)
class RecurrentSteps(Op):
    """A recurrent layer over time whose inputs are multiplied with their weights already.

    Inputs:  x        [B, T, D * gates * H], biases added
             R        [D, gates * H, H]
             states   [B, D, H], as many as the layer has
             lengths  [B], if `has_lengths`; all T otherwise
             after    [D, H], if `has_after`: the bias of a GRU's recurrent product
             P        [D, 3 * H], if `has_peepholes`, of i, o, f
    Outputs: Y [B, D, T, H], last states [B, D, H]
    Source:  made from LSTMSequence, GRUSequence and RNNSequence
    """

    type = "RecurrentSteps"
    domain = "polydevice_gpu"

    layer: Recurrent
    """Gates, activations and clip."""
    direction: Direction
    has_lengths: bool = False
    has_after: bool = False
    has_peepholes: bool = False

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return all hidden states and the last states."""
        x = inputs[0]
        assert x.shape is not None
        batch, steps, _ = x.shape
        count, hidden = self.direction.count, self.layer.hidden_size
        last = x.with_shape([batch, count, hidden])
        return [x.with_shape([batch, count, steps, hidden]), *[last] * self.layer.states]


Infer = Callable[[Sequence[TensorDesc]], list[TensorDesc]]


def _sums(infer: Infer, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
    """Return the shape of a product of 8-bit integers, in i32."""
    wide = [desc.with_type(ElementType.i32) for desc in inputs]
    return [desc.without_value() for desc in infer(wide)]


@dataclass(frozen=True)
class IntegerConvolution(Convolution):
    """Convolution of 8-bit integers: the exact sums of (x - zero) * w; padding adds nothing.

    Inputs:  x     [N, C, spatial...], 1 to 3 spatial axes, u8 or i8
             w     [O, C, kernel...], i8, constant; i16 on processor cores
             fill  u8, optional, on processor cores: at least as many as C rounded up to fours, all
                   of them what `zero` is, which then is 0 itself
    Outputs: y     [N, O, spatial...], i32
    Source:  made from IntegerProduct
    """

    type = "IntegerConvolution"
    domain = "polydevice_gpu"

    zero: int = 0
    """A number of x's type."""

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the convolution's shape in i32."""
        return _sums(super().infer, inputs[:2])


@dataclass(frozen=True)
class QuantisedConvolution(IntegerConvolution):
    """IntegerConvolution of an image of floats, of which it makes the bytes where it reads them.

    Inputs:  x        [N, C, spatial...], floating point
             w        [O, C, kernel...], i8, constant
             numbers  the fragment's other inputs, constants of one element
    Outputs: y        [N, O, spatial...], i32
    Source:  made from IntegerConvolution
    """

    type = "QuantisedConvolution"

    fragment: Fragment = Fragment((ElementType.u8,))
    """Makes a byte of a float, and of the numbers."""


@dataclass(frozen=True)
class IntegerGroupConvolution(GroupConvolution):
    """GroupConvolution of 8-bit integers: the exact sums of (x - zero) * w.

    Inputs:  x  [N, C, spatial...], 1 to 3 spatial axes, u8 or i8
             w  [G, O/G, C/G, kernel...], i8, constant
    Outputs: y  [N, O, spatial...], i32
    Source:  made from IntegerProduct
    """

    type = "IntegerGroupConvolution"
    domain = "polydevice_gpu"

    zero: int = 0
    """A number of x's type."""

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the convolution's shape in i32."""
        return _sums(super().infer, inputs)


@dataclass(frozen=True)
class IntegerMatMul(MatMul):
    """Matrix product of 8-bit integers: the exact sums of a * b.

    Inputs:  a  as MatMul takes it, u8 or i8
             b  as MatMul takes it, i8, constant; i16 on processor cores
    Outputs: y  i32
    Source:  made from IntegerProduct
    """

    type = "IntegerMatMul"
    domain = "polydevice_gpu"

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the product's shape in i32."""
        return _sums(super().infer, inputs)


@dataclass(frozen=True)
class ToWhole(Op):
    """The nearest whole number within limits, halves to even; NaN becomes the lower one.

    Inputs:  x  f32; (x - low) / 256 where `by_256`
    Outputs: y  f32
    Source:  made of QuantizeLinear and DequantizeLinear behind products of bytes
    """

    type = "ToWhole"
    domain = "polydevice_gpu"

    low: float
    high: float
    """At most 2^22 away from 0."""
    by_256: bool = False

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the input's shape."""
        return [inputs[0]]


@dataclass(frozen=True)
class ToByte(Op):
    """The nearest whole number within limits, and a zero point added to it, as a byte.

    Inputs:  x  f32; (x - low) / 256 where `by_256`
    Outputs: y  u8 or i8
    Source:  made of QuantizeLinear behind products of bytes
    """

    type = "ToByte"
    domain = "polydevice_gpu"

    low: float
    high: float
    """Before `zero` is added."""
    zero: int
    element_type: ElementType
    by_256: bool = False

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the input's shape."""
        return [inputs[0].with_type(self.element_type)]


@dataclass(frozen=True)
class NormalizedMatMul(MatMul):
    """Product of normalised rows: y = (x - mean(x)) / sqrt(variance(x) + eps) @ w + shift.

    Kernels may compute it as (x @ w - mean(x) * sums) / sqrt(variance(x) + eps) + shift.

    Inputs:  x      [..., K], floating point
             w      [K, N], with `transpose_b` [N, K], constant
             sums   [N] f32, constant: of the columns of w, as w is stored
             shift  [N] f32, constant
    Outputs: y      [..., N], type of x
    Source:  made from MVN along the last axis and MatMul; scale and shift of the former are in w
             and shift
    """

    type = "NormalizedMatMul"
    domain = "polydevice_gpu"

    eps: float = 0.0

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the product's shape."""
        return super().infer(inputs[:2])


@dataclass(frozen=True)
class SubtractProduct(Op):
    """x - y * z: sums of products less what a zero point adds to them.

    Inputs:  x  i32, any shape
             y  i32, broadcastable to x
             z  u8, i8 or i32, one number
    Outputs: r  i32, shape of x
    Source:  made from IntegerProduct
    """

    type = "SubtractProduct"
    domain = "polydevice_gpu"

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the first input's shape."""
        return [inputs[0].without_value()]


INTEGER_PRODUCTS = (IntegerConvolution, IntegerGroupConvolution, IntegerMatMul)
"""Products of 8-bit integers."""


@dataclass(frozen=True)
class CompressedMatMul(Op):
    """Product with a matrix of 4 or 8 bits: y = x @ ((q - zeros) * scales)^T, by blocks of terms.

    Inputs:  x       [..., K], f16 or f32
             q       [N, K * bits / 8] u8: rows; of two in a byte the lower first
             scales  [N, G] f32, G divides K
             zeros   [N, G] u8
    Outputs: y       [..., N], type of x
    Source:  made from MatMul whose second factor is dequantised
    """

    type = "CompressedMatMul"
    domain = "polydevice_gpu"

    bits: int

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return x's rows with N columns."""
        x, q = inputs[:2]
        assert x.shape is not None
        assert q.shape is not None
        return [x.with_shape([*x.shape[:-1], q.shape[0]])]
