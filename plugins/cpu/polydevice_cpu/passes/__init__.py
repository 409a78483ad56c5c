"""Passes: what is done to a network once at load, whatever the shapes.

That is `polydevice.rewrites.ORDER`, with `BEFORE` where it asks the device, and `AFTER` it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from polydevice.dataclass import dataclass
from polydevice.network import Network
from polydevice.passes.constant_folding import constant_folding
from polydevice.rewrites import rewrite
from polydevice.rewrites.integers.written_out import put_together
from polydevice.rewrites.whole_products import whole_products
from polydevice_cpu.passes.convolution.fuse_pad import fuse_pad
from polydevice_cpu.passes.convolution.pack_filters import pack_filters
from polydevice_cpu.passes.flush_tiny import flush_tiny
from polydevice_cpu.passes.fold_scale import fold_scale
from polydevice_cpu.passes.fuse_normalization import fuse_layer_norm, fuse_scaled_norm
from polydevice_cpu.passes.integers.byte_functions import byte_functions
from polydevice_cpu.passes.integers.compressed import compress_products
from polydevice_cpu.passes.integers.compressed_recurrent import compress_recurrent
from polydevice_cpu.passes.integers.fold_steps import fold_steps
from polydevice_cpu.passes.integers.fuse_quantize import fuse_quantize
from polydevice_cpu.passes.integers.grids import rounded_functions
from polydevice_cpu.passes.integers.ranges import round_to_ranges
from polydevice_cpu.passes.merge_additions import merge_additions
from polydevice_cpu.passes.sink_squeeze import sink_squeeze
from polydevice_cpu.passes.sink_views import sink_views
from polydevice_cpu.passes.split_maxima import split_maxima
from polydevice_cpu.passes.widen_half import widen_half
from polydevice_cpu.passes.wishes import cpu_wishes


def _fold(network: Network) -> None:
    if network.evaluate is not None:
        constant_folding(network, network.evaluate)


Pass = Callable[[Network], None]

BEFORE: tuple[Pass, ...] = (
    _fold,  # weights stored as f16 or quantised become plain f32 constants
    fuse_pad,  # after folding, which computes how wide borders are
    widen_half,  # after folding, which has made f32 of most f16 weights
    byte_functions,  # whose roundings would become operations in f32
    round_to_ranges,
    fuse_quantize,
    whole_products,
)
"""What happens where `ORDER` lets a device prepare a network itself."""

AFTER: tuple[Pass, ...] = (
    fuse_layer_norm,  # of the MVN that was recognised
    fuse_scaled_norm,  # of the NormalizeL2 that was
    sink_squeeze,  # after activations are recognised: it moves what has one input and constants
    sink_views,
    flush_tiny,  # which would keep factors from being folded
    fold_scale,  # it takes factors of batch normalisations that were decomposed
    merge_additions,  # of what fold_scale leaves
    split_maxima,
    pack_filters,  # with the bias, from before a Squeeze
    rounded_functions,  # of what all others have left
)


@dataclass(frozen=True)
class UseOfIntegers:
    """What is computed on integers.

    Attributes:
        of_products: whether quantised products are.
        row_group: of how many terms at most rows are rounded to 8 bits together that meet matrices
            of 4 or 8 bits; 0 where the model alone says which.
    """

    of_products: bool = True
    row_group: int = 0


DEFAULT_USE = UseOfIntegers()


def prepare(network: Network, integers: UseOfIntegers = DEFAULT_USE) -> None:
    """Run all passes on a network, in place."""
    stays = integers.of_products
    before = partial(_prepare, row_group=integers.row_group) if stays else _widen
    rewrite(network, cpu_wishes(integers=stays, prepare=before))
    for pass_ in AFTER:
        pass_(network)
    if stays:
        fold_steps(network)  # once nothing asks any more what has been rounded to which steps


def _prepare(network: Network, *, row_group: int) -> None:
    compress_products(network, row_group)  # before folding, which would make floats of matrices
    compress_recurrent(network)
    _widen(network)


def _widen(network: Network) -> None:
    put_together(network)
    for pass_ in BEFORE:
        pass_(network)
