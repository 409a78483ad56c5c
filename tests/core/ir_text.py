"""Builds the text of small IR files by hand, so that every attribute can be wrong on purpose."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.sax.saxutils import quoteattr

Port = tuple[int, str, Sequence[object]]
"""Id, precision and sizes."""


def ports(section: str, given: Iterable[Port], extra: str = "") -> str:
    body = "".join(
        f'<port id="{number}" precision="{precision}"{extra}>'
        + "".join(f"<dim>{size}</dim>" for size in sizes)
        + "</port>"
        for number, precision, sizes in given
    )
    return f"<{section}>{body}</{section}>" if body else ""


def layer(
    number: object,
    name: str,
    kind: str,
    data: dict[str, object] | None = None,
    inputs: Iterable[Port] = (),
    outputs: Iterable[Port] = (),
    *,
    version: str = "opset1",
    inside: str = "",
    names: str = "",
    attributes: str = "",
) -> str:
    shown = "".join(f" {key}={quoteattr(str(value))}" for key, value in (data or {}).items())
    return (
        f'<layer id="{number}" name={quoteattr(name)} type="{kind}" version="{version}"'
        f"{attributes}>"
        + (f"<data{shown}/>" if data is not None else "")
        + inside
        + ports("input", inputs)
        + ports("output", outputs, f" names={quoteattr(names)}" if names else "")
        + "</layer>"
    )


def parameter(number: object, name: str, shape: Sequence[object], kind: str = "f32") -> str:
    data = {"element_type": kind, "shape": ",".join(map(str, shape))}
    sizes = [size if isinstance(size, int) else -1 for size in shape]
    return layer(number, name, "Parameter", data, (), [(0, precision(kind), sizes)])


def constant(
    number: object, name: str, shape: Sequence[int], offset: object, size: object, kind: str = "f32"
) -> str:
    data = {
        "element_type": kind,
        "shape": ",".join(map(str, shape)),
        "offset": offset,
        "size": size,
    }
    return layer(number, name, "Const", data, (), [(0, precision(kind), shape)])


def result(number: object, name: str, shape: Sequence[int], kind: str = "f32") -> str:
    return layer(number, name, "Result", None, [(0, precision(kind), shape)])


def precision(kind: str) -> str:
    return {"boolean": "BOOL", "u1": "BIN"}.get(
        kind, kind.upper().replace("F32", "FP32").replace("F16", "FP16").replace("F64", "FP64")
    ).replace("BFP16", "BF16")


def edges(*items: tuple[object, object, object, object]) -> str:
    return "".join(
        f'<edge from-layer="{a}" from-port="{b}" to-layer="{c}" to-port="{d}"/>'
        for a, b, c, d in items
    )


def net(layers: str, links: str = "", *, version: object = 11, after: str = "") -> bytes:
    text = (
        f'<?xml version="1.0"?><net name="hand" version="{version}"><layers>{layers}</layers>'
        f"<edges>{links}</edges>{after}</net>"
    )
    return text.encode()


def addition(version: object = 11) -> bytes:
    """x[2,3] + c[2,3] with the constant at offset 0: the smallest network with weights."""
    two = [(0, "FP32", (2, 3)), (1, "FP32", (2, 3))]
    return net(
        parameter(0, "x", (2, 3))
        + constant(1, "c", (2, 3), 0, 24)
        + layer(2, "sum", "Add", {"auto_broadcast": "numpy"}, two, [(2, "FP32", (2, 3))])
        + result(3, "y", (2, 3)),
        edges((0, 0, 2, 0), (1, 0, 2, 1), (2, 2, 3, 0)),
        version=version,
    )


def body(layers: str, links: str) -> str:
    return f"<body><layers>{layers}</layers><edges>{links}</edges></body>"


def mapped(inputs: Iterable[str], outputs: Iterable[str], back: Iterable[tuple[int, int]]) -> str:
    """Write a port map; every item is ``port layer [attributes]``."""

    def items(tag: str, given: Iterable[str]) -> str:
        found = ""
        for item in given:
            port, number, *rest = item.split(" ", 2)
            more = " " + rest[0] if rest else ""
            found += f'<{tag} external_port_id="{port}" internal_layer_id="{number}"{more}/>'
        return found

    links = "".join(f'<edge from-layer="{a}" to-layer="{b}"/>' for a, b in back)
    ports = items("input", inputs) + items("output", outputs)
    return f"<port_map>{ports}</port_map><back_edges>{links}</back_edges>"
