"""DeviceSuite: what every device must do, whatever it computes.

A device author inherits it; ten lines are a whole test file::

    from polydevice.testing.device_suite import DeviceSuite

    class TestNpu(DeviceSuite):
        device = "NPU"

The suite runs ``y = relu(x * scale + bias)``. A device without these operations overrides `network`
and `answer`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from polydevice.blob import Blob
from polydevice.core import Core
from polydevice.dtype import Array, ElementType
from polydevice.errors import (
    BlobError,
    DeviceError,
    DeviceNotFoundError,
    InferCancelledError,
    InferenceError,
    InferTimeoutError,
    RequestError,
    UnknownMetricError,
    UnknownOptionError,
    UnsupportedNetworkError,
)
from polydevice.infer_request import StatusCode
from polydevice.network import Network
from polydevice.node import Node, constant
from polydevice.ops.activation import Relu
from polydevice.ops.arithmetic import Add, Multiply
from polydevice.ops.control_flow import BackEdge, BodyInput, BodyOutput, Loop
from polydevice.ops.io import Parameter, Result
from polydevice.ops.op import Op, operation
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc

SHAPE = (2, 3, 5)
SCALE = np.array([[[2.0], [-1.0], [0.5]]], np.float32)
BIAS = np.array([[[0.25], [1.0], [-2.0]]], np.float32)


@operation("Unheard", domain="polydevice.testing")
class Unheard(Op):
    """An operation that no device has.

    Inputs:  x  any
    Outputs: y  shape and type of x
    Source:  this suite
    """

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return shape and type of x."""
        return [inputs[0].without_value()]


def random_input(seed: int) -> Array:
    """An input of the suite's network, other for each seed."""
    return np.random.default_rng(seed).normal(size=SHAPE).astype(np.float32)


class DeviceSuite:
    """Tests of one device. Subclasses set `device`."""

    device: ClassVar[str]
    """The device string, such as "NPU" or "NPU.0"."""
    config: ClassVar[dict[str, Any]] = {}
    """Configuration that every network is loaded with."""
    exact: ClassVar[bool] = False
    """Whether answers must match to the last bit; else to 1e-3 of the largest."""

    # -- what a subclass may override ---------------------------------------------------------

    def network(self) -> Network:
        """Return a network with one input ``x``, f32[2,3,5], and one output ``y``."""
        x = Node("x", Parameter(ElementType.f32, Shape(SHAPE)))
        scaled = Node("scaled", Multiply(), [x.output, constant("scale", SCALE).output])
        shifted = Node("shifted", Add(), [scaled.output, constant("bias", BIAS).output])
        y = Node("y", Relu(), [shifted.output])
        return Network("device-suite", [x], [Node("y/result", Result(), [y.output])])

    def answer(self, x: Array) -> Array:
        """Return what the network must answer, computed without the device."""
        return np.asarray(np.maximum(x * SCALE + BIAS, 0), np.float32)

    def repeating(self) -> Network:
        """Return a network whose output ``y`` is ``x`` + ``trips``, found one by one.

        With a negative number (i64) it never ends.
        """
        x = Node("x", Parameter(ElementType.f32, Shape(SHAPE)))
        trips = Node("trips", Parameter(ElementType.i64, Shape()))
        value = Node("value", Parameter(ElementType.f32, Shape(SHAPE)))
        more = Node("more", Add(), [value.output, constant("one", np.float32(1)).output])
        yes = constant("yes", np.array(True))
        body = Network(
            "body",
            [value],
            [Node("on", Result(), [yes.output]), Node("out", Result(), [more.output])],
        )
        ties = (BodyInput(2, 0),), (BodyOutput(0, 1),), (BackEdge(1, 0),)
        loop = Loop(body, *ties, execution_condition=0)
        first = constant("first", np.array(True))
        y = Node("y", loop, [trips.output, first.output, x.output])
        return Network("repeating", [x, trips], [Node("y/result", Result(), [y.output])])

    def register(self, core: Core) -> None:
        """Make the device known to `core`, when no entry point does."""

    # -- fixtures -----------------------------------------------------------------------------

    @pytest.fixture
    def core(self) -> Iterator[Core]:
        """A core that knows the device, closed afterwards."""
        with Core() as core:
            self.register(core)
            yield core

    def load(self, core: Core, **arguments: Any) -> Any:
        """Load the suite's network on the device."""
        return core.load_network(self.network(), self.device, self.config, **arguments)

    def check(self, got: Array, x: Array) -> None:
        """Compare an answer."""
        want = self.answer(x)
        assert got.shape == want.shape
        assert got.dtype == want.dtype
        if self.exact:
            np.testing.assert_array_equal(got, want)
        else:
            # A device may compute in f16, which has 11 bits.
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3 * np.abs(want).max())

    @property
    def family(self) -> str:
        """The device's name without its id."""
        return self.device.partition(":")[0].partition(".")[0]

    @property
    def is_composite(self) -> bool:
        """Whether the device string lists members."""
        return ":" in self.device

    # -- discovery and configuration ----------------------------------------------------------

    def test_is_listed(self, core: Core) -> None:
        """`available_devices` lists it; `explain_devices` calls it available."""
        if self.is_composite:
            assert self.family not in core.available_devices
            return
        names = [name.partition(".")[0] for name in core.available_devices]
        assert self.family in names
        reports = [r for r in core.explain_devices() if r.device.startswith(self.family)]
        assert any(report.status == "available" for report in reports)

    def test_has_a_version(self, core: Core) -> None:
        """`get_versions` describes the plugin."""
        version = core.get_versions(self.device)[self.family]
        assert version.description
        assert isinstance(version.major, int)
        assert isinstance(version.minor, int)

    def test_every_metric_it_lists_can_be_read(self, core: Core) -> None:
        """SUPPORTED_METRICS is the truth, and another name is refused."""
        device = self.family if self.is_composite else self.device
        metrics = core.get_metric(device, "SUPPORTED_METRICS")
        assert "SUPPORTED_METRICS" in metrics
        for name in metrics:
            core.get_metric(device, name)
        if not self.is_composite:
            assert core.get_metric(device, "FULL_DEVICE_NAME")
        with pytest.raises(UnknownMetricError, match="NO_SUCH_METRIC"):
            core.get_metric(device, "NO_SUCH_METRIC")

    def test_every_key_it_lists_can_be_read(self, core: Core) -> None:
        """SUPPORTED_CONFIG_KEYS is the truth, and another key is refused, changing nothing."""
        keys = core.get_metric(self.family, "SUPPORTED_CONFIG_KEYS")
        before = {key: core.get_config(self.family, key) for key in keys}
        assert all(isinstance(value, str) for value in before.values())
        if not self.is_composite:  # which keeps a key for its members, and asks them when loading
            with pytest.raises(UnknownOptionError, match="NO_SUCH_KEY"):
                core.set_config({"NO_SUCH_KEY": "1"}, self.family)
        assert before == {key: core.get_config(self.family, key) for key in keys}
        with pytest.raises(UnknownOptionError, match="NO_SUCH_KEY"):
            core.load_network(self.network(), self.device, {**self.config, "NO_SUCH_KEY": "1"})

    def test_another_id_is_not_found(self, core: Core) -> None:
        """A device id that does not exist is refused."""
        if self.is_composite:
            return
        with pytest.raises(DeviceNotFoundError):
            core.load_network(self.network(), f"{self.family}.no-such-id")

    # -- loading ------------------------------------------------------------------------------

    def test_loading_leaves_the_network_alone(self, core: Core) -> None:
        """The caller's network is the same before and after."""
        network = self.network()
        before = [repr(node) for node in network.nodes()]
        core.load_network(network, self.device, self.config)
        assert before == [repr(node) for node in network.nodes()]

    def test_query_names_every_node(self, core: Core) -> None:
        """`query_network` places all nodes of the suite's network on this family's devices."""
        network = self.network()
        placed = core.query_network(network, self.device, self.config)
        assert {node.name for node in network.nodes()} == set(placed)
        if not self.is_composite:
            assert {name.partition(".")[0] for name in placed.values()} == {self.family}

    def test_an_unknown_operation_is_refused(self, core: Core) -> None:
        """`query_network` leaves the node out; `load_network` names it."""
        network = self.network()
        (result,) = network.results
        result.inputs = [Node("stranger", Unheard(), result.inputs).output]
        assert "stranger" not in core.query_network(network, self.device, self.config)
        with pytest.raises(UnsupportedNetworkError, match="stranger"):
            core.load_network(network, self.device, self.config)

    def test_a_loaded_network_describes_itself(self, core: Core) -> None:
        """Inputs, outputs, metrics and configuration of the executable network."""
        executable = self.load(core)
        assert list(executable.inputs) == ["x"]
        assert list(executable.outputs) == ["y"]
        assert executable.inputs["x"].shape == Shape(SHAPE)
        for name in executable.get_metric("SUPPORTED_METRICS"):
            executable.get_metric(name)
        assert executable.get_metric("OPTIMAL_NUMBER_OF_INFER_REQUESTS") >= 1
        for key in executable.get_metric("SUPPORTED_CONFIG_KEYS"):
            assert isinstance(executable.get_config(key), str)

    # -- running ------------------------------------------------------------------------------

    def test_answers_right_every_time(self, core: Core) -> None:
        """Several inputs in turn, the first one again at the end."""
        request = self.load(core).create_infer_request()
        for seed in (0, 1, 2, 0):
            x = random_input(seed)
            self.check(request.infer({"x": x})["y"], x)
        assert request.latency > 0

    def test_requests_do_not_disturb_one_another(self, core: Core) -> None:
        """Two requests of one network keep their own inputs and outputs."""
        executable = self.load(core)
        first, second = executable.create_infer_request(), executable.create_infer_request()
        y = first.infer({"x": random_input(1)})["y"]
        second.infer({"x": random_input(2)})
        self.check(y, random_input(1))

    def test_uses_the_callers_memory(self, core: Core) -> None:
        """Memory given to `set_blob` is read and written in place."""
        request = self.load(core).create_infer_request()
        x, y = random_input(3), np.full_like(self.answer(random_input(3)), np.nan)
        request.set_blob("x", Blob(x))
        request.set_blob("y", Blob(y))
        request.infer()
        self.check(y, x)
        x[...] = random_input(4)
        request.infer()
        self.check(y, random_input(4))

    def test_shares_its_memory_or_says_that_it_has_none(self, core: Core) -> None:
        """Remote blobs of the network's context are inputs and outputs; or there is no context."""
        executable = self.load(core)
        try:
            context = executable.get_context()
        except DeviceError as error:
            assert self.device.partition(".")[0] in str(error)
            return
        request = executable.create_infer_request()
        source = context.create_blob(executable.inputs["x"].desc)
        result = context.create_blob(executable.outputs["y"].desc)
        request.set_blob("x", source)
        request.set_blob("y", result)
        for seed in (1, 2):
            source.copy_from(random_input(seed))
            assert request.infer() == {}
            request.wait()
            assert request.copies.with_host == 0
            with result.map("r") as array:
                self.check(array, random_input(seed))
        with pytest.raises(BlobError):
            request.set_blob("x", context.create_blob(TensorDesc(ElementType.f32, Shape([1]))))
        assert request.get_blob("x") is source
        source.release()
        with pytest.raises(BlobError):
            request.infer()

    def test_converts_what_does_not_fit_in_place(self, core: Core) -> None:
        """Strided and f64 inputs are converted."""
        request = self.load(core).create_infer_request()
        x = random_input(5)
        reversed_twice = np.ascontiguousarray(x[::-1, :, ::-1])[::-1, :, ::-1]
        self.check(request.infer({"x": reversed_twice})["y"], x)
        self.check(request.infer({"x": x.astype(np.float64)})["y"], x)

    @pytest.mark.parametrize(
        "inputs",
        [
            {"nobody": np.zeros(SHAPE, np.float32)},
            {"x": np.zeros((2, 3, 6), np.float32)},
            {"x": np.zeros(SHAPE, np.complex64)},
        ],
        ids=["name", "shape", "type"],
    )
    def test_refuses_wrong_inputs_and_goes_on(self, core: Core, inputs: dict[str, Array]) -> None:
        """A wrong name, shape or type is refused; the next inference is right."""
        request = self.load(core).create_infer_request()
        with pytest.raises(BlobError):
            request.infer(inputs)
        self.check(request.infer({"x": random_input(6)})["y"], random_input(6))

    def test_asynchronous(self, core: Core) -> None:
        """start_async, wait and the completion callback."""
        request = self.load(core).create_infer_request()
        assert request.wait() is StatusCode.INFER_NOT_STARTED
        seen: list[tuple[StatusCode, Any]] = []
        request.set_completion_callback(lambda *arguments: seen.append(arguments), "data")
        request.start_async({"x": random_input(7)})
        assert request.wait() is StatusCode.OK
        self.check(request.get_blob("y").array, random_input(7))
        assert seen == [(StatusCode.OK, "data")]

    def test_a_failing_callback_is_reported(self, core: Core) -> None:
        """An exception in a callback reaches whoever waits; the request stays usable."""
        request = self.load(core).create_infer_request()

        def fail(*_: object) -> None:
            raise ZeroDivisionError("from the callback")

        request.set_completion_callback(fail)
        request.start_async({"x": random_input(8)})
        with pytest.raises(InferenceError, match="from the callback"):
            request.wait()
        request.set_completion_callback(None)
        self.check(request.infer({"x": random_input(9)})["y"], random_input(9))

    def test_many_threads_get_their_own_answers(self, core: Core) -> None:
        """Four threads with a request each, ten inferences each."""
        executable = self.load(core)
        start = threading.Barrier(4)

        def work(thread: int) -> None:
            request = executable.create_infer_request()
            start.wait(timeout=60)
            for turn in range(10):
                x = random_input(100 * thread + turn)
                self.check(request.infer({"x": x})["y"], x)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))

    def test_a_pool_of_requests(self, core: Core) -> None:
        """`requests`, `start_async`, `wait` and `get_idle_request_id` of the network."""
        executable = self.load(core, num_requests=3)
        assert len(executable.requests) == 3
        for number in range(3):
            executable.start_async(number, {"x": random_input(number)})
        assert executable.wait() is StatusCode.OK
        for number in range(3):
            executable.requests[number].wait()
            self.check(executable.requests[number].get_blob("y").array, random_input(number))
        assert executable.get_idle_request_id() in range(3)
        with pytest.raises(RequestError):
            executable.start_async(3)
        assert len(self.load(core, num_requests=0).requests) >= 1

    def test_counts_times(self, core: Core) -> None:
        """PERF_COUNT, where the device has it, gives legal counters for known layers."""
        if "PERF_COUNT" not in core.option_keys(self.device):
            pytest.skip(f"{self.device} has no key PERF_COUNT")
        config = {**self.config, "PERF_COUNT": "YES"}
        request = core.load_network(self.network(), self.device, config).create_infer_request()
        request.infer({"x": random_input(0)})
        counts = request.get_perf_counts()
        assert any(count["status"] == "EXECUTED" for count in counts.values())
        for count in counts.values():
            assert count["status"] in ("EXECUTED", "OPTIMIZED_OUT", "NOT_RUN")
            assert count["real_time"] >= 0
            assert count["layer_type"]

    def test_explains_every_layer(self, core: Core) -> None:
        """`explain` names every layer of the model."""
        text = self.load(core).explain()
        for node in self.network():
            assert node.type == "Const" or node.name in text

    def test_the_graph_that_runs(self, core: Core, tmp_path: Path) -> None:
        """`get_exec_graph_info`, where the device has it, is an IR with the usual notes."""
        try:
            graph = self.load(core).get_exec_graph_info()
        except DeviceError as error:
            pytest.skip(str(error))
        assert [node.name for node in graph.parameters] == ["x"]
        assert [name for name, _ in graph.output_ports()] == ["y"]
        for order, node in enumerate(sorted(graph, key=lambda n: int(n.rt_info["execOrder"]))):
            assert node.rt_info["execOrder"] == str(order)
            assert node.rt_info["execTimeMcs"] == "not_executed"
            assert node.rt_info.keys() >= {"originalLayersNames", "primitiveType", "layerType"}
        graph.serialize(tmp_path / "graph.xml")
        again = core.read_network(tmp_path / "graph.xml")
        assert [node.rt_info for node in again] == [node.rt_info for node in graph]

    # -- giving up ----------------------------------------------------------------------------

    ENDLESS: ClassVar[dict[str, Array]] = {
        "x": np.zeros(SHAPE, np.float32),
        "trips": np.array(-1, np.int64),
    }

    def load_repeating(self, core: Core, **config: Any) -> Any:
        """Load the network with a loop, or skip the test if the device runs none."""
        network = self.repeating()
        if reasons := core.unsupported_nodes(network, self.device, self.config):
            pytest.skip(f"{self.device} runs no loop: {reasons}")
        executable = core.load_network(network, self.device, {**self.config, **config})
        self.check_repeating(executable.create_infer_request())
        return executable

    def check_repeating(self, request: Any) -> None:
        """Run three iterations."""
        x = random_input(7)
        y = request.infer({"x": x, "trips": np.array(3, np.int64)})["y"]
        np.testing.assert_allclose(y, x + 3, rtol=1e-3, atol=1e-3)

    def test_cancels_what_runs(self, core: Core) -> None:
        """`cancel` ends an endless loop, of `start_async` and of `infer`; the request goes on."""
        request = self.load_repeating(core).create_infer_request()
        for _ in range(2):
            request.start_async(self.ENDLESS)
            assert request.wait(20) is StatusCode.RESULT_NOT_READY
            request.cancel()
            with pytest.raises(InferCancelledError, match="cancelled"):
                request.wait()
            self.check_repeating(request)
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(request.infer, self.ENDLESS)
            while not running.done():
                request.cancel()  # without effect until the inference has begun
                time.sleep(0.01)
            assert isinstance(running.exception(), InferCancelledError)
        self.check_repeating(request)

    def test_ends_when_its_time_is_over(self, core: Core) -> None:
        """INFER_TIMEOUT_MS ends an endless loop, and leaves the request usable."""
        # Long enough for the inference that ends, on a busy machine too.
        request = self.load_repeating(core, INFER_TIMEOUT_MS=700).create_infer_request()
        with pytest.raises(InferTimeoutError, match="INFER_TIMEOUT_MS"):
            request.infer(self.ENDLESS)
        request.start_async(self.ENDLESS)
        with pytest.raises(InferTimeoutError, match="700 ms"):
            request.wait()
        self.check_repeating(request)

    def test_others_do_not_wait_for_an_endless_one(self, core: Core) -> None:
        """Another request of the same network answers while one runs for ever."""
        executable = self.load_repeating(core)
        endless, other = (executable.create_infer_request() for _ in range(2))
        endless.start_async(self.ENDLESS)
        assert endless.wait(20) is StatusCode.RESULT_NOT_READY
        for _ in range(3):
            self.check_repeating(other)
        assert endless.wait(0) is StatusCode.RESULT_NOT_READY
        endless.cancel()
        with pytest.raises(InferCancelledError):
            endless.wait()

    def test_closing_cancels_what_runs(self, core: Core) -> None:
        """Closing a network, and a core, ends endless loops."""
        executable = self.load_repeating(core, PERFORMANCE_HINT="THROUGHPUT")
        requests = [executable.create_infer_request() for _ in range(2)]
        for request in requests:
            request.start_async(self.ENDLESS)
        executable.close()
        for request in requests:
            with pytest.raises(InferCancelledError, match="was closed"):
                request.wait(0)
            for begin in (request.infer, request.start_async):
                with pytest.raises(DeviceError, match="is closed"):
                    begin(self.ENDLESS)
        with Core() as second:
            self.register(second)
            running = self.load_repeating(second).create_infer_request()
            running.start_async(self.ENDLESS)
        with pytest.raises(InferCancelledError, match="was closed"):
            running.wait(0)

    def test_refuses_to_write_read_only_memory(self, core: Core) -> None:
        """A read-only array is an input, but no output."""
        request = self.load(core).create_infer_request()
        x, y = random_input(3), np.zeros_like(self.answer(random_input(3)))
        for array in (x, y):
            array.flags.writeable = False
        request.set_blob("x", x)
        with pytest.raises(BlobError, match="read-only"):
            request.set_blob("y", y)
        self.check(request.infer()["y"], x)
        assert not y.any()

    # -- the end ------------------------------------------------------------------------------

    def test_closing(self, core: Core) -> None:
        """A closed network refuses new requests; closing twice is fine; the core goes on."""
        executable = self.load(core)
        executable.create_infer_request().infer({"x": random_input(0)})
        executable.close()
        executable.close()
        with pytest.raises(DeviceError):
            executable.create_infer_request()
        x = random_input(1)
        self.check(self.load(core).infer({"x": x})["y"], x)

    def test_closing_with_work_in_flight(self, core: Core) -> None:
        """Closing while requests run neither hangs nor crashes."""
        executable = self.load(core, num_requests=4)
        for number in range(4):
            executable.start_async(number, {"x": random_input(number)})
        executable.close()
        for request in executable.requests:
            assert not request.is_busy
