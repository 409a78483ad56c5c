"""An import hook that puts one of our packages in the place of another name."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.abc import InspectLoader, Loader
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import Distribution, DistributionFinder
from pathlib import Path
from types import CodeType, ModuleType


class Replacement(DistributionFinder):
    """Finds our modules under other names, and everything below them.

    A name above one that is replaced (``openvino`` of ``openvino.inference_engine``) becomes an
    empty package, so that nothing of an installed package of that name is imported beside ours.
    """

    def __init__(self, modules: Mapping[str, str]) -> None:
        """Replace each of the names by the module beside it."""
        self._modules = dict(modules)
        self._above = {
            name.rpartition(".")[0] for name in modules if name.rpartition(".")[0] not in modules
        } - {""}

    def install(self) -> None:
        """Answer imports of these names from now on, also of what was imported before."""
        for name in list(sys.modules):
            if self._target(name) is not None or name in self._above:
                del sys.modules[name]
        sys.meta_path.insert(0, self)

    def _target(self, name: str) -> str | None:
        """Return the name of the module that stands for `name`."""
        for replaced, ours in self._modules.items():
            if name == replaced or name.startswith(replaced + "."):
                return ours + name[len(replaced) :]
        return None

    def find_distributions(
        self,
        context: DistributionFinder.Context = DistributionFinder.Context(),  # noqa: B008 - theirs
    ) -> Iterable[Distribution]:
        """Return the distribution of a package that is replaced, with the version that ours has."""
        name = context.name or ""
        return [_Distribution(name, self._modules[name])] if name in self._modules else []

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return where the module is; None for names that are not ours to replace.

        Raises:
            ModuleNotFoundError: there is no such module in the package that stands in.
        """
        ours = self._target(fullname)
        if ours is None:
            if fullname in self._above:
                return ModuleSpec(fullname, _Empty(), is_package=True)
            if any(fullname.startswith(prefix + ".") for prefix in self._modules.values()):
                return _found(fullname, path)
            parent = fullname.partition(".")[0]
            if parent in self._above:
                raise ModuleNotFoundError(
                    f"polydevice stands in for {', '.join(self._modules)} here and has no "
                    f"{fullname!r}"
                )
            return None
        try:
            there = importlib.util.find_spec(ours) is not None
        except ModuleNotFoundError:  # from the lines above
            there = False
        if not there:
            raise ModuleNotFoundError(_why_missing(fullname, ours))
        module = importlib.import_module(ours)
        return ModuleSpec(
            fullname,
            _Existing(module),
            origin=getattr(module, "__file__", None),
            is_package=_is_package(module),
        )


class _Distribution(Distribution):
    """Name and version of what is stood in for, for programs that ask `importlib.metadata`."""

    def __init__(self, name: str, ours: str) -> None:
        self._module = importlib.import_module(ours)
        self._text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {self._module.__version__}\n"

    def read_text(self, filename: str) -> str | None:
        return self._text if filename == "METADATA" else None

    def locate_file(self, path: str | os.PathLike[str]) -> Path:
        return Path(self._module.__file__ or "").parent / path


def _found(name: str, path: Sequence[str] | None) -> ModuleSpec:
    """Return where a module of ours is; ``from package import name`` asks for what may be none.

    Raises:
        ModuleNotFoundError: with the reason, which Python's own would not give.
    """
    spec = PathFinder.find_spec(name, path)
    if spec is None:
        raise ModuleNotFoundError(_why_missing(name, name))
    return spec


def _is_package(module: ModuleType) -> bool:
    return hasattr(module, "__path__")


def _why_missing(name: str, ours: str) -> str:
    """Say what is missing; the package above may know why."""
    above, _, last = ours.rpartition(".")
    try:
        getattr(importlib.import_module(above), last)
    except AttributeError as error:
        return f"{name!r} is not there: {error}"
    return f"{name!r} is no module of polydevice's stand-in, {above}"


class _Existing(Loader):
    """Hands out a module that was imported under its own name."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._spec = module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import has put the other name's in its place

    def get_code(self, name: str) -> CodeType | None:
        """Return the module's code, for ``python -m``."""
        loader = None if self._spec is None else self._spec.loader
        return loader.get_code(self._module.__name__) if isinstance(loader, InspectLoader) else None


class _Empty(Loader):
    """Makes a package with nothing in it."""

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        return None
