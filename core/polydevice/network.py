"""Network: a graph of operations."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Union

import numpy as np

from polydevice.arguments import integer, options, shown, text
from polydevice.bounds import computing_ahead
from polydevice.dtype import Array
from polydevice.errors import NetworkError, PolydeviceError, ShapeError, nearest
from polydevice.node import Evaluate, Node, Port
from polydevice.ops.io import Constant, Parameter, Result
from polydevice.port_setting import InputInfo, OutputInfo
from polydevice.shape import DimLike, Shape
from polydevice.tensor import TensorDesc

PathLike = Union[str, "os.PathLike[str]"]


class Network:
    """A graph of operations with named inputs and outputs.

    Nodes are those from which a result or a sink can be reached; there is no other list, so a
    pass that disconnects a node has removed it.

    Attributes:
        name: the model's name.
        parameters: Parameter nodes, in the model's order.
        results: Result nodes, in the model's order.
        sinks: nodes with a side effect (Assign).
        evaluate: computes shape arithmetic during shape inference; None leaves it unknown.
        rt_info: what the model's file says beside the graph, nested dictionaries of text: of an IR
            its notes, of an ONNX file "framework" (its metadata_props) and "onnx" (see
            `polydevice.readers.onnx.metadata`). Written to and read from IR files.
    """

    def __init__(
        self,
        name: str,
        parameters: Iterable[Node],
        results: Iterable[Node],
        sinks: Iterable[Node] = (),
        *,
        evaluate: Evaluate | None = None,
        rt_info: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.parameters = list(parameters)
        self.results = list(results)
        self.sinks = list(sinks)
        self.evaluate = evaluate
        self.rt_info: dict[str, Any] = dict(rt_info or {})

    # -- walking ----------------------------------------------------------------------------

    def nodes(self) -> list[Node]:
        """Return every node, producers before consumers; raises NetworkError on a cycle.

        Parameters come first, in order, also those that nothing uses.
        """
        order: list[Node] = []
        done: set[Node] = set()
        open_: set[Node] = set()
        for root in [*self.parameters, *self.results, *self.sinks]:
            stack: list[tuple[Node, int]] = [(root, 0)]
            while stack:
                node, position = stack.pop()
                if node in done:
                    continue
                if position == 0:
                    open_.add(node)
                if position < len(node.inputs):
                    stack.append((node, position + 1))
                    producer = node.inputs[position].node
                    if producer in open_:
                        raise NetworkError(f"the network has a cycle through {producer.title}")
                    if producer not in done:
                        stack.append((producer, 0))
                    continue
                open_.discard(node)
                done.add(node)
                order.append(node)
        return order

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes())

    def node(self, name: str) -> Node:
        """Return the node of that name; raises NetworkError naming close ones."""
        text(name, "the name of a node", NetworkError)
        nodes = self.nodes()
        for node in nodes:
            if node.name == name:
                return node
        raise NetworkError(
            f"network {self.name!r} has no node {name!r}." + nearest(name, [n.name for n in nodes])
        )

    def consumers(self) -> dict[Port, list[tuple[Node, int]]]:
        """Map every port to the (node, input index) pairs that read it."""
        users: dict[Port, list[tuple[Node, int]]] = {}
        for node in self.nodes():
            for port in node.outputs:
                users.setdefault(port, [])
            for index, port in enumerate(node.inputs):
                users.setdefault(port, []).append((node, index))
        return users

    def replace(self, ports: Mapping[Port, Port]) -> None:
        """Make every reader of a key read its value instead, in one walk however many there are.

        Values may be keys too. A node that is new in the network keeps reading the port that it
        helps to replace, as what is put behind a port does.
        """
        if not ports:
            return
        before = set(self.nodes())
        kept: dict[Node, set[Port]] = {}
        for old, new in ports.items():
            new.names |= old.names
            for node in _made_for(new, before):
                kept.setdefault(node, set()).add(old)
        for node in [*before, *kept]:
            own = kept.get(node, ())
            node.inputs = [port if port in own else _latest(port, ports) for port in node.inputs]

    def extract(
        self,
        nodes: Iterable[Node],
        inputs: Mapping[Port, str],
        outputs: Mapping[Port, str],
        *,
        name: str,
    ) -> Network:
        """Return a network of copies of some nodes; this one stays as it is.

        Args:
            nodes: producers before consumers. Values that they read and that are known become
                constants, where they are no inputs.
            inputs: ports that they read of others → name of the parameter.
            outputs: ports → name of the result.
            name: of the new network.

        Raises:
            NetworkError: a node reads a port that is neither of these nodes nor in `inputs`.
        """
        copies: dict[Port, Port] = {}
        parameters = []
        for port, given in inputs.items():
            op = Parameter(port.element_type, port.shape, port.desc.kind)
            parameters.append(Node(given, op))
            copies[port] = parameters[-1].output

        def inner(port: Port) -> Port:
            if port not in copies:
                known = port.desc.constant
                if known is None:  # texts are no values that anything follows from
                    known = port.node.constant
                if known is None:
                    raise NetworkError(f"{port.name!r} is read, but not among the inputs of {name}")
                copies[port] = Node(port.name, Constant(known, port.element_type)).output
            return copies[port]

        sinks = []
        for node in nodes:
            made = node.copy(inner(port) for port in node.inputs)
            copies.update(zip(node.outputs, made.outputs, strict=True))
            if node.op.has_side_effect:
                sinks.append(made)
        results = [
            Node(given, Result(output_name=given), [inner(port)]) for port, given in outputs.items()
        ]
        return Network(name, parameters, results, sinks, evaluate=self.evaluate)

    def state_variables(self) -> list[str]:
        """Names of the variables kept between inferences (ReadValue, Assign)."""
        names = [getattr(node.op, "variable_id", None) for node in self.nodes()]
        return sorted({name for name in names if isinstance(name, str)})

    # -- shapes -----------------------------------------------------------------------------

    def infer(self) -> None:
        """Find type and shape of every port again, producers first."""
        with computing_ahead():
            for node in self.nodes():
                node.infer(self.evaluate)

    def infer_results(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return type and shape of every result for inputs so described; changes nothing.

        Inputs whose elements are known act as constants. This is how an operation with a body
        (TensorIterator, Loop, If) describes its outputs.

        Raises:
            NetworkError: (or a subclass) a node does not accept what reaches it.
        """
        trial = self.clone()
        for node, desc in zip(trial.parameters, inputs, strict=True):
            if desc.constant is not None and desc.kind == "tensor":
                node.op = Constant(desc.constant, desc.element_type)
            else:
                node.op = Parameter(desc.element_type, desc.shape, desc.kind)
        trial.infer()
        return [result.outputs[0].desc for result in trial.results]

    @property
    def is_dynamic(self) -> bool:
        """Whether some input's shape is not fully known."""
        return any(not node.output.desc.is_static for node in self.parameters)

    def reshape(self, shapes: Mapping[str, Sequence[DimLike | None]]) -> None:
        """Give inputs new shapes; None or -1 is an unknown size, `Dim` one with bounds.

        Where the model has its batch written into the pattern of a Reshape, and that does not fit
        the new shapes, the Reshape follows (`polydevice.written_batch`).

        Raises:
            NetworkError: for an unknown input name, or when a node does not accept the shapes;
                the network then keeps its old shapes.
        """
        shapes = options(shapes, "the mapping of names to shapes", NetworkError)
        by_name = {node.name: node for node in self.parameters}
        unknown = [name for name in shapes if name not in by_name]
        if unknown:
            raise NetworkError(
                f"network {self.name!r} has no input {unknown[0]!r}; "
                f"inputs: {', '.join(by_name)}." + nearest(unknown[0], by_name)
            )
        before = {name: by_name[name].op for name in shapes}
        known = {port: port.shape for node in self.nodes() for port in node.outputs}
        try:
            for name, sizes in shapes.items():
                by_name[name].op = by_name[name].op.replace(shape=_shape(name, sizes))
            self._infer_or_follow(known)
        except PolydeviceError:
            for name, op in before.items():
                by_name[name].op = op
            self.infer()
            raise

    def _infer_or_follow(self, before: Mapping[Port, Shape | None]) -> None:
        """Find shapes; where they do not fit as the model is written, with Reshapes that follow.

        Raises:
            NetworkError: what is wrong with the model as it is written.
        """
        try:
            self.infer()
        except NetworkError as error:
            from polydevice.written_batch import follow

            try:
                changed = follow(self, before)
            except NetworkError:
                raise error from None
            if not changed:
                raise

    def notes(self, *path: str) -> Mapping[str, Any]:
        """Return the dictionary in `rt_info` at a path of keys; empty when there is none."""
        found: Any = self.rt_info
        for key in path:
            found = found.get(key) if isinstance(found, Mapping) else None
        return found if isinstance(found, Mapping) else {}

    def dimension_names(self, name: str, kind: str = "dimensions") -> dict[int, str]:
        """Return axis → name of the sizes that an ONNX file calls by a name (`dim_param`).

        Args:
            name: of an input or output.
            kind: "dimensions", or "denotations" for what the file says that an axis means.
        """
        kind = text(kind, "the kind", NetworkError)
        noted = self.notes("onnx", kind, text(name, "the name", NetworkError))
        return {int(axis): str(given) for axis, given in noted.items() if axis.isdecimal()}

    def fix_dimensions(self, sizes: Mapping[str, int], kind: str = "dimensions") -> None:
        """Give a size to the axes of inputs that an ONNX file calls by a name.

        Args:
            sizes: name, such as "batch" → size, wherever the name stands.
            kind: see `dimension_names`.

        Raises:
            NetworkError: no input has an axis of that name; or as `reshape`.
        """
        sizes = options(sizes, "sizes", NetworkError)
        named = {node.name: self.dimension_names(node.name, kind) for node in self.parameters}
        known = {given for axes in named.values() for given in axes.values()}
        for name in sizes:
            if name not in known:
                raise NetworkError(
                    f"no input of network {self.name!r} has an axis {name!r}; there are: "
                    f"{', '.join(sorted(known)) or 'none'}." + nearest(name, known)
                )
        shapes: dict[str, list[DimLike]] = {}
        for node in self.parameters:
            if node.output.shape is not None and any(n in sizes for n in named[node.name].values()):
                own = list(node.output.shape)
                axes = named[node.name]
                shapes[node.name] = [
                    sizes.get(axes.get(axis, ""), size) for axis, size in enumerate(own)
                ]
        self.reshape(shapes)

    def make_input(self, name: str) -> Array:
        """Turn a constant (an ONNX initialiser, say) into an input, and return its value.

        Raises:
            NetworkError: there is no node of that name, it is no constant, or a node needs its
                value; the network is then as it was.
        """
        node = self.node(name)
        if not isinstance(node.op, Constant):
            raise NetworkError(f"{node.title} is no constant; only constants can become inputs")
        op = node.op
        node.op = Parameter(op.element_type, Shape(op.value.shape))
        self.parameters.append(node)
        try:
            self.infer()
        except PolydeviceError:
            self.parameters.pop()
            node.op = op
            self.infer()
            raise
        return op.value

    def set_constant(self, name: str, value: Array) -> None:
        """Put another value of the same type and shape in the place of a constant's.

        Raises:
            NetworkError: there is no such node, it is no constant, the value is no array of
                the same type and shape, or a node does not accept it; the network is then as it
                was.
        """
        node = self.node(name)
        if not isinstance(node.op, Constant):
            raise NetworkError(f"{node.title} is no constant; only constants have a value to set")
        op, held = node.op, node.op.value
        if not isinstance(value, np.ndarray):
            raise NetworkError(f"{node.title}: {shown(value)} is no value; give an array")
        if value.dtype != held.dtype or value.shape != held.shape:
            raise NetworkError(
                f"{node.title} holds {held.dtype}{list(held.shape)}; {value.dtype}"
                f"{list(value.shape)} does not fit"
            )
        node.op = Constant(value, op.element_type)
        try:
            self.infer()
        except PolydeviceError:
            node.op = op
            self.infer()
            raise

    @property
    def batch_size(self) -> DimLike:
        """First size of the inputs (0 without inputs); setting it reshapes all of them."""
        for node in self.parameters:
            shape = node.output.shape
            if shape is not None and len(shape) > 1:
                return shape[0]
        return 1 if self.parameters else 0

    @batch_size.setter
    def batch_size(self, size: int) -> None:
        if size <= 0:
            raise ShapeError(f"batch size {size} is not possible; use 1 or more")
        current = self.batch_size
        shapes: dict[str, list[DimLike]] = {}
        for node in self.parameters:
            shape = node.output.shape
            if shape is None:
                raise ShapeError(f"{node.title} has unknown rank; use reshape() instead")
            if len(shape) > 1 and shape[0] == current:
                shapes[node.name] = [size, *shape[1:]]
        self.reshape(shapes)

    # -- inputs and outputs -------------------------------------------------------------------

    def add_outputs(self, outputs: str | tuple[str, int] | Iterable[str | tuple[str, int]]) -> None:
        """Make inner values outputs too: a node name, or (name, port index), or several.

        Raises:
            NetworkError: for an unknown node or port.
        """
        for name, index in _ports_named(outputs):
            node = self.node(name)
            if not 0 <= index < len(node.outputs):
                raise NetworkError(
                    f"{node.title} has no output {index}; it has 0 to {len(node.outputs) - 1}"
                )
            port = node.outputs[index]
            if any(result.inputs[0] is port for result in self.results):
                continue
            self.results.append(Node(unique_name(self, f"{port.name}/result"), Result(), [port]))

    def input_ports(self) -> list[tuple[str, Port]]:
        """Return (name, port) of every input, in order."""
        return [(node.name, node.output) for node in self.parameters]

    def output_ports(self) -> list[tuple[str, Port]]:
        """Return (key, port) of every output, in order; the keys of inputs are their names.

        A key is the output's name (`output_names`), with a number behind it where an input is
        called so too: what a device keeps the memory of inputs and outputs under.
        """
        taken = {node.name for node in self.parameters}
        keys: list[str] = []
        for name in self.output_names():
            keys.append(_first_free(name, taken))
            taken.add(keys[-1])
        return [(key, result.inputs[0]) for key, result in zip(keys, self.results, strict=True)]

    def output_names(self) -> list[str]:
        """Return the name of every output, in order.

        That is the one that its Result gives (ONNX), else that of the port it reads; a number
        behind it tells it from another output of the same name. An input may be called so too.
        """
        names: dict[str, None] = {}
        for result in self.results:
            name = getattr(result.op, "output_name", "") or result.inputs[0].name
            names[_first_free(name, names.keys())] = None
        return list(names)

    @property
    def inputs(self) -> dict[str, InputInfo]:
        """Name → description of every input; precision and layout can be set."""
        return {
            name: InputInfo(name, node.output, node)
            for (name, _), node in zip(self.input_ports(), self.parameters, strict=True)
        }

    @property
    def outputs(self) -> dict[str, OutputInfo]:
        """Name → description of every output; precision and layout can be set."""
        return {
            name: OutputInfo(name, node.inputs[0], node)
            for name, node in zip(self.output_names(), self.results, strict=True)
        }

    def name_of_tensor(self, tensor_name: str) -> str:
        """Return the node (or ``node.port``) that makes the framework's tensor of that name.

        Raises:
            NetworkError: when no port has the name.
        """
        tensor_name = text(tensor_name, "the name", NetworkError)
        known: list[str] = []
        for node in self.nodes():
            for port in node.outputs:
                if tensor_name in port.names:
                    return port.name
                known.extend(port.names)
        raise NetworkError(
            f"network {self.name!r} has no tensor {tensor_name!r}." + nearest(tensor_name, known)
        )

    def serialize(self, xml_path: PathLike, bin_path: PathLike | None = None) -> None:
        """Write the network as OpenVINO IR v11.

        Args:
            xml_path: file for the topology.
            bin_path: file for the constants; by default the same name with ``.bin``.

        Raises:
            UnsupportedOperationError: for operations that IR cannot express, all of them listed.
            ModelFileError: when a file cannot be written.
        """
        from polydevice.writers.ir import write_ir

        write_ir(self, xml_path, bin_path)

    def clone(self) -> Network:
        """Copy the graph; operations and constant data are shared, since they never change."""
        copies: dict[Port, Port] = {}
        nodes: dict[Node, Node] = {}
        for node in self.nodes():
            made = node.copy(copies[port] for port in node.inputs)
            copies.update(zip(node.outputs, made.outputs, strict=True))
            nodes[node] = made
        return Network(
            self.name,
            [nodes[n] for n in self.parameters],
            [nodes[n] for n in self.results],
            [nodes[n] for n in self.sinks],
            evaluate=self.evaluate,
            rt_info=self.rt_info,
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Network:
        """Copy the graph and all that its user set; constant data is shared, as by `clone`."""
        copied = self.clone()
        copied.rt_info = copy.deepcopy(self.rt_info, memo)
        for node in copied.nodes():
            node.rt_info = copy.deepcopy(node.rt_info, memo)
        return copied

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the network as an archive, which one version of polydevice reads.

        Shapes that the network itself computes are found again when it is loaded.
        """
        from polydevice.files.archive import network_to_bytes

        notes = {node.name: node.rt_info for node in self.nodes() if node.rt_info}
        return _unpickled, (network_to_bytes(self), self.rt_info, notes)

    def __repr__(self) -> str:
        return f"Network({self.name!r}, {len(self.nodes())} nodes)"


def _shape(name: str, sizes: Any) -> Shape:
    if not isinstance(sizes, Iterable) or isinstance(sizes, (str, bytes)):
        raise ShapeError(f"input {name!r}: {shown(sizes)} is no shape; give a list of sizes")
    return Shape(sizes)


def _ports_named(outputs: Any) -> Iterator[tuple[str, int]]:
    one = isinstance(outputs, (str, tuple)) or not isinstance(outputs, Iterable)
    for item in [outputs] if one else outputs:
        pair = (item, 0) if isinstance(item, str) else item
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise NetworkError(f"{shown(item)} is no output; give a node's name, or (name, number)")
        yield (
            text(pair[0], "the name of a node", NetworkError),
            integer(pair[1], "the number of an output", NetworkError),
        )


def _unpickled(
    content: bytes, rt_info: dict[str, Any], notes: Mapping[str, dict[str, Any]]
) -> Network:
    """Return a network that was pickled: an archive, and the notes that archives do not keep."""
    from polydevice.files.archive import network_from_bytes

    network = network_from_bytes(content)
    network.rt_info = rt_info
    for node in network.nodes():
        node.rt_info = notes.get(node.name, {})
    return network


def _made_for(port: Port, before: AbstractSet[Node]) -> Iterator[Node]:
    """Yield the nodes behind a port that were not in the network before."""
    seen: set[Node] = set()
    stack = [port.node]
    while stack:
        node = stack.pop()
        if node in seen or node in before:
            continue
        seen.add(node)
        yield node
        stack += [source.node for source in node.inputs]


def _latest(port: Port, ports: Mapping[Port, Port]) -> Port:
    """Return what stands for a port in the end."""
    while port in ports and ports[port] is not port:
        port = ports[port]
    return port


def unique_name(network: Network, name: str) -> str:
    """Return `name`, or `name` with the first free number behind it."""
    return _first_free(name, {node.name for node in network.nodes()})


def namer(network: Network) -> Callable[[str], str]:
    """Return a function that gives a new name for a wanted one, a different one each time."""
    taken = {node.name for node in network.nodes()}

    def unique(name: str) -> str:
        free = _first_free(name, taken)
        taken.add(free)
        return free

    return unique


def _first_free(name: str, taken: AbstractSet[str]) -> str:
    if name not in taken:
        return name
    number = 1
    while f"{name}_{number}" in taken:
        number += 1
    return f"{name}_{number}"
