"""The model that tests of ``polydevice bench`` measure."""

from __future__ import annotations

from pathlib import Path

from tests.cpu.models import build

ROOT = Path(__file__).parents[2]


MODEL = ROOT / "samples/models/blazeface/blazeface.xml"
"""A small one: where oneDNN is missing, three tests took 48 s of CPU with EfficientNet."""
QUICK = ["bench", "-m", str(MODEL), "-niter", "1", "-api", "sync"]


def dynamic(tmp_path: Path) -> Path:
    path = tmp_path / "dynamic.onnx"
    path.write_bytes(build([("Relu", ["x"], ["y"], {})], {"x": ("n", "w")}, ("y",), {}))
    return path
