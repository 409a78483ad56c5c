"""`polydevice run`: arguments, what the program sees, and what is said of a missing name."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from polydevice.compat.launcher import split
from polydevice.compat.replacement import Replacement


def run(*arguments: object, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "polydevice", "run", *map(str, arguments)]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=240, check=False
    )


@pytest.mark.parametrize(
    ("given", "ours"),
    [
        (["--as", "onnxruntime", "a.py", "--as", "x"], 3),
        (["--as=onnxruntime", "a.py", "-m", "x"], 2),
        (["--as", "onnxruntime", "-m", "package.module", "-d", "GPU"], 4),
        (["-d", "GPU", "--as", "onnxruntime", "a.py", "b.py"], 5),
        (["--help"], 1),
        (["--as", "onnxruntime", "-m"], 3),
    ],
)
def test_the_programs_own_arguments_begin_behind_its_name(given: list[str], ours: int) -> None:
    assert split(given) == (given[:ours], given[ours:])


PROGRAM = """
import importlib.metadata
import importlib.util
import sys
import onnxruntime
import onnxruntime.capi.onnxruntime_pybind11_state as state
from onnxruntime.capi import _pybind_state
from onnxruntime import InferenceSession as first
from beside import second
assert __name__ == "__main__"
assert first is second is onnxruntime.InferenceSession, "one module, however it is imported"
assert onnxruntime.capi.onnxruntime_pybind11_state is state and _pybind_state.Fail is state.Fail
assert importlib.metadata.version("onnxruntime") == onnxruntime.__version__
assert importlib.util.find_spec("onnxruntime") is not None
assert importlib.metadata.version("numpy") and importlib.metadata.metadata("onnxruntime")["Name"]
print(onnxruntime.__name__, sys.argv[0].endswith("program.py"), sys.argv[1:])
"""


def test_a_program_runs_as_python_would_run_it(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "beside.py").write_text("from onnxruntime import InferenceSession as second")
    done = run("--as", "onnxruntime", tmp_path / "program.py", "--as", "b", "-x")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "polydevice.compat.onnxruntime True ['--as', 'b', '-x']\n"
    assert done.stderr.count("\n") == 1
    assert "onnxruntime is polydevice" in done.stderr
    module = run("--as", "onnxruntime", "-m", "program", "--as", "b", "-x", folder=tmp_path)
    assert (module.returncode, module.stdout) == (0, done.stdout)


EACH_LINE = """
import sys
import traceback
for line in open(sys.argv[1]).read().splitlines():
    try:
        exec(line, {})
        print("nothing was raised")
    except (ImportError, AttributeError) as error:
        print(traceback.format_exception_only(error)[-1].strip())
"""


def said_of(lines: list[str], facade: str, folder: Path) -> list[str]:
    """Run lines that raise, each for itself, in one program; return what each one raises."""
    (folder / "lines").write_text("\n".join(lines))
    (folder / "program.py").write_text(EACH_LINE)
    done = run("--as", facade, folder / "program.py", folder / "lines")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_missing_name_is_named_with_its_reason(tmp_path: Path) -> None:
    wrong = {
        "from onnxruntime import training": "no 'training': polydevice infers",
        "from onnxruntime import LoraAdapter": "no 'LoraAdapter': LoRA adapters are",
        "import onnxruntime.nonsense.more": "no 'nonsense'",
        "import onnxruntime.capi.nonsense": "'onnxruntime.capi.nonsense' is not there",
        "import onnxruntime.RunOptions": "'onnxruntime.RunOptions' is no module of polydevice's",
        "import onnxruntime; onnxruntime.SparseTensor": "no 'SparseTensor': values are dense",
        "import onnxruntime; onnxruntime.RunOptions().add_active_adapter": (
            "onnxruntime.RunOptions has no 'add_active_adapter': LoRA"
        ),
    }
    for said, right in zip(said_of([*wrong], "onnxruntime", tmp_path), wrong.values(), strict=True):
        assert right in said


OPENVINO = """
import openvino.opset8 as ops
import openvino.runtime.opset8 as old
import openvino.runtime.properties.hint as hint
from openvino.runtime import Core, opset1
from openvino.runtime.passes import Manager
from openvino.runtime.utils.types import get_element_type
from openvino.runtime.op import Constant
from openvino.inference_engine import IECore
import openvino
assert ops is old is openvino.opset8 and Core is openvino.Core and hint is openvino.properties.hint
print(openvino.__version__.partition(".")[0], ops.relu.__name__)
"""


def test_modules_of_openvino_are_found_under_all_their_names(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(OPENVINO)
    done = run("--as", "openvino", tmp_path / "program.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "2026 relu\n"


def test_a_missing_name_of_openvino_is_named(tmp_path: Path) -> None:
    wrong = {
        "from openvino.runtime.passes import LowLatency2": "no 'LowLatency2': write the network",
        "import openvino.torch": "no 'torch': models of PyTorch are not read; export them",
        "from openvino import OpExtension": "no 'OpExtension': extensions are libraries",
        "import openvino.opset8 as o; o.ops": "openvino.opset8 has no 'ops': it is about how",
        "from openvino.runtime import nonsense": "no 'nonsense'",
        "import openvino; openvino.Core().nonsense": "openvino.Core has no 'nonsense'",
        "import openvino.opset99": "no 'opset99'",
    }
    for said, right in zip(said_of([*wrong], "openvino", tmp_path), wrong.values(), strict=True):
        assert right in said


@pytest.mark.parametrize("facade", ["inference_engine", "openvino"])
def test_ngraph_is_there_beside_the_api_of_2021(facade: str, tmp_path: Path) -> None:
    lines = (
        "import ngraph as ng",
        "from ngraph import opset5",
        "from ngraph.impl import Function",
        "from openvino.inference_engine import IENetwork",
        "x = ng.parameter([1, 2], name='x')",
        "print(IENetwork(Function.to_capsule(Function([opset5.relu(x)], [x], 'net'))).name)",
    )
    (tmp_path / "program.py").write_text("\n".join(lines))
    done = run("--as", facade, tmp_path / "program.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "net\n"


def test_what_the_program_does_is_its_own(tmp_path: Path) -> None:
    """Its exit status, and its exceptions with their traceback, also those of polydevice."""
    program = tmp_path / "program.py"
    program.write_text("import sys; sys.exit(7)")
    assert run("--as", "onnxruntime", program).returncode == 7
    program.write_text("from polydevice import PolydeviceError\nraise PolydeviceError('mine')")
    failed = run("--as", "onnxruntime", program)
    assert failed.returncode == 1
    assert "line 2, in <module>" in failed.stderr
    assert "PolydeviceError: mine" in failed.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["program.py"], "--as"),
        (["--as", "nonsense", "program.py"], "onnxruntime"),
        (["--as", "onnxruntime"], "name a program's file, or a module with -m"),
        (["--as", "onnxruntime", "nothing.py"], "there is no file 'nothing.py'"),
    ],
)
def test_wrong_use_is_told(arguments: list[str], said: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_name_below_another_can_be_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `openvino.inference_engine`, whose package above may be another release, or not here."""
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    with monkeypatch.context() as patch:
        for name in [n for n in sys.modules if n.partition(".")[0] == "above"]:
            patch.delitem(sys.modules, name)
        Replacement({"above.below": "polydevice.compat.onnxruntime"}).install()
        from above.below import InferenceSession  # type: ignore[import-not-found]
        from above.below.capi.onnxruntime_pybind11_state import (  # type: ignore[import-not-found]
            Fail,
        )

        import polydevice.compat.onnxruntime as ours

        assert InferenceSession is ours.InferenceSession
        assert Fail.__module__.startswith("polydevice.")
        assert ours.__spec__ is not None
        assert ours.__spec__.name == "polydevice.compat.onnxruntime"
        with pytest.raises(ModuleNotFoundError, match=r"has no 'above\.beside'"):
            importlib.import_module("above.beside")
