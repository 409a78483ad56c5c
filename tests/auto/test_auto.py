"""AUTO: which device runs, when it moves over, and what happens when one fails."""

from __future__ import annotations

import logging
import threading
import time

import numpy as np
import pytest

from polydevice import Copies, Core
from polydevice.errors import (
    DeviceError,
    DeviceLostError,
    DeviceNameError,
    DeviceNotFoundError,
    InferCancelledError,
    InferTimeoutError,
    OptionValueError,
    PluginError,
    UnknownOptionError,
    UnsupportedNetworkError,
)
from polydevice.testing.device_suite import DeviceSuite
from tests.cpu.models import build

from .conftest import right

LOG = "polydevice_auto"


def until(condition, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


def device(executable) -> str:
    (found,) = executable.get_metric("EXECUTION_DEVICES")
    return found


def infers(executable, rng) -> None:
    x = rng.standard_normal(5).astype("f4")
    np.testing.assert_array_equal(executable.infer({"x": x})["y"], right(x))


class TestAuto(DeviceSuite):
    @pytest.fixture(autouse=True)
    def _choose(self, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
        members = "CPU" if device == "CPU" else f"{device},CPU"
        monkeypatch.setattr(TestAuto, "device", f"AUTO:{members}", raising=False)


class TestMulti(DeviceSuite):
    @pytest.fixture(autouse=True)
    def _choose(self, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
        members = "CPU" if device == "CPU" else f"{device},CPU"
        monkeypatch.setattr(TestMulti, "device", f"MULTI:{members}", raising=False)


def test_a_candidate_whose_plugin_does_not_work_is_passed_over(core, network, rng) -> None:
    core.register_plugin("tests.auto.nothing_here", "BROKEN")
    executable = core.load_network(network, "AUTO:BROKEN,CPU")
    assert device(executable) == "CPU"
    infers(executable, rng)
    with pytest.raises(PluginError, match=r"BROKEN.*nothing_here"):
        core.load_network(network, "AUTO:BROKEN")


# -- choosing ---------------------------------------------------------------------------------


def test_starts_on_the_cpu_and_moves_over(core, troubles, network, rng, caplog) -> None:
    caplog.set_level(logging.INFO, LOG)
    troubles["SHAKY"].gate = gate = threading.Event()
    executable = core.load_network(network, "AUTO:SHAKY,CPU")
    assert device(executable) == "CPU"
    assert executable.get_metric("LOADING_DEVICES") == ["SHAKY"]
    request, queue = executable.create_infer_request(), executable.infer_queue()
    for _ in range(3):
        infers(executable, rng)
    assert not troubles["SHAKY"].runs
    gate.set()
    until(lambda: device(executable) == "SHAKY")
    assert executable.get_metric("LOADING_DEVICES") == []
    for _ in range(3):
        infers(executable, rng)
        x = rng.standard_normal(5).astype("f4")
        np.testing.assert_array_equal(request.infer(x)["y"], right(x))
        queue.start_async(x)
    queue.wait_all()
    assert len(troubles["SHAKY"].runs) == 9
    assert executable.get_metric("INFERENCES") == {"SHAKY": 9, "CPU": 3}
    assert "SHAKY: chosen" in executable.explain()
    assert "SHAKY: chosen" in executable.get_metric("EXPLANATION")
    assert "SHAKY: chosen" in caplog.text


def test_without_a_list_the_quickest_kind_of_the_machine_comes_first(core, network) -> None:
    """SHAKY and SHAKY2 say that they are discrete GPUs; there may be real ones before them."""
    executable = core.load_network(network, "AUTO")
    until(lambda: device(executable) != "CPU")
    candidates = executable.get_metric("EXPLANATION").partition("\n")[0]
    assert "SHAKY (a discrete GPU), SHAKY2 (a discrete GPU)" in candidates
    assert candidates.endswith("CPU")


def test_the_order_of_a_list_counts(core, troubles, network) -> None:
    executable = core.load_network(network, "AUTO:CPU,SHAKY")
    assert device(executable) == "CPU"
    assert troubles["SHAKY"].loads == 0
    executable = core.load_network(
        network, "AUTO", {"MULTI_DEVICE_PRIORITIES": "SHAKY2,SHAKY", "CPU_THREADS_NUM": 1}
    )
    assert device(executable) == "SHAKY2"
    assert executable.get_config("CPU_THREADS_NUM") == "1"
    assert troubles["SHAKY"].loads == 0


def test_a_device_that_does_not_load_is_said_once_and_the_cpu_stays(
    core, troubles, network, rng, caplog
) -> None:
    troubles["SHAKY"].refuses = True
    executable = core.load_network(network, "AUTO:SHAKY,CPU")
    until(lambda: not executable.get_metric("LOADING_DEVICES"))
    until(lambda: caplog.records)
    for _ in range(3):
        infers(executable, rng)
    assert device(executable) == "CPU"
    (record,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert "stays" not in record.getMessage()
    assert "leaves network 'test' on CPU" in record.getMessage()
    assert "SHAKY cannot compile it" in record.getMessage()
    assert "SHAKY: not possible: KernelBuildError" in executable.explain()
    assert "CPU: stays, since no other" in executable.get_metric("EXPLANATION")


def test_the_next_candidate_is_tried(core, troubles, network, rng) -> None:
    troubles["SHAKY"].refuses = True
    executable = core.load_network(network, "AUTO:SHAKY,SHAKY2,CPU")
    until(lambda: device(executable) == "SHAKY2")
    infers(executable, rng)
    executable = core.load_network(network, "AUTO:SHAKY,SHAKY2")  # nothing stands in
    assert device(executable) == "SHAKY2"
    executable = core.load_network(
        network, "AUTO:SHAKY,SHAKY2,CPU", {"ENABLE_STARTUP_FALLBACK": "NO"}
    )
    assert device(executable) == "SHAKY2"


def test_nothing_loads(core, troubles, network) -> None:
    troubles["SHAKY"].refuses = troubles["SHAKY2"].refuses = True
    with pytest.raises(DeviceError, match=r"(?s)no device of AUTO.*SHAKY: .*SHAKY2: "):
        core.load_network(network, "AUTO:SHAKY,SHAKY2")


def test_a_device_that_is_not_here_is_passed_over(network, rng, monkeypatch) -> None:
    monkeypatch.setenv("POLYDEVICE_GPU_DEVICES", "name:no-such-device")
    with Core() as core:
        executable = core.load_network(network, "AUTO:GPU,CPU")
        until(lambda: not executable.get_metric("LOADING_DEVICES"))
        assert device(executable) == "CPU"
        assert "GPU: not possible: DeviceNotFoundError" in executable.get_metric("EXPLANATION")
        infers(executable, rng)


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("AUTO:CPUU", DeviceNotFoundError, "Did you mean 'CPU'"),
        ("AUTO:MULTI,CPU", DeviceNameError, "AUTO takes devices, not MULTI"),
        ("AUTO:CPU(2)", DeviceNameError, "AUTO runs requests on one device"),
        ("MULTI", DeviceNotFoundError, "MULTI needs members"),
        ("MULTI:CPU,CPUU", DeviceNotFoundError, "Did you mean 'CPU'"),
        ("MULTI:HETERO,CPU", DeviceNameError, "MULTI takes devices, not HETERO"),
        ("HETERO:CPU(2)", DeviceNameError, "is not a device"),
        ("CPU:CPU", DeviceNameError, "CPU takes no members"),
    ],
)
def test_names_that_are_not_possible(core, network, name, error, words) -> None:
    with pytest.raises(error, match=words):
        core.load_network(network, name)


def test_as_devices(core) -> None:
    """They are no devices of the machine, but answer for themselves."""
    assert not {"AUTO", "MULTI"} & set(core.available_devices)
    for name in ("AUTO", "MULTI"):
        assert core.get_metric(name, "FULL_DEVICE_NAME") == name
        assert core.get_metric(name, "AVAILABLE_DEVICES") == []
        with pytest.raises(DeviceNameError, match="one device"):
            core.get_metric(f"{name}:CPU", "FULL_DEVICE_NAME")
        assert set(core.get_versions(f"{name}:CPU")) == {name, "CPU"}
    assert "FP32" in core.get_metric("AUTO", "OPTIMIZATION_CAPABILITIES")
    core.set_config({"MULTI_DEVICE_PRIORITIES": "CPU"}, "MULTI")
    assert core.get_config("MULTI", "MULTI_DEVICE_PRIORITIES") == "CPU"


def test_keys_that_nobody_knows(core, network) -> None:
    for name in ("AUTO:CPU", "MULTI:CPU"):
        with pytest.raises(UnknownOptionError, match="Did you mean 'PERF_COUNT'"):
            core.load_network(network, name, {"PERF_COUNTS": "YES"})
        with core.load_network(network, name) as executable:
            assert executable.get_config("CPU_THREADS_NUM"), "what its device knows it tells"
            with pytest.raises(UnknownOptionError, match="key 'PERF_COUNTS'. Legal: "):
                executable.get_config("PERF_COUNTS")


def test_a_value_that_a_device_refuses_is_said_at_once(core, troubles, network) -> None:
    troubles["SHAKY"].crash = OptionValueError("CPU_THREADS_NUM=-1 is not possible")
    with pytest.raises(OptionValueError, match="THREADS_NUM=-1 is not possible"):
        core.load_network(network, "AUTO:SHAKY,SHAKY2")
    assert troubles["SHAKY2"].loads == 0


def test_export_says_what_to_do(core, network) -> None:
    executable = core.load_network(network, "AUTO:SHAKY")
    with pytest.raises(DeviceError, match="Load the network on one of SHAKY and export that"):
        executable.export()
    with pytest.raises(DeviceError, match="cannot import"):
        core.import_network(b"", "AUTO")


def test_counters_come_from_the_device_that_ran(core, network, rng) -> None:
    executable = core.load_network(network, "AUTO:SHAKY", {"PERF_COUNT": "YES"})
    assert executable.requests[0].copies == Copies(), "no device ran it yet"
    infers(executable, rng)
    assert executable.requests[0].copies == Copies(), "SHAKY computes in host memory"
    counts = executable.requests[0].get_perf_counts()
    assert {"x", "y"} <= set(counts) or counts
    assert any(row["status"] == "EXECUTED" for row in counts.values())


def test_after_moving_over_a_request_holds_nothing_on_the_cpu(core, troubles, network, rng) -> None:
    troubles["SHAKY"].gate = gate = threading.Event()
    executable = core.load_network(network, "AUTO:SHAKY,CPU")
    requests = [executable.create_infer_request() for _ in range(3)]
    x = rng.standard_normal(5).astype("f4")
    for request in requests:
        request.infer(x)
    (cpu,) = executable.schedule.members
    gate.set()
    until(lambda: device(executable) == "SHAKY")
    assert all(request.runner.holds(cpu) for request in requests)
    for request in requests:
        np.testing.assert_array_equal(request.infer(x)["y"], right(x))
        assert not request.runner.holds(cpu)
    troubles["SHAKY"].lives = 0  # and it may go back
    for request in requests:
        np.testing.assert_array_equal(request.infer(x)["y"], right(x))
        np.testing.assert_array_equal(request.infer(x)["y"], right(x))
        assert request.runner.holds(cpu)


# -- failing ----------------------------------------------------------------------------------


def test_a_device_that_fails_leaves_the_rest_to_the_cpu(
    core, troubles, network, rng, caplog
) -> None:
    executable = core.load_network(network, "AUTO:SHAKY,CPU")
    until(lambda: device(executable) == "SHAKY")
    troubles["SHAKY"].lives = 3
    for _ in range(8):
        infers(executable, rng)
    assert device(executable) == "CPU"
    assert executable.get_metric("INFERENCES") == {"SHAKY": 3, "CPU": 5}
    warnings = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert "fell off the bus" in warnings[0]
    assert "taken out after 3 inferences: DeviceLostError" in executable.explain()


def test_a_device_that_hangs_leaves_the_rest_to_the_cpu(
    core, troubles, network, rng, caplog
) -> None:
    hanging = troubles["SHAKY"]
    hanging.lives, hanging.hangs = 3, threading.Event()
    executable = core.load_network(network, "AUTO:SHAKY,CPU", {"AUTO_DEVICE_TIMEOUT_MS": 2000})
    until(lambda: device(executable) == "SHAKY")
    for _ in range(6):
        infers(executable, rng)
    assert executable.get_metric("INFERENCES") == {"SHAKY": 3, "CPU": 3}
    assert device(executable) == "CPU"
    assert "SHAKY has not ended an inference within 2 s. Another device runs" in caplog.text
    hanging.hangs.set()
    executable.close()


def test_without_the_fallback_the_cpus_memory_is_freed(core, troubles, network, rng) -> None:
    executable = core.load_network(network, "AUTO:SHAKY,CPU", {"ENABLE_RUNTIME_FALLBACK": "NO"})
    request = executable.create_infer_request()
    until(lambda: device(executable) == "SHAKY")
    (cpu,) = [m.executable for m in executable.schedule.members if m.device == "CPU"]
    until(lambda: cpu._closed)
    x = rng.standard_normal(5).astype("f4")
    np.testing.assert_array_equal(request.infer(x)["y"], right(x))
    troubles["SHAKY"].lives = 0
    with pytest.raises(DeviceLostError, match="fell off the bus"):
        request.infer(x)


def test_variables_keep_a_request_where_it_is(core, troubles, rng) -> None:
    """Nothing stands in for the device: values would be left behind."""
    from polydevice.dtype import ElementType
    from polydevice.network import Network
    from polydevice.node import Node
    from polydevice.ops.arithmetic import Add
    from polydevice.ops.io import Parameter, Result
    from polydevice.ops.state import Assign, ReadValue
    from polydevice.shape import Shape

    x = Node("x", Parameter(element_type=ElementType.f32, shape=Shape((3,))))
    settings = {"variable_id": "sum"}
    read = Node(
        "read", ReadValue(**settings, variable_shape=Shape((3,)), variable_type=ElementType.f32), []
    )
    total = Node("total", Add(), [x.output, read.output])
    assign = Node("assign", Assign(**settings), [total.output])
    network = Network("sums", [x], [Node("y", Result(), [total.output])], sinks=[assign])
    for name in ("AUTO:SHAKY,CPU", "MULTI:SHAKY,SHAKY2", "MULTI:CPU,SHAKY"):
        executable = core.load_network(network, name)
        if name.startswith("AUTO"):
            assert device(executable) == "SHAKY"
        requests = [executable.create_infer_request() for _ in range(3)]
        sums = np.zeros((3, 3), "f4")
        for _ in range(6):
            for number, request in enumerate(requests):
                x = rng.integers(-9, 9, 3).astype("f4")
                sums[number] += x
                np.testing.assert_array_equal(next(iter(request.infer(x).values())), sums[number])
        (variable,) = requests[0].query_state()
        np.testing.assert_array_equal(variable.state, sums[0])
        variable.reset()
        np.testing.assert_array_equal(next(iter(requests[0].infer(x).values())), x)


@pytest.mark.parametrize("crash", [ValueError("oops"), MemoryError(), SystemExit(3)])
def test_a_plugin_that_crashes_while_it_loads(core, troubles, network, rng, crash) -> None:
    """Its defect costs its own device, whatever it raises."""
    troubles["SHAKY"].crash = crash
    executable = core.load_network(network, "AUTO:SHAKY,SHAKY2,CPU")
    until(lambda: device(executable) == "SHAKY2")
    infers(executable, rng)
    executable = core.load_network(network, "AUTO:SHAKY,CPU")
    until(lambda: not executable.get_metric("LOADING_DEVICES"))
    assert device(executable) == "CPU"
    infers(executable, rng)
    if isinstance(crash, SystemExit):
        return  # in the user's own thread it is the user's to see
    for name in ("AUTO:SHAKY,SHAKY2", "MULTI:SHAKY,SHAKY2"):
        executable = core.load_network(network, name)
        assert device(executable) == "SHAKY2"
        infers(executable, rng)


# -- ending -----------------------------------------------------------------------------------


def test_closing_while_the_device_loads(core, troubles, network, rng, caplog) -> None:
    troubles["SHAKY"].gate = gate = threading.Event()
    executable = core.load_network(network, "AUTO:SHAKY,CPU")
    infers(executable, rng)
    threading.Timer(0.1, gate.set).start()
    executable.close()
    assert troubles["SHAKY"].loads == troubles["SHAKY"].closed == 1
    assert not [t for t in threading.enumerate() if "AUTO" in t.name]
    with pytest.raises(DeviceError, match="closed"):
        executable.infer({"x": np.zeros(5, "f4")})
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


def test_closing_waits_once_and_gives_up_loading_first(
    core, troubles, network, rng, monkeypatch
) -> None:
    """Also where a request of it hangs, so that nothing is released."""
    from polydevice.executable_network import ExecutableNetwork

    ends, original = [], ExecutableNetwork.close_by

    def noted(self, end) -> None:
        ends.append(end)
        original(self, end)

    monkeypatch.setattr(ExecutableNetwork, "close_by", noted)
    monkeypatch.setattr(
        "polydevice.executable_network.closing_time", lambda: time.monotonic() + 0.05
    )
    for hangs in (False, True):
        troubles["SHAKY"].gate = gate = threading.Event()
        executable = core.load_network(network, "AUTO:SHAKY,CPU")
        infers(executable, rng)
        request = executable.create_infer_request()
        ends.clear()
        if hangs:
            request._busy.acquire()
        executable.close()
        assert len(ends) == 1 + (not hangs)  # and the CPU's
        assert len(set(ends)) == 1
        (loader,) = [t for t in threading.enumerate() if t.name.endswith("-loading")]
        gate.set()
        loader.join(60)
        assert not loader.is_alive()
        if hangs:
            request._busy.release()
    assert troubles["SHAKY"].closed == troubles["SHAKY"].loads == 2


@pytest.mark.parametrize("name", ["AUTO:SHAKY", "MULTI:SHAKY,SHAKY2"])
def test_cancelling_and_time_limits(core, troubles, network, name) -> None:
    troubles["SHAKY"].seconds = troubles["SHAKY2"].seconds = 0.05
    executable = core.load_network(network, name, {"INFER_TIMEOUT_MS": 400})
    requests = [executable.create_infer_request() for _ in range(30)]
    x = np.zeros(5, "f4")
    for request in requests:
        request.start_async(x)
    requests[-1].cancel()
    with pytest.raises(InferCancelledError):
        requests[-1].wait()
    ends = set()
    for request in requests[:-1]:
        try:
            request.wait()
            ends.add("OK")
        except InferTimeoutError:
            ends.add("over")
    assert ends == {"OK", "over"}
    assert len(executable.get_metric("EXECUTION_DEVICES")) == 1 + name.startswith("MULTI")


def test_an_unknown_network_says_what_each_device_lacks(core, network) -> None:
    model = build([("Mul", ["x", "x"], ["y"], {})], {"x": (2,)}, ("y",), {})
    made = core.read_network(model)
    (result,) = made.results
    from polydevice.node import Node
    from polydevice.testing.suite.subject import Unheard

    result.inputs = [Node("stranger", Unheard(), result.inputs).output]
    for name in ("AUTO:CPU,SHAKY", "MULTI:CPU,SHAKY"):
        with pytest.raises(
            UnsupportedNetworkError, match=r"(?s)CPU: .*stranger.*SHAKY: .*stranger"
        ):
            core.load_network(made, name)
