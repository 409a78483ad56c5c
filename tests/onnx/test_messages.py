"""Messages of ONNX without the package's other modules."""

from __future__ import annotations

import subprocess
import sys

import onnx
import pytest

from polydevice.readers.onnx.protos import messages

LATER = """
import sys
from polydevice.readers.onnx.protos import messages
assert "onnx" not in sys.modules
made = messages.NodeProto(op_type="Relu")
import onnx
import onnx.onnx_ml_pb2
assert onnx.onnx_ml_pb2.NodeProto is onnx.NodeProto
for name in messages.__all__:
    assert getattr(onnx, name) is getattr(messages, name), name
assert isinstance(made, onnx.NodeProto)
onnx.checker.check_node(onnx.helper.make_node("Relu", ["x"], ["y"]))
"""


@pytest.mark.parametrize("implementation", ["upb", "python"])
def test_they_are_those_of_onnx_which_may_be_imported_later(implementation):
    environment = {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": implementation}
    subprocess.run([sys.executable, "-c", LATER], check=True, env=environment)


def test_they_are_those_of_onnx_which_was_imported_before():
    for name in messages.__all__:
        assert getattr(onnx, name) is getattr(messages, name), name
