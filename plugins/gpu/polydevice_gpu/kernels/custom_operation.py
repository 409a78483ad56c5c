"""Kernels of operations that users write in Python with a work-group's body in OpenCL C."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from polydevice.errors import PolydeviceError, ShapeError
from polydevice.ops.opencl_body import LOCAL_TYPES, OpenClGroupBody
from polydevice.ops.python_operation import PythonOperation
from polydevice_gpu.graph import GpuNode, Value
from polydevice_gpu.kernels import types
from polydevice_gpu.kernels.kernel import Kernel, Mode, kernel
from polydevice_gpu.kernels.launch import Argument, Launch, Local
from polydevice_gpu.kernels.reason import unless
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.layout import Layout, planar

_NUMBERS = {bool: np.int32, int: np.int32, float: np.float32}
_C_NUMBERS = {bool: "int", int: "int", float: "float"}


@kernel(PythonOperation)
class PythonOperationRef(Kernel):
    """What the user's body for a work-group does."""

    name = "python_operation"
    source = "custom_operation.py"
    fixes_layout = True

    def refuses(self, node: GpuNode, target: Target) -> str:
        """The body names every input and output, and a group of its size exists here."""
        body = _body(node)
        items = int(np.prod(body.local_size))
        shared = sum(LOCAL_TYPES[kind] * count for kind, count in body.local.values())
        tensors = len(node.inputs) + len(node.outputs)
        half = any(kind == "half" for kind, _ in body.local.values())
        named, most = len(body.parameters), target.max_work_group_size
        return unless(
            (named == tensors, f"its OpenCL body names {named} of {tensors} inputs and outputs"),
            (items <= most, f"its work-groups have {items} items, and the device's {most} at most"),
            (
                not target.local_memory_bytes or shared <= target.local_memory_bytes,
                f"it shares {shared} bytes, and a work-group has {target.local_memory_bytes}",
            ),
            (not half or target.fp16_arithmetic, "it shares half, which the device has not"),
            (
                target.fp64 or all(kind != "double" for kind, _ in body.local.values()),
                "it shares double, which the device has not",
            ),
        )

    def fuses(self, node: GpuNode) -> bool:
        """Nothing: the body writes what it likes when it likes."""
        return False

    def input_layouts(self, node: GpuNode, target: Target) -> dict[int, Layout]:
        """Return row-major order for all."""
        return {number: planar(value.shape) for number, value in enumerate(node.inputs)}

    def accepts_layout(self, node: GpuNode, index: int, layout: Layout, target: Target) -> bool:
        """Exactly row-major: a body counts elements from the pointer."""
        return not layout.offset and layout.same_as(
            planar(node.inputs[index].shape), node.inputs[index].shape
        )

    def output_layouts(self, node: GpuNode, target: Target) -> list[Layout]:
        """Return row-major order for all."""
        return [planar(value.shape) for value in node.outputs]

    def launches(self, node: GpuNode, mode: Mode, target: Target) -> list[Launch]:
        """Return the launch of the body.

        Raises:
            ShapeError: the function for the number of work-groups fails, or returns none.
        """
        body, op = _body(node), node.op
        assert isinstance(op, PythonOperation)
        declared: list[str] = []
        arguments: list[Argument] = []
        macros: list[str] = []
        for name, value in zip(body.parameters, [*node.inputs, *node.outputs], strict=True):
            is_output = any(value is each for each in node.outputs)
            const = "" if is_output else "const "
            declared.append(f"__global {const}{types.c_type(value.storage)}* restrict {name}")
            arguments.append(value)
            macros += _macros(name, value, is_output=is_output)
        for name, value in zip(body.parameters, [*node.inputs, *node.outputs], strict=True):
            sizes = {f"{name}_size{axis}": size for axis, size in enumerate(value.shape)}
            for label, size in {**sizes, f"{name}_elements": value.elements}.items():
                declared.append(f"const int {label}")
                arguments.append(np.int32(size))
        for name, number in op.attributes().items():
            kind = type(number)
            declared.append(f"const {_C_NUMBERS[kind]} {name}")
            arguments.append(_NUMBERS[kind](number))
        for name, (kind_, count) in body.local.items():
            declared.append(f"__local {kind_}* restrict {name}")
            arguments.append(Local(LOCAL_TYPES[kind_] * count))
        entry = "python_" + re.sub(r"\W", "_", op.type, flags=re.ASCII)
        text = _source(entry, body, declared, macros, node)
        global_size = _global_size(node, op, body)
        return [Launch(entry, text, global_size, body.local_size, arguments, is_custom=True)]


def _body(node: GpuNode) -> OpenClGroupBody:
    assert isinstance(node.op, PythonOperation)
    body = node.op.definition.group
    assert body is not None, f"{node.op.type} has no body for work-groups"
    return body


def _macros(name: str, value: Value, *, is_output: bool) -> list[str]:
    """Return how elements are read, and of outputs also written."""
    lines = [f"#define {name}_at(i) {types.load(value.storage, name, '(i)')}"]
    if is_output:
        stored = types.store(value.storage, name, "(i)", "(v)")
        lines.append(f"#define {name}_set(i, v) ({stored})")
    return lines


def _source(
    entry: str,
    body: OpenClGroupBody,
    declared: Sequence[str],
    macros: Sequence[str],
    node: GpuNode,
) -> str:
    """Write the program; errors of the compiler name the Python file and the line there."""
    file = body.file.replace("\\", "/").replace('"', "'")
    sizes = ", ".join(str(n) for n in [*body.local_size, 1, 1][:3])
    double = any(value.storage.value == "f64" for value in [*node.inputs, *node.outputs])
    head = ["#pragma OPENCL EXTENSION cl_khr_fp64 : enable"] if double else []
    half = any(kind == "half" for kind, _ in body.local.values())
    head += ["#pragma OPENCL EXTENSION cl_khr_fp16 : enable"] if half else []
    return "\n".join(
        [
            f"// {entry}: a work-group's body of an operation written in Python",
            *head,
            *macros,
            f"__attribute__((reqd_work_group_size({sizes})))",
            f"__kernel void {entry}(",
            ",\n".join(f"    {each}" for each in declared),
            ") {",
            f'#line {body.line} "{file}"',
            body.body,
            "}",
        ]
    )


def _global_size(node: GpuNode, op: PythonOperation, body: OpenClGroupBody) -> tuple[int, ...]:
    shapes = [value.shape for value in node.inputs]
    title = op.definition.title
    try:
        answer: Any = body.work_groups(*shapes, **op.attributes())
    except PolydeviceError:
        raise
    except Exception as error:
        raise ShapeError(f"{title}: its function for work-groups failed: {error!r}") from error
    groups = tuple(answer) if isinstance(answer, (tuple, list)) else (answer,)
    counts = all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in groups)
    if len(groups) != len(body.local_size) or not counts or min(groups, default=0) < 1:
        raise ShapeError(
            f"{title}: its function for work-groups returns {answer!r} for "
            f"{', '.join(str(list(shape)) for shape in shapes)}; legal: as many numbers from 1 as "
            f"local_size has ({len(body.local_size)})"
        )
    return tuple(int(n) * size for n, size in zip(groups, body.local_size))
