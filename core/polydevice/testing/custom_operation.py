"""check: an operation of the user's on every device beside its own NumPy function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polydevice.core import Core
from polydevice.dtype import Array, ElementType
from polydevice.errors import OptionValueError
from polydevice.network import Network
from polydevice.node import Node
from polydevice.ops.custom_operation import CustomOperation
from polydevice.ops.io import Parameter, Result
from polydevice.shape import Shape

SHAPES = ((1,), (7,), (3, 5), (2, 3, 17), (1, 33, 1, 65), (2, 0, 3))
"""Odd sizes, sizes of 1, no elements."""


def check(
    operation: CustomOperation,
    *,
    shapes: Sequence[Sequence[Sequence[int]]] | None = None,
    types: Sequence[str] = ("f32",),
    devices: Sequence[str] | None = None,
    tolerance: float = 1e-5,
    seed: int = 0,
    **attributes: Any,
) -> None:
    """Run an operation on devices with random data and compare with its function.

    Every network runs three times: with two sets of data, and once more with the first.

    Args:
        operation: what `polydevice.operation` made.
        shapes: for each network the shapes of the inputs; by default some odd ones, the same for
            all inputs, without those that may be left out and with them.
        types: element types of all inputs, each tried.
        devices: names; all that are available when left out.
        tolerance: largest difference, relative to the largest element.
        seed: of the data: normal floats, integers from -50 to 50, texts of up to 8 characters.
        **attributes: of the operation.

    Raises:
        AssertionError: naming device, shapes and the first element that differs.
        NetworkError: an attribute lacks, is not known, or is of another type.
        OptionValueError: nothing would be tried, or an argument is not legal.
    """
    if not isinstance(operation, CustomOperation):
        raise OptionValueError(f"check() takes what polydevice.operation made, not {operation!r}")
    least, most = operation.input_counts
    counts = {least, max(least, 2) if most is None else most}
    tried = shapes
    if tried is None:
        counts -= {0} if most != 0 else set()
        tried = [[shape] * count for count in sorted(counts) for shape in SHAPES]
    for name, given in (("shapes", tried), ("types", types), ("devices", devices)):
        if given is not None and (isinstance(given, str) or not len(given)):
            raise OptionValueError(f"{name}={given!r} tries nothing; give a list of some, or None")
    kinds = [ElementType.parse(kind) for kind in types]
    rng = np.random.default_rng(seed)
    with Core() as core:
        for device in devices or core.available_devices:
            for kind in kinds:
                for sizes in tried:
                    _check_on(core, operation, device, kind, sizes, attributes, tolerance, rng)


def _check_on(
    core: Core,
    operation: CustomOperation,
    device: str,
    element_type: ElementType,
    sizes: Sequence[Sequence[int]],
    attributes: dict[str, Any],
    tolerance: float,
    rng: np.random.Generator,
) -> None:
    parameters = [
        Node(f"input{number}", Parameter(element_type, Shape(size)))
        for number, size in enumerate(sizes)
    ]
    node = Node("operation", operation.make(**attributes), [p.output for p in parameters])
    results = [
        Node(f"output{n}/result", Result(output_name=f"output{n}"), [port])
        for n, port in enumerate(node.outputs)
    ]
    executable = core.load_network(Network(operation.name, parameters, results), device)
    first, second = ([_random(element_type, size, rng) for size in sizes] for _ in range(2))
    for arrays in (first, second, first):
        expected = operation.function(*arrays, **attributes)
        expected = expected if isinstance(expected, (tuple, list)) else [expected]
        answers = executable.infer({f"input{n}": array for n, array in enumerate(arrays)})
        what = f"{operation.title} on {device}, {element_type} {[list(size) for size in sizes]}"
        for number, want in enumerate(expected):
            got = answers[f"output{number}"]
            _compare(f"{what}, output {number}", got, np.asarray(want), tolerance)
    executable.close()


def _random(kind: ElementType, size: Sequence[int], rng: np.random.Generator) -> Array:
    if kind.is_float:
        return rng.standard_normal(size).astype(kind.dtype)
    if kind is ElementType.boolean:
        return rng.integers(0, 2, size).astype(np.bool_)
    if kind is ElementType.string:
        texts = np.empty(size, object)
        texts.reshape(-1)[:] = ["aé, Z 9"[: n % 9] for n in rng.integers(0, 9, texts.size)]
        return texts
    return rng.integers(0 if kind.value.startswith("u") else -50, 51, size).astype(kind.dtype)


def _compare(what: str, got: Array, want: Array, tolerance: float) -> None:
    assert got.shape == want.shape, f"{what}: shape {got.shape}, the function gives {want.shape}"
    right = np.asarray(got == want, np.bool_)
    if got.dtype != object:
        a, b = got.astype(np.float64), want.astype(np.float64)
        bound = tolerance * float(np.abs(b[np.isfinite(b)]).max(initial=0))
        right = right | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= bound)
    if not right.all():
        index = tuple(int(i) for i in np.argwhere(~right)[0])
        raise AssertionError(
            f"{what}: {int((~right).sum())} of {right.size} elements differ; first at "
            f"{list(index)}: {got[index]!r}, the function gives {want[index]!r}"
        )
