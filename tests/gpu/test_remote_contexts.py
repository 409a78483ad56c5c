"""Contexts: a network's own, a user's, those of several devices, and what makes none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyopencl as ocl
import pytest

from polydevice import Copies, make_shared_context
from polydevice.errors import BlobError, DeviceError, OptionValueError, UnknownOptionError
from tests.gpu.remote import affine, desc, exact

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
SHAPE = (2, 3, 5, 7)


def test_networks_loaded_by_name_share_the_default_context(core) -> None:
    context = core.get_default_context("GPU")
    name, *others = (name for name in core.available_devices if name.startswith("GPU"))
    assert context is core.get_default_context("GPU.0") is core.get_default_context(name)
    assert all(core.get_default_context(other) is not context for other in others)
    first = core.load_network(core.read_network(affine(*SHAPE)), "GPU")
    second = core.load_network(core.read_network(affine(*SHAPE)), "GPU")
    assert first.get_context() is second.get_context() is context
    assert context.device_name == "GPU.0"
    assert context.params["CONTEXT_TYPE"] == "OCL"
    assert isinstance(context.params["OCL_CONTEXT"], ocl.Context)


@pytest.mark.parametrize("as_number", [False, True])
def test_a_users_context(core, user, as_number, rng) -> None:
    value = user.context.int_ptr if as_number else user.context
    context = core.create_context("GPU", {"CONTEXT_TYPE": "OCL", "OCL_CONTEXT": value})
    assert context.params["OCL_CONTEXT"] == user.context
    assert "OCL_QUEUE" not in context.params
    executable = core.load_network(core.read_network(affine(*SHAPE)), context)
    assert executable.get_context() is context
    x = exact(rng, *SHAPE)
    np.testing.assert_array_equal(executable.infer({"x": x})["y"], x * 3 + 1)
    assert make_shared_context(core, "GPU", value).shares_memory_with(context)


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ({}, OptionValueError, "CONTEXT_TYPE is missing; legal: OCL"),
        ({"CONTEXT_TYPE": "CUDA"}, OptionValueError, "CONTEXT_TYPE 'CUDA' is not legal"),
        ({"CONTEXT_TYPE": "OCL"}, OptionValueError, "needs the parameter OCL_CONTEXT"),
        ({"CONTEXT_TYPE": "OCL", "OCL_CONTEXT": "x"}, OptionValueError, "pyopencl.Context or"),
        ({"CONTEXT_TYPE": "OCL", "OCL_CONTEXT": True}, OptionValueError, "OCL_CONTEXT=True"),
        (
            {"CONTEXT_TYPE": "OCL", "OCL_CONTEXTS": 1},
            UnknownOptionError,
            "no parameter 'OCL_CONTEXTS'. Did you mean 'OCL_CONTEXT'",
        ),
    ],
)
def test_parameters_that_make_no_context(core, params, error, message) -> None:
    with pytest.raises(error, match=message):
        core.create_context("GPU", params)


@pytest.mark.parametrize("name", ["CPU", "HETERO:GPU,CPU"])
def test_devices_without_contexts_name_those_with(core, name) -> None:
    for call in (lambda: core.create_context(name, {}), lambda: core.get_default_context(name)):
        with pytest.raises(DeviceError, match=r"has no contexts .* Devices that have: GPU"):
            call()
    executable = core.load_network(core.read_network(affine(*SHAPE)), "CPU")
    with pytest.raises(DeviceError, match="a network on CPU.* has no context"):
        executable.get_context()
    blob = core.get_default_context("GPU").create_blob(executable.inputs["x"].desc)
    with pytest.raises(BlobError, match="CPU uses host memory only"):
        executable.create_infer_request().set_blob("x", blob)


def test_load_network_needs_a_name_or_a_context(core) -> None:
    with pytest.raises(DeviceError, match="a device name such as 'GPU.1', or a context"):
        core.load_network(core.read_network(affine(*SHAPE)), 3)


def test_import_into_a_context(core, user, monkeypatch, rng) -> None:
    """Exported in one context, imported in another; blobs of that one, and nothing compiled."""
    exported = core.load_network(core.read_network(affine(3, 5)), "GPU").export()
    context = core.create_context("GPU", user.params)
    monkeypatch.setenv("POLYDEVICE_NO_COMPILE", "1")
    executable = core.import_network(exported, context)
    request = executable.create_infer_request()
    x = exact(rng, 3, 5)
    blob = context.create_blob(desc(x))
    blob.copy_from(x)
    np.testing.assert_array_equal(request.infer({"x": blob})["y"], x * 3 + 1)
    assert request.copies == Copies(downloads=1)


@pytest.mark.full  # compiles everything for a device that no other test uses
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
