"""Writes the reference pages (operators, options, hooks, errors, drivers) from the code.

    python docs/generate.py            write them
    python docs/generate.py --check    exit with 1 when one is not fresh

``scripts/docs`` runs this in the project's environment.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from types import ModuleType

from comparison_page import comparison
from driver_matrix import drivers
from implementations_page import implementations

DOCS = Path(__file__).parent

GENERATED = "<!-- Written by scripts/docs from the code; edit the code instead. -->"

OPERATORS = """\
# Operations

<!-- Written by scripts/docs from the code; edit the code instead. -->

What networks may consist of: the operations of OpenVINO's operation sets, and those ONNX operators
that they lack (set `onnx`). A version is the operation set that brought it; newer sets without a
version of their own use the last one before. ONNX operators that are missing in the ONNX column may
still be read: the reader translates them into several of these.
"""

OPTIONS = """\
# Configuration keys

<!-- Written by scripts/docs from the code; edit the code instead. -->

Set with `Core.set_config({key: value}, device)` or the `config` of `Core.load_network`; values are
texts as in the Inference Engine (`YES`, `4`) or Python values, and `KEY_` in front of a key is
ignored. An unknown key or a value that is not legal raises before anything changes.
"""

HOOKS = """\
# Hooks

<!-- Written by scripts/docs from the code; edit the code instead. -->

What a plugin may implement, as functions marked `@polydevice.hookimpl` in the module that its entry
point names; [Adding a device](adding-a-device.md) shows how. The version of this interface is
{version}; a plugin that needs one version says so with `polydevice_api` in that module.
"""

ERRORS = """\
# Exceptions

<!-- Written by scripts/docs from the code; edit the code instead. -->

Everything that polydevice raises on purpose, from `polydevice.errors`. A message names the thing,
the value, what would be legal, and what to do next.
"""

COMING_FROM = """\
# Coming from another runtime

<!-- Written by scripts/docs from the code; edit the code instead. -->

A program that was written for another runtime runs on polydevice unchanged. Where it can be edited,
one line does it:

```python
import polydevice.compat.onnxruntime as ort
import polydevice.compat.openvino as ov
from polydevice.compat.inference_engine import IECore
```

Where it cannot, `polydevice run` puts that package in the place of the import, for one process:

```bash
polydevice run --as onnxruntime program.py its arguments
polydevice run --as openvino -d GPU -m package.module its arguments
```

`-d` runs every network of the program on one device, whatever it asks for; otherwise the program
chooses. The real runtime need not be installed: `importlib.metadata` too finds ours in its place.

* **onnxruntime**: `PolydeviceGPU` and `PolydeviceCPU` are providers, and `CUDAExecutionProvider`,
  `OpenVINOExecutionProvider` and their like mean the GPU, said in one line on standard error. Nodes
  that a GPU cannot run go to the CPU, which is said too. `onnxruntime.quantization`, `tools`,
  `transformers` and `datasets` are those of an onnxruntime that is installed, run on polydevice.
* **openvino**: API 2.0, with `openvino.runtime` as releases before 2026.4 had it. Properties become
  polydevice's [configuration keys](options.md); those about how OpenVINO itself works are taken and
  change nothing. Tools of an OpenVINO that is installed run on polydevice too:
  `polydevice run --as openvino $(command -v benchmark_app) -m model.xml`.
* **inference_engine**: the API of 2021, `openvino.inference_engine`, which OpenVINO has no more.
  `--as openvino` has it too, beside API 2.0, as the releases in between had. Both have `ngraph`,
  with which programs of 2021 built and looked at networks.

Integers are divided and added as OpenVINO defines it: `Divide` rounds down, as its constant folding
does, where its CPU plugin rounds towards zero, and sums and products of `i8` and `u8` wrap, as in
NumPy, where its CPU plugin stops at the type's limits.

These pages list every public name: what stands behind it in polydevice's own interface, and what
is different or not there and why. Tests hold them against the real packages.
"""

FACADES = {
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "inference_engine": "OpenVINO's Inference Engine",
}
"""Packages under polydevice.compat → the runtime's name."""


def operators() -> str:
    """Every operation of the table."""
    import polydevice.ops  # noqa: F401 - importing it defines every operation
    from polydevice.ops.op import operations

    lines = [
        OPERATORS,
        "| Operation | Set, versions | ONNX, one to one | What it computes | Defined in |",
        "|---|---|---|---|---|",
    ]
    for cls in operations():
        if not cls.__module__.startswith("polydevice.ops."):
            continue  # a plugin's own, or a test's
        module = cls.__module__.removeprefix("polydevice.ops.")
        versions = f"{cls.domain} {', '.join(map(str, cls.since))}"
        onnx = ", ".join(cls.onnx_types)
        lines.append(
            f"| {cls.type} | {versions} | {onnx} | {cell(summary(cls))} "
            f"| [{module}](../core/polydevice/ops/{module.replace('.', '/')}.py) |"
        )
    return "\n".join(lines).rstrip("\n") + "\n"


def options() -> str:
    """Every configuration key of every first-party device."""
    from polydevice import Core

    lines = [OPTIONS]
    with Core() as core:
        for device in ("AUTO", "CPU", "GPU", "HETERO", "MULTI"):
            table = core._devices.plugin(device).option_type.table()
            lines += [f"## {device}", ""]
            if not table:
                lines += ["No keys.", ""]
                continue
            lines += ["| Key | Legal values | Default | What it does |", "|---|---|---|---|"]
            for row in table:
                names = "<br>".join([f"`{row.key}`", *(f"`{a}` (deprecated)" for a in row.aliases)])
                text = row.help + (f" Deprecated: {row.deprecated}" if row.deprecated else "")
                default = f"`{row.default}`" if row.default else "(empty)"
                lines.append(f"| {names} | {cell(row.legal)} | {default} | {cell(text)} |")
            lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"


def hooks() -> str:
    """Every hook that a plugin may implement."""
    from polydevice import hookspecs

    lines = [HOOKS.format(version=hookspecs.API_VERSION)]
    for name, function in vars(hookspecs).items():
        if hasattr(function, "polydevice_spec"):
            arguments = ", ".join(inspect.signature(function).parameters)
            lines += [f"## `{name}({arguments})`", "", inspect.getdoc(function) or "", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def errors() -> str:
    """Every exception, in the order of the tree."""
    from polydevice import errors as module

    lines = [
        ERRORS,
        "```text",
        tree(module.PolydeviceError),
        "```",
        "",
        "| Exception | When |",
        "|---|---|",
    ]
    for _, cls in descendants(module.PolydeviceError):
        lines.append(f"| `{cls.__name__}` | {cell(inspect.getdoc(cls) or '')} |")
    return "\n".join(lines).rstrip("\n") + "\n"


def coming_from() -> str:
    """How programs for other runtimes are run, and where their interfaces are listed."""
    packages = {name: importlib.import_module(f"polydevice.compat.{name}") for name in FACADES}
    lines = [
        f"* [{title} {packages[name].__version__}](coming-from-{_page(name)}.md)"
        for name, title in FACADES.items()
    ]
    return "\n".join([COMING_FROM, *lines, ""])


def _page(facade: str) -> str:
    return facade.replace("_", "-")


def names_of(facade: str) -> str:
    """Every name of another runtime's interface."""
    package = importlib.import_module(f"polydevice.compat.{facade}")
    surface = importlib.import_module(f"polydevice.compat.{facade}.surface")
    lines = [
        f"# {FACADES[facade]} {package.__version__}, name by name",
        "",
        GENERATED,
        "",
        "What stands behind every public name, and what is different or not there and why. How",
        "programs that use them are run is said in [coming from another runtime](coming-from.md).",
        "",
        "| Name | In polydevice | Same, different or absent |",
        "|---|---|---|",
    ]
    listed = getattr(surface, "SUBMODULES", ())
    for name in sorted({*public_names(package, listed), *surface.ABSENT}, key=_alphabetic):
        if name.startswith("opset") and "." in name:
            continue  # seventeen times the same
        ours = surface.OURS.get(name, "")
        note = "same"
        if name in surface.DIFFERENT:
            note = f"different: {surface.DIFFERENT[name]}"
        if name in surface.ABSENT:
            note = f"absent: {surface.ABSENT[name]}"
        lines.append(f"| `{name}` | {f'`{ours}`' if ours else ''} | {cell(note)} |")
    return "\n".join(lines) + "\n"


def _alphabetic(name: str) -> tuple[str, str]:
    """Sort without regard to case, and names that differ in case alone the same every time."""
    return name.lower(), name


def public_names(package: ModuleType, listed: Sequence[str]) -> list[str]:
    """Names of a package, and of the members of its classes as class.name.

    Args:
        package: with its names in `__all__`.
        listed: those of its modules whose names are listed likewise.
    """
    found = []
    for name in package.__all__:
        value = getattr(package, name)
        found.append(name)
        if inspect.isclass(value) and not issubclass(value, Enum):
            fields = getattr(value, "__dataclass_fields__", {})
            members = {m for m in (*vars(value), *fields) if not m.startswith("_")}
            found += [f"{name}.{member}" for member in members]
        if name in listed:
            found += [f"{name}.{inner}" for inner in public_names(value, ()) if "." not in inner]
    return found


def descendants(cls: type, depth: int = 0) -> list[tuple[int, type]]:
    """Return (depth, class) of an exception and everything below it."""
    below = [c for c in cls.__subclasses__() if c.__module__ == cls.__module__]
    return [(depth, cls)] + [item for c in below for item in descendants(c, depth + 1)]


def tree(cls: type) -> str:
    """Draw an exception and everything below it."""
    return "\n".join("    " * depth + c.__name__ for depth, c in descendants(cls))


def summary(cls: type) -> str:
    """The first paragraph of a class's docstring, up to its first full stop at a line's end."""
    paragraph = (inspect.getdoc(cls) or "").split("\n\n")[0]
    lines = []
    for line in paragraph.splitlines():
        lines.append(line)
        if line.endswith("."):
            break
    return " ".join(lines)


def cell(text: str) -> str:
    """Make text fit into one cell of a table."""
    return re.sub(r"\s+", " ", text).replace("|", "\\|").replace("``", "`").strip()


PAGES: dict[str, Callable[[], str]] = {
    "operators.md": operators,
    "options.md": options,
    "hooks.md": hooks,
    "errors.md": errors,
    "coming-from.md": coming_from,
    **{f"coming-from-{_page(name)}.md": functools.partial(names_of, name) for name in FACADES},
    "drivers.md": drivers,
    "comparison.md": comparison,
    "implementations.md": implementations,
}


def main() -> int:
    """Write the pages, or only compare them with the code."""
    stale = []
    for name, write in PAGES.items():
        path, text = DOCS / name, write()
        if "--check" not in sys.argv:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(name)
    if stale:
        print(f"not fresh: {', '.join(stale)}. Run scripts/docs and commit the result.")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
