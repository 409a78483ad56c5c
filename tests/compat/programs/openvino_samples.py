"""OpenVINO's Python samples of API 2.0, in our own words; printed, to be compared."""

import sys
from pathlib import Path

import numpy as np
import openvino as ov
from openvino import opset1, opset3, opset8
from openvino.preprocess import PrePostProcessor, ResizeAlgorithm
from PIL import Image

samples = Path(sys.argv[1])
core = ov.Core()
core.set_property("CPU", {"INFERENCE_PRECISION_HINT": "f32"})


def classifier():
    model = core.read_model(samples / "models/efficientnet_lite0/efficientnet_lite0.xml")
    photo = np.asarray(Image.open(samples / "images/cat.jpg").convert("RGB"))[None]
    processor = PrePostProcessor(model)
    put = processor.input()
    put.tensor().set_shape(photo.shape).set_element_type(ov.Type.u8).set_layout(ov.Layout("NHWC"))
    put.preprocess().convert_element_type(ov.Type.f32).resize(ResizeAlgorithm.RESIZE_LINEAR)
    put.preprocess().mean([127.0] * 3).scale([128.0] * 3)
    put.model().set_layout(ov.Layout("NCHW"))
    processor.output().tensor().set_element_type(ov.Type.f32)
    model.reshape([1, 3, 224, 224])
    return processor.build(), photo


def best(logits):
    order = np.argsort(-logits.reshape(-1))[:3]
    return order.tolist(), np.round(logits.reshape(-1)[order], 2).tolist()


# hello_classification
model, photo = classifier()
print([str(port) for port in model.inputs], [str(port) for port in model.outputs])
compiled = core.compile_model(model, "CPU")
print(best(next(iter(compiled.infer_new_request({0: photo}).values()))))

# classification_sample_async
queue = ov.AsyncInferQueue(compiled, 2)
answers = {}
queue.set_callback(
    lambda request, number: answers.update({number: best(request.get_output_tensor().data)})
)
for number in range(4):
    queue.start_async({0: np.roll(photo, 9 * number, 1)}, number)
queue.wait_all()
print([answers[number] for number in range(4)])

# the same at another size, as hello_reshape_ssd does
detector = core.read_model(samples / "models/blazeface/blazeface.xml")
detector.reshape({detector.inputs[0].any_name: [2, *list(detector.inputs[0].partial_shape)[1:]]})
print([str(port.partial_shape) for port in (*detector.inputs, *detector.outputs)])
shape = detector.input().shape
pixels = np.random.default_rng(0).random(list(shape), np.float32)
for result in core.compile_model(detector, "CPU")(pixels).values():
    print(result.shape, np.round(result.astype(np.float64).mean(), 2))

# a network with a state, fed frame by frame, as the speech sample does
frame = opset8.parameter([1, 3], np.float32, name="frame")
held = opset3.read_value(opset8.constant(np.zeros((1, 3), np.float32)), "sum")
total = opset8.add(held, frame)
keep = opset3.assign(total, "sum")
total.output(0).set_names({"total"})
adder = ov.Model([opset8.result(total)], [keep], [frame], "adder")
request = core.compile_model(adder, "CPU").create_infer_request()
for utterance in range(2):
    request.reset_state()
    for step in range(3):
        found = request.infer({"frame": np.full((1, 3), step + utterance, np.float32)})
        print(found["total"].tolist())
(state,) = request.query_state()
print(state.state.data.tolist())
state.state = ov.Tensor(np.full((1, 3), 10, np.float32))
print(request.infer({0: np.ones((1, 3), np.float32)})[0].tolist())
state.reset()
print(request.infer({0: np.ones((1, 3), np.float32)})[0].tolist())

# model_creation_sample
random = np.random.default_rng(1)
image = opset8.parameter([1, 1, 28, 28], np.float32, name="image")
kernels = opset8.constant(random.standard_normal((6, 1, 5, 5)).astype(np.float32))
layer = opset8.convolution(image, kernels, [1, 1], [0, 0], [0, 0], [1, 1])
layer = opset8.add(layer, opset8.constant(np.ones((1, 6, 1, 1), np.float32)))
layer = opset1.max_pool(layer, [2, 2], [0, 0], [0, 0], [2, 2], "ceil", None)
layer = opset8.relu(opset8.reshape(layer, np.array([-1, 864]), True))
weights = opset8.constant(random.standard_normal((10, 864)).astype(np.float32) / 30)
scores = opset8.softmax(opset8.matmul(layer, weights, False, True), 1)
lenet = ov.Model(scores, [image], "lenet")
digit = random.random((1, 1, 28, 28), np.float32)
print(best(core.compile_model(lenet, "CPU")(digit)[0]))

# hello_query_device
for device in core.available_devices:
    for name in core.get_property(device, "SUPPORTED_PROPERTIES"):
        if name != "COMPATIBILITY_CHECK":  # a function, which has no form in Python
            core.get_property(device, name)
print("done")
