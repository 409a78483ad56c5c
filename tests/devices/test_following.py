"""Following inferences: traces for Perfetto, OpenTelemetry's spans, Prometheus' figures."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from polydevice import Core, Follower, Trace
from polydevice.cli import main
from polydevice.errors import DeviceError, InferenceError, OptionValueError, PolydeviceError
from tests.cpu.models import build

X = {"x": np.linspace(-1, 1, 2 * 3 * 9 * 7, dtype=np.float32).reshape(2, 3, 9, 7)}
NAME = '</script> \u2028 "quoted" \\ 火'


@pytest.fixture(scope="module")
def model() -> bytes:
    rng = np.random.default_rng(3)
    nodes = [
        ("Conv", ["x", "w"], ["a"], {"name": NAME, "pads": [1, 1, 1, 1]}),
        ("Sigmoid", ["a"], ["b"], {}),
        ("MaxPool", ["b"], ["c"], {"kernel_shape": [3, 2]}),
        ("ReduceMean", ["c"], ["y"], {"axes": [2, 3]}),
    ]
    weights = {"w": rng.standard_normal((5, 3, 3, 3)).astype(np.float32)}
    return build(nodes, {"x": X["x"].shape}, ["y"], weights)


def spans(events: list[dict], kind: str) -> list[dict]:
    return [event for event in events if event["ph"] == "X" and event["cat"] == kind]


def check_format(events: list[dict]) -> None:
    """What Chrome's trace format asks for; every lane has a name, every arrow its two ends."""
    names = {(e["pid"], e["tid"]): e for e in events if e["name"] == "thread_name"}
    groups = {e["pid"] for e in events if e["name"] == "process_name"}
    lanes = defaultdict(list)
    flows = defaultdict(list)
    for event in events:
        assert event["ph"] in "XMstf" and isinstance(event["name"], str)
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        if event["ph"] == "M":
            continue
        assert (event["pid"], event["tid"]) in names and event["pid"] in groups
        assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0 and isinstance(event["args"], dict)
            lanes[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        else:
            flows[event["id"]].append(event)
    for ends in flows.values():
        phases = [event["ph"] for event in ends]
        assert phases[0] == "s" and phases[-1] == "f" and phases.count("s") == 1
        for event in ends:
            times = lanes[event["pid"], event["tid"]]
            assert any(begin <= event["ts"] <= end for begin, end in times)
    assert len(flows) == len({(e["args"]["request"], e["ts"]) for e in spans(events, "inference")})


@pytest.mark.parametrize("family", ["", "HETERO:", "MULTI:"])
def test_a_trace_of_every_request(device: str, family: str, model: bytes, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with Core() as core:
        loaded = core.load_network(core.read_network(model), family + device, num_requests=2)
        expected = loaded.infer(X)["y"]
        with Trace(path, batches_every=1) as trace:
            trace.follow(loaded)
            np.testing.assert_array_equal(loaded.infer(X)["y"], expected)
            for request in [*loaded.requests, loaded.create_infer_request()]:
                request.start_async(X)
                request.wait()
                np.testing.assert_array_equal(request.get_blob("y").array, expected)
        assert loaded.infer(X)["y"] is not None  # not in the trace any more
        assert trace.left_out == 0
        loaded.close()
    events = json.loads(path.read_text(encoding="utf-8"))
    check_format(events)
    host = [e for e in spans(events, "inference") if e["pid"] == 1]
    outer = [e for e in host if e["args"]["device"].startswith(family or device)]
    assert len(outer) == 4
    assert len(host) == (8 if family else 4), "parts and members are inferences in the inference"
    assert len(spans(events, "queue")) == 3, "synchronous inferences wait for no thread"
    if device == "CPU":
        steps = spans(events, "step")
        assert len(steps) % 4 == 0 and len({e["name"] for e in steps}) == len(steps) / 4
        assert all(e["args"]["kernel"] for e in steps)
        inner = [(e["tid"], e["ts"], e["ts"] + e["dur"]) for e in host]
        for e in steps:
            assert any(
                tid == e["tid"] and begin <= e["ts"] and e["ts"] + e["dur"] <= end + 0.002
                for tid, begin, end in inner
            )
    else:
        assert len(spans(events, "upload")) == len(spans(events, "download")) == 4
        assert {e["args"]["bytes"] for e in spans(events, "upload")} == {X["x"].nbytes}
        kernels = spans(events, "kernel")
        assert len(kernels) % 4 == 0 and len(kernels) >= 8
        assert any(NAME in e["name"] for e in kernels)
        # On the host's clock, or they would be hours away.
        first, last = min(e["ts"] for e in host), max(e["ts"] + e["dur"] for e in host)
        assert all(first - 1e6 < e["ts"] < last + 1e6 for e in kernels)


def test_what_does_not_fit_is_counted(device: str, model: bytes, monkeypatch) -> None:
    monkeypatch.setattr(Trace, "LIMIT", 60)
    trace = Trace()
    with Core() as core, core.load_network(core.read_network(model), device) as loaded:
        trace.follow(loaded)
        for _ in range(20):
            loaded.infer(X)
    events = trace.events()
    check_format(events)
    assert trace.left_out > 0
    assert len([e for e in events if e["ph"] != "M"]) <= 60
    trace.leave()  # the network is closed; leaving is possible all the same


def test_commands_of_some_inferences_only(device: str, model: bytes) -> None:
    if not device.startswith("GPU"):
        pytest.skip("commands are a GPU's")
    counts = []
    with Core() as core, core.load_network(core.read_network(model), device) as loaded:
        for every, inferences in ((1, 1), (3, 7)):
            trace = Trace(batches_every=every)
            trace.follow(loaded)
            for _ in range(inferences):
                loaded.infer(X)
            trace.leave()
            counts.append(len(spans(trace.events(), "kernel")))
    assert counts[0] > 0 and counts[1] in (2 * counts[0], 3 * counts[0])
    with pytest.raises(OptionValueError, match="batches_every -1 is not possible"):
        Trace(batches_every=-1)


def test_following_changes_nothing_afterwards(device: str, model: bytes) -> None:
    follower = Follower()
    with Core() as core, core.load_network(core.read_network(model), device) as loaded:
        loaded.follow(follower)
        loaded.infer(X)
        loaded.leave(follower)
        assert loaded.followers == loaded.requests[0]._followers == ()
        if device == "GPU":
            queue, _ = loaded.queue(0)
            assert not queue.profiling
    with pytest.raises(DeviceError, match="closed"):
        loaded.follow(follower)


def test_a_follower_that_fails_ends_no_inference(device: str, model: bytes, caplog) -> None:
    class Broken(Follower):
        def inference(self, done) -> None:
            raise ValueError("broken here")

        batch = steps = lambda self, *_: 1 / 0

    with Core() as core, core.load_network(core.read_network(model), device) as loaded:
        expected = loaded.infer(X)["y"]
        loaded.follow(Broken())
        np.testing.assert_array_equal(loaded.infer(X)["y"], expected)
    assert "broken here" in caplog.text and "ZeroDivisionError" in caplog.text


def test_failures_are_told(model: bytes, monkeypatch) -> None:
    told = []
    follower = Follower()
    monkeypatch.setattr(follower, "inference", told.append)
    with Core() as core, core.load_network(core.read_network(model), "CPU") as loaded:
        loaded.follow(follower)

        def fail(stream: int) -> None:
            raise InferenceError("on purpose")

        monkeypatch.setattr(loaded.requests[0].runner, "run", fail)
        with pytest.raises(InferenceError, match="on purpose"):
            loaded.infer(X)
    (done,) = told
    assert isinstance(done.error, InferenceError) and done.queued_ns is None
    assert done.device == "CPU" and done.start_ns <= done.end_ns


def test_times_of_a_device_are_put_on_the_clock_of_the_host(monkeypatch) -> None:
    """By hand: enqueued from 100 to 140 and 150 to 160 here, queued at 9115 and 9158 there."""
    recording = pytest.importorskip("polydevice_gpu.cl.queues.recording_queue")
    from polydevice_gpu.cl.queues.profile import LaunchTime

    class Events:
        begun_ns, enqueuing_ns = [100, 150], [40, 10]

        def times(self, names: list[str]) -> list[LaunchTime]:
            return [LaunchTime("a", 9115, 9200, 9230, 40), LaunchTime("b", 9158, 9230, 9300, 10)]

    batch = recording.Recorded("GPU, 0", [recording._Part("kernel", Events(), ["a", "b"], 0)])
    assert batch.enqueued == [(100, 160, 2)] and batch.count == 2
    # -9015 to -8975 by the first, -9008 to -8998 by the second: -9003.
    assert [(c.name, c.start_ns, c.end_ns) for c in batch.commands()] == [
        ("a", 197, 227),
        ("b", 227, 297),
    ]


def test_bench_writes_a_trace(device: str, model: bytes, tmp_path: Path, capsys) -> None:
    file, path = tmp_path / "model.onnx", tmp_path / "new folder" / "trace.json"
    file.write_bytes(model)
    options = ["-m", str(file), "-d", device, "-niter", "6", "-nireq", "2"]
    assert main(["bench", *options, "--trace", str(path)]) == 0
    assert str(path) in capsys.readouterr().out
    events = json.loads(path.read_text(encoding="utf-8"))
    check_format(events)
    assert len([e for e in spans(events, "inference") if e["pid"] == 1]) == 6


def test_spans_of_opentelemetry(device: str, model: bytes, monkeypatch) -> None:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from polydevice.observability import OpenTelemetrySpans

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with Core() as core, core.load_network(core.read_network(model), device) as loaded:
        loaded.follow(OpenTelemetrySpans(provider))
        with provider.get_tracer("test").start_as_current_span("around"):
            loaded.infer(X)
        loaded.requests[0].start_async(X)
        loaded.requests[0].wait()

        def fail(stream: int) -> None:
            raise InferenceError("on purpose")

        monkeypatch.setattr(loaded.requests[0].runner, "run", fail)
        with pytest.raises(InferenceError):
            loaded.infer(X)
    provider.shutdown()
    inside, around, queued, failed = exporter.get_finished_spans()
    assert inside.parent.span_id == around.context.span_id
    assert around.start_time <= inside.start_time <= inside.end_time <= around.end_time
    assert inside.attributes["polydevice.network"] == "test"
    assert "polydevice.queue_ms" not in inside.attributes
    assert queued.attributes["polydevice.queue_ms"] >= 0 and queued.status.is_ok
    assert not failed.status.is_ok and failed.events[0].name == "exception"


def test_figures_of_prometheus(device: str, model: bytes, monkeypatch) -> None:
    import prometheus_client

    from polydevice.observability import PrometheusFigures

    registry = prometheus_client.CollectorRegistry()
    follower = PrometheusFigures(registry)
    with Core() as core, core.load_network(core.read_network(model), device) as loaded:
        loaded.follow(follower)
        loaded.infer(X)
        loaded.requests[0].start_async(X)
        loaded.requests[0].wait()
        loaded.leave(follower)
        loaded.infer(X)
        labels = {"network": "test", "device": loaded.device}

    def value(name: str, **more: str) -> float | None:
        return registry.get_sample_value(f"polydevice_{name}", {**labels, **more})

    assert value("inference_seconds_count") == 2 and value("queue_seconds_count") == 1
    assert 0 < value("inference_seconds_sum") < 600
    assert value("inference_seconds_bucket", le="+Inf") == 2
    assert b"polydevice_inference_seconds_sum" in prometheus_client.generate_latest(registry)
    assert value("failures_total", error="InferenceError") is None


def test_figures_are_registered_once_and_whole_or_not_at_all() -> None:
    import prometheus_client

    from polydevice.observability import PrometheusFigures

    registry = prometheus_client.CollectorRegistry()
    for buckets in ([3, 1], [1, 1], [], [float("nan")], ["x"], 3):
        with pytest.raises(OptionValueError, match="buckets="):
            PrometheusFigures(registry, buckets=buckets)
    taken = prometheus_client.Counter("polydevice_failures", "another's", registry=registry)
    with pytest.raises(OptionValueError, match="such figures already"):
        PrometheusFigures(registry)
    registry.unregister(taken)
    PrometheusFigures(registry)  # nothing of the first attempt is left
    with pytest.raises(OptionValueError, match="one PrometheusFigures"):
        PrometheusFigures(registry)


def test_what_follows_nothing_is_refused(device: str, model: bytes) -> None:
    with Core() as core, core.load_network(core.read_network(model), device) as loaded:
        with pytest.raises(OptionValueError, match="3 is no follower"):
            loaded.follow(3)
        assert loaded.followers == ()


def test_a_trace_says_early_that_it_cannot_be_written_and_hides_nothing(
    tmp_path: Path, caplog
) -> None:
    with pytest.raises(OptionValueError, match="no folder"):
        Trace(tmp_path / "missing" / "trace.json")
    with pytest.raises(OptionValueError, match="a folder"):
        Trace(tmp_path)
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(ZeroDivisionError), Trace(folder / "trace.json"):
        folder.rmdir()
        raise ZeroDivisionError
    assert "cannot be written" in caplog.text
    folder.mkdir()
    with pytest.raises(FileNotFoundError), Trace(folder / "trace.json"):
        folder.rmdir()


@pytest.mark.parametrize(
    ("kind", "package"),
    [("OpenTelemetrySpans", "opentelemetry"), ("PrometheusFigures", "prometheus_client")],
)
def test_what_is_missing_is_named(kind: str, package: str, monkeypatch) -> None:
    from polydevice import observability

    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(PolydeviceError, match=r"pip install 'polydevice\[observability\]'"):
        getattr(observability, kind)()
