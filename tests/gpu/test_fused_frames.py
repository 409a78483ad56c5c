"""Video frames that are converted and resized in one launch, where that is worth it."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.ops.color import NV12toBGR
from polydevice.ops.convert import Convert
from polydevice.ops.interpolate import Interpolate, InterpolateMode, ShapeCalculation
from polydevice.ops.transpose import Transpose
from tests.cpu.models import build
from tests.gpu.graphs import Sketch, SparingBuilder, compiled, loaded

rng = np.random.default_rng(63)
CONVERSIONS = {"NV12": cv2.COLOR_YUV2BGR_NV12, "I420": cv2.COLOR_YUV2BGR_I420}
PLANES = {"GPU_NV12_TWO_INPUTS": "YES"}
MEAN, SCALE = [104.0, 117.0, 123.0], [58.0, 57.0, 60.0]


def frames(batch: int, height: int, width: int) -> np.ndarray:
    """[N, H × 3/2, W, 1]: noise, the hardest to resize."""
    return rng.integers(16, 236, (batch, height * 3 // 2, width, 1), np.uint8)


def right(frame: np.ndarray, color: str, height: int, width: int) -> np.ndarray:
    """OpenCV's answer, [3, height, width], before the mean."""
    image = cv2.cvtColor(frame, CONVERSIONS[color]).astype(np.float32)
    return cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR).transpose(2, 0, 1)


def load(core, batch: int, height: int, width: int, color: str, normalised: bool = False, **config):
    nodes = [("Relu", ["image"], ["y"], {})]
    network = core.read_network(build(nodes, {"image": [batch, 3, height, width]}, ["y"], {}))
    info = network.inputs["image"]
    info.precision = "U8"
    info.preprocess.color_format = color
    info.preprocess.resize_algorithm = "RESIZE_BILINEAR"
    if normalised:
        info.preprocess.set_mean(MEAN, SCALE)
    return core.load_network(network, "GPU", {"PERF_COUNT": "YES", **config})


def kernels(request) -> set[str]:
    counts = request.get_perf_counts().values()
    return {count["exec_type"] for count in counts if count["status"] == "EXECUTED"}


@pytest.mark.parametrize("color", ["NV12", "I420"])
@pytest.mark.parametrize(
    ("size", "result", "fused"),
    [
        pytest.param((48, 64), (13, 7), True, id="smaller"),
        pytest.param((10, 22), (9, 21), True, id="hardly smaller"),
        pytest.param((2, 2), (1, 1), True, id="one pixel"),
        pytest.param((6, 8), (6, 8), False, id="same size"),  # nothing to resize
        pytest.param((10, 22), (19, 23), False, id="larger"),
    ],
)
def test_answers_are_opencvs(core, color, size, result, fused) -> None:
    given = frames(2, *size)
    request = load(core, 2, *result, color).create_infer_request()
    for _ in range(2):
        y = request.infer({"image": given})["y"]
        wanted = np.stack([right(frame, color, *result) for frame in given])
        # OpenCV rounds colours in fixed point.
        assert np.abs(y - wanted).max() <= 2
    assert ("resample_yuv_ref" in kernels(request)) is fused
    assert ("from_yuv_ref" in kernels(request)) is not fused


@pytest.mark.parametrize("batch", [1, 3])
def test_planes_of_a_batch_with_mean_and_scale(core, batch) -> None:
    given = frames(batch, 30, 26)
    parts = {}
    for item, frame in enumerate(given):
        parts[f"image_Y{item}"] = frame[None, :30]
        parts[f"image_UV{item}"] = frame[30:].reshape(1, 15, 13, 2)
    request = load(core, batch, 11, 9, "NV12", normalised=True, **PLANES).create_infer_request()
    y = request.infer(parts)["y"]
    assert "resample_yuv_ref" in kernels(request)
    wanted = np.stack([right(frame, "NV12", 11, 9) for frame in given])
    wanted = np.maximum((wanted - np.reshape(MEAN, (3, 1, 1))) / np.reshape(SCALE, (3, 1, 1)), 0)
    assert np.abs(y - wanted).max() <= 2 / min(SCALE)
    whole = load(core, batch, 11, 9, "NV12", normalised=True).infer({"image": given})["y"]
    np.testing.assert_allclose(y, whole, atol=1e-5)
    half = load(
        core, batch, 11, 9, "NV12", normalised=True, INFERENCE_PRECISION_HINT="f16", **PLANES
    )
    np.testing.assert_allclose(half.infer(parts)["y"], wanted, atol=2 / min(SCALE) + 5e-3)


def test_sizes_may_change(core) -> None:
    request = load(core, 1, 5, 5, "NV12").create_infer_request()
    for height, width in ((40, 30), (8, 64), (40, 30)):
        given = frames(1, height, width)
        y = request.infer({"image": given})["y"]
        assert np.abs(y[0] - right(given[0], "NV12", 5, 5)).max() <= 2


def network(rows: int, columns: int, mode: str = "linear_onnx", **outputs: str):
    """A frame of 12 × 16 → BGR → NCHW → f32 → resized; `outputs` names further results."""
    s = Sketch()
    values = {}
    x = s.input("x", 1, 18, 16, 1, kind=ElementType.u8)
    values["colors"] = s.add("colors", NV12toBGR(), x)
    order = s.const("order", np.array([0, 3, 1, 2]))
    values["planar"] = s.add("planar", Transpose(), values["colors"], order)
    values["real"] = s.add("real", Convert(destination_type=ElementType.f32), values["planar"])
    op = Interpolate(mode=InterpolateMode(mode), shape_calculation_mode=ShapeCalculation.SIZES)
    sizes, axes = s.const("sizes", np.array([rows, columns])), s.const("axes", np.array([2, 3]))
    y = s.add("resized", op, values["real"], sizes, axes)
    return s.network(y=y, **{name: values[value] for name, value in outputs.items()})


def operations(graph) -> list[str]:
    return [node.op.type for node in graph.nodes]


def test_one_launch_stands_for_all(opencl) -> None:
    graph = compiled(network(5, 7))
    assert operations(graph) == ["ResampleYuv"]
    assert set(graph.nodes[0].origins) == {"colors", "resized"}
    assert {name: fate.node for name, fate in graph.fates.items()} == {
        "planar": "resized",
        "real": "resized",
    }
    assert operations(compiled(network(3, 2, "nearest"))) == ["ResampleYuv"]
    assert operations(compiled(network(3, 2, "cubic"))) == ["ResampleYuv"]


@pytest.mark.parametrize("value", ["colors", "planar", "real"])
def test_what_somebody_else_reads_is_kept(opencl, value) -> None:
    net = network(5, 7, also=value)
    assert "ResampleYuv" not in operations(compiled(net))
    given = frames(1, 12, 16)
    outputs = loaded(net, opencl, SparingBuilder(opencl)).infer({"x": given})
    assert np.abs(outputs["y"][0] - right(given[0], "NV12", 5, 7)).max() <= 2


def test_pixels_are_not_converted_many_times(opencl) -> None:
    assert "ResampleYuv" not in operations(compiled(network(60, 80)))
    assert "ResampleYuv" in operations(compiled(network(11, 15)))


def test_the_executed_graph_names_it(opencl, tmp_path) -> None:
    executable = loaded(network(5, 7), opencl, SparingBuilder(opencl))
    graph = executable.get_exec_graph_info()
    (node,) = (node for node in graph if node.rt_info.get("layerType") == "ResampleYuv")
    assert node.type == "Interpolate"
    assert node.rt_info["originalLayersNames"] == "resized,colors"
    assert node.rt_info["primitiveType"] == "resample_yuv_ref"
    graph.serialize(tmp_path / "graph.xml")
    assert 'layerType="ResampleYuv"' in (tmp_path / "graph.xml").read_text()
