"""What NumPy does about errors: nothing within an inference, and outside what it did before."""

from __future__ import annotations

import signal
import threading

import numpy as np
import pytest

from polydevice.errors import InferenceError
from polydevice_cpu.plan.binding import silence
from tests.cpu.loading import load
from tests.cpu.models import build

F = np.float32
WAYS = {
    "chosen": (silence.about_errors, silence.ignore_errors, silence.restore),
    "of any NumPy": (np.geterr, silence._ignore, silence._restore),
}


@pytest.mark.parametrize(("about", "ignore", "restore"), WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("state", ["raise", "warn", "ignore"])
def test_it_is_as_before_afterwards(about, ignore, restore, state):
    with np.errstate(all=state):
        before, outer = np.geterr(), about()
        ignore()
        inner = about()
        ignore()
        assert {*np.geterr().values()} == {"ignore"}
        assert np.isinf(np.float64(1) / np.float64(0))
        restore(inner)
        assert {*np.geterr().values()} == {"ignore"}
        restore(outer)
        assert np.geterr() == before


def test_other_threads_are_not_silent():
    before, found = silence.about_errors(), []
    with np.errstate(all="warn"):
        try:
            silence.ignore_errors()
            thread = threading.Thread(target=lambda: found.append({*np.geterr().values()}))
            thread.start()
            thread.join()
        finally:
            silence.restore(before)
    assert found and found[0] != {"ignore"}


@pytest.mark.skipif(
    silence.restore is silence._restore,
    reason="NumPy 1 sets it back by Python functions, in which Ctrl-C may come, too",
)
def test_ctrl_c_at_any_time_leaves_things_as_before(core):
    """Also where it comes before an inference has begun to compute, or after it."""
    nodes = [("NonZero", ["x"], ["z"], {}), ("Transpose", ["z"], ["y"], {})]
    request = load(core, build(nodes, {"x": [3]}, ["y"], {})).create_infer_request()
    feed = {"x": F([0, -2, 4])}
    request.infer(feed)
    random, interrupted = np.random.default_rng(0), 0
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with np.errstate(all="raise"):
            state = np.geterr()
            for seconds in random.uniform(2e-5, 3e-4, 1000):
                try:
                    signal.setitimer(signal.ITIMER_REAL, seconds)
                    while True:
                        request.infer(feed)
                except KeyboardInterrupt:
                    interrupted += 1
                assert np.geterr() == state
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupted == 1000


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
