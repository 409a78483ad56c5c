"""Which convolutions, pools and products machine code for all sizes may compute, and how long."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeGuard, cast

from polydevice.processor.machine_code import cache_bytes
from polydevice.symbolic_size import is_symbolic, smallest
from polydevice_cpu.algorithms.by_machine.code import has_avx512, has_vectors, may_share
from polydevice_cpu.algorithms.by_machine.windows.covers import Windows
from polydevice_cpu.algorithms.by_machine.windows.following import Function
from polydevice_cpu.algorithms.by_machine.windows.tiles import BLOCK
from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.constants import (
    BY_LINES,
    DEPTHWISE,
    GEMM,
    OF_BLOCKS,
    OF_ONE_ELEMENT,
    POOL_OF_BYTES,
    PRODUCT,
    Algorithm,
    DataType,
    kind_of_code,
)
from polydevice_cpu.onednn.descriptor import Descriptor, SymbolicDescriptor, is_open, is_strided
from polydevice_cpu.onednn.primitive import Argument, Primitive, SymbolicPrimitive
from polydevice_cpu.plan.filling.by_machine.chains import by_channel_of, chain_of, is_known
from polydevice_cpu.plan.filling.by_machine.integers import (
    has_code_of_bytes,
    is_depthwise,
    is_of_bytes,
    pool_of_bytes,
)
from polydevice_cpu.plan.filling.by_machine.tiles import may_be_in_tiles
from polydevice_cpu.plan.filling.by_machine.weights import bundle_of
from polydevice_cpu.plan.filling.folded import fold_of

CONVOLUTION, TRANSPOSED = "convolution_forward", "deconvolution_forward"
_WITH_ALL_CHANNELS = BY_LINES, OF_BLOCKS
_IN_GROUPS = *_WITH_ALL_CHANNELS, OF_ONE_ELEMENT
"""oneDNN's code whose order of adding is followed; other code pads with zeros, or adds in parts."""

MOST_US = {BY_LINES: 700.0, OF_BLOCKS: 110.0}
MOST_US |= {DEPTHWISE: 60.0, PRODUCT: 150.0, OF_ONE_ELEMENT: 300.0}
"""How much longer than oneDNN's the code may take: a plan runs eight times so, and oneDNN takes
0.95, 0.45, 0.25, 0.35 and 0.9 ms to choose, generate and bind code for a size."""

MORE_NS = {BY_LINES: 0.03, OF_BLOCKS: 0.04, DEPTHWISE: 0.03, PRODUCT: 0.03}
MORE_NS |= {OF_ONE_ELEMENT: 0.02}
"""How much longer a step takes than in oneDNN's code: -3 to 25, 15 to 25, -12 to 15 and, where
there are few channels, -50 to 40 %."""

MOST_POOLS_US = 80.0
"""How long it may take for pools: oneDNN's takes a third at least, and 0.2 to 0.3 ms to make."""

MOST_CHANNELS, MOST_OF_ONE_ELEMENT, MOST_LINES = 96, 1024, 1024
"""Channels of a source that oneDNN adds in one go, and those of windows of one element, and of code
that reads lines."""

MOST_AT_ONCE = 28
"""Positions that this code computes at once, of 16 channels; of more half as many or fewer."""

MOST_WEIGHTS_BYTES = 1 << 20
"""Weights of convolutions along one axis, which are read for every few positions: up to so many, of
one group, they take as long as oneDNN's code for a size (0.8 to 1.1 times; 1.8 with 1.8 MB), which
it takes 1 to 25 ms to generate, as it unrolls positions. Those of bytes are kept once more."""

MOST_TRANSPOSED_BYTES = 3 << 17
"""The same of transposed ones over two axes, in floats: with so many they take 0.8 to 1.05 times as
long as oneDNN's code (1.1 with 512 kB), which it takes 0.7 to 1.5 ms to make for each size."""

HALF = 8
"""Up to so many channels of a result oneDNN computes in half a vector, where transposed ones over
two axes take 15 to 20 % less so."""

FEW_ELEMENTS = 9
"""Of a window; see `_takes_as_long`."""

Geometry = Sequence[tuple[int, ...]]

_SRC, WEIGHTS, _BIAS, _DST, _ATTRIBUTES = 3, 4, 5, 6, 11
GEOMETRY = slice(7, 11)
_OF_PRODUCTS = 1, 2, 3, 4, 5
OF_POOLS, GEOMETRY_OF_POOLS = (2, 10), slice(5, 10)
_POOLS = (
    *(Algorithm.POOLING_AVG_INCLUDE_PADDING, Algorithm.POOLING_AVG_EXCLUDE_PADDING),
    Algorithm.POOLING_MAX,
)


def may_be_by_machine(given: Primitive) -> TypeGuard[SymbolicPrimitive]:
    """Whether a primitive is a convolution, pool or product that there is machine code for."""
    if is_of_bytes(given):
        return _are_of_bytes(given)
    if not isinstance(given, SymbolicPrimitive) or given.name not in (CONVOLUTION, TRANSPOSED):
        return _may_be_a_pool(given) or _may_be_of_rows(given)
    src, weights, bias, dst, attributes = (
        given.arguments[place] for place in (_SRC, WEIGHTS, _BIAS, _DST, _ATTRIBUTES)
    )
    assert isinstance(src, Descriptor)
    assert isinstance(weights, Descriptor)
    assert isinstance(attributes, Attributes)
    rank, axes = len(weights.shape), len(src.shape) - 2
    if given.name == TRANSPOSED:
        steps, gaps, pads, _ = cast("Geometry", given.arguments[GEOMETRY])
        has_code = rank == len(src.shape) < 5 and not any(gaps) and is_known(*steps, *pads)
        has_code &= axes == 1 or (is_known(weights.shape[0]) and weights.shape[0] > HALF)
        has_code &= has_vectors()  # the names of oneDNN's other code say that there is
    elif fold_of(given) is None:
        has_code = False
    elif kind_of_code(given) == DEPTHWISE:
        has_code = weights.shape[1:3] == (1, 1) and rank == axes + 3 > 4
    elif rank == axes + 3:
        has_code = axes < 3 and kind_of_code(given) in _IN_GROUPS and is_known(*weights.shape)
        has_code &= has_avx512() or (axes == 1 and _is_each_by_itself(weights))
    elif not _is_in_line(given):
        has_code = False
    else:
        has_code = rank == len(src.shape) and kind_of_code(given) in _WITH_ALL_CHANNELS
        has_code |= rank == len(src.shape) == 4 and _is_in_steps(given)
    most_bytes = MOST_WEIGHTS_BYTES if axes == 1 else MOST_TRANSPOSED_BYTES
    own = weights.shape[rank - axes - 2 :]  # of a group, as one is computed behind the other
    is_small = is_known(*weights.shape) and 4 * math.prod(own) <= most_bytes
    is_alike = axes > 1 and given.name == CONVOLUTION
    return (
        has_code
        and (is_alike or is_small)
        and _has_functions(given, attributes, dst, is_alike=is_alike)
        and (given.threads == 1 or may_share())
        and not isinstance(bias, SymbolicDescriptor)
        and all(map(is_open, (src, dst)))
        and not attributes.quantisation
    )


def _has_functions(
    given: SymbolicPrimitive, attributes: Attributes, result: Argument, *, is_alike: bool
) -> bool:
    """Whether there is code for what follows.

    Args:
        given: a convolution.
        attributes: of it.
        result: its layout.
        is_alike: whether plans that run often are oneDNN's, unless Tanh follows.
    """
    if is_alike and _has_tanh(attributes, result):
        return _takes_as_long(given)
    return chain_of(attributes, result, as_onednn=is_alike) is not None


def _has_tanh(attributes: Attributes, result: Argument) -> bool:
    """Whether there is code for what follows, and Tanh among it: not to the bit as oneDNN's."""
    functions = [function for function, *_ in chain_of(attributes, result) or ()]
    return Function.TANH in functions and Function.GELU not in functions


def _takes_as_long(given: SymbolicPrimitive) -> bool:
    """Whether a convolution and Tanh take as long as in oneDNN's code: 0.85 to 1.05 times.

    Where oneDNN reads lines, windows of 7x7 and 9x9 take up to 1.15 times, and 16 results 1.2.
    """
    weights = given.arguments[WEIGHTS]
    assert isinstance(weights, Descriptor)
    if len(weights.shape) != len(given.src.shape) or not is_known(*weights.shape):
        return False
    if kind_of_code(given) == OF_BLOCKS:
        return True
    results, _, *window = weights.shape
    return kind_of_code(given) == BY_LINES and math.prod(window) <= FEW_ELEMENTS and results > BLOCK


def _are_of_bytes(given: SymbolicPrimitive) -> bool:
    """Whether windows of bytes lie as code reads them."""
    if given.name not in (CONVOLUTION, TRANSPOSED) or fold_of(given) is None:
        return False
    if given.name == TRANSPOSED and len(given.src.shape) > 4:
        return False
    if may_be_in_tiles(given):
        return has_code_of_bytes(given, in_tiles=True)
    weights = given.arguments[WEIGHTS]
    assert isinstance(weights, Descriptor)
    if not is_known(*weights.shape) or math.prod(weights.shape) > MOST_WEIGHTS_BYTES:
        return False
    if given.name == TRANSPOSED:
        steps, gaps, pads, _ = cast("Geometry", given.arguments[GEOMETRY])
        is_plain = not any(gaps) and is_known(*steps, *pads) and not is_depthwise(given)
        return is_plain and has_code_of_bytes(given, in_tiles=False)
    return (_is_in_line(given) or is_depthwise(given)) and has_code_of_bytes(given, in_tiles=False)


def _is_in_line(given: SymbolicPrimitive) -> bool:
    """Whether a window's elements follow each other in a line, as code for all channels has it.

    Along one axis, gaps are between lines; see `fold_of`. Code for groups reads one by one.
    """
    _, gaps, *_ = cast("Geometry", given.arguments[GEOMETRY])
    weights = given.arguments[WEIGHTS]
    assert isinstance(weights, Descriptor)
    is_one = is_known(weights.shape[-1]) and weights.shape[-1] == 1
    return len(gaps) == 1 or is_one or (is_known(gaps[-1]) and gaps[-1] == 0)


def _is_each_by_itself(weights: Descriptor) -> bool:
    """Whether no groups share a vector, for which there is code with AVX-512 alone."""
    return is_known(*weights.shape) and bundle_of(weights.shape).size == 1


def _is_in_steps(given: SymbolicPrimitive) -> bool:
    """Whether windows of one element leave elements out between them; others are positions."""
    steps, *_ = cast("Geometry", given.arguments[GEOMETRY])
    return kind_of_code(given) == OF_ONE_ELEMENT and is_known(*steps) and {*steps} != {1}


def groups_of(given: Primitive) -> int:
    """Return how many groups the channels of a convolution are in; 1 where each has its own."""
    weights = given.arguments[WEIGHTS] if isinstance(given, SymbolicPrimitive) else None
    if given.kind != "convolution" or not isinstance(weights, Descriptor):
        return 1
    if len(weights.shape) == len(given.src.shape) or weights.shape[1:3] == (1, 1):
        return 1
    return weights.shape[0]


def stays_by_machine(given: SymbolicPrimitive) -> bool:
    """Whether a primitive that `may_be_by_machine` is computed so in plans that run often, too.

    A convolution along one axis is, also a transposed one. Where windows reach far over its ends,
    oneDNN adds up each element of them by itself, so that answers of plans that it computes differ
    by a rounding. So is one in groups that oneDNN takes longer for, one of up to 4 channels to more
    than 16, which takes as long or less and oneDNN 0.5 to 2 ms to make, one that Tanh follows,
    which is not the same to the bit, and a product by some matrices that oneDNN's older code would
    add up in another order, as it does without AVX-512.
    """
    if given.name not in (CONVOLUTION, TRANSPOSED):
        return given.implementation == GEMM
    weights = given.arguments[WEIGHTS]
    assert isinstance(weights, Descriptor)
    if len(given.src.shape) == 3 or given.name == TRANSPOSED:
        return True
    if groups_of(given) > 1:
        return bundle_of(weights.shape).is_faster
    attributes = given.arguments[_ATTRIBUTES]
    assert isinstance(attributes, Attributes)
    if _has_tanh(attributes, given.dst):
        return True
    is_of_few = kind_of_code(given) == OF_BLOCKS and len(weights.shape) == len(given.src.shape)
    return is_of_few and weights.shape[0] > BLOCK


def _may_be_a_pool(given: Primitive) -> TypeGuard[SymbolicPrimitive]:
    if not isinstance(given, SymbolicPrimitive) or given.name != "pooling_forward":
        return False
    algorithm, attributes = (given.arguments[place] for place in OF_POOLS)
    assert isinstance(attributes, Attributes)
    if pool_of_bytes(given) is not None:
        is_known_kind = algorithm == Algorithm.POOLING_MAX and is_strided(given.src)
        is_known_kind = is_known_kind and kind_of_code(given) == POOL_OF_BYTES
    else:
        is_known_kind = given.dst.data_type is DataType.F32 and is_open(given.src)
        is_known_kind = is_known_kind and kind_of_code(given) == OF_BLOCKS
    return (
        algorithm in _POOLS
        and is_known_kind
        and (given.threads == 1 or may_share())
        and len(given.src.shape) > 3
        and fold_of(given) is not None
        and not attributes.post_ops
    )


def _may_be_of_rows(given: Primitive) -> TypeGuard[SymbolicPrimitive]:
    """Whether each row is multiplied by some matrices, as transposed convolutions are computed."""
    if not isinstance(given, SymbolicPrimitive) or given.name != "matmul":
        return False
    src, weights, bias, dst, attributes = (given.arguments[place] for place in _OF_PRODUCTS)
    assert isinstance(weights, Descriptor)
    assert isinstance(attributes, Attributes)
    if not (is_open(src) and is_open(dst)) or isinstance(bias, SymbolicDescriptor):
        return False
    if len(weights.shape) != 4 or any(map(is_symbolic, (*weights.shape, src.shape[1]))):
        return False
    alone, matrices, channels, results = weights.shape
    return (
        (kind_of_code(given) == PRODUCT or given.implementation == GEMM)
        and (given.threads == 1 or may_share())
        and src.shape[1] == alone == 1 != matrices
        and channels <= MOST_CHANNELS
        and (not isinstance(bias, Descriptor) or bias.shape == (1, 1, 1, results))
        and not attributes.quantisation
        and chain_of(attributes, dst, as_onednn=True) is not None
        and not by_channel_of(attributes, dst)
    )


def most_channels(given: Primitive, windows: Windows, wide: int = MOST_AT_ONCE) -> int:
    """Return of how many channels of a source oneDNN's code adds up all in one go.

    Args:
        given: the primitive.
        windows: where they lie.
        wide: positions of a row of the result; as many as there may be where that is not known.
    """
    if kind_of_code(given) == OF_ONE_ELEMENT:
        return MOST_OF_ONE_ELEMENT
    weights = given.arguments[WEIGHTS] if isinstance(given, SymbolicPrimitive) else None
    if not isinstance(weights, Descriptor):
        return MOST_CHANNELS
    if windows.groups > 1 and kind_of_code(given) == OF_BLOCKS:
        return most_in_groups(*weights.shape[1:3])
    if kind_of_code(given) != BY_LINES:
        return MOST_CHANNELS
    return most_in_lines(windows, weights.shape[0 if windows.groups == 1 else 1], wide)


def most_in_groups(results: int, channels: int) -> int:
    """Return the same of code that reads channels in groups block by block (seen in oneDNN 3.2).

    Args:
        results: channels of the result of a group.
        channels: of the source.
    """
    blocks = (size for size in (BLOCK, 8, 4) if results % size == channels % size == 0)
    return next(blocks, BLOCK)


def most_in_lines(windows: Windows, results: int, wide: int = MOST_AT_ONCE) -> int:
    """Return the same of code that reads several lines of a source for some positions at once.

    Of more channels than fit into the caches with their weights, it adds some of them after the
    others (seen in oneDNN 3.2 with 3,000 random convolutions).

    Args:
        windows: where they lie.
        results: channels of the result.
        wide: see `most_channels`.
    """
    at_once = smallest([wide, MOST_AT_ONCE if results <= BLOCK else MOST_AT_ONCE // 2])
    (high, across), (_, along) = windows.sizes, windows.steps
    line = 4 * ((at_once - 1) * along + across)
    weights = 4 * high * across * min(-(-results // BLOCK), 4) * BLOCK
    first, second = cache_bytes(1, default=32 << 10), cache_bytes(2, default=1 << 20)
    most: int = smallest([first // line, second // (weights + high * line), MOST_LINES])
    return most


def is_in_order(
    windows: Windows, behind: Sequence[int], channels: int, wide: int, most: int = MOST_CHANNELS
) -> bool:
    """Whether oneDNN adds elements line by line, and those of a line from the left.

    It does not where windows at an end of a row lack their middle, which it adds first of all
    others, nor where those of fewer positions than they reach over an end, but of several (seen in
    oneDNN 3.2 with 5,000 random convolutions).

    Args:
        windows: where they lie.
        behind: how far the last ones reach over the end.
        channels: of the source.
        wide: positions of a row of the result.
        most: see `most_channels`.
    """
    if windows.is_depthwise:
        return True
    reach = max(windows.pads[1], behind[1])
    is_whole = reach <= (windows.sizes[1] - 1) // 2 and windows.gaps[1] == 0
    is_whole = is_whole and (wide == 1 or reach <= wide)
    return is_whole and channels <= most
