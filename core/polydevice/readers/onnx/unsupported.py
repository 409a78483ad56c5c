"""Find every operator that cannot be read, before anything is translated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from polydevice.dataclass import dataclass
from polydevice.errors import UnsupportedOperationError
from polydevice.readers.onnx import catalog
from polydevice.readers.onnx.budget import Budget
from polydevice.readers.onnx.protos.messages import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    NodeProto,
)
from polydevice.readers.onnx.protos.protobuf import default_domain, opsets_of


@dataclass
class _Group:
    """Uses of one unsupported operator."""

    count: int
    first: str


class _Search:
    def __init__(
        self, functions: Mapping[tuple[str, str, str], FunctionProto], budget: Budget
    ) -> None:
        self.functions = functions
        self.budget = budget
        self.groups: dict[tuple[str, str, int], _Group] = {}
        self._seen: set[tuple[str, str, str]] = set()

    def graph(self, graph: GraphProto, opsets: Mapping[str, int], depth: int) -> None:
        self.budget.check_bodies(depth)
        self.nodes(graph.node, opsets, depth)

    def nodes(self, nodes: Iterable[NodeProto], opsets: Mapping[str, int], depth: int) -> None:
        for node in nodes:
            self.node(node, opsets, depth)
            for attribute in node.attribute:
                if attribute.type == AttributeProto.GRAPH:
                    self.graph(attribute.g, opsets, depth + 1)

    def node(self, node: NodeProto, opsets: Mapping[str, int], depth: int) -> None:
        domain = default_domain(node.domain)
        key = (domain, node.op_type, node.overload)
        function = self.functions.get(key)
        if function is not None:
            if key not in self._seen:
                self._seen.add(key)
                inner = {**opsets, **opsets_of(function.opset_import)}
                self.nodes(function.node, inner, depth)
            return
        version = opsets.get(domain, 1)
        if is_supported(domain, node.op_type, version):
            return
        name = node.name or next(iter(node.output), "")
        group = self.groups.setdefault((domain, node.op_type, version), _Group(0, name))
        group.count += 1


def is_supported(domain: str, op_type: str, version: int) -> bool:
    """Whether an operator can be translated in at least some of its forms."""
    if catalog.is_too_old(domain, op_type, version):
        return False
    return (
        catalog.find_translator(domain, op_type, version) is not None
        or catalog.find_direct(domain, op_type) is not None
        or catalog.has_function(domain, op_type, version)
    )


def check_supported(
    graph: GraphProto,
    opsets: Mapping[str, int],
    functions: Mapping[tuple[str, str, str], FunctionProto],
    budget: Budget,
) -> None:
    """Raise UnsupportedOperationError that lists all unsupported operators of a model.

    They are grouped by operator, with opset, number of uses and the first node.
    """
    search = _Search(functions, budget)
    search.graph(graph, opsets, 0)
    if not search.groups:
        return
    lines = []
    for (domain, op_type, version), group in sorted(search.groups.items()):
        operator = f"{domain}.{op_type}" if domain else op_type
        uses = "use" if group.count == 1 else "uses"
        lines.append(
            f"  {operator} (opset {version}): {group.count} {uses}, first in node {group.first!r}"
        )
    raise UnsupportedOperationError(
        f"the model has {len(lines)} operators that are not supported:\n"
        + "\n".join(lines)
        + _advice(opsets)
        + "\n`polydevice ops` lists what is supported; a plugin can add operations."
    )


def _advice(opsets: Mapping[str, int]) -> str:
    if opsets.get("", catalog.OLDEST_OPSET) >= catalog.OLDEST_OPSET:
        return ""
    return (
        f"\nOperators of opset {catalog.OLDEST_OPSET} and later are read; convert the model with "
        "onnx.version_converter.convert_version(model, 13)."
    )
