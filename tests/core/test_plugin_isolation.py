"""Plugins of others replace nobody; what they raise and how long they take stays theirs."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polydevice import Core, hookimpl, isolation
from polydevice.cli import main
from polydevice.devices.registry import Registry
from polydevice.errors import PluginError
from polydevice.ops.op import Op
from polydevice.testing.fake_device import FakePlugin

from .test_plugin_operations import model

CALLS: list[str] = []


@dataclass(frozen=True)
class Riddle(Op):
    """What the CPU cannot compute, so that others are asked."""


def boom(*_: object, **__: object) -> None:
    CALLS.append("called")
    raise RuntimeError("boom")


def leave(*_: object, **__: object) -> None:
    CALLS.append("called")
    raise SystemExit(3)


def interrupt(*_: object, **__: object) -> None:
    CALLS.append("called")
    raise KeyboardInterrupt


def hang(*_: object, **__: object) -> None:
    CALLS.append("called")
    threading.Event().wait(20)


def nonsense(*_: object, **__: object) -> str:
    CALLS.append("called")
    return "forty-two"


MISDEEDS = [boom, leave, interrupt, hang, nonsense]


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> Iterator[Core]:
    CALLS.clear()
    monkeypatch.setattr(isolation, "LIMIT_S", 0.3)
    with Core() as made:
        yield made


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Make a module with hooks importable; by default it offers one device, BAD."""

    def make(**hooks: Callable[..., Any]) -> str:
        module = types.ModuleType("bad_plugin")

        @hookimpl
        def register_devices(register: Callable[..., None]) -> None:
            register("BAD", FakePlugin)

        @hookimpl
        def evaluate(op: Op, inputs: Sequence[Any]) -> Any:
            return hooks["evaluate"](op, inputs) if "evaluate" in hooks else None

        @hookimpl
        def register_operations() -> None:
            hooks.get("register_operations", lambda: None)()

        @hookimpl
        def register_readers(register: Callable[..., None]) -> None:
            hooks.get("register_readers", lambda _: None)(register)

        @hookimpl(specname="register_devices")
        def other_devices(register: Callable[..., None]) -> None:
            hooks["register_devices"](register)

        chosen = other_devices if "register_devices" in hooks else register_devices
        for hook in (chosen, evaluate, register_operations, register_readers):
            setattr(module, hook.__name__, hook)
        monkeypatch.setitem(sys.modules, "bad_plugin", module)
        return "bad_plugin"

    return make


@pytest.mark.parametrize("misdeed", MISDEEDS)
def test_evaluate_of_a_stranger_harms_nobody(core, plugin, misdeed, caplog) -> None:
    core.register_plugin(plugin(evaluate=misdeed), "BAD")
    core.get_versions("BAD")  # loads it
    for _ in range(3):
        assert core.evaluate(Riddle(), [np.ones(2)]) is None
    assert len(CALLS) == (1 if misdeed is hang else 3)
    assert len(caplog.records) == (misdeed is not nonsense)  # once, not at every node


def test_the_cpu_is_asked_before_strangers(core, plugin) -> None:
    from polydevice.ops.arithmetic import Add

    core.register_plugin(plugin(evaluate=lambda op, inputs: [np.full(2, 13.0)]), "BAD")
    core.get_versions("BAD")
    (found,) = core.evaluate(Add(), [np.ones(2), np.ones(2)])
    np.testing.assert_array_equal(found, [2, 2])
    (found,) = core.evaluate(Riddle(), [np.ones(2)])
    np.testing.assert_array_equal(found, [13, 13])


@pytest.mark.parametrize("misdeed", MISDEEDS)
def test_defining_operations_harms_nobody(core, plugin, misdeed) -> None:
    core.register_plugin(plugin(register_operations=misdeed), "BAD")
    for _ in range(2):  # an unknown type asks every plugin, once
        core.read_network(model("Frobnicate", "other"))
    assert CALLS == ["called"]


@pytest.mark.parametrize("misdeed", MISDEEDS)
def test_registering_readers_harms_nobody(core, plugin, misdeed, tmp_path: Path) -> None:
    core.register_plugin(plugin(register_readers=misdeed), "BAD")
    file = tmp_path / "model.tflite"
    file.write_bytes(b"TFL3")
    with pytest.raises(Exception, match="ONNX") as refusal:
        core.read_network(file)
    assert type(refusal.value).__module__ == "polydevice.errors"


@pytest.mark.parametrize("misdeed", [boom, leave, interrupt, hang])
def test_a_plugin_that_cannot_register_gets_no_calls(core, plugin, misdeed) -> None:
    evaluated: list[Op] = []
    name = plugin(register_devices=misdeed, evaluate=lambda op, _: evaluated.append(op))
    core.register_plugin(name, "BAD")
    assert "CPU" in core.available_devices
    for _ in range(2):
        with pytest.raises(PluginError, match="bad_plugin"):
            core.get_versions("BAD")
    assert CALLS == ["called"]
    assert core.evaluate(Riddle(), []) is None
    assert not evaluated


@pytest.mark.parametrize("misdeed", [boom, leave, nonsense])
def test_a_plugin_that_cannot_start_gets_no_calls(core, plugin, misdeed) -> None:
    evaluated: list[Op] = []
    name = plugin(
        register_devices=lambda register: register("BAD", misdeed),
        evaluate=lambda op, _: evaluated.append(op),
    )
    core.register_plugin(name, "BAD")
    for _ in range(2):
        with pytest.raises(PluginError, match="BAD"):
            core.get_versions("BAD")
    assert CALLS == ["called"]
    assert core.evaluate(Riddle(), []) is None
    assert not evaluated
    assert "CPU" in core.available_devices


@pytest.mark.parametrize("offer", [("", FakePlugin), (7, FakePlugin), ("A.B", boom)])
def test_devices_that_are_none(core, plugin, offer) -> None:
    core.register_plugin(plugin(register_devices=lambda register: register(*offer)), "BAD")
    with pytest.raises(PluginError, match="register_devices"):
        core.get_versions("BAD")


def test_names_of_first_party_devices_are_reserved(core, plugin, capsys) -> None:
    def everything(register: Callable[..., None]) -> None:
        for name in ("BAD", "CPU", "HETERO", "GPU"):
            register(name, boom)

    before = core.available_devices
    core.register_plugin(plugin(register_devices=everything), "BAD")
    assert core.available_devices == before
    left_out = [r for r in core.explain_devices() if "reserved" in r.reason]
    assert {r.subject.split()[1] for r in left_out} == {"CPU", "GPU", "HETERO"}
    assert all("bad_plugin" in r.subject and r.fix for r in left_out)
    core.unregister_plugin("CPU")
    with pytest.raises(PluginError, match="reserved"):
        core.register_plugin("bad_plugin", "CPU")
    core.register_plugin("polydevice_cpu", "CPU")
    assert core.available_devices == before


def site(folder: Path, names: dict[str, list[str]]) -> None:
    """Distribution → entry points, as if they were installed."""
    for distribution, lines in names.items():
        info = folder / f"{distribution}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0")
        (info / "entry_points.txt").write_text("[polydevice.plugins]\n" + "\n".join(lines))


def test_names_that_several_distributions_want(tmp_path, monkeypatch, capsys) -> None:
    wanted = {"one": ["CPU = evil_one", "TPU = evil_one"], "two": ["TPU = evil_two"]}
    site(tmp_path, wanted)
    monkeypatch.syspath_prepend(tmp_path)
    registry = Registry()
    assert registry.entries["CPU"].module == "polydevice_cpu"
    with pytest.raises(PluginError, match=r"evil_one.*evil_two|evil_two.*evil_one"):
        registry.factory("TPU")
    assert main(["plugins"]) == 0
    listed = capsys.readouterr().out
    assert "reserved for polydevice's own device" in listed
    assert "two plugins are called TPU" in listed
    assert main(["devices", "--why"]) == 0
    assert "reserved for polydevice's own device" in capsys.readouterr().out


def test_two_readers_of_one_format_are_refused(core, plugin, tmp_path) -> None:
    def both(register: Callable[..., None]) -> None:
        register(".tflite", boom)
        register(".tflite", leave)

    core.register_plugin(plugin(register_readers=both), "BAD")
    file = tmp_path / "model.tflite"
    file.write_bytes(b"TFL3")
    with pytest.raises(PluginError, match="several plugins"):
        core.read_network(file)


@pytest.mark.parametrize("misdeed", [boom, leave])
def test_what_a_reader_raises(core, plugin, misdeed, tmp_path) -> None:
    core.register_plugin(
        plugin(register_readers=lambda register: register(".tflite", misdeed)), "BAD"
    )
    file = tmp_path / "model.tflite"
    file.write_bytes(b"TFL3")
    with pytest.raises(PluginError, match="reader of .tflite"):
        core.read_network(file)


def test_unregistering_withdraws_the_hooks(core, plugin) -> None:
    core.register_plugin(plugin(evaluate=lambda *_: [np.zeros(1)]), "BAD")
    core.get_versions("BAD")
    assert core.evaluate(Riddle(), []) is not None
    core.unregister_plugin("BAD")
    assert core.evaluate(Riddle(), []) is None


def test_a_plugin_of_hooks_alone(core, plugin) -> None:
    hooks = {"evaluate": lambda *_: [np.zeros(1)], "register_devices": lambda r: r("BAD", None)}
    core.register_plugin(plugin(**hooks), "BAD")
    assert "CPU" in core.available_devices
    with pytest.raises(PluginError, match="no device"):
        core.get_versions("BAD")
    assert core.evaluate(Riddle(), []) is not None


@pytest.mark.parametrize("text", ["10s", "inf", "nan", "-1", ""])
def test_a_time_limit_that_is_none_costs_a_warning(monkeypatch, text):
    monkeypatch.setenv(isolation.VARIABLE, text)
    with pytest.warns(RuntimeWarning, match="10 is used"):
        assert isolation._limit_s() == 10
