"""Reproduction: the smallest network that shows a difference, in a folder that runs by itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polydevice.comparison.isolation import Isolated
from polydevice.comparison.values import keep_operations, write_values
from polydevice.core import Core
from polydevice.errors import ModelFileError, UnsupportedOperationError
from polydevice.files import archive

_SOURCES_KEY = "CLDNN_SOURCES_DUMPS_DIR"

_SCRIPT = '''"""Shows a difference: one step of a network on a device beside what it should answer.

    python reproduce.py            # on the device where it was found
    python reproduce.py CPU        # on another

Made by `polydevice compare`; settings.json says which step of which network this is.
"""

import json
import sys
from pathlib import Path

from polydevice import Core
from polydevice.comparison import difference
from polydevice.comparison.values import import_operations, read_values
from polydevice.files.archive import network_from_bytes

folder = Path(__file__).resolve().parent
settings = json.loads((folder / "settings.json").read_text())
device = sys.argv[1] if len(sys.argv) > 1 else settings["device"]
config = settings["config"] if device == settings["device"] else {}
inputs = read_values(folder / "inputs.npz")
expected = read_values(folder / "expected.npz")["output_0"]
import_operations(folder / "operations", settings["operations"])
with Core() as core:
    if (folder / "model.xml").exists():
        network = core.read_network(folder / "model.xml")
    else:
        network = network_from_bytes((folder / "model.archive").read_bytes())
    answer = core.load_network(network, device, config).infer(inputs)["output_0"]
found = difference(answer, expected, settings["bound"], settings["step"])
for name in ("model", "title", "kernel", "against"):
    print(f"{name}: {settings[name]}")
print(f"{device}: relative {found.relative:.3g}, absolute {found.absolute:.3g}")
print(found.text or "equal")
sys.exit(1 if found.is_beyond else 0)
'''
"""Names of the model stand in settings.json alone: its file is not trusted, and this is code."""


def write_reproduction(
    folder: Path,
    core: Core,
    step: Isolated,
    device: str,
    config: Mapping[str, Any],
    told: Mapping[str, Any],
) -> None:
    """Write a step with its inputs, what it should answer, its kernels and a script.

    Args:
        folder: made if need be. It gets ``model.xml`` and ``.bin`` (``model.archive`` where IR has
            no such operation), ``inputs.npz``, ``expected.npz``, ``settings.json``,
            ``reproduce.py``, ``operations/`` with the modules of operations that are not
            polydevice's own, and, where the device writes them, ``kernels/``.
        core: that loads the step once more for its kernels.
        step: the network with its inputs.
        device: that differs.
        config: of the device.
        told: bound, step, title, model, kernel and against, for the script.

    Raises:
        ModelFileError: a file cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_values(folder / "inputs.npz", step.inputs)
        write_values(folder / "expected.npz", {"output_0": step.expected})
        texts = {key: str(value) for key, value in config.items()}
        operations = keep_operations(folder / "operations", step.network)
        settings = {"device": device, "config": texts, "operations": operations, **told}
        (folder / "settings.json").write_text(json.dumps(settings, indent=2) + "\n")
        try:
            step.network.serialize(folder / "model.xml")
        except UnsupportedOperationError:
            (folder / "model.xml").unlink(missing_ok=True)  # of an earlier one
            (folder / "model.archive").write_bytes(archive.network_to_bytes(step.network))
        (folder / "reproduce.py").write_text(_SCRIPT, encoding="utf-8")
    except OSError as error:
        raise ModelFileError(f"the reproduction cannot be written: {error}") from error
    if _SOURCES_KEY in core.option_keys(device):
        sources = {**config, _SOURCES_KEY: str(folder / "kernels"), "CACHE_DIR": ""}
        core.load_network(step.network, device, sources).close()
