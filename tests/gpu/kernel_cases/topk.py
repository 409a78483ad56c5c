"""The largest and smallest elements, with equal ones and NaN."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.op import Op
from polydevice.ops.topk import TopK, TopKMode, TopKSort
from polydevice.testing.op_case import OpCase
from tests.gpu.kernel_cases.data import Cases, Data
from tests.ops.openvino_oracle import openvino_case


def topk(data: Data) -> Iterator[OpCase]:
    def stable(mode: str, sort: str, axis: int, count: int, x: Array) -> OpCase:
        """Answer with NumPy's stable sort: OpenVINO's by index does not say which of equals."""
        op = TopK(axis=axis, mode=TopKMode(mode), sort=TopKSort(sort))
        keys = np.where(np.isnan(x), np.inf, x.astype("f8"))
        indices = np.argsort(-keys if mode == "max" else keys, axis, kind="stable")
        indices = np.take(indices, range(count), axis)
        if sort == "index":
            indices = np.sort(indices, axis)
        expected = [np.take_along_axis(x, indices, axis), indices.astype(np.int32)]
        return OpCase(op, [x, np.array(count)], expected, constants={1})

    for mode, sort in (("max", "value"), ("min", "index")):
        op = TopK(axis=1, mode=TopKMode(mode), sort=TopKSort(sort))
        yield openvino_case(op, data(3, 11, 2), np.array(4), constants={1})
        # Many equal elements, and rows of several strips.
        yield stable(mode, sort, 0, 67, np.round(data(1301, 2) * 4))
        yield stable(mode, sort, 1, 255, np.sort(data(1, 2309)))
    x = np.round(data(2, 97))
    x[1, 5::20] = np.nan
    yield stable("max", "value", 1, 97, x)


CASES: dict[type[Op], Cases] = {
    TopK: topk,
}
