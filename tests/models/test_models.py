"""Real models give the answers of ONNX Runtime and OpenVINO, on every device, twice."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from polydevice import Core
from tests.models.fetch import Bundled
from tests.models.models import MODELS, Model
from tests.models.oracles import case

Array = npt.NDArray[np.generic]


cached_case = functools.cache(case)
FULL = pytest.mark.full


# What is fetched takes a newcomer's time and network; those in the repository are of each kind.
PARAMETERS = [
    pytest.param(each, id=each.name, marks=() if isinstance(each.file, Bundled) else FULL)
    for each in MODELS
]


@pytest.mark.parametrize("model", PARAMETERS)
def test_model(model: Model, device: str) -> None:
    given, wanted = cached_case(model)
    with Core() as core:
        network = core.read_network(model.file.get())
        for name in model.extra_outputs:
            network.add_outputs(network.name_of_tensor(name))
        request = core.load_network(network, model.on(device)).create_infer_request()
        first = [np.array(a) for a in request.infer(given).values()]
        for variable in request.query_state():
            variable.reset()
        second = [np.array(a) for a in request.infer(given).values()]

    assert len(first) == len(wanted)
    for index, (got, again, want) in enumerate(zip(first, second, wanted, strict=True)):
        what = f"{model.name} output {index} on {device}"
        assert got.shape == want.shape, what
        assert got.dtype == want.dtype, what
        assert np.array_equal(got, again), f"{what}: the second inference answers otherwise"
        close(what, got, want, model)


def close(what: str, got: Array, want: Array, model: Model) -> None:
    tolerance = model.tolerance
    allowed = tolerance.absolute + tolerance.relative * float(np.abs(want).max(initial=0))
    error = float(np.abs(got.astype(np.float64) - want.astype(np.float64)).max(initial=0))
    assert np.isfinite(got).all(), f"{what}: not finite"
    assert error <= allowed, f"{what}: off by {error:.3g}, allowed {allowed:.3g} ({tolerance.why})"


@pytest.mark.full(but_on="CPU")  # on others a sample says so in the quick tier
def test_efficientnet_sees_a_cat(device: str) -> None:
    """The README's main job, in terms of the answer: 285, 282, 281 are all cats."""
    model = MODELS[0]
    with Core() as core:
        network = core.load_network(str(model.file.get()), device)
        logits = network.infer(cached_case(model)[0])["logits"]
    assert logits[0].argsort()[::-1][:3].tolist() == [285, 282, 281]


# Batches of 1 to 3, and a text of 9 words. The others mix what is unknown of them.
PADDED = {
    "efficientnet_lite0": "5", "open_nsfw": "powers", "ppocr_cls": "0:3", "mtcnn_rnet": "powers",
    "mtcnn_onet": "powers", "blazeface": "2,4", "ppocr_det": "0:2", "ppocr_rec": "0:2",
    "basic_pitch": "3", "minilm": "0:3,8;1:powers",
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("model", [each for each in PARAMETERS if each.id in PADDED])
def test_padded_inputs(model: Model) -> None:
    """Of networks that may be padded the answers stay the same; those of one item too."""
    given, wanted = cached_case(model)
    with Core() as core:
        network = core.read_network(model.file.get())
        loaded = core.load_network(network, "CPU", {"SHAPE_BUCKETS": PADDED[model.name]})
        assert "SHAPE_BUCKETS: axis 0" in loaded.explain()
        request = loaded.create_infer_request()
        for count in (len(next(iter(given.values()))), 1):
            found = request.infer({name: array[:count] for name, array in given.items()})
            for index, (got, want) in enumerate(zip(found.values(), wanted, strict=False)):
                close(f"{model.name} output {index}, padded", got, want[:count], model)


# OpenVINO's CPU plugin refuses an If whose branches differ in rank.
NOT_BY_OPENVINO = ("silero_vad",)
# Convolutions and products; products whose scales an inference tells.
QUANTISED = ("mtcnn_onet", "minilm")


@FULL
@pytest.mark.parametrize("name", QUANTISED)
def test_a_quantised_model_that_is_written_is_the_one_that_was_read(
    name: str, tmp_path: Path
) -> None:
    """Every bit of our answers, and of OpenVINO's with its own products of integers and without."""
    openvino = pytest.importorskip("openvino", reason="its reader is to agree")
    quantise = pytest.importorskip("benchmarks.quantise", reason="ONNX Runtime quantises")
    model = next(each for each in MODELS if each.name == name)
    given = model.inputs()
    original = quantise.quantised(model.file.get(), given, tmp_path)
    written = tmp_path / "written.xml"
    modes = [{"LP_TRANSFORMS_MODE": mode} for mode in ("NO", "YES")]
    with Core() as core:
        core.read_network(original).serialize(written)
        networks = [core.read_network(path) for path in (original, written)]
        inputs = [given[node.name] for node in networks[1].parameters]
        for mode in modes:
            ours = [[*core.load_network(n, "CPU", mode).infer(given).values()] for n in networks]
            np.testing.assert_equal(ours[0], ours[1])
    for mode in modes:
        config = {"INFERENCE_PRECISION_HINT": "f32", **mode}
        theirs = [
            [*openvino.Core().compile_model(path, "CPU", config)(inputs).values()]
            for path in (original, written)
        ]
        np.testing.assert_equal(theirs[0], theirs[1])


@pytest.mark.parametrize("model", PARAMETERS)
def test_a_model_that_is_written_is_the_one_that_was_read(model: Model, tmp_path: Path) -> None:
    """The same bytes when it is written again, the same answers, and OpenVINO's."""
    given, _ = cached_case(model)
    paths = [tmp_path / "first.xml", tmp_path / "second.xml"]
    with Core() as core:
        network = core.read_network(model.file.get())
        network.serialize(paths[0])
        again = core.read_network(paths[0])
        again.serialize(paths[1])
        for suffix in (".xml", ".bin"):
            written = [path.with_suffix(suffix).read_bytes() for path in paths]
            assert written[0] == written[1]
        one, other = (
            [*core.load_network(n, "CPU").infer(given).values()] for n in (network, again)
        )
    for got, want in zip(other, one, strict=True):
        np.testing.assert_array_equal(got, want)
    if model.name not in NOT_BY_OPENVINO:
        openvino = pytest.importorskip("openvino")
        hint = {"INFERENCE_PRECISION_HINT": "f32"}
        compiled = openvino.Core().compile_model(paths[0], "CPU", hint)
        inputs = [given[node.name] for node in again.parameters]
        answers = compiled(inputs)
        for index, want in enumerate(one):
            close(f"{model.name} output {index} by OpenVINO", answers[index], want, model)
