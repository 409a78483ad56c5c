"""Operations of plugins: asked for when a model has types that are not known, and only then."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Sequence

import pytest

from polydevice import Core, hookimpl
from polydevice.errors import UnsupportedOperationError
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
