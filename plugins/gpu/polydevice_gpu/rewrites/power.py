"""Powers as products: `pow` takes as long as 30 of them, and no compiler makes one of it.

Of 32x144 numbers, in a layer normalisation that is written out and quantised: 18 us on
PoCL, and 3 so.
"""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.emitter import Emitter
from polydevice.node import Port
from polydevice.ops.arithmetic import Multiply, Power
from polydevice.ops.pointwise import AutoBroadcast
from polydevice.rewrites.facts import array_of, is_known, rank_of


def is_square(op: Power, inputs: Sequence[Port]) -> bool:
    """Whether floats are multiplied with themselves, one exponent for all."""
    x, exponent = inputs
    if op.auto_broadcast is not AutoBroadcast.NUMPY or not x.element_type.is_float:
        return False
    if not is_known(exponent) or x.desc.rank is None:
        return False
    number = array_of(exponent)
    return number.size == 1 and number.ndim <= rank_of(x) and float(number.reshape(())) == 2


def square(build: Emitter, op: Power, inputs: Sequence[Port]) -> list[Port]:
    """Return x * x."""
    del op
    return build.emit_all(Multiply(), inputs[0], inputs[0])
