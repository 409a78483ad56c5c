"""What programs for OpenVINO do every day; printed, to be compared with the real one."""

import copy
import io
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import openvino as ov
from openvino import opset8 as ops
from openvino.preprocess import ColorFormat, PrePostProcessor, ResizeAlgorithm

random = np.random.default_rng(0)
core = ov.Core()
device = "CPU"
core.set_property(device, {"INFERENCE_PRECISION_HINT": "f32"})  # not bf16, which depends on the CPU


def show(name, array):
    print(name, array.shape, array.dtype, np.round(np.asarray(array, np.float64), 3).tolist())


def fails(name, call):
    try:
        call()
    except Exception as error:  # noqa: BLE001 - whatever it is
        print(name, "raises", [c.__name__ for c in type(error).__mro__ if c is not object][-3:])
    else:
        print(name, "is allowed")


def convolution():
    x = ops.parameter([1, 3, 6, 7], np.float32, name="image")
    w = ops.constant(random.standard_normal((4, 3, 3, 3)).astype(np.float32), name="weights")
    y = ops.convolution(x, w, [1, 1], [1, 1], [1, 1], [1, 1], name="conv")
    y = ops.relu(ops.add(y, ops.constant(np.full((1, 4, 1, 1), 0.5, np.float32))), name="act")
    y.output(0).set_names({"features"})
    z = ops.softmax(ops.reduce_mean(y, np.array([2, 3]), False), 1, name="prob")
    z.output(0).set_names({"prob"})
    return ov.Model([y, z], [x], "net")


model = convolution()
print(model.friendly_name, [str(port) for port in model.inputs], [str(p) for p in model.outputs])
print([node.get_type_name() for node in model.get_ordered_ops() if node.get_input_size() == 2])
print(model.input().any_name, model.output("prob").shape, model.input(0).element_type)
print(model.input("image").partial_shape, model.output(0).get_names(), model.is_dynamic())
fails("unknown output", lambda: model.output("nothing"))
fails("output 7", lambda: model.output(7))
fails("copy", lambda: copy.copy(model))
print(copy.deepcopy(model).friendly_name, len(model.clone().get_ops()) == len(model.get_ops()))

compiled = core.compile_model(model, device)
image = random.standard_normal((1, 3, 6, 7)).astype(np.float32)
result = compiled(image)
show("prob", result["prob"])
show("by number", result[1])
show("by port", result[compiled.output("prob")])
print(len(result), [array.shape for array in result.values()], result.names(), "prob" in result)
print([array.shape for array in result.to_tuple()], len(result.to_dict()))
fails("wrong shape", lambda: compiled(np.zeros((1, 3, 6, 8), np.float32)))
fails("wrong name", lambda: compiled({"nothing": image}))
fails("wrong key of results", lambda: result["nothing"])
show("float64", compiled([image.astype(np.float64)])["prob"])
show("int", compiled({"image": np.ones((1, 3, 6, 7), np.int32)})["prob"])
show("by number", compiled({0: image})["prob"])
show("by port", compiled({compiled.input(0): image})["prob"])
show("fortran", compiled(np.asfortranarray(image))["prob"])
show("list", compiled(image.tolist() and [image])["prob"])

request = compiled.create_infer_request()
request.infer({"image": image})
show("output tensor", request.get_output_tensor(1).data)
show("tensor", request.get_tensor("prob").data)
show("results", request.results["prob"])
request.get_input_tensor().data[:] = 2 * image
request.infer()
show("in place", request.get_tensor(compiled.output("prob")).data)
request.set_input_tensor(ov.Tensor(3 * image))
request.infer()
show("set_input_tensor", request.output_tensors[1].data)
shared = np.zeros_like(image)
request.set_tensor("image", ov.Tensor(shared, shared_memory=True))
shared[:] = image
request.infer()
show("shared", request.get_output_tensor(1).data)
fails("other type", lambda: request.set_input_tensor(ov.Tensor(image.astype(np.int32))))
fails("no such tensor", lambda: request.get_tensor("nothing"))
held = request.infer({0: image}, share_outputs=True)["prob"]
request.infer({0: -image})
show("share_outputs", held)
request.infer(image)
image2 = image.copy()
request.infer(image2)
image2[:] = 0
request.infer()
show("copied inputs", request.get_output_tensor(1).data)
print(request.model_inputs[0].any_name, len(request.model_outputs), request.latency > 0)

called = []
request.set_callback(called.append, "data")
request.start_async({0: image})
request.wait()
print(called, request.wait_for(1000))
request.start_async({0: image}, userdata="more", share_inputs=True)
request.wait()
print(called)

queue = ov.AsyncInferQueue(compiled, 3)
collected = {}
queue.set_callback(
    lambda done, index: collected.update({index: done.get_output_tensor(1).data[0, 0]})
)
for index in range(12):
    queue.start_async({"image": image * index}, index)
queue.wait_all()
show("queue", np.array([collected[index] for index in range(12)]))
print(len(queue), queue.is_ready(), [type(each).__name__ for each in queue][:1])
print(queue.get_idle_request_id() in range(3))

dynamic = convolution()
dynamic.reshape([-1, 3, (4, 10), -1])
print(dynamic.input().partial_shape, dynamic.is_dynamic(), dynamic.output(1).partial_shape)
moving = core.compile_model(dynamic, device)
for size in (4, 7):
    small = np.ones((2, 3, size, 5), np.float32)
    show("dynamic", moving(small)["prob"])
fails("out of bounds", lambda: moving(np.ones((1, 3, 20, 5), np.float32)))
fails("shape of dynamic", lambda: dynamic.input().shape)
dynamic.reshape({"image": [2, 3, 6, 7]})
print(dynamic.input().shape, ov.get_batch(dynamic) if dynamic.inputs[0].names == 1 else "")
dynamic.input().get_node().layout = ov.Layout("NCHW")
ov.set_batch(dynamic, 3)
print(dynamic.input().shape, ov.get_batch(dynamic), dynamic.output(0).shape)
print(
    ov.layout_helpers.get_layout(dynamic.input()), ov.layout_helpers.height_idx(ov.Layout("NCHW"))
)

processor = PrePostProcessor(convolution())
processor.input().tensor().set_element_type(ov.Type.u8).set_layout(ov.Layout("NHWC")).set_shape(
    [1, 12, 9, 3]
)
processor.input().model().set_layout(ov.Layout("NCHW"))
processor.input().preprocess().convert_element_type(ov.Type.f32).resize(
    ResizeAlgorithm.RESIZE_LINEAR
).mean([1.0, 2.0, 3.0]).scale([2.0, 3.0, 4.0])
processor.output("prob").tensor().set_element_type(ov.Type.f16)
prepared = processor.build()
print([str(port) for port in prepared.inputs], [str(port) for port in prepared.outputs])
photo = random.integers(0, 256, (1, 12, 9, 3)).astype(np.uint8)
show("preprocessed", core.compile_model(prepared, device)(photo)["prob"].astype(np.float32))

even = convolution()
even.reshape([1, 3, 6, 8])
processor = PrePostProcessor(even)
processor.input().tensor().set_element_type(ov.Type.u8).set_layout(ov.Layout("NHWC"))
processor.input().tensor().set_color_format(ColorFormat.NV12_SINGLE_PLANE)
processor.input().preprocess().convert_color(ColorFormat.BGR).convert_layout(
    [0, 3, 1, 2]
).convert_element_type()
prepared = processor.build()
print([str(port) for port in prepared.inputs])
photo = random.integers(0, 256, (1, 9, 8, 1)).astype(np.uint8)
show("nv12", core.compile_model(prepared, device)(photo)["prob"])
processor = PrePostProcessor(convolution())
processor.input().tensor().set_layout(ov.Layout("NC"))
fails("layout of another rank", processor.build)

folder = Path(tempfile.mkdtemp())
ov.serialize(model, str(folder / "a.xml"), str(folder / "a.bin"))
ov.save_model(model, folder / "b.xml")
for name in "ab":
    again = core.read_model(folder / f"{name}.xml")
    show(name, core.compile_model(again, device)(image)["prob"])
print((folder / "b.bin").stat().st_size < (folder / "a.bin").stat().st_size)
content = core.read_model((folder / "a.xml").read_bytes(), (folder / "a.bin").read_bytes())
show("bytes", core.compile_model(content, device)(image)["prob"])
stream = io.BytesIO()
compiled.export_model(stream)
stream.seek(0)
show("imported", core.import_model(stream, device)(image)["prob"])
show("path", core.compile_model(str(folder / "a.xml"), device)(image)["prob"])
fails("missing file", lambda: core.read_model(folder / "missing.xml"))
fails("no model", lambda: core.read_model(b"nonsense"))
fails("unknown property", lambda: core.compile_model(model, device, {"NONSENSE": 1}))
fails("unknown property to get", lambda: core.get_property(device, "NONSENSE"))

tensor = ov.Tensor(np.arange(6, dtype=np.int32).reshape(2, 3))
print(
    tensor, tensor.shape, list(tensor.strides), tensor.size, tensor.byte_size, tensor.element_type
)
tensor.shape = [3, 2]
print(tensor.shape, tensor.data.tolist(), ov.Tensor(ov.Type.f32, ov.Shape([2, 2])).data.shape)
packed = ov.Tensor(
    ov.helpers.pack_data(np.array([1, -2, 3, -4], np.int8), ov.Type.i4), [4], ov.Type.i4
)
print(ov.helpers.unpack_data(packed.data, ov.Type.i4, [4]).tolist(), packed.byte_size)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    text = ov.Tensor(np.array(["a", "bc"]))
    print(text.str_data.tolist(), text.bytes_data.tolist(), text.data.tolist())

whole = np.arange(252, dtype=np.float32).reshape(1, 3, 7, 12)
region = ov.Tensor(ov.Tensor(whole, shared_memory=True), [0, 0, 1, 2], [1, 3, 7, 9])
print(region.shape, list(region.strides), region.is_continuous(), region.data[0, 1, 0, :2])
cut = compiled.create_infer_request()
cut.set_input_tensor(region)
for step in range(2):
    whole[...] += step
    cut.infer()
    show("region", cut.get_output_tensor(1).data)
show("region again", compiled(region)["prob"])
fails("region outside", lambda: ov.Tensor(region, [0, 0, 0, 0], [1, 3, 7, 9]))
print(ov.Tensor(compiled.input(0)).shape, ov.Tensor(compiled.input(0), image).data.shape)

for kind in (ov.Type.f32, ov.Type.i8, ov.Type.boolean, ov.Type.u4, ov.Type.bf16):
    print(kind, kind.type_name, kind.bitwidth, kind.size, kind.is_real(), kind.is_integral())
print(ov.Type(np.float16) == ov.Type.f16, ov.Type.f32.to_dtype(), ov.Type.f32 == ov.Type.i32)
shape = ov.PartialShape([1, -1, (2, 4), (3, -1)])
print(shape, shape.rank, shape.is_dynamic, shape[2], len(shape), shape[1:], list(map(str, shape)))
print(
    shape.get_min_shape(),
    ov.PartialShape("[?,3,..5]"),
    ov.PartialShape.dynamic(),
    ov.Dimension(2, 5),
)
print(
    ov.PartialShape([1, 2]) == [1, 2],
    ov.Shape([1, 2]) == (1, 2),
    ov.PartialShape([1, 2]).to_shape(),
)
print(shape.relaxes(ov.PartialShape([1, 5, 3, 9])), shape.compatible(ov.PartialShape([2, 5, 3, 9])))
print(
    ov.Layout("N...C"),
    ov.Layout("nchw") == "NCHW",
    ov.Layout("[N,H,?,C]"),
    ov.Layout("NHWC").has_name("C"),
)
fails("layout twice", lambda: ov.Layout("NNC"))

parameters = [ops.parameter([2, 3], np.float32, name=name) for name in "ab"]
both = ov.Model(parameters[0] * parameters[1] - parameters[0], parameters, "both")
values = [random.standard_normal((2, 3)).astype(np.float32) for _ in range(2)]
show("two inputs", core.compile_model(both, device)(values)[0])
show("two by name", core.compile_model(both, device)({"b": values[0], "a": values[1]})[0])
out = [ov.Tensor(np.zeros((2, 3), np.float32))]
print(both.evaluate(out, [ov.Tensor(value) for value in values]), np.round(out[0].data, 3).tolist())
both.add_outputs(both.get_ordered_ops()[2].output(0))
print(
    len(both.outputs),
    both.get_result_index(both.get_results()[1]),
    both.get_parameter_index(parameters[1]),
)
both.set_rt_info("value", ["own", "key"])
print(
    both.has_rt_info(["own", "key"]), both.get_rt_info(["own", "key"]).value, both.has_rt_info("no")
)

print(device in core.available_devices, len(core.query_model(model, device)) > 5)
print(core.get_property(device, "FULL_DEVICE_NAME") != "", compiled.get_property("NETWORK_NAME"))
print(int(compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS")) > 0)
core.set_property(device, {"PERF_COUNT": True})
print(core.get_property(device, ov.properties.enable_profiling()))
core.set_property(
    device, {ov.properties.hint.performance_mode(): ov.properties.hint.PerformanceMode.THROUGHPUT}
)
print(core.get_property(device, "PERFORMANCE_HINT"))
counted = core.compile_model(model, device).create_infer_request()
counted.infer(image)
print(
    {type(info.real_time).__name__ for info in counted.profiling_info},
    counted.profiling_info[0].status != 7,
)
print(sys.argv[1:])
