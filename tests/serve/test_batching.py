"""Requests that are computed together, and what becomes of those that cannot be."""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError
from pathlib import Path

import numpy as np
import pytest

from polydevice import Core
from polydevice.errors import InferenceError, OptionValueError, UnsupportedNetworkError
from polydevice.serve.models.batching import Batcher, planned_sizes
from polydevice.serve.models.limits import Limits
from polydevice.serve.models.model import ModelSpec, ServedModel
from polydevice.serve.models.statistics import Statistics
from polydevice.serve.refusal import Reason, RefusedError
from tests.cpu.models import answer, build, residual

from .running import SECONDS


class Doubling:
    """Stands in for a network that computes 2 x, waits for a gate, and cannot stand NaN."""

    def __init__(self, requests: int = 1) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.begun = threading.Semaphore(0)
        self.runs: list[int] = []
        self.requests = requests

    def get_metric(self, name: str) -> int:
        return self.requests

    def create_infer_request(self) -> Doubling:
        return self

    def infer(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        self.begun.release()
        assert self.gate.wait(SECONDS)
        self.runs.append(len(inputs["x"]))
        if np.isnan(inputs["x"]).any():
            raise InferenceError("it cannot stand NaN")
        return {"y": inputs["x"] * 2}


def batcher(network: Doubling, **limits: object) -> tuple[Batcher, Statistics]:
    statistics = Statistics()
    return Batcher("twice", network, Limits(**limits), statistics), statistics


def ended(made: Batcher) -> None:
    made.close(time.monotonic() + SECONDS)


def test_planned_sizes() -> None:
    assert planned_sizes(1) == [1]
    assert planned_sizes(8) == [1, 2, 4, 8]
    assert planned_sizes(12) == [1, 2, 4, 8, 12]


def test_what_waits_is_computed_together_in_order_and_answered_apart() -> None:
    network = Doubling()
    made, statistics = batcher(network, max_batch=8)
    network.gate.clear()
    arrays = [np.full((n, 2), n, "f4") for n in (1, 3, 2, 2, 5, 1)]
    futures = [made.submit({"x": arrays[0]})]
    assert network.begun.acquire(timeout=SECONDS)  # the rest comes while the first runs
    futures += [made.submit({"x": array}) for array in arrays[1:]]
    network.gate.set()
    for future, array in zip(futures, arrays, strict=True):
        np.testing.assert_array_equal(future.result(SECONDS)["y"], array * 2)
    assert network.runs == [1, 8, 8]  # 1; 3 + 2 + 2, filled up; 5 + 1, filled up
    found = statistics.as_dict()
    assert (found["inference_count"], found["execution_count"]) == (14, 3)
    assert [each["batch_size"] for each in found["batch_stats"]] == [1, 6, 7]
    assert [each["compute_infer"]["count"] for each in found["batch_stats"]] == [1, 1, 1]
    assert found["inference_stats"]["compute_infer"]["count"] == 6
    ended(made)


def test_other_sizes_are_not_mixed() -> None:
    network = Doubling()
    made, _ = batcher(network, max_batch=4, max_delay_ms=20)
    arrays = [np.ones((1, 2), "f4"), np.ones((1, 3), "f4"), np.ones((1, 2), "f4")]
    futures = [made.submit({"x": array}) for array in arrays]
    for future, array in zip(futures, arrays, strict=True):
        np.testing.assert_array_equal(future.result(SECONDS)["y"], array * 2)
    ended(made)


def test_a_full_batch_does_not_wait_for_the_delay() -> None:
    network = Doubling()
    made, _ = batcher(network, max_batch=2, max_delay_ms=1e9)
    futures = [made.submit({"x": np.ones((1, 1), "f4")}) for _ in range(2)]
    assert [len(future.result(SECONDS)["y"]) for future in futures] == [1, 1]
    assert network.runs == [2]
    late = made.submit({"x": np.ones((1, 1), "f4")})
    assert not late.done()
    ended(made)  # what waits for others is answered in the end
    assert late.result(0)["y"] == 2


def test_a_request_that_cannot_be_computed_takes_no_others_with_it() -> None:
    network = Doubling()
    made, statistics = batcher(network, max_batch=4, max_delay_ms=1e9)
    arrays = [np.full((1, 1), value, "f4") for value in (1, np.nan, 3, 4)]
    futures = [made.submit({"x": array}) for array in arrays]
    with pytest.raises(InferenceError, match="cannot stand NaN"):
        futures[1].result(SECONDS)
    assert [float(futures[i].result(SECONDS)["y"][0, 0]) for i in (0, 2, 3)] == [2, 6, 8]
    assert network.runs == [4, 1, 1, 1, 1]
    assert (statistics.success.count, statistics.fail.count) == (3, 1)
    ended(made)


def test_a_full_queue_refuses_and_late_requests_are_not_computed() -> None:
    network = Doubling()
    made, statistics = batcher(network, queue=3)
    network.gate.clear()
    first = made.submit({"x": np.ones(1)})
    assert network.begun.acquire(timeout=SECONDS)
    late = made.submit({"x": np.ones(1)}, seconds=0.001)
    dropped = made.submit({"x": np.ones(1)})
    last = made.submit({"x": np.ones(1)})
    with pytest.raises(RefusedError, match="3 requests of model 'twice' wait") as info:
        made.submit({"x": np.ones(1)})
    assert info.value.reason is Reason.BUSY
    assert statistics.refused == 1
    assert dropped.cancel()
    time.sleep(0.01)
    network.gate.set()
    assert first.result(SECONDS)["y"] == last.result(SECONDS)["y"] == 2
    with pytest.raises(RefusedError, match="waited in the queue"):
        late.result(SECONDS)
    with pytest.raises(CancelledError):
        dropped.result(SECONDS)
    assert len(network.runs) == 2
    ended(made)
    with pytest.raises(RefusedError, match="is ending"):
        made.submit({"x": np.ones(1)})


def test_a_thread_outlives_clients_that_cancel_at_any_moment_and_its_own_errors(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    network = Doubling()
    made, statistics = batcher(network)
    network.gate.clear()
    first = made.submit({"x": np.ones(1)})
    assert network.begun.acquire(timeout=SECONDS)
    late = made.submit({"x": np.ones(1)}, seconds=0.001)
    last = made.submit({"x": np.ones(1)})
    time.sleep(0.01)
    assert late.cancel()
    for name in ("done", "cancelled"):  # as it was a moment ago
        monkeypatch.setattr(late, name, lambda: False)
    network.gate.set()
    assert first.result(SECONDS)["y"] == last.result(SECONDS)["y"] == 2
    assert not caplog.records
    tell = statistics.failed

    def fail_once(duration: int) -> None:
        monkeypatch.setattr(statistics, "failed", tell)
        raise ArithmeticError("once")

    monkeypatch.setattr(statistics, "failed", fail_once)
    made.submit({"x": np.full(1, np.nan)})
    assert made.submit({"x": np.ones(1)}).result(SECONDS)["y"] == 2
    assert "goes on after an error" in caplog.text
    ended(made)


@pytest.mark.full
def test_a_real_network(tmp_path: Path, rng: np.random.Generator) -> None:
    model = residual(batch="N")
    path = tmp_path / "residual.onnx"
    path.write_bytes(model)
    with Core() as core:
        served = ServedModel(core, ModelSpec(path, device="CPU"), Limits(max_batch=6))
        arrays = [rng.standard_normal((n, 3, 14, 14)).astype("f4") for n in (1, 2, 1, 3, 6, 1)]
        futures = [served.batcher.submit({"x": array}) for array in arrays]
        for array, future in zip(arrays, futures, strict=True):
            for name, expected in zip(served.outputs, answer(model, {"x": array}), strict=True):
                got = future.result(SECONDS)[name]
                np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4)
        served.close(time.monotonic() + SECONDS)


def test_autos_choice_is_made_before_clients_come(tmp_path: Path) -> None:
    from tests.auto.shaky import TROUBLES, Trouble

    TROUBLES["SHAKY"] = Trouble()
    path = tmp_path / "residual.onnx"
    path.write_bytes(residual(batch="N"))
    try:
        with Core() as core:
            core.register_plugin("tests.auto.shaky", "SHAKY")
            spec = ModelSpec(path, device="AUTO:SHAKY,CPU")
            served = ServedModel(core, spec, Limits(max_batch=4))
            assert served.executable.get_metric("EXECUTION_DEVICES") == ["SHAKY"]
            assert len(TROUBLES["SHAKY"].runs) == len(planned_sizes(4))
            served.close(time.monotonic() + SECONDS)
    finally:
        TROUBLES.clear()


def test_networks_that_mix_items_are_not_batched(tmp_path: Path) -> None:
    def load(nodes: list, rows: object = "N") -> None:
        weights = {"first": np.array([0], np.int64)}
        (tmp_path / "m.onnx").write_bytes(build(nodes, {"x": (rows, 4)}, ("y",), weights))
        with Core() as core:
            ServedModel(core, ModelSpec(tmp_path / "m.onnx", device="CPU"), Limits(max_batch=4))

    mean = ("ReduceMean", ["x"], ["m"], {"axes": [0], "keepdims": 1})
    with pytest.raises(UnsupportedNetworkError, match="changes with the other items"):
        load([mean, ("Sub", ["x", "m"], ["y"], {})])
    with pytest.raises(UnsupportedNetworkError, match="'y' does not follow the batch"):
        load([("ReduceMean", ["x"], ["y"], {"axes": [0], "keepdims": 1})])
    with pytest.raises(UnsupportedNetworkError, match="moves or mixes the items"):
        load([("Transpose", ["x"], ["t"], {}), ("Transpose", ["t"], ["y"], {})], 2)


def test_limits_that_are_not_possible() -> None:
    for name, value in (("max_batch", 0), ("queue", 0), ("max_delay_ms", -1), ("max_batch", 9999)):
        with pytest.raises(OptionValueError, match=f"{name}={value} is not possible"):
            Limits(**{name: value})
