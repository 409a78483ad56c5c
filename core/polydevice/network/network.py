"""Network: a model as a graph of operations, with named inputs and outputs."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Union

import numpy as np

from polydevice.arguments import integer, options, shown, text
from polydevice.dtype import Array
from polydevice.errors import NetworkError, PolydeviceError, nearest
from polydevice.network.names import first_free, unique_name
from polydevice.network.port_setting import InputInfo, OutputInfo
from polydevice.network.shaped_graph import ShapedGraph
from polydevice.node import Node, Port
from polydevice.ops.io import Constant, Parameter, Result
from polydevice.shape import DimLike, Shape

PathLike = Union[str, "os.PathLike[str]"]


class Network(ShapedGraph):
    """A graph of operations with named inputs and outputs.

    Nodes are those from which a result or a sink can be reached (`Graph`); the shapes of all
    follow those of the inputs (`ShapedGraph`).

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
            keys.append(first_free(name, taken))
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
            names[first_free(name, names.keys())] = None
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
