"""A real Ray on this machine: data sets, Serve, and what happens when a part of it dies."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import ray  # the module is skipped where it lacks

import polydevice.ray
from polydevice import Core
from polydevice.errors import OptionValueError, PolydeviceError
from polydevice.ray.predict import Predictor
from polydevice.serve.models.limits import Limits
from tests.cpu.models import build

pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore"),  # Ray's own
]
SECONDS = 300
STORE = 100 << 20
WEIGHT = np.random.default_rng(1).standard_normal((16, 16)).astype("f4") / 8


@contextlib.contextmanager
def started(**settings: object) -> Iterator[None]:
    environment = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        ray.init(include_dashboard=False, log_to_driver=False, **settings)
        ray.data.DataContext.get_current().enable_progress_bars = False
        try:
            yield
        finally:
            ray.shutdown()


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    with started(address="local", num_cpus=3, object_store_memory=STORE):
        yield


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """y = relu(x w), and z, the row of a table that i names."""
    from onnx import TensorProto, helper, numpy_helper

    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Relu", ["m"], ["y"]),
        helper.make_node("Gather", ["table", "i"], ["z"]),
    ]
    graph = helper.make_graph(
        nodes,
        "rows",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 16]),
            helper.make_tensor_value_info("i", TensorProto.INT64, ["N"]),
        ],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 16]),
            helper.make_tensor_value_info("z", TensorProto.FLOAT, ["N", 2]),
        ],
        [
            numpy_helper.from_array(WEIGHT, "w"),
            numpy_helper.from_array(np.arange(20, dtype="f4").reshape(10, 2), "table"),
        ],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "rows.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def rows(number: int, blocks: int = 4) -> tuple[object, np.ndarray]:
    x = np.random.default_rng(2).standard_normal((number, 16)).astype("f4")
    items = [{"number": n, "x": x[n], "i": n % 10} for n in range(number)]
    return ray.data.from_items(items, override_num_blocks=blocks), x


def check(found: list[dict[str, np.ndarray]], x: np.ndarray, missing: tuple[int, ...] = ()) -> None:
    numbers = [row["number"] for row in found]
    assert sorted(numbers) == [n for n in range(len(x)) if n not in missing]
    for row in found:
        n = row["number"]
        wanted = np.maximum(x[n] @ WEIGHT, 0)
        np.testing.assert_allclose(row["y"], wanted, rtol=1e-3, atol=1e-4)
        np.testing.assert_array_equal(row["z"], [n % 10 * 2, n % 10 * 2 + 1])


def test_every_row_once_though_the_file_is_gone(cluster: None, model: Path) -> None:
    """The model is read where `predict` is called: other nodes need no file."""
    dataset, x = rows(203)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of what is asked of Ray
        made = polydevice.ray.predict(dataset, model, batch_size=12, concurrency=2)
    model.unlink()
    check(made.take_all(), x)


def test_rows_that_cannot_be_computed(cluster: None, model: Path) -> None:
    x = np.random.default_rng(2).standard_normal((50, 16)).astype("f4")
    items = [{"number": n, "it": x[n][: 16 - (n == 33)], "i": n % 10} for n in range(50)]
    dataset = ray.data.from_items(items, override_num_blocks=3)
    settings = {"columns": {"x": "it"}, "batch_size": 8}
    made = polydevice.ray.predict(dataset, model, on_error="drop", **settings)
    check(made.take_all(), x, missing=(33,))
    made = polydevice.ray.predict(dataset, model, **settings)
    with pytest.raises(Exception, match=r"row \d+ of a batch of \d+ cannot be computed"):
        made.take_all()
    made = polydevice.ray.predict(dataset, model, batch_size=8)
    with pytest.raises(Exception, match="there is no column 'x'"):
        made.take_all()


def test_columns_are_read_in_place(
    cluster: None, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the object store's memory up to the device, where the types are the network's."""
    with Core() as core:
        network = core.read_network(model)
    x = np.random.default_rng(2).standard_normal((16, 16)).astype("f4")
    table = ray.data.from_numpy(x).materialize()
    stored = next(iter(table.iter_batches(batch_size=None, batch_format="numpy")))["data"]
    assert not stored.flags.writeable  # the store's
    columns = {"x": "data", "i": "i"}
    # Only workers are told their cores.
    module = sys.modules[Predictor.__module__]
    monkeypatch.setattr(module, "config_here", lambda device, config: config)
    actor = Predictor(ray.put(network), "CPU", 16, {}, columns, False)
    seen: list[np.ndarray] = []
    submit = actor._model.batcher.submit

    def noted(inputs: dict[str, np.ndarray]) -> object:
        seen.append(inputs["x"])
        return submit(inputs)

    monkeypatch.setattr(actor._model.batcher, "submit", noted)
    made = actor({"data": stored, "i": np.arange(16) % 10})
    assert np.shares_memory(seen[0], stored)
    np.testing.assert_allclose(made["y"], np.maximum(x @ WEIGHT, 0), rtol=1e-3, atol=1e-4)
    assert made["data"] is stored


def test_what_is_refused_at_once(cluster: None, model: Path, tmp_path: Path) -> None:
    dataset, _ = rows(1, 1)
    for settings, words in (
        ({"on_error": "ignore"}, "use 'raise' or 'drop'"),
        ({"batch_size": 0}, "max_batch=0 is not possible"),
        ({"max_concurrency": 0}, "max_concurrency=0 is not possible; use 1 or more"),
        ({"columns": {"xx": "x"}}, "is no input of the network"),
    ):
        with pytest.raises(OptionValueError, match=words):
            polydevice.ray.predict(dataset, model, **settings)
    with pytest.raises(PolydeviceError, match=r"none\.onnx"):
        polydevice.ray.predict(dataset, tmp_path / "none.onnx")


def _descendants() -> dict[int, str]:
    """Return process → command line of what this process started, and they in turn."""
    parents, names = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(folder.name)] = int(
                (folder / "stat").read_text().rpartition(")")[2].split()[1]
            )
            names[int(folder.name)] = (folder / "cmdline").read_bytes().decode("utf-8", "replace")

    def ours(pid: int) -> bool:
        return pid == os.getpid() or (pid in parents and pid > 1 and ours(parents[pid]))

    return {pid: name for pid, name in names.items() if ours(pid)}


def heavy() -> bytes:
    """A network that takes a while, so that there is a middle to kill it in."""
    w = np.random.default_rng(3).standard_normal((16, 2048)).astype("f4") / 8
    nodes = [("MatMul", ["x", "a"], ["h0"], {})]
    nodes += [("MatMul", [f"h{n}", "b"], [f"h{n + 1}"], {}) for n in range(8)]
    nodes += [("MatMul", ["h8", "c"], ["y"], {})]
    square = np.eye(2048, dtype="f4")
    return build(nodes, {"x": ("N", 16)}, ("y",), {"a": w, "b": square, "c": w.T.copy()})


def run_and(kill: object, number: int = 480) -> None:
    """Compute a data set; `kill` is called once the first rows are there."""
    with Core() as core:
        network = core.read_network(heavy())
    dataset, x = rows(number, 60)
    made = polydevice.ray.predict(dataset.drop_columns(["i"]), network, batch_size=8, concurrency=2)
    w = np.random.default_rng(3).standard_normal((16, 2048)).astype("f4") / 8
    found: dict[int, np.ndarray] = {}
    killed = False
    for batch in made.iter_batches(batch_size=8, prefetch_batches=0):
        for n, y in zip(batch["number"], batch["y"], strict=True):
            assert n not in found
            found[int(n)] = np.array(y)
        if not killed:
            kill()
            killed = True
    assert sorted(found) == list(range(number))
    for n, y in found.items():
        np.testing.assert_allclose(y, x[n] @ w @ w.T, rtol=1e-2, atol=1e-2)


def test_an_actor_that_is_killed_loses_nothing(cluster: None) -> None:
    def kill() -> None:
        workers = [pid for pid, name in _descendants().items() if "Predictor" in name]
        assert workers  # on a busy machine the second one may not have begun
        os.kill(workers[0], signal.SIGKILL)

    run_and(kill)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def test_serve(cluster: None, model: Path) -> None:
    """The application of `polydevice serve`, in replicas."""
    from ray import serve

    from tests.serve.running import ask

    address = type("Address", (), {"http_port": _free_port()})
    serve.start(http_options={"host": "127.0.0.1", "port": address.http_port})
    try:
        app = polydevice.ray.deployment(
            model, "CPU", limits=Limits(max_batch=4), ray_actor_options={"num_cpus": 0.5}
        )
        model.unlink()
        serve.run(app, route_prefix="/")
        end = time.monotonic() + SECONDS
        while ask(address, "GET", "/v2/health/ready")[0] != 200:
            assert time.monotonic() < end
            time.sleep(0.1)
        tensors = [
            {"name": "x", "datatype": "FP32", "shape": [2, 16], "data": [1] * 32},
            {"name": "i", "datatype": "INT64", "shape": [2], "data": [3, 4]},
        ]
        status, found, _ = ask(address, "POST", "/v2/models/rows/infer", {"inputs": tensors})
        assert status == 200, found
        y, z = (np.array(each["data"]).reshape(each["shape"]) for each in found["outputs"])
        wanted = np.maximum(np.ones((2, 16)) @ WEIGHT, 0)
        np.testing.assert_allclose(y, wanted, rtol=1e-3, atol=1e-4)
        np.testing.assert_array_equal(z, [[6, 7], [8, 9]])
        status, found, _ = ask(address, "POST", "/v2/models/rows/infer", {"inputs": tensors[:1]})
        assert (status, found["error"]) == (400, "inputs lack: i")
    finally:
        serve.shutdown()


def test_a_node_that_is_lost_loses_nothing() -> None:
    from ray.cluster_utils import Cluster

    assert not ray.is_initialized() or ray.shutdown() is None
    nodes = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 2, "object_store_memory": STORE}
    )
    try:
        second = nodes.add_node(num_cpus=1, object_store_memory=STORE)
        with started(address=nodes.address):
            run_and(lambda: nodes.remove_node(second, allow_graceful=False))
    finally:
        nodes.shutdown()
