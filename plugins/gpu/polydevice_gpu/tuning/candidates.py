"""candidates: the ways in which a node of a finished graph may be computed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator

from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.kernel import Choice, Kernel, Mode, kernels_of
from polydevice_gpu.kernels.launch import Launch
from polydevice_gpu.kernels.target import Target


def candidates(node: GpuNode, target: Target) -> list[Choice]:
    """Return the node's own choice, then every other that leaves the layouts as they are.

    Modes that come to the same launches for this node count once.
    """
    return list(_distinct(node, target))


def has_several(node: GpuNode, target: Target) -> bool:
    """Whether there is more than one candidate; looks no further than the second.

    All 87 of a convolution take 20 ms to write, which a network that is tuned already would wait
    for at every load.
    """
    return len(list(itertools.islice(_distinct(node, target), 2))) == 2


def _distinct(node: GpuNode, target: Target) -> Iterator[Choice]:
    assert node.choice is not None
    found = {_compared(node.choice, node, target)}
    yield node.choice
    for kernel in kernels_of(type(node.op)):
        for choice in _of_kernel(kernel, node, target):
            launches = _compared(choice, node, target)
            if launches not in found:
                found.add(launches)
                yield choice


def _of_kernel(kernel: Kernel, node: GpuNode, target: Target) -> list[Choice]:
    """Return the choices by one kernel that leave the layouts as they are."""
    choices = [Choice(kernel, number) for number in range(len(kernel.modes))]
    fits = _fits(kernel, node, target)
    return [each for each in choices if fits and _supports(each, node, target)]


def takes(node: GpuNode, choice: Choice, target: Target) -> bool:
    """Whether a node can be computed so, with all layouts unchanged."""
    return _fits(choice.kernel, node, target) and _supports(choice, node, target)


def _supports(choice: Choice, node: GpuNode, target: Target) -> bool:
    return choice.kernel.mode_supports(node, choice.kernel.modes[choice.mode], target)


def launches_of(choice: Choice, node: GpuNode, target: Target) -> list[Launch]:
    """Return the launches by which a choice computes a node."""
    launches = choice.kernel.launches(node, choice.kernel.modes[choice.mode], target)
    for launch in launches:
        launch.settle()
    return launches


def _compared(choice: Choice, node: GpuNode, target: Target) -> object:
    """Return what the launches of a choice are, but for their arguments."""
    launches = launches_of(choice, node, target)
    return tuple((x.text, x.global_size, x.local_size, x.options) for x in launches)


def built_choice(
    node: GpuNode,
    target: Target,
    is_built: Callable[[Launch], bool],
    likely: Collection[Choice] = (),
) -> Choice | None:
    """Return a choice whose programs are built already; None without one.

    Modes of the node's own kernel come first, those like its own before others.

    Args:
        node: of a finished graph.
        target: the device.
        is_built: whether the program of a launch is there.
        likely: choices that are looked at before all others, of which there may be a hundred,
            each with a text to be written.
    """
    own = node.choice
    assert own is not None
    for choice in sorted(likely, key=lambda each: _unlike(own, each)):
        fits = choice.kernel in kernels_of(type(node.op)) and takes(node, choice, target)
        if fits and all(map(is_built, launches_of(choice, node, target))):
            return choice
    others = [kernel for kernel in kernels_of(type(node.op)) if kernel is not own.kernel]
    for kernel in (own.kernel, *others):
        choices = _of_kernel(kernel, node, target)
        if kernel is own.kernel:
            mode = kernel.modes[own.mode]
            choices.sort(key=lambda each: _distance(mode, each.kernel.modes[each.mode]))
        for choice in choices:
            if all(map(is_built, launches_of(choice, node, target))):
                return choice
    return None


def _unlike(one: Choice, other: Choice) -> float:
    """How unlike another choice is: one of another kernel more than any mode of its own."""
    if one.kernel is not other.kernel:
        return math.inf
    return _distance(one.kernel.modes[one.mode], other.kernel.modes[other.mode])


def _distance(one: Mode, other: Mode) -> float:
    """How unlike two modes of a kernel are: by how many doublings, over all macros."""
    return sum(abs(math.log2((1 + one[name]) / (1 + other[name]))) for name in one)


def reference(node: GpuNode, target: Target) -> Choice:
    """Return the kernel that the others are compared with: the last, which takes everything."""
    kernel = kernels_of(type(node.op))[-1]
    return Choice(kernel, kernel.default_mode(node, target))


def find_choice(node: GpuNode, name: str, mode: int, target: Target) -> Choice | None:
    """Return the choice that a tuning file names; None when it cannot run the node."""
    for kernel in kernels_of(type(node.op)):
        if kernel.name != name or not _fits(kernel, node, target):
            continue
        number = kernel.default_mode(node, target) if mode == -1 else mode
        if 0 <= number < len(kernel.modes) and kernel.mode_supports(
            node, kernel.modes[number], target
        ):
            return Choice(kernel, number)
    return None


def _fits(kernel: Kernel, node: GpuNode, target: Target) -> bool:
    """Whether a kernel can take the place of the node's own, with all layouts unchanged."""
    if kernel.refuses(node, target) or (node.epilogue is not None and not kernel.fuses(node)):
        return False
    if not _knows_tiles(kernel, node) or not all(
        kernel.accepts_layout(node, index, value.placed, target)
        for index, value in enumerate(node.inputs)
    ):
        return False
    assert node.choice is not None
    # The last kernel writes any layout, and so does the node's own.
    return kernel in (node.choice.kernel, kernels_of(type(node.op))[-1]) or all(
        layout.same_as(value.placed, value.shape)
        for layout, value in zip(kernel.output_layouts(node, target), node.outputs, strict=True)
    )


def _knows_tiles(kernel: Kernel, node: GpuNode) -> bool:
    """Whether a kernel takes rows in tiles where the node's first input or result lies so."""
    ways = ((node.inputs, kernel.reads_tiles), (node.outputs, kernel.writes_tiles))
    return all(
        knows or not values or values[0].memory is None or not values[0].memory.row_tiles
        for values, knows in ways
    )
