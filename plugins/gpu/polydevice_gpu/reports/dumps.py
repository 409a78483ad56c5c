"""Dumps: the graph after each stage and the sources of programs, written to folders for people.

A folder that cannot be written costs one warning: looking at a network must not stop it.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import warnings
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path

from polydevice.dataclass import dataclass
from polydevice_gpu.graph import GpuGraph, GpuNode, Value

_LABEL_CHARACTERS = 200


@dataclass(frozen=True)
class Dumps:
    """Where to write; an empty text writes nothing.

    Attributes:
        graphs: folder for ``<network>_<shapes>_<stage>.dot``, GraphViz texts
            (CLDNN_GRAPH_DUMPS_DIR). What is compiled after another of the same name and shapes, in
            this process or any, gets a number behind them: nothing is overwritten.
        sources: folder for ``clDNN_program_<kernel>_<hash>.cl`` (CLDNN_SOURCES_DUMPS_DIR).
        custom_sources: folder for the same files of custom layers only (DUMP_KERNELS).
    """

    graphs: str = ""
    sources: str = ""
    custom_sources: str = ""
    _names: dict[int, str] = field(default_factory=dict, repr=False, compare=False)

    def graph(self, number: int, stage: str, graph: GpuGraph) -> None:
        """Write a graph as it is after a stage; stages sort by their number."""
        if not self.graphs:
            return
        suffix = f"{number:02}_{stage}.dot"
        if number == 0:
            shapes = "_".join("x".join(map(str, v.shape)) for v in graph.inputs.values())
            name = _file_name(f"{graph.name}_{shapes}"[:120])
            self._names[id(graph)] = _claimed(Path(self.graphs), name, suffix)
        _write(self.graphs, f"{self._names[id(graph)]}_{suffix}", graphviz(graph, stage))

    def source(self, kernel: str, text: str, log: str, *, custom: bool = False) -> None:
        """Write what the compiler was given, and its log as a comment at the end.

        The same source goes to the same file, whichever network needs it.
        """
        folders = {self.sources, self.custom_sources if custom else ""} - {""}
        if not folders:
            return
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        comment = (log.strip() or "(empty)").replace("*/", "* /")
        content = f"{text}\n\n/* Compiler's log:\n{comment}\n*/\n"
        for folder in folders:
            _write(folder, f"clDNN_program_{_file_name(kernel)}_{digest}.cl", content)


def graphviz(graph: GpuGraph, stage: str) -> str:
    """Write a graph in GraphViz's language: nodes with kernel and mode, edges with types."""
    numbers: dict[object, str] = {}
    lines = [f"digraph {_quoted(f'{graph.name} after {stage}')} {{", "  node [shape=box];"]

    def add(item: object, label: Sequence[str], style: str = "") -> None:
        numbers[item] = f"n{len(numbers)}"
        lines.append(f"  {numbers[item]} [label={_quoted(*label)}{style}];")

    for name, value in graph.inputs.items():
        add(value, [name, "Parameter"], ", shape=ellipse")
    for node in graph.nodes:
        add(node, _described(node), ", style=dashed" if node.is_view else "")
        for value in node.inputs:
            source = _source(value)
            if source not in numbers:
                add(source, [value.name, "Constant"], ", shape=plain")
            lines.append(f"  {numbers[source]} -> {numbers[node]} [label={_quoted(repr(value))}];")
    for name, value in graph.outputs.items():
        add((name, "output"), [name, "Result"], ", shape=ellipse")
        source = _source(value)
        if source not in numbers:
            add(source, [value.name, "Constant"], ", shape=plain")
        end = numbers[name, "output"]
        lines.append(f"  {numbers[source]} -> {end} [label={_quoted(repr(value))}];")
    return "\n".join([*lines, "}", ""])


def _source(value: Value) -> object:
    return value.producer if value.producer is not None else value


def _described(node: GpuNode) -> list[str]:
    operation = str(getattr(node.op, "fragment", node.op.type))
    parts = [node.name, operation]
    if node.epilogue is not None:
        parts.append(f"then {node.epilogue}")
    if node.on_host:
        parts.append("on the host")
    if node.choice is not None:
        parts.append(str(node.choice))
    layers = [name for name in node.origins if name != node.name]
    return [*parts, f"layers: {', '.join(layers)}"] if layers else parts


def _quoted(*parts: str) -> str:
    texts = [part[:_LABEL_CHARACTERS].replace("\\", "\\\\").replace('"', '\\"') for part in parts]
    return '"' + "\\n".join(texts) + '"'


def _file_name(text: str) -> str:
    return re.sub(r"[^\w.-]+", "_", text).strip("._") or "network"


def _claimed(folder: Path, name: str, suffix: str) -> str:
    """Return the name, with a number if need be, under which no file is yet; makes the file."""
    for number in itertools.count(1):
        unique = name if number == 1 else f"{name}_{number}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{unique}_{suffix}").open("x").close()
        except FileExistsError:
            if folder.is_dir():
                continue
        except OSError:
            pass  # writing will say why
        return unique
    raise AssertionError("there are more numbers than files")


def _write(folder: str, name: str, content: str) -> None:
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / name).write_text(content, "utf-8")
    except OSError as error:
        warnings.warn(
            f"{name} cannot be written to {folder!r}: {error.strerror or error}; the network is "
            "not affected. Choose a folder that can be written",
            RuntimeWarning,
            stacklevel=2,
        )
