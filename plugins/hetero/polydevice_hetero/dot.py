"""dot: GraphViz pictures of where the nodes go (HETERO_DUMP_GRAPH_DOT)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from polydevice.network import Network
from polydevice.node import Node
from polydevice_hetero.affinity import Assignment
from polydevice_hetero.split import Subgraph

_COLOURS = (
    "#a6cee3", "#b2df8a", "#fb9a99", "#fdbf6f", "#cab2d6", "#ffff99", "#1f78b4",
    "#33a02c", "#e31a1c", "#ff7f00", "#6a3d9a", "#b15928", "#8dd3c7", "#bebada",
)  # fmt: skip


def write_dot(
    network: Network, placed: Mapping[Node, Assignment], subgraphs: Sequence[Subgraph]
) -> list[Path]:
    """Write the two pictures into the working directory and return their paths."""
    stem = re.sub(r"[^A-Za-z0-9_.-]", "_", network.name) or "network"
    devices = list(dict.fromkeys(a.device for a in placed.values()))
    number = {node: i for i, part in enumerate(subgraphs) for node in part.nodes}
    by_device = {n: devices.index(placed[n].device) for n in placed}
    affinity = Path(f"hetero_affinity_{stem}.dot")
    affinity.write_text(_text(network, placed, by_device, {}), encoding="utf-8")
    cut = Path(f"hetero_subgraphs_{stem}.dot")
    cut.write_text(_text(network, placed, number, number), encoding="utf-8")
    return [affinity, cut]


def _text(
    network: Network,
    placed: Mapping[Node, Assignment],
    colour: Mapping[Node, int],
    number: Mapping[Node, int],
) -> str:
    ids = {node: f"n{i}" for i, node in enumerate(network.nodes())}
    lines = ["digraph network {", "  node [shape=box, style=filled];"]
    for node, node_id in ids.items():
        label = [node.name, node.type, f"device={placed[node].device}"]
        if node in number:
            label.append(f"subgraph={number[node]}")
        text = "\\n".join(part.replace("\\", "\\\\").replace('"', '\\"') for part in label)
        fill = _COLOURS[colour[node] % len(_COLOURS)] if node in colour else "#ffffff"
        lines.append(f'  {node_id} [label="{text}", fillcolor="{fill}"];')
    lines += [
        f'  {ids[port.node]} -> {ids[node]} [label="{port.desc}"];'
        for node in ids
        for port in node.inputs
    ]
    return "\n".join([*lines, "}", ""])
