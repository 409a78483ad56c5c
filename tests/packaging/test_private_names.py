"""Nothing underscored crosses a package: devices use what every third party may use."""

from __future__ import annotations

import ast
import functools
import importlib
import pkgutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "samples" / "npu_plugin"
PACKAGES = sorted(path.parent.name for path in ROOT.glob("plugins/*/polydevice_*/__init__.py"))

OF_PYTHON = {
    "_",
    "_exit",
    "_getframe",
    "_replace",
    "_asdict",
    "_make",
    "_fields",
    "_fields_",
    "_type_",
}
"""Underscored names that are documented: of `os` and `sys`, of named tuples, and of ctypes."""


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in OF_PYTHON


def defined(tree: ast.AST) -> set[str]:
    """Private names that some code defines: functions, classes, variables, attributes, slots."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)  # in __slots__
    return {name for name in found if private(name)}


def used(tree: ast.AST) -> set[str]:
    """Private names of objects that some code reads, and private names that it imports."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.ImportFrom):
            found.update(alias.name for alias in node.names)
    return {name for name in found if private(name)}


def modules_of(package: str) -> list[ModuleType]:
    top = importlib.import_module(package)
    names = [m.name for m in pkgutil.walk_packages(top.__path__, f"{package}.")]
    return [top, *map(importlib.import_module, names)]


def crossings(package: str, folder: Path) -> list[str]:
    """Private names that a package reads and that none of its modules defines."""
    trees = {path: tree_of(path) for path in sorted(folder.rglob("*.py"))}
    own = set().union(*map(defined, trees.values()))
    return [
        f"{path.relative_to(ROOT)}: {name}"
        for path, tree in trees.items()
        for name in sorted(used(tree) - own)
    ]


def overridden(modules: list[ModuleType]) -> list[str]:
    """Private names of classes of one package that hide those of a base class in another."""
    found = []
    for module in modules:
        for cls in vars(module).values():
            if not isinstance(cls, type) or cls.__module__ != module.__name__:
                continue
            names = source_names(cls)
            for base in cls.__mro__[1:]:
                other = base.__module__.partition(".")[0]
                if other != module.__name__.partition(".")[0] and other.startswith("polydevice"):
                    hidden = names & source_names(base)
                    found += [
                        f"{cls.__qualname__}.{name} of {base.__qualname__}" for name in hidden
                    ]
    return found


def source_names(cls: type) -> set[str]:
    path = getattr(sys.modules.get(cls.__module__), "__file__", None)
    names = names_of_classes(Path(path)).get(cls.__qualname__) if path else None
    if names is None:  # made by a call, not by a class statement
        return {name for name in vars(cls) if private(name)}
    return names


@functools.cache
def names_of_classes(path: Path) -> dict[str, set[str]]:
    """Qualified name of each class in a file → private names that it defines."""
    found: dict[str, set[str]] = {}

    def visit(node: ast.AST, inside: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                found.setdefault(inside + child.name, set()).update(defined(child))
                visit(child, f"{inside}{child.name}.")
            elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                visit(child, f"{inside}{child.name}.<locals>.")
            elif isinstance(child, ast.stmt):
                visit(child, inside)

    visit(tree_of(path), "")
    return found


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@pytest.mark.parametrize("package", PACKAGES)
def test_no_device_uses_private_names_of_another_package(package: str) -> None:
    (folder,) = ROOT.glob(f"plugins/*/{package}")
    assert crossings(package, folder) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_device_hides_private_names_of_its_base_classes(package: str) -> None:
    assert overridden(modules_of(package)) == []


def test_the_sample_device_uses_public_names_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert crossings("polydevice_npu", SAMPLE / "polydevice_npu") == []
    monkeypatch.syspath_prepend(str(SAMPLE))
    try:
        assert overridden(modules_of("polydevice_npu")) == []
    finally:
        for name in [name for name in sys.modules if name.startswith("polydevice_npu")]:
            del sys.modules[name]


def test_the_checks_find_what_they_look_for() -> None:
    tree = ast.parse("from there import _hidden\nclass A:\n  _own = 1\n  def f(self): other._far")
    assert used(tree) - defined(tree) == {"_hidden", "_far"}
