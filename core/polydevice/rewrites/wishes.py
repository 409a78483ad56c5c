"""Wishes: what a device wants done to a network before it compiles it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from polydevice.dataclass import dataclass
from polydevice.network import Network
from polydevice.node import Node
from polydevice.ops.op import Op
from polydevice.rewrites.rule import Rule

if TYPE_CHECKING:
    from polydevice.rewrites.integers.rounding.of_bytes import OfBytes

When = Callable[[Node], bool]
"""A device's own condition: whether it wants this node rewritten."""


def always(node: Node) -> bool:
    """The condition of a device that wants every node of a kind rewritten."""
    del node
    return True


def never(node: Node) -> bool:
    """The condition of a device that wants no node rewritten."""
    del node
    return False


def nowhere(function: OfBytes) -> bool:
    """The condition of a device that looks no function of bytes up."""
    del function
    return False


def nothing(network: Network) -> None:
    """Leave a network as it is."""
    del network


class Unroll(enum.Enum):
    """Which loops become plain layers."""

    NEVER = "never"
    ONCE = "once"
    """Those of one iteration."""
    ALWAYS = "always"
    """All whose number of iterations is known, within a limit of layers."""


@dataclass(frozen=True)
class Wishes:
    """What a device wants done, and where; all of it computes the same as before.

    Attributes:
        decompose: operations that the device wants said with simpler ones, because it does not have
            them or gains by it, each with its own condition. Subclasses go along. Where no rule
            holds, or a rule needs a number that is not known, the operation stays.
        own: the device's own decompositions, into operations that only it knows, or that only it
            computes faster. They go first.
        recognise: operations that the device wants in the place of the steps that make them up,
            each with a condition on what was recognised.
        leave: nodes that are to stay as they are.
        unroll: which loops become plain layers.
        loops: which of these the device wants so.
        integers: whether quantised products are computed on integers (`IntegerProduct`).
        floats: whether quantised networks stay in f32 instead, for a device that multiplies no
            bytes, or not exactly: what is left out around roundings (`integers/rounding`) is.
        takes: which products these are, of those whose data and weights are quantised ahead.
        wide: whether they take weights in i16 which are numbers of i8 and one more number for all
            of an output, as u8 with a zero point are; else another product sums up what meets them.
        exact: which functions of integers of 8 bits keep their roundings on the way, as a device
            that looks results up has them for nothing; of others those that move no result by more
            than a step are left out.
        settle: whether what loops carry without changing it becomes constant in their bodies.
        collect: whether what loops append to a value they carry is joined once, behind them.
        select: whether both bodies of an If are computed where they are a few functions of few
            numbers.
        join: whether equal nodes become one, which what is fused into each of them might outweigh.
        branches: whether sums of convolutions of one value become one (`join_branches`).
        look_up: whether lookups at places that constants tell are made ahead (`look_up_constants`).
        prepare: what the device does itself to a network, in place, once its loops are unrolled.
    """

    decompose: Mapping[type[Op], When] = field(default_factory=dict)
    own: Mapping[type[Op], Rule] = field(default_factory=dict)
    recognise: Mapping[type[Op], When] = field(default_factory=dict)
    leave: When = never
    unroll: Unroll = Unroll.NEVER
    loops: When = always
    integers: bool = False
    floats: bool = False
    takes: When = always
    wide: bool = False
    exact: Callable[[OfBytes], bool] = nowhere
    settle: bool = False
    collect: bool = False
    select: bool = False
    join: bool = False
    branches: bool = False
    look_up: bool = False
    prepare: Callable[[Network], None] = nothing
