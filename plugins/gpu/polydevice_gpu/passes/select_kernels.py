"""select_kernels: decide for every node where its result lies and which kernel computes it.

One walk in execution order, because the two belong together: a kernel looks at the layout its
inputs already have, may ask for another one (a reorder is inserted once and shared), and says how
its result lies. Views get their layout from their input and no kernel.
"""

from __future__ import annotations

from collections.abc import Mapping

from polydevice.dtype import ElementType
from polydevice.errors import UnsupportedNetworkError
from polydevice.shape import happen_to_be_equal
from polydevice.symbolic_size import written
from polydevice.symbolic_trace import Asked, current_trace
from polydevice_gpu import views
from polydevice_gpu.graph import GpuGraph, GpuNode, Memory, Place, Value
from polydevice_gpu.kernels.kernel import Choice, Kernel, kernels_of
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.layout import Layout, planar
from polydevice_gpu.ops import Fragment, Fused
from polydevice_gpu.passes.placing.flatten_in_order import flatten_in_order

Reorders = dict[tuple[Value, ElementType], list[Value]]
"""Copies that were inserted, by what was copied and in which type."""


def select_kernels(graph: GpuGraph, target: Target) -> None:
    """Give every node a kernel and every value a place.

    Raises:
        UnsupportedNetworkError: when no kernel takes a node, naming all of them.
    """
    reorders: Reorders = {}
    unsupported = []
    for value in graph.inputs.values():
        if not value.on_host:
            own_memory(value)
    for node in list(graph.nodes):
        if node.is_opaque:
            _prepare_opaque(graph, node, target)
            continue
        if views.is_view(node):
            make_view(graph, node, reorders)
            continue
        for value in node.inputs:
            place_constant(value)
        kernel, passed = choose_kernel(node, target)
        if kernel is None:
            unsupported.append(f"{node.name}: {refusal(node, passed)}")
            for value in node.outputs:  # those who read it are looked at too
                own_memory(value)
            continue
        _insert_reorders(graph, node, kernel, target, reorders)
        for value in node.outputs:
            own_memory(value)
        for value, layout in zip(node.outputs, kernel.output_layouts(node, target), strict=True):
            wanted = value.is_output and not kernel.fixes_layout
            value.layout = planar(value.shape) if wanted else layout
        node.choice = Choice(kernel, _mode(kernel, node, target), passed=passed)
    if unsupported:
        raise UnsupportedNetworkError("; ".join(unsupported))
    _copy_outputs(graph, target)


def _yields(kernel: Kernel, node: GpuNode, target: Target) -> str:
    """Say why a later kernel is expected to be faster, with symbolic sizes too."""
    trace = current_trace()
    if trace is None:
        return kernel.yields(node, target)
    with trace.choice() as number:
        reason = kernel.yields(node, target)

    def other(filled: GpuNode) -> str:
        differs = bool(kernel.yields(filled, target)) != bool(reason)
        return kernel.name if differs else ""

    for each in number:  # who was to come first and who comes later both take the node
        trace.ask(each, Asked(other, lambda _: True, node))
    return written(reason, lambda _: "so many")  # which are not for anything outside


def _mode(kernel: Kernel, node: GpuNode, target: Target) -> int:
    """Return the mode that is expected to be fastest, with symbolic sizes too."""
    trace = current_trace()
    if trace is None:
        return kernel.default_mode(node, target)
    with trace.choice() as number:
        mode = kernel.default_mode(node, target)
        if trace.is_general and (general := kernel.general_mode(mode)) != mode and trace.depends():
            trace.forgo()
            mode = general

    def other(filled: GpuNode) -> str:
        chosen = Choice(kernel, kernel.default_mode(filled, target))
        return "" if chosen.mode == mode else str(chosen)

    def is_possible(filled: GpuNode) -> bool:
        return kernel.mode_supports(filled, kernel.modes[mode], target)

    for each in number:
        trace.ask(each, Asked(other, is_possible, node))
    return mode


def own_memory(value: Value) -> None:
    """Give a value memory of its own, planar."""
    value.layout = planar(value.shape)
    value.memory = Memory(Place.ARENA, max(value.elements, 1), value.storage, name=value.name)


def place_constant(value: Value) -> None:
    """Let a constant live among the weights, planar."""
    if value.memory is None and value.constant is not None:
        value.layout = planar(value.shape)
        value.memory = Memory(
            Place.WEIGHTS, max(value.elements, 1), value.storage, value.constant, value.name
        )


def choose_kernel(node: GpuNode, target: Target) -> tuple[Kernel | None, dict[str, str]]:
    """Return the first kernel that takes a node, or None; and why those before it were not taken.

    Layouts of the inputs are known, and constants have their places.
    """
    passed: dict[str, str] = {}
    for kernel in kernels_of(type(node.op)):
        reason = kernel.refuses(node, target) or _yields(kernel, node, target)
        if not reason:
            return kernel, passed
        passed[kernel.name] = reason
    return None, passed


def refusal(node: GpuNode, passed: Mapping[str, str]) -> str:
    """Say why no kernel takes a node: what the last one says, which takes the most."""
    types = ", ".join(str(value.element_type) for value in node.inputs)
    last = list(passed.values())[-1:]
    return f"no GPU kernel for {node.op.type} ({types})" + "".join(f": {each}" for each in last)


def _insert_reorders(
    graph: GpuGraph,
    node: GpuNode,
    kernel: Kernel,
    target: Target,
    reorders: Reorders,
) -> None:
    layouts = kernel.input_layouts(node, target)
    types = kernel.input_storage(node, target)
    for index in sorted({*layouts, *types}):
        value = node.inputs[index]
        storage = types.get(index, value.storage)
        layout = layouts.get(index, value.placed)
        fits = index not in layouts or kernel.accepts_layout(node, index, value.placed, target)
        if fits and (
            storage is value.storage or _convert_before(graph, node, value, storage, target)
        ):
            continue
        node.inputs[index] = _copied(graph, node, value, layout, target, reorders, storage)


def _copied(
    graph: GpuGraph,
    node: GpuNode,
    value: Value,
    layout: Layout,
    target: Target,
    reorders: Reorders | None,
    storage: ElementType | None = None,
) -> Value:
    """Return a copy of a value for a node, one that was inserted already if there is any."""
    key = value, storage or value.storage
    copies = [] if reorders is None else reorders.setdefault(key, [])
    made = next((each for each in copies if each.placed.pitches == layout.pitches), None)
    if made is None:
        made = copy(graph, node, value, layout, target, storage)
        copies.append(made)
    return made


def _convert_before(
    graph: GpuGraph, node: GpuNode, value: Value, storage: ElementType, target: Target
) -> bool:
    """Let the copy that made a value for this node alone store it in another type, if one did.

    As of pictures that are cut into patches of float: ViT-B/16 in f16 has a launch less.
    """
    nodes = graph.nodes[: graph.nodes.index(node)]
    maker = next((each for each in nodes if _memory(each) is value.memory), None)
    if maker is None or not isinstance(maker.op, Fused) or maker.op.fragment.steps:
        return False
    seen = [each for each in nodes if each.is_view and _memory(each) is value.memory]
    values = [maker.output, *(view for each in seen for view in each.outputs)]
    readers = {reader for each in values for reader in graph.users().get(each, ())} - {*seen}
    if readers != {node} or any(each.is_output for each in values) or maker.epilogue is not None:
        return False
    assert value.memory is not None
    assert maker.choice is not None
    value.memory.storage = storage
    for each in values:
        each.storage = storage
    maker.choice = Choice(maker.choice.kernel, _mode(maker.choice.kernel, maker, target))
    return True


def _memory(node: GpuNode) -> Memory | None:
    return node.outputs[0].memory if node.outputs else None


def copy(
    graph: GpuGraph,
    before: GpuNode | None,
    value: Value,
    layout: Layout,
    target: Target,
    storage: ElementType | None = None,
) -> Value:
    """Insert a copy of a value into another layout or type; return the copied value.

    Args:
        graph: where to insert it.
        before: the node that needs the copy; None appends it.
        value: what to copy.
        layout: how the copy lies.
        target: the device.
        storage: the type in which the copy is stored; None for that of the value.
    """
    made = value.like(f"{value.name}/reorder")
    if storage is not None:
        made.storage = storage
    node = GpuNode(made.name, Fused(Fragment((value.storage,))), [value], [made])
    node.result_type = value.storage
    own_memory(made)
    made.layout = layout
    place_constant(value)
    (kernel,) = kernels_of(Fused)
    node.choice = Choice(kernel, _mode(kernel, node, target))
    if before is None:
        graph.nodes.append(node)
    else:
        graph.insert_before(before, node)
    return made


def make_view(graph: GpuGraph, node: GpuNode, reorders: Reorders | None = None) -> None:
    """Let a node's outputs look at its input's memory, copying the input first if that must be.

    Args:
        graph: of the node.
        node: what shows its input otherwise.
        reorders: copies that were inserted already, of which one may do.
    """
    place_constant(node.inputs[0])
    function = views.find_view(type(node.op))
    assert function is not None
    layouts = function(node)
    if layouts is None:
        turned = flatten_in_order(graph, node)
        if turned is not None:
            make_view(graph, turned)
            layouts = function(node)
    if layouts is None:
        x = node.inputs[0]
        node.inputs[0] = _copied(graph, node, x, planar(x.shape), Target(), reorders)
        layouts = function(node)
    assert layouts is not None, f"{node.name} cannot be a view even of a planar value"
    node.is_view = True
    for value, layout in zip(node.outputs, layouts, strict=True):
        # The same bytes: a view of an f32 input stays f32 where the network is stored as f16.
        value.storage = node.inputs[0].storage
        value.layout, value.memory = layout, node.inputs[0].memory


def _prepare_opaque(graph: GpuGraph, node: GpuNode, target: Target) -> None:
    """Let the host, or bodies, find their inputs dense and planar."""
    for index, value in enumerate(node.inputs):
        if node.nested is not None:
            place_constant(value)
        if value.on_host or value.constant is not None or is_whole(value):
            continue
        node.inputs[index] = copy(graph, node, value, planar(value.shape), target)
    for value in node.outputs:
        if not value.on_host:
            own_memory(value)


def is_whole(value: Value) -> bool:
    """Whether a value is planar and alone in its memory."""
    memory = value.memory
    assert memory is not None
    return (
        memory.place is Place.ARENA
        and happen_to_be_equal(memory.elements, max(value.elements, 1))
        and not value.placed.offset
        and value.placed.same_as(planar(value.shape), value.shape)
    )


def _copy_outputs(graph: GpuGraph, target: Target) -> None:
    """Give every output of the graph dense planar memory of its own."""
    taken: set[int] = {id(value.memory) for value in graph.inputs.values()}
    for name, value in graph.outputs.items():
        if value.on_host:
            continue
        place_constant(value)
        if name in graph.loose:
            continue
        narrowed = value.storage is ElementType.f16 and value.element_type is ElementType.f32
        if narrowed or id(value.memory) in taken or not is_whole(value):
            storage = value.element_type if narrowed else None
            value = copy(graph, None, value, planar(value.shape), target, storage)
            value.is_output = True
            graph.outputs[name] = value
        taken.add(id(value.memory))
