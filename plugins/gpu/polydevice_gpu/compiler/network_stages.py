"""What happens to a network of static shapes, or a body, before it is a graph."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from polydevice.dtype import ElementType
from polydevice.network import Network
from polydevice.node import Evaluate, Node
from polydevice.ops.quantize import FakeQuantize
from polydevice.ops.quantize_linear import DequantizeLinear, QuantizeLinear
from polydevice.passes.constant_folding import constant_folding
from polydevice.rewrites.control_flow import settle_loops as settle
from polydevice.rewrites.control_flow import unroll_loops as unroll
from polydevice_gpu.compiler.limits import check_elements
from polydevice_gpu.compiler.settings import CompileSettings
from polydevice_gpu.control_flow.nested import Nested
from polydevice_gpu.custom import operation
from polydevice_gpu.graph import GpuGraph
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.passes import lower as lowering
from polydevice_gpu.passes import nest_bodies as nesting
from polydevice_gpu.passes.body_network import Build

QUANTIZATION = (FakeQuantize, QuantizeLinear, DequantizeLinear)
"""Operations that make a network a quantised one."""


@dataclass
class Work:
    """A network on its way to a graph.

    Attributes:
        network: of static shapes; the stages change it.
        target: the device.
        evaluate: computes constants.
        settings: how to compile.
        build: makes the graph of a body, by the same stages.
        loose: outputs that may lie in any way.
        may_unroll: whether loops may become plain layers.
        unrolled: whether some did.
        nested: loops and Ifs that the device runs.
        graph: what it became.
    """

    network: Network
    target: Target
    evaluate: Evaluate
    settings: CompileSettings
    build: Build
    loose: AbstractSet[str] = frozenset()
    may_unroll: bool = True
    unrolled: bool = False
    nested: Mapping[Node, Nested] = field(default_factory=dict)
    graph: GpuGraph | None = None


def is_quantized(network: Network) -> bool:
    """Whether some layer rounds to a few levels, as in networks made for int8."""
    return any(isinstance(node.op, QUANTIZATION) for node in network.nodes())


def unroll_loops(work: Work) -> None:
    """Write loops of a known number of iterations out as plain layers."""
    if work.may_unroll:
        every = work.settings.loop_unrolling
        work.unrolled = unroll.unroll_loops(work.network, all_counts=every) > 0


def use_custom_layers(work: Work) -> None:
    """Let the user's kernels compute the operations of their types."""
    operation.use_custom_layers(work.network, work.settings.custom_layers)


def fold_constants(work: Work) -> None:
    """Compute what depends on constants alone.

    Raises:
        ModelLimitError: for a value with more elements than kernels can count.
    """
    check_elements(work.network)  # unrolling a loop may have made sizes known
    constant_folding(work.network, work.evaluate)


def settle_loops(work: Work) -> None:
    """Give values that loops carry the shapes that they keep."""
    if settle.settle_loops(work.network, work.evaluate):
        fold_constants(work)


def nest_bodies(work: Work) -> None:
    """Make graphs of the bodies that the device runs; the host has the other loops and Ifs."""
    work.nested = nesting.nest_bodies(work.network, work.evaluate, work.build)


def lower(work: Work) -> None:
    """Make the graph."""
    floats = work.settings.floats
    if work.settings.quantized_in_f32 and is_quantized(work.network):
        floats = ElementType.f32
    work.graph = lowering.lower(work.network, work.target, floats=floats, nested=work.nested)
    work.graph.loose = work.loose
