"""Sequences of many steps are `RecurrentSteps`: one product for all inputs, and one launch."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.emitter import Emitter
from polydevice.node import Port
from polydevice.ops.arithmetic import Add
from polydevice.ops.matmul import MatMul
from polydevice.ops.recurrent import Gru, SequenceOf
from polydevice.rewrites.facts import array_of, count_of, is_known, shape_of
from polydevice.symbolic_size import is_symbolic
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.ops import RecurrentSteps

MAX_UNROLLED_STEPS = 4
"""Longest sequence that is unrolled, which uses all of a device for one sequence.

Two LSTM layers of 4 steps on 2 cores (PoCL 3.1), unrolled and in one launch each: 0.15 and 0.06 ms
with 32 hidden units, 0.20 and 0.17 with 128, 1.2 and 3.1 with 512. A plan grows with every step.
"""

MAX_HEAVY_STEPS = 256
"""The same on throughput devices where the weights are large. Loading takes a second."""

HEAVY_BYTES = 1 << 20
"""Recurrent weights from which a step takes longer in one work-group than as launches.

One processor reads all of them in every step, which took 43 us a MiB on an H100 where a step of
launches took 20 to 23: LSTM of 512 units, 100 steps, 18 and 2.3 ms. A network loads more slowly for
it, so launches have to be twice as fast at least; they are counted for each direction.
"""


def runs_in_one_launch(
    op: SequenceOf, inputs: Sequence[Port], target: Target, bytes_each: int
) -> bool:
    """Whether one launch for all steps beats launches for each.

    Args:
        op: the layer.
        inputs: of the layer.
        target: the device.
        bytes_each: what an element of the weights takes.
    """
    if not count_of(inputs[0]):
        return False
    weights = count_of(inputs[3 + op.states]) * bytes_each // op.direction.count
    heavy = target.is_throughput and weights > HEAVY_BYTES * op.direction.count
    steps = shape_of(inputs[0])[1]
    if is_symbolic(steps) and not heavy:
        return True  # one launch serves any number of them
    return steps > (MAX_HEAVY_STEPS if heavy else MAX_UNROLLED_STEPS)


def in_one_launch(build: Emitter, op: SequenceOf, inputs: Sequence[Port]) -> list[Port]:
    """Multiply the inputs of all steps and directions at once; one launch does the rest."""
    x, *states = inputs[: 1 + op.states]
    lengths, w, r, *more = inputs[1 + op.states :]
    n, rows = op.hidden_size, op.direction.count * op.gates * op.hidden_size
    steps, size = shape_of(x)[1:]
    projected = build.emit(MatMul(transpose_b=True), x, build.reshape(w, (rows, size)))
    after: list[Port] = []
    if more:
        bias, *more = more
        if isinstance(op, Gru) and op.linear_before_reset:
            bias, *after = build.split(bias, 1, [3 * n, n])
        projected = build.emit(Add(), projected, build.reshape(bias, (rows,)))
    # Numbers one by one: the steps may be a formula, which arrays are not compared with.
    whole = is_known(lengths) and all(
        each >= steps for each in array_of(lengths).reshape(-1).tolist()
    )
    own = [] if whole else [lengths]
    made = RecurrentSteps(
        layer=op, direction=op.direction, has_lengths=bool(own), has_after=bool(after),
        has_peepholes=bool(more),
    )  # fmt: skip
    return build.emit_all(made, projected, r, *states, *own, *after, *more)
