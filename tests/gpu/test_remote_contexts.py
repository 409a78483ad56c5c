"""Contexts with several devices, where a driver offers them (PoCL: basic and pthread)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import tempfile
import numpy as np, pyopencl as ocl
from polydevice import Core
from polydevice.errors import OptionValueError
from tests.gpu.remote import affine

devices = ocl.get_platforms()[0].get_devices()
both, one = ocl.Context(devices), ocl.Context(devices[:1])
x = np.arange(6, dtype="f4").reshape(2, 3)
params = {"CONTEXT_TYPE": "OCL", "OCL_CONTEXT": both}

def refused(text, call):
    try:
        call()
    except OptionValueError as error:
        assert text in str(error), error
    else:
        raise AssertionError(text)

with Core() as core, tempfile.TemporaryDirectory() as folder:
    assert core.available_devices == ["CPU", "GPU.0", "GPU.1"]
    network = core.read_network(affine(2, 3))
    core.set_config({"CACHE_DIR": folder}, "GPU")
    for number in range(2):
        queue = ocl.CommandQueue(both, devices[number])
        for context in (
            core.create_context(f"GPU.{number}", params),
            core.create_context(f"GPU.{number}", params | {"OCL_QUEUE": queue}),
            core.create_context("GPU", params | {"OCL_QUEUE": queue}),
        ):
            assert context.device_name == f"GPU.{number}"
            executable = core.load_network(network, context)
            assert executable.device == f"GPU.{number}"
            np.testing.assert_array_equal(executable.infer({"x": x})["y"], 3 * x + 1)
            imported = core.import_network(executable.export(), context)
            assert imported.get_context() is context
            np.testing.assert_array_equal(imported.infer({"x": x})["y"], 3 * x + 1)
            blob = context.create_blob(executable.inputs["x"].desc)
            blob.copy_from(x)
            with blob.map("r") as array:
                np.testing.assert_array_equal(array, x)
        other = f"GPU.{1 - number}"
        refused("another device than", lambda: core.create_context(
            other, params | {"OCL_QUEUE": queue}))
    assert core.create_context("GPU", params).device_name == "GPU.0"
    refused("the OpenCL context has GPU.0, not GPU.1", lambda: core.create_context(
        "GPU.1", {"CONTEXT_TYPE": "OCL", "OCL_CONTEXT": one}))
"""


def test_several_devices_in_a_context(opencl) -> None:
    if "Portable Computing Language" not in opencl.handle.platform.name:
        pytest.skip("only PoCL makes several devices of one processor")
    environment = {
        **os.environ,
        "POCL_DEVICES": "basic pthread",
        "POLYDEVICE_GPU_DEVICES": "cpu",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
