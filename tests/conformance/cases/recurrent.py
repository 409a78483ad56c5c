"""Cells and sequences, attention, spectra, segments and bags."""

from __future__ import annotations

import numpy as np

from ..case import C, Case, Random, case

HIDDEN, SIZE, BATCH, STEPS = 5, 3, 2, 4
DIRECTIONS = ("forward", "reverse", "bidirectional")


def cells(r: Random) -> list[Case]:
    x, h, c = r.f(BATCH, SIZE), r.f(BATCH, HIDDEN), r.f(BATCH, HIDDEN)

    def weights(gates: int, biases: int | None = None) -> list:
        return [
            C(r.f(gates * HIDDEN, SIZE)),
            C(r.f(gates * HIDDEN, HIDDEN)),
            C(r.f((biases or gates) * HIDDEN)),
        ]

    common = {"hidden_size": HIDDEN, "tolerance": "recurrent"}
    return [
        case("LSTMCell", 4, x, h, c, *weights(4), outputs=2, **common),
        case("LSTMCell", 4, x, h, c, *weights(4), outputs=2, variant="clip", clip=0.5, **common),
        case(
            "LSTMCell",
            4,
            x,
            h,
            c,
            *weights(4),
            outputs=2,
            variant="other functions",
            activations=("sigmoid", "relu", "tanh"),
            **common,
        ),
        case("LSTMCell", 1, x, h, c, *weights(4), outputs=2, variant="1", **common),
        case("GRUCell", 3, x, h, *weights(3), **common),
        case(
            "GRUCell",
            3,
            x,
            h,
            *weights(3, 4),
            variant="before reset",
            linear_before_reset=True,
            **common,
        ),
        case("RNNCell", 3, x, h, *weights(1), **common),
        case(
            "RNNCell", 3, x, h, *weights(1), variant="relu", activations="relu", clip=1.0, **common
        ),
    ]


def sequences(r: Random) -> list[Case]:
    found = []
    for direction in DIRECTIONS:
        d = 2 if direction == "bidirectional" else 1
        x = r.f(BATCH, STEPS, SIZE)
        state = [r.f(BATCH, d, HIDDEN), r.f(BATCH, d, HIDDEN)]
        for name, lengths in (("full", [STEPS] * BATCH), ("short", [2, 3])):

            def weights(gates: int, biases: int | None = None, d: int = d) -> list:
                return [
                    C(r.f(d, gates * HIDDEN, SIZE)),
                    C(r.f(d, gates * HIDDEN, HIDDEN)),
                    C(r.f(d, (biases or gates) * HIDDEN)),
                ]

            common = {"hidden_size": HIDDEN, "direction": direction, "tolerance": "recurrent"}
            length = C(np.int32(lengths))
            variant = f"{direction}-{name}"
            if (direction, name) == ("bidirectional", "short"):
                # As OpenVINO converts ONNX models: named once per direction.
                found += [
                    case(
                        *(f"{kind}Sequence", 5, x, *state[:states], length, *weights(gates)),
                        outputs=1 + states,
                        variant="activations-twice",
                        activations=f"{activations},{activations}",
                        **common,
                    )
                    for kind, states, gates, activations in (
                        ("LSTM", 2, 4, "sigmoid,tanh,tanh"),
                        ("GRU", 1, 3, "sigmoid,tanh"),
                        ("RNN", 1, 1, "tanh"),
                    )
                ]
            found += [
                case(
                    "LSTMSequence",
                    5,
                    x,
                    *state,
                    length,
                    *weights(4),
                    outputs=3,
                    variant=variant,
                    activations="sigmoid,tanh,tanh",
                    **common,
                ),
                case(
                    "GRUSequence",
                    5,
                    x,
                    state[0],
                    length,
                    *weights(3),
                    outputs=2,
                    variant=variant,
                    activations="sigmoid,tanh",
                    **common,
                ),
                case(
                    "GRUSequence",
                    5,
                    x,
                    state[0],
                    length,
                    *weights(3, 4),
                    outputs=2,
                    variant=f"{variant}-before",
                    linear_before_reset=True,
                    activations="sigmoid,tanh",
                    **common,
                ),
                case(
                    "RNNSequence",
                    5,
                    x,
                    state[0],
                    length,
                    *weights(1),
                    outputs=2,
                    variant=variant,
                    activations="tanh",
                    **common,
                ),
            ]
    return found


def attention(r: Random) -> list[Case]:
    kind = "ScaledDotProductAttention"
    q, k, v = r.f(2, 3, 4, 8), r.f(2, 3, 5, 8), r.f(2, 3, 5, 6)
    same = r.f(2, 3, 8)
    tolerance = "transcendental"
    return [
        case(kind, 13, q, k, v, causal=False, tolerance=tolerance),
        case(kind, 13, q, k, v, variant="causal", causal=True, tolerance=tolerance),
        case(kind, 13, q, k, v, r.f(1, 1, 4, 5), variant="mask", causal=False, tolerance=tolerance),
        case(
            kind,
            13,
            q,
            k,
            v,
            r.f(2, 3, 4, 5),
            C(np.float32(0.2)),
            variant="scale",
            causal=False,
            tolerance=tolerance,
        ),
        case(kind, 13, same, same, same, variant="3d", causal=False, tolerance=tolerance),
    ]


def spectra(r: Random) -> list[Case]:
    x = r.f(2, 5, 6, 2)
    found = []
    for kind in ("DFT", "IDFT"):
        found += [
            case(kind, 7, x, C([1, 2]), variant="two"),
            case(kind, 7, x, C([-1]), variant="negative"),
            case(kind, 7, x, C([1, 2]), C([7, 4]), variant="sizes"),
        ]
    found += [
        case(
            "ISTFT",
            16,
            r.f(2, 5, 7, 2),
            C(r.f(8, low=0.5)),
            C(8),
            C(4),
            center=False,
            normalized=False,
        ),
        case(
            "ISTFT",
            16,
            r.f(2, 5, 7, 2),
            C(r.f(8, low=0.5)),
            C(8),
            C(4),
            C(30),
            variant="length",
            center=True,
            normalized=True,
        ),
        case("RDFT", 9, r.f(2, 5, 6), C([2])),
        # Longer signals than the input make OpenVINO's CPU plugin read beyond it.
        case("RDFT", 9, r.f(2, 5, 6), C([1, 2]), C([4, 5]), variant="sizes"),
        case("IRDFT", 9, r.f(2, 5, 4, 2), C([2])),
        case("IRDFT", 9, r.f(2, 5, 4, 2), C([1, 2]), C([4, 7]), variant="sizes"),
        case("STFT", 15, r.f(2, 32), C(r.f(8)), C(8), C(4), transpose_frames=False),
        case(
            "STFT",
            15,
            r.f(2, 32),
            C(r.f(6)),
            C(8),
            C(3),
            variant="transposed",
            transpose_frames=True,
        ),
    ]
    return found


def bags(r: Random) -> list[Case]:
    table = r.f(6, 3)
    indices = np.int32([0, 2, 3, 4, 5, 1])
    weights = r.f(6)
    kind = "EmbeddingBagOffsetsSum"
    found = [
        case(kind, 3, table, C(indices), C(np.int32([0, 2, 2, 5]))),
        case(
            kind,
            3,
            table,
            C(indices),
            C(np.int32([0, 2, 2, 5])),
            C(np.int32(1)),
            weights,
            variant="weights",
        ),
        case("EmbeddingBagPackedSum", 3, table, C(indices.reshape(3, 2))),
        case(
            "EmbeddingBagPackedSum",
            3,
            table,
            C(indices.reshape(3, 2)),
            weights.reshape(3, 2),
            variant="weights",
        ),
        case(
            "EmbeddingSegmentsSum",
            3,
            table,
            C(indices),
            C(np.int32([0, 0, 1, 3, 3, 3])),
            C(np.int32(5)),
        ),
        case(
            "EmbeddingSegmentsSum",
            3,
            table,
            C(indices),
            C(np.int32([0, 0, 1, 3, 3, 3])),
            C(np.int32(5)),
            C(np.int32(2)),
            weights,
            variant="weights",
        ),
    ]
    for reduction in ("sum", "mean"):
        found += [
            case(
                "EmbeddingBagOffsets",
                15,
                table,
                C(indices),
                C(np.int32([0, 2, 2, 5])),
                variant=reduction,
                reduction=reduction,
            ),
            case(
                "EmbeddingBagPacked",
                15,
                table,
                C(indices.reshape(3, 2)),
                variant=reduction,
                reduction=reduction,
            ),
        ]
    found += [
        case("SegmentMax", 16, r.f(5, 3), C([0, 0, 1, 3, 3]), fill_mode="ZERO"),
        case(
            "SegmentMax",
            16,
            r.f(5, 3),
            C([0, 0, 1, 3, 3]),
            C(6),
            variant="lowest",
            fill_mode="LOWEST",
        ),
    ]
    return found


def matrices(r: Random) -> list[Case]:
    stable = (r.f(2, 4, 4) + 4 * np.eye(4)).astype(np.float32)
    return [
        case("Inverse", 14, stable, adjoint=False, tolerance="division by a root"),
        case("Inverse", 14, stable, variant="adjoint", adjoint=True, tolerance="recurrent"),
        case("Identity", 16, stable),
    ]


def decoders(r: Random) -> list[Case]:
    scores = r.distinct(6, 2, 5)
    mask = np.float32([[1] * 2] * 4 + [[1, 0]] * 2)
    labels = C(np.int32([[0, 1, 1, 0, 0, 0], [3, 2, 0, 0, 0, 0]]))
    found = []
    for merge in (True, False):
        found += [
            case("CTCGreedyDecoder", 1, scores, mask, variant=str(merge), ctc_merge_repeated=merge),
            case(
                "CTCGreedyDecoderSeqLen",
                6,
                r.distinct(2, 6, 5),
                C(np.int32([4, 6])),
                outputs=2,
                variant=str(merge),
                merge_repeated=merge,
                classes_index_type="i32",
                sequence_length_type="i32",
            ),
            case(
                "CTCLoss",
                4,
                r.f(2, 6, 5),
                C(np.int32([6, 4])),
                labels,
                C(np.int32([3, 2])),
                C(np.int32(4)),
                variant=str(merge),
                preprocess_collapse_repeated=False,
                ctc_merge_repeated=merge,
                unique=False,
                tolerance="recurrent",
            ),
        ]
    return found


def strings() -> list[Case]:
    words = np.array([["hello", ""], ["wörld", "x"]], object)
    symbols = C(np.frombuffer("hellowörldx".encode(), np.uint8))
    begins, ends = np.int32([[0, 5], [5, 11]]), np.int32([[5, 5], [11, 12]])
    return [
        case("StringTensorUnpack", 15, C(words, kind="string"), outputs=3),
        case(
            "StringTensorPack",
            15,
            begins,
            ends,
            symbols,
            others=[begins[::-1], ends[::-1], symbols.value],
        ),
    ]


def cases() -> list[Case]:
    r = Random("recurrent")
    return [
        *cells(r),
        *sequences(r),
        *attention(r),
        *spectra(r),
        *bags(r),
        *matrices(r),
        *decoders(r),
        *strings(),
    ]
