"""placement_svg: a picture of which device runs which node."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from polydevice.inspection.placement import Placement
from polydevice.network import Network
from polydevice.node import Node

_COLOURS = ("#9ecae1", "#a1d99b", "#fdae6b", "#bcbddc", "#fc9272", "#fee391", "#d9d9d9")
_SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
    'font-family="sans-serif" font-size="11">'
)
_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN, _LEGEND = 190, 34, 16, 22, 16, 44


def placement_svg(network: Network, rows: Sequence[Placement]) -> str:
    """Draw the network top to bottom, nodes filled with their device's colour.

    An edge that crosses between parts is drawn thick. Constants are left out. Each box carries
    the reason as a tooltip.
    """
    by_name = {row.node: row for row in rows}
    nodes = [n for n in network.nodes() if n.type != "Const" and n.name in by_name]
    places = _places(nodes)
    devices = list(dict.fromkeys(by_name[n.name].device for n in nodes if by_name[n.name].device))
    colour = {device: _COLOURS[i % len(_COLOURS)] for i, device in enumerate(devices)}
    width = max([x + _WIDTH for x, _ in places.values()] or [_WIDTH]) + _MARGIN
    height = max([y + _HEIGHT for _, y in places.values()] or [_HEIGHT]) + _MARGIN
    parts = [
        _SVG.format(width=width, height=height),
        f"<title>{escape(network.name)}</title>",
        *_legend(colour),
        *_edges(nodes, places, by_name),
        *(_box(node, places[node], by_name[node.name], colour) for node in nodes),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _places(nodes: Sequence[Node]) -> dict[Node, tuple[int, int]]:
    """Give every node a place: its row is the longest way from an input."""
    row: dict[Node, int] = {}
    used: dict[int, int] = {}
    places: dict[Node, tuple[int, int]] = {}
    for node in nodes:
        row[node] = max((row[p.node] + 1 for p in node.inputs if p.node in row), default=0)
        column = used.get(row[node], 0)
        used[row[node]] = column + 1
        x = _MARGIN + column * (_WIDTH + _GAP_X)
        places[node] = (x, _LEGEND + row[node] * (_HEIGHT + _GAP_Y))
    return places


def _legend(colour: dict[str, str]) -> list[str]:
    parts = []
    for i, (device, fill) in enumerate(colour.items()):
        x = _MARGIN + i * 120
        parts.append(f'<rect x="{x}" y="12" width="14" height="14" fill="{fill}" stroke="#555"/>')
        parts.append(f'<text x="{x + 20}" y="23">{escape(device)}</text>')
    return parts


def _edges(
    nodes: Sequence[Node], places: dict[Node, tuple[int, int]], by_name: dict[str, Placement]
) -> list[str]:
    lines = []
    for node in nodes:
        for port in dict.fromkeys(node.inputs):
            if port.node not in places:
                continue
            (x1, y1), (x2, y2) = places[port.node], places[node]
            source, target = by_name[port.node.name].subgraph, by_name[node.name].subgraph
            crosses = source is not None and target is not None and source != target
            stroke = 'stroke="#c00" stroke-width="3"' if crosses else 'stroke="#888"'
            half = _WIDTH // 2
            lines.append(
                f'<line x1="{x1 + half}" y1="{y1 + _HEIGHT}" x2="{x2 + half}" y2="{y2}" {stroke}>'
                f"<title>{escape(str(port.desc))}</title></line>"
            )
    return lines


def _box(node: Node, place: tuple[int, int], row: Placement, colour: dict[str, str]) -> str:
    x, y = place
    name = node.name if len(node.name) <= 28 else "…" + node.name[-27:]
    tip = f"{node.name} ({node.type}) on {row.device or 'no device'}: {row.reason}"
    return (
        f"<g><title>{escape(tip)}</title>"
        f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="4" '
        f'fill="{colour.get(row.device, "#ffffff")}" stroke="#555"/>'
        f'<text x="{x + 6}" y="{y + 14}" font-weight="bold">{escape(node.type)}</text>'
        f'<text x="{x + 6}" y="{y + 28}">{escape(name)}</text></g>'
    )
