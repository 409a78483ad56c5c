"""Rows that a Slice leaves out are not computed; judges are NumPy and OpenVINO."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.ops.activation import Gelu
from polydevice.ops.arithmetic import Add, Multiply
from polydevice.ops.matmul import MatMul
from polydevice.ops.normalization import MVN, EpsMode
from polydevice.ops.slice import Slice
from polydevice.ops.softmax import SoftMax
from tests.gpu.graphs import Sketch, SparingBuilder, check_answers, compiled, loaded

TOKENS, WIDTH = 11, 24


NORM = MVN(normalize_variance=True, eps=1e-5, eps_mode=EpsMode.INSIDE_SQRT)


def _norm(s, x, name):
    y = s.add(name, NORM, x, s.const(f"{name}/axes", np.array([-1])))
    y = s.add(f"{name}/scaled", Multiply(), y, s.weights(f"{name}/gamma", WIDTH))
    return s.add(f"{name}/shifted", Add(), y, s.weights(f"{name}/beta", WIDTH))


def _product(s, x, name, terms, columns):
    y = s.add(name, MatMul(), x, s.weights(f"{name}/w", terms, columns))
    return s.add(f"{name}/biased", Add(), y, s.weights(f"{name}/b", columns))


def _part(s, x, name, start=0, stop=1, step=1, axis=1):
    limits = (
        s.const(f"{name}/{n}", np.array([v])) for n, v in enumerate((start, stop, step, axis))
    )
    return s.add(name, Slice(), x, *limits)


def _block(s, x):
    """What stands behind an attention: tokens meet in `mixed`, and no more after it."""
    y = s.add("mixed", SoftMax(axis=1), x)
    x = s.add("sum", Add(), x, _product(s, y, "out", WIDTH, WIDTH))
    y = s.add("gelu", Gelu(), _product(s, _norm(s, x, "norm"), "up", WIDTH, 2 * WIDTH))
    x = s.add("sum2", Add(), x, _product(s, y, "down", 2 * WIDTH, WIDTH))
    return _norm(s, x, "last")


def _network(build, batch=2):
    s = Sketch()
    return s.network(**build(s, s.input("x", batch, TOKENS, WIDTH)))


def _rows(graph):
    return {n.name: n.output.shape[-2] for n in graph.nodes if isinstance(n.op, MatMul)}


@pytest.mark.parametrize(
    ("start", "stop", "step", "count"), [(0, 1, 1, 1), (-1, 99, 1, 1), (1, 8, 3, 3)]
)
def test_only_what_is_taken_is_computed(opencl, start, stop, step, count):
    network = _network(lambda s, x: {"y": _part(s, _block(s, x), "part", start, stop, step)})
    assert _rows(compiled(network)) == {"out": count, "up": count, "down": count}
    check_answers(network, opencl, SparingBuilder(opencl))


def _two_parts(s, x):
    y = _block(s, x)
    return {"y": _part(s, y, "part"), "z": _part(s, y, "other", 1, 2)}


def _twice(s, x):
    y = _block(s, x)
    return {"y": _part(s, y, "part"), "z": s.add("same", Gelu(), _part(s, y, "again"))}


def test_two_who_take_the_same():
    assert set(_rows(compiled(_network(_twice))).values()) == {1}


def _norm_of_tokens(s, x):
    return s.add("n", NORM, _product(s, x, "out", WIDTH, WIDTH), s.const("a", np.array([1])))


WHOLE = {
    "all are a result": lambda s, x: {"y": _part(s, (y := _block(s, x)), "part"), "z": y},
    "two parts": _two_parts,
    "most rows": lambda s, x: {"y": _part(s, _block(s, x), "part", 0, 9)},
    "columns": lambda s, x: {"y": _part(s, _product(s, x, "out", WIDTH, 48), "part", axis=2)},
    "normalised along it": lambda s, x: {"y": _part(s, _norm_of_tokens(s, x), "part")},
}


@pytest.mark.parametrize("case", WHOLE)
def test_rows_that_others_want_are_computed(case):
    assert set(_rows(compiled(_network(WHOLE[case]))).values()) == {TOKENS}


def test_without_products_nothing_moves():
    graph = compiled(_network(lambda s, x: {"y": _part(s, s.add("gelu", Gelu(), x), "part")}))
    assert any(node.output.shape[1] == TOKENS for node in graph.nodes)


def test_half_of_the_middle_is_read_where_it_lies(core, opencl):
    s = Sketch()
    x = s.input("x", 3, TOKENS, WIDTH, kind=ElementType.f16)
    weights = np.random.default_rng(1).standard_normal((WIDTH, 8)).astype("f2")
    y = s.add("y", MatMul(), x, s.const("w", weights))
    network = s.network(y=_part(s, y, "part", 4, 5))
    given = np.random.default_rng(2).standard_normal((3, TOKENS, WIDTH)).astype("f2")
    (found,) = loaded(network, opencl, SparingBuilder(opencl), core).infer({"x": given}).values()
    right = given[:, 4:5].astype("f8") @ weights.astype("f8")
    np.testing.assert_allclose(found, right, 2e-3, 1e-2)
