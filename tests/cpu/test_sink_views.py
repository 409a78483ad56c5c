"""Functions of single numbers come before what shows a product in another shape."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cpu.test_passes import run, values

F = np.float32

VIEWED = {
    "one function": ([("Tanh", ["v"], ["y"], {})], ["MatMul", "Tanh", "Reshape"]),
    "views of views": (
        [
            ("Transpose", ["v"], ["t"], {"perm": [2, 0, 1]}),
            ("Mul", ["two", "t"], ["m"], {}),
            ("Unsqueeze", ["m", "axis"], ["u"], {}),
            ("Sigmoid", ["u"], ["y"], {}),
        ],
        ["MatMul", "Sigmoid", "Reshape", "Transpose", "Unsqueeze"],
    ),
    "a number of more axes": ([("Add", ["v", "deep"], ["y"], {})], ["MatMul", "Reshape", "Add"]),
    "numbers along an axis": ([("Add", ["v", "row"], ["y"], {})], ["MatMul", "Reshape", "Add"]),
    "read twice": (
        [("Tanh", ["v"], ["t"], {}), ("Mul", ["t", "v"], ["y"], {})],
        ["MatMul", "Reshape", "Tanh", "Multiply"],
    ),
    "no product": (
        [
            ("Softmax", ["v"], ["s"], {}),
            ("Reshape", ["s", "pattern"], ["r"], {}),
            ("Tanh", ["r"], ["y"], {}),
        ],
        ["MatMul", "Reshape", "SoftMax", "Reshape", "Tanh"],
    ),
}


@pytest.mark.parametrize("name", VIEWED)
def test_functions_come_before_views_of_a_product(core, name):
    nodes, expected = VIEWED[name]
    weights = {
        "w": values(5, 6), "row": values(6), "two": F(2), "axis": np.array([1]),
        "deep": values(1, 1, 1), "pattern": np.array([2, 3, 6]),
    }  # fmt: skip
    head = [("MatMul", ["x", "w"], ["p"], {}), ("Reshape", ["p", "pattern"], ["v"], {})]
    assert run(core, [*head, *nodes], weights, values(6, 5)) == expected
