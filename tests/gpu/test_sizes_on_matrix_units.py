"""What is made ahead for a device with matrix units serves all sizes; nothing is launched here."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from polydevice import Core
from polydevice_gpu import cl
from polydevice_gpu.compiler import compiler
from polydevice_gpu.kernels.target import Target
from tests.cpu import models
from tests.cpu.loading import image
from tests.gpu.graphs import loaded
from tests.gpu.open_networks import attention, positions, residual

HOPPER = Target(
    scalar_lanes=32, vector_width=4, compute_units=132, local_memory_bytes=49152,
    max_work_group_size=1024, matrix_unit=True, async_copy=True, warp_group_unit=True,
    warp_shuffle=True, byte_product="ptx",
)  # fmt: skip


class _Named:
    """A program, or a kernel of it, that is never launched."""

    from_cache = False
    max_work_group_size = HOPPER.max_work_group_size

    def kernel(self, name):
        self.program = self
        return self


class _NamingBuilder(cl.ProgramBuilder):
    """Notes what it is to compile, which this machine may have no compiler for."""

    def __init__(self, device):
        super().__init__(device)
        self.compiled = []
        self.made = []

    def _compile(self, name, source, key, options):
        self.compiled.append(name)
        self.made.append(_Named())  # programs that nobody holds are forgotten
        return self.made[-1]

    def _load(self, name, key, options):
        return None

    _compiled_apart = _load

    def _compile_side_by_side(self, sources, keyed):
        pass

    def load_ahead(self, source, pool):
        return None


def styled(sizes):
    """Convolutions in steps of two and back, each behind rows of whole pictures."""
    weights = {
        "a": image(1, 12, 3, 3, 3), "b": image(2, 20, 12, 3, 3), "c": image(3, 20, 12, 4, 4),
        "d": image(4, 12, 3, 3, 3), **{f"{n}": np.ones(n, np.float32) for n in (12, 20)},
    }  # fmt: skip
    nodes = []
    near = "x"
    for name, kind, channels, attributes in (
        ("a", "Conv", 12, {"pads": [1] * 4, "strides": [2, 2]}),
        ("b", "Conv", 20, {"pads": [1] * 4, "strides": [2, 2]}),
        ("c", "ConvTranspose", 12, {"pads": [1] * 4, "strides": [2, 2]}),
    ):
        n = str(channels)
        nodes += [
            (kind, [near, name], [f"{name}0"], attributes),
            ("InstanceNormalization", [f"{name}0", n, n], [f"{name}1"], {}),
            ("Relu", [f"{name}1"], [f"{name}2"], {}),
        ]
        near = f"{name}2"
    nodes += [
        ("ConvTranspose", [near, "d"], ["z"], {"strides": [3, 3]}),
        ("Transpose", ["z"], ["turned"], {"perm": [0, 3, 1, 2]}),
        ("Sigmoid", ["turned"], ["y"], {}),
    ]
    model = models.build(nodes, {"x": [1, 3, "height", "width"]}, ["y"], weights)
    return model, [image(k, 1, 3, *size) for k, size in enumerate(sizes)]


def rounded(sizes):
    """Products of what is rounded at run time, shares of rows, and numbers of each row."""
    weights = {
        "w": np.arange(24 * 40, dtype=np.int64).reshape(24, 40).astype(np.int8),
        "scale": np.array(0.01, np.float32), "zero": np.array(3, np.int8),
    }  # fmt: skip
    nodes = [
        ("DynamicQuantizeLinear", ["x"], ["q", "s", "o"], {}),
        ("MatMulInteger", ["q", "w", "o", "zero"], ["sum"], {}),
        ("Cast", ["sum"], ["float"], {"to": 1}),
        ("Mul", ["s", "scale"], ["both"], {}),
        ("Mul", ["float", "both"], ["made"], {}),
        ("Transpose", ["made"], ["turned"], {"perm": [0, 2, 1]}),
        ("MatMul", ["made", "turned"], ["scores"], {}),
        ("Softmax", ["scores"], ["y"], {"axis": -1}),
        ("LayerNormalization", ["made", "forty"], ["z"], {"axis": -1}),
    ]
    weights["forty"] = image(5, 40)
    model = models.build(nodes, {"x": ["n", "length", 24]}, ["y", "z"], weights)
    return model, [image(k, *size, 24) for k, size in enumerate(sizes)]


def cached(sizes):
    """Attention to what came before and to what comes, under a mask as long as both; scaled."""
    weights = {name: image(k, 24, 24) for k, name in enumerate("qkv")}
    weights["one"] = np.array([1], np.int64)
    nodes = [
        *(("MatMul", ["x", name], [f"{name}x"], {}) for name in "qkv"),
        ("Concat", ["past", "kx"], ["keys"], {"axis": 1}),
        ("Transpose", ["keys"], ["turned"], {"perm": [0, 2, 1]}),
        ("MatMul", ["qx", "turned"], ["scores"], {}),
        ("Unsqueeze", ["mask", "one"], ["masks"], {}),
        ("Add", ["scores", "masks"], ["masked"], {}),
        ("Softmax", ["masked"], ["shares"], {"axis": -1}),
        ("Concat", ["past", "vx"], ["values"], {"axis": 1}),
        ("MatMul", ["shares", "values"], ["mixed"], {}),
        ("Mul", ["mixed", "scale"], ["y"], {}),
    ]
    given = {"x": ["n", "new", 24], "mask": ["n", "all"], "past": ["n", "past", 24], "scale": []}
    return models.build(nodes, given, ["y"], weights), [
        {
            "x": image(k, n, new, 24),
            "mask": image(k, n, new + past),
            "past": image(k, n, past, 24),
            "scale": image(k),
        }
        for k, (n, new, past) in enumerate(sizes)
    ]


_random = np.random.default_rng(5)
LENGTHS = [2, 3, 8, 64, 96, 125, 128, 130, *_random.integers(2, 1500, 30).tolist()]
PICTURES = [(32, 32), (60, 48), (44, 44), *_random.integers(16, 300, (20, 2)).tolist()]
ROWS = [(1, 1), (1, 64), (7, 1), (4, 129), *_random.integers(1, 300, (20, 2)).tolist()]
CASES = {
    "attention": (attention, LENGTHS),
    "positions": (positions, [length for length in LENGTHS if length <= 512]),
    "residual": (residual, PICTURES),
    "styled": (styled, PICTURES),
    "rounded": (rounded, ROWS),
    "cached": (cached, [(1, 1, 1), (1, 1, 40), (3, 7, 64), *_random.integers(1, 200, (20, 3))]),
}


@pytest.fixture
def load(opencl, monkeypatch):
    """Loads a model as for a device that it is not run on."""
    monkeypatch.setattr(compiler, "target_of", lambda device: HOPPER)
    builder = _NamingBuilder(opencl)

    def load(model):
        with Core() as core:
            return loaded(core.read_network(model), opencl, builder), builder

    return load


@pytest.mark.parametrize("case", CASES)
def test_what_is_made_ahead_serves_all_sizes(case, load):
    make, sizes = CASES[case]
    model, inputs = make(sizes)
    executable, builder = load(model)
    assert builder.compiled
    builder.compiled.clear()
    templates = executable._prepared.templates
    given = [
        tuple(x.shape for x in (each.values() if case == "cached" else [each])) for each in inputs
    ]
    lacking = [shapes for shapes in given if not templates.serves(shapes)]
    assert lacking == []
    assert builder.compiled == []


def test_what_would_be_chosen_is_found_out_when_somebody_asks(load):
    model, _ = styled([])
    executable, _ = load(model)
    sizes = [int(size) for size in np.random.default_rng(7).integers(40, 400, 12)]
    for first, second in pairwise(sizes):
        shapes = ((1, 3, first, second),)
        plan = executable._compile(shapes)
        assert (plan.undecided is None) == (not plan.doubts)
        doubts = plan.doubts
        assert not doubts or plan.wanted_choices == doubts
        others = plan.others
        assert plan.undecided is None
        assert {number for number, _ in others} == plan.doubts <= doubts
        stand = [n for n in plan.graph.nodes if n.choice is not None and n.choice.stands_for]
        assert len(stand) <= len(others)
        plan.template.accepted.add(others)  # as if these were not faster
        again = executable._compile(shapes)
        assert again.others == frozenset()
        assert not again.doubts
    assert doubts
