"""CACHE_DIR: a second process loads a network without compiling, and answers the same."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.gpu.open_networks import attention

MODEL = Path(__file__).parents[1] / "models" / "data" / "wechat_qr_sr.xml"

PROGRAM = """
import sys
import numpy as np
from polydevice import Core
image = np.random.default_rng(5).random((1, 1, 224, 224), np.float32)
with Core() as core:
    network = core.load_network(sys.argv[1], "GPU", {"CACHE_DIR": sys.argv[2]})
    (answer,) = network.infer({"data": image}).values()
answer.tofile(sys.argv[3])
"""


@pytest.mark.full  # `cl/test_binary_cache.py` has one program
def test_second_process_compiles_nothing_and_answers_the_same(opencl, tmp_path) -> None:
    answers = []
    for forbid in ("0", "1"):
        answer = tmp_path / f"answer{forbid}"
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, MODEL, tmp_path / "kernels", answer],
            env={**os.environ, "POLYDEVICE_NO_COMPILE": forbid},
            check=False,
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, done.stderr
        answers.append(answer.read_bytes())
    assert len(answers[0]) == 4 * 447 * 447
    assert answers[0] == answers[1]


SHAPES = """
import sys
import numpy as np
from polydevice import Core
with Core() as core:
    network = core.load_network(sys.argv[1], "GPU", {"CACHE_DIR": sys.argv[2]})
    request = network.create_infer_request()
    for length in map(int, sys.argv[3:]):
        x = np.linspace(-1, 1, 24 * length, dtype=np.float32).reshape(1, length, 24)
        (answer,) = request.infer({"x": x}).values()
        assert answer.shape == x.shape
        assert np.isfinite(answer).all()
"""


@pytest.mark.full
def test_the_cache_has_the_programs_of_every_shape(opencl, tmp_path) -> None:
    model = tmp_path / "attention.onnx"
    model.write_bytes(attention([])[0])
    # The later process meets them in another order, and shapes that the first one never saw.
    for forbid, lengths in (("0", "40 100"), ("1", "100 101 40 64")):
        done = subprocess.run(
            [sys.executable, "-c", SHAPES, model, tmp_path / "kernels", *lengths.split()],
            env={**os.environ, "POLYDEVICE_NO_COMPILE": forbid},
            check=False,
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, done.stderr


def test_what_is_not_in_the_cache_is_named(opencl, tmp_path, monkeypatch) -> None:
    from polydevice import Core
    from polydevice.errors import KernelBuildError

    monkeypatch.setenv("POLYDEVICE_NO_COMPILE", "1")
    with Core() as core, pytest.raises(KernelBuildError, match=r"is not in the cache, and POLYDEV"):
        core.load_network(MODEL, "GPU", {"CACHE_DIR": str(tmp_path / "kernels")})


PROCESSES = 4


@pytest.mark.full
def test_processes_at_once_leave_one_good_entry_each(opencl, tmp_path) -> None:
    """All find the folder empty: none compiles before every one of them has a device."""
    import numpy as np

    from polydevice.files.file_cache import files_of

    program = """if True:
        import pathlib, sys, time
        import numpy as np
        from polydevice import Core
        from polydevice.dtype import ElementType
        from polydevice.network import Network
        from polydevice.node import Node, constant
        from polydevice.ops.io import Parameter, Result
        from polydevice.ops.matmul import MatMul
        from polydevice.ops.softmax import SoftMax
        from polydevice.shape import Shape
        here, number = pathlib.Path(sys.argv[1]), sys.argv[2]
        x = Node("x", Parameter(ElementType.f32, Shape((3, 5))))
        w = constant("w", np.arange(35, dtype=np.float32).reshape(5, 7) / 35)
        product = Node("product", MatMul(), [x.output, w.output])
        soft = Node("soft", SoftMax(axis=1), [product.output])
        network = Network("tiny", [x], [Node("y", Result(), [soft.output])])
        with Core() as core:
            core.get_metric("GPU", "OPTIMIZATION_CAPABILITIES")  # opens the device
            (here / f"ready{number}").touch()
            while not (here / "go").exists():
                time.sleep(0.02)
            network = core.load_network(network, "GPU", {"CACHE_DIR": str(here / "kernels")})
            data = np.arange(15, dtype=np.float32).reshape(3, 5) / 15
            network.infer({"x": data})["soft"].tofile(here / f"answer{number}")
    """
    folder = tmp_path / "kernels"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path), str(number)], stderr=subprocess.PIPE
        )
        for number in range(PROCESSES)
    ]
    try:
        while len(list(tmp_path.glob("ready*"))) < PROCESSES:
            time.sleep(0.05)
            assert all(process.poll() is None for process in processes), "one ended early"
        assert not folder.exists()
        (tmp_path / "go").touch()
        errors = [process.communicate(timeout=200)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * PROCESSES, errors
    files = files_of(folder)
    assert len(files) >= 2 and all(file.is_good for file in files)
    assert len(list(folder.iterdir())) == len(files)  # nothing half-written is left
    assert all(path.suffix == ".cl_cache" for path in folder.iterdir())
    answers = {path.read_bytes() for path in tmp_path.glob("answer*")}
    (answer,) = answers
    data = np.arange(15, dtype=np.float32).reshape(3, 5) / 15
    scores = np.exp(data @ (np.arange(35, dtype=np.float32).reshape(5, 7) / 35))
    right = scores / scores.sum(1, keepdims=True)
    np.testing.assert_allclose(np.frombuffer(answer, np.float32).reshape(3, 7), right, rtol=1e-5)


def test_damaged_entries_are_rebuilt_and_the_answer_stays(opencl, tmp_path) -> None:
    """Cut, of another program, and empty; of three entries or more there is each."""
    import numpy as np

    from polydevice import Core

    image = {"data": np.random.default_rng(5).random((1, 1, 224, 224), np.float32)}

    def answer() -> np.ndarray:
        with Core() as core:
            network = core.load_network(MODEL, "GPU", {"CACHE_DIR": str(tmp_path)})
            return next(iter(network.infer(image).values()))

    right = answer()
    files = sorted(tmp_path.glob("*.cl_cache"))
    assert len(files) >= 3
    for number, path in enumerate(files):
        content = path.read_bytes()
        path.write_bytes((content[:-7], b"\x7fELF" * 99, b"")[number % 3])
    assert np.array_equal(answer(), right)
    assert sorted(tmp_path.glob("*.cl_cache")) == files
    assert len(list(tmp_path.glob("*.bad"))) == len(files)


@pytest.mark.parametrize("problem", ["full", "vanished", "read-only"])
def test_folder_that_fails_costs_one_warning(opencl, tmp_path, monkeypatch, problem) -> None:
    import shutil
    import warnings

    from polydevice import Core
    from polydevice.files import cache_folder

    folder = tmp_path / "kernels"
    real = cache_folder.write_atomically

    def write(path, content) -> None:
        if problem == "full":
            raise OSError(28, "No space left on device")
        if problem == "read-only":
            raise OSError(30, "Read-only file system")
        shutil.rmtree(folder, ignore_errors=True)
        real(path, content)

    monkeypatch.setattr(cache_folder, "write_atomically", write)
    with warnings.catch_warnings(record=True) as caught, Core() as core:
        warnings.simplefilter("always")
        core.load_network(MODEL, "GPU", {"CACHE_DIR": str(folder)})
    found = [str(w.message) for w in caught if "are not kept" in str(w.message)]
    assert len(found) == 1 and "choose another CACHE_DIR" in found[0]
