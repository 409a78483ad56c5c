"""Models with an operator of a function of Python."""

from __future__ import annotations

from onnx import TensorProto, helper

DOMAIN = "tests.python_operation"


def onnx_model(kind: str, inputs: dict[str, list], **attributes) -> bytes:
    """Write relu → the operator → ×2."""
    names = list(inputs)
    nodes = [
        helper.make_node("Relu", [names[0]], ["positive"]),
        helper.make_node(kind, ["positive", *names[1:]], ["y"], domain=DOMAIN, **attributes),
        helper.make_node("Add", ["y", "y"], ["z"]),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [info("z", TensorProto.FLOAT, None)],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
