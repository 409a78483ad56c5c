"""What moves elements: Concat, Pad, gathering and scattering."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from polydevice.ops.concat import Concat
from polydevice.ops.gather import Gather, GatherElements, GatherND, GatherTree
from polydevice.ops.op import Op
from polydevice.ops.pad import Pad, PadMode
from polydevice.ops.scatter import (
    Reduction,
    ScatterElementsUpdate,
    ScatterNDUpdate,
    ScatterUpdate,
)
from polydevice.testing.op_case import OpCase
from tests.gpu.kernel_cases.data import Cases, Data, ints
from tests.ops.openvino_oracle import openvino_case


def concats(data: Data) -> Iterator[OpCase]:
    parts = [data(2, n, 5, 3) for n in (3, 1, 4)]
    yield openvino_case(Concat(axis=1), *parts)
    yield openvino_case(Concat(axis=-1), data(3, 2), data(3, 6))


def pads(data: Data) -> Iterator[OpCase]:
    for mode in (PadMode.CONSTANT, PadMode.EDGE, PadMode.REFLECT, PadMode.SYMMETRIC):
        yield openvino_case(
            Pad(pad_mode=mode), data(2, 4, 5), ints(0, 2, 1), ints(1, 1, 3),
            constants={1, 2},
        )  # fmt: skip


def gathers(data: Data) -> Iterator[OpCase]:
    x = data(3, 7, 4)
    yield openvino_case(Gather(), x, np.array([[6, 0], [-1, 3]]), ints(1), constants={2})
    yield openvino_case(Gather(batch_dims=1), x, np.array([[1], [5], [0]]), ints(1), constants={2})
    # Rows of whole vectors, of parts of them, and of several axes.
    yield openvino_case(Gather(), data(9, 32), np.array([[3, 8], [0, -2]]), ints(0), constants={2})
    yield openvino_case(Gather(), data(2, 6, 20), np.array([5, 0, 2]), ints(1), constants={2})
    yield openvino_case(Gather(), data(4, 3, 8), np.array([1, 3]), ints(0), constants={2})


def gather_elements(data: Data) -> Iterator[OpCase]:
    indices = data.random.integers(0, 7, (3, 5, 4))
    yield openvino_case(GatherElements(axis=1), data(3, 7, 4), indices)


def gather_nd(data: Data) -> Iterator[OpCase]:
    indices = np.array([[[0, 1]], [[2, 3]]])
    yield openvino_case(GatherND(batch_dims=0), data(3, 7, 4), indices)
    yield openvino_case(GatherND(batch_dims=1), data(2, 7, 4), indices)


def scatters(data: Data) -> Iterator[OpCase]:
    x, updates = data(3, 7, 4), data(3, 2, 4)
    yield openvino_case(ScatterUpdate(), x, ints(5, 0), updates, ints(1), constants={3})
    many = data.random.permutation(200)[:150]
    yield openvino_case(ScatterUpdate(), data(200, 3), many, data(150, 3), ints(0), constants={3})


def scatter_elements(data: Data) -> Iterator[OpCase]:
    x, updates = data(3, 7, 4), data(2, 3, 4)
    indices = data.random.permuted(np.tile(np.arange(7), (2, 4, 1)), axis=2)[:, :, :3]
    indices = np.ascontiguousarray(indices.transpose(0, 2, 1))
    op = ScatterElementsUpdate()
    yield openvino_case(op, x, indices, updates, ints(1), constants={3})
    many = np.stack([data.random.permutation(150)[:140] - 150 for _ in range(2)])
    yield openvino_case(op, data(3, 150), many, data(2, 140), ints(1), constants={3})
    many = data.random.integers(-130, 130, (150, 2))
    for reduction in (Reduction.SUM, Reduction.MIN, Reduction.MEAN):
        op = ScatterElementsUpdate(reduction, use_init_val=reduction is not Reduction.SUM)
        inputs = data(130, 3), many, data(150, 2), ints(0)
        yield openvino_case(op, *inputs, constants={3}, reference=reduction is Reduction.MEAN)


def scatter_nd(data: Data) -> Iterator[OpCase]:
    x, updates = data(3, 7, 4), data(2, 4)
    yield openvino_case(ScatterNDUpdate(), x, np.array([[0, 6], [2, 1]]), updates)
    many = np.stack(np.unravel_index(data.random.permutation(180)[:160], (12, 15)), -1)
    yield openvino_case(ScatterNDUpdate(), data(12, 15), many, data(160))
    yield openvino_case(ScatterNDUpdate(), data(12, 15, 3), many, data(160, 3))
    many = np.stack([data.random.integers(-n, n, 140) for n in (12, 15)], -1)
    yield openvino_case(ScatterNDUpdate(Reduction.SUM), data(12, 15), many, data(140))
    op = ScatterNDUpdate(Reduction.MAX)
    yield openvino_case(op, data(12, 15, 3), many.reshape(7, 20, 2), data(7, 20, 3))


def trees(data: Data) -> Iterator[OpCase]:
    kinds = ("f4", "i4") if data.dtype == "f4" else (data.dtype,)
    for kind in kinds:
        ids = data.random.integers(1, 9, (7, 3, 5)).astype(kind)
        parents = data.random.integers(0, 5, (7, 3, 5)).astype(kind)
        lengths, end = np.array([7, 4, 1], kind), np.array(3, kind)
        yield openvino_case(GatherTree(), ids, parents, lengths, end)


CASES: dict[type[Op], Cases] = {
    Concat: concats,
    Pad: pads,
    Gather: gathers,
    GatherElements: gather_elements,
    GatherND: gather_nd,
    GatherTree: trees,
    ScatterUpdate: scatters,
    ScatterElementsUpdate: scatter_elements,
    ScatterNDUpdate: scatter_nd,
}
