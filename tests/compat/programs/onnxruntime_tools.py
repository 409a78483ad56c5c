"""The packages beside onnxruntime's own: quantisation, the backend, tools; printed."""

import os
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import backend
from onnxruntime.backend.backend import OnnxRuntimeBackend
from onnxruntime.capi.onnxruntime_validation import check_distro_info
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.tools.onnx_model_utils import make_dim_param_fixed
from onnxruntime.transformers.float16 import convert_float_to_float16

random = np.random.default_rng(2)
os.chdir(tempfile.mkdtemp())
CPU = ["CPUExecutionProvider"]
F32 = TensorProto.FLOAT


def stored(name, *sizes):
    return numpy_helper.from_array(random.standard_normal(sizes).astype(np.float32) / 3, name)


graph = helper.make_graph(
    [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["f"], "flatten"),
        helper.make_node("MatMul", ["f", "m"], ["y"], "matmul"),
    ],
    "classifier",
    [helper.make_tensor_value_info("x", F32, ["N", 3, 8, 8])],
    [helper.make_tensor_value_info("y", F32, ["N", 5])],
    [stored("w", 8, 3, 3, 3), stored("b", 8), stored("m", 8, 5)],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
onnx.save(model, "model.onnx")
image = random.standard_normal((2, 3, 8, 8)).astype(np.float32)


def run(path, options=None):
    return ort.InferenceSession(path, options, providers=CPU).run(None, {"x": image})[0]


scores = run("model.onnx")
print(np.round(scores, 3).tolist())


def near(name, tolerance):
    print(name, bool(np.abs(run(name) - scores).max() < tolerance))


quantize_dynamic("model.onnx", "dynamic.onnx", weight_type=QuantType.QUInt8)
near("dynamic.onnx", 0.1)


class Reader(CalibrationDataReader):
    def __init__(self):
        self.batches = iter([{"x": image[:1]}, {"x": image[1:]}])

    def get_next(self):
        return next(self.batches, None)


for form in (QuantFormat.QDQ, QuantFormat.QOperator):
    quantize_static("model.onnx", f"{form}.onnx", Reader(), quant_format=form)
    kinds = {node.op_type for node in onnx.load(f"{form}.onnx").graph.node}
    print("QuantizeLinear" in kinds, "QLinearConv" in kinds)
    near(f"{form}.onnx", 0.1)

# which writes its conversions of inputs behind what reads them
half = convert_float_to_float16(onnx.load("model.onnx"), keep_io_types=True)
onnx.save(half, "half.onnx")
near("half.onnx", 0.01)

options = ort.SessionOptions()
options.add_free_dimension_override_by_name("N", 2)
weights = ort.OrtValue.ortvalue_from_numpy(np.ones((8, 5), np.float32))
options.add_initializer("m", weights)
Path("folder").mkdir()
options.optimized_model_filepath = "folder/written.onnx"
print(np.round(run("model.onnx", options), 3).tolist())
written = ort.InferenceSession("folder/written.onnx", providers=CPU)
print(written.get_inputs()[0].shape, np.round(written.run(None, {"x": image})[0], 3).tolist())

fixed = onnx.load("model.onnx")
make_dim_param_fixed(fixed.graph, "N", 2)
print(ort.InferenceSession(fixed.SerializeToString(), providers=CPU).get_inputs()[0].shape)

prepared = backend.prepare("model.onnx", "CPU")
print(np.round(prepared.run([image])[0], 3).tolist(), np.round(prepared.run(image)[0], 3).shape)
print(backend.supports_device("CPU"), backend.supports_device("TPU"), check_distro_info())
content = onnx.load("model.onnx")
print(np.round(OnnxRuntimeBackend.run_model(content, image)[0], 3).tolist())
try:
    backend.prepare("model.onnx", "TPU")
except RuntimeError:
    print("refused")


class Named(ort.InferenceSession):
    def __init__(self, path, **arguments):
        super().__init__(path, **arguments)
        self.path = path


named = Named("model.onnx", providers=CPU)
print(named.path, np.round(named.run(None, {"x": image})[0], 3).tolist())

profiled = ort.SessionOptions()
profiled.enable_profiling = True
session = ort.InferenceSession("model.onnx", profiled, providers=CPU)
began = session.get_profiling_start_time_ns()
session.end_profiling()
print(began > 0, session.get_profiling_start_time_ns() == began)
