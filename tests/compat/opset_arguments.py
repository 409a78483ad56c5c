"""The arguments of OpenVINO's opset functions, from the real package.

`python -m tests.compat.opset_arguments` writes the file that `opsets` in `compat.openvino.models`
reads: a line for each function and each operation set in which its arguments changed.
"""

from __future__ import annotations

import importlib
import importlib.resources
import inspect
from pathlib import Path
from typing import Any

WRITTEN = ("assign", "constant", "if_op", "loop", "parameter", "read_value", "result")
"""Made by functions of polydevice's own, or not at all."""


def lines() -> list[str]:
    """Return the content of the file."""
    table: dict[str, list[tuple[int, str]]] = {}
    for number in range(1, 18):
        module = importlib.import_module(f"openvino.opset{number}")
        for name in sorted(dir(module)):
            function = getattr(module, name)
            if not callable(function) or name.startswith("_") or name in WRITTEN:
                continue
            try:
                given = inspect.signature(function).parameters.values()
            except ValueError:  # a class
                continue
            text = " ".join(_written(each) for each in given if each.name != "name")
            known = table.setdefault(name, [])
            if not known or known[-1][1] != text:
                known.append((number, text))
    return [f"{name} {n} {text}" for name, known in sorted(table.items()) for n, text in known]


def _written(parameter: inspect.Parameter) -> str:
    if parameter.default is inspect.Parameter.empty:
        return parameter.name
    plain: Any = parameter.default
    if not isinstance(plain, (int, float, str, type(None))):
        plain = str(plain)
    return f"{parameter.name}={plain}"


if __name__ == "__main__":
    package = importlib.resources.files("polydevice.compat.openvino.models")
    Path(str(package.joinpath("opset_arguments.txt"))).write_text("\n".join(lines()) + "\n")
