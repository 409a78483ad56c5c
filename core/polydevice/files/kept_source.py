"""KeptSource: a network as it was given, whose weights may be left in the file they came from."""

from __future__ import annotations

import copyreg
import io
import pickle
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from polydevice.dtype import Array
from polydevice.files.stored import LEAST_BYTES, Stored
from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.ops.io import Constant

SMALL_BYTES = 256
"""Arrays up to this size are kept within the bytes of a network; others stay arrays."""


class KeptSource:
    """A copy of a network, for what is made of it once more: an export, or another plan.

    Weights that know where they were read from need not stay in memory meanwhile, and nodes are
    packed: 4,569 of them take 100 kB so, and 5 MB as objects.
    """

    def __init__(self, network: Network) -> None:
        """Copy a network; constant data is shared."""
        self._form, arrays = _packed(network) or _copied(network)
        self._arrays: list[Array | None] = [*arrays]
        self._stored = [_stored(array) for array in arrays]

    @property
    def constants(self) -> list[Array]:
        """The data of constants that is shared, as far as it was not let go of."""
        return [array for array in self._arrays if array is not None]

    @property
    def stored_bytes(self) -> int:
        """What the weights take that know where they were read from."""
        return sum(stored.size_bytes for stored in self._stored if stored is not None)

    def network(self) -> Network:
        """Return a copy with all weights; constant data is shared where it is in memory.

        Raises:
            ModelFileError: the file that weights were read from has changed.
        """
        arrays = []
        for array, stored in zip(self._arrays, self._stored, strict=True):
            if array is None:
                assert stored is not None
                array = stored.array()
            arrays.append(array)
        return self._form(arrays)

    def let_go(self) -> None:
        """Let go of weights that can be read again, unless their files have changed already."""
        files = {stored.file for stored in self._stored if stored is not None}
        kept = {file for file in files if file.keep()}
        for number, stored in enumerate(self._stored):
            if stored is not None and stored.file in kept:
                self._arrays[number] = None


_Form = Callable[[Sequence[Array]], Network]
"""Makes a network with these arrays."""


def _pickled(value: Any, aside: list[Array]) -> bytes:
    """Pickle a value; arrays but small ones are put aside.

    Raises:
        Exception: one of `_CANNOT`.
    """

    def reduced(array: Array) -> Any:
        if array.nbytes <= SMALL_BYTES and not array.dtype.hasobject:
            return array.__reduce__()
        aside.append(array)
        return _array, (len(aside) - 1,)

    pickler = pickle.Pickler(file := io.BytesIO(), pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = {**copyreg.dispatch_table, np.ndarray: reduced}
    pickler.dump(value)
    return file.getvalue()


def _array(number: int) -> Array:
    """Stand for an array that was put aside."""
    raise AssertionError(f"array {number} is put in where a network is unpacked")


class _Unpickler(pickle.Unpickler):  # noqa: S301 - of bytes that this process has made
    """Puts arrays in again."""

    def __init__(self, content: bytes, arrays: Sequence[Array]) -> None:
        super().__init__(io.BytesIO(content))
        self._arrays = arrays

    def find_class(self, module: str, name: str) -> Any:
        """Return what pickles name: here what returns an array by its number."""
        if (module, name) == (_array.__module__, _array.__name__):
            return self._arrays.__getitem__
        return super().find_class(module, name)


_CANNOT = (pickle.PicklingError, TypeError, AttributeError, RecursionError)
"""What a function within an operation raises that no module has by its name, and the like."""


def _packed(network: Network) -> tuple[_Form, Sequence[Array]] | None:
    """Return a network as bytes, and its arrays; None where something in it cannot be pickled."""
    nodes = network.nodes()
    if any(node.op.has_bodies for node in nodes):  # networks of their own
        return None
    numbers = {node: number for number, node in enumerate(nodes)}
    rows = [
        (
            *(node.name, node.op, node.rt_info, node.origins),
            [(numbers[port.node], port.index) for port in node.inputs],
            [(port.desc, port.names) for port in node.outputs],
        )
        for node in nodes
    ]
    ends = [
        [numbers[node] for node in given]
        for given in (network.parameters, network.results, network.sinks)
    ]
    aside: list[Array] = []
    try:
        content = zlib.compress(_pickled((rows, ends, network.rt_info), aside), 1)
    except _CANNOT:
        return None
    kind, name, evaluate = type(network), network.name, network.evaluate

    def unpacked(arrays: Sequence[Array]) -> Network:
        rows, ends, notes = _Unpickler(zlib.decompress(content), arrays).load()
        made: list[Node] = []
        for row in rows:
            made.append(_node(made, *row))
        parameters, results, sinks = ([made[number] for number in given] for given in ends)
        return kind(name, parameters, results, sinks, evaluate=evaluate, rt_info=notes)

    return unpacked, aside


def _node(
    made: Sequence[Node],
    name: str,
    op: Any,
    rt_info: dict[str, Any],
    origins: tuple[str, ...],
    inputs: Sequence[tuple[int, int]],
    outputs: Sequence[tuple[Any, set[str]]],
) -> Node:
    """Make a node of what was packed; nothing is inferred."""
    node = Node.__new__(Node)
    node.name, node.op, node.rt_info, node.origins = name, op, rt_info, origins
    node.inputs = [made[number].outputs[index] for number, index in inputs]
    node.outputs = [Port(node, index, desc) for index, (desc, _) in enumerate(outputs)]
    for port, (_, names) in zip(node.outputs, outputs, strict=True):
        port.names = names
    return node


def _copied(network: Network) -> tuple[_Form, Sequence[Array]]:
    """Return a copy of a network, and the data of its constants."""
    kept = network.clone()
    constants = [node for node in kept.nodes() if isinstance(node.op, Constant)]
    arrays = [node.operation(Constant).value for node in constants]
    for node in constants:
        empty(node)

    def copied(arrays: Sequence[Array]) -> Network:
        made = kept.clone()
        found = (node for node in made.nodes() if isinstance(node.op, Constant))
        for node, array in zip(found, arrays, strict=True):
            _set_constant(node, array)
        return made

    return copied, arrays


def empty(node: Node) -> None:
    """Let a Constant keep its type and shape alone."""
    value = node.operation(Constant).value
    _set_constant(node, np.broadcast_to(np.zeros((), value.dtype), value.shape))


def _stored(value: Array) -> Stored | None:
    return None if value.nbytes < LEAST_BYTES else Stored.of(value)


def _set_constant(node: Node, value: Array) -> None:
    op = node.operation(Constant)
    node.op = op.replace(value=value)
    node.infer()
