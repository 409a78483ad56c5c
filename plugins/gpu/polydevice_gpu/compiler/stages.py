"""The stages of compiling a network for a GPU, in the order in which they run.

A network is prepared once, when it is loaded. For each set of input shapes it then gets those
sizes, becomes a graph, and the graph becomes a plan. Bodies of loops and Ifs that the device runs
become graphs by the same stages while the network around them does, and plans with the one around.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet

from polydevice.errors import UnsupportedNetworkError
from polydevice.network import Network
from polydevice.node import Evaluate
from polydevice.runtime.plan_cache import Shapes
from polydevice_gpu.compiler import network_stages, plan_stages, preparation, shape_stages
from polydevice_gpu.compiler.network_stages import Work
from polydevice_gpu.compiler.plan_stages import PlanWork
from polydevice_gpu.compiler.preparation import Prepared
from polydevice_gpu.compiler.settings import CompileSettings
from polydevice_gpu.graph import GpuGraph
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.passes.drop_conversions import drop_conversions
from polydevice_gpu.passes.drop_unused import drop_unused
from polydevice_gpu.passes.fusing.fuse_frame import fuse_frame
from polydevice_gpu.passes.fusing.fuse_normalization import fuse_normalization
from polydevice_gpu.passes.fusing.fuse_pad import fuse_pad
from polydevice_gpu.passes.fusing.fuse_pointwise import fuse_neighbours, fuse_pointwise
from polydevice_gpu.passes.fusing.fuse_rows import fuse_rows
from polydevice_gpu.passes.fusing.measure_rows import measure_rows
from polydevice_gpu.passes.fusing.read_bytes import read_bytes
from polydevice_gpu.passes.fusing.read_floats import read_floats
from polydevice_gpu.passes.fusing.requantise import requantise
from polydevice_gpu.passes.group_convolutions import group_convolutions
from polydevice_gpu.passes.group_products import group_products
from polydevice_gpu.passes.placing.concat_in_place import concat_in_place
from polydevice_gpu.passes.read_borders import read_borders
from polydevice_gpu.passes.select_kernels import select_kernels
from polydevice_gpu.passes.shorten_views import shorten_views
from polydevice_gpu.passes.slice_early import slice_early

Pass = Callable[[GpuGraph, Target], None]

PREPARE: tuple[Callable[[Prepared], None], ...] = (
    preparation.split_nv12_inputs,  # first: it changes what the network's inputs are
    preparation.find_batch,  # DYN_BATCH_ENABLED is refused before anything is compiled
    preparation.find_variables,
    preparation.find_size_inputs,  # before folding, which depends on whether sizes vary
    preparation.find_parts,
    preparation.fold_ahead,  # what no shape changes is computed and uploaded once
    preparation.prepare_templates,  # last: when it is known what requests carry
)
"""Once, when a network is loaded."""

SPECIALISE: tuple[Callable[[Prepared, Network, Shapes], None], ...] = (
    shape_stages.use_variables,  # before shapes: they become inputs, which have some
    shape_stages.use_size_inputs,  # likewise
    shape_stages.use_shapes,
    shape_stages.settle_matrices,  # when rows are counted
    shape_stages.check_memory,  # before anything that would need the memory
)
"""For each set of shapes of a whole network; bodies have theirs."""

NETWORK: tuple[Callable[[Work], None], ...] = (
    network_stages.rewrite,  # control flow, custom layers, constants, what no kernel takes whole
    network_stages.nest_bodies,  # when it is known which loops are left
    network_stages.lower,  # last: a GpuGraph from here on
)
"""Then, for it and for each body."""

GRAPH: tuple[Pass, ...] = (
    drop_unused,  # first: fewer readers and results for all that follows
    drop_conversions,  # before layers are looked at for what they read
    slice_early,  # before layers join, while each can be cut by itself
    shorten_views,  # before anything looks at what lies between two layers
    fuse_frame,  # before what comes behind joins the resizing
    fuse_pad,  # before kernels are chosen: a convolution pads for nothing
    read_borders,  # before a Pad takes over what the layer beside it could
    fuse_neighbours,  # biases and activations, which then go along with what is grouped
    group_convolutions,  # while what follows the concatenation is still behind it
    group_products,  # likewise, with their biases
    fuse_pointwise,  # so that kernels are chosen knowing their epilogue
    fuse_normalization,  # when scales and shifts have joined normalisations
    measure_rows,  # when it is known who normalises
    read_bytes,  # when nothing else may join what makes floats of bytes
    read_floats,  # when what makes the bytes of an image is whole
    requantise,  # when epilogues are whole
    fuse_rows,  # when it is known what is rounded how
    select_kernels,  # layouts, views and kernels depend on one another
    concat_in_place,  # last: needs to know who reads and writes what, and in which layout
)
"""Then, on the graph."""

PLAN: tuple[Callable[[PlanWork], None], ...] = (
    plan_stages.tune,  # before launches are made of the choices
    plan_stages.tile_rows,  # when nobody else is chosen any more
    plan_stages.make_steps,  # launches; bodies become plans, and what the host computes is loaded
    plan_stages.share_functions,  # when launches are written, and before any is built
    plan_stages.begin_loading,  # when launches are written, and before uploads take their time
    plan_stages.begin_uploads,  # when it is known in which form; all that follows goes on meanwhile
    plan_stages.build_kernels,
    plan_stages.plan_memory,  # when it is known which scratch memory the launches take
    plan_stages.join_launches,  # when it is known which of them wait for which
    plan_stages.await_uploads,  # last: not when the first request is made
)
"""Then, for the device."""


def build_graph(
    network: Network,
    target: Target,
    evaluate: Evaluate,
    settings: CompileSettings,
    loose: AbstractSet[str] = frozenset(),
) -> GpuGraph:
    """Run every stage up to the finished graph; the network is changed.

    Args:
        network: of static shapes: of a body, or a whole one.
        target: the device.
        evaluate: computes constants.
        settings: how to compile.
        loose: outputs that may lie in any way.

    Raises:
        UnsupportedNetworkError: listing every node that no kernel takes.
        ModelLimitError: for a value with more elements than kernels can count.
    """

    def build(body: Network, loose: AbstractSet[str]) -> GpuGraph:
        return build_graph(body, target, evaluate, settings, loose)

    # What cannot be unrolled is not compiled a second time, so that no copy is needed.
    has_bodies = any(node.op.has_bodies for node in network.nodes())
    first = network.clone() if has_bodies else network
    work = Work(first, target, evaluate, settings, build, loose)
    try:
        return _run(work)
    except UnsupportedNetworkError:
        if not work.unrolled:
            raise
        # No kernel takes something in a loop, but the host computes loops.
    return _run(Work(network, target, evaluate, settings, build, loose, may_unroll=False))


def _run(work: Work) -> GpuGraph:
    for stage in NETWORK:
        stage(work)
    graph = work.graph
    assert graph is not None
    observe = work.settings.dumps.graph
    observe(0, "lower", graph)
    for number, each in enumerate(GRAPH, 1):
        each(graph, work.target)
        observe(number, each.__name__, graph)
    return graph
