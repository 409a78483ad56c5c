"""Products of matrices, large enough for OpenBLAS to take several threads, or not; f64 judges."""

from __future__ import annotations

import resource

import numpy as np
import pytest

from polydevice_cpu.algorithms import product as module
from polydevice_cpu.algorithms.product import product
from polydevice_cpu.onednn.library import library
from polydevice_cpu.onednn.openmp import threads
from tests.cpu.loading import load
from tests.cpu.models import build

F = np.float32


def matrices(rng, *shape):
    """The same numbers row by row, column by column, in part of others, and with gaps."""
    plain = rng.normal(size=shape).astype(F)
    wide = np.zeros((*shape[:-1], shape[-1] + 3), F)
    wide[..., : shape[-1]] = plain
    gaps = np.zeros((*shape[:-1], 2 * shape[-1]), F)
    gaps[..., ::2] = plain
    turned = np.ascontiguousarray(plain.swapaxes(-1, -2)).swapaxes(-1, -2)
    return plain, wide[..., : shape[-1]], gaps[..., ::2], turned, plain[..., ::-1, ::-1]


@pytest.mark.parametrize(
    ("sizes", "batch"),
    [
        *(((70, 80, 90), ((), ())), ((70, 80, 90), ((2, 1), (3,))), ((3, 5, 2), ((), ()))),
        *(((1, 600, 700), ((), (2,))), ((300, 1, 900), ((), ())), ((9, 8, 70), ((100,), (1,)))),
    ],
)
def test_products(sizes, batch):
    rng = np.random.default_rng(sizes[0])
    rows, terms, columns = sizes
    left = matrices(rng, *batch[0], rows, terms)
    right = matrices(rng, *batch[1], terms, columns)
    for number, a in enumerate(left):
        for b in right:
            want = np.matmul(a.astype(float), b.astype(float))
            np.testing.assert_allclose(product(a, b), want, rtol=1e-4, atol=1e-4)
            out = matrices(rng, *want.shape)[number % 4]
            assert product(a, b, out) is out
            np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-4)


def test_what_is_no_matrix_of_f32():
    rng = np.random.default_rng(0)
    for a, b in (((800,), (800, 900)), ((900, 800), (800,)), ((0, 800), (800, 900))):
        x, y = rng.normal(size=a).astype(F), rng.normal(size=b).astype(F)
        np.testing.assert_allclose(product(x, y), x @ y, rtol=1e-4, atol=1e-3)
    x = rng.normal(size=(100, 100))
    np.testing.assert_array_equal(product(x, x), x @ x)
    with pytest.raises(ValueError, match="mismatch"):
        product(np.ones((100, 200), F), np.ones((100, 200), F))


@pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")
def test_large_ones_take_the_threads_there_are(monkeypatch):
    """One thread's time is all of the process's; OpenBLAS would add that of its own."""
    monkeypatch.setattr(module.np, "matmul", None)
    x = np.ones((500, 500), F)
    with threads(1):
        product(x, x)
        usages = resource.RUSAGE_SELF, resource.RUSAGE_THREAD
        before = [resource.getrusage(who).ru_utime for who in usages]
        for _ in range(30):
            product(x, x)
        process, thread = (
            resource.getrusage(who).ru_utime - then for who, then in zip(usages, before)
        )
    assert process < 1.5 * thread + 0.05


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("constant", ["", "a", "b"])
@pytest.mark.parametrize(
    "shapes",
    [
        *(((5,), (5,)), ((1,), (1,)), ((5,), (5, 3)), ((5,), (4, 2, 5, 3)), ((64,), (64, 100))),
        *(((3, 5), (5,)), ((1, 5), (5,)), ((4, 2, 3, 5), (5,)), ((700, 33), (33,))),
        *(((17,), (3, 17, 20)), ((2, 1, 5), (5,))),
    ],
)
def test_vectors(core, shapes, constant, turned, is_open):
    """Whole or transposed matrices times vectors, of known sizes and of open ones."""
    rng = np.random.default_rng(len(shapes[0]))
    nodes, names, given = [], [], {}
    for name, shape in zip("ab", shapes, strict=True):
        given[name] = rng.normal(size=shape).astype(F)
        names.append(name)
        if turned and len(shape) > 1:
            names[-1] = f"{name} turned"
            order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
            nodes.append(("Transpose", [name], [names[-1]], {"perm": order}))
    wanted = np.matmul(*(x.astype(np.float64) for x in given.values()))
    if turned:
        given = {name: x.swapaxes(-1, -2) if x.ndim > 1 else x for name, x in given.items()}
    given = {name: np.ascontiguousarray(x) for name, x in given.items()}
    nodes += [("MatMul", names, ["c"], {}), ("Neg", ["c"], ["y"], {})]
    constants = {constant: given.pop(constant)} if constant else {}
    sizes = {
        name: [f"{name}{n}" for n in range(x.ndim)] if is_open else x.shape
        for name, x in given.items()
    }
    request = load(core, build(nodes, sizes, ["y"], constants)).create_infer_request()
    for _ in range(2):
        found = request.infer(given)["y"]
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, -wanted, rtol=1e-4, atol=1e-5)
