"""Texts, n-grams and labels on CPU, compared with ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from polydevice.dtype import ElementType
from polydevice.ops.convert import Convert
from polydevice.ops.strings import (
    RegexFullMatch,
    StringNormalizer,
    StringSplit,
    TfIdfMode,
    TfIdfVectorizer,
)
from polydevice_cpu.algorithms.by_machine import texts as by_machine
from polydevice_cpu.algorithms.texts import labels, ngrams
from polydevice_cpu.algorithms.texts.labels import Labels
from polydevice_cpu.algorithms.texts.ngrams import Grams
from polydevice_cpu.implement import once, run
from polydevice_cpu.onednn.engine import address_of
from polydevice_cpu.ops import strings
from tests.guard_pages import SIDES, guarded

KINDS = {"O": TensorProto.STRING, "f": TensorProto.FLOAT, "i": TensorProto.INT64}


def in_both(core, node, feed, outputs=("y",), kinds=None, learned=4):
    """Run one operator here and in ONNX Runtime, and compare all outputs; return them."""
    info = helper.make_tensor_value_info
    given = [info(k, KINDS[v.dtype.kind], [None] * v.ndim) for k, v in feed.items()]
    wanted = [info(name, (kinds or {}).get(name, 0), None) for name in outputs]
    for name in wanted:
        if not (kinds or {}).get(name.name):
            name.ClearField("type")
    graph = helper.make_graph([node], "texts", given, wanted)
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", learned)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
    theirs = onnxruntime.InferenceSession(model).run(None, feed)
    with core.load_network(core.read_network(model), "CPU") as network:
        for _ in range(2):
            ours = network.infer(feed)
            for name, want in zip(outputs, theirs, strict=True):
                assert ours[name].shape == want.shape
                np.testing.assert_array_equal(ours[name], want)
    return theirs


def words(rng, *shape, choice=("", "a", "Bb", "äöü", "the", "The", "x.y", ".", "a..b.c", "𝄞")):
    return rng.choice(np.array(choice, object), shape)


@pytest.mark.parametrize(
    ("a", "b"), [((3, 4), (3, 4)), ((3, 4), (4,)), ((2, 1, 3), (4, 1)), ((), (5,)), ((0, 2), (2,))]
)
@pytest.mark.parametrize("at_once", [1 << 14, 5])
def test_joined(core, monkeypatch, a, b, at_once):
    monkeypatch.setattr(strings, "AT_ONCE", at_once)
    rng = np.random.default_rng(1)
    feed = {"a": np.asarray(words(rng, *a), object), "b": np.asarray(words(rng, *b), object)}
    in_both(core, helper.make_node("StringConcat", ["a", "b"], ["y"]), feed)


@pytest.mark.parametrize("delimiter", [".", "", "..", "b"])
@pytest.mark.parametrize("most", [None, 1, 2])
@pytest.mark.parametrize("at_once", [1 << 14, 5])
@pytest.mark.parametrize("choice", [("", "a", "x.y", ".", "a..b.c", "𝄞"), ("x.b", "..", "a b")])
def test_split(core, monkeypatch, delimiter, most, at_once, choice):
    monkeypatch.setattr(strings, "AT_ONCE", at_once)
    x = words(np.random.default_rng(2), 3, 7, choice=choice)
    given = {} if most is None else {"maxsplit": most}
    node = helper.make_node("StringSplit", ["x"], ["y", "n"], delimiter=delimiter, **given)
    in_both(core, node, {"x": x}, ("y", "n"))


@pytest.mark.parametrize(
    "op", [StringSplit("."), StringSplit(), RegexFullMatch("1|a.b"), StringNormalizer()]
)
def test_elements_that_are_no_texts_become_some(op):
    x = np.array([1, "a.b", np.str_("c"), None, 2.5, b"d.e"], object)
    for array, right in zip(run(op, [x]), run(op, [np.array(list(map(str, x)), object)])):
        np.testing.assert_array_equal(array, right)
        assert not array.dtype.hasobject or {*map(type, array.reshape(-1))} == {str}


@pytest.mark.parametrize("change", ["LOWER", "UPPER", "NONE"])
@pytest.mark.parametrize("sensitive", [0, 1])
@pytest.mark.parametrize("stop", [[], ["the", "A"], ["a", "the", "The", "bb"]])
def test_normalised(core, change, sensitive, stop):
    x = words(np.random.default_rng(3), 30, choice=("a", "Bb", "the", "The", "BB", "x.y", "A"))
    given = {"stopwords": stop} if stop else {}
    node = helper.make_node(
        "StringNormalizer", ["x"], ["y"], case_change_action=change,
        is_case_sensitive=sensitive, locale="C", **given,
    )  # fmt: skip
    in_both(core, node, {"x": x})


def pool(rng, tokens, sizes):
    """Random n-grams, none of them twice: what there is of each size, and where sizes begin."""
    found, starts = [], []
    for length, count in enumerate(sizes, 1):
        starts.append(len(found))
        grams = {tuple(rng.choice(tokens, length).tolist()) for _ in range(count)}
        found += [token for gram in sorted(grams) for token in gram]
    return found, starts


def count_of(found, starts):
    ends = [*starts[1:], len(found)]
    pairs = zip(starts, ends, strict=True)
    return sum((end - start) // n for n, (start, end) in enumerate(pairs, 1))


@pytest.mark.parametrize("kind", ["texts", "integers"])
@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize(
    ("shortest", "longest", "skip"), [(1, 1, 0), (1, 3, 0), (2, 3, 4), (2, 2, 9)]
)
@pytest.mark.parametrize("code", [True, False])
def test_n_grams(core, monkeypatch, kind, mode, shortest, longest, skip, code):
    if not code:
        monkeypatch.setattr(by_machine, "is_there", lambda: False)
    rng = np.random.default_rng(longest * 10 + skip)
    is_text = kind == "texts"
    tokens = np.array(list("abcde"), object) if is_text else np.array([-7, 0, 3, 900, 1 << 40])
    found, starts = pool(rng, tokens, (4, 6, 9))
    count = count_of(found, starts)
    columns = rng.permutation(count).tolist()
    node = helper.make_node(
        "TfIdfVectorizer", ["x"], ["y"], mode=mode, min_gram_length=shortest,
        max_gram_length=longest, max_skip_count=skip, ngram_counts=starts, ngram_indexes=columns,
        weights=rng.integers(1, 9, count).astype(float).tolist(),
        **{"pool_strings" if is_text else "pool_int64s": found},
    )  # fmt: skip
    others = (
        np.array([*tokens, "?", ""], object) if is_text else np.array([*tokens, 1, -8, 1 << 50])
    )
    for shape in ((5, 23), (1, 1), (40,), (2, 3)):
        in_both(core, node, {"x": rng.choice(others, shape)})


@pytest.mark.parametrize("columns", [(0, 1, 2, 3, 4), (3, 0, 4, 2, 1), (6, 0, 4, 2, 1)])
@pytest.mark.parametrize("far", [0, 1 << 20])
def test_columns_of_whole_tokens(columns, far):
    """Weights are the n-grams', which may have any column."""
    pool = (5, -3, 7 + far, 5, -3, 7 + far, 5)
    weights = (0.5, 2.0, 3.0, 4.0, 5.0)
    op = TfIdfVectorizer(pool, (0, 3), columns, 1, 2, 0, TfIdfMode.TFIDF, weights)
    least = np.iinfo(np.int64).min
    x = np.array([[5, -3, 5, 9], [7 + far, 5, -(1 << 62), 7 + far], [least, -4, 8, 1 << 62]])
    counts = [[2, 1, 0, 1, 0], [1, 0, 2, 0, 1], [0] * 5]  # of 5, -3, 7, (5, -3) and (7, 5)
    want = np.zeros((3, max(columns) + 1), np.float32)
    want[:, list(columns)] = np.array(counts) * np.array(weights)
    (got,) = run(op, [x])
    np.testing.assert_array_equal(got, want)
    if not far:
        (got,) = run(op, [np.clip(x, -(1 << 31), (1 << 31) - 1).astype(np.int32)])
        np.testing.assert_array_equal(got, want)


def test_n_grams_share_columns_and_beginnings():
    """By hand: "a b" and "b" share column 1, and "a b a" begins with "a b"."""
    op = TfIdfVectorizer(
        pool=("b", "a", "b", "a", "b", "a"),
        starts=(0, 1, 3),
        columns=(1, 1, 0),
        shortest=1,
        longest=3,
        longest_skip=0,
        mode=TfIdfMode.TFIDF,
        weights=(2.0, 0.5, 4.0),
    )
    (y,) = run(op, [np.array([["a", "b", "a", "b"], ["b", "b", "c", "a"]], object)])
    np.testing.assert_array_equal(y, [[4, 2 * 2 + 2 * 0.5], [0, 2 * 2]])


@pytest.mark.skipif(not by_machine.is_there(), reason="no machine code on this system")
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("tokens", [1, 2, 17])
def test_n_grams_are_counted_within_bounds(monkeypatch, side, tokens):
    """Next to pages that nobody may touch; distances and rows in parts give the same."""
    rng = np.random.default_rng(tokens)
    grams = Grams([(1,), (1, 2), (2, 2), (2, 2, 3), (3, 1, 1)], 1, 3, 50)
    ids = rng.integers(0, 4, (6, tokens)).astype(np.int32)
    given = guarded(side, ids.nbytes).view(np.int32).reshape(ids.shape)
    given[...] = ids
    counts = guarded(side, 6 * grams.count * 4).view(np.int32)
    counts[:] = 0
    places = address_of(given), address_of(counts), *grams._places
    distances = range(1, max(tokens - 1, 1) + 1)
    by_machine.count_grams(places, len(grams._table) - 1, 6, tokens, distances, 3, grams.count)
    monkeypatch.setattr(ngrams, "AT_ONCE", tokens)
    np.testing.assert_array_equal(counts.reshape(6, -1), grams.counted(ids.astype(np.int64)))


def test_crowded_branches_are_not_looked_for_by_code(monkeypatch):
    monkeypatch.setattr(ngrams, "MOST_PROBES", 0)
    many = [(first, second) for first in range(30) for second in range(30)]
    grams = Grams(many, 2, 2, 1)
    assert grams._table is None
    x = np.random.default_rng(0).integers(0, 30, (3, 50))
    counts = grams.counted(x)
    for row, found in zip(x, counts, strict=True):
        pairs = np.stack([row[:-1], row[1:]], 1)
        np.testing.assert_array_equal(found, [(pairs == gram).all(1).sum() for gram in many])


@pytest.mark.parametrize("spread", [3, 1 << 20])
@pytest.mark.parametrize("values", ["strings", "int64s", "floats"])
@pytest.mark.parametrize("keys", ["strings", "int64s", "floats"])
def test_labels(core, spread, keys, values):
    rng = np.random.default_rng(spread)
    numbers = [-spread, 0, 2, spread, 2 * spread]
    listed = {
        "strings": [f"k{number}" for number in numbers],
        "int64s": numbers,
        "floats": [*map(float, numbers[:-1]), float("nan")],
    }
    results = {"strings": list("vwxyz"), "int64s": [4, -1, 9, 9, 0], "floats": [0.5, 1, -2, 3, 9]}
    defaults = {"strings": "none", "int64s": -5, "floats": -0.25}
    node = helper.make_node(
        "LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml",
        **{f"keys_{keys}": listed[keys], f"values_{values}": results[values]},
        **{f"default_{values.removesuffix('s')}": defaults[values]},
    )  # fmt: skip
    others = {
        "strings": ["?", "", "k"],
        "int64s": [1, -(1 << 63), (1 << 63) - 1, 3 * spread],
        "floats": [1.5, np.inf, -np.inf, -0.0],
    }
    x = [*listed[keys], *others[keys]] * 3
    kind = {"strings": object, "int64s": np.int64, "floats": np.float32}[keys]
    in_both(core, node, {"x": rng.permutation(np.array(x, kind)).reshape(3, -1)})


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.int64, np.uint8, np.uint64])
def test_labels_of_narrow_and_wide_integers(kind):
    table = Labels([3, 0, 100, 3], [1.5, 2, 3, 4], -1, np.dtype(np.float32))
    x = np.array([[0, 1, 2], [3, 100, 101]], kind)
    np.testing.assert_array_equal(table.of(x), [[2, -1, -1], [4, 3, -1]])
    np.testing.assert_array_equal(table.of(x.T), np.float32([[2, 4], [-1, 3], [-1, -1]]))
    assert table.of(x).dtype == np.float32
    for number, label in ((100, "c"), (7, "?")):
        one = Labels([3, 100], ["b", "c"], "?", np.dtype(object)).of(np.array(number, kind))
        assert one.shape == ()
        assert one.item() == label
    assert labels.MOST_SPREAD > 100


@pytest.mark.parametrize("to_texts", [False, True])
@pytest.mark.parametrize("kind", ["LabelEncoder", "CategoryMapper"])
def test_labels_of_the_first_version(core, kind, to_texts):
    texts, numbers = ["a", "b", "äöü"], [7, -2, 0]
    given = {"classes_strings": texts}
    if kind == "CategoryMapper":
        given = {"cats_strings": texts, "cats_int64s": numbers}
    node = helper.make_node(
        kind, ["x"], ["y"], domain="ai.onnx.ml", default_int64=-9, default_string="?", **given
    )
    x = np.array([[*numbers], [1, 2, 5]]) if to_texts else np.array([[*texts], list("xab")], object)
    result = TensorProto.STRING if to_texts else TensorProto.INT64
    in_both(core, node, {"x": x}, kinds={"y": result}, learned=1)


@pytest.mark.parametrize("ordered", [0, 1])
@pytest.mark.parametrize("size", [1, 40])
def test_distinct_texts(core, ordered, size):
    x = words(np.random.default_rng(size), size, choice=(*"zyxabc", "", "ab", "B"))
    node = helper.make_node("Unique", ["x"], ["y", "i", "r", "n"], sorted=ordered)
    in_both(core, node, {"x": x}, ("y", "i", "r", "n"))


@pytest.mark.parametrize("to", [TensorProto.INT64, TensorProto.FLOAT, TensorProto.DOUBLE])
def test_numbers_that_texts_say(core, to):
    x = np.array([["1", "-20", "0"], ["+7", "123456789", "-0"]], object)
    if to != TensorProto.INT64:
        x[0, 0], x[1, 1] = "1.5e3", "NaN"
    in_both(core, helper.make_node("Cast", ["x"], ["y"], to=to), {"x": x}, kinds={"y": to})


def test_texts_that_integers_become(core):
    x = np.array([[0, -1, 1 << 62], [-(1 << 63), 7, 10]])
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.STRING)
    in_both(core, node, {"x": x}, kinds={"y": TensorProto.STRING})


def test_texts_that_other_numbers_become():
    """As Python writes them, of which ONNX Runtime keeps eight digits; worked by hand."""
    x = np.array([0.1, -2.5, 1e16, 1e-5, np.nan, -np.inf, 606239244072.0, -0.0])
    texts = ["0.1", "-2.5", "1e+16", "1e-05", "nan", "-inf", "606239244072.0", "-0.0"]
    (made,) = run(Convert(ElementType.string), [x.reshape(2, 4)])
    assert made.reshape(-1).tolist() == texts
    (made,) = run(Convert(ElementType.string), [np.array([True, False])])
    assert made.tolist() == ["True", "False"]


@pytest.mark.parametrize(
    "names", [["b", "a", "c", "zz"], [3, -1, 2, 0], ["one"], [*range(299, -1, -1)]]
)
def test_maps_of_scores(core, names):
    """ONNX Runtime's, too, are in the order of the labels."""
    kind = "classlabels_strings" if isinstance(names[0], str) else "classlabels_int64s"
    node = helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", **{kind: names})
    x = np.random.default_rng(0).random((5, len(names)), np.float32)
    info = helper.make_tensor_value_info
    key = onnx.TensorProto.STRING if isinstance(names[0], str) else onnx.TensorProto.INT64
    element = helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [])
    map_ = onnx.TypeProto(map_type=onnx.TypeProto.Map(key_type=key, value_type=element))
    result = onnx.ValueInfoProto(name="y", type=helper.make_sequence_type_proto(map_))
    given = info("x", TensorProto.FLOAT, [None, len(names)])
    graph = helper.make_graph([node], "maps", [given], [result])
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
    (want,) = onnxruntime.InferenceSession(model).run(None, {"x": x})
    with core.load_network(core.read_network(model), "CPU") as network:
        got = list(network.infer({"x": x})["y"])
    assert got == want
    assert [list(each) for each in got] == [sorted(names)] * 5


def test_what_is_computed_once_goes_with_its_operation():
    made = []

    @once
    def noted(op):
        made.append(op.pool)
        return len(made)

    def op(pool):
        return TfIdfVectorizer((pool,), (0,), (0,), 1, 1, 0, TfIdfMode.TF)

    first, second = op("a"), op("a")
    assert [noted(first), noted(second), noted(first), noted(second)] == [1, 2, 1, 2]
    for _ in range(50):  # others lie where they were
        del first
        first = op("b")
        assert noted(first) == len(made)
