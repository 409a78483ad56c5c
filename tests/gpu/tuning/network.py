"""A small network whose layers have several candidates, and what tuning it left."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from polydevice_gpu.tuning.layer_key import layer_key
from tests.cpu.models import answer, build

rng = np.random.default_rng(4)


WEIGHTS = {
    "w0": rng.normal(0, 0.3, (8, 8, 3, 3)).astype(np.float32),
    "w1": rng.normal(0, 0.3, (8, 8, 1, 1)).astype(np.float32),
    "fc": rng.normal(0, 0.3, (128, 5)).astype(np.float32),
    "shape": np.array([1, -1], np.int64),
}
MODEL = build(
    [
        ("Conv", ["x", "w0"], ["c0"], {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
        ("Relu", ["c0"], ["r0"], {}),
        ("Conv", ["r0", "w1"], ["c1"], {}),
        ("Reshape", ["c1", "shape"], ["flat"], {}),
        ("MatMul", ["flat", "fc"], ["y"], {}),
    ],
    {"x": [1, 8, 8, 8]},
    ["y"],
    WEIGHTS,
)
INPUT = {"x": rng.random((1, 8, 8, 8), np.float32)}
(RIGHT,) = answer(MODEL, INPUT)
LAYERS = 4
"""The copy that puts channels side by side, two convolutions, a product."""


def load(core, path, mode, **others):
    config = {"TUNING_MODE": mode, "TUNING_FILE": str(path), **others}
    executable = core.load_network(core.read_network(MODEL), "GPU", config)
    y = executable.infer(INPUT)["y"]
    np.testing.assert_allclose(y, RIGHT, rtol=1e-4, atol=1e-5)
    return executable


def choices(executable) -> dict[str, tuple[str, int]]:
    nodes = executable.latest_plan().graph.nodes
    return {n.name: (n.choice.kernel.name, n.choice.mode) for n in nodes if layer_key(n, "")}


def entries(path: Path) -> list[list]:
    content = json.loads(path.read_text())
    (kinds,) = content["version_2"].values()
    return [entry for kind in kinds.values() for entry in kind.values()]
