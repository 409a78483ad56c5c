"""The passes that turn a network into a plan, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable

from polydevice_gpu.graph import GpuGraph
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.passes.concat_in_place import concat_in_place
from polydevice_gpu.passes.drop_unused import drop_unused
from polydevice_gpu.passes.fuse_attention import fuse_attention
from polydevice_gpu.passes.fuse_frame import fuse_frame
from polydevice_gpu.passes.fuse_normalization import fuse_normalization
from polydevice_gpu.passes.fuse_pad import fuse_pad
from polydevice_gpu.passes.fuse_pointwise import fuse_neighbours, fuse_pointwise
from polydevice_gpu.passes.group_convolutions import group_convolutions
from polydevice_gpu.passes.group_products import group_products
from polydevice_gpu.passes.read_borders import read_borders
from polydevice_gpu.passes.select_kernels import select_kernels
from polydevice_gpu.passes.shorten_views import shorten_views

Pass = Callable[[GpuGraph, Target], None]

PIPELINE: tuple[Pass, ...] = (
    drop_unused,  # first: fewer readers and results for all that follows
    shorten_views,  # before anything looks at what lies between two layers
    fuse_normalization,  # while every step is a node of its own
    fuse_attention,  # before its scales, masks and casts join the products
    fuse_frame,  # before what comes behind joins the resizing
    fuse_pad,  # before kernels are chosen: a convolution pads for nothing
    read_borders,  # before a Pad takes over what the layer beside it could
    fuse_neighbours,  # biases and activations, which then go along with what is grouped
    group_convolutions,  # while what follows the concatenation is still behind it
    group_products,  # likewise, with their biases
    fuse_pointwise,  # so that kernels are chosen knowing their epilogue
    select_kernels,  # layouts, views and kernels depend on one another
    concat_in_place,  # last: needs to know who reads and writes what, and in which layout
)


def run_passes(
    graph: GpuGraph, target: Target, observe: Callable[[int, str, GpuGraph], None]
) -> None:
    """Run the pipeline on a lowered graph.

    Args:
        graph: changed in place.
        target: the device.
        observe: called with number, name and graph after lowering and after each pass.
    """
    observe(0, "lower", graph)
    for number, each in enumerate(PIPELINE, 1):
        each(graph, target)
        observe(number, each.__name__, graph)
