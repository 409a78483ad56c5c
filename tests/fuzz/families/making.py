"""Operators that make data, or results of a size that only the data knows; strings, sequences."""

from __future__ import annotations

import numpy as np
from onnx import helper, numpy_helper

from tests.fuzz.builder import INTS, Builder, RejectedError
from tests.fuzz.data import booleans, floats, integers, some, strings, suited
from tests.fuzz.families import generates
from tests.fuzz.families.movement import anything, indices


@generates(3)
def filled(b: Builder):
    """ConstantOfShape, Range."""
    if b.opset >= 11 and b.chance(0.5):
        kind = b.choice((np.float32, np.int64, np.int32, np.float64))
        step = b.choice((1, 2, 3, -1))
        ends = (b.integer(-3, 3), b.integer(-3, 9), step)
        return b.add("Range", *(indices(b, v, kind) for v in ends))
    if b.opset < 9:
        raise RejectedError("ConstantOfShape came with opset 9")
    array = np.array([b.integer(0, 3)], b.choice(("f4", "i4", "i8", "u1", "?", "f2", "f8")))
    value = numpy_helper.from_array(array) if b.chance(0.7) else None
    return b.add("ConstantOfShape", indices(b, b.shape(b.integer(0, 3))), value=value)


@generates(3)
def found(b: Builder):
    """NonZero, Unique: as large as the data says."""
    x = b.fresh(b.shape(b.integer(0, 3)), integers(b.choice(("i4", "i8", "f4")), 0, 3), 0.05)
    if b.opset >= 11 and x.dtype.kind != "b" and b.chance(0.5):
        axis = b.integer(-x.rank, x.rank - 1) if x.rank and b.chance(0.5) else None
        return b.add("Unique", x, outputs=b.integer(1, 4), axis=axis, sorted=b.choice((1, 1, 0)))
    if b.opset < 9:
        raise RejectedError("NonZero came with opset 9")
    if b.chance(0.4):
        x = b.fresh(b.shape(b.integer(1, 3)), booleans, 0.05)
    return b.add("NonZero", x)


@generates(2)
def suppression(b: Builder):
    """NonMaxSuppression."""
    if b.opset < 10:
        raise RejectedError("NonMaxSuppression came with opset 10")
    n, boxes, classes = b.integer(1, 2), b.integer(1, 6), b.integer(1, 3)

    def corners(rng, shape):
        low = rng.uniform(0, 1, (n, boxes, 2))
        return np.concatenate([low, low + rng.uniform(0.1, 1, (n, boxes, 2))], -1).astype("f4")

    limits = [indices(b, [b.integer(0, 4)]), indices(b, [0.4], np.float32),
              indices(b, [0.3], np.float32)]  # fmt: skip
    limits = limits[: b.integer(1, 3)]
    scores = b.fresh((n, classes, boxes), floats(np.dtype("f4"), 0, 1))
    return b.add("NonMaxSuppression", b.fresh((n, boxes, 4), corners), scores, *limits)


@generates(3)
def signal(b: Builder):
    """Windows, MelWeightMatrix, DFT, STFT."""
    if b.opset < 17:
        raise RejectedError("signals came with opset 17")
    name = b.choice(("HannWindow", "HammingWindow", "BlackmanWindow", "MelWeightMatrix", "DFT",
                     "DFT", "STFT"))  # fmt: skip
    if name.endswith("Window"):
        return b.add(name, indices(b, b.integer(1, 9)), periodic=b.integer(0, 1))
    if name == "MelWeightMatrix":
        return b.add(name, np.int64(4), np.int64(b.choice((8, 16))), np.int64(8000),
                     np.float32(100), np.float32(3000))  # fmt: skip
    length = b.integer(1, 8)
    if name == "STFT":
        x = b.fresh((b.integer(1, 2), 16, 1), suited(np.float32))
        window = b.constant(b.rng.uniform(0.2, 1, 8).astype(np.float32))
        return b.add(name, x, np.int64(b.choice((2, 4))), window, onesided=b.integer(0, 1))
    x = b.fresh((b.integer(1, 2), length, b.choice((1, 1, 2))), suited(np.float32))
    one = 1 if x.shape[-1] == 1 and b.chance(0.5) else 0
    inverse = 1 if not one and b.chance(0.3) else 0
    if b.opset >= 20:
        return b.add("DFT", x, None, np.int64(1), onesided=one, inverse=inverse)
    return b.add("DFT", x, axis=1, onesided=one, inverse=inverse)


@generates(2)
def random(b: Builder):
    """Random operators, of which only what does not depend on chance is used further."""
    name = b.choice(("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike"))
    if name.endswith("Like"):
        x = some(b, np.float32)
        y = b.add(name, x)
    else:
        y = b.add(name, shape=list(b.shape()) or [1])
    b.tensors.remove(y)
    return b.add("Shape", y)


@generates(4)
def text(b: Builder):
    """Operators on strings."""
    x = b.fresh(b.shape(b.choice((0, 1, 1, 2))), strings, 0.2)
    name = b.choice(("StringNormalizer", "StringConcat", "StringSplit", "RegexFullMatch",
                     "Identity", "Shape", "Reshape"))  # fmt: skip
    if name == "StringNormalizer":
        if b.opset < 10:
            raise RejectedError("StringNormalizer came with opset 10")
        x = b.fresh((b.integer(1, 5),), _without_accents, 0.2)  # the reference strips them
        return b.add(name, x, case_change_action=b.choice(("LOWER", "UPPER", "NONE")),
                     is_case_sensitive=b.integer(0, 1), locale="C.UTF-8",
                     stopwords=["a", "the cat"])  # fmt: skip
    if name in ("Identity", "Shape"):
        return b.add(name, x)
    if name == "Reshape":
        return b.add(name, x, np.array([-1]))
    if b.opset < 20:
        raise RejectedError("strings came with opset 20")
    if name == "StringConcat":
        return b.add(name, x, b.fresh(x.shape, strings, 0.4))
    if name == "RegexFullMatch":
        return b.add(name, x, pattern=b.choice(("[a-z]*", "a|b", ".*c.*", r"-?\d+(\.\d)?")))
    return b.add(name, x, outputs=2, delimiter=b.choice((None, " ", "b", "")),
                 maxsplit=b.choice((None, 1, 2)))  # fmt: skip


def _without_accents(rng, shape):
    words = strings(rng, shape)
    return np.where(words == "äöü", "Zu", words).astype(object)


@generates(4)
def sequences(b: Builder):
    """Sequences, and back to a tensor."""
    if b.opset < 11:
        raise RejectedError("sequences came with opset 11")
    x = anything(b, least_rank=1)
    if b.chance(0.4):
        parts = indices(b, b.integer(1, 3)) if b.chance(0.6) else None
        axis = b.integer(0, x.rank - 1)
        s = b.add("SplitToSequence", x, parts, axis=axis, keepdims=b.integer(0, 1))
    else:
        s = b.add("SequenceConstruct", *([x] * b.integer(1, 3)))
    length = len(s.value)
    if b.chance(0.4):
        s = b.add("SequenceInsert", s, x, indices(b, b.integer(0, length)))
    if b.chance(0.3) and length > 1:
        s = b.add("SequenceErase", s, indices(b, b.integer(-length, length - 1)))
    ends = {0: "SequenceLength", 1: "SequenceAt", 2: "ConcatFromSequence"}
    end = ends[b.integer(0, 2)]
    if end == "SequenceLength":
        return b.add(end, s)
    if end == "SequenceAt":
        count = len(s.value)
        return b.add(end, s, indices(b, b.integer(-count, max(count - 1, 0))))
    return b.add(end, s, axis=0, new_axis=b.integer(0, 1))


@generates(1)
def optionals(b: Builder):
    """Optional, OptionalHasElement, OptionalGetElement."""
    if b.opset < 18:
        raise RejectedError("generated from opset 18 on")
    x = anything(b)
    return b.add(b.choice(("OptionalHasElement", "OptionalGetElement")), x)


@generates(1)
def counted(b: Builder):
    """TfIdfVectorizer."""
    if b.opset < 9:
        raise RejectedError("TfIdfVectorizer came with opset 9")
    x = b.fresh((b.integer(1, 2), b.integer(1, 8)), integers(np.int32, 0, 5))
    return b.add("TfIdfVectorizer", x, mode=b.choice(("TF", "IDF", "TFIDF")), min_gram_length=1,
                 max_gram_length=2, max_skip_count=b.integer(0, 2), ngram_counts=[0, 3],
                 ngram_indexes=[0, 1, 2, 3, 4], pool_int64s=[1, 2, 3, 1, 2, 3, 4],
                 weights=[0.5, 1.0, 2.0, 3.0, 0.25])  # fmt: skip


@generates(1)
def constants(b: Builder):
    """Constant in all its forms."""
    if b.opset < 12:
        raise RejectedError("these forms came with opset 12")
    form = b.choice(({"value_float": 0.5}, {"value_floats": [1.0, 2.0]}, {"value_int": 3},
                     {"value_ints": [1, 2, 3]}, {"value_string": "a"}))  # fmt: skip
    return b.add("Constant", **form)


@generates(1)
def conversions(b: Builder):
    """A chain of casts through narrow types."""
    x = b.fresh(b.shape(), suited(b.choice(INTS)), 0.1)
    y = b.add("Cast", x, to=helper.np_dtype_to_tensor_dtype(np.dtype("f4")))
    return b.add("Cast", y, to=helper.np_dtype_to_tensor_dtype(np.dtype("f2")))
