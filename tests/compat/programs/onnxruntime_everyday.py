"""What most programs for onnxruntime do; prints the same on every implementation of it."""

import sys
import threading

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument, NoSuchFile


def model() -> bytes:
    """x[batch,3,8,8] → a convolution, its sum per image, and the images' order by it."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((4, 3, 3, 3)).astype(np.float32)
    stored = [
        helper.make_tensor("W", TensorProto.FLOAT, weights.shape, weights.reshape(-1)),
        helper.make_tensor("scale", TensorProto.FLOAT, [1], [2.0]),
        helper.make_tensor("axes", TensorProto.INT64, [2], [2, 3]),
    ]
    nodes = [
        helper.make_node("Conv", ["x", "W"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Mul", ["c", "scale"], ["features"]),
        helper.make_node("ReduceSum", ["features", "axes"], ["sums"], keepdims=0),
        helper.make_node("ArgMax", ["sums"], ["best"], axis=1, keepdims=0),
    ]
    f32, i64 = TensorProto.FLOAT, TensorProto.INT64
    graph = helper.make_graph(
        nodes,
        "everyday",
        [
            helper.make_tensor_value_info("x", f32, ["batch", 3, "height", 8]),
            helper.make_tensor_value_info("scale", f32, [1]),
        ],
        [
            helper.make_tensor_value_info("features", f32, ["batch", 4, "height", 8]),
            helper.make_tensor_value_info("sums", f32, ["batch", 4]),
            helper.make_tensor_value_info("best", i64, ["batch"]),
        ],
        stored,
        doc_string="a graph",
    )
    made = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
        producer_name="tests",
        model_version=3,
        doc_string="a model",
    )
    helper.set_model_props(made, {"names": "{0: 'cat', 1: 'dog'}", "stride": "32"})
    onnx.checker.check_model(made)
    return made.SerializeToString()


def show(label: str, *values: object) -> None:
    """Print arrays by type, shape and rounded content."""
    texts = [
        f"{v.dtype}{list(v.shape)} {np.round(v.reshape(-1)[:6].astype(float), 2) + 0.0}"
        if isinstance(v, np.ndarray)
        else repr(v)
        for v in values
    ]
    print(label, *texts)


def refused(label: str, call: object) -> None:
    """Print what a call raises."""
    try:
        print(label, "returned", call())
    except Exception as error:  # noqa: BLE001 - whatever it is, it is printed
        print(label, type(error).__name__, error)


options = ort.SessionOptions()
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
options.intra_op_num_threads = 2
options.log_severity_level = 3
session = ort.InferenceSession(model(), options, providers=["CPUExecutionProvider"])
for arg in [*session.get_inputs(), *session.get_outputs(), *session.get_overridable_initializers()]:
    print(arg)
meta = session.get_modelmeta()
print(meta.producer_name, meta.graph_name, meta.description, meta.graph_description, meta.version)
print(sorted(meta.custom_metadata_map.items()))

x = np.random.default_rng(1).standard_normal((2, 3, 5, 8)).astype(np.float32)
show("all", *session.run(None, {"x": x}))
show("one", *session.run(["sums"], {"x": x}, ort.RunOptions()))
show("list", *session.run(["best"], {"x": x.tolist()}))
show("strided", *session.run(["sums"], {"x": x[:, :, ::-1].transpose(0, 1, 2, 3)}))
show("another size", *session.run(["features"], {"x": x[:1, :, :2]}))
show("override", *session.run(["sums"], {"x": x, "scale": np.array([-1], np.float32)}))
first = session.run(["sums"], {"x": x})[0]
session.run(["sums"], {"x": x * 2})
show("outputs are the caller's own", first)

refused("missing", lambda: session.run(None, {}))
refused("wrong name", lambda: session.run(None, {"y": x}))
refused("one too many", lambda: session.run(None, {"x": x, "y": x}))
refused("rank", lambda: session.run(None, {"x": x[0]}))
refused("size", lambda: session.run(None, {"x": x[:, :2]}))
refused("sizes", lambda: session.run(None, {"x": x[:, :2, :, 1:]}))
refused("type", lambda: session.run(None, {"x": x.astype(np.float64)}))
refused("integers", lambda: session.run(None, {"x": x.astype(np.int32)}))
refused("output", lambda: session.run(["nothing"], {"x": x}))
refused("no file", lambda: ort.InferenceSession("nothing.onnx"))
refused("neither", lambda: ort.InferenceSession(3))
try:
    session.run(None, {"x": x[0]})
except InvalidArgument:
    print("InvalidArgument can be caught")
try:
    ort.InferenceSession("nothing.onnx")
except NoSuchFile:
    print("NoSuchFile can be caught")

options.intra_op_num_threads = -1
options.add_free_dimension_override_by_name("batch", 2)
options.add_free_dimension_override_by_name("nobody", 7)
fixed = ort.InferenceSession(model(), sess_options=options, providers=["CPUExecutionProvider"])
print([arg.shape for arg in [*fixed.get_inputs(), *fixed.get_outputs()]])
show("fixed", *fixed.run(["sums"], {"x": x}))
refused("fixed batch", lambda: fixed.run(None, {"x": x[:1]}))

value = ort.OrtValue.ortvalue_from_numpy(x)
print(value.shape(), value.data_type(), value.element_type(), value.device_name())
print(value.is_tensor(), value.has_value(), value.data_ptr() == x.ctypes.data)
show("OrtValue", *(v.numpy() for v in session.run_with_ort_values(["sums"], {"x": value})))

binding = session.io_binding()
binding.bind_cpu_input("x", x)
sums = np.zeros((2, 4), np.float32)
binding.bind_output("sums", "cpu", 0, np.float32, sums.shape, sums.ctypes.data)
binding.bind_output("best")
session.run_with_iobinding(binding)
show("bound", sums, *binding.copy_outputs_to_cpu())
x[...] = -x
session.run_with_iobinding(binding)
show("bound again", sums, *(v.numpy() for v in binding.get_outputs()))
refused("binding", lambda: binding.bind_cpu_input("nobody", x))

done = threading.Event()
session.run_async(
    ["sums"], {"x": x}, lambda out, data, error: (show(data, *out, error), done.set()), "async"
)
done.wait(60)
done.clear()
session.run_async(None, {"x": x[0]}, lambda *given: (show("async", *given), done.set()), "bad")
done.wait(60)
print(ort.get_version_string() == ort.__version__, ort.ExecutionMode.ORT_PARALLEL, sys.argv[1:])
