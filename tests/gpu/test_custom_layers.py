"""CONFIG_FILE: the user's kernels compute operations."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_gpu.custom.layer import read_layers
from tests.cpu.models import build
from tests.gpu.custom import DEFINES, SCALE_CL, X, layer, relu, run, write_files

# Believes blindly that its format is what it asked for.
BLIND_CL = """
__kernel void blind(const __global float* in, __global float* out)
{
    const int i = get_global_id(0);
#ifdef INPUT0_FORMAT_{0}
    out[i] = in[i] + i;
#endif
}
"""


@pytest.fixture
def files(tmp_path):
    return write_files(tmp_path)


def test_layer_wins_over_the_own_kernel_for_that_load_only(core, files) -> None:
    np.testing.assert_array_equal(run(core, files), X["x"] * np.float32(3) + np.float32(0.5))
    executable = core.load_network(core.read_network(relu()), "GPU")
    np.testing.assert_array_equal(executable.infer(X)["y"], np.maximum(X["x"], 0))


def test_set_config_serves_all_loads_and_query(core, files) -> None:
    core.set_config({"CONFIG_FILE": str(files / "good.xml")}, "GPU")
    network = core.read_network(relu())
    assert core.query_network(network, "GPU")["y"] == "GPU"
    y = core.load_network(network, "GPU").infer(X)["y"]
    np.testing.assert_array_equal(y, X["x"] * np.float32(3) + np.float32(0.5))


def test_later_files_and_elements_replace_earlier_ones(core, files) -> None:
    other = DEFINES.replace('"3"', '"5"')
    twice = (
        '<?xml version="1.0"?>\n<!-- two roots -->' + layer(defines=DEFINES) + layer(defines=other)
    )
    (files / "two.xml").write_text(twice)
    (files / "clamp.xml").write_text(layer("Clamp", defines=DEFINES))
    paths = f"{files / 'good.xml'} \n {files / 'two.xml'}  {files / 'clamp.xml'}"
    assert set(read_layers(paths)) == {"ReLU", "Clamp"}
    y = run(core, files, config={"CONFIG_FILE": paths})
    np.testing.assert_array_equal(y, X["x"] * np.float32(5) + np.float32(0.5))


def test_files_set_later_are_added(core, files) -> None:
    """As in the original: the table of layers grows, and what comes later wins."""
    other = DEFINES.replace('"3"', '"5"')
    (files / "clamp.xml").write_text(layer("Clamp", defines=DEFINES))
    (files / "five.xml").write_text(layer(defines=other))
    good, clamp, five = (str(files / f"{name}.xml") for name in ("good", "clamp", "five"))
    network = core.read_network(relu())

    def factor(config=None, device="GPU") -> float:
        y = core.load_network(network, device, config).infer(X)["y"]
        return float((y.max() - np.float32(0.5)) / X["x"].max())

    core.set_config({"CONFIG_FILE": good}, "GPU")
    core.set_config({"CONFIG_FILE": clamp}, "GPU")
    assert core.get_config("GPU", "CONFIG_FILE") == f"{good} {clamp}"
    assert factor() == 3
    assert factor({"CONFIG_FILE": five}) == 5  # for this load
    assert factor() == 3
    core.set_config({"CONFIG_FILE": five}, "GPU")
    assert factor() == 5
    core.set_config({"CONFIG_FILE": good}, "GPU")  # again: now it is the latest
    assert core.get_config("GPU", "CONFIG_FILE") == f"{clamp} {five} {good}"
    assert factor() == 3
    core.set_config({"CONFIG_FILE": ""}, "GPU")
    assert core.get_config("GPU", "CONFIG_FILE") == ""
    np.testing.assert_array_equal(
        core.load_network(network, "GPU").infer(X)["y"], np.maximum(X["x"], 0)
    )
    core.set_config({"CONFIG_FILE": five}, "GPU.0")
    core.set_config({"CONFIG_FILE": clamp}, "GPU.0")
    assert core.get_config("GPU.0", "CONFIG_FILE") == f"{five} {clamp}"
    assert factor(device="GPU.0") == 5


def test_attributes_become_defines(core, files) -> None:
    """Clamp's bounds; a name that Clamp does not have takes the default."""
    defines = (
        '<Define name="LOW" param="min" type="float" default="7"/>'
        '<Define name="HIGH" param="max" default="7"/>'
        '<Define name="OTHER" param="nothing" default="1.5f"/>'
        '<Define name="LIST" type="float[]" default="1.0f, 10.0f"/>'
    )
    (files / "clamp.cl").write_text(
        "__kernel void bounds(const __global float* in, __global float* out) {\n"
        "  const int i = get_global_id(0);\n"
        "  out[i] = in[i] + LOW + 10 * HIGH + OTHER + LIST[1]; }"
    )
    (files / "clamp.xml").write_text(layer("Clamp", "bounds", "clamp.cl", defines))
    weights = {"low": np.float32(-2), "high": np.float32(4)}
    model = build([("Clip", ["x", "low", "high"], ["y"], {})], {"x": [2, 3, 5, 7]}, ["y"], weights)
    y = run(core, files, model, name="clamp.xml")
    np.testing.assert_allclose(y, X["x"] - 2 + 40 + 1.5 + 10, rtol=1e-6)


FORMATS = {"BFYX": (0, 1, 2, 3), "BYXF": (0, 2, 3, 1), "FYXB": (1, 2, 3, 0), "YXFB": (2, 3, 1, 0)}


@pytest.mark.parametrize("into", FORMATS)
@pytest.mark.parametrize("form", FORMATS)
def test_tensors_lie_in_the_formats_asked_for(core, files, form, into) -> None:
    (files / "blind.cl").write_text(BLIND_CL.replace("{0}", form))
    tensors = (
        f'<Tensor arg-index="0" type="input" port-index="0" format="{form.lower()}"/>'
        f'<Tensor arg-index="1" type="output" port-index="0" format="{into}"/>'
    )
    (files / "blind.xml").write_text(layer(kernel="blind", source="blind.cl", tensors=tensors))
    y = run(core, files, name="blind.xml")
    memory = X["x"].transpose(FORMATS[form]).reshape(-1) + np.arange(X["x"].size, dtype=np.float32)
    shape = [X["x"].shape[axis] for axis in FORMATS[into]]
    right = memory.reshape(shape).transpose(np.argsort(FORMATS[into]))
    np.testing.assert_array_equal(y, right)


@pytest.mark.parametrize("form", [*FORMATS, "ANY"])
def test_dims_pitches_and_offsets_address_every_format(core, files, form) -> None:
    """The input is a slice of a larger value, whose pitches and offset are not its own."""
    tensors = (
        f'<Tensor arg-index="1" type="input" port-index="0" format="{form}"/>'
        f'<Tensor arg-index="0" type="output" port-index="0" format="{form}"/>'
    )
    sizes = '<WorkSizes global="X,Y" dim="input,0"/>'
    (files / "p.xml").write_text(
        layer(kernel="through_pitches", source="pitches.cl", tensors=tensors, sizes=sizes)
    )
    weights = {k: np.array([v], np.int64) for k, v in {"s": 1, "e": 3, "a": 1}.items()}
    weights["one"] = np.ones((2, 2, 5, 7), np.float32)
    nodes = [
        ("Slice", ["x", "s", "e", "a"], ["part"], {}),
        ("Relu", ["part"], ["r"], {}),
        ("Concat", ["r", "x"], ["y"], {"axis": 1}),  # written into the middle of another value
    ]
    model = build(nodes, {"x": [2, 3, 5, 7]}, ["y"], weights)
    y = run(core, files, model, name="p.xml")
    part = X["x"][:, 1:3] * 2 + np.arange(7) + 100 * np.arange(5)[:, None]
    np.testing.assert_allclose(y, np.concatenate([part, X["x"]], 1), rtol=1e-6)


def test_half_tensors_have_their_type(core, files) -> None:
    y = run(core, files, config={"INFERENCE_PRECISION_HINT": "f16"})
    np.testing.assert_allclose(y, X["x"] * 3 + 0.5, rtol=2e-3, atol=2e-3)


def test_work_sizes_of_input_and_local_sizes(core, files) -> None:
    """Without WorkSizes the sizes are those of input 0, as one dimension."""
    for sizes in (
        "",
        '<WorkSizes global="b*f, y*x" local="1,7" dim="input 0"/>',
        '<WorkSizes global="X, Y, B * F" local="" dim="output"/>',
    ):
        source = SCALE_CL.replace(
            "get_global_id(0)",
            "get_global_id(0) + get_global_size(0) * (get_global_id(1) + get_global_size(1) * "
            "get_global_id(2)); if (GLOBAL_WORKSIZE[0] != get_global_size(0)) return",
        )
        (files / "scale.cl").write_text(source)
        (files / "good.xml").write_text(layer(defines=DEFINES, sizes=sizes))
        np.testing.assert_array_equal(run(core, files), X["x"] * np.float32(3) + np.float32(0.5))


def test_dump_kernels_writes_custom_sources_only(core, files, monkeypatch) -> None:
    folder = files / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    nodes = [("Relu", ["x"], ["r"], {}), ("Sin", ["r"], ["y"], {})]
    model = build(nodes, {"x": [2, 3, 5, 7]}, ["y"], {})
    run(core, files, model)
    assert not list(folder.iterdir())  # off by default
    run(core, files, model, {"DUMP_KERNELS": "YES"})
    (path,) = folder.glob("clDNN_program*.cl")
    text = path.read_text()
    for part in ("INPUT0_DIMS (int []){ 2, 3, 5, 7, }", "INPUT0_PITCHES (int []){ 105, 35, 7, 1, }",
                 "INPUT0_TYPE float", "OUTPUT0_FORMAT_BFYX", "FACTOR 3", "NUM_INPUTS 1",
                 "GLOBAL_WORKSIZE (int []){ 210, }", "GLOBAL_WORKSIZE_SIZE 1",
                 "INPUT0_LOWER_PADDING (int []){ 0, 0, 0, 0, }", "__kernel void scale",
                 "Compiler's log"):  # fmt: skip
        assert part in text


def test_counters_show_the_type_of_the_operation(core, files) -> None:
    config = {"CONFIG_FILE": str(files / "good.xml"), "PERF_COUNT": "YES"}
    executable = core.load_network(core.read_network(relu()), "GPU", config)
    request = executable.create_infer_request()
    request.infer(X)
    row = request.get_perf_counts()["y"]
    assert row["layer_type"] == "ReLU" and row["exec_type"] == "custom"


Y = np.random.default_rng(2).integers(-40, 40, (1, 1, 5, 7)).astype(np.float32) / 8
