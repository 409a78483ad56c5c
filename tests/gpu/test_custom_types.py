"""CONFIG_FILE: types of operations that only the user's file knows."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.errors import ModelFormatError, UnsupportedNetworkError
from tests.gpu.custom import X, layer, write_files


@pytest.fixture
def files(tmp_path):
    return write_files(tmp_path)


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
