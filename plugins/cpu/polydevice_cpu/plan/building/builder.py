"""PlanBuilder: turns a network whose shapes are known into a plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polydevice.dtype import Array
from polydevice.network.kept_layers import NONE_KEPT, KeptLayers
from polydevice.node import FLOAT_REASON, Node, Port
from polydevice.ops.io import Constant, Parameter, Result
from polydevice.symbolic_size import UntraceableError, is_formula
from polydevice_cpu.lower import find_lowering
from polydevice_cpu.onednn import openmp
from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.constants import Arg, DataType
from polydevice_cpu.onednn.descriptor import (
    DATA_TYPES,
    Descriptor,
    SymbolicDescriptor,
    row_major,
)
from polydevice_cpu.onednn.engine import address_of
from polydevice_cpu.onednn.primitives import reorder
from polydevice_cpu.passes import DEFAULT_USE, UseOfIntegers
from polydevice_cpu.plan.array_steps.small import copying, with_code
from polydevice_cpu.plan.array_steps.start import starter, writer
from polydevice_cpu.plan.building.decisions import Decisions
from polydevice_cpu.plan.building.integers import Integers
from polydevice_cpu.plan.building.pending import Pending
from polydevice_cpu.plan.building.sizes import Needed, Sized, is_given_texts, is_plain
from polydevice_cpu.plan.building.weights import WeightStore, constant_value, pack
from polydevice_cpu.plan.building.worth import threads_worth
from polydevice_cpu.plan.channels_last import as_channels_last
from polydevice_cpu.plan.in_tiles import later, may_wait
from polydevice_cpu.plan.plan import PlanParts
from polydevice_cpu.plan.step import ArrayStep, PrimitiveStep, Step, TailStep
from polydevice_cpu.plan.value import Kind, Storage, UnpackedValue, Value


@dataclass(frozen=True)
class Settings:
    """What every plan of an executable network has in common."""

    heavy: DataType = DataType.F32
    """What heavy primitives read and write."""
    integers: UseOfIntegers = DEFAULT_USE
    """What is computed on integers."""
    threads: int = 1
    """With how many threads a plan may compute; a small one takes a single one."""
    kept: KeptLayers = NONE_KEPT
    """Layers that are computed in f32 all the same."""
    is_alone: bool = False
    """Whether one thread has to compute what several do in another plan, to the bit."""


class PlanBuilder:
    """Walks a network, producers first, and collects steps.

    Lowerings (`polydevice_cpu.lowering`) use it to ask for values, to hold back primitives that
    may fuse with their followers, and to emit steps. The network's shapes are concrete; a node
    whose outputs are not (its sizes depend on data) goes to the tail, with all that follows it.
    """

    def __init__(
        self,
        sized: Sized,
        settings: Settings,
        weights: WeightStore,
        decisions: Decisions,
        make_tail: Callable[[PlanBuilder, list[Node]], TailStep],
    ) -> None:
        self.network, self.nodes = sized.network, sized.nodes
        self._sized = sized
        self.settings = settings
        self.weights = weights
        self.decisions = decisions
        self._make_tail = make_tail
        self._values: dict[Port, Value] = {}
        self._pending: dict[Port, Pending] = {}
        self._integers: dict[Port, Integers] = {}
        self._constants: dict[int, tuple[Array, Value]] = {}
        self._steps: list[Step] = []
        self._uses: dict[Port, int] = {}
        self._late: set[Port] = set()
        self._readers: dict[Port, Node] = {}
        self._refused: dict[str, str] = {}
        self._origins: dict[str, tuple[str, ...]] = {}
        self._threads: dict[Node, int] = {}
        self._stable = set(sized.stable)
        self._asked: Node | None = None
        self._wide: set[Node] = set()

    # -- what lowerings ask -------------------------------------------------------------------

    def uses(self, port: Port) -> int:
        """How many inputs of nodes and results of the network read this port."""
        return self._uses.get(port, 0)

    def reader(self, port: Port) -> Node | None:
        """The node that alone reads this port; None where several do, or none."""
        if self.uses(port) != 1:
            return None
        if not self._readers:
            self._readers = {read: node for node in self._sized.nodes for read in node.inputs}
        return self._readers.get(port)

    def is_late(self, port: Port) -> bool:
        """Whether the port's value is known to the tail only (or is not of numbers)."""
        return port in self._late

    def pending(self, port: Port) -> Pending | None:
        """The primitive held back for this port, if it is free to be extended."""
        if port in self._integers and port not in self._values:
            return self._integers[port].start()
        return self._pending.get(port) if self.uses(port) == 1 else None

    def value(self, port: Port) -> Value:
        """The value of a port, in whatever layout it was computed; emits what was held back."""
        held = self._pending.pop(port, None)
        if held is not None:
            self._values[port] = held.emit(self)
        if port not in self._values and port in self._integers:
            integers = self._integers[port]
            held = integers.start()
            self._values[port] = self._as_floats(integers) if held is None else held.emit(self)
        if port not in self._values:
            known = port.desc.constant
            assert known is not None, f"{port} is used before it is computed"
            if is_formula(known):
                self._values[port] = _of_formulas(known, port.element_type.dtype)
                return self._values[port]
            self._values[port] = self.constant(np.ascontiguousarray(known).reshape(known.shape))
        return self._values[port]

    def integers(self, port: Port) -> Integers | None:
        """The integers that a port's value is held as, until something reads it in f32."""
        return self._integers.get(port)

    def array_value(self, port: Port) -> Value:
        """The value as NumPy functions read it: row-major, in the port's own element type."""
        value = self.value(port)
        return value if value.dtype.hasobject else self.dense(value, port.element_type.dtype)

    def dense(self, value: Value, dtype: np.dtype[Any] | None = None) -> Value:
        """The value in row-major order and, where given, of another type that oneDNN converts."""
        dtype = dtype or value.dtype
        if value.is_dense and value.dtype == dtype:
            return value
        if not value.elements:  # of which there is nothing to convert
            return self.new_dense(value.shape, dtype)
        if value.dtype != dtype and not value.in_reach and not value.is_dense:
            return self.dense(self.dense(value), dtype)
        if not value.in_reach or dtype not in DATA_TYPES:
            assert value.dtype == dtype
            for copy in value.copies:
                if copy.is_dense and copy.dtype == dtype:
                    return copy
            result = self.new_dense(value.shape, dtype)
            self.emit(copying("", "Reorder", value, result))
            value.copies.append(result)
            return result
        return self.in_layout(value, Descriptor.dense(value.shape, DATA_TYPES[dtype]))

    def _as_floats(self, integers: Integers) -> Value:
        """What integers stand for, by NumPy: oneDNN has no primitive for it, or a wrong one."""
        source = self.dense(integers.value)
        result = self.new_dense(source.shape, np.dtype(np.float32))
        start = integers.floats
        self.emit(ArrayStep("", "DequantizeLinear", lambda _: start, [source], [result]))
        return result

    def in_layout(self, value: Value, descriptor: Descriptor) -> Value:
        """The value in this layout; one reorder serves all readers."""
        if not value.in_reach:  # a slice with steps, say, which oneDNN takes for overlapping
            value = self.dense(value)
        for copy in value.copies:
            if copy.dtype == descriptor.dtype and copy.descriptor == descriptor:
                return copy
        result = self.new(descriptor)
        move = reorder(value.descriptor, descriptor, Attributes())
        assert move is not None, f"oneDNN cannot reorder {value} to {descriptor}"
        self.emit(PrimitiveStep("", "Reorder", move, {Arg.SRC: value, Arg.DST: result}, (Arg.DST,)))
        value.copies.append(result)
        result.copies = value.copies
        return result

    def wide(self, value: Value) -> Value:
        """The value in f32, if it is of bfloat16 or f16, in the order in which it lies."""
        if value.dtype == np.float32 or not value.in_reach:
            return value
        if value.strides is None or not value.has_no_gaps:
            return self.in_layout(value, Descriptor.dense(value.shape))
        return self.in_layout(value, Descriptor.strided(value.shape, value.strides))

    def constant(self, array: Array) -> Value:
        """A value that is the same in every inference; the array must not change."""
        if is_formula(array):
            raise UntraceableError("sizes are part of what a layer computes with")
        _, known = self._constants.get(id(array), (array, None))
        if known is None:
            given = array
            if not array.flags.c_contiguous:  # one number broadcast to many, say
                array = np.ascontiguousarray(array)
            kind = Kind.OBJECTS if array.dtype.hasobject else Kind.CONSTANT
            storage = Storage(kind, array.nbytes, array=array)
            # Not NumPy's strides: those of sizes of 1 may be any number in a contiguous array,
            # and oneDNN 3's binary primitives step by them.
            known = Value(storage, array.shape, array.dtype, row_major(array.shape))
            self._constants[id(given)] = given, known
        return known

    def packed(self, array: Array, descriptor: Descriptor | None) -> Value:
        """A constant in a layout of oneDNN's; the model's own are packed once for all plans."""
        if descriptor is None:
            return self.constant(array)
        if isinstance(descriptor, SymbolicDescriptor):  # it is packed where there are numbers
            if address_of(array) in self._stable and not may_wait(array):
                self.weights.packed(array, descriptor.known)
            storage = Storage(Kind.CONSTANT, descriptor.size_bytes, array=array)
            kind, steps = descriptor.dtype, descriptor.strides
            return UnpackedValue(storage, descriptor.shape, kind, steps, descriptor=descriptor)
        if address_of(array) in self._stable:
            return later(array, descriptor, lambda: self.weights.packed(array, descriptor))
        return constant_value(pack(array, descriptor), descriptor)

    def packed_from(
        self, array: Array, name: str, make: Callable[[Array], Array], descriptor: Descriptor
    ) -> Value:
        """``make(array)`` in a layout of oneDNN's; it is kept in no other form."""
        if isinstance(descriptor, SymbolicDescriptor) or address_of(array) not in self._stable:
            return self.packed(make(array), descriptor)
        return self.weights.packed_from(array, name, make, descriptor)

    def derived(self, array: Array, name: str, make: Callable[[Array], Array]) -> Array:
        """``make(array)``; for the model's own constants computed once for all plans."""
        if address_of(array) not in self._stable:
            return make(array)
        result = self.weights.derived(array, name, make)
        self._stable.add(address_of(result))
        return result

    def heavy_type(self, node: Node) -> DataType:
        """The element type that the heavy primitive of a node computes on."""
        if node in self._wide or self.settings.kept.has(node.layers):
            return DataType.F32
        self._asked = node
        return self.settings.heavy

    # -- what lowerings emit ------------------------------------------------------------------

    def new(self, descriptor: Descriptor) -> Value:
        """A new value in the arena; oneDNN says of one without axes that it takes no bytes."""
        shape, kind = descriptor.shape, descriptor.dtype
        storage = Storage(Kind.ARENA, descriptor.size_bytes if shape else kind.itemsize)
        return Value(storage, shape, kind, descriptor.strides, descriptor=descriptor)

    def new_dense(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Value:
        """A new row-major value."""
        storage = Storage(Kind.ARENA, math.prod(shape) * dtype.itemsize)
        return Value(storage, shape, dtype, row_major(shape))

    def emit(self, step: Step) -> None:
        """Append a step; it runs after all steps emitted before."""
        self._steps.append(step)

    def set(self, port: Port, value: Value) -> None:
        """Note where a port's value is."""
        self._values[port] = value

    def hold_integers(self, port: Port, integers: Integers) -> None:
        """Note what a port's value would be made of, if something read it."""
        self._integers[port] = integers

    def lower_instead(self, port: Port, nodes: Sequence[Node]) -> None:
        """Lower nodes, of which each is read once and the last computes `port`."""
        for node in nodes:
            self._uses[node.output] = 1
            self._threads[node] = openmp.thread_count()  # as what they compute instead of
            self._lower(node)
        made = nodes[-1].output
        held = self.release(made)
        if held is not None:
            self.hold(port, held)
        else:
            self.set(port, self.value(made))

    def hold(self, port: Port, pending: Pending) -> None:
        """Hold a primitive back until its result is read."""
        self._pending[port] = pending

    def fused(self, node: Node, source: Port, held: Pending) -> None:
        """Hold what was held for `source` for the result of a node that was fused into it."""
        self.release(source)
        self.hold(node.outputs[0], held)
        if held.latest is not None:
            self.decisions.note_fusion(node, node.inputs.index(source), held.latest)

    def _fused_again(self, node: Node) -> bool:
        """Fuse a node as for other sizes, if it was and may be."""
        known = self.decisions.fusion(node)
        if known is None:
            return False
        source = node.inputs[known.place]
        held = self.pending(source)
        if held is None or not held.extend_again(node, known.extension):
            return False
        self.release(source)
        self.hold(node.outputs[0], held)
        return True

    def release(self, port: Port) -> Pending | None:
        """Take back what was held, after it was extended to another port."""
        return self._pending.pop(port, None)

    def refuse(self, name: str, reason: str) -> None:
        """Note why oneDNN does not compute a node, or not with what precedes it; "" for neither."""
        for layer in self._origins.get(name, (name,)):
            if reason:
                self._refused.setdefault(layer, reason)
            else:
                self._refused.pop(layer, None)

    # -- the walk -----------------------------------------------------------------------------

    def build(self) -> PlanParts:
        """Return what the plan consists of."""
        nodes = self._needed()
        counts = threads_worth(nodes, self.settings.threads)
        self._threads = dict(zip(nodes, counts, strict=True))
        with openmp.threads(max(counts, default=1)):
            return self._build(nodes)

    def _build(self, nodes: list[Node]) -> PlanParts:
        self._place_inputs()
        late = [node for node in nodes if not self._lower(node)]
        if late or any(self.is_late(result.inputs[0]) for result in self.network.results):
            self.emit(self._make_tail(self, late))
        outputs = self._place_outputs()
        inputs = [parameter.output.desc for parameter in self.network.parameters]
        return PlanParts(
            *(self._steps, outputs, lambda: inputs, self._refused, self._origins),
            is_alone=self.settings.is_alone,
        )

    def _needed(self) -> list[Node]:
        """The nodes that something computed at run time depends on; counts uses."""
        if not self._sized.needed:
            self._sized.needed.append(self._find_needed())
        (needed,) = self._sized.needed
        self._uses = dict(needed.uses)
        return needed.nodes

    def _find_needed(self) -> Needed:
        network = self.network
        wanted: set[Node] = set()
        stack: list[Node] = []
        uses: dict[Port, int] = {}

        def read(port: Port) -> None:
            uses[port] = uses.get(port, 0) + 1
            if port.desc.constant is None and port.node not in wanted:
                wanted.add(port.node)
                stack.append(port.node)

        for root in (*network.results, *network.sinks):
            wanted.add(root)
            stack.append(root)
        while stack:
            for port in stack.pop().inputs:
                read(port)
        return Needed([node for node in self._sized.nodes if node in wanted], uses)

    def _place_inputs(self) -> None:
        for index, parameter in enumerate(self.network.parameters):
            port = parameter.output
            if not is_plain(port) or port.shape is None:
                # Strings, sequences and optionals: passed on as they are.
                objects = Storage(Kind.OBJECTS, 0, index=index)
                self._values[port] = Value(objects, (), np.dtype(object), ())
                continue
            shape, dtype = port.shape.static, port.element_type.dtype
            storage = Storage(Kind.INPUT, math.prod(shape) * dtype.itemsize, index=index)
            self._values[port] = Value(storage, shape, dtype, row_major(shape))

    def _lower(self, node: Node) -> bool:
        """Lower one node; False when it must wait for the tail."""
        self._origins[node.name] = node.layers
        if isinstance(node.op, Result):
            return True
        for port in node.outputs:
            if port.desc.constant is None:
                break
        else:
            if node.outputs:
                return True
        late = [port for port in node.inputs if port in self._late]
        if not all(map(is_plain, node.outputs)) or not is_given_texts(node, late):
            self._late.update(node.outputs)
            return isinstance(node.op, Parameter)
        if isinstance(node.op, (Parameter, Constant)):
            return True
        with openmp.threads(self._threads[node]):
            if late:
                self._lower_texts(node)
            else:
                self._lower_known(node)
        return True

    def _lower_known(self, node: Node) -> None:
        """Lower a node whose sizes are known, for the calling thread's number of threads."""
        if FLOAT_REASON in node.rt_info:
            self.refuse(node.name, f"{FLOAT_REASON}, {node.rt_info[FLOAT_REASON]}")
        if self._fused_again(node):
            return
        lower = find_lowering(type(node.op))
        if lower is not None:
            if lower(self, node):
                return
            if self._asked is node and self.settings.heavy is not DataType.F32:
                self._wide.add(node)
                self.refuse(node.name, f"oneDNN has no code for it in {self.settings.heavy.name}")
                if lower(self, node):
                    return
        self._lower_with_numpy(node)

    def _lower_texts(self, node: Node) -> None:
        """Lower a node that makes numbers of texts."""
        inputs, outputs = [self.array_value(port) for port in node.inputs], []
        for port in node.outputs:
            assert port.shape is not None
            outputs.append(self.new_dense(port.shape.static, port.element_type.dtype))
            self.set(port, outputs[-1])
        self.emit(ArrayStep(node.name, node.type, starter(node.op), inputs, outputs))

    def _lower_with_numpy(self, node: Node) -> None:
        seen = as_channels_last(node, [self.value(port) for port in node.inputs])
        outputs, looks = [], []
        for port in node.outputs:
            assert port.shape is not None
            shape = port.shape.static if seen is None else seen.shape
            value = self.new_dense(shape, port.element_type.dtype)
            outputs.append(value)
            looks.append(value if seen is None else value.view(port.shape.static, seen.strides))
        inputs = [self.array_value(port) for port in node.inputs] if seen is None else seen.inputs
        write = writer(node.op)
        start = with_code(node.op, starter(node.op) if write is None else write)
        writes = write is not None
        draws = node.op.is_stateful
        self.emit(
            ArrayStep(node.name, node.type, start, inputs, outputs, writes=writes, draws=draws)
        )
        for port, value in zip(node.outputs, looks, strict=True):
            self.set(port, value)

    def _place_outputs(self) -> list[Value | None]:
        """Let results be computed in the outputs' own memory where they can be, else copy."""
        outputs: list[Value | None] = []
        for index, result in enumerate(self.network.results):
            port = result.inputs[0]
            if self.is_late(port):
                outputs.append(None)
                continue
            value = self.array_value(port)
            if not self._becomes_output(value, index):
                value = self._copy_to_output(value, index)
            outputs.append(value)
        return outputs

    @staticmethod
    def _becomes_output(value: Value, index: int) -> bool:
        storage = value.storage
        size_bytes = value.elements * value.dtype.itemsize
        if storage.kind is not Kind.ARENA or value.offset_bytes or storage.size_bytes != size_bytes:
            return False
        storage.kind, storage.index = Kind.OUTPUT, index
        return True

    def _copy_to_output(self, value: Value, index: int) -> Value:
        storage = Storage(Kind.OUTPUT, value.elements * value.dtype.itemsize, index=index)
        output = Value(storage, value.shape, value.dtype, row_major(value.shape))
        if value.in_reach:
            move = reorder(value.descriptor, output.descriptor, Attributes())
            assert move is not None
            arguments = {int(Arg.SRC): value, int(Arg.DST): output}
            self.emit(PrimitiveStep("", "Reorder", move, arguments, (Arg.DST,)))
        elif value.elements:
            self.emit(copying("", "Copy", value, output))
        return output


def _of_formulas(array: Array, dtype: np.dtype[Any]) -> Value:
    """A constant that was computed from symbolic sizes."""
    storage = Storage(Kind.CONSTANT, array.size * dtype.itemsize, array=array)
    return Value(storage, array.shape, dtype, row_major(array.shape))
