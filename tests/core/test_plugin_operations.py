"""Operations of plugins: asked for when a model has types that are not known, and only then."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Sequence

import pytest

from polydevice import Core, hookimpl
from polydevice.devices.registry import Registry
from polydevice.errors import UnsupportedOperationError
from polydevice.files.archive import network_from_bytes, network_to_bytes
from polydevice.ops import op as table
from polydevice.ops.op import Op, attribute, operation
from polydevice.ops.unknown import UnknownOperation
from polydevice.tensor import TensorDesc

from .ir_text import edges, layer, net, parameter, result

made: list[type[Op]] = []
"""The table of operations is the process's, so each test's operation is of another set."""


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A plugin module that defines an operation of its own set; notes when it is asked to."""
    asked: list[str] = []
    module = types.ModuleType("operations_plugin")

    @hookimpl
    def register_devices(register: Callable[..., None]) -> None:
        register("OPERATIONS", None)

    @hookimpl
    def register_operations() -> None:
        asked.append("now")

        @operation("Halve", domain=f"mine{len(made)}")
        class Halve(Op):
            parts: int = attribute(default=2)

            def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
                (x,) = inputs
                return [x.with_shape([x.shape[0] // self.parts, *x.shape[1:]])]

        made.append(Halve)

    module.register_devices, module.register_operations = register_devices, register_operations
    monkeypatch.setitem(sys.modules, "operations_plugin", module)
    return asked


def model(kind: str, version: str) -> bytes:
    sizes = [(0, "FP32", (4, 3))]
    return net(
        parameter(0, "x", (4, 3))
        + layer(1, "y", kind, {"parts": "4"}, sizes, [(1, "FP32", (4, 3))], version=version)
        + result(2, "out", (4, 3)),
        edges((0, 0, 1, 0), (1, 1, 2, 0)),
    )


def test_plugins_define_operations_when_a_model_needs_them(plugin: list[str]) -> None:
    with Core() as core:
        core.register_plugin("operations_plugin", "OPERATIONS")
        core.read_network(model("ReLU", "opset1"))
        assert not plugin
        domain = f"mine{len(made)}"
        node = core.read_network(model("Halve", domain)).node("y")
        assert plugin == ["now"]
        assert type(node.op).__name__ == "Halve"
        assert str(node.output.desc) == "f32[1,3]"  # the operation's rule, not the file's word
        node = core.read_network(model("Frobnicate", "other")).node("y")
        assert isinstance(node.op, UnknownOperation)
        assert plugin == ["now"]  # asked once


def test_plugins_are_asked_for_operators_of_onnx_too(plugin: list[str]) -> None:
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Frobnicate", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", kind, [2])],
        [helper.make_tensor_value_info("y", kind, [2])],
    )
    with Core() as core:
        core.register_plugin("operations_plugin", "OPERATIONS")
        with pytest.raises(UnsupportedOperationError, match="Frobnicate"):
            core.read_network(helper.make_model(graph).SerializeToString())
    assert plugin == ["now"]


def test_operations_that_another_thread_lets_plugins_define_meanwhile_are_found() -> None:
    registry, tries = Registry(), []

    def work() -> str:
        tries.append(len(tries))
        if len(tries) == 1:
            assert registry.define_operations(seen=0)  # what the other thread does
            raise UnsupportedOperationError("unknown")
        return "read"

    assert registry.with_operations(work) == "read"
    assert not registry.define_operations(registry.definitions)


def test_plugin_that_fails_to_define_costs_only_its_own(
    plugin: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken = types.ModuleType("broken_plugin")

    @hookimpl
    def register_devices(register: Callable[..., None]) -> None:
        register("BROKEN", None)

    @hookimpl
    def register_operations() -> None:
        raise SystemExit("no licence")

    broken.register_devices, broken.register_operations = register_devices, register_operations
    monkeypatch.setitem(sys.modules, "broken_plugin", broken)
    with Core() as core:
        core.register_plugin("operations_plugin", "OPERATIONS")
        core.register_plugin("broken_plugin", "BROKEN")
        node = core.read_network(model("Halve", f"mine{len(made)}")).node("y")
    assert type(node.op).__name__ == "Halve"
    assert "broken_plugin" in caplog.text
    assert "no licence" in caplog.text


def test_archived_networks_find_operations_of_plugins(
    plugin: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    domain = f"mine{len(made)}"
    with Core() as core:
        core.register_plugin("operations_plugin", "OPERATIONS")
        content = network_to_bytes(core.read_network(model("Halve", domain)))
    made.pop()  # as in another process: the operation is not defined yet
    kept = {key: value for key, value in table._TABLE.items() if key[0] != domain}
    monkeypatch.setattr(table, "_TABLE", kept)
    with pytest.raises(UnsupportedOperationError, match=f"needs operation 'Halve' of '{domain}'"):
        network_from_bytes(content)
    registry = Registry()
    registry.register("operations_plugin", "OPERATIONS")
    network = registry.with_operations(lambda: network_from_bytes(content))
    assert str(network.node("y").output.desc) == "f32[1,3]"
