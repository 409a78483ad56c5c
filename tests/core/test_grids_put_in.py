"""ScatterNDUpdate of places that are computed, of one line for each axis, scatters nothing."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

from polydevice import Core
from polydevice.ops.scatter import ScatterNDUpdate
from polydevice.rewrites import Wishes, always, rewrite
from polydevice_cpu.implement import evaluate

HIGH, WIDE = 9, 5
"""Sizes of x behind its batch."""

WHOLE = "0", "total", "1"


def constant(values) -> str:
    numbers = ", ".join(map(str, values))
    return f"Constant <value = int64[{len(values)}] {{{numbers}}}> ()"


def written(
    rows=range(HIGH),
    columns=range(WIDE),
    batch: tuple[str, str, str] = WHOLE,
    summed: str = "c0 c1 c2",
    told: str = "x",
    axes: str = "u0, u1, u2",
    reduction: str = "none",
    compared: str = "open",
) -> onnx.ModelProto:
    """As exporters write `x[:, rows, columns] = updates` of an open batch.

    Args:
        rows: which of x, as columns.
        batch: start, stop and step of the numbers along the first axis.
        summed: of what the sum is that tells the places' shape.
        told: of what the number of items is.
        axes: the places' coordinates.
        reduction: of ScatterND.
        compared: with what the grid's sizes are, which are 1 where they are equal.
    """
    first, second, third = summed.split()
    text = f"""
    <ir_version: 10, opset_import: ["" : 18]>
    net (float[n, {HIGH}, {WIDE}] x, float[n, h, w] updates, float[k] other)
        => (float[n, {HIGH}, {WIDE}] y) {{
        zero = Constant <value = int64 {{0}}> ()
        total_of = Shape({told})
        total = Gather <axis = 0> (total_of, zero)
        start = Constant <value = int64 {{{batch[0]}}}> ()
        half = Constant <value = int64 {{2}}> ()
        fewer = Sub(total, half)
        step = Constant <value = int64 {{{batch[2]}}}> ()
        numbers = Range(start, {batch[1]}, step)
        upright = {constant([-1, 1, 1])}
        c0 = Reshape(numbers, upright)
        r1 = {constant(rows)}
        standing = {constant([-1, 1])}
        c1 = Reshape(r1, standing)
        c2 = {constant(columns)}
        part = Add({first}, {second})
        all = Add(part, {third})
        sizes = Shape(all)
        open = {constant([-1, -1, -1])}
        ones = {constant([1, 1, 1])}
        are_open = Equal(sizes, {compared})
        grid = Where(are_open, ones, sizes)
        last = {constant([-1])}
        e0 = Expand(c0, grid)
        e1 = Expand(c1, grid)
        e2 = Expand(c2, grid)
        u0 = Unsqueeze(e0, last)
        u1 = Unsqueeze(e1, last)
        u2 = Unsqueeze(e2, last)
        places = Concat <axis = -1> ({axes})
        put = ScatterND <reduction = "{reduction}"> (x, places, updates)
        few = Constant <value_float = 0.5> ()
        y = Mul(put, few)
    }}"""
    model = onnx.parser.parse_model(text)
    if told == "x":
        del model.graph.input[2]
    return model


def is_scattered(model: onnx.ModelProto) -> bool:
    with Core() as core:
        network = core.read_network(model.SerializeToString())
        rewrite(network, Wishes(decompose={ScatterNDUpdate: always}), evaluate)
        return any(isinstance(node.op, ScatterNDUpdate) for node in network.nodes())


def check(device: str, model: onnx.ModelProto, *counts: int) -> None:
    """Compare with ONNX's reference for so many items, one after the other."""
    rng, reference = np.random.default_rng(len(counts)), ReferenceEvaluator(model)
    stored = {node.output[0]: node.attribute for node in model.graph.node}
    wide = [len(onnx.numpy_helper.to_array(stored[name][0].t)) for name in ("r1", "c2")]
    shapes = {"x": (HIGH, WIDE), "updates": wide, "other": ()}
    with Core() as core:
        loaded = core.load_network(core.read_network(model.SerializeToString()), device)
        for n in counts:
            feed = {
                port.name: rng.normal(size=(n, *shapes[port.name])).astype(np.float32)
                for port in model.graph.input
            }
            (expected,) = reference.run(None, feed)
            (y,) = loaded.infer(feed).values()
            np.testing.assert_array_equal(y, expected)


PUT = {
    "all of it": {},
    "rows behind the first": {"rows": range(1, HIGH)},
    "rows before the last": {"rows": range(HIGH - 1)},
    "columns in the middle": {"columns": range(1, WIDE - 1)},
    "one row": {"rows": [4]},
    "summed in another order": {"summed": "c2 c0 c1"},
}


@pytest.mark.parametrize("case", PUT)
def test_a_block_of_an_open_batch_is_put_in(device, case):
    model = written(**PUT[case])
    assert not is_scattered(model)
    check(device, model, 3, 1, 4, 0, 2)


SCATTERED = {
    "rows and columns": {"rows": range(1, HIGH), "columns": range(1, WIDE)},
    "another order": {"rows": range(HIGH)[::-1]},
    "steps": {"rows": range(0, HIGH, 2)},
    "a row twice": {"rows": [1, 1, 2]},
    "from behind": {"rows": range(-3, 0)},
    "added": {"reduction": "add"},
    "as many as another input": {"told": "other"},
}


@pytest.mark.parametrize("case", SCATTERED)
def test_anything_else_is_scattered(device, case):
    model = written(**SCATTERED[case])
    assert is_scattered(model)
    if case != "a row twice":  # which of two stays is not defined
        check(device, model, 3, 1, 4)


ELSEWHERE = {
    "items from the second on": {"batch": ("1", "total", "1")},
    "every second item": {"batch": ("0", "total", "2")},
    "fewer items": {"batch": ("0", "fewer", "1")},
    "a grid that nothing tells": {"summed": "c0 c1 c1"},
    "axes exchanged": {"axes": "u1, u0, u2"},
    "a grid of ones": {"compared": "sizes"},
    "a grid of ones where others are": {"compared": "ones"},
    "rows that are not there": {"rows": [0, 1 << 40]},
    "rows far away": {"rows": range(1 << 40, (1 << 40) + 3)},
}


@pytest.mark.parametrize("case", ELSEWHERE)
def test_other_places_are_scattered(case):
    assert is_scattered(written(**ELSEWHERE[case]))
