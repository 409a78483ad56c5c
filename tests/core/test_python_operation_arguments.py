"""`polydevice.operation`: attributes of functions, and inputs that have defaults."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import polydevice
from polydevice import Core, opset
from polydevice.errors import NetworkError, PolydeviceError, UnsupportedOperationError
from polydevice.testing import check
from tests.core.python_operation_models import DOMAIN, onnx_model


@polydevice.operation("Tagged", domain=DOMAIN, shapes=lambda *x, **_: [])
def tagged(
    x, y=None, *, tags: tuple[str, ...], count: int = 1, scale: float = 1.0, on: bool = True
):
    """Return one number."""
    return (x.sum() + (0 if y is None else y.sum()) + len(tags)) * count * scale * on


@polydevice.operation("Affine", domain=DOMAIN, shapes=lambda x, scale=None, shift=None, **_: x)
def affine(x, scale=2, shift=None, *, power: int = 1):
    """Tell which inputs are there: a scale of 2 is the function's own."""
    return (x * scale + (100 if shift is None else shift)) ** power


@pytest.mark.parametrize("power", [1, 2])
def test_an_input_left_out_before_others(device: str, power: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(power)
    x, b = rng.standard_normal((2, 3)).astype("f4"), rng.standard_normal((1, 3)).astype("f4")
    node = helper.make_node("Affine", ["x", "", "b"], ["y"], domain=DOMAIN, power=power)
    ends = {"x": [2, 3], "b": [1, 3]}
    graph = helper.make_graph(
        [node, helper.make_node("Relu", ["y"], ["z"])],
        "affine",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in ends.items()],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [2, 3])],
    )
    sets = [helper.make_opsetid(DOMAIN, 1), helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=sets).SerializeToString()
    expected = np.maximum((2 * x + b) ** power, 0)
    with Core() as core:
        read = core.read_network(model)
        read.serialize(tmp_path / "model.xml")
        a, c = opset.parameter([2, 3], name="x"), opset.parameter([1, 3], name="b")
        made = opset.relu(opset.affine(a, None, c, power=power))
        for network in (
            read,
            core.read_network(tmp_path / "model.xml"),
            opset.network("n", [made]),
        ):
            loaded = core.load_network(network, device)
            (answer,) = loaded.infer({"x": x, "b": b}).values()
            np.testing.assert_allclose(answer, expected, rtol=1e-5)
        text = (tmp_path / "model.xml").read_text()
        for places in ("0", "1,1", "2", "7"):
            (tmp_path / "model.xml").write_text(
                text.replace('left_out="1"', f'left_out="{places}"')
            )
            with pytest.raises(PolydeviceError, match=r"Affine.*left out"):
                core.read_network(tmp_path / "model.xml")
    with pytest.raises(NetworkError, match=r"inputs \[0\] cannot be left out"):
        opset.affine(None, a)
    with pytest.raises(NetworkError, match=r"Tagged: inputs \[0\] cannot be left out before"):
        tagged.make(tags=["a"]).for_inputs([None, a])


@pytest.mark.parametrize("seed", [0, 1])
def test_attributes_of_each_kind_and_inputs_that_are_left_out(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, w = rng.standard_normal((2, 3)).astype("f4"), rng.standard_normal((1, 3)).astype("f4")
    check(tagged, tags=["a, b", " "], count=3, scale=2, on=True, tolerance=1e-4)
    model = onnx_model("Tagged", {"x": [2, 3], "w": [1, 3]}, tags=["a"], count=2, scale=3, on=1)
    with Core() as core:
        network = core.read_network(model)
        answer = core.load_network(network, "CPU").infer({"x": x, "w": w})["z"]
        assert answer.shape == ()
        np.testing.assert_allclose(answer, 12 * (np.maximum(x, 0).sum() + w.sum() + 1), rtol=1e-5)
    assert tagged.op(tags=("a", "b")).to_ir()["tags"] == "a,b"
    plain = tagged.make(tags=["a"], scale=np.float64(2), count=np.int64(3))
    assert [type(plain.attributes()[name]) for name in ("scale", "count")] == [float, int]
    assert plain.to_ir()["scale"] == "2.0"
    assert pickle.loads(pickle.dumps(plain)).attributes() == plain.attributes()
    for unwritable in (("a,b",), ("",), (" a",)):
        with pytest.raises(UnsupportedOperationError, match="IR files cannot hold tags="):
            tagged.op(tags=unwritable).to_ir()
    for said, wrong in {
        r"tags=3 is not legal": {"tags": 3},
        r"count=2\.5 is not legal: its type is int": {"tags": ["a"], "count": 2.5},
        r"scale='x' is not legal": {"tags": ["a"], "scale": "x"},
        r"has no attribute 'tag'.*tags": {"tag": ["a"]},
    }.items():
        with Core() as core, pytest.raises(NetworkError, match=said):
            core.read_network(onnx_model("Tagged", {"x": [2, 3], "w": [1, 3]}, **wrong))
        with pytest.raises(NetworkError, match=said):
            check(tagged, **wrong)
    with pytest.raises(NetworkError, match="Tagged needs the attribute tags"):
        check(tagged)


def test_a_default_may_be_none() -> None:
    @polydevice.operation("Topped", domain=DOMAIN)
    def topped(x, *, top: float = None):  # noqa: RUF013 - as many write it
        return x if top is None else np.minimum(x, np.float32(top))

    @polydevice.operation("ToppedOrNot", domain=DOMAIN)
    def topped_or_not(x, *, top: float | None = None):
        return topped(x, top=top)

    assert "top" not in topped_or_not.make().to_ir()
    assert topped_or_not.make(top=1).to_ir()["top"] == topped.make(top=1).to_ir()["top"]
    assert "top" not in topped.make().to_ir()
    x = np.float32([1, 2])
    for attributes, answer in (({}, [2, 4]), ({"top": 1}, [2, 2])):
        with Core() as core:
            network = core.read_network(onnx_model("Topped", {"x": [2]}, **attributes))
            np.testing.assert_array_equal(core.load_network(network, "CPU").infer(x)["z"], answer)


def test_texts_that_xml_changes_are_not_saved(tmp_path: Path) -> None:
    with Core() as core:
        model = onnx_model(
            "Tagged", {"x": [2, 3], "w": [1, 3]}, tags=["a\x01"], count=2, scale=3, on=1
        )
        network = core.read_network(model)
        with pytest.raises(UnsupportedOperationError, match="XML has no character"):
            network.serialize(tmp_path / "a.xml")
