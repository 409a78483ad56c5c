"""CONFIG_FILE: the user's kernels compute operations; broken files change nothing and say where."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydevice import Core
from polydevice.errors import (
    KernelBuildError,
    ModelFormatError,
    OptionValueError,
    UnsupportedNetworkError,
)
from polydevice_gpu.custom.formula import calculate
from polydevice_gpu.custom.layer import read_layers
from tests.cpu.models import build

ONE = dict.fromkeys("BFYX", 1)
SIZES = {"B": 2, "F": 3, "Y": 5, "X": 7}
X = {"x": np.random.default_rng(1).integers(-40, 40, (2, 3, 5, 7)).astype(np.float32) / 8}
"""Eighths, so that sums and products are exact, fused or not."""

SCALE_CL = """
__kernel void scale(const __global INPUT0_TYPE* input0, __global OUTPUT0_TYPE* output)
{
    const uint i = get_global_id(0);
    output[i] = input0[i] * FACTOR + OFFSET;
}
"""
# Reads and writes through dims, pitches and offsets only, as the original's guide shows.
PITCHES_CL = """
__kernel void through_pitches(__global OUTPUT0_TYPE* out, const __global INPUT0_TYPE* in)
{
    const int x = get_global_id(0), y = get_global_id(1);
    for (int b = 0; b < OUTPUT0_DIMS[0]; ++b)
        for (int f = 0; f < OUTPUT0_DIMS[1]; ++f) {
            const int from = INPUT0_OFFSET + b * INPUT0_PITCHES[0] + f * INPUT0_PITCHES[1]
                           + y * INPUT0_PITCHES[2] + x * INPUT0_PITCHES[3];
            const int to = OUTPUT0_OFFSET + b * OUTPUT0_PITCHES[0] + f * OUTPUT0_PITCHES[1]
                         + y * OUTPUT0_PITCHES[2] + x * OUTPUT0_PITCHES[3];
            out[to] = in[from] * 2 + x + 100 * y;
        }
}
"""
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


def layer(
    name="ReLU", kernel="scale", source="scale.cl", defines="", tensors=None, sizes=None
) -> str:
    tensors = tensors or (
        '<Tensor arg-index="0" type="input" port-index="0" format="BFYX"/>'
        '<Tensor arg-index="1" type="output" port-index="0" format="BFYX"/>'
    )
    sizes = '<WorkSizes global="B*F*Y*X"/>' if sizes is None else sizes
    return f"""
<CustomLayer name="{name}" type="SimpleGPU" version="1">
  <Kernel entry="{kernel}"><Source filename="{source}"/>{defines}</Kernel>
  <Buffers>{tensors}</Buffers>
  <CompilerOptions options="-cl-mad-enable"/>
  {sizes}
</CustomLayer>"""


DEFINES = '<Define name="FACTOR" default="3"/><Define name="OFFSET" type="float" default="0.5f"/>'


@pytest.fixture
def files(tmp_path):
    (tmp_path / "scale.cl").write_text(SCALE_CL)
    (tmp_path / "pitches.cl").write_text(PITCHES_CL)
    (tmp_path / "good.xml").write_text(layer(defines=DEFINES))
    return tmp_path


@pytest.fixture
def core(opencl):
    with Core() as core:
        yield core


def relu() -> bytes:
    return build([("Relu", ["x"], ["y"], {})], {"x": [2, 3, 5, 7]}, ["y"], {})


def run(core, files, model=None, config=None, name="good.xml", inputs=None):
    network = core.read_network(model or relu())
    given = {"CONFIG_FILE": str(files / name), **(config or {})}
    executable = core.load_network(network, "GPU", given)
    return next(iter(executable.infer(inputs or X).values()))


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


def test_source_that_does_not_compile_shows_the_compilers_words(core, files) -> None:
    (files / "scale.cl").write_text(SCALE_CL.replace("FACTOR", "NO_SUCH_THING"))
    with pytest.raises(KernelBuildError, match="NO_SUCH_THING"):
        run(core, files)


def test_counters_show_the_type_of_the_operation(core, files) -> None:
    config = {"CONFIG_FILE": str(files / "good.xml"), "PERF_COUNT": "YES"}
    executable = core.load_network(core.read_network(relu()), "GPU", config)
    request = executable.create_infer_request()
    request.infer(X)
    row = request.get_perf_counts()["y"]
    assert row["layer_type"] == "ReLU" and row["exec_type"] == "custom"


BAD = {
    "no XML": ("<CustomLayer", "no valid XML", 1),
    "other root": ("<Layer/>", "Layer instead of CustomLayer", 1),
    "entity": ('<!DOCTYPE a [<!ENTITY b "c">]><CustomLayer/>', "", 1),
    "no name": (layer().replace('name="ReLU"', ""), "attribute name", 2),
    "type": (layer().replace("SimpleGPU", "MultiGPU"), "legal: SimpleGPU", 2),
    "version": (layer().replace('version="1"', 'version="2"'), "version='2'; legal: 1", 2),
    "no kernel": (re.sub("<Kernel.*</Kernel>", "", layer()), "needs one Kernel", 2),
    "no buffers": (re.sub("<Buffers.*</Buffers>", "", layer()), "needs one Buffers", 2),
    "no entry": (layer().replace('entry="scale"', ""), "attribute entry", 3),
    "no source": (re.sub("<Source[^>]*>", "", layer()), "needs a Source", 3),
    "lost source": (layer(source="lost.cl"), "lost.cl' cannot be read", 3),
    "define": (layer(defines='<Define name="A B"/>'), "no name in OpenCL C", 3),
    "format": (layer().replace("BFYX", "BXYF"), "legal: BFYX, BYXF, FYXB, YXFB, ANY", 4),
    "mixed case": (layer().replace('format="BFYX"', 'format="Bfyx"'), "legal: BFYX", 4),
    "kind": (layer().replace('"output"', '"both"'), "legal: input, output", 4),
    "no index": (layer().replace('arg-index="1"', ""), "attribute arg-index", 4),
    "gap": (layer().replace('arg-index="1"', 'arg-index="2"'), "needed are 0, 1", 4),
    "negative": (layer().replace('port-index="0"', 'port-index="-1"'), "0 or more", 4),
    "data": (layer(tensors='<Data arg-index="0" name="w"/>'), "Data buffers are not possible", 4),
    "sizes": (layer(sizes='<WorkSizes global="B*Q"/>'), "'Q' is neither", 6),
    "parenthesis": (layer(sizes='<WorkSizes global="(B"/>'), "not closed", 6),
    "zero": (layer(sizes='<WorkSizes global="B/0"/>'), "division by zero", 6),
    "dim": (layer(sizes='<WorkSizes global="B" dim="both"/>'), "legal: output, input", 6),
    "many": (layer(sizes='<WorkSizes global="B,F,Y,X"/>'), "at most 3", 6),
}


@pytest.mark.parametrize(("text", "reason", "line"), BAD.values(), ids=BAD)
def test_broken_file_says_where_and_changes_nothing(core, files, text, reason, line) -> None:
    core.set_config({"CONFIG_FILE": str(files / "good.xml")}, "GPU")
    (files / "bad.xml").write_text(text)
    both = f"{files / 'good.xml'} {files / 'bad.xml'}"
    with pytest.raises(OptionValueError) as caught:
        core.set_config({"CONFIG_FILE": both, "PERF_COUNT": "YES"}, "GPU")
    assert f"bad.xml, line {line}: " in str(caught.value)
    assert reason in str(caught.value)
    assert core.get_config("GPU", "CONFIG_FILE") == str(files / "good.xml")
    assert core.get_config("GPU", "PERF_COUNT") == "NO"


def test_file_that_vanishes_after_it_was_set(core, files) -> None:
    """Whatever needs it then says which key and file, and other keys stay as they were."""
    core.set_config({"CONFIG_FILE": str(files / "good.xml")}, "GPU")
    (files / "good.xml").unlink()
    with pytest.raises(OptionValueError, match=r"CONFIG_FILE=.*good.xml' cannot be read"):
        core.load_network(core.read_network(relu()), "GPU")
    with pytest.raises(OptionValueError, match=r"CONFIG_FILE=.*good.xml' cannot be read"):
        core.set_config({"PERF_COUNT": "YES"}, "GPU")
    core.set_config({"CONFIG_FILE": ""}, "GPU")
    core.load_network(core.read_network(relu()), "GPU")


def test_missing_file(core, files) -> None:
    with pytest.raises(OptionValueError, match=r"lost.xml' cannot be read: No such file"):
        core.set_config({"CONFIG_FILE": str(files / "lost.xml")}, "GPU")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (('port-index="0" format', 'port-index="3" format', 1), "there is no input 3"),
        (('<WorkSizes global="B*F*Y*X"/>', '<WorkSizes global="B-2"/>', 1), "1 or more"),
        (('<WorkSizes global="B*F*Y*X"/>', '<WorkSizes global="X" local="2"/>', 1), "multiples"),
        (
            ('<WorkSizes global="B*F*Y*X"/>', '<WorkSizes global="X" dim="input,1"/>', 1),
            "no input 1",
        ),
    ],
)
def test_what_does_not_fit_the_operation_is_said_when_loading(core, files, change, reason) -> None:
    (files / "good.xml").write_text(layer(defines=DEFINES).replace(*change))
    with pytest.raises(OptionValueError, match=reason):
        run(core, files)


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        ("B*F*Y*X", 210),
        ("b + f * y", 17),
        ("(B + F) * Y", 25),
        ("X / 2 * 2", 6),
        ("X - Y - 1", 1),
        ("100 / 7 / 2", 7),
        ("((X+15)/16)*16", 16),
        ("X % 4 + 1", 4),
        (" 7 ", 7),
    ],
)
def test_formula(formula, value) -> None:
    assert calculate(formula, SIZES) == value


@pytest.mark.parametrize(
    "formula",
    ["", " ", "+", "B F", "2B", "B(", ")", "(B", "B)", "-B", "B--F", "B**2", "Z", "BF", "1.5",
     "B//F", "B % 0", "__import__('os')", "(" * 1000 + "B"],
)  # fmt: skip
def test_formula_that_is_none(formula) -> None:
    with pytest.raises(ValueError, match="formula"):
        calculate(formula, ONE)


@given(st.recursive(
    st.sampled_from(["B", "F", "y", "x", "1", "16"]),
    lambda inner: st.tuples(inner, st.sampled_from("+*-"), inner).map(lambda t: f"({' '.join(t)})"),
    max_leaves=20,
))  # fmt: skip
def test_formula_agrees_with_python(formula) -> None:
    assert calculate(formula, SIZES) == eval(formula.upper(), {}, SIZES)


# -- types that nothing else knows -----------------------------------------------------------------

BLEND_CL = """
__kernel void blend(const __global INPUT0_TYPE* a, const __global INPUT1_TYPE* b,
                    __global OUTPUT0_TYPE* out)
{
    const int i = get_global_id(0);
    out[i] = a[i] * WEIGHT + b[i % (INPUT1_DIMS[2] * INPUT1_DIMS[3])] + OFFSETS[i % 2];
}
"""

BLEND = layer(
    name="Blend", kernel="blend", source="blend.cl", sizes="",
    defines='<Define name="WEIGHT" type="float" param="weight" default="9"/>'
    '<Define name="OFFSETS" type="float[]" param="offsets" default="0,0"/>',
    tensors='<Tensor arg-index="0" type="input" port-index="0" format="BFYX"/>'
    '<Tensor arg-index="1" type="input" port-index="1" format="BFYX"/>'
    '<Tensor arg-index="2" type="output" port-index="0" format="BFYX"/>',
)  # fmt: skip


def blended(version: str, sizes=(2, 3, 5, 7), net: int = 11) -> bytes:
    """x → ReLU → Blend with a second input → Abs."""
    big = "".join(f"<dim>{n}</dim>" for n in sizes)
    small = "<dim>1</dim><dim>1</dim><dim>5</dim><dim>7</dim>"

    def port(number: int, dims: str) -> str:
        return f'<port id="{number}" precision="FP32">{dims}</port>'

    def parameter(number: int, name: str, shape: str, dims: str) -> str:
        return (
            f'<layer id="{number}" name="{name}" type="Parameter" version="opset1">'
            f'<data element_type="f32" shape="{shape}"/><output>{port(0, dims)}</output></layer>'
        )

    return f"""<net name="blended" version="{net}"><layers>
      {parameter(0, "x", ",".join(map(str, sizes)), big)}{parameter(1, "y", "1,1,5,7", small)}
      <layer id="2" name="relu" type="ReLU" version="opset1"><input>{port(0, big)}</input>
        <output>{port(1, big)}</output></layer>
      <layer id="3" name="blend" type="Blend" version="{version}">
        <data weight="0.5" offsets="1, -2"/>
        <input>{port(0, big)}{port(1, small)}</input><output>{port(2, big)}</output></layer>
      <layer id="4" name="abs" type="Abs" version="opset1"><input>{port(0, big)}</input>
        <output>{port(1, big)}</output></layer>
      <layer id="5" name="out" type="Result" version="opset1"><input>{port(0, big)}</input></layer>
    </layers><edges>
      <edge from-layer="0" from-port="0" to-layer="2" to-port="0"/>
      <edge from-layer="2" from-port="1" to-layer="3" to-port="0"/>
      <edge from-layer="1" from-port="0" to-layer="3" to-port="1"/>
      <edge from-layer="3" from-port="2" to-layer="4" to-port="0"/>
      <edge from-layer="4" from-port="1" to-layer="5" to-port="0"/>
    </edges></net>""".encode()


Y = np.random.default_rng(2).integers(-40, 40, (1, 1, 5, 7)).astype(np.float32) / 8


def by_hand() -> np.ndarray:
    offsets = np.resize(np.array([1, -2], np.float32), X["x"].shape)
    return np.abs(np.maximum(X["x"], 0) * np.float32(0.5) + Y + offsets)


@pytest.mark.parametrize(("version", "net"), [("opset1", 10), ("extension", 10), ("mine", 11)])
def test_types_that_only_the_file_knows(core, files, version, net) -> None:
    (files / "blend.cl").write_text(BLEND_CL)
    (files / "blend.xml").write_text(BLEND)
    config = {"CONFIG_FILE": str(files / "blend.xml")}
    network = core.read_network(blended(version, net=net))
    assert "blend" not in core.query_network(network, "GPU")
    assert "blend" in core.query_network(network, "GPU", config)
    given = {**X, "y": Y}
    with pytest.raises(UnsupportedNetworkError, match=r"Blend \(.*polydevice does not know Blend"):
        core.load_network(network, "GPU")
    executable = core.load_network(network, "GPU", config)
    np.testing.assert_array_equal(executable.infer(given)["abs"], by_hand())
    again = core.import_network(executable.export(), "GPU", config)
    np.testing.assert_array_equal(again.infer(given)["abs"], by_hand())


@pytest.mark.parametrize(
    "text",
    [
        "0.5f; out[0] = 7",
        "0.5f&#10;#include &quot;secret&quot;",
        "(out[0] = 7)",
        "1 // none",
        "a\\",
    ],
)
def test_attributes_of_a_model_cannot_bring_code(core, files, text) -> None:
    (files / "blend.cl").write_text(BLEND_CL)
    (files / "blend.xml").write_text(BLEND)
    model = blended("mine").replace(b'weight="0.5"', f'weight="{text}"'.encode())
    with pytest.raises(ModelFormatError, match=r"blend.*attribute weight=.*macro WEIGHT"):
        core.load_network(
            core.read_network(model), "GPU", {"CONFIG_FILE": str(files / "blend.xml")}
        )


def test_unknown_types_run_on_the_gpu_of_several_devices(core, files) -> None:
    (files / "blend.cl").write_text(BLEND_CL)
    (files / "blend.xml").write_text(BLEND)
    core.set_config({"CONFIG_FILE": str(files / "blend.xml")}, "GPU")
    network = core.read_network(blended("mine"))
    for name in ("x", "y", "relu", "abs", "out"):
        network.node(name).rt_info["affinity"] = "CPU"
    network.node("blend").rt_info["affinity"] = "GPU"
    answer = core.load_network(network, "HETERO:GPU,CPU").infer({**X, "y": Y})
    np.testing.assert_array_equal(answer["abs"], by_hand())


def test_unknown_types_of_dynamic_sizes_are_refused_when_loading(core, files) -> None:
    """What such a layer gives for other sizes than the file's is not known."""
    network = core.read_network(blended("mine", sizes=(-1, 3, 5, 7)))
    (files / "blend.cl").write_text(BLEND_CL)
    (files / "blend.xml").write_text(BLEND)
    with pytest.raises(UnsupportedNetworkError, match="'blend'"):
        core.load_network(network, "GPU", {"CONFIG_FILE": str(files / "blend.xml")})
