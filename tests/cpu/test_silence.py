"""What NumPy does about errors: nothing within an inference, and outside what it did before."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from polydevice.errors import InferenceError
from polydevice_cpu.plan.binding import silence
from tests.cpu.loading import load
from tests.cpu.models import build

F = np.float32
PAIRS = {
    "chosen": (silence.begin_silence, silence.end_silence),
    "of any NumPy": (silence._enter, silence._leave),
}


@pytest.mark.parametrize(("begin", "end"), PAIRS.values(), ids=PAIRS)
@pytest.mark.parametrize("state", ["raise", "warn", "ignore"])
def test_it_is_as_before_afterwards(begin, end, state):
    with np.errstate(all=state):
        before = np.geterr()
        outer = begin()
        inner = begin()
        assert {*np.geterr().values()} == {"ignore"}
        assert np.isinf(np.float64(1) / np.float64(0))
        end(inner)
        assert {*np.geterr().values()} == {"ignore"}
        end(outer)
        assert np.geterr() == before


def test_other_threads_are_not_silent():
    token, found = silence.begin_silence(), []
    try:
        thread = threading.Thread(target=lambda: found.append(np.geterr()))
        thread.start()
        thread.join()
    finally:
        silence.end_silence(token)
    assert found == [np.geterr()]


def test_inferences(core):
    """One that divides by 0 warns of nothing, and one that fails leaves nothing behind."""
    nodes = [
        ("Reciprocal", ["x"], ["r"], {}), ("NonZero", ["x"], ["z"], {}),
        ("GatherElements", ["r", "index"], ["g"], {}), ("Div", ["g", "g"], ["d"], {}),
        ("Compress", ["d", "mask"], ["y"], {"axis": 0}),
    ]  # fmt: skip
    import onnx
    from onnx import TensorProto, helper

    made = onnx.load_from_string(build(nodes, {"x": [3]}, ("y", "z"), {}))
    info = helper.make_tensor_value_info
    made.graph.input.append(info("mask", TensorProto.BOOL, [2]))
    made.graph.input.append(info("index", TensorProto.INT64, [2]))
    request = load(core, made.SerializeToString()).create_infer_request()
    feed = {"x": F([0, -2, 4]), "mask": np.array([True, True]), "index": np.int64([0, 1])}
    with np.errstate(all="raise"):
        before = np.geterr()
        for _ in range(3):
            np.testing.assert_array_equal(request.infer(feed)["y"], F([np.nan, 1]))
            assert np.geterr() == before
            with pytest.raises(InferenceError):
                request.infer(feed | {"index": np.int64([0, 3])})
            assert np.geterr() == before
