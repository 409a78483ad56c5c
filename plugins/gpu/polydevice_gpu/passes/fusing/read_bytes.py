"""read_bytes: pointwise operations compute what is made of bytes, or of single numbers, themselves.

A residual sum of a quantised network adds what DequantizeLinear makes of bytes that a convolution
reads, too. The sum's epilogue makes them itself: no launch, and a quarter of what is read. The
product of two scales of which one is found at run time takes no launch of its own either.
"""

from __future__ import annotations

from polydevice.dtype import ElementType
from polydevice.ops.arithmetic import Add, Divide, Maximum, Minimum, Multiply, Subtract
from polydevice.ops.convert import Convert
from polydevice.shape import stay_equal
from polydevice_gpu.graph import GpuGraph, GpuNode, Value
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.ops import Fragment, Fused, Step
from polydevice_gpu.passes.fusing.fuse_pointwise import has_room, without_repetition

MOST_STEPS = 4
"""Conversion, zero point, scale and one more: what is computed again by every reader is short."""

_BYTES = (ElementType.u8, ElementType.i8)
_OF_NUMBERS = (Add, Subtract, Multiply, Divide, Minimum, Maximum, Convert)
"""What takes no longer for a number that is computed again than to read it."""


def read_bytes(graph: GpuGraph, target: Target) -> None:
    """Let all readers that can compute floats of bytes do so; drop what nobody reads then."""
    del target  # all devices gain
    _store_bytes(graph)
    users = graph.users()
    for node in list(graph.nodes):
        is_number = _is_number(node)
        if not is_number and not _widens(node):
            continue
        value = node.output
        readers = list(dict.fromkeys(users.get(value, [])))
        able = [reader for reader in readers if _takes(reader, node)]
        if is_number and (value.is_output or able != readers):
            continue  # its launch would stay
        for reader in able:
            _inline(reader, node)
            for read in node.inputs:
                users.setdefault(read, []).append(reader)
        if able == readers and able and not value.is_output:
            graph.nodes.remove(node)
            able[0].origins += node.origins


def _store_bytes(graph: GpuGraph) -> None:
    """Leave making floats of bytes to the readers where it was fused into what makes the bytes."""
    users = graph.users()
    for node in list(graph.nodes):
        parted = _parted(node)
        if parted is None:
            continue
        kept, made = parted
        readers = users.get(made.output, [])
        if not readers or not all(_takes(reader, made) for reader in readers):
            made.output.producer = node
            continue
        own, extras = node.own_inputs, node.extra_inputs
        read = {a for step in kept.steps for a in step.arguments}
        numbers = [number for number in range(len(kept.inputs)) if number in read or not number]
        node.epilogue = _renumbered(kept, numbers)
        node.inputs = [*own, *(extras[number - 1] for number in numbers[1:])]
        node.outputs = [made.inputs[0]]
        made.inputs[0].producer = node
        graph.nodes.insert(graph.nodes.index(node) + 1, made)


def _parted(node: GpuNode) -> tuple[Fragment, GpuNode] | None:
    """Part an epilogue into what makes bytes, and a node that makes floats of them and numbers."""
    epilogue = node.epilogue
    if epilogue is None or node.output.is_output or not node.output.storage.is_float:
        return None
    first = len(epilogue.inputs)
    bytes_ = [i for i, step in enumerate(epilogue.steps) if step.element_type in _BYTES]
    if not bytes_ or not 0 < len(epilogue.steps) - 1 - bytes_[-1] <= MOST_STEPS:
        return None
    kept, rest = epilogue.steps[: bytes_[-1] + 1], epilogue.steps[bytes_[-1] + 1 :]
    byte = first + bytes_[-1]
    read = sorted({a for step in rest for a in step.arguments if a < byte})
    numbers = [node.extra_inputs[a - 1] for a in read if 0 < a < first]
    if len(numbers) < len(read) or any(v.constant is None or v.elements != 1 for v in numbers):
        return None
    whole = Fragment((*epilogue.inputs, *(s.element_type for s in kept)), rest)
    stored = Value(f"{node.output.name}/bytes", kept[-1].element_type, node.output.shape)
    op = Fused(_renumbered(whole, [byte, *read]))
    made = GpuNode(f"{node.name}/floats", op, [stored, *numbers], [node.output])
    return Fragment(epilogue.inputs, kept), made


def _renumbered(fragment: Fragment, inputs: list[int]) -> Fragment:
    """Return a fragment that has these of its inputs alone, in this order."""
    numbers = {number: place for place, number in enumerate(inputs)}
    before = len(fragment.inputs)
    numbers.update({before + i: len(inputs) + i for i in range(len(fragment.steps))})
    steps = [
        Step(step.op, tuple(numbers[a] for a in step.arguments), step.element_type)
        for step in fragment.steps
    ]
    return Fragment(tuple(fragment.inputs[number] for number in inputs), tuple(steps))


def _widens(node: GpuNode) -> bool:
    """Whether a node computes floats of the bytes of one value and of single numbers."""
    if not isinstance(node.op, Fused) or len(node.op.fragment.steps) > MOST_STEPS:
        return False
    values = [v for v in node.inputs if v.constant is None or v.elements != 1]
    if len(values) != 1 or not node.output.storage.is_float or not node.op.fragment.steps:
        return False
    return values[0].storage in _BYTES and values[0].shape == node.output.shape


def _is_number(node: GpuNode) -> bool:
    """Whether a node computes one number of such, in few steps."""
    if not isinstance(node.op, Fused) or not 0 < len(node.op.fragment.steps) <= MOST_STEPS:
        return False
    simple = all(isinstance(step.op, _OF_NUMBERS) for step in node.op.fragment.steps)
    return simple and all(stay_equal(v.elements, 1) for v in (node.output, *node.inputs))


def _takes(reader: GpuNode, node: GpuNode) -> bool:
    """Whether a node reads another's result in pointwise operations alone."""
    value = node.output
    if reader.is_opaque or not has_room(reader, node):
        return False
    if isinstance(reader.op, Fused):
        return value.border is None
    return value not in reader.own_inputs and value in reader.extra_inputs


def _inline(reader: GpuNode, node: GpuNode) -> None:
    fragment = node.operation(Fused).fragment
    if isinstance(reader.op, Fused):
        inputs, positions = _behind(reader.inputs, node)
        made = reader.op.fragment.reading(fragment, positions)
        reader.op = Fused(without_repetition(made, inputs, 0))
        reader.inputs = inputs
        return
    epilogue = reader.epilogue
    assert epilogue is not None
    own, (extras, positions) = reader.own_inputs, _behind(reader.extra_inputs, node)
    made = epilogue.reading(fragment, [1 + position for position in positions])
    reader.epilogue = without_repetition(made, extras, 1)
    reader.inputs = [*own, *extras]


def _behind(inputs: list[Value], node: GpuNode) -> tuple[list[Value], list[int]]:
    """Return inputs with those of a node instead of its result, and where that was."""
    positions = [number for number, value in enumerate(inputs) if value is node.output]
    kept = [value for value in inputs if value is not node.output]
    return [*kept, *node.inputs], positions
