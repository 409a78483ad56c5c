"""Nodes with bodies that are put together by hand, and batches given as items; printed."""

import tempfile

import numpy as np
import openvino as ov
from openvino import opset5, opset13
from openvino.op import Parameter, util

core = ov.Core()
core.set_property("CPU", {"INFERENCE_PRECISION_HINT": "f32"})
random = np.random.default_rng(4)


def show(name, result):
    print(name, result.shape, np.round(result.astype(np.float64), 3).tolist())


def run(name, results, parameters, values):
    model = ov.Model([opset13.result(each) for each in results], parameters, name)
    path = tempfile.mkdtemp() + "/model.xml"
    ov.save_model(model, path, compress_to_fp16=False)
    for each in (model, core.read_model(path)):
        for result in core.compile_model(each, "CPU")(values).values():
            show(name, result)


def number(value, kind=np.int64):
    return opset13.constant(np.asarray(value, kind))


# a running sum over the rows, of which every step and the last one leave
x = opset13.parameter([3, 4], np.float32, "x")
row, total = (opset13.parameter([1, 4], np.float32, name) for name in ("row", "total"))
added = opset13.add(row, total)
body = ov.Model([opset13.result(number(True, bool)), opset13.result(added)], [row, total], "body")
sums = opset13.loop(number(3), number(True, bool))
sums.set_function(body)
sums.set_special_body_ports([-1, 0])
sums.set_sliced_input(row, x.output(0), 0, 1, 1, -1, 0)
start = opset13.constant(np.zeros((1, 4), np.float32))
sums.set_merged_input(total, start.output(0), added.output(0))
every = sums.get_concatenated_slices(added.output(0), 0, 1, 1, -1, 0)
last = sums.get_iter_value(added.output(0), -1)
print(sums.get_type_name(), sums.get_output_size(), sums.get_special_body_ports())
print(sums.get_num_iterations(), sums.get_function().get_friendly_name(), last.get_partial_shape())
print([type(each).__name__ for each in sums.get_input_descriptions()])
print([type(each).__name__ for each in sums.get_output_descriptions()])
run("sums", [every, last], [x], [random.random((3, 4), np.float32)])

# as long as the number of the iteration is below three
step = opset13.parameter([], np.int64, "step")
held = opset13.parameter([1], np.float32, "held")
moved = opset13.add(held, opset13.unsqueeze(opset13.convert(step, "f32"), number([0])))
going = opset13.less(step, number(3))
until = opset5.loop(number(-1), number(True, bool))
until.set_function(ov.Model([opset13.result(going), opset13.result(moved)], [step, held], "until"))
until.set_special_body_ports([0, 0])
begin = opset13.parameter([1], np.float32, "begin")
until.set_merged_input(held, begin.output(0), moved.output(0))
run("until", [until.get_iter_value(moved.output(0))], [begin], [np.array([1], np.float32)])

# a recurrent cell, backwards
x = opset13.parameter([2, 5, 3], np.float32, "x")
h = opset13.parameter([2, 1, 3], np.float32, "h")
xi, hi, gain = (opset13.parameter([2, 1, 3], np.float32, name) for name in ("xi", "hi", "gain"))
cell = opset13.tanh(opset13.add(opset13.multiply(xi, gain), hi))
cells = opset13.tensor_iterator()
cells.set_body(ov.Model([opset13.result(cell)], [xi, hi, gain], "cell"))
cells.set_sliced_input(xi, x.output(0), -1, -1, 1, 0, 1)
cells.set_merged_input(hi, h.output(0), cell.output(0))
cells.set_invariant_input(gain, h.output(0))
ends = [
    cells.get_iter_value(cell.output(0), -1),
    cells.get_concatenated_slices(cell.output(0), -1, -1, 1, 0, 1),
]
print(cells.get_type_name(), cells.get_num_iterations(), cells.get_body().get_friendly_name())
values = [random.random((2, 5, 3), np.float32), random.random((2, 1, 3), np.float32)]
run("cells", ends, [x, h], values)

# one of two bodies, of which one does not read all inputs
which = Parameter(ov.Type.boolean, ov.Shape([]))
a, b = (opset13.parameter([2], np.float32, name) for name in "ab")
inner = [opset13.parameter([2], np.float32, name) for name in ("a1", "b1", "a2")]
product = opset13.result(opset13.multiply(inner[0], inner[1]))
square = opset13.result(opset13.multiply(inner[2], inner[2]))
choice = opset13.if_op(which.output(0))
choice.set_then_body(ov.Model([product], inner[:2], "product"))
choice.set_else_body(ov.Model([square], inner[2:], "square"))
choice.set_input(a.output(0), inner[0], inner[2])
choice.set_input(b.output(0), inner[1], None)
chosen = choice.set_output(product, square)
print(
    choice.get_type_name(),
    choice.get_then_body().friendly_name,
    choice.get_function(1).friendly_name,
)
for truth in (True, False):
    given = [np.array(truth), np.array([2, 3], np.float32), np.array([4, 5], np.float32)]
    run("choice", [chosen], [which, a, b], given)

# a variable made by class
variable = util.VariableInfo()
variable.data_shape, variable.data_type = ov.PartialShape([1, 2]), ov.Type.f32
variable.variable_id = "sum"
variable = util.Variable(variable)
x = opset13.parameter([1, 2], np.float32, "x")
kept = ov.op.read_value(opset13.constant(np.zeros((1, 2), np.float32)), variable)
more = opset13.add(kept, x)
keep = ov.op.assign(more, variable)
request = core.compile_model(
    ov.Model([opset13.result(more)], [keep], [x], "keep"), "CPU"
).create_infer_request()
for _ in range(3):
    show("keep", request.infer(np.ones((1, 2), np.float32))[0])
print(keep.get_variable_id(), kept.get_variable_id())

# items of a batch, read anew in every inference
x = opset13.parameter([3, 2], np.float32, "x")
x.set_layout(ov.Layout("NC"))
request = core.compile_model(ov.Model([opset13.relu(x)], [x], "b"), "CPU").create_infer_request()
items = [ov.Tensor(np.full((1, 2), each, np.float32)) for each in range(3)]
request.set_input_tensors(items)
request.infer()
show("items", request.get_output_tensor().data)
items[1].data[:] = 9
request.start_async()
request.wait()
show("items", request.get_output_tensor().data)

for wrong in ([], items[:2], [item.data for item in items]):
    try:
        request.set_input_tensors(0, wrong)
        request.infer()
    except (RuntimeError, TypeError):
        print("refused")

# an input and an output of one name
x = opset13.parameter([1, 2], np.float32, "x")
doubled = opset13.result(opset13.multiply(x, opset13.constant(np.float32(2))), name="x")
request = core.compile_model(ov.Model([doubled], [x], "twice"), "CPU").create_infer_request()
request.set_output_tensor(0, ov.Tensor(np.zeros((1, 2), np.float32)))
request.set_input_tensor(0, ov.Tensor(np.full((1, 2), 3, np.float32)))
request.infer()
show("in", request.get_input_tensor().data)
show("out", request.get_output_tensor().data)
show("results", request.results[0])
for wrong in (np.zeros((1, 2), np.float32), "text"):
    try:
        request.set_input_tensor(0, wrong)
    except TypeError:
        print("refused")
