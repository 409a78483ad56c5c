"""pyopencl, without what only its arrays need until somebody asks for it.

Its types of vectors, and its tools with what they import, are two thirds of the time that importing
pyopencl takes: 20 of 29 ms on a Xeon, and twice that on the host of an H200. No network needs them.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any

from polydevice.locks import RLock
from polydevice_gpu.cl.library import pyopencl_folder

_NAMES = ("pyopencl.tools", "pyopencl.cltypes")
_lock = RLock()


def _put_off() -> dict[str, ModuleType]:
    """Let both modules run at the first question for what is in one; return them by name.

    Both, since types of vectors are found by name in tools once the other has run.
    """
    folder = pyopencl_folder()
    if folder is None or "pyopencl" in sys.modules:
        return {}
    made: dict[str, ModuleType] = {}
    for name in _NAMES:
        file = folder / f"{name.rpartition('.')[2]}.py"
        spec = importlib.util.spec_from_file_location(name, file) if file.is_file() else None
        if spec is None:
            return {}
        made[name] = importlib.util.module_from_spec(spec)

    def run() -> None:
        with _lock:
            for module in made.values():
                waits = vars(module).pop("__getattr__", None)
                if waits is not None:
                    assert module.__spec__ is not None
                    assert module.__spec__.loader is not None
                    module.__spec__.loader.exec_module(module)

    def wait(module: ModuleType) -> None:
        def ask(attribute: str) -> Any:
            if attribute.startswith("__"):  # as those do who look at every module
                raise AttributeError(f"module {module.__name__!r} has no attribute {attribute!r}")
            run()
            return getattr(module, attribute)

        vars(module)["__getattr__"] = ask

    for module in made.values():
        wait(module)
    return made


_later = _put_off()
sys.modules.update(_later)

import pyopencl as ocl  # noqa: E402 - when they are there

for _name, _module in _later.items():
    setattr(ocl, _name.rpartition(".")[2], _module)

__all__ = ["ocl"]
