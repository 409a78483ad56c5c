"""Operators that work along axes: reductions, sums, sorting, normalisations, losses."""

from __future__ import annotations

import numpy as np

from tests.fuzz.builder import INTS, Builder, RejectedError
from tests.fuzz.data import axes, booleans, floats, image, integers, some, suited
from tests.fuzz.families import generates
from tests.fuzz.families.movement import indices

MONOTONE = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2",
            "ReduceSumSquare", "ReduceLogSumExp", "ReduceProd", "ReduceLogSum")  # fmt: skip


@generates(9)
def reduction(b: Builder):
    """A reduction with axes as attribute, constant, input, or left out."""
    name = b.choice(MONOTONE)
    if name == "ReduceLogSum":
        x = b.fresh(b.shape(), floats(np.dtype("f4"), 0.2, 3))
    elif name in ("ReduceMax", "ReduceMin", "ReduceSum") and b.chance(0.2):
        x = b.fresh(b.shape(), suited(b.choice(INTS[:2])))
    elif name in ("ReduceMax", "ReduceMin") and b.opset >= 20 and b.chance(0.1):
        x = b.fresh(b.shape(), booleans)
    else:
        x = some(b)
    if name == "ReduceProd" and x.value.size > 64:
        raise RejectedError("a product of too many")
    if x.dtype.name == "bfloat16" and x.value.size > 32:
        raise RejectedError("the reference adds in bfloat16, to 64 at most with steps of a quarter")
    chosen = axes(b, x.rank)
    attributes = {"keepdims": b.choice((None, 0, 1))}
    if b.opset < 11:
        chosen = [a % max(x.rank, 1) for a in chosen]
    if b.opset < (13 if name == "ReduceSum" else 18):
        return b.add(name, x, axes=chosen or None, **attributes)
    if b.chance(0.3):
        attributes["noop_with_empty_axes"] = b.integer(0, 1)
    given = indices(b, chosen) if b.chance(0.9) else None
    return b.add(name, x, given, **attributes)


@generates(3)
def arg_extreme(b: Builder):
    """ArgMax and ArgMin."""
    x = some(b, np.float32)
    axis = b.integer(0, max(x.rank - 1, 0))
    if not x.rank or not x.shape[axis]:
        raise RejectedError("nothing to choose from")
    last = {"select_last_index": b.integer(0, 1)} if b.opset >= 12 else {}
    return b.add(b.choice(("ArgMax", "ArgMin")), x, axis=axis, keepdims=b.integer(0, 1), **last)


@generates(3)
def cumulative(b: Builder):
    """CumSum, CumProd."""
    if b.opset < 11:
        raise RejectedError("CumSum came with opset 11")
    x = some(b, b.choice(("f4", "f4", "f8", "i4", "i8")))
    if not x.rank:
        raise RejectedError("a scalar has no axis")
    name = "CumProd" if b.opset >= 26 and b.chance(0.4) else "CumSum"
    axis = indices(b, b.integer(-x.rank, x.rank - 1), b.choice((np.int32, np.int64)))
    return b.add(name, x, axis, exclusive=b.integer(0, 1), reverse=b.integer(0, 1))


@generates(3)
def top(b: Builder):
    """TopK."""
    x = b.fresh(b.shape(b.integer(1, 4)), _distinct)
    axis = b.integer(-x.rank, x.rank - 1)
    count = b.integer(0 if b.opset >= 11 else 1, max(x.shape[axis], 1))
    if b.opset < 10:
        return b.add("TopK", x, outputs=2, axis=axis % x.rank, k=count)
    extra = {"largest": b.integer(0, 1), "sorted": 1} if b.opset >= 11 else {}
    axis = axis % x.rank if b.opset < 11 else axis
    return b.add("TopK", x, indices(b, [count]), outputs=2, axis=axis, **extra)


def _distinct(rng, shape):
    total = int(np.prod(shape, dtype=np.int64))
    return ((rng.permutation(total) - total / 2) / 8).astype(np.float32).reshape(shape)


@generates(4)
def softmax(b: Builder):
    """Softmax, LogSoftmax, Hardmax, with the meaning of axis before and from opset 13."""
    x = some(b)
    if not x.rank:
        raise RejectedError("a scalar has no axis")
    name = b.choice(("Softmax", "Softmax", "LogSoftmax", "Hardmax"))
    if name == "Hardmax" and 0 in x.shape:
        raise RejectedError("no maximum")
    axis = b.integer(0, x.rank - 1)
    axis = axis - x.rank if b.opset >= 11 and b.chance(0.4) else axis
    return b.add(name, x, axis=axis if b.chance(0.9) or x.rank < 2 else None)


@generates(4)
def normalization(b: Builder):
    """LayerNormalization, RMSNormalization, over sizes of 1 too."""
    x = some(b, b.choice(("f4", "f4", "f4", "f2", "f8")))
    if not x.rank or 0 in x.shape:
        raise RejectedError("nothing to normalise")
    axis = b.integer(0, x.rank - 1)
    shape = x.shape[axis:]
    if b.chance(0.15):
        shape = tuple(1 if b.chance(0.5) else s for s in shape)
    scale = b.fresh(shape, floats(x.dtype, 0.5, 2), 0.7)
    attributes = {"axis": b.choice((axis, axis - x.rank)), "epsilon": b.choice((1e-5, 1e-3, 0.1))}
    if b.opset >= 23 and b.chance(0.4):
        return b.add("RMSNormalization", x, scale, **attributes)
    if b.opset < 17:
        raise RejectedError("LayerNormalization came with opset 17")
    shift = b.fresh(shape, suited(x.dtype), 0.7) if b.chance(0.6) else None
    outputs = (True, b.chance(0.1), b.chance(0.1))
    return b.add("LayerNormalization", x, scale, shift, outputs=outputs, **attributes)


@generates(5)
def image_normalization(b: Builder):
    """Batch, instance and group normalisation, LRN, MVN, LpNormalization."""
    name = b.choice(("BatchNormalization", "BatchNormalization", "InstanceNormalization",
                     "LRN", "GroupNormalization", "MeanVarianceNormalization",
                     "LpNormalization"))  # fmt: skip
    x = image(b)
    if 0 in x.shape:
        raise RejectedError("an empty image")
    c = x.shape[1]

    def channels(low: float, high: float, count: int = c):
        return b.fresh((count,), floats(np.dtype("f4"), low, high), 0.85)

    if name == "BatchNormalization":
        means = channels(-1, 1)
        return b.add(name, x, channels(0.5, 2), channels(-1, 1), means, channels(0.3, 2),
                     epsilon=b.choice((1e-5, 1e-2)))  # fmt: skip
    if name == "InstanceNormalization":
        return b.add(name, x, channels(0.5, 2), channels(-1, 1), epsilon=1e-2)
    if name == "GroupNormalization":
        if b.opset < 21:
            raise RejectedError("its scale is per channel from opset 21 on")
        groups = b.choice([g for g in (1, 2, 3, 4, c) if c % g == 0])
        return b.add(name, x, channels(0.5, 2), channels(-1, 1), num_groups=groups, epsilon=1e-2)
    if name == "LRN":
        return b.add(name, x, size=b.choice((1, 3, 5)), alpha=0.1, beta=0.7, bias=1.5)
    if name == "LpNormalization":
        return b.add(name, b.add("Add", x, np.float32(10)), axis=b.integer(0, x.rank - 1),
                     p=b.choice((1, 2)))  # fmt: skip
    if b.opset < 9 or x.rank != 4 or x.shape[0] * x.shape[2] * x.shape[3] < 2:
        raise RejectedError("too few values")
    return b.add(name, x)


@generates(2)
def loss(b: Builder):
    """NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss."""
    if b.opset < 12:
        raise RejectedError("losses came with opset 12")
    n, c = b.integer(1, 4), b.integer(1, 5)
    spatial = b.shape(b.integer(0, 2))
    scores = b.fresh((n, c, *spatial), suited(np.float32))
    target = b.fresh((n, *spatial), integers(np.int64, 0, c - 1))
    weights = b.fresh((c,), floats(np.dtype("f4"), 0.3, 2)) if b.chance(0.4) else None
    attributes = {
        "reduction": b.choice(("mean", "sum", "none")),
        "ignore_index": b.choice((None, 0)),
    }
    if b.chance(0.5):
        return b.add("NegativeLogLikelihoodLoss", scores, target, weights, **attributes)
    return b.add("SoftmaxCrossEntropyLoss", scores, target, weights,
                 outputs=b.integer(1, 2), **attributes)  # fmt: skip
