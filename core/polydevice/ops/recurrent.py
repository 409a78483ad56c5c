"""Recurrent cells and sequences: LSTM, GRU and plain RNN."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import ClassVar

from polydevice.dataclass import dataclass
from polydevice.dtype import ElementType
from polydevice.errors import ElementTypeError, ShapeError
from polydevice.ops.activation import Relu, Sigmoid, SoftPlus, SoftSign
from polydevice.ops.math import Tanh
from polydevice.ops.op import Op, attribute, operation
from polydevice.ops.pointwise import common_type
from polydevice.shape import Dim, DimLike, Shape, merge_dim
from polydevice.tensor import TensorDesc

ACTIVATIONS = frozenset(
    {
        *("sigmoid", "tanh", "relu", "affine", "leakyrelu", "thresholdedrelu", "scaledtanh"),
        *("hardsigmoid", "elu", "softsign", "softplus"),
    }
)
"""Activation functions that cells know, in lower case; OpenVINO's are the first three."""


PLAIN_FUNCTIONS: dict[str, Op] = {
    "sigmoid": Sigmoid(), "tanh": Tanh(), "relu": Relu(), "softsign": SoftSign(),
    "softplus": SoftPlus(),
}  # fmt: skip
"""Activation functions without parameters."""

_ALPHA = {
    "affine": 1.0, "leakyrelu": 0.01, "thresholdedrelu": 1.0, "scaledtanh": 1.0,
    "hardsigmoid": 0.2, "elu": 1.0,
}  # fmt: skip
_BETA = {"affine": 0.0, "scaledtanh": 1.0, "hardsigmoid": 0.5}


class Direction(enum.Enum):
    """In which order a sequence is read; bidirectional does both, forward first."""

    FORWARD = "forward"
    REVERSE = "reverse"
    BIDIRECTIONAL = "bidirectional"

    @property
    def count(self) -> int:
        """Number of directions."""
        return 2 if self is Direction.BIDIRECTIONAL else 1


@dataclass(frozen=True)
class Recurrent(Op):
    """What cells and sequences share: the attributes and the sizes of weights.

    `activations` are names from `ACTIVATIONS`, with the parameters at the same position of
    `activations_alpha` and `activations_beta`; `clip` bounds what enters them (0: no bound).
    """

    gates: ClassVar[int] = 1
    """Blocks of `hidden_size` rows in the weights."""
    states: ClassVar[int] = 1
    """State tensors: H, and for LSTM also C."""
    default_activations: ClassVar[tuple[str, ...]] = ("tanh",)

    hidden_size: int = attribute()
    activations: tuple[str, ...] = attribute(default=())
    activations_alpha: tuple[float, ...] = attribute(default=())
    activations_beta: tuple[float, ...] = attribute(default=())
    clip: float = attribute(default=0.0)

    @property
    def functions(self) -> tuple[str, ...]:
        """Names of the activation functions of each direction, in lower case."""
        return tuple(name.lower() for name in self.activations) or self.default_activations

    def activation(self, index: int) -> tuple[str, float, float]:
        """Return name, alpha and beta of an activation function; ONNX's defaults if not given."""

        def at(values: tuple[float, ...], default: float) -> float:
            return float(values[index]) if index < len(values) else default

        name = self.functions[index]
        alpha = at(self.activations_alpha, _ALPHA.get(name, 0.0))
        return name, alpha, at(self.activations_beta, _BETA.get(name, 0.0))

    @property
    def bias_gates(self) -> int:
        """Blocks of `hidden_size` elements in the bias."""
        return self.gates

    def check_attributes(self) -> None:
        """Raise ShapeError for an unknown activation or a size that is not possible."""
        wanted = len(self.default_activations)
        if len(self.functions) != wanted or not ACTIVATIONS.issuperset(self.functions):
            raise ShapeError(
                f"{self.type}: activations {self.activations} must be {wanted} of "
                f"{', '.join(sorted(ACTIVATIONS))}"
            )
        if self.hidden_size < 1 or self.clip < 0:
            raise ShapeError(
                f"{self.type}: hidden_size {self.hidden_size} must be positive and clip "
                f"{self.clip} not negative"
            )

    def to_ir(self) -> dict[str, str]:
        """Write the activations also where they are the default; older readers want them."""
        return super().to_ir() | {"activations": ",".join(self.functions)}

    def _fit(self, what: str, desc: TensorDesc, wanted: Sequence[DimLike]) -> list[DimLike]:
        """Merge a tensor's sizes with the wanted ones; raises ShapeError naming both."""
        if desc.shape is None:
            return list(wanted)
        try:
            if len(desc.shape) != len(wanted):
                raise ShapeError("rank")
            return [merge_dim(a, b) for a, b in zip(desc.shape, wanted, strict=True)]
        except ShapeError:
            raise ShapeError(
                f"{self.type}: {what} is {desc.shape}; it must be {Shape(wanted)}"
            ) from None

    def _check_types(self, floats: Sequence[TensorDesc]) -> ElementType:
        kind = floats[0].element_type
        for other in floats[1:]:
            kind = common_type(self, floats[0], other)
        return kind


@dataclass(frozen=True)
class Cell(Recurrent):
    """One step: X [B, I], states [B, H], W [gates * H, I], R [gates * H, H], bias."""

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the new states."""
        self.check_attributes()
        kind = self._check_types(inputs)
        hidden = self.hidden_size
        batch, size = self._fit("X", inputs[0], [Dim(), Dim()])
        for state in inputs[1 : 1 + self.states]:
            batch = self._fit("a state", state, [batch, hidden])[0]
        w, r, *rest = inputs[1 + self.states :]
        self._fit("W", w, [self.gates * hidden, size])
        self._fit("R", r, [self.gates * hidden, hidden])
        for what, desc, blocks in zip(("B", "P"), rest, (self.bias_gates, 3), strict=False):
            self._fit(what, desc, [blocks * hidden])
        return [TensorDesc(kind, Shape([batch, hidden]))] * self.states


@dataclass(frozen=True)
class SequenceOf(Recurrent):
    """A cell run over time: X [B, T, I], states [B, D, H], lengths [B], W [D, gates * H, I].

    What lies beyond an item's length is zero in Y; its last states are those at its length.
    """

    direction: Direction = attribute(default=Direction.FORWARD)

    @property
    def functions(self) -> tuple[str, ...]:
        """Names of the activation functions of each direction, in lower case.

        IR that OpenVINO made of bidirectional ONNX models names them once per direction.
        """
        names = super().functions
        half = len(names) // 2
        repeated = self.direction.count == 2 and names[:half] == names[half:]
        return names[:half] if repeated and half == len(self.default_activations) else names

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return all hidden states [B, D, T, H] and the last states [B, D, H]."""
        self.check_attributes()
        lengths = inputs[1 + self.states]
        floats = [*inputs[: 1 + self.states], *inputs[2 + self.states :]]
        kind = self._check_types(floats)
        if not lengths.element_type.is_integer and lengths.element_type is not ElementType.dynamic:
            raise ElementTypeError(
                f"{self.type}: sequence lengths are {lengths.element_type}, not integers"
            )
        hidden, count = self.hidden_size, self.direction.count
        batch, time, size = self._fit("X", inputs[0], [Dim(), Dim(), Dim()])
        for state in inputs[1 : 1 + self.states]:
            batch = self._fit("a state", state, [batch, count, hidden])[0]
        batch = self._fit("sequence lengths", lengths, [batch])[0]
        w, r, *rest = inputs[2 + self.states :]
        self._fit("W", w, [count, self.gates * hidden, size])
        self._fit("R", r, [count, self.gates * hidden, hidden])
        for what, desc, blocks in zip(("B", "P"), rest, (self.bias_gates, 3), strict=False):
            self._fit(what, desc, [count, blocks * hidden])
        last = TensorDesc(kind, Shape([batch, count, hidden]))
        return [TensorDesc(kind, Shape([batch, count, time, hidden]))] + [last] * self.states


GATE_ORDERS = ("fico", "icof", "ifco", "ifoc", "iofc")
"""Orders of an LSTM's gates that opset1 allows: forget, input, cell, output."""


@dataclass(frozen=True)
class Lstm(Recurrent):
    """The attributes that only LSTMs of opset1 (and ONNX) have.

    With `input_forget` the input gate is 1 - forget gate. `weights_format` is the order of the
    gates in the weights.
    """

    gates = 4
    states = 2
    default_activations = ("sigmoid", "tanh", "tanh")

    input_forget: bool = attribute(default=False)
    weights_format: str = attribute(default="fico")

    def check_attributes(self) -> None:
        """Check the order of gates too."""
        super().check_attributes()
        if self.weights_format not in GATE_ORDERS:
            raise ShapeError(
                f"{self.type}: weights_format {self.weights_format!r} must be one of "
                f"{', '.join(GATE_ORDERS)}"
            )

    @property
    def opset(self) -> str:
        """Opset1 where its special attributes are used."""
        special = self.input_forget or self.weights_format != "fico"
        return "opset1" if special else super().opset

    def to_ir(self) -> dict[str, str]:
        """Leave out what the newest version does not know."""
        texts = super().to_ir()
        if self.opset != "opset1":
            del texts["input_forget"], texts["weights_format"]
        return texts


@dataclass(frozen=True)
class Gru(Recurrent):
    """The attribute that only GRUs have.

    With `linear_before_reset` the reset gate scales the recurrent product and not the state; the
    bias then has a fourth block, that of the recurrent product.
    """

    gates = 3
    default_activations = ("sigmoid", "tanh")

    linear_before_reset: bool = attribute(default=False)

    @property
    def bias_gates(self) -> int:
        """One more block where the recurrent product has its own."""
        return 4 if self.linear_before_reset else 3


@operation("LSTMCell", since=(1, 4))
class LSTMCell(Lstm, Cell):
    """One step of a long short-term memory.

    f, i, o = F(X·Wᵀ + H·Rᵀ + B) with their own rows, c = G(...), C' = f * C + i * c,
    H' = o * K(C'); peepholes add P * C (for o: P * C') before F.

    Inputs:  X [B, I], H [B, H], C [B, H], W [4H, I], R [4H, H], B [4H] (optional), P [3H] in the
             order i, o, f (optional, opset1), floating point
    Outputs: H', C'  [B, H]
    Raises:  ShapeError if sizes or activations do not fit
    Source:  OpenVINO opset4 LSTMCell
    """


@operation("LSTMSequence", since=(1, 5))
class LSTMSequence(Lstm, SequenceOf):
    """LSTMCell over time.

    Inputs:  X [B, T, I], H [B, D, H], C [B, D, H], lengths [B], W [D, 4H, I], R [D, 4H, H],
             B [D, 4H] (optional), P [D, 3H] (optional), floating point
    Outputs: Y [B, D, T, H], H' [B, D, H], C' [B, D, H]
    Raises:  ShapeError if sizes or activations do not fit
    Source:  OpenVINO opset5 LSTMSequence
    """


@operation("GRUCell", since=3)
class GRUCell(Gru, Cell):
    """One step of a gated recurrent unit.

    z, r = F(X·Wᵀ + H·Rᵀ + B) with their own rows, h = G(X·Whᵀ + (r * H)·Rhᵀ + Bh),
    H' = (1 - z) * h + z * H.

    Inputs:  X [B, I], H [B, H], W [3H, I], R [3H, H], B [3H] ([4H] with linear_before_reset;
             optional), floating point
    Outputs: H'  [B, H]
    Raises:  ShapeError if sizes or activations do not fit
    Source:  OpenVINO opset3 GRUCell
    """


@operation("GRUSequence", since=5)
class GRUSequence(Gru, SequenceOf):
    """GRUCell over time.

    Inputs:  X [B, T, I], H [B, D, H], lengths [B], W [D, 3H, I], R [D, 3H, H], B [D, 3H or 4H]
             (optional), floating point
    Outputs: Y [B, D, T, H], H' [B, D, H]
    Raises:  ShapeError if sizes or activations do not fit
    Source:  OpenVINO opset5 GRUSequence
    """


@operation("RNNCell", since=(1, 3))
class RNNCell(Cell):
    """One step of a plain recurrent network: H' = F(X·Wᵀ + H·Rᵀ + B).

    Inputs:  X [B, I], H [B, H], W [H, I], R [H, H], B [H] (optional), floating point
    Outputs: H'  [B, H]
    Raises:  ShapeError if sizes or activations do not fit
    Source:  OpenVINO opset3 RNNCell (in opset1 by mistake)
    """


@operation("RNNSequence", since=5)
class RNNSequence(SequenceOf):
    """RNNCell over time.

    Inputs:  X [B, T, I], H [B, D, H], lengths [B], W [D, H, I], R [D, H, H], B [D, H] (optional),
             floating point
    Outputs: Y [B, D, T, H], H' [B, D, H]
    Raises:  ShapeError if sizes or activations do not fit
    Source:  OpenVINO opset5 RNNSequence
    """
