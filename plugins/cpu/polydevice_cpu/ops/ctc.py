"""CTCGreedyDecoder, CTCGreedyDecoderSeqLen and CTCLoss."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import InferenceError
from polydevice.ops.ctc import CTCGreedyDecoder, CTCGreedyDecoderSeqLen, CTCLoss
from polydevice_cpu.implement import implements


@implements(CTCGreedyDecoder)
def ctc_greedy_decoder(op: CTCGreedyDecoder, scores: Array, mask: Array) -> Array:
    """Decode all sequences at once; a sequence ends at its first 0 in the mask."""
    frames, batch, classes = scores.shape
    valid = np.cumprod(mask.T != 0, axis=1).astype(bool)
    best = scores.transpose(1, 0, 2).argmax(axis=2)
    kept, _ = _decode(best, valid, classes - 1, merge=op.ctc_merge_repeated)
    return kept.astype(scores.dtype).reshape(batch, frames, 1, 1)


@implements(CTCGreedyDecoderSeqLen)
def ctc_greedy_decoder_seq_len(
    op: CTCGreedyDecoderSeqLen, scores: Array, lengths: Array, blank: Array | None = None
) -> tuple[Array, Array]:
    """Decode all sequences at once."""
    _, frames, classes = scores.shape
    length = lengths.reshape(-1).astype(np.int64)
    if (length > frames).any() or (length < 0).any():
        raise InferenceError(
            f"CTCGreedyDecoderSeqLen: lengths {length.tolist()[:8]} are not all in [0, {frames}]"
        )
    valid = np.arange(frames) < length[:, None]
    last = classes - 1 if blank is None else int(blank.reshape(-1)[0])
    kept, count = _decode(scores.argmax(axis=2), valid, last, merge=op.merge_repeated)
    return kept.astype(op.classes_index_type.dtype), count.astype(op.sequence_length_type.dtype)


def _decode(best: Array, valid: Array, blank: int, *, merge: bool) -> tuple[Array, Array]:
    """Return [N, T] the kept classes, then -1; and [N] how many there are."""
    keep = valid & (best != blank)
    if merge:
        keep[:, 1:] &= best[:, 1:] != best[:, :-1]
    order = np.argsort(~keep, axis=1, kind="stable")  # kept frames first, in their order
    count = keep.sum(axis=1)
    kept = np.take_along_axis(best, order, axis=1)
    return np.where(np.arange(best.shape[1]) < count[:, None], kept, -1), count


@implements(CTCLoss)
def ctc_loss(
    op: CTCLoss,
    scores: Array,
    score_lengths: Array,
    labels: Array,
    label_lengths: Array,
    blank: Array | None = None,
) -> Array:
    """Sum over all alignments by the forward algorithm, in logarithms."""
    batch, frames, classes = scores.shape
    last = classes - 1 if blank is None else int(blank.reshape(-1)[0])
    if not 0 <= last < classes:
        raise InferenceError(f"CTCLoss: the blank {last} is outside [0, {classes})")
    y = np.zeros(batch, np.float64)
    for i in range(batch):
        length, count = int(score_lengths[i]), int(label_lengths[i])
        if not 0 <= count <= length <= frames or count > labels.shape[1]:
            raise InferenceError(
                f"CTCLoss: sequence {i} has {count} labels in {length} of {frames} frames"
            )
        target = _target(op, labels[i, :count].astype(np.int64))
        if ((target < 0) | (target >= classes)).any():
            raise InferenceError(f"CTCLoss: a label of sequence {i} is outside [0, {classes})")
        rows = scores[i, :length].astype(np.float64)
        shifted = rows - rows.max(axis=1, keepdims=True)
        logarithms = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        y[i] = -_forward(logarithms, target, last, merge=op.ctc_merge_repeated)
    return y.astype(scores.dtype)


def _target(op: CTCLoss, labels: Array) -> Array:
    """Return the labels after the preprocessing that the attributes ask for."""
    if op.preprocess_collapse_repeated and labels.size:
        labels = labels[np.concatenate([[True], labels[1:] != labels[:-1]])]
    if op.unique:
        _, first = np.unique(labels, return_index=True)
        labels = labels[np.sort(first)]
    return labels


def _forward(logarithms: Array, target: Array, blank: int, *, merge: bool) -> float:
    """Return the logarithm of the sum over all alignments of `target`."""
    states = np.full(2 * len(target) + 1, blank)
    states[1::2] = target
    # A label may follow the one before without a blank between, unless both would be merged.
    skip = np.zeros(len(states), bool)
    skip[3::2] = (target[1:] != target[:-1]) if merge else True
    stay = np.ones(len(states), bool)
    stay[1::2] = merge
    with np.errstate(divide="ignore"):
        alpha = np.full(len(states), -np.inf)
        alpha[0] = 0.0  # before the first frame
        for t, row in enumerate(logarithms):
            kept = np.where(stay, alpha, -np.inf) if t else alpha
            step = np.concatenate([[-np.inf], alpha[:-1]])
            jump = np.where(
                skip, np.concatenate([[-np.inf, -np.inf], alpha[:-2]])[: len(alpha)], -np.inf
            )
            alpha = np.logaddexp(np.logaddexp(kept, step), jump) + row[states]
        return float(np.logaddexp.reduce(alpha[-2:]))
