"""One call of many functions of the operation sets, and of the steps of preprocessing; printed."""

import numpy as np
import openvino as ov
from openvino import opset1, opset3, opset6, opset8, opset13, opset16
from openvino.preprocess import ColorFormat, PaddingMode, PrePostProcessor, ResizeAlgorithm

core = ov.Core()
core.set_property("CPU", {"INFERENCE_PRECISION_HINT": "f32"})
random = np.random.default_rng(3)
A = random.uniform(0.1, 0.9, (1, 4, 5, 6)).astype(np.float32)
B = random.uniform(0.1, 0.9, (1, 4, 5, 6)).astype(np.float32)
M = random.standard_normal((3, 6)).astype(np.float32)
K = random.standard_normal((4, 4, 3, 3)).astype(np.float32)
G = random.standard_normal((2, 2, 2, 3, 3)).astype(np.float32)
BOXES = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [2, 2, 3, 3]]], np.float32)
SCORES = np.array([[[0.9, 0.8, 0.7]]], np.float32)


def weighed(result, digits=1):
    """One number that tells whether values, and their order, are the same."""
    flat = result.reshape(-1).astype(np.float64)
    return (flat * (np.arange(flat.size) % 7 + 1)).sum().round(digits)


def show(name, call, *arrays, dtype=None):
    ports = [opset8.parameter(list(x.shape), x.dtype, name=f"p{i}") for i, x in enumerate(arrays)]
    node = call(*ports)
    model = ov.Model(node.outputs(), ports, "one")
    results = core.compile_model(model, "CPU")(list(arrays))
    for result in results.values():
        print(name, result.shape, result.dtype, weighed(result))


UNARY = [
    "abs",
    "acos",
    "asin",
    "atan",
    "ceiling",
    "ceil",
    "cos",
    "cosh",
    "erf",
    "exp",
    "floor",
    "log",
    "negative",
    "relu",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
]
for name in UNARY:
    show(name, getattr(opset8, name), A)
for name in ("acosh", "asinh", "atanh", "hswish", "softplus", "mish", "hsigmoid"):
    show(name, getattr(opset8, name), A + 1 if name == "acosh" else A)
BINARY = [
    "add",
    "subtract",
    "multiply",
    "divide",
    "maximum",
    "minimum",
    "power",
    "squared_difference",
    "mod",
    "floor_mod",
    "equal",
    "not_equal",
    "greater",
    "greater_equal",
    "less",
    "less_equal",
]
for name in BINARY:
    show(name, getattr(opset8, name), A, B)
for name in (
    "reduce_sum",
    "reduce_mean",
    "reduce_max",
    "reduce_min",
    "reduce_prod",
    "reduce_l1",
    "reduce_l2",
):
    reduce = getattr(opset8, name)
    show(name, lambda x, f=reduce: f(x, [2, 3], True), A)
    show(name, lambda x, f=reduce: f(x, reduction_axes=np.array([1])), A)
show("clamp", lambda x: opset8.clamp(x, 0.2, 0.6), A)
show("clamp", lambda x: opset8.clamp(x, min_value=0.2, max_value=0.6), A)
show("elu", lambda x: opset8.elu(x, 0.5), A - 0.5)
show("prelu", lambda x: opset8.prelu(x, np.array([0.1, 0.2, 0.3, 0.4], np.float32)), A - 0.5)
show("gelu", lambda x: opset8.gelu(x, "ERF"), A)
show("swish", opset8.swish, A)
show("softmax", lambda x: opset8.softmax(x, axis=1), A)
show("softmax", lambda x: opset1.softmax(x, 1), A)
show("log_softmax", lambda x: opset8.log_softmax(x, -1), A)
show("matmul", lambda x, y: opset8.matmul(x, y, False, True), A, M)
show(
    "matmul",
    lambda x, y: opset8.matmul(data_a=x, data_b=y, transpose_a=False, transpose_b=True),
    A,
    M,
)
show("convolution", lambda x: opset8.convolution(x, K, [1, 2], [1, 1], [1, 1], [1, 1]), A)
show(
    "convolution",
    lambda x: opset8.convolution(x, K, [1, 1], [0, 0], [0, 0], [1, 1], auto_pad="SAME_UPPER"),
    A,
)
show(
    "group_convolution", lambda x: opset8.group_convolution(x, G, [1, 1], [1, 1], [1, 1], [1, 1]), A
)
show(
    "backprop",
    lambda x: opset8.convolution_backprop_data(
        x, K, [2, 2], pads_begin=[1, 1], pads_end=[1, 1], output_padding=[1, 1]
    ),
    A,
)
show("max_pool", lambda x: opset1.max_pool(x, [2, 2], [0, 0], [0, 0], [2, 2], "floor", None), A)
show("max_pool", lambda x: opset8.max_pool(x, [2, 2], [1, 1], [0, 0], [0, 0], [2, 2]), A)
show("avg_pool", lambda x: opset8.avg_pool(x, [2, 2], [1, 1], [1, 1], [3, 3], True, "ceil"), A)
show("adaptive", lambda x: opset8.adaptive_avg_pool(x, [2, 3]), A)
show("reshape", lambda x: opset8.reshape(x, [0, -1], True), A)
show("transpose", lambda x: opset8.transpose(x, [0, 3, 1, 2]), A)
show("squeeze", lambda x: opset8.squeeze(x, [0]), A)
show("unsqueeze", lambda x: opset8.unsqueeze(x, [0, 2]), A)
show("concat", lambda x, y: opset8.concat([x, y], 1), A, B)
show("split", lambda x: opset8.split(x, 1, 2), A)
show("variadic_split", lambda x: opset8.variadic_split(x, 3, [1, 2, -1]), A)
show("gather", lambda x: opset8.gather(x, [0, 2], 1), A)
show("gather", lambda x: opset1.gather(x, np.array([1]), np.array(2)), A)
show("gather_elements", lambda x: opset8.gather_elements(x, np.ones((1, 4, 5, 2), np.int64), 3), A)
show("gather_nd", lambda x: opset8.gather_nd(x, np.array([[0, 1, 2]])), A)
show(
    "scatter_update",
    lambda x: opset8.scatter_update(
        x, np.array([1]), np.ones((1, 1, 5, 6), np.float32), np.array(1)
    ),
    A,
)
show("pad", lambda x: opset8.pad(x, [0, 0, 1, 1], [0, 0, 0, 2], "constant", np.float32(2)), A)
show("pad", lambda x: opset8.pad(x, [0, 0, 1, 1], [0, 0, 0, 2], "reflect"), A)
show(
    "strided_slice",
    lambda x: opset8.strided_slice(x, [0, 1, 0, 0], [1, 3, 5, 6], [1, 1, 2, 2], [0] * 4, [0] * 4),
    A,
)
show("slice", lambda x: opset8.slice(x, [1], [4], [2], [2]), A)
show("tile", lambda x: opset8.tile(x, [1, 2, 1, 1]), A)
show("broadcast", lambda x: opset8.broadcast(x, [2, 4, 5, 6]), A)
show("select", lambda x, y: opset8.select(opset8.greater(x, y), x, y), A, B)
show("topk", lambda x: opset8.topk(x, 2, 3, "max", "value"), A)
show("topk", lambda x: opset3.topk(x, np.array(2), 1, "min", "index", "i64"), A)
show("one_hot", lambda x: opset8.one_hot(x, 5, 1.0, 0.0, -1), np.array([1, 3]))
show("cum_sum", lambda x: opset8.cum_sum(x, np.array(2), True, True), A)
show("convert", lambda x: opset8.convert(x, "i32"), A * 10)
show("convert", lambda x: opset8.convert(x, np.float16), A)
show("convert_like", opset8.convert_like, A * 10, np.array([1], np.int64))
show("shape_of", opset8.shape_of, A)
show("shape_of", lambda x: opset8.shape_of(x, "i32"), A)
show("mvn", lambda x: opset6.mvn(x, np.array([2, 3]), True, 1e-5, "INSIDE_SQRT"), A)
show("normalize_l2", lambda x: opset8.normalize_l2(x, np.array([1]), 1e-6, "add"), A)
show("lrn", lambda x: opset8.lrn(x, np.array([1]), 1e-2, 0.75, 1.0, 3), A)
show("batch_norm", lambda x: opset8.batch_norm_inference(x, *np.ones((4, 4), np.float32), 1e-3), A)
show("fake_quantize", lambda x: opset8.fake_quantize(x, 0.0, 1.0, 0.0, 1.0, 16), A)
show("depth_to_space", lambda x: opset8.depth_to_space(x, "blocks_first", 2), A)
show("space_to_depth", lambda x: opset8.space_to_depth(x, "blocks_first", 1), A)
show(
    "interpolate",
    lambda x: opset13.interpolate(
        x, [10, 9], "linear_onnx", "sizes", [0] * 4, [0] * 4, axes=[2, 3]
    ),
    A,
)
show(
    "non_zero",
    lambda x: opset8.non_zero(opset8.greater(x, np.float32(0.5) + np.zeros(1, np.float32))),
    A,
)
show(
    "nms",
    lambda b, s: opset13.non_max_suppression(
        b, s, np.array(3), np.array(0.5, np.float32), np.array(0.0, np.float32)
    ),
    BOXES,
    SCORES,
)
show(
    "logical",
    lambda x: opset8.logical_not(opset8.logical_and(opset8.greater(x, x), opset8.less(x, x))),
    A,
)
show("grn", lambda x: opset8.grn(x, 0.1), A)
show("einsum", lambda x, y: opset8.einsum([x, y], "abcd,ed->abce"), A, M)
show("roll", lambda x: opset8.roll(x, np.array([1]), np.array([2])), A)
show("shuffle_channels", lambda x: opset8.shuffle_channels(x, 1, 2), A)
show("attention", lambda x, y: opset16.scaled_dot_product_attention(x, y, y, causal=True), A, B)
show(
    "lstm_cell",
    lambda x: opset8.lstm_cell(
        x,
        np.zeros((3, 2), np.float32),
        np.zeros((3, 2), np.float32),
        np.full((8, 6), 0.1, np.float32),
        np.full((8, 2), 0.1, np.float32),
        np.zeros(8, np.float32),
        2,
    ),
    M,
)


def process(name, steps, shape, data, dtype=np.float32):
    parameter = opset8.parameter(shape, np.float32, name="x")
    processor = PrePostProcessor(ov.Model([opset8.abs(parameter)], [parameter], "m"))
    steps(processor.input(), processor.output())
    model = processor.build()
    print(name, [str(port) for port in model.inputs], model.output().partial_shape)
    result = core.compile_model(model, "CPU")(data if isinstance(data, list) else [data])[0]
    print(name, result.shape, weighed(result, 0))


PHOTO = random.integers(0, 256, (1, 8, 10, 3)).astype(np.uint8)
NHWC, NCHW = ov.Layout("NHWC"), ov.Layout("NCHW")


def image(put, *, color=ColorFormat.UNDEFINED, kind=ov.Type.u8):
    put.tensor().set_element_type(kind).set_layout(NHWC)
    if color != ColorFormat.UNDEFINED:
        put.tensor().set_color_format(color)
    put.model().set_layout(NCHW)
    return put.preprocess().convert_element_type(ov.Type.f32)


process(
    "mean", lambda i, o: image(i).mean([1.0, 2.0, 3.0]).scale([2.0, 3.0, 4.0]), [1, 3, 8, 10], PHOTO
)
process("scalars", lambda i, o: image(i).mean(3.0).scale(2.0), [1, 3, 8, 10], PHOTO)
process(
    "reverse", lambda i, o: image(i).reverse_channels().mean([1.0, 2.0, 3.0]), [1, 3, 8, 10], PHOTO
)
process(
    "color",
    lambda i, o: (
        image(i, color=ColorFormat.RGB).convert_color(ColorFormat.BGR).mean([1.0, 2.0, 3.0])
    ),
    [1, 3, 8, 10],
    PHOTO,
)
for algorithm in (
    ResizeAlgorithm.RESIZE_LINEAR,
    ResizeAlgorithm.RESIZE_CUBIC,
    ResizeAlgorithm.RESIZE_NEAREST,
):

    def resized(i, o, algorithm=algorithm):
        image(i).resize(algorithm)
        i.tensor().set_spatial_static_shape(8, 10)

    process(f"resize {algorithm}", resized, [1, 3, 5, 7], PHOTO)


def moving(i, o):
    image(i).resize(ResizeAlgorithm.RESIZE_LINEAR)
    i.tensor().set_spatial_dynamic_shape()


process("any size", moving, [1, 3, 5, 7], PHOTO)


def padded(i, o):
    i.tensor().set_shape([1, 3, 6, 8])
    i.preprocess().pad([0, 0, 1, 1], [0, 0, 1, 1], 2.0, PaddingMode.CONSTANT)


process("pad", padded, [1, 3, 8, 10], np.ones((1, 3, 6, 8), np.float32))


def nv12(i, o):
    i.tensor().set_element_type(ov.Type.u8).set_color_format(
        ColorFormat.NV12_TWO_PLANES, ["y", "uv"]
    )
    i.model().set_layout(NCHW)
    i.preprocess().convert_color(ColorFormat.RGB).convert_element_type(ov.Type.f32)


planes = [random.integers(0, 256, s).astype(np.uint8) for s in ((1, 8, 10, 1), (1, 4, 5, 2))]
process("nv12", nv12, [1, 3, 8, 10], planes)


def outputs(i, o):
    o.model().set_layout(NCHW)
    o.tensor().set_layout(NHWC).set_element_type(ov.Type.f16)
    o.postprocess().convert_element_type(ov.Type.f32)


process("output", outputs, [1, 3, 8, 10], np.ones((1, 3, 8, 10), np.float32))
