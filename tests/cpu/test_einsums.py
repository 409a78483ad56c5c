"""Einsum becomes matrix products, whether its sizes are known or not."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest

from tests.cpu import models
from tests.cpu.loading import image, steps


def test_einsums_become_products(core):
    """As attention is written with them: a softmax of products, and products of it."""
    nodes = [
        ("Einsum", ["q", "k"], ["a"], {"equation": "nhci,nhcj->nhij"}),
        ("Softmax", ["a"], ["p"], {"axis": -1}),
        ("Einsum", ["p", "v"], ["y"], {"equation": "nhij,nhcj->nhci"}),
    ]
    model = models.build(nodes, {name: [2, 3, 4, 5] for name in "qkv"}, ["y"], {})
    inputs = {name: image(seed, 2, 3, 4, 5) for seed, name in enumerate("qkv")}
    executable = core.load_network(core.read_network(model), "CPU")
    (want,) = models.answer(model, inputs)
    np.testing.assert_allclose(executable.infer(inputs)["y"], want, rtol=1e-4, atol=1e-5)
    assert not any("Einsum" in step for step in steps(executable))


EINSUMS = [
    ("ij,jk->ik", "3,4 4,5", "1,4 4,1", "3,1 4,5", "3,4 1,5", "0,4 4,5", "3,0 0,5"),
    ("bhqd,bhkd->bhqk", "2,3,4,5 2,3,6,5", "1,3,4,5 2,3,6,5", "2,3,4,5 2,1,6,1"),
    ("...ij,...jk->...ik", "2,1,3,4 5,4,6", "1,1,3,4 1,4,6"),
    ("abc,abe->ce", "2,3,4 2,3,5", "1,3,4 2,3,5", "2,1,4 1,3,5", "2,0,4 2,0,5"),
    ("bhwc,bc->bhw", "2,3,4,5 2,5", "2,3,4,1 1,5"),
    ("ab,cd->dbca", "2,3 4,5", "1,1 1,5"),
    ("i,bij->bji", "3 2,3,4", "1 2,3,4"),
    ("b...a , ab -> ...b", "3,2,4 4,3", "3,2,1 4,3"),
    ("ij,jk,kl->il", "2,3 3,4 4,5", "2,3 1,4 1,5"),
]


@pytest.mark.parametrize("known", ["", "aj", "bik"])
@pytest.mark.parametrize("equation", EINSUMS, ids=lambda each: each[0])
def test_einsums_of_unknown_sizes_become_products(core, equation, known):
    """Sizes may turn out as 1 and stretch; NumPy tells what comes out. `known` are labels."""
    text, *sets = equation
    sets = [[tuple(map(int, one.split(","))) for one in each.split()] for each in sets]
    terms = text.replace(" ", "").partition("->")[0].split(",")
    filled = [
        t.replace("...", "." * (3 + len(n) - len(t))) for t, n in zip(terms, sets[0], strict=True)
    ]
    opened = [
        [n if label in known else "?" for label, n in zip(term, shape, strict=True)]
        for term, shape in zip(filled, sets[0], strict=True)
    ]
    inputs = {f"x{i}": names for i, names in enumerate(opened)}
    node = ("Einsum", list(inputs), ["y"], {"equation": text})
    model = models.build([node], inputs, ["y"], {})
    request = core.load_network(core.read_network(model), "CPU").create_infer_request()
    for number, shapes in enumerate([*sets, sets[0], *sets]):
        pairs = zip(chain(*opened), chain(*shapes), strict=True)
        if all(size in ("?", n) for size, n in pairs):
            given = {f"x{i}": image(number + i, *shape) for i, shape in enumerate(shapes)}
            want = np.einsum(text, *(x.astype(np.float64) for x in given.values()))
            np.testing.assert_allclose(request.infer(given)["y"], want, rtol=1e-4, atol=1e-5)
            assert not any("Einsum" in step.type for step in request.runner.bound.plan.steps)
