"""Passes and patterns, formats, properties that are read back, and resizing; printed."""

import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import openvino as ov
from onnx import TensorProto, helper
from openvino import opset13 as ops
from openvino.frontend import FrontEndManager
from openvino.passes import (
    AnyInput,
    ConstantFolding,
    GraphRewrite,
    MakeStateful,
    Manager,
    Matcher,
    MatcherPass,
    ModelPass,
    Optional,
    Or,
    WrapType,
    consumers_count,
    has_static_shape,
    rank_equals,
    type_matches,
)
from openvino.preprocess import PrePostProcessor, ResizeAlgorithm
from openvino.properties import device, hint
from openvino.utils import replace_node

core = ov.Core()
core.set_property("CPU", {"INFERENCE_PRECISION_HINT": "f32"})
random = np.random.default_rng(5)
values = random.standard_normal((2, 3)).astype(np.float32)


def show(name, array):
    print(name, array.shape, np.round(np.asarray(array, np.float64), 2).tolist())


def network():
    x = ops.parameter([2, 3], np.float32, "x")
    x.output(0).set_names({"x"})
    doubled = ops.multiply(ops.constant(np.float32(2)), x)
    y = ops.relu(ops.add(doubled, ops.constant(np.full((1, 3), 0.5, np.float32))), name="act")
    y.output(0).set_names({"y"})
    return ov.Model([y], [x], "net")


def run(name, model, *arrays):
    for result in core.compile_model(model, "CPU")(list(arrays) or [values]).values():
        show(name, result)


class Sharper(MatcherPass):
    """relu(x * 2 + b) becomes exp(x) + b, whichever side the constants are on."""

    def __init__(self):
        MatcherPass.__init__(self)
        x = AnyInput(rank_equals(ov.Dimension(2)))
        scale = WrapType("opset13.Constant", type_matches(ov.Type.f32))
        scaled = WrapType("opset13.Multiply", [x.output(0), scale.output(0)], consumers_count(1))
        bias = WrapType(["opset13.Constant"])
        added = WrapType("opset13.Add", [scaled, bias])
        relu = WrapType("opset13.Relu", added.output(0), has_static_shape())

        def change(matcher):
            found = matcher.get_pattern_value_map()
            root = matcher.get_match_root()
            print(matcher.get_name(), root.get_friendly_name(), len(matcher.get_match_nodes()) >= 5)
            made = self.register_new_node(ops.add(ops.exp(found[x]), found[bias]))
            replace_node(root, made)
            return True

        self.register_matcher(Matcher(relu, "sharper"), change)


class Counter(ModelPass):
    def run_on_model(self, model):
        print("nodes", len(model.get_ops()))
        return False


model = network()
manager = Manager()
manager.register_pass(Counter())
manager.register_pass(Sharper())
manager.register_pass(ConstantFolding())
manager.run_passes(model)
run("sharper", model)

either = Or([WrapType("opset13.Tanh"), WrapType("opset13.Relu")])
print(Matcher(either, "either").match(network().get_results()[0].input_value(0)))
print(Matcher(WrapType("opset13.Exp"), "none").match(network().get_results()[0].input_value(0)))
maybe = Optional(["opset13.Relu"], WrapType("opset13.Add", [AnyInput(), AnyInput()]))
print(Matcher(maybe, "maybe").match(network().get_results()[0].input_value(0)))
found = []
seen = MatcherPass(
    Matcher(WrapType("opset13.Constant"), "constants"),
    lambda matcher: bool(found.append(matcher.get_match_root().get_type_name())),
)
rewrite = GraphRewrite()
rewrite.add_matcher(seen)
rewrite.run_on_model(network())
print(found)

# an output that is an input of the next inference
x, held = (ops.parameter([1, 2], np.float32, name) for name in ("x", "held"))
for port in (x, held):
    port.output(0).set_names({port.friendly_name})
total = ops.add(x, held)
total.output(0).set_names({"total"})
again = ops.multiply(total, ops.constant(np.float32(2)))
again.output(0).set_names({"again"})
kept = ops.result(total)
model = ov.Model([ops.result(again), kept], [x, held], "sum")
manager = Manager()
manager.register_pass(MakeStateful([(held, kept)]))
manager.run_passes(model)
request = core.compile_model(model, "CPU").create_infer_request()
for _ in range(3):
    show("again", request.infer(np.ones((1, 2), np.float32))[0])
print(len(model.inputs), len(model.outputs), len(request.query_state()))

# formats
path = Path(tempfile.mkdtemp()) / "model.onnx"
made = helper.make_model(
    helper.make_graph(
        [helper.make_node("Neg", ["a"], ["b"])],
        "graph",
        [helper.make_tensor_value_info("a", TensorProto.FLOAT, ["N", 3])],
        [helper.make_tensor_value_info("b", TensorProto.FLOAT, ["N", 3])],
    ),
    opset_imports=[helper.make_opsetid("", 17)],
    ir_version=8,
)
onnx.save(made, path)
reader = FrontEndManager().load_by_framework("onnx")
run("frontend", reader.convert(reader.load(str(path))))
print(reader.get_name(), FrontEndManager().load_by_model(str(path)).get_name())
for shapes in ([2, 3], ("a", [2, 3]), [("a", [2, 3], ov.Type.f32)], {"a": [2, 3]}, [[2, 3]]):
    print(ov.convert_model(path, input=shapes).input().partial_shape)

# properties
given = {hint.execution_mode: hint.ExecutionMode.ACCURACY, "ENABLE_HYPER_THREADING": False}
compiled = core.compile_model(network(), "CPU", given)
print(compiled.get_property(hint.execution_mode), compiled.get_property("ENABLE_HYPER_THREADING"))
compiled = core.compile_model(network(), "CPU")
print(compiled.get_property(hint.execution_mode), core.get_property("CPU", device.type))
folder = str(path.parent / "cache")
core.set_property({"CACHE_DIR": folder})
print(core.get_property("CACHE_DIR") == folder)
core.set_property({"CACHE_DIR": ""})
request = compiled.create_infer_request()
request.infer(values)
print({str(info.status) for info in request.profiling_info})
content = compiled.export_model()
show("imported", core.import_model(content.getvalue(), "CPU")(values)[0])

# resizing
photo = (np.arange(13 * 9 * 3) % 17).astype(np.float32).reshape(1, 13, 9, 3)
for algorithm in ("RESIZE_BILINEAR_PILLOW", "RESIZE_BICUBIC_PILLOW", "RESIZE_CUBIC"):
    x = ops.parameter([1, 3, 4, 5], np.float32, name="x")
    processor = PrePostProcessor(ov.Model([ops.relu(x)], [x], "resized"))
    put = processor.input()
    put.tensor().set_layout(ov.Layout("NHWC")).set_spatial_dynamic_shape()
    put.model().set_layout(ov.Layout("NCHW"))
    put.preprocess().resize(getattr(ResizeAlgorithm, algorithm))
    resized = core.compile_model(processor.build(), "CPU")(photo)[0].astype(np.float64)
    print(algorithm, resized.shape, (resized.reshape(-1) * (np.arange(60) % 7)).sum().round(1))
print(sys.argv[1:])
