"""Plugins that break their contract late: listed with the reason, and nobody else is harmed.

Those that cannot even be imported are in tests/core/test_core.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

GOOD = """
from polydevice.testing.fake_device import register_devices as _register
from polydevice import hookimpl
from polydevice.testing.fake_device import FakePlugin
@hookimpl
def register_devices(register):
    register("BAD", FakePlugin)
"""

BAD = {
    "syntax error": ("def broken(:", "SyntaxError"),
    "registers another name": (GOOD.replace('"BAD"', '"WORSE"'), "registers no device 'BAD'"),
    "fails to start": (
        GOOD + "class Broken(FakePlugin):\n"
        "    def __init__(self, *a): raise OSError('driver said no')\n"
        "@hookimpl\n"
        "def register_devices(register): register('BAD', Broken)\n",
        "driver said no",
    ),
    "fails when asked for devices": (
        GOOD + "class Broken(FakePlugin):\n"
        "    def device_ids(self, options): raise KeyError('bus 7')\n"
        "@hookimpl\n"
        "def register_devices(register): register('BAD', Broken)\n",
        "bus 7",
    ),
    "hook with wrong arguments": (
        "from polydevice import hookimpl\n@hookimpl\ndef register_devices(nobody): pass\n",
        "BAD",
    ),
}

PROGRAM = """
import json, warnings
import numpy as np
from polydevice import Core, ElementType, Shape
from polydevice.errors import PolydeviceError
from polydevice.network import Network
from polydevice.node import Node
from polydevice.ops.activation import Relu
from polydevice.ops.io import Parameter, Result
x = Node("x", Parameter(ElementType.f32, Shape((2,))))
network = Network("n", [x], [Node("r", Result(), [Node("y", Relu(), [x.output]).output])])
with Core() as core:
    answer = {"available": core.available_devices}
    answer["why"] = [r.reason for r in core.explain_devices() if "BAD" in r.subject + r.device]
    try:
        core.load_network(network, "BAD")
        answer["error"] = None
    except PolydeviceError as error:
        answer["error"] = f"{type(error).__name__}: {error}"
    outputs = core.load_network(network, "CPU").infer({"x": np.float32([-1, 2])})
    answer["cpu"] = outputs["y"].tolist()
print(json.dumps(answer))
"""


@pytest.mark.parametrize("name", BAD)
def test_bad_plugin(name: str, tmp_path: Path) -> None:
    source, reason = BAD[name]
    (tmp_path / "bad_plugin.py").write_text(source)
    info = tmp_path / "bad_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bad-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[polydevice.plugins]\nBAD = bad_plugin\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert "CPU" in answer["available"]
    assert not [d for d in answer["available"] if d.startswith("BAD")]
    assert answer["cpu"] == [0, 2]
    assert any(reason in why for why in answer["why"]), answer["why"]
    assert reason in answer["error"], answer["error"]
    assert "bad-plugin" in answer["error"], "which distribution to fix or uninstall"
