"""Core: devices, configuration, plugins that misbehave."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import types
from pathlib import Path

import numpy as np
import pytest

from polydevice import Core, ElementType
from polydevice.errors import (
    DeviceError,
    DeviceNameError,
    DeviceNotFoundError,
    ElementTypeError,
    ModelFileError,
    OptionValueError,
    PluginError,
    UnknownMetricError,
    UnknownOptionError,
)
from polydevice.hookspecs import hookimpl

from .conftest import relu_network
from .echo_plugin import EchoPlugin, make


def test_devices_are_listed_by_family_and_id(core):
    assert "ECHO" in core.available_devices
    core.set_config({"ECHO_IDS": "0,1"}, "ECHO")
    assert {"ECHO.0", "ECHO.1"} <= set(core.available_devices)
    assert "HETERO" not in core.available_devices
    core.set_config({"ECHO_IDS": ""}, "ECHO")
    assert not [name for name in core.available_devices if name.startswith("ECHO")]


def test_unknown_devices_are_explained(core):
    with pytest.raises(DeviceNotFoundError, match="'ECO' is registered.*Did you mean 'ECHO'"):
        core.load_network(relu_network(), "ECO")
    with pytest.raises(DeviceNotFoundError, match=r"'ECHO.7' is not available. Available: ECHO.0"):
        core.load_network(relu_network(), "ECHO.7")
    with pytest.raises(DeviceNameError, match="takes no members"):
        core.load_network(relu_network(), "ECHO:CPU")


def test_configuration_scopes(core, x):
    core.set_config({"ECHO_IDS": "0,1"}, "ECHO")
    core.set_config({"ECHO_STREAMS": "2"}, "ECHO")
    core.set_config({"ECHO_STREAMS": "3"}, "ECHO.1")
    network = relu_network()
    assert core.load_network(network, "ECHO").get_config("ECHO_STREAMS") == "2"
    assert core.load_network(network, "ECHO.0").get_config("ECHO_STREAMS") == "2"
    assert core.load_network(network, "ECHO.1").get_config("ECHO_STREAMS") == "3"
    loaded = core.load_network(network, "ECHO.1", {"ECHO_STREAMS": "4"})
    assert loaded.get_config("ECHO_STREAMS") == "4"
    assert core.get_config("ECHO", "ECHO_STREAMS") == "2", "a load does not leak"
    assert core.get_config("ECHO.1", "ECHO_STREAMS") == "3"


def test_bad_configuration_changes_nothing(core):
    with pytest.raises(OptionValueError):
        core.set_config({"ECHO_DELAY": "5", "ECHO_STREAMS": "99"}, "ECHO")
    assert core.get_config("ECHO", "ECHO_DELAY") == "0"
    with pytest.raises(UnknownOptionError, match="ECHO_STREAMS"):
        core.set_config({"ECHO_STREAM": "1"}, "ECHO")
    with pytest.raises(DeviceNameError, match="one device"):
        core.set_config({"ECHO_DELAY": "5"}, "HETERO:ECHO,CPU")
    with pytest.raises(UnknownOptionError, match="no device knows NOT_A_KEY"):
        core.set_config({"ECHO_DELAY": "5", "NOT_A_KEY": "1"})
    assert core.get_config("ECHO", "ECHO_DELAY") == "0"


def test_metrics(core):
    assert core.get_metric("ECHO", "FULL_DEVICE_NAME") == "Echo 0"
    assert core.get_metric("ECHO", "AVAILABLE_DEVICES") == ["0"]
    assert "FULL_DEVICE_NAME" in core.get_metric("ECHO", "SUPPORTED_METRICS")
    assert "ECHO_STREAMS" in core.get_metric("ECHO", "SUPPORTED_CONFIG_KEYS")
    with pytest.raises(UnknownMetricError, match="Did you mean 'FULL_DEVICE_NAME'"):
        core.get_metric("ECHO", "DEVICE_NAME")
    executable = core.load_network(relu_network(), "ECHO", {"ECHO_STREAMS": 3}, num_requests=0)
    assert executable.get_metric("OPTIMAL_NUMBER_OF_INFER_REQUESTS") == 3
    assert len(executable.requests) == 3
    with pytest.raises(UnknownMetricError, match="NETWORK_NAME"):
        executable.get_metric("NETWORK")


def test_query_network(core):
    answer = core.query_network(relu_network(), "ECHO.0")
    assert answer == {"x": "ECHO.0", "relu": "ECHO.0", "out": "ECHO.0"}


def test_versions(core):
    assert core.get_versions("ECHO")["ECHO"].description == "echo"
    assert set(core.get_versions("HETERO:ECHO,CPU")) == {"HETERO", "ECHO", "CPU"}


def test_register_and_unregister(core):
    with pytest.raises(PluginError, match="already registered by echo_plugin"):
        core.register_plugin("other_module", "ECHO")
    with pytest.raises(DeviceNameError):
        core.register_plugin("other_module", "A.B")
    assert "ECHO" in core.available_devices
    core.unregister_plugin("ECHO")
    with pytest.raises(DeviceNotFoundError):
        core.load_network(relu_network(), "ECHO")
    with pytest.raises(PluginError, match="not registered"):
        core.unregister_plugin("ECHO")


def test_one_of_two_devices_of_a_module_registered_again(core, monkeypatch):
    module = types.ModuleType("two_echoes")

    @hookimpl
    def register_devices(register):
        register("AAA", make)
        register("BBB", make)

    module.register_devices = register_devices
    monkeypatch.setitem(sys.modules, "two_echoes", module)
    core.register_plugin("two_echoes", "AAA")
    core.register_plugin("two_echoes", "BBB")
    for name in ("AAA", "BBB", "AAA"):
        assert {"AAA", "BBB"} <= set(core.available_devices)
        core.unregister_plugin(name)
        with pytest.raises(DeviceNotFoundError):
            core.load_network(relu_network(), name)
        core.register_plugin("two_echoes", name)
        assert set(core.get_versions(name)) == {name}


def test_closed_core(x):
    core = Core()
    core.register_plugin("echo_plugin", "ECHO")
    executable = core.load_network(relu_network(), "ECHO")
    executable.infer({"x": x})
    core.close()
    core.close()
    assert executable.closed
    with pytest.raises(DeviceError, match="closed"):
        core.load_network(relu_network(), "ECHO")


def test_negative_num_requests(core):
    with pytest.raises(OptionValueError, match="num_requests=-1"):
        core.load_network(relu_network(), "ECHO", num_requests=-1)


def test_a_plugin_that_fails_while_loading_is_named(core, network, monkeypatch):
    def fail(*arguments):
        raise KeyError("string")

    monkeypatch.setattr(type(core._devices.plugin("ECHO")), "load_network", fail)
    with pytest.raises(PluginError, match="ECHO .*loading network 'tiny': KeyError") as caught:
        core.load_network(network, "ECHO")
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_plugin_hears_of_a_network_before_it_is_started(network, monkeypatch):
    module, heard = sys.modules["echo_plugin"], []
    monkeypatch.setattr(module, "heard", heard)
    monkeypatch.setattr(module, "EchoPlugin", lambda *a: heard.append("start") or EchoPlugin(*a))
    with Core() as core:
        core.register_plugin("echo_plugin", "ECHO")
        core.load_network(network, "ECHO")
        assert heard == ["a network", "start"]
        core.load_network(network, "ECHO")
        assert heard == ["a network", "start", "a network"]


def test_a_plugin_that_is_only_asked_hears_of_no_network(core, network, monkeypatch):
    heard: list[str] = []
    monkeypatch.setattr(sys.modules["echo_plugin"], "heard", heard)
    core.get_metric("ECHO", "FULL_DEVICE_NAME")
    core.query_network(network, "ECHO")
    core.load_network(network, "CPU")
    assert not heard


def test_model_files_that_are_not_there(core, tmp_path):
    with pytest.raises(ModelFileError, match="does not exist"):
        core.read_network(tmp_path / "nothing.xml")
    with pytest.raises(ModelFileError, match="is a directory"):
        core.read_network(tmp_path)
    empty = tmp_path / "empty.onnx"
    empty.touch()
    with pytest.raises(ModelFileError, match=r"model file '.*empty\.onnx' is empty"):
        core.load_network(empty, "ECHO")
    with pytest.raises(ModelFileError, match="0 bytes"):
        core.read_network(b"")


def test_many_threads_load_and_infer(core):
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            data = np.random.default_rng(seed).random((2, 3), np.float32)
            with core.load_network(relu_network(), "ECHO") as executable:
                np.testing.assert_array_equal(executable.infer({"x": data})["relu"], data + 1)
        except BaseException as error:  # noqa: BLE001 - the main thread reports it
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


# -- third-party plugins that misbehave -----------------------------------------------------------

MISBEHAVING = {
    "BROKEN": ("broken_plugin", "raise ImportError('no libfoo')"),
    "HANGING": ("hanging_plugin", "import time\ntime.sleep(60)"),
    "EXITING": ("exiting_plugin", "raise SystemExit(3)"),
    "OLD": ("old_plugin", "polydevice_api = 0"),
    "EMPTY": ("empty_plugin", "x = 1"),
    "GONE": ("module_that_is_not_there", None),
    "RAISING": (
        "raising_plugin",
        """
        from polydevice import hookimpl

        def make(name, services):
            raise OSError("device library missing")

        @hookimpl
        def register_devices(register):
            register("RAISING", make)
        """,
    ),
}
REASONS = {
    "BROKEN": "no libfoo",
    "HANGING": "longer than 1 s",
    "EXITING": "SystemExit",
    "OLD": "plugin interface 0",
    "EMPTY": "registers no device 'EMPTY'",
    "GONE": "No module named",
    "RAISING": "device library missing",
}


@pytest.fixture(scope="module")
def bad_plugins(tmp_path_factory) -> Path:
    """A folder that looks like an installed distribution with many broken plugins."""
    folder = tmp_path_factory.mktemp("site")
    info = folder / "bad_devices-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bad-devices\nVersion: 1.0\n")
    lines = ["[polydevice.plugins]"]
    for name, (module, source) in MISBEHAVING.items():
        lines.append(f"{name} = {module}")
        if source is not None:
            (folder / f"{module}.py").write_text(textwrap.dedent(source))
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder


def run_with(folder: Path, body: str) -> str:
    env = {"PYTHONPATH": str(folder), "POLYDEVICE_PLUGIN_TIMEOUT": "1", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(body)],
        capture_output=True, text=True, timeout=120, check=False, env=env,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_broken_plugins_never_take_core_down(bad_plugins):
    out = run_with(
        bad_plugins,
        """
        from polydevice import Core, ElementType
        from polydevice.errors import DeviceError
        with Core() as core:
            print(core.available_devices)
            for report in core.explain_devices():
                print(report.subject, "|", report.status, "|", report.reason)
            try:
                core.get_default_context("CPU")
            except DeviceError as error:
                print(error)
        """,
    )
    lines = out.splitlines()
    assert "'CPU'" in lines[0]
    assert not any(name in lines[-1].partition("that have: ")[2] for name in REASONS)
    for name, reason in REASONS.items():
        assert name not in lines[0]
        (line,) = [line for line in lines if line.startswith(f"plugin {name} ")]
        assert "failed" in line
        assert reason in line


@pytest.mark.parametrize("name", ["BROKEN", "HANGING", "OLD"])
def test_asking_for_a_broken_plugin_raises_its_reason_and_the_fix(bad_plugins, name):
    out = run_with(
        bad_plugins,
        f"""
        from polydevice import Core, ElementType
        from polydevice.errors import PluginError
        with Core() as core:
            try:
                core.get_versions("{name}")
            except PluginError as error:
                print(error)
        """,
    )
    assert REASONS[name] in out
    assert "bad-devices" in out
    assert "uninstall" in out


def test_importing_loads_no_device_library():
    out = run_with(
        Path(),
        """
        import sys
        import polydevice, polydevice_cpu, polydevice_gpu, polydevice_hetero
        polydevice.Core()
        heavy = ("pyopencl", "onnx", "pydantic", "networkx", "rich", "defusedxml")
        print([name for name in heavy if name in sys.modules])
        """,
    )
    assert out == "[]\n"


def test_an_input_without_an_element_type_is_named(core):
    """And what it may be; before a device is asked."""
    network = relu_network()
    (node,) = network.parameters
    node.op = node.op.replace(element_type=ElementType.dynamic)
    with pytest.raises(ElementTypeError, match="input 'x' has no element type.*f16, f32"):
        core.load_network(network, "ECHO")
