"""Rewrites: networks become equal networks that suit a device better; `ORDER` says how.

They know no device. A device says what it wants (`Wishes`): which operations are to be decomposed
into simpler ones, which are to be recognised in the steps that make them up, and where. CPU, GPU
and devices of others use the same rules.
"""

from __future__ import annotations

from collections.abc import Callable

from polydevice.network import Network
from polydevice.node import Evaluate
from polydevice.ops.io import Result
from polydevice.ops.quantize_linear import QuantizeLinear
from polydevice.passes.constant_folding import constant_folding
from polydevice.rewrites.control_flow.collect_parts import collect_parts
from polydevice.rewrites.control_flow.select_branches import select_branches
from polydevice.rewrites.control_flow.settle_lists import settle_lists
from polydevice.rewrites.control_flow.settle_loops import settle_loops
from polydevice.rewrites.control_flow.slice_inputs import slice_inputs
from polydevice.rewrites.control_flow.unroll_loops import unroll_loops
from polydevice.rewrites.decomposition import decompose, decompositions
from polydevice.rewrites.facts import Declined
from polydevice.rewrites.integers import hold_integers, round_in_floats
from polydevice.rewrites.integers.written_out import put_together
from polydevice.rewrites.join_branches import join_branches
from polydevice.rewrites.join_equals import join_equals
from polydevice.rewrites.look_up_constants import look_up_constants
from polydevice.rewrites.raise_strides import raise_strides
from polydevice.rewrites.recognise.activation import recognise_activations
from polydevice.rewrites.recognise.attention import recognise_attention
from polydevice.rewrites.recognise.embedding import recognise_rotations
from polydevice.rewrites.recognise.normalization.batch_statistics import recognise_batch_statistics
from polydevice.rewrites.recognise.normalization.steps import recognise_normalizations
from polydevice.rewrites.rule import Decomposition, Rule, rules
from polydevice.rewrites.share_coordinates import share_coordinates
from polydevice.rewrites.wishes import Unroll, When, Wishes, always, never, nothing

__all__ = [
    "ORDER", "Declined", "Decomposition", "Rule", "Unroll", "When", "Wishes", "always",
    "decompositions", "never", "nothing", "rewrite", "rules",
]  # fmt: skip


def _settle_lists(network: Network, wishes: Wishes) -> int:
    del wishes  # all devices gain
    return settle_lists(network)


def _unroll(network: Network, wishes: Wishes) -> int:
    if wishes.unroll is Unroll.NEVER:
        return 0
    all_counts = wishes.unroll is Unroll.ALWAYS
    return int(unroll_loops(network, all_counts=all_counts, where=wishes.loops))


def _hold(network: Network, wishes: Wishes) -> int:
    if wishes.integers:
        return hold_integers(network, exact=wishes.exact, wide=wishes.wide, takes=wishes.takes)
    if wishes.floats:
        round_in_floats(network, exact=wishes.exact)
        return 0
    # A quantisation said by limits is rounded as the model's only where it is one again.
    if QuantizeLinear in wishes.decompose:
        put_together(network, by_limits_alone=True)
    return 0


def _prepare(network: Network, wishes: Wishes) -> int:
    wishes.prepare(network)
    return 0


def _fold(network: Network, wishes: Wishes) -> int:
    del wishes  # all devices gain
    return 0 if network.evaluate is None else constant_folding(network, network.evaluate)


def _settle(network: Network, wishes: Wishes) -> int:
    if not wishes.settle or network.evaluate is None:
        return 0
    return int(settle_loops(network, network.evaluate))


def _share(network: Network, wishes: Wishes) -> int:
    del wishes  # all devices gain
    return share_coordinates(network)


def _look_up(network: Network, wishes: Wishes) -> int:
    return look_up_constants(network) if wishes.look_up else 0


def _select(network: Network, wishes: Wishes) -> int:
    return select_branches(network) if wishes.select else 0


def _join(network: Network, wishes: Wishes) -> int:
    return join_equals(network) if wishes.join else 0


def _branches(network: Network, wishes: Wishes) -> int:
    return join_branches(network, wishes.leave) if wishes.branches else 0


def _collect(network: Network, wishes: Wishes) -> int:
    return collect_parts(network) if wishes.collect else 0


def _slice(network: Network, wishes: Wishes) -> int:
    return slice_inputs(network) if wishes.collect else 0


Stage = Callable[[Network, Wishes], int]
"""Changes a network in place and returns how many changes it made."""

ORDER: tuple[tuple[str, Stage], ...] = (
    ("settle lists", _settle_lists),  # first: how many tensors they have may be how often loops run
    ("unroll loops", _unroll),  # what is in them is a layer like any other from then on
    ("raise strides", raise_strides),  # before roundings, functions like others, become integers
    ("hold integers", _hold),  # before folding, which would make floats of quantised weights
    ("prepare", _prepare),  # the device's own operations take the place of the model's
    ("fold constants", _fold),  # rules ask for numbers that shapes tell, and for weights
    ("share coordinates", _share),  # whose other inputs are constants by now
    ("settle loops", _settle),  # loops left over: what they never change is known in their bodies
    ("select branches", _select),  # once their conditions are known where they can be
    ("collect parts", _collect),  # of loops that are left
    ("slice inputs", _slice),  # of loops: how often these run is known where it can be
    ("look up constants", _look_up),  # in tables that are plain numbers by now
    ("fold what settled", _fold),
    ("join equals", _join),  # steps on the way to constants are none any more
    ("recognise batch statistics", recognise_batch_statistics),  # before what reads them is gone
    ("join branches", _branches),  # before a device takes convolutions or normalisations apart
    ("decompose", decompose),  # before recognising: Einsum hides the products of an attention
    ("fold parts", _fold),  # parts of constants that decompositions have made
    ("recognise normalisations", recognise_normalizations),  # while every step is there
    ("recognise rotations", recognise_rotations),
    ("recognise attention", recognise_attention),  # its masks and scales are products too, so
    ("recognise activations", recognise_activations),  # these come after it
)
"""What happens to a network, in this order, and why in this one.

Every stage leaves the network computing what it did. Once through is enough: decompositions are
decomposed in turn, within a limit, and a second run changes nothing.
"""


Observe = Callable[[str, Network], None]
"""Is told the next stage's name, and the network as it is."""


def rewrite(
    network: Network,
    wishes: Wishes,
    evaluate: Evaluate | None = None,
    observe: Observe | None = None,
) -> dict[str, int]:
    """Rewrite a network in place as a device wants it; its outputs keep their names.

    Args:
        network: with static or unknown sizes; rules decline where they need a number.
        wishes: what the device wants.
        evaluate: computes constants; `network.evaluate` if it is left out.
        observe: is called before each stage.

    Returns:
        stage → number of changes.

    Raises:
        NetworkError: rules go round in circles.
    """
    network.evaluate = evaluate or network.evaluate
    names = [name for name, _ in network.output_ports()]
    counts: dict[str, int] = {}
    for name, stage in ORDER:
        if observe is not None:
            observe(name, network)
        counts[name] = stage(network, wishes)
    for result, name, (now, _) in zip(network.results, names, network.output_ports(), strict=True):
        if isinstance(result.op, Result) and now != name:
            result.op = result.op.replace(output_name=name)
    return counts
