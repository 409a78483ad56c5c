"""``polydevice place``: the table and the picture."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

from polydevice import Core
from polydevice.cli import main
from polydevice.inspection.placement import Placement
from polydevice.inspection.placement_svg import placement_svg
from tests.cpu.models import build

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "samples/models/blazeface/blazeface.xml"


def test_one_device_runs_everything(capsys):
    assert main(["place", str(MODEL), "-d", "CPU"]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert {row[2] for row in rows} == {"CPU"}
    assert any(row[1] == "Convolution" for row in rows)
    assert all(row[5] for row in rows), "every node has a reason"


def test_a_refused_device_is_named(capsys):
    assert main(["place", str(MODEL), "-d", "HETERO:CPU,NPU9"]) == 1
    assert "'NPU9' is registered" in capsys.readouterr().err


def test_what_each_part_costs(tmp_path, capsys, core):
    """Measured times and bytes are told of each part, without an inference of the user's."""
    path = tmp_path / "model.onnx"
    path.write_bytes(build([("Mul", ["x", "x"], ["y"], {})], {"x": (8,)}, ("y",), {}))
    command = ["place", str(path), "-d", "HETERO:GPU,CPU", "-c", "HETERO_AFFINITY=COST"]
    assert main(command) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    reasons = [row[5] for row in rows if row[1] == "Multiply"]
    assert reasons
    for reason in reasons:
        assert re.search(r"part 0: .*[\d.]+ ms on (GPU|CPU)", reason), reason
        assert "bytes in and out" in reason


def test_picture(tmp_path):
    with Core() as core:
        network = core.read_network(MODEL)
    rows = [
        Placement(n.name, n.type, "CPU" if i % 3 else "GPU", 'a "reason" & more', i % 2, 4)
        for i, n in enumerate(network.nodes())
    ]
    root = ET.fromstring(placement_svg(network, rows))
    boxes = [e for e in root.iter() if e.tag.endswith("}rect")]
    drawn = [n for n in network.nodes() if n.type != "Const"]
    assert len(boxes) == len(drawn) + 2, "a box per node, and a legend of two devices"
    assert len({e.get("fill") for e in boxes}) == 2
    thick = [e for e in root.iter() if e.get("stroke-width") == "3"]
    part = {row.node: row.subgraph for row in rows}
    wires = {(port.node.name, n.name) for n in drawn for port in n.inputs if port.node in drawn}
    assert len(thick) == sum(part[a] != part[b] for a, b in wires), "the ones between parts"
    assert 0 < len(thick) < len(wires)
    titles = [e.text or "" for e in root.iter() if e.tag.endswith("}title")]
    assert any('a "reason" & more' in title for title in titles)
