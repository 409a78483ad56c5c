"""Small odd cases for every operation that has GPU kernels; the answers are OpenVINO's.

Sizes are chosen to miss every tile, vector and work-group: primes, one more, one less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from onnx import helper

from polydevice.dtype import Array, ElementType
from polydevice.ops import (
    activation,
    arithmetic,
    color,
    convolution,
    interpolate,
    matmul,
    normalization,
    pooling,
    quantize,
    reduce,
    select,
)
from polydevice.ops.attention import ScaledDotProductAttention
from polydevice.ops.concat import Concat
from polydevice.ops.embedding import EmptySegment, SegmentMax
from polydevice.ops.gather import Gather, GatherElements, GatherND, GatherTree
from polydevice.ops.linear_algebra import Det, Inverse
from polydevice.ops.op import Op
from polydevice.ops.pad import Pad, PadMode
from polydevice.ops.patches import Col2Im
from polydevice.ops.recurrent import (
    Direction,
    GRUSequence,
    LSTMSequence,
    RNNSequence,
    SequenceOf,
)
from polydevice.ops.roi import (
    AlignedMode,
    DeformablePSROIPooling,
    PSROIPooling,
    ROIAlign,
    ROIAlignRotated,
    RoiMode,
    ROIPooling,
)
from polydevice.ops.scatter import ScatterElementsUpdate, ScatterNDUpdate, ScatterUpdate
from polydevice.ops.softmax import LogSoftmax, SoftMax
from polydevice.ops.topk import TopK, TopKMode, TopKSort
from polydevice.testing.op_case import OpCase
from polydevice.window import PadType, RoundingType
from polydevice_gpu.ops import Fused, RecurrentSteps, Resample
from tests.onnx.models import model, onnxruntime_outputs, tensor, value
from tests.ops.openvino_oracle import openvino_case

_random = np.random.default_rng(2021)


def floats(*shape: int, dtype: str = "f4") -> Array:
    """Return numbers around 0, the same in every run of the tests."""
    return np.asarray(_random.standard_normal(shape).astype(dtype))


def ints(*values: int) -> Array:
    """Return an i64 list."""
    return np.array(values, np.int64)


def _convolutions(dtype: str) -> Iterator[OpCase]:
    def conv(x: Array, w: Array, **settings: object) -> OpCase:
        rank = x.ndim - 2
        defaults = {"strides": (1,) * rank, "dilations": (1,) * rank, "pads_begin": (0,) * rank}
        attributes = {**defaults, "pads_end": (0,) * rank, **settings}
        grouped = w.ndim == x.ndim + 1
        kind = convolution.GroupConvolution if grouped else convolution.Convolution
        return openvino_case(kind(**attributes), x, w, constants={1})

    def data(*shape: int) -> Array:
        return floats(*shape, dtype=dtype)

    yield conv(data(2, 3, 9, 11), data(5, 3, 3, 3), pads_begin=(1, 1), pads_end=(1, 1))
    yield conv(data(1, 19, 8, 7), data(33, 19, 1, 1))
    yield conv(data(1, 16, 13, 10), data(24, 16, 3, 5), strides=(2, 3), dilations=(2, 1),
               pads_begin=(2, 1), pads_end=(1, 3))  # fmt: skip
    yield conv(data(3, 8, 5, 5), data(7, 8, 5, 5), auto_pad=PadType.SAME_UPPER)
    yield conv(data(2, 9, 17), data(12, 9, 4), strides=(2,), pads_begin=(1,), pads_end=(2,))
    yield conv(data(1, 4, 5, 6, 7), data(6, 4, 2, 3, 3), pads_begin=(0, 1, 1), pads_end=(1, 1, 0))
    yield conv(data(2, 12, 9, 7), data(12, 1, 1, 3, 3), pads_begin=(1, 1), pads_end=(1, 1))
    yield conv(data(1, 32, 15, 15), data(32, 1, 1, 5, 5), strides=(2, 2), pads_begin=(2, 2),
               pads_end=(2, 2))  # fmt: skip
    yield conv(data(1, 12, 6, 9), data(3, 8, 4, 3, 3), pads_begin=(1, 1), pads_end=(1, 1))
    yield conv(data(1, 10, 6, 5), data(5, 3, 2, 2, 2))


def _deconvolutions(dtype: str) -> Iterator[OpCase]:
    def deconv(x: Array, w: Array, **settings: object) -> OpCase:
        rank = x.ndim - 2
        defaults = {"strides": (1,) * rank, "dilations": (1,) * rank, "pads_begin": (0,) * rank}
        attributes = {**defaults, "pads_end": (0,) * rank, **settings}
        grouped = w.ndim == x.ndim + 1
        kind = (
            convolution.GroupConvolutionBackpropData
            if grouped
            else convolution.ConvolutionBackpropData
        )
        return openvino_case(kind(**attributes), x, w, constants={1})

    def data(*shape: int) -> Array:
        return floats(*shape, dtype=dtype)

    yield deconv(data(2, 5, 6, 7), data(5, 4, 3, 3), strides=(2, 2), pads_begin=(1, 1),
                 pads_end=(1, 1), output_padding=(1, 1))  # fmt: skip
    yield deconv(data(1, 3, 5), data(3, 2, 4), strides=(3,))
    yield deconv(data(1, 4, 5, 5), data(2, 2, 3, 2, 2), strides=(2, 2))
    yield deconv(data(1, 19, 5, 9), data(19, 21, 4, 4), strides=(2, 2), pads_begin=(1, 1),
                 pads_end=(1, 1))  # fmt: skip
    yield deconv(data(1, 9, 5, 6), data(9, 8, 3, 2), strides=(2, 3), dilations=(2, 3),
                 pads_begin=(3, 0), pads_end=(0, 2))  # fmt: skip
    yield deconv(data(1, 8, 3, 4, 5), data(2, 4, 8, 2, 3, 3), strides=(1, 2, 2),
                 pads_begin=(0, 1, 2), auto_pad=PadType.EXPLICIT)  # fmt: skip
    yield deconv(data(2, 12, 5, 7), data(12, 1, 1, 5, 4), strides=(3, 2), pads_begin=(2, 1),
                 pads_end=(0, 1))  # fmt: skip
    yield deconv(data(1, 5, 7, 6), data(5, 3, 1, 1), strides=(3, 2), output_padding=(2, 1))


def _poolings(dtype: str) -> Iterator[OpCase]:
    for channels in (3, 16):
        x = floats(2, channels, 9, 12, dtype=dtype)
        window = {"kernel": (3, 2), "strides": (2, 3), "pads_begin": (1, 0), "pads_end": (1, 1)}
        yield openvino_case(pooling.MaxPool(**window), x)
        yield openvino_case(pooling.AvgPool(**window, exclude_pad=True), x)
        yield openvino_case(
            pooling.AvgPool(**window, exclude_pad=False, rounding_type=RoundingType.CEIL), x
        )
    yield openvino_case(pooling.MaxPool(kernel=(2, 2, 2)), floats(1, 4, 3, 5, 4, dtype=dtype))


def _matmuls(dtype: str) -> Iterator[OpCase]:
    def data(*shape: int) -> Array:
        return floats(*shape, dtype=dtype)

    for constants in ((), {1}):
        product = matmul.MatMul
        yield openvino_case(product(), data(7, 13), data(13, 9), constants=constants)
        turned = product(transpose_b=True)
        yield openvino_case(turned, data(2, 5, 24), data(33, 24), constants=constants)
        both = product(transpose_a=True, transpose_b=True)
        yield openvino_case(both, data(6, 17), data(5, 6), constants=constants)
        yield openvino_case(product(), data(3, 1, 4, 6), data(2, 6, 8), constants=constants)
        yield openvino_case(product(), data(6), data(6, 5), constants=constants)
        yield openvino_case(product(), data(4, 6), data(6), constants=constants)
    # More than one tile each way, and terms that are no multiple of a step.
    yield openvino_case(product(), data(2, 1, 67, 37), data(3, 37, 70))
    yield openvino_case(both, data(2, 19, 71), data(66, 19))
    yield openvino_case(product(transpose_a=True), data(3, 33, 131), data(1, 33, 5))
    yield openvino_case(turned, data(2, 1, 83), data(2, 129, 83))
    yield openvino_case(product(), data(129, 48), data(48))
    yield openvino_case(product(), data(2, 3, 70, 1), data(2, 1, 1, 131))


def _softmaxes(op: type[SoftMax]) -> Callable[[str], Iterator[OpCase]]:
    def cases(dtype: str) -> Iterator[OpCase]:
        yield openvino_case(op(axis=1), floats(3, 5, 7, dtype=dtype))
        yield openvino_case(op(axis=-1), floats(4, 131, dtype=dtype))

    return cases


def _reductions(op: type[reduce.Reduction]) -> Callable[[str], Iterator[OpCase]]:
    logical = op in (reduce.ReduceLogicalAnd, reduce.ReduceLogicalOr)

    def cases(dtype: str) -> Iterator[OpCase]:
        def data(*shape: int) -> Array:
            return _random.random(shape) > 0.2 if logical else floats(*shape, dtype=dtype)

        yield openvino_case(op(keep_dims=True), data(2, 3, 5, 7), ints(2, 3), constants={1})
        yield openvino_case(op(), data(4, 3, 5), ints(0, 2), constants={1})
        if op is not reduce.ReduceProd:
            yield openvino_case(op(), data(2, 517), ints(1), constants={1}, tolerance=(5e-3, 1e-2))

    return cases


def _normalizations(dtype: str) -> Iterator[OpCase]:
    for mode in (normalization.EpsMode.INSIDE_SQRT, normalization.EpsMode.OUTSIDE_SQRT):
        op = normalization.MVN(normalize_variance=True, eps=1e-3, eps_mode=mode)
        yield openvino_case(op, floats(2, 5, 6, 7, dtype=dtype), ints(2, 3), constants={1})
    op = normalization.MVN(
        normalize_variance=False, eps=1e-3, eps_mode=normalization.EpsMode.INSIDE_SQRT
    )
    yield openvino_case(op, floats(3, 70, dtype=dtype), ints(1), constants={1})


def _norms(dtype: str) -> Iterator[OpCase]:
    for mode in (normalization.EpsMode.ADD, normalization.EpsMode.MAX):
        op = normalization.NormalizeL2(eps=1e-2, eps_mode=mode)
        yield openvino_case(op, floats(2, 5, 4, 3, dtype=dtype), ints(1), constants={1})
        yield openvino_case(op, floats(2, 65, 3, dtype=dtype), ints(1, 2), constants={1})


def _lrn(dtype: str) -> Iterator[OpCase]:
    op = normalization.LRN(alpha=0.5, beta=0.75, bias=1.0, size=5)
    yield openvino_case(op, floats(2, 7, 4, 5, dtype=dtype), ints(1), constants={1})


def _concats(dtype: str) -> Iterator[OpCase]:
    parts = [floats(2, n, 5, 3, dtype=dtype) for n in (3, 1, 4)]
    yield openvino_case(Concat(axis=1), *parts)
    yield openvino_case(Concat(axis=-1), floats(3, 2, dtype=dtype), floats(3, 6, dtype=dtype))


def _pads(dtype: str) -> Iterator[OpCase]:
    for mode in (PadMode.CONSTANT, PadMode.EDGE, PadMode.REFLECT, PadMode.SYMMETRIC):
        yield openvino_case(
            Pad(pad_mode=mode), floats(2, 4, 5, dtype=dtype), ints(0, 2, 1), ints(1, 1, 3),
            constants={1, 2},
        )  # fmt: skip


def _gathers(dtype: str) -> Iterator[OpCase]:
    x = floats(3, 7, 4, dtype=dtype)
    yield openvino_case(Gather(), x, np.array([[6, 0], [-1, 3]]), ints(1), constants={2})
    yield openvino_case(Gather(batch_dims=1), x, np.array([[1], [5], [0]]), ints(1), constants={2})


def _gather_elements(dtype: str) -> Iterator[OpCase]:
    indices = _random.integers(0, 7, (3, 5, 4))
    yield openvino_case(GatherElements(axis=1), floats(3, 7, 4, dtype=dtype), indices)


def _gather_nd(dtype: str) -> Iterator[OpCase]:
    indices = np.array([[[0, 1]], [[2, 3]]])
    yield openvino_case(GatherND(batch_dims=0), floats(3, 7, 4, dtype=dtype), indices)
    yield openvino_case(GatherND(batch_dims=1), floats(2, 7, 4, dtype=dtype), indices)


def _resamplings(dtype: str) -> Iterator[OpCase]:
    for mode in ("nearest", "linear_onnx", "cubic"):
        op = interpolate.Interpolate(
            mode=interpolate.InterpolateMode(mode),
            shape_calculation_mode=interpolate.ShapeCalculation.SIZES,
        )
        yield openvino_case(
            op, floats(2, 3, 5, 6, dtype=dtype), ints(11, 4), ints(2, 3), constants={1, 2},
            tolerance=(2e-2, 2e-2) if dtype == "f2" else None,
        )  # fmt: skip


def _pointwise(dtype: str) -> Iterator[OpCase]:
    def data(*shape: int) -> Array:
        return floats(*shape, dtype=dtype)

    yield openvino_case(arithmetic.Add(), data(2, 5, 7), data(5, 1))
    yield openvino_case(arithmetic.Multiply(), data(3, 1, 1, 4), data(2, 5, 1))
    yield openvino_case(activation.Relu(), data(131))
    yield openvino_case(activation.Clamp(min=-0.5, max=0.7), data(3, 37))
    yield openvino_case(activation.PRelu(), data(2, 5, 3, 4), data(5))
    condition = _random.random((4, 5)) > 0.5
    yield openvino_case(select.Select(), condition, data(4, 5), data(4, 1))
    limits = [np.array([v], dtype) for v in (-1.0, 1.0, -1.0, 1.0)]
    yield openvino_case(quantize.FakeQuantize(levels=16), data(3, 19), *limits)


def _max_pool_with_indices(dtype: str) -> Iterator[OpCase]:
    op = pooling.MaxPoolWithIndices(
        kernel=(2, 3), strides=(1, 2), dilations=(1, 1), pads_begin=(0, 1), pads_end=(0, 1), axis=2
    )
    yield openvino_case(op, floats(2, 3, 5, 6, dtype=dtype))


def _adaptive(dtype: str) -> Iterator[OpCase]:
    x = floats(2, 3, 7, 8, dtype=dtype)
    yield openvino_case(pooling.AdaptiveAvgPool(), x, ints(3, 5), constants={1})


def _adaptive_max(dtype: str) -> Iterator[OpCase]:
    # OpenVINO's indices are i64, which its CPU plugin does not compute; i32 it does.
    op = pooling.AdaptiveMaxPool(index_element_type=ElementType.i32)
    yield openvino_case(op, floats(2, 3, 7, 8, dtype=dtype), ints(3, 5), constants={1})


def _scatters(dtype: str) -> Iterator[OpCase]:
    x, updates = floats(3, 7, 4, dtype=dtype), floats(3, 2, 4, dtype=dtype)
    yield openvino_case(ScatterUpdate(), x, ints(5, 0), updates, ints(1), constants={3})


def _scatter_elements(dtype: str) -> Iterator[OpCase]:
    x, updates = floats(3, 7, 4, dtype=dtype), floats(2, 3, 4, dtype=dtype)
    indices = _random.permuted(np.tile(np.arange(7), (2, 4, 1)), axis=2)[:, :, :3]
    indices = np.ascontiguousarray(indices.transpose(0, 2, 1))
    op = ScatterElementsUpdate()
    yield openvino_case(op, x, indices, updates, ints(1), constants={3})


def _scatter_nd(dtype: str) -> Iterator[OpCase]:
    x, updates = floats(3, 7, 4, dtype=dtype), floats(2, 4, dtype=dtype)
    yield openvino_case(ScatterNDUpdate(), x, np.array([[0, 6], [2, 1]]), updates)


def _topk(dtype: str) -> Iterator[OpCase]:
    def stable(mode: str, sort: str, axis: int, count: int, x: Array) -> OpCase:
        """Answer with NumPy's stable sort: OpenVINO's by index does not say which of equals."""
        op = TopK(axis=axis, mode=TopKMode(mode), sort=TopKSort(sort))
        keys = np.where(np.isnan(x), np.inf, x.astype("f8"))
        indices = np.argsort(-keys if mode == "max" else keys, axis, kind="stable")
        indices = np.take(indices, range(count), axis)
        if sort == "index":
            indices = np.sort(indices, axis)
        expected = [np.take_along_axis(x, indices, axis), indices.astype(np.int32)]
        return OpCase(op, [x, np.array(count)], lambda: expected, constants={1})

    for mode, sort in (("max", "value"), ("min", "index")):
        op = TopK(axis=1, mode=TopKMode(mode), sort=TopKSort(sort))
        yield openvino_case(op, floats(3, 11, 2, dtype=dtype), np.array(4), constants={1})
        # Many equal elements, and rows of several strips.
        yield stable(mode, sort, 0, 67, np.round(floats(1301, 2, dtype=dtype) * 4))
        yield stable(mode, sort, 1, 255, np.sort(floats(1, 2309, dtype=dtype)))
    x = np.round(floats(2, 97, dtype=dtype))
    x[1, 5::20] = np.nan
    yield stable("max", "value", 1, 97, x)


def _attentions(dtype: str) -> Iterator[OpCase]:
    attention = ScaledDotProductAttention

    def qkv(*batch: int, queries: int, keys: int, size: int, values: int = 0) -> list[Array]:
        sizes = (queries, size), (keys, size), (keys, values or size)
        return [floats(*batch, *pair, dtype=dtype) for pair in sizes]

    def case(op: Op, *inputs: Array, **settings: object) -> OpCase:
        return openvino_case(op, *inputs, tolerance=(2e-3, 2e-3) if dtype == "f2" else None)

    yield case(attention(), *qkv(2, 3, queries=9, keys=7, size=5))
    yield case(attention(causal=True), *qkv(3, queries=37, keys=37, size=19))
    inputs = qkv(1, 2, queries=1, keys=131, size=17)
    yield case(attention(), *inputs, floats(1, 1, 1, 131, dtype=dtype))
    inputs = qkv(2, 1, queries=5, keys=67, size=64)
    seen = _random.random((2, 1, 5, 67)) < 0.6
    seen[..., 0] = True
    yield case(attention(), *inputs, seen)
    scale = np.array(0.3, dtype)
    mask = floats(11, 1, dtype=dtype)
    yield case(attention(), *qkv(1, 1, queries=11, keys=70, size=33), mask, scale)
    # Keys enough to be cut into parts.
    sink = floats(1, 2, 1, 1, dtype=dtype)
    inputs = qkv(1, 2, queries=3, keys=1201, size=8)
    zero = np.zeros((1, 1), dtype)
    yield case(attention(), *inputs, zero, scale, sink)


def _col2im(dtype: str) -> Iterator[OpCase]:
    plain = {"strides": (1, 1), "dilations": (1, 1), "pads_begin": (0, 0), "pads_end": (0, 0)}
    for size, window, batch, settings in (
        ((5, 7), (2, 3), (2,), {}),
        ((7, 6), (3, 2), (), {"strides": (2, 2), "pads_begin": (1, 0), "pads_end": (1, 2)}),
        ((8, 9), (2, 3), (3,), {"dilations": (2, 3)}),
    ):
        op = Col2Im(**{**plain, **settings})
        places = int(np.prod(op.places(size, window)))
        x = floats(*batch, 3 * int(np.prod(window)), places, dtype=dtype)
        yield openvino_case(op, x, ints(*size), ints(*window), constants={1, 2})


def _matrices(dtype: str) -> Array:
    """Return well-conditioned matrices whose first pivot is not the largest element."""
    x = floats(3, 2, 5, 5, dtype=dtype) + 3 * np.roll(np.eye(5, dtype=dtype), 1, 0)
    return np.asarray(x.astype(dtype))


def _dets(dtype: str) -> Iterator[OpCase]:
    x = _matrices(dtype)
    answer = np.linalg.det(x.astype("f8")).astype(dtype)
    yield OpCase(Det(), [x], lambda: [answer], tolerance=(1e-2, 1e-2) if dtype == "f2" else None)


def _inverses(dtype: str) -> Iterator[OpCase]:
    for adjoint in (False, True):
        x = _matrices(dtype)
        answer = np.linalg.inv(x.astype("f8")).astype(dtype)
        expected = answer.swapaxes(-1, -2) if adjoint else answer
        yield OpCase(
            Inverse(adjoint=adjoint), [x], lambda expected=expected: [expected],
            tolerance=(2e-2, 2e-2) if dtype == "f2" else (1e-3, 1e-4),
        )  # fmt: skip


def _segments(dtype: str) -> Iterator[OpCase]:
    x, segments = floats(7, 3, dtype=dtype) - 5, np.array([0, 0, 2, 2, 2, 4, 4], np.int32)
    for fill, count in ((EmptySegment.ZERO, 6), (EmptySegment.LOWEST, 3)):
        if fill is EmptySegment.LOWEST and dtype == "f2":
            continue  # OpenVINO computes in f32, whose lowest number is -inf in f16
        op = SegmentMax(fill_mode=fill)
        yield openvino_case(op, x, segments, np.array(count, np.int32), constants={2})


def _trees(dtype: str) -> Iterator[OpCase]:
    if dtype == "f4":
        for kind in ("f4", "i4"):
            ids = _random.integers(1, 9, (7, 3, 5)).astype(kind)
            parents = _random.integers(0, 5, (7, 3, 5)).astype(kind)
            lengths, end = np.array([7, 4, 1], kind), np.array(3, kind)
            yield openvino_case(GatherTree(), ids, parents, lengths, end)


def _colors(op: type[Op]) -> Callable[[str], Iterator[OpCase]]:
    def cases(dtype: str) -> Iterator[OpCase]:
        if dtype == "f4":
            image = _random.uniform(0, 255, (2, 9, 8, 1)).astype(dtype)
            yield openvino_case(op(), image, tolerance=(1e-3, 1e-2))

    return cases


def _regions(dtype: str, *image: float) -> Array:
    """Return regions of a 9 by 11 map, the second partly outside it."""
    boxes = np.array([[1, 2, 7.5, 6], [-3, 4, 5, 12], [4, 4, 4.5, 5]], dtype)
    return np.concatenate([np.array(image, dtype).reshape(-1, 1), boxes], axis=1)


def _roi_align(dtype: str) -> Iterator[OpCase]:
    boxes, images = _regions(dtype, 0, 1, 0)[:, 1:], np.array([0, 1, 0], np.int32)
    for mode, ratio in ((RoiMode.AVG, 2), (RoiMode.AVG, 0), (RoiMode.MAX, 3)):
        op = ROIAlign(
            pooled_h=3, pooled_w=2, sampling_ratio=ratio, spatial_scale=0.5, mode=mode,
            aligned_mode=AlignedMode.HALF_PIXEL_FOR_NN,
        )  # fmt: skip
        yield openvino_case(op, floats(2, 3, 9, 11, dtype=dtype), boxes, images)


def _roi_pooling(dtype: str) -> Iterator[OpCase]:
    x = floats(2, 3, 9, 11, dtype=dtype)
    op = ROIPooling(pooled_h=3, pooled_w=2, spatial_scale=0.5)
    yield openvino_case(op, x, np.abs(_regions(dtype, 0, 1, 0)))
    boxes = np.array([[0, 0, 0.25, 0.75, 1], [1, 0.5, 0.5, 1, 1]], dtype)
    yield openvino_case(op.replace(method="bilinear", spatial_scale=1.0), x, boxes)


def _ps_roi_pooling(dtype: str) -> Iterator[OpCase]:
    x = floats(2, 18, 9, 11, dtype=dtype)
    op = PSROIPooling(output_dim=2, spatial_scale=0.5, group_size=3)
    yield openvino_case(op, x, np.abs(_regions(dtype, 0, 1, 0)))


def _deformable(dtype: str) -> Iterator[OpCase]:
    x = floats(2, 18, 9, 11, dtype=dtype)
    op = DeformablePSROIPooling(
        output_dim=2, spatial_scale=0.5, group_size=3, mode="bilinear_deformable",
        spatial_bins_x=2, spatial_bins_y=3, trans_std=0.1, part_size=3,
    )  # fmt: skip
    rois = np.abs(_regions(dtype, 0, 1, 0))
    yield openvino_case(op, x, rois)
    yield openvino_case(op, x, rois, floats(3, 2, 3, 3, dtype=dtype))


def _rotated(dtype: str) -> Iterator[OpCase]:
    sizes = _random.uniform((4, 4, 2, 2, -3), (16, 16, 12, 12, 3), (5, 5)).astype(dtype)
    for ratio, clockwise in ((0, True), (2, False)):
        op = ROIAlignRotated(
            pooled_h=2, pooled_w=3, sampling_ratio=ratio, spatial_scale=0.5,
            clockwise_mode=clockwise,
        )  # fmt: skip
        yield openvino_case(op, floats(2, 3, 9, 11, dtype=dtype), sizes, np.int32([0, 1, 0, 1, 1]))


def sequence_inputs(
    op: SequenceOf, batch: int, steps: int, size: int, lengths: list[int] | None = None,
    dtype: str = "f4",
) -> list[Array]:  # fmt: skip
    """Return inputs of a recurrent sequence; its weights are the last three."""
    count, hidden = op.direction.count, op.hidden_size
    rows = op.gates * hidden
    scale = np.asarray(hidden**-0.5, dtype)
    return [
        floats(batch, steps, size, dtype=dtype),
        *(floats(batch, count, hidden, dtype=dtype) for _ in range(op.states)),
        np.array([steps] * batch if lengths is None else lengths, np.int32),
        floats(count, rows, size, dtype=dtype) * scale,
        floats(count, rows, hidden, dtype=dtype) * scale,
        floats(count, op.bias_gates * hidden, dtype=dtype),
    ]


def _recurrents(dtype: str) -> Iterator[OpCase]:
    def case(op: SequenceOf, *sizes: int, lengths: list[int] | None = None) -> OpCase:
        inputs = sequence_inputs(op, *sizes, lengths=lengths, dtype=dtype)
        constants = set(range(2 + op.states, len(inputs)))
        if lengths is None:
            constants.add(1 + op.states)
        return openvino_case(op, *inputs, constants=constants)

    both, back = Direction.BIDIRECTIONAL, Direction.REVERSE
    yield case(LSTMSequence(hidden_size=19), 2, 6, 5)
    yield case(LSTMSequence(hidden_size=7, direction=both, clip=0.4), 3, 5, 4, lengths=[2, 5, 4])
    yield case(GRUSequence(hidden_size=17, direction=back), 3, 6, 5, lengths=[6, 1, 3])
    linear = GRUSequence(hidden_size=9, direction=both, linear_before_reset=True)
    yield case(linear, 2, 7, 3, lengths=[3, 7])
    yield case(RNNSequence(hidden_size=37, activations=("relu",)), 2, 5, 6)
    # Weights that are computed; the answer is that of constant ones.
    op = GRUSequence(hidden_size=11, direction=both)
    inputs = sequence_inputs(op, 2, 5, 3, dtype=dtype)
    yield OpCase(op, inputs, openvino_case(op, *inputs, constants={3, 4, 5}).expected)
    if dtype == "f4":
        yield _peepholes(Direction.FORWARD)
        yield _peepholes(both)
        yield _coupled_gates()


def _coupled_gates() -> OpCase:
    """The definition, step by step: with `input_forget` the input gate is 1 - the forget gate."""
    op = LSTMSequence(hidden_size=6, input_forget=True)
    inputs = sequence_inputs(op, 2, 5, 4)
    x, h, c, _, w, r, b = (v.astype("f8") for v in inputs)
    h, c, y = h[:, 0], c[:, 0], []
    for t in range(5):
        f, _, g, o = np.split(x[:, t] @ w[0].T + h @ r[0].T + b[0], 4, axis=1)
        f, o = 1 / (1 + np.exp(-f)), 1 / (1 + np.exp(-o))
        c = f * c + (1 - f) * np.tanh(g)
        h = o * np.tanh(c)
        y.append(h)
    answer = [np.stack(y, 1)[:, np.newaxis], h[:, np.newaxis], c[:, np.newaxis]]
    expected = [np.asarray(v, "f4") for v in answer]
    return OpCase(op, inputs, lambda: expected, constants={3, 4, 5, 6})


def _peepholes(direction: Direction) -> OpCase:
    """An LSTM with what only ONNX has, its gates in ONNX's order; ONNX Runtime answers."""
    op = LSTMSequence(hidden_size=13, direction=direction, weights_format="iofc")
    x, h, c, lengths, w, r, b = sequence_inputs(op, 3, 6, 4, lengths=[6, 2, 5])
    p = floats(direction.count, 3 * op.hidden_size)
    stored = {
        "w": w, "r": r, "b": np.concatenate([b, np.zeros_like(b)], 1), "lengths": lengths,
        "h": h.swapaxes(0, 1), "c": c.swapaxes(0, 1), "p": p,
    }  # fmt: skip
    node = helper.make_node(
        "LSTM", ["x", *stored], ["y", "last", "cell"], hidden_size=op.hidden_size,
        direction=direction.value,
    )  # fmt: skip
    proto = model(
        [node],
        [value("x", (6, 3, 4))],
        [value(name, None) for name in node.output],
        initializers=[tensor(name, array) for name, array in stored.items()],
        opset=14,
    )

    def expected() -> list[Array]:
        y, last, cell = onnxruntime_outputs(proto, x.swapaxes(0, 1))
        return [y.transpose(2, 1, 0, 3), last.swapaxes(0, 1), cell.swapaxes(0, 1)]

    return OpCase(op, [x, h, c, lengths, w, r, b, p], expected, constants={4, 5, 6, 7})


CASES: dict[type[Op], Callable[[str], Iterator[OpCase]]] = {
    convolution.Convolution: _convolutions,
    convolution.GroupConvolution: _convolutions,
    convolution.ConvolutionBackpropData: _deconvolutions,
    convolution.GroupConvolutionBackpropData: _deconvolutions,
    pooling.AvgPool: _poolings,
    pooling.MaxPool: _poolings,
    pooling.MaxPoolWithIndices: _max_pool_with_indices,
    pooling.AdaptiveAvgPool: _adaptive,
    pooling.AdaptiveMaxPool: _adaptive_max,
    matmul.MatMul: _matmuls,
    SoftMax: _softmaxes(SoftMax),
    LogSoftmax: _softmaxes(LogSoftmax),
    **{
        op: _reductions(op)
        for op in (
            reduce.ReduceSum, reduce.ReduceMean, reduce.ReduceProd, reduce.ReduceMax,
            reduce.ReduceMin, reduce.ReduceL1, reduce.ReduceL2, reduce.ReduceLogicalAnd,
            reduce.ReduceLogicalOr,
        )
    },
    normalization.MVN: _normalizations,
    normalization.NormalizeL2: _norms,
    normalization.LRN: _lrn,
    **{op: _colors(op) for op in (
        color.NV12toRGB, color.NV12toBGR, color.I420toRGB, color.I420toBGR,
    )},
    ScatterUpdate: _scatters,
    ScatterElementsUpdate: _scatter_elements,
    ScatterNDUpdate: _scatter_nd,
    TopK: _topk,
    Col2Im: _col2im,
    Det: _dets,
    Inverse: _inverses,
    SegmentMax: _segments,
    GatherTree: _trees,
    ScaledDotProductAttention: _attentions,
    ROIAlign: _roi_align,
    ROIPooling: _roi_pooling,
    PSROIPooling: _ps_roi_pooling,
    DeformablePSROIPooling: _deformable,
    ROIAlignRotated: _rotated,
    Concat: _concats,
    Pad: _pads,
    Gather: _gathers,
    GatherElements: _gather_elements,
    GatherND: _gather_nd,
    Resample: _resamplings,
    RecurrentSteps: _recurrents,
    Fused: _pointwise,
}  # fmt: skip
"""Operation that kernels are declared for → cases of a NumPy type ("f4", "f2")."""
