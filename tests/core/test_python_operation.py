"""`polydevice.operation`: functions of users as operations, on every device."""

from __future__ import annotations

import inspect
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import polydevice
from polydevice import Core, ElementType
from polydevice.errors import (
    ElementTypeError,
    KernelBuildError,
    NetworkError,
    OptionValueError,
    ShapeError,
)
from polydevice.testing import check
from tests.core.python_operation_models import DOMAIN, onnx_model

from .ir_text import edges, layer, net, parameter, result

pytestmark = pytest.mark.usefixtures("compiled_sparingly")


@polydevice.operation("Swish", domain=DOMAIN)
def swish(x, *, beta: float = 1.0):
    """Return x · sigmoid(beta · x)."""
    return x / (1 + np.exp(-beta * x))


@swish.opencl
def _(x):
    """
    const float e = exp(-beta * x);
    return x / (1 + e);
    """


@polydevice.operation("Blend", domain=DOMAIN)
def blend(a, b, *, first: bool = False, shift: int = 1):
    return a + 0 * b if first else a + 2 * b - shift


@blend.opencl
def _(left, right):
    """return first ? left : left + 2 * right - shift;"""


@polydevice.operation("Halves", domain=DOMAIN, shapes=lambda x, **_: [[x[0] // 2, *x[1:]]] * 2,
                      types=["same", "i64"])  # fmt: skip
def halves(x, *, axes: tuple[int, ...] = (0,)):
    first, second = np.array_split(x[: x.shape[0] // 2 * 2], 2, axis=axes[0])
    return first, np.signbit(second)


@polydevice.operation("RowSoftmax", domain=DOMAIN, shapes=lambda x, **_: [x, x[:-1]],
                      types=["same", "f32"])  # fmt: skip
def row_softmax(x, *, scale: float = 1.0):
    """Softmax of rows, and the logarithms of their sums."""
    wide = scale * x.astype(np.float64)
    top = wide.max(-1, keepdims=True)
    sums = np.exp(wide - top).sum(-1, keepdims=True)
    return (np.exp(wide - top) / sums).astype(x.dtype), (np.log(sums) + top)[..., 0].astype("f4")


@row_softmax.opencl(
    work_groups=lambda x, **_: max(1, int(np.prod(x[:-1]))),
    local_size=32,
    local={"part": "float[32]"},
)
def _(x, y, sums):
    """
    const int lane = get_local_id(0);
    const int count = x_elements / sums_elements, row = get_group_id(0) * count;
    float top = -INFINITY;
    for (int i = lane; i < count; i += 32) top = fmax(top, scale * x_at(row + i));
    part[lane] = top;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < 32; i++) top = fmax(top, part[i]);
    barrier(CLK_LOCAL_MEM_FENCE);
    float sum = 0;
    for (int i = lane; i < count; i += 32) sum += exp(scale * x_at(row + i) - top);
    part[lane] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    sum = 0;
    for (int i = 0; i < 32; i++) sum += part[i];
    for (int i = lane; i < count; i += 32) y_set(row + i, exp(scale * x_at(row + i) - top) / sum);
    if (lane == 0) sums_set(get_group_id(0), log(sum) + top);
    """


def test_beside_its_function(device: str) -> None:
    check(swish, beta=0.5, devices=[device])
    check(swish, devices=[device], types=["f16"], tolerance=2e-3)
    pairs = [[[3, 5], [3, 5]], [[2, 3, 17], [17]], [[4, 1], [1, 6]], [[1], [7, 9]]]
    check(blend, shapes=pairs, types=["f32", "i32", "i64"], devices=[device], shift=3)
    check(blend, shapes=pairs, first=True, devices=[device])


def test_work_groups_beside_their_function(device: str) -> None:
    shapes = [[[1]], [[5, 7]], [[2, 3, 65]], [[4, 1, 3, 33]]]
    check(row_softmax, shapes=shapes, scale=0.5, devices=[device])
    check(row_softmax, shapes=shapes[1:3], types=["f16"], tolerance=2e-3, devices=[device])


def test_work_groups_in_networks_of_unknown_sizes(device: str) -> None:
    """Between two operators that lie otherwise: turned around, from ONNX, for several sizes."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["turned"], perm=[1, 0]),
        helper.make_node("RowSoftmax", ["turned"], ["y", "s"], domain=DOMAIN, scale=2.0),
        helper.make_node("Add", ["y", "y"], ["z"]),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [info("x", TensorProto.FLOAT, ["n", 6])],
        [info("z", TensorProto.FLOAT, None), info("s", TensorProto.FLOAT, None)],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    with Core() as core:
        executable = core.load_network(core.read_network(model), device)
        for n in (5, 40, 5, 1):
            x = np.random.default_rng(n).standard_normal((n, 6)).astype(np.float32)
            answer = executable.infer({"x": x})
            y, sums = row_softmax(x.T, scale=2.0)
            np.testing.assert_allclose(answer["z"], 2 * y, rtol=1e-5, atol=1e-7)
            np.testing.assert_allclose(answer["s"], sums, rtol=1e-5)
        if device == "GPU":
            kernels = executable.get_exec_graph_info().nodes()
            assert any(n.rt_info.get("primitiveType") == "python_operation" for n in kernels)


def test_work_groups_that_cannot_be() -> None:
    def body(x, y, sums):
        """y_set(0, 1);"""

    def groups(x, **_):
        return 1

    for said, arguments in {
        "work_groups=3 is no function": {"work_groups": 3},
        "local_size=0; legal": {"work_groups": groups, "local_size": 0},
        "local memory 'p' is 'float'": {"work_groups": groups, "local": {"p": "float"}},
        "local memory 'p' is 'bool": {"work_groups": groups, "local": {"p": "bool[3]"}},
        "'scale' names two things": {"work_groups": groups, "local": {"scale": "int[3]"}},
        "local memory is a work-group's": {"local": {"p": "int[3]"}},
    }.items():
        with pytest.raises(NetworkError, match=said):
            row_softmax.opencl(**arguments)(body)
    with pytest.raises(NetworkError, match="2 parameters where .* 1 inputs, all given, and 2 out"):
        row_softmax.opencl(work_groups=groups)(lambda x, y: None)


@pytest.mark.usefixtures("needs_gpu")
def test_what_fails_in_a_work_group_is_said_with_its_place() -> None:
    @polydevice.operation("Broken", domain=DOMAIN, shapes="same")
    def broken(x):
        return x

    def groups(x):
        if x[0] == 1:
            raise ShapeError("x is too short")
        return x[0] - 2 if x[0] != 9 else {}["nine"]

    @broken.opencl(
        work_groups=groups,
        local_size=1,
    )
    def body(x, y):
        """
        for (int i = 0; i < x_elements; i++)
            y_set(i, no_such_name);
        """

    lines, first = inspect.getsourcelines(body)
    at = first + next(n for n, line in enumerate(lines) if "no_such_name" in line)
    with Core() as core, pytest.raises(KernelBuildError, match="no_such_name") as caught:
        core.load_network(core.read_network(onnx_model("Broken", {"x": [3]})), "GPU")
    assert f"{Path(__file__).name}:{at}" in str(caught.value)
    for size, told in (
        (2, r"returns 0 for \[2\]; legal"),
        (1, "x is too short"),
        (9, "its function for work-groups failed: KeyError"),
    ):
        with Core() as core, pytest.raises(ShapeError, match=told):
            core.load_network(core.read_network(onnx_model("Broken", {"x": [size]})), "GPU")


def test_checks_that_would_check_nothing() -> None:
    for nothing in ({"shapes": []}, {"types": []}, {"devices": []}, {"types": "f32"}):
        with pytest.raises(OptionValueError, match="tries nothing"):
            check(swish, **nothing)
    with pytest.raises(ElementTypeError, match="unknown element type 'float'"):
        check(swish, types=["float"])
    with pytest.raises(OptionValueError, match="what polydevice.operation made"):
        check(np.exp)


@pytest.mark.usefixtures("needs_gpu")
def test_what_is_wrong_is_found() -> None:
    @polydevice.operation("Wrong", domain=DOMAIN)
    def wrong(x):
        return x + 1

    @wrong.opencl
    def _(x):
        """return x + 1.5f;"""

    with pytest.raises(AssertionError, match="Wrong on GPU, f32 .* elements differ"):
        check(wrong, devices=["GPU"])


@pytest.mark.parametrize("seed", [0, 1])
def test_in_an_onnx_file(device: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((3, 13)).astype(np.float32)
    model = onnx_model("Swish", {"x": [3, 13]}, beta=2.0)
    positive = np.maximum(x, 0)
    with Core() as core:
        executable = core.load_network(core.read_network(model), device)
        if device == "GPU":  # one kernel for all three
            layers = executable.get_exec_graph_info().nodes()
            kernels = [n for n in layers if n.rt_info.get("primitiveType", "").startswith("elem")]
            assert len(kernels) == 1
        for _ in range(2):
            answer = executable.infer({"x": x})["z"]
            np.testing.assert_allclose(answer, 2 * swish(positive, beta=2.0), rtol=2e-5, atol=1e-6)


def test_unknown_sizes(device: str) -> None:
    with Core() as core:
        executable = core.load_network(
            core.read_network(onnx_model("Blend", {"x": ["n", 4], "w": [4]})), device
        )
        for n in (1, 6, 3):
            x, w = np.random.default_rng(n).standard_normal((2, n, 4)).astype(np.float32)
            answer = executable.infer({"x": x, "w": w[0]})["z"]
            np.testing.assert_allclose(answer, 2 * blend(np.maximum(x, 0), w[0]), rtol=1e-5)


def test_in_an_ir_file(device: str) -> None:
    content = net(
        parameter(0, "x", (2, 3))
        + layer(1, "y", "swish", {"beta": "0.25"}, [(0, "FP32", (2, 3))], [(1, "FP32", (2, 3))],
                version=DOMAIN)
        + result(2, "out", (2, 3)),
        edges((0, 0, 1, 0), (1, 1, 2, 0)),
    )  # fmt: skip
    x = np.random.default_rng(5).standard_normal((2, 3)).astype(np.float32)
    with Core() as core:
        (answer,) = core.load_network(core.read_network(content, b""), device).infer(x).values()
    np.testing.assert_allclose(answer, swish(x, beta=0.25), rtol=2e-5)


def test_several_outputs_by_a_function_for_shapes(device: str) -> None:
    check(halves, shapes=[[[4, 3]], [[7, 2, 5]]], devices=[device])
    assert halves.op(axes=(0,)).attributes() == {"axes": (0,)}


def test_only_the_rules_count() -> None:
    @polydevice.operation("Liar", domain=DOMAIN, shapes="same", types="i32")
    def liar(x, *, how: str = "shape"):
        return x[:1].astype(np.int32) if how == "shape" else x

    for how, said in (("shape", r"returns shape \[1, 3\]"), ("type", "returns float32 where")):
        with pytest.raises(NetworkError, match=said):
            liar.op(how=how).compute([np.zeros((2, 3), np.float32)])

    @polydevice.operation("Fails", domain=DOMAIN)
    def fails(x):
        raise ZeroDivisionError("on purpose")

    with pytest.raises(NetworkError, match="Fails: its function failed: .*on purpose"):
        fails.op().compute([np.zeros(3)])


def test_what_cannot_be_an_operation() -> None:
    with pytest.raises(NetworkError, match="not for operations of yours"):
        polydevice.operation("Relu", domain="opset")
    with pytest.raises(ShapeError, match="shapes='equal' is no rule"):
        polydevice.operation("A", domain=DOMAIN, shapes="equal")(lambda x: x)
    with pytest.raises(ElementTypeError, match="'f33' is not known"):
        polydevice.operation("A", domain=DOMAIN, types="f33")(lambda x: x)

    def with_dict(x, *, table: dict):
        return x

    for domain in ("opset1", "opset", "onnx", "ai.onnx.ml", "polydevice_gpu", None, 3):
        with pytest.raises(NetworkError, match="domain"):
            polydevice.operation("A", domain=domain)
    with pytest.raises(NetworkError, match="the name of an operation is a text"):
        polydevice.operation(7)

    async def later(x):
        return x

    with pytest.raises(NetworkError, match="a function that returns arrays"):
        polydevice.operation("A", domain=DOMAIN)(later)
    with pytest.raises(NetworkError, match="made of a function"):
        polydevice.operation("A", domain=DOMAIN)("text")
    for types in (3, [], None, [3], ["f32", None]):
        with pytest.raises(ElementTypeError, match="A: "):
            polydevice.operation("A", domain=DOMAIN, types=types)(lambda x: x)
    with pytest.raises(ShapeError, match=r"shapes=\[1\] is no rule"):
        polydevice.operation("A", domain=DOMAIN, shapes=[1])(lambda x: x)
    for reserved in ("infer", "compute", "definition", "type", "attributes"):
        function = eval(f"lambda x, *, {reserved}=1: x")
        with pytest.raises(NetworkError, match=f"'{reserved}' cannot be an attribute"):
            polydevice.operation("A", domain=DOMAIN)(function)
    with pytest.raises(NetworkError, match="attribute 'table'"):
        polydevice.operation("A", domain=DOMAIN)(with_dict)
    with pytest.raises(NetworkError, match="defined already"):
        polydevice.operation("Swish", domain=DOMAIN)(with_dict)


def test_a_cell_that_runs_again_replaces_its_operation() -> None:
    def define(factor: float) -> polydevice.testing.custom_operation.CustomOperation:
        @polydevice.operation("Again", domain=DOMAIN)
        def again(x):
            return x * factor

        return again

    for factor in (2.0, 3.0):
        define(factor)
        with Core() as core:
            network = core.read_network(onnx_model("Again", {"x": [2]}))
            answer = core.load_network(network, "CPU").infer(np.float32([1, 2]))["z"]
        np.testing.assert_array_equal(answer, 2 * factor * np.float32([1, 2]))


def test_opencl_bodies_that_cannot_be() -> None:
    with pytest.raises(NetworkError, match="computes an element"):
        halves.opencl(lambda x: x)
    with pytest.raises(NetworkError, match="takes 2 elements where the operation has 1"):
        swish.opencl(lambda x, y: x)
    with pytest.raises(NetworkError, match="no text with a `return`"):
        swish.opencl(lambda x: x)


@pytest.mark.usefixtures("needs_gpu")
def test_errors_of_the_compiler_name_the_line_of_the_python_file() -> None:
    @polydevice.operation("Misspelt", domain=DOMAIN)
    def misspelt(x):
        return x

    @misspelt.opencl
    def body(x):
        """
        float y = x;
        return y + unknown_name;
        """

    lines, first = inspect.getsourcelines(body)
    at = first + next(n for n, line in enumerate(lines) if "unknown_name" in line)
    with Core() as core, pytest.raises(KernelBuildError, match="unknown_name") as caught:
        core.load_network(core.read_network(onnx_model("Misspelt", {"x": [2]})), "GPU")
    assert f"{Path(__file__).name}:{at}" in str(caught.value)
    shown = re.search(r"^> *\d+: (.*)$", str(caught.value), re.MULTILINE)
    assert shown and shown[1] == "return y + unknown_name;"


def test_whole_numbers_are_floats_in_opencl_too(device: str) -> None:
    @polydevice.operation("Scaled", domain=DOMAIN)
    def scaled(x, *, top: float = 2.25, beta: float):
        return np.minimum(x + 1 / np.float32(beta), np.float32(top))

    @scaled.opencl
    def _(x):
        """return min(x + 1 / beta, top);"""

    with Core() as core:
        network = core.read_network(onnx_model("Scaled", {"x": [2]}, beta=2))
        found = core.load_network(network, device).infer({"x": np.float32([1, 2])})["z"]
    np.testing.assert_array_equal(found, [3, 4.5])  # the model doubles them


def test_a_function_that_writes_into_its_input_is_refused(device: str) -> None:
    @polydevice.operation("Writes", domain=DOMAIN)
    def writes(x):
        x += 1
        return x

    given = np.zeros(3, np.float32)
    with Core() as core, pytest.raises(NetworkError, match=r"Writes: .*read-only"):
        network = core.read_network(onnx_model("Writes", {"x": [3]}))
        core.load_network(network, device).infer({"x": given})
    assert not given.any()


def test_texts_and_other_processes() -> None:
    @polydevice.operation("Louder", domain=DOMAIN)
    def louder(x):
        return np.array([each.upper() + "!" for each in x.reshape(-1)], object).reshape(x.shape)

    check(louder, types=["string"])
    assert pickle.loads(pickle.dumps(swish)) is swish


def test_networks_made_in_python() -> None:
    op = swish.op(beta=3.0)
    assert op.infer([polydevice.TensorDesc(ElementType.f32, polydevice.Shape([2, -1]))])
    assert (op.type, op.domain, op.beta) == ("Swish", DOMAIN, 3.0)
