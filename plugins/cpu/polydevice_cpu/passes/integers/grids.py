"""What values have been rounded to 16 bits by, and functions of them that are looked up."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.network import Network
from polydevice.node import Evaluate, Node, Port, constant
from polydevice.ops.op import Op, attribute, operation
from polydevice.ops.pad import Pad
from polydevice.ops.pointwise import BinaryPointwise, UnaryPointwise
from polydevice.rewrites.integers.movement import data_inputs, moves
from polydevice.rewrites.pattern import Replacements
from polydevice.tensor import TensorDesc
from polydevice_cpu.algorithms.by_machine.code import has_avx512
from polydevice_cpu.algorithms.by_machine.indexed.levels import LEVELS, Grid
from polydevice_cpu.algorithms.precision import fits_f32
from polydevice_cpu.passes.integers.byte_functions import FAST
from polydevice_cpu.passes.integers.fuse_quantize import QuantizeDequantize

LEAST = 1 << 15
"""Elements below which looks do not pay: the table, 256 KB, is in no cache when they begin."""


@operation("RoundedFunction", domain="polydevice.cpu")
class RoundedFunction(Op):
    """table[(x / scale) + zero - least], x having been rounded to (level - zero) * scale.

    Attributes:
        scale, zero, least: see `Grid`.
        of: what the results have been rounded to likewise; the scale is 0 where they are not.

    Inputs:  x      any shape, f32
             table  [65536], f32
    Outputs: y      shape and type of x
    Source:  made from functions of one number each, with roundings between them
    """

    scale: float = attribute()
    zero: int = attribute()
    least: int = attribute()
    of: tuple[float, ...] = attribute(default=(0.0, 0.0, 0.0))

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return shape and type of x."""
        return [inputs[0].without_value()]

    @property
    def grid(self) -> Grid:
        """What x has been rounded to."""
        return Grid(self.scale, self.zero, self.least)

    @property
    def result(self) -> Grid | None:
        """What results have been rounded to."""
        scale, zero, least = self.of
        return Grid(scale, int(zero), int(least)) if scale else None


def grid_of(port: Port) -> Grid | None:
    """Return what all of a value has been rounded to, if to 16 bits, before it was moved."""
    found, seen, left = set[Grid | None](), {port}, [port]
    while left and len(found) < 2:
        node = left.pop().node
        if isinstance(node.op, Pad) or not moves(node):
            found.add(_rounded(node))
            continue
        left += {*data_inputs(node)} - seen
        seen.update(left)
    return found.pop() if len(found) == 1 else None


def _rounded(node: Node) -> Grid | None:
    op = node.op
    if isinstance(op, RoundedFunction):
        return op.result
    if not isinstance(op, QuantizeDequantize) or op.most - op.least + 1 != LEVELS:
        return None
    scale, zero = (each.desc.constant for each in node.inputs[1:3])
    if scale is None or zero is None or scale.size != 1:
        return None
    grid = Grid(float(scale.item()), int(zero.item()), op.least)
    return grid if all(map(fits_f32, (1 / grid.scale, *grid.limits))) else None


class _Functions:
    """What ports are functions of, one number each, as far as nodes have been gone through."""

    def __init__(self, evaluate: Evaluate) -> None:
        self._evaluate = evaluate
        self._sources: dict[Port, Port] = {}
        self._slow: set[Port] = set()
        self._tables: dict[Port, Array | None] = {}

    def source(self, port: Port) -> Port | None:
        """The value of 16 bits that a port is a function of; None where it is none."""
        return self._sources.get(port)

    def is_slow(self, port: Port) -> bool:
        """Whether a function on the way takes longer than a look."""
        return port in self._slow

    def add(self, node: Node) -> None:
        """Note what a node computes."""
        if len(node.outputs) != 1 or not _is_pointwise(node):
            return
        given = [port for port in node.inputs if port.node.constant is None]
        if not given or any(_number(port) is None for port in node.inputs if port not in given):
            return
        sources = {self._sources.get(port, port) for port in given}
        if len(sources) > 1:
            return
        (source,) = sources
        if source in given and source not in self._tables:
            grid = grid_of(source)
            if grid is None:
                return
            self._tables[source] = grid.numbers
        self._sources[node.output] = source
        is_slow = isinstance(node.op, UnaryPointwise) and not isinstance(node.op, FAST)
        if is_slow or any(port in self._slow for port in given):
            self._slow.add(node.output)

    def table(self, port: Port) -> Array | None:
        """What a port is for each number of its source; None where some are no numbers."""
        if port not in self._tables:
            inputs = [
                self.table(each) if each.node.constant is None else _number(each)
                for each in port.node.inputs
            ]
            known = [each for each in inputs if each is not None]
            made = self._evaluate(port.node.op, known) if len(known) == len(inputs) else None
            is_right = made is not None and made[0].shape == (LEVELS,)
            found = made[0] if made is not None and is_right else None
            self._tables[port] = None if found is None or np.isnan(found).any() else found
        return self._tables[port]


def rounded_functions(network: Network) -> None:
    """Look functions up of what has been rounded to 16 bits, where they take longer.

    The table has what the model's own steps make of each number, roundings on the way included:
    nothing changes. Such are GELU and SiLU in networks that ONNX Runtime's tools quantise.
    """
    if network.evaluate is None or not has_avx512():
        return
    functions, users = _Functions(network.evaluate), network.consumers()
    nodes = network.nodes()
    for node in nodes:
        functions.add(node)
    replacements = Replacements()
    for node in nodes:
        if len(node.outputs) == 1 and _is_wanted(node.output, functions, users):
            _replace(node, functions, replacements)
    replacements.apply(network)


def _is_wanted(
    port: Port, functions: _Functions, users: Mapping[Port, Sequence[tuple[Node, int]]]
) -> bool:
    """Whether a value is to be looked up: one that other things read than such functions."""
    source, shape = functions.source(port), port.shape
    if source is None or not functions.is_slow(port) or shape is None or source.shape != shape:
        return False
    if not shape.is_static or math.prod(shape.static) < LEAST:
        return False
    readers = [reader for reader, _ in users.get(port, ())]
    return not readers or any(
        len(reader.outputs) != 1 or functions.source(reader.output) is not source
        for reader in readers
    )


def _replace(node: Node, functions: _Functions, replacements: Replacements) -> None:
    source = functions.source(node.output)
    table = functions.table(node.output)
    assert source is not None
    grid = grid_of(source)
    if table is None or grid is None:
        return
    result = _rounded(node)
    of = (0.0, 0.0, 0.0) if result is None else tuple(map(float, result))
    op = RoundedFunction(*grid, of=of)
    port = constant(f"{node.name}/table", np.ascontiguousarray(table, np.float32)).output
    made = replacements.put_node(node, op, [source, port])
    made.names |= node.output.names


def _is_pointwise(node: Node) -> bool:
    """Whether an element of the result is a function of the elements in its place."""
    is_known = isinstance(node.op, (UnaryPointwise, BinaryPointwise, QuantizeDequantize))
    return is_known and node.output.element_type is ElementType.f32


def _number(port: Port) -> Array | None:
    """The one number of a constant, without axes."""
    value = port.node.constant
    return None if value is None or value.size != 1 else value.reshape(())
