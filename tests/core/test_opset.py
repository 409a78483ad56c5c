"""`polydevice.opset`: networks written in Python."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice import Core, ElementType, operation, opset
from polydevice.errors import ElementTypeError, NetworkError, ShapeError
from polydevice.ops.op import operations

pytestmark = pytest.mark.usefixtures("compiled_sparingly")


@pytest.mark.parametrize("seed", [0, 1])
def test_a_network_of_ten_lines(device: str, seed: int, tmp_path) -> None:
    rng = np.random.default_rng(seed)
    weights, shift = rng.standard_normal((5, 7)).astype(np.float32), np.float32(0.5)
    x = opset.parameter([-1, 5], "f32", name="x")
    first, second = opset.split(opset.matmul(x, weights), opset.constant(1), num_splits=7)[:2]
    joined = opset.concat(first, opset.add(second, shift), axis=1)
    network = opset.network("ten", {"y": opset.relu(joined), "most": opset.reduce_max(x, [1])})
    network.serialize(tmp_path / "ten.xml")
    with Core() as core:
        read = core.read_network(tmp_path / "ten.xml")
        for each in (network, read):
            executable = core.load_network(each, device)
            for rows in (3, 1, 8):
                given = rng.standard_normal((rows, 5)).astype(np.float32)
                answers = executable.infer({"x": given})
                product = given @ weights[:, :2] + np.float32([0, 0.5])
                np.testing.assert_allclose(answers["y"], np.maximum(product, 0), atol=1e-5)
                np.testing.assert_array_equal(answers["most"], given.max(1))


def test_against_openvino(tmp_path) -> None:
    openvino = pytest.importorskip("openvino")
    rng = np.random.default_rng(4)
    weights = rng.standard_normal((4, 3, 3, 3)).astype(np.float32)
    image = opset.parameter([2, 3, 9, 7], name="image")
    features = opset.convolution(
        image, weights, strides=(2, 1), pads_begin=[1, 0], pads_end=[0, 1], dilations=(1, 1)
    )
    network = opset.network("conv", [opset.softmax(opset.hswish(features), axis=1)])
    network.serialize(tmp_path / "conv.xml")
    given = rng.standard_normal((2, 3, 9, 7)).astype(np.float32)
    config = {"INFERENCE_PRECISION_HINT": "f32"}
    theirs = openvino.Core().compile_model(tmp_path / "conv.xml", "CPU", config)([given])[0]
    with Core() as core:
        (ours,) = core.load_network(network, "CPU").infer(given).values()
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_every_operation_has_a_function() -> None:
    functions = dir(opset)
    assert {"relu", "mat_mul", "lstm_cell", "reduce_l1", "variadic_split"} <= set(functions)
    assert opset.relu.__name__ == opset.re_lu.__name__
    for cls in operations():
        if cls.type not in ("Constant", "Const", "Parameter", "Result"):
            assert callable(getattr(opset, cls.type.lower())), cls.type


def test_what_does_not_fit_is_said_where_it_is_written() -> None:
    x = opset.parameter([2, 3], "f32", name="x")
    with pytest.raises(ShapeError, match=r"\[2,3\] and \[5\] cannot be broadcast"):
        opset.add(x, np.zeros(5, np.float32))
    with pytest.raises(ElementTypeError, match="not f32 and i64"):
        opset.matmul(x, [[1], [2], [3]])
    with pytest.raises(NetworkError, match="no attribute 'stride'.*Did you mean 'strides'"):
        opset.convolution(x, x, stride=2)
    with pytest.raises(NetworkError, match="SoftMax: .*axes|no attribute 'axes'"):
        opset.softmax(x, axes=1)
    with pytest.raises(AttributeError, match="Did you mean 'relu'"):
        opset.relux  # noqa: B018
    with pytest.raises(NetworkError, match="unknown element type 'f33'"):
        opset.parameter([1], "f33", name="x")
    with pytest.raises(NetworkError, match="is no value of a network"):
        opset.network("n", [[x]])


def test_inputs_of_a_network() -> None:
    a, b = (opset.parameter([2], name=name) for name in "ab")
    total = opset.add(b, a)
    assert list(opset.network("n", [total]).inputs) == ["b", "a"]
    unused = opset.parameter([1], name="unused")
    assert list(opset.network("n", [total], [a, b, unused]).inputs) == ["a", "b", "unused"]
    with pytest.raises(NetworkError, match="reads 'b', which is not among its inputs"):
        opset.network("n", [total], [a])
    with pytest.raises(NetworkError, match="is no input"):
        opset.network("n", [total], [a, b, total])
    with pytest.raises(NetworkError, match="two inputs of one name"):
        opset.network("n", [opset.add(a, opset.parameter([2], name="a"))])


X = opset.parameter([2, 3], "f32", name="x")
WRONG = {
    "no constant": lambda: opset.constant({"a": 1}),
    "is no array": lambda: opset.constant([[1, 2], [3]]),
    "None .* is no constant": lambda: opset.constant(None),
    "unknown element type 'f33'": lambda: opset.constant(1, "f33"),
    "3 .int. is no element type": lambda: opset.constant(1, 3),
    "are texts, which f32 cannot hold": lambda: opset.constant("abc", "f32"),
    "300 .int. does not fit into u8": lambda: opset.constant(300, "u8"),
    "1.5. .list. does not fit into i32": lambda: opset.constant([1.5], "i32"),
    "the name of a constant 3": lambda: opset.constant(1, name=3),
    "input 'x': 3 .int. is no shape": lambda: opset.parameter(3, name="x"),
    "input 'x': a size=1.5": lambda: opset.parameter([1.5], name="x"),
    "the name of an input 3": lambda: opset.parameter([1], name=3),
    "an input needs a name": lambda: opset.parameter([1], name=""),
    "are no outputs": lambda: opset.network("n", None),
    r"\[\] .list. are no outputs": lambda: opset.network("n", []),
    "the name of a network 3": lambda: opset.network(3, [X]),
    "the name of an output 3": lambda: opset.network("n", {3: X}),
    "3 .int. are no inputs": lambda: opset.network("n", [X], 3),
    "'x' .str. is no value": lambda: opset.network("n", [X], ["x"]),
    r"cannot be broadcast; given: f32\[2,3\], float32\[4\]": lambda: opset.add(
        X, np.zeros(4, np.float32)
    ),
    r"given: f32\[2,3\], int32\[3\]": lambda: opset.add(X, np.zeros(3, np.int32)),
    r"given: f32\[2,3\]$": lambda: opset.add(X),
    "Add: input 1: None": lambda: opset.add(X, None),
    "SoftMax: axis=.one. .str. is not legal": lambda: opset.softmax(X, axis="one"),
    "SoftMax: axis=True": lambda: opset.softmax(X, axis=True),
    "strides=3 .int. is not legal": lambda: opset.convolution(X, X, strides=3),
    "destination_type='f99'": lambda: opset.convert(X, destination_type="f99"),
    "rounding_type='up' .str. is not legal: legal: floor": lambda: opset.max_pool(
        X, kernel=(2,), rounding_type="up"
    ),
    r"Concat\(f32\[2,3\]\): it needs the attribute 'axis'": lambda: opset.concat(X),
    "the name of a node 3": lambda: opset.relu(X, name=3),
}


@pytest.mark.parametrize("said", WRONG, ids=lambda said: said[:30])
def test_what_is_wrong_is_said_with_what_was_given(said: str) -> None:
    with pytest.raises(NetworkError, match=said):
        WRONG[said]()


def test_names_of_types_and_lists_stand_for_attributes_and_texts_for_constants() -> None:
    pooled = opset.max_pool(
        opset.parameter([1, 2, 5, 5], "f32", name="x"), kernel=[2, 2], strides=[2, 2],
        pads_begin=[0, 0], pads_end=[0, 0], rounding_type="ceil",
    )  # fmt: skip
    first = pooled[0] if isinstance(pooled, list) else pooled
    assert first.shape == (1, 2, 3, 3)
    assert opset.convert(X, destination_type="f16").element_type is ElementType.f16
    assert opset.constant(["a", "b"]).element_type is ElementType.string
    assert opset.constant(255, "u8").node.constant == 255
    assert opset.network("n", X).inputs.keys() == {"x"}


def test_operations_of_ones_own_beside_standard_ones_of_their_name() -> None:
    @operation("Swish", domain="tests.opset")
    def swish(x, *, beta: float = 1.0):
        return x / (1 + np.exp(-beta * x))

    x = opset.parameter([1, 7], "f32", name="x")
    with pytest.raises(NetworkError, match=r"opset\.custom\(swish\)"):
        swish(x)
    with pytest.raises(NetworkError, match="is no operation of yours"):
        opset.custom(len)
    network = opset.network("own", {"y": opset.custom(swish)(opset.relu(x), beta=2.0)})
    value = np.arange(-3, 4, dtype=np.float32)[None]
    positive = np.maximum(value, 0)
    with Core() as core:
        answer = core.load_network(network, "CPU").infer({"x": value})["y"]
    np.testing.assert_allclose(answer, positive / (1 + np.exp(-2 * positive)), rtol=1e-6)
