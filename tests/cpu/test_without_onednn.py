"""Without the oneDNN library everything still runs, on NumPy, with one message that says so."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

ROOT = Path(__file__).parents[2]


@pytest.mark.full
def test_a_real_network_runs_on_numpy() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "samples/classify.py", "-d", "CPU"],
        env={**os.environ, "DNNL_LIB": "/no/such/libdnnl.so.3"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Egyptian cat" in done.stdout.splitlines()[2]
    assert done.stderr.count("CPU device computes with NumPy alone") == 1
    assert "onednn-cpu-gomp" in done.stderr


def test_what_is_known_and_what_is_given_become_results_on_numpy(tmp_path: Path) -> None:
    """Neither is computed in the result's own memory: both are copied there."""
    x, y = (helper.make_tensor_value_info(name, 1, [2, 3]) for name in ("x", "y"))
    known = numpy_helper.from_array(np.arange(6, dtype="f4").reshape(3, 2), "known")
    nodes = [
        helper.make_node("Transpose", ["known"], ["z"]),
        helper.make_node("Identity", ["x"], ["y"]),
    ]
    z = helper.make_tensor_value_info("z", 1, [2, 3])
    graph = helper.make_graph(nodes, "copies", [x], [y, z], [known])
    path = tmp_path / "copies.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    code = """
        import sys, numpy as np
        from polydevice import Core
        with Core() as core:
            result = core.load_network(sys.argv[1], "CPU").infer({"x": np.full((2, 3), 7, "f4")})
            assert (result["y"] == 7).all(), result["y"]
            assert result["z"].tolist() == [[0, 2, 4], [1, 3, 5]], result["z"]
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), path],
        env={**os.environ, "DNNL_LIB": "/no/such/libdnnl.so.3"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
