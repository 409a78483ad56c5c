"""Rules of the house that no linter knows."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import polydevice.ops  # noqa: F401 - defines the operations
from polydevice.ops.io import Constant, Parameter, Result
from polydevice.ops.op import operations
from polydevice_cpu.plan.array_steps.start import has_starter
from polydevice_gpu.kernels.kernel import SingleLaunch, all_kernels
from polydevice_gpu.ops import QuantisedConvolution

ROOT = Path(__file__).parents[2]
SOURCES = [
    path
    for folder in ("core", "plugins", "samples", "tests", "docs")
    for path in (ROOT / folder).rglob("*.py")
]


def test_every_operation_has_a_cpu_implementation() -> None:
    """The CPU is what HETERO falls back to, so it lacks nothing."""
    own = [cls for cls in operations() if cls.__module__.startswith("polydevice.ops.")]
    assert len(own) > 100
    lacking = {cls for cls in own if not has_starter(cls)}
    assert lacking <= {Constant, Parameter, Result}


MADE_FOR_ITS_KERNEL = {QuantisedConvolution}
"""Operations that are made only where their kernel takes them."""


def test_the_last_kernel_of_each_operation_is_its_reference() -> None:
    table = {op: each for op, each in all_kernels().items() if op not in MADE_FOR_ITS_KERNEL}
    assert len(table) > 20
    for op, kernels in table.items():
        references = [type(kernel).__name__.endswith("Ref") for kernel in kernels]
        assert references == [False] * (len(kernels) - 1) + [True], op


def test_kernels_describe_the_operations_that_they_are_declared_for() -> None:
    """`describe` is given its operation by its type, which no checker sees."""
    single = 0
    for op, kernels in all_kernels().items():
        for kernel in kernels:
            if isinstance(kernel, SingleLaunch):
                expected = get_type_hints(type(kernel).describe)["op"]
                assert issubclass(op, get_args(expected) or expected), (op, type(kernel))
                single += 1
    assert single > 30


def test_every_kernel_file_is_used_and_says_what_it_computes() -> None:
    folder = ROOT / "plugins/gpu/polydevice_gpu/kernels"
    named = {kernel.source for kernels in all_kernels().values() for kernel in kernels}
    code = "".join(path.read_text() for path in folder.rglob("*.py"))
    files = [path for path in folder.rglob("*.cl") if path.parent.name != "include"]
    assert len(files) > 40
    for path in files:
        name = path.relative_to(folder).as_posix()
        assert name in named or name in code, name  # or a kernel's second launch
        head = path.read_text().splitlines()[0]
        assert head.startswith(f"// {path.stem}: "), f"{path.name}: {head}"


def test_no_module_is_called_after_nothing() -> None:
    for path in SOURCES:
        assert path.stem not in ("utils", "util", "common", "helpers", "misc", "base"), path


def _imported(tree: ast.Module) -> set[str]:
    """Return the top-level packages that a file imports from outside of its own."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(node.module or "")
    return {name.partition(".")[0] for name in found}


def test_every_library_that_is_imported_is_declared() -> None:
    """A fresh environment has what is declared, and nothing that happens to lie around here."""
    text = (ROOT / "pyproject.toml").read_text()
    table = re.search(r"^dependencies = \[$(.*?)^\]$", text, re.MULTILINE | re.DOTALL)
    assert table
    declared = set(re.findall(r'^ *"([\w.-]+)', table[1], re.MULTILINE))
    names = {"PIL": "pillow", "google": "protobuf", "pydantic_core": "pydantic"}
    own = {"polydevice", "polydevice_auto", "polydevice_cpu", "polydevice_gpu", "polydevice_hetero"}
    optional = {"pytest", "onnxruntime", "openvino"}  # the shipped suites; `bench --compare`
    optional |= {
        "grpc",
        "httptools",
        "opentelemetry",
        "prometheus_client",
        "ray",
        "starlette",
        "uvicorn",
    }  # extras: serve, observability
    known = {name.replace("_", "-") for name in declared}
    passed = sys.stdlib_module_names | own | optional
    # Ruff sees to it that an import has a line of its own. Parsing all files took 3 s.
    statement = re.compile(r"^\s*(?:from|import)\s+(\w+)", re.MULTILINE)
    libraries = set()
    for path in [*(ROOT / "core").rglob("*.py"), *(ROOT / "plugins").rglob("*.py")]:
        for module in {*statement.findall(text := path.read_text())} - passed:
            library = names.get(module, module).replace("_", "-")
            libraries.add(library)
            if library not in known:  # unless it is a sentence of a docstring
                assert module not in _imported(ast.parse(text)), (path, module)
    assert {"numpy", "onnx", "pyopencl", "pydantic"} <= libraries


CATALOGUES = {
    "core/polydevice/ops",
    "core/polydevice/rewrites/decompose",
    "plugins/cpu/polydevice_cpu/lowering",
    "plugins/cpu/polydevice_cpu/ops",
}
"""Rooms of one file for each stem of operations, which is its address there."""

LARGE_ROOMS = CATALOGUES | {
    "core/polydevice",  # what users and authors of devices import by name
    "core/polydevice/readers/onnx/operators",  # a catalogue too, of ONNX's operators
    "plugins/gpu/polydevice_gpu/kernels/gemm",  # and this one of products by unit and type
}


def test_rooms_are_small_and_modules_are_not_long() -> None:
    rooms: dict[Path, list[Path]] = {}
    for folder in ("core", "plugins"):
        for path in (ROOT / folder).rglob("*.py"):
            rooms.setdefault(path.parent.relative_to(ROOT), []).append(path)
    assert len(rooms) > 80
    large = {room.as_posix() for room, modules in rooms.items() if len(modules) > 14}
    assert large == LARGE_ROOMS
    stems = {path.stem for path in rooms[Path("core/polydevice/ops")]}
    for name in CATALOGUES:
        others = {path.stem for path in rooms[Path(name)]} - stems
        assert len(others) <= 4, f"{name}: {others}"
    long = [
        path
        for modules in rooms.values()
        for path in modules
        if len(path.read_text("utf-8").splitlines()) > 500
    ]
    assert not long
