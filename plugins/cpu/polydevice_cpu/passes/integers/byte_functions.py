"""byte_functions: long chains of functions of 8-bit integers become a look into a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from polydevice.network import Network
from polydevice.node import Node, Port, constant
from polydevice.ops import activation, arithmetic, math
from polydevice.ops.op import Op, operation
from polydevice.ops.quantize_linear import QuantizeLinear
from polydevice.rewrites.integers.rounding.of_bytes import OfBytes, functions_of_bytes
from polydevice.rewrites.pattern import Replacements
from polydevice.tensor import TensorDesc
from polydevice_cpu.algorithms.by_machine import byte_table
from polydevice_cpu.lower import find_lowering

_ROUNDINGS, _FEW_ROUNDINGS = 4, 2
"""With so many a chain takes longer than a look: 0.2 ns for each element and rounding.

Behind each is a primitive; a look takes 0.4 ns where elements are looked up in pairs, 0.75 else
(one thread, EPYC), by machine code 0.05. Functions that are left to NumPy take 4 ns and more.
"""


FAST: tuple[type[Op], ...] = (
    *(activation.Relu, activation.PRelu, activation.Clamp, activation.HardSigmoid),
    *(activation.HSwish, activation.HSigmoid, math.Abs, math.Identity, math.Negative, math.Sign),
    *(math.Ceiling, math.Floor, math.Sqrt, arithmetic.Add, arithmetic.Subtract),
    *(arithmetic.Multiply, arithmetic.Divide, arithmetic.Maximum, arithmetic.Minimum),
)
"""Functions that take no longer than a look, or are parts of what computes their input."""

Users = Mapping[Port, Sequence[tuple[Node, int]]]
"""What reads a port."""


@operation("ByteFunction", domain="polydevice.cpu")
class ByteFunction(Op):
    """table[x], the bits of x taken for a number without sign.

    Inputs:  x      any shape, u8 or i8
             table  [256], u8 or i8
    Outputs: y      shape of x, type of the table
    Source:  as QuantizeLinear-13 of pointwise functions of DequantizeLinear-13
    """

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the shape of x in the table's type."""
        x, table = inputs
        return [x.with_type(table.element_type).without_value()]


def is_looked_up(function: OfBytes) -> bool:
    """Whether to look a function up takes less time than what is left of it without roundings.

    Sums, products and limits of HardSwish take as parts of a convolution 0.2 ns for each element
    with AVX2, Swish 2.2.
    """
    if byte_table.is_there() or is_slow(function):
        return True
    return function.roundings >= _ROUNDINGS and not function.functions <= {*FAST}


def is_slow(function: OfBytes) -> bool:
    """Whether a function on the way has no primitive."""
    return any(find_lowering(kind) is None for kind in function.functions)


def byte_functions(network: Network) -> None:
    """Replace what is quantised in the end of functions of 8-bit integers alone.

    The table has what the model's own steps make of each of 256 numbers, roundings on the way
    included: nothing changes. Such is the GELU that ONNX Runtime's tools quantise, in six steps.
    """
    is_fast, users = byte_table.is_there(), network.consumers()
    roundings = _FEW_ROUNDINGS if is_fast else _ROUNDINGS
    replacements = Replacements()
    for port, function in functions_of_bytes(network).items():
        if not isinstance(port.node.op, QuantizeLinear):
            continue
        pays = function.roundings >= roundings or is_slow(function)
        if pays or (is_fast and not _may_follow(function.source, users)):
            table = constant(f"{port.node.name}/table", function.table).output
            made = replacements.put_node(port.node, ByteFunction(), [function.source, table])
            made.names |= port.names
    replacements.apply(network)


def _may_follow(integers: Port, users: Users) -> bool:
    """Whether what is quantised here alone may be computed in one step with what follows."""
    readers = users.get(integers, [])
    if not isinstance(integers.node.op, QuantizeLinear) or len(readers) != 1:
        return False
    return len(users.get(readers[0][0].output, [])) == 1
