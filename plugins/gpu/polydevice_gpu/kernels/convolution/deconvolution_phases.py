"""Transposed convolution as ordinary ones: one product for each remainder of the strides.

Elements of the result whose positions leave the same remainder when divided by the stride are
reached by the same positions of the window, and form an ordinary convolution of stride 1 with them.
Each such phase is a launch of a convolution kernel that writes every STRIDE-th element.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator

import numpy as np

from polydevice.dataclass import dataclass
from polydevice.dtype import Array
from polydevice.ops.convolution import Convolution, ConvolutionBackpropData
from polydevice.symbolic_trace import chosen
from polydevice_gpu.graph import GpuNode, Value
from polydevice_gpu.kernels.gemm.gemm import ConvolutionProduct
from polydevice_gpu.kernels.gemm.gemm_mma import ConvolutionMma
from polydevice_gpu.kernels.gemm.gemm_tiled import ConvolutionTiled
from polydevice_gpu.kernels.kernel import Kernel, Mode
from polydevice_gpu.kernels.launch import Launch
from polydevice_gpu.kernels.reason import VARIABLE_WEIGHTS, unless
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.layout import Layout, channels_last, sliced

PHASE_LIMIT = 16
"""Most launches: products of a few elements each are not worth theirs."""

_ENGINES = (ConvolutionMma(), ConvolutionTiled())


@dataclass(frozen=True)
class Phase:
    """One remainder along one axis.

    Attributes:
        start: first element of the result.
        count: how many elements it has, a stride apart.
        taps: positions of the window that reach them, in the order of the inputs that they read.
        dilation: distance between those inputs.
        shift: position of the first input that the first element reads; may be negative.
    """

    start: int
    count: int
    taps: tuple[int, ...]
    dilation: int
    shift: int


def phases_of_axis(
    kernel: int, stride: int, dilation: int, crop: int, sizes: tuple[int, int]
) -> list[Phase]:
    """Return the phases along one axis that have elements; `sizes` of input and result."""
    size, out = sizes
    found = []
    for remainder in range(stride):
        start = (remainder - crop) % stride
        count = -(-(out - start) // stride)
        if count <= 0:
            continue
        taps = [k for k in range(kernel) if k * dilation % stride == remainder]
        apart = dilation // math.gcd(stride, dilation)
        shift = (start + crop - taps[-1] * dilation) // stride if taps else 0
        if shift >= size:
            taps, shift = [], 0  # only beyond the input
        found.append(Phase(start, count, tuple(reversed(taps)), apart, shift))
    return found


def _axes(node: GpuNode) -> list[list[Phase]]:
    op, x, w = node.operation(ConvolutionBackpropData), node.inputs[0], node.inputs[1]
    window = op.window(w.shape)
    crops = op.crops(x.shape[2:], window, node.output.shape[2:])
    return [
        phases_of_axis(kernel, stride, dilation, crop, sizes)
        for kernel, stride, dilation, crop, *sizes_ in zip(
            w.shape[2:], window.strides, window.dilations, crops,
            x.shape[2:], node.output.shape[2:], strict=True,
        )
        for sizes in [(sizes_[0], sizes_[1])]
    ]  # fmt: skip


def _part(value: Value, starts: list[int], counts: list[int], steps: list[int]) -> Value:
    """Return every step-th element of a value as a value in the same memory."""
    part = Value(value.name, value.element_type, counts, storage=value.storage)
    part.layout = sliced(value.placed, starts, steps)
    part.memory, part.constant = value.memory, value.constant
    return part


def _convolution(node: GpuNode, phases: tuple[Phase, ...], weights: Array) -> GpuNode:
    """Return the ordinary convolution that computes one phase."""
    x, out = node.inputs[0], node.output
    op = node.operation(ConvolutionBackpropData)
    strides = list(op.window(node.inputs[1].shape).strides)
    starts = [0, 0, *(phase.start for phase in phases)]
    counts = [*out.shape[:2], *(phase.count for phase in phases)]
    result = _part(out, starts, counts, [1, 1, *strides])
    result.constant = None
    before = [0, 0, *(max(phase.shift, 0) for phase in phases)]
    if any(before):
        rest = [size - skipped for size, skipped in zip(x.shape, before, strict=True)]
        x = _part(x, before, rest, [1] * x.rank)
    plain = Convolution(
        strides=(1,) * len(phases),
        dilations=tuple(phase.dilation for phase in phases),
        pads_begin=tuple(max(-phase.shift, 0) for phase in phases),
        pads_end=(0,) * len(phases),
    )
    kernel = Value(f"{node.name}/phase", node.inputs[1].element_type, weights.shape,
                   storage=node.inputs[1].storage, constant=weights)  # fmt: skip
    extras = [_matching(extra, starts, counts, strides) for extra in node.extra_inputs]
    made = GpuNode(node.name, plain, [x, kernel, *extras], [result])
    made.epilogue, made.result_type = node.epilogue, node.result_type
    return made


def _matching(extra: Value, starts: list[int], counts: list[int], strides: list[int]) -> Value:
    """Return the part of an epilogue's input that meets a phase; it may repeat along axes."""
    missing = len(counts) - extra.rank
    steps = [1, 1, *strides]
    repeats = [size == 1 for size in extra.shape]
    if all(repeat or step == 1 for repeat, step in zip(repeats, steps[missing:], strict=True)):
        return extra
    picked = [
        (0, 1, 1) if repeat else (start, count, step)
        for repeat, start, count, step in zip(
            repeats, starts[missing:], counts[missing:], steps[missing:], strict=True
        )
    ]
    columns = [list(column) for column in zip(*picked, strict=True)]
    return _part(extra, *columns)


class DeconvolutionPhases(Kernel):
    """Products on matrix units or through local memory, one for each phase."""

    source = "gemm/gemm_tiled.cl"

    def refuses(self, node: GpuNode, target: Target) -> str:
        """A product kernel takes the phases; there are few of them."""
        op, w = node.operation(ConvolutionBackpropData), node.inputs[1]
        refused = unless(
            (not op.grouped, "it has groups"),
            (w.constant is not None, VARIABLE_WEIGHTS),
            (
                math.prod(op.strides) <= PHASE_LIMIT,
                f"it has more than {PHASE_LIMIT} phases",
            ),
        )
        if refused:
            return refused
        # What lies among the weights has no offset that a part of it could begin at.
        varied = any(
            e.constant is not None and any(n > 1 for n in e.shape[-(node.output.rank - 2) :])
            for e in node.extra_inputs
        )
        bordered = any(e.border is not None for e in node.extra_inputs)
        return unless(
            (not varied, "a constant of its epilogue differs from pixel to pixel"),
            (not bordered, "an operand of its epilogue has a border"),
            (self._engine(node, target) is not None, "no product kernel takes its phases"),
        )

    def _probe(self, node: GpuNode) -> GpuNode:
        """Return a convolution like those of the phases, for asking whether a kernel takes it."""
        phases = tuple(axis[0] for axis in _axes(node))
        sizes = [max(len(phase.taps), 1) for phase in phases]
        inputs, outputs = node.inputs[1].shape[:2]
        probe = _convolution(
            node, phases, np.broadcast_to(np.float32(0), (outputs, inputs, *sizes))
        )
        probe.inputs[0] = node.inputs[0]
        return probe

    def _engine(self, node: GpuNode, target: Target) -> ConvolutionProduct | None:
        probe = self._probe(node)
        found = (engine for engine in _ENGINES if not engine.refuses(probe, target))
        return next(found, None)

    def input_layouts(self, node: GpuNode, target: Target) -> dict[int, Layout]:
        """As the product wants its pixels."""
        engine = self._engine(node, target)
        assert engine is not None
        return engine.input_layouts(self._probe(node), target)

    def accepts_layout(self, node: GpuNode, index: int, layout: Layout, target: Target) -> bool:
        """As the product."""
        engine = self._engine(node, target)
        assert engine is not None
        return engine.accepts_layout(self._probe(node), index, layout, target)

    def output_layouts(self, node: GpuNode, target: Target) -> list[Layout]:
        """Channels side by side."""
        return [channels_last(node.output.shape)]

    def launches(self, node: GpuNode, mode: Mode, target: Target) -> list[Launch]:
        """Return the products of all phases, each in the mode that suits its size."""
        engine = self._engine(node, target)
        assert engine is not None
        found = []
        for each in self._phases(node):
            number = chosen(functools.partial(engine.default_mode, each, target))
            found += engine.launches(each, engine.modes[number], target)
        return found

    def _phases(self, node: GpuNode) -> Iterator[GpuNode]:
        weights = np.asarray(node.inputs[1].constant).swapaxes(0, 1)
        for phases in itertools.product(*_axes(node)):
            taps = [phase.taps for phase in phases]
            if all(taps):
                chosen = weights[np.ix_(*map(range, weights.shape[:2]), *taps)]
            else:  # nothing reaches these elements: they are the epilogue of 0
                chosen = np.zeros((*weights.shape[:2], *[1] * len(taps)), weights.dtype)
                phases = tuple(Phase(p.start, p.count, (0,), 1, 0) for p in phases)
            yield _convolution(node, phases, np.ascontiguousarray(chosen))
