"""What happens to a network of static shapes, or a body, before it is a graph."""

from __future__ import annotations

import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import field

from polydevice import rewrites
from polydevice.dataclass import dataclass
from polydevice.dtype import ElementType
from polydevice.network import Network
from polydevice.node import Evaluate, Node
from polydevice.ops.quantize import FakeQuantize
from polydevice.ops.quantize_linear import DequantizeLinear, QuantizeLinear
from polydevice.rewrites import Unroll, always
from polydevice.rewrites.whole_products import whole_products
from polydevice_gpu.compiler.limits import check_elements
from polydevice_gpu.compiler.settings import CompileSettings
from polydevice_gpu.control_flow.nested import Nested
from polydevice_gpu.custom.operation import use_custom_layers
from polydevice_gpu.graph import GpuGraph
from polydevice_gpu.host_layers import LEAST_ELEMENTS, bodies_of, is_left_to_host
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.passes import lower as lowering
from polydevice_gpu.passes.nesting import nest_bodies as nesting
from polydevice_gpu.passes.nesting.body_network import Build
from polydevice_gpu.rewrites import gpu_wishes
from polydevice_gpu.rewrites.compressed import compress_products
from polydevice_gpu.rewrites.dynamic_quantize import floats_at_once, quantise_at_once
from polydevice_gpu.rewrites.floats_early import floats_early
from polydevice_gpu.rewrites.pad_early import pad_early
from polydevice_gpu.rewrites.rounded import round_products

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
        layers: name → type of the model's layers that are left when decomposing begins.
        parts: name → the layers for which it was put in.
        nested: loops and Ifs that the device runs.
        floats: the type in which f16 and f32 values are stored; None for each its own.
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
    layers: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    nested: Mapping[Node, Nested] = field(default_factory=dict)
    floats: ElementType | None = None
    graph: GpuGraph | None = None

    @property
    def leaves_bodies(self) -> bool:
        """Whether the host runs loops and Ifs that are no plain layers, so that plans serve others.

        On processors, which are the host's: 24 steps of two recurrent layers took 0.2 instead of
        3.3 ms (PoCL, November 2026).
        """
        settings, target = self.settings, self.target
        is_host = target.sizes_vary and not target.is_throughput
        return is_host and settings.loop_unrolling and not settings.on_users_queue

    def leaves(self, node: Node) -> bool:
        """Whether the host runs a loop that is to be plain layers where sizes are numbers."""
        most = math.inf if self.leaves_bodies else LEAST_ELEMENTS
        return self.settings.loop_unrolling and is_left_to_host(node, most)


def is_quantized(network: Network) -> bool:
    """Whether some layer, in bodies too, rounds to a few levels, as in networks made for int8."""
    return any(
        isinstance(node.op, QUANTIZATION) or any(map(is_quantized, bodies_of(node)))
        for node in network.nodes()
    )


def rewrite(work: Work) -> None:
    """Let core rewrite the network as this device wants it; `polydevice.rewrites` has the order.

    Raises:
        ModelLimitError: for a value with more elements than kernels can count.
    """

    def prepare(network: Network) -> None:
        use_custom_layers(network, work.settings.custom_layers)
        if work.settings.integers:
            # Before folding, which would make floats of matrices.
            compress_products(network, work.target)
            if not work.target.is_throughput:
                quantise_at_once(network, work.target)
            if work.target.byte_product:
                pad_early(network)
            if work.target.sums_byte_vectors and work.floats is not ElementType.f16:
                round_products(network)  # likewise
            if not work.target.is_throughput:
                floats_early(network)
        if work.floats is not ElementType.f16:
            whole_products(network)  # which kernels for i32 would compute number by number
        check_elements(network)  # unrolling a loop may have made sizes known

    def observe(stage: str, network: Network) -> None:
        if stage == "decompose":  # what becomes of these layers is reported
            work.layers = lowering.layers_of(network)
            work.parts = lowering.parts_of(network)

    exact = work.settings.quantized_in_f32 and is_quantized(work.network)
    work.floats = ElementType.f32 if exact else work.settings.floats
    unroll = Unroll.ALWAYS if work.settings.loop_unrolling else Unroll.ONCE
    wishes = gpu_wishes(
        work.target,
        floats=work.floats,
        integers=work.settings.integers and bool(work.target.byte_product),
        unroll=unroll if work.may_unroll else Unroll.NEVER,
        loops=lambda node: not work.leaves(node),
        prepare=prepare,
    )
    counts = rewrites.rewrite(work.network, wishes, work.evaluate, observe)
    work.unrolled = counts["unroll loops"] > 0
    if not work.target.is_throughput:
        floats_at_once(work.network)
    check_elements(work.network)


def nest_bodies(work: Work) -> None:
    """Make graphs of the bodies that the device runs; the host has the other loops and Ifs."""
    leaves = always if work.leaves_bodies else work.leaves
    work.nested = nesting.nest_bodies(work.network, work.evaluate, work.build, leaves)


def lower(work: Work) -> None:
    """Make the graph."""
    work.graph = lowering.lower(
        work.network,
        work.target,
        floats=work.floats,
        kept=work.settings.kept,
        nested=work.nested,
        layers=work.layers,
        parts=work.parts,
    )
    work.graph.loose = work.loose
    # Plans of parts of a batch are joined behind by what they hold, so that it serves both ways.
    work.graph.side_by_side = work.settings.side_by_side and not work.settings.dynamic_batch
