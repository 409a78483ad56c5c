"""Exported networks and the core's model cache, on every device that can export."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from polydevice import Core
from polydevice.errors import (
    DeviceError,
    ModelFileError,
    ModelFormatError,
    OptionValueError,
    UnknownOptionError,
)
from polydevice.plugin import Plugin
from tests.cpu.models import answer, build, residual

MODEL = residual()
INPUT = {"x": np.random.default_rng(1).random((2, 3, 14, 14), np.float32)}
RIGHT = dict(zip(("y", "logits", "p1"), answer(MODEL, INPUT), strict=True))


def check(executable) -> None:
    results = executable.infer(INPUT)
    assert list(results) == list(RIGHT)
    for name, right in RIGHT.items():
        np.testing.assert_allclose(results[name], right, rtol=1e-4, atol=1e-5)


@pytest.fixture
def core():
    with Core() as core:
        yield core


@pytest.mark.usefixtures("compiled_sparingly")
def test_import_gives_the_same_answers_without_the_model(core, device, tmp_path) -> None:
    executable = core.load_network(core.read_network(MODEL), device, {"PERF_COUNT": "YES"})
    first = executable.infer(INPUT)
    content = executable.export()
    assert content == executable.export()  # nothing random or of the moment is in it
    imported = core.import_network(content, device)
    check(imported)
    assert all(np.array_equal(imported.infer(INPUT)[k], v) for k, v in first.items())
    assert imported.name == executable.name
    assert str(imported.inputs) == str(executable.inputs)
    assert imported.get_config("PERF_COUNT") == "YES"  # kept
    assert (
        core.import_network(content, device, {"PERF_COUNT": "NO"}).get_config("PERF_COUNT") == "NO"
    )
    path = tmp_path / "exported"
    path.write_bytes(content)
    check(core.import_network(path, device))


@pytest.mark.usefixtures("compiled_sparingly")
def test_settings_of_inputs_survive(core, device) -> None:
    network = core.read_network(MODEL)
    network.inputs["x"].precision = "U8"
    network.inputs["x"].layout = "NHWC"
    executable = core.load_network(network, device)
    imported = core.import_network(executable.export(), device)
    port = imported.inputs["x"]
    assert (port.precision, port.layout, port.sizes) == ("U8", "NHWC", (2, 14, 14, 3))
    x = {"x": np.random.default_rng(1).integers(0, 255, (2, 14, 14, 3), np.uint8)}
    assert np.array_equal(imported.infer(x)["y"], executable.infer(x)["y"])


def test_operations_that_ir_cannot_express(core) -> None:
    """On CPU: a Loop, and an operator that only ONNX has."""
    model = build(
        [("Hardmax", ["x"], ["h"], {}), ("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], {})],
        {"x": [2, 5]},
        ["h", "q"],
        {},
    )
    x = {"x": np.random.default_rng(3).random((2, 5), np.float32)}
    executable = core.load_network(core.read_network(model), "CPU")
    imported = core.import_network(executable.export(), "CPU")
    for found, right in zip(imported.infer(x).values(), answer(model, x), strict=True):
        assert np.array_equal(found, right)


@pytest.mark.usefixtures("compiled_sparingly")
def test_dynamic_network(core, device) -> None:
    model = residual(batch="n")
    executable = core.load_network(core.read_network(model), device)
    executable.infer(INPUT)
    check(core.import_network(executable.export(), device))


@pytest.mark.parametrize("place", [0, 30, 60, 2000, -1])
def test_damage_is_found(core, device, place) -> None:
    content = bytearray(core.load_network(core.read_network(MODEL), device).export())
    content[place] ^= 1
    with pytest.raises(ModelFormatError):
        core.import_network(bytes(content), device)
    with pytest.raises(ModelFormatError):
        core.import_network(bytes(content[: len(content) // 2]), device)


def test_wrong_files_are_named(core, device, tmp_path) -> None:
    with pytest.raises(ModelFileError, match="nothing here"):
        core.import_network(tmp_path / "nothing here", device)
    with pytest.raises(ModelFormatError, match="no exported network"):
        core.import_network(MODEL, device)
    from polydevice.files.container import pack

    with pytest.raises(ModelFormatError, match="holds a 'network on NPU'"):
        core.import_network(pack("network on NPU", {}), device)
    with pytest.raises(ModelFormatError, match="not consistent"):
        core.import_network(pack(f"network on {device}", {}), device)


# -- the core's model cache ------------------------------------------------------------------------


class Counted:
    """How often a plugin compiled and imported."""

    def __init__(self, monkeypatch, core, device) -> None:
        self.loads = self.imports = 0
        plugin = core._devices.plugin(device)
        load, read = plugin.load_network, plugin.import_network

        def load_network(network, options, device_id, context=None):
            self.loads += 1
            return load(network, options, device_id, context)

        def import_network(data, options, device_id, context=None):
            self.imports += 1
            before = self.loads
            try:
                return read(data, options, device_id, context)
            finally:
                self.loads = before  # what importing does by itself

        monkeypatch.setattr(plugin, "load_network", load_network)
        monkeypatch.setattr(plugin, "import_network", import_network)


@pytest.fixture
def counted(monkeypatch, core, device) -> Counted:
    return Counted(monkeypatch, core, device)


def test_second_load_imports(core, device, counted, tmp_path) -> None:
    core.set_config({"CACHE_DIR": str(tmp_path / "cache")})
    network = core.read_network(MODEL)
    for loads, imports in ((1, 0), (1, 1), (1, 2)):
        check(core.load_network(network, device))
        assert (counted.loads, counted.imports) == (loads, imports)
    assert len(list((tmp_path / "cache").glob("*.blob"))) == 1
    core.set_config({"CACHE_DIR": ""})
    check(core.load_network(network, device))
    assert (counted.loads, counted.imports) == (2, 2)


@pytest.mark.usefixtures("compiled_sparingly")
def test_anything_that_differs_is_another_entry(core, device, counted, tmp_path) -> None:
    core.set_config({"KEY_CACHE_DIR": str(tmp_path)})
    core.load_network(core.read_network(MODEL), device)
    core.load_network(core.read_network(residual(seed=1)), device)  # other weights
    core.load_network(core.read_network(MODEL), device, {"PERF_COUNT": "YES"})
    network = core.read_network(MODEL)
    network.inputs["x"].precision = "U8"
    core.load_network(network, device)
    network.inputs["x"].layout = "NHWC"
    core.load_network(network, device)
    network = core.read_network(MODEL)
    network.reshape({"x": [2, 3, 16, 16]})
    core.load_network(network, device)
    assert (counted.loads, counted.imports) == (6, 0)
    assert len(list(tmp_path.glob("*.blob"))) == 6


@pytest.mark.parametrize("right_checksum", [False, True])
def test_bad_entry_is_set_aside_and_made_again(
    core, device, counted, tmp_path, right_checksum
) -> None:
    from polydevice.files.file_cache import FileCache

    core.set_config({"CACHE_DIR": str(tmp_path)})
    network = core.read_network(MODEL)
    core.load_network(network, device)
    (path,) = tmp_path.glob("*.blob")
    good = path.read_bytes()
    if right_checksum:  # an intact file with something in it that cannot be imported
        FileCache(tmp_path, ".blob", "").store(bytes.fromhex(path.stem), b"nonsense")
    else:
        path.write_bytes(good[:-9] + b"X" + good[-8:])
    check(core.load_network(network, device))
    assert counted.loads == 2
    assert path.read_bytes() == good
    assert path.with_suffix(".bad").exists()


def test_folder_that_cannot_be_used_costs_one_warning(core, device, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    network = core.read_network(MODEL)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        core.set_config({"CACHE_DIR": str(tmp_path / "file" / "folder")})
        check(core.load_network(network, device))
        check(core.load_network(network, device))
    models = [w for w in caught if "compiled networks are not kept" in str(w.message)]
    assert len(models) == 1


def test_folder_that_vanishes_costs_one_warning(core, device, tmp_path) -> None:
    import shutil

    folder = tmp_path / "cache"
    core.set_config({"CACHE_DIR": str(folder)})
    shutil.rmtree(folder)
    network = core.read_network(MODEL)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check(core.load_network(network, device))
        shutil.rmtree(folder, ignore_errors=True)
        check(core.load_network(network, device))
    assert len([w for w in caught if "compiled networks are not kept" in str(w.message)]) == 1


def test_full_disk_costs_one_warning(core, device, tmp_path, monkeypatch) -> None:
    from polydevice.files import cache_folder

    core.set_config({"CACHE_DIR": str(tmp_path)})

    def full(path, content) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache_folder, "write_atomically", full)
    network = core.read_network(MODEL)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check(core.load_network(network, device))
        check(core.load_network(network, device))
    found = [w for w in caught if "compiled networks are not kept" in str(w.message)]
    assert len(found) == 1 and "No space left" in str(found[0].message)


def test_cache_dir_goes_to_devices_that_know_it_and_must_be_a_path(core) -> None:
    with pytest.raises(OptionValueError, match="CACHE_DIR=7"):
        core.set_config({"CACHE_DIR": 7})
    with pytest.raises(UnknownOptionError, match="NO_SUCH"):
        core.set_config({"CACHE_DIR": "", "NO_SUCH": "1"})
    if "GPU" in core.available_devices:
        core.set_config({"CACHE_DIR": "/tmp"}, "GPU")
        assert core._model_cache is None  # the device's own


def test_device_that_cannot_export_says_so() -> None:
    assert Plugin.can_export is False
    from polydevice.testing import fake_device

    with Core() as core:
        core.register_plugin(fake_device.__name__, "FAKE")
        with pytest.raises(DeviceError, match="FAKE cannot import networks"):
            core.import_network(b"", "FAKE")


PROGRAM = """
import sys, time
import numpy as np
from polydevice import Core
with Core() as core:
    if sys.argv[2] == "import":
        executable = core.import_network(sys.argv[3], "GPU")
    else:
        core.set_config({"CACHE_DIR": sys.argv[3]})
        executable = core.load_network(core.read_network(sys.argv[1]), "GPU")
    x = np.random.default_rng(5).random((1, 1, 224, 224), np.float32)
    np.save(sys.argv[4], next(iter(executable.infer({"data": x}).values())))
"""
REAL = Path(__file__).parents[1] / "models" / "data" / "wechat_qr_sr.xml"


def _run(*arguments: object, compile_: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, REAL, *arguments],
        env={**os.environ, "POLYDEVICE_NO_COMPILE": "0" if compile_ else "1"},
        check=False,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.full  # as loading from the cache of models does
def test_import_on_gpu_compiles_nothing_in_another_process(core, tmp_path) -> None:
    if "GPU" not in core.available_devices:
        pytest.skip("no GPU here")
    executable = core.load_network(core.read_network(REAL), "GPU")
    (tmp_path / "exported").write_bytes(executable.export())
    _run("import", tmp_path / "exported", tmp_path / "y.npy", compile_=False)
    x = np.random.default_rng(5).random((1, 1, 224, 224), np.float32)
    (right,) = executable.infer({"data": x}).values()
    assert np.array_equal(np.load(tmp_path / "y.npy"), right)


def test_model_cache_of_gpu_compiles_nothing_in_another_process(core, tmp_path) -> None:
    if "GPU" not in core.available_devices:
        pytest.skip("no GPU here")
    folder = tmp_path / "cache"
    _run("load", folder, tmp_path / "first.npy", compile_=True)
    for path in folder.glob("*.cl_cache"):
        path.unlink()  # the model cache alone must do
    _run("load", folder, tmp_path / "second.npy", compile_=False)
    assert np.array_equal(np.load(tmp_path / "first.npy"), np.load(tmp_path / "second.npy"))
