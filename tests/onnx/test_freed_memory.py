"""What reading an ONNX file takes besides its constants is given back to the system."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

SIZE, LAYERS = 256, 64  # 16 MiB of f32

READING = """
import sys
from polydevice import Core

def taken():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))

core = Core()
core.read_network(sys.argv[2])
before = taken()
network = core.read_network(sys.argv[1])
print((taken() - before) / 1024)
"""


def _model(layers: int) -> bytes:
    rng = np.random.default_rng(layers)
    weights = [
        numpy_helper.from_array(rng.standard_normal((SIZE, SIZE)).astype(np.float32), f"w{k}")
        for k in range(layers)
    ]
    names = ["x", *(f"y{k}" for k in range(layers))]
    nodes = [helper.make_node("MatMul", [names[k], f"w{k}"], [names[k + 1]]) for k in range(layers)]
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, SIZE]) for n in names]
    graph = helper.make_graph(nodes, "g", [ports[0]], [ports[-1]], weights)
    imports = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()


@pytest.mark.full
@pytest.mark.skipif(
    not sys.platform.startswith("linux") or not hasattr(ctypes.CDLL(None), "malloc_trim"),
    reason="glibc keeps freed memory; others are not asked",
)
def test_reading(tmp_path) -> None:
    files = [tmp_path / "large.onnx", tmp_path / "small.onnx"]
    for file, layers in zip(files, (LAYERS, 1), strict=True):
        file.write_bytes(_model(layers))
    ran = subprocess.run(
        [sys.executable, "-c", READING, *map(str, files)],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    taken, constants = float(ran.stdout), 4 * LAYERS * SIZE**2 / 2**20
    assert taken < 1.4 * constants
