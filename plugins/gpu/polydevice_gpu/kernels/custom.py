"""Kernels of custom layers: built-in macros in front of the user's source."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from polydevice.errors import ModelFormatError, OptionValueError
from polydevice_gpu.custom.formula import calculate
from polydevice_gpu.custom.layer import ANY, FORMATS, CustomLayer, Define
from polydevice_gpu.custom.operation import Custom
from polydevice_gpu.graph import GpuNode, Value
from polydevice_gpu.kernels.kernel import Kernel, Mode, kernel
from polydevice_gpu.kernels.launch import Argument, Launch
from polydevice_gpu.kernels.reason import unless
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.layout import Layout, ordered

_TYPES = {"i8": "char", "u8": "uchar", "i32": "int", "i64": "long", "f16": "half", "f32": "float"}

_PLAIN = re.compile(r"[-+.,\w ]*", re.ASCII)
"""What an attribute may put into a kernel's source: numbers and words. The file of a model is not
trusted, and with brackets or lines of its own it could bring code, which PoCL runs in the process.
"""


@kernel(Custom)
class CustomRef(Kernel):
    """Whatever the user's kernel does."""

    name = "custom"
    fixes_layout = True

    def refuses(self, node: GpuNode, target: Target) -> str:
        """One output; up to four axes; types that have a name in the files' macros."""
        values = [*node.inputs, *node.outputs]
        return unless(
            (len(node.outputs) == 1, "custom layers have one output"),
            (all(value.rank <= 4 for value in values), "custom layers have up to four axes"),
            (all(v.storage.value in _TYPES for v in values), "a type has no name in its macros"),
        )

    def fuses(self, node: GpuNode) -> bool:
        """Nothing."""
        return False

    def input_layouts(self, node: GpuNode, target: Target) -> dict[int, Layout]:
        """Return what the files say; any for ports that are not named there."""
        found: dict[int, Layout] = {}
        for binding in _layer(node).bindings:
            if binding.is_input and binding.format != ANY and binding.port < len(node.inputs):
                found.setdefault(binding.port, _layout(node.inputs[binding.port], binding.format))
        return found

    def accepts_layout(self, node: GpuNode, index: int, layout: Layout, target: Target) -> bool:
        """Exactly the layout: a kernel need not care for pitches and offset."""
        wanted = self.input_layouts(node, target).get(index)
        if wanted is None:
            return True
        return not layout.offset and layout.same_as(wanted, node.inputs[index].shape)

    def output_layouts(self, node: GpuNode, target: Target) -> list[Layout]:
        """Return what the files say."""
        (binding,) = [b for b in _layer(node).bindings if not b.is_input][:1]
        form = "BFYX" if binding.format == ANY else binding.format
        return [_layout(node.output, form)]

    def launches(self, node: GpuNode, mode: Mode, target: Target) -> list[Launch]:
        """Return the user's kernel with its macros.

        Raises:
            OptionValueError: ports or work sizes do not fit this operation.
        """
        layer = _layer(node)
        ports = {b.port for b in layer.bindings if b.is_input}
        missing = [port for port in [*ports, layer.sizes_of] if port >= len(node.inputs)]
        if missing:
            raise OptionValueError(
                f"{layer.where}: {node.name} ({layer.name}) has {len(node.inputs)} inputs, so that "
                f"there is no input {missing[0]}"
            )
        sizes = node.output if layer.sizes_of < 0 else node.inputs[layer.sizes_of]
        global_size, local_size = _work_sizes(layer, sizes, node.name)
        macros = [
            f"#define NUM_INPUTS {len(node.inputs)}",
            *_array("GLOBAL_WORKSIZE", global_size),
            *_array("LOCAL_WORKSIZE", local_size),
        ]
        for number, value in enumerate(node.inputs):
            macros += _tensor_macros(f"INPUT{number}", value)
        macros += _tensor_macros("OUTPUT0", node.output)
        attributes = node.operation(Custom).original.to_ir()
        macros += [_user_macro(define, attributes, node.name) for define in layer.defines]
        text = "\n".join(
            [
                f"// {layer.name}, options: {' '.join(layer.options)}",
                *_extensions([*node.inputs, node.output]),
                *macros,
                layer.source,
            ]
        )
        arguments: list[Argument] = [
            node.inputs[b.port] if b.is_input else node.output for b in layer.bindings
        ]
        local = tuple(local_size) or None
        return [
            Launch(
                *(layer.entry, text, tuple(global_size), local, arguments, layer.options),
                is_custom=True,
            )
        ]


def _layer(node: GpuNode) -> CustomLayer:
    return node.operation(Custom).layer


def _layout(value: Value, form: str) -> Layout:
    return ordered(value.shape, [axis for axis in FORMATS[form] if axis < value.rank])


def _work_sizes(layer: CustomLayer, value: Value, name: str) -> tuple[list[int], list[int]]:
    sizes = dict(zip("BFYX", _four(value.shape)))
    try:
        global_size = [calculate(formula, sizes) for formula in layer.global_size]
        local_size = [calculate(formula, sizes) for formula in layer.local_size]
    except ValueError as error:
        raise OptionValueError(f"{layer.where}: {name}: {error}") from None
    problem = ""
    if min([*global_size, *local_size]) < 1:
        problem = "every size must be 1 or more"
    elif any(g % n for g, n in zip(global_size, local_size)):
        problem = "global sizes must be multiples of local ones"
    if problem:
        raise OptionValueError(
            f"{layer.where}: work sizes of {name} are global={global_size}, local={local_size}: "
            f"{problem}"
        )
    return global_size, local_size


def _four(sizes: Sequence[int], missing: int = 1) -> list[int]:
    return [*sizes, *[missing] * (4 - len(sizes))]


def _array(name: str, values: Sequence[int]) -> list[str]:
    items = ", ".join(str(value) for value in values)
    text = f"(int []){{ {items}, }}" if values else "(int []){ 0 }"
    return [f"#define {name} {text}", f"#define {name}_SIZE {len(values)}"]


def _tensor_macros(role: str, value: Value) -> list[str]:
    layout = value.placed
    form = next((f for f in FORMATS if layout.same_as(_layout(value, f), value.shape)), "ANY")
    # A missing axis has no neighbours; its pitch is that of one more step outwards.
    pitches = _four(layout.pitches, 1)
    return [
        *_array(f"{role}_DIMS", _four(value.shape)),
        f"#define {role}_TYPE {_TYPES[value.storage.value]}",
        f"#define {role}_FORMAT_{form}",
        *_array(f"{role}_LOWER_PADDING", (0, 0, 0, 0)),
        *_array(f"{role}_UPPER_PADDING", (0, 0, 0, 0)),
        *_array(f"{role}_PITCHES", pitches),
        f"#define {role}_OFFSET {layout.offset}",
    ]


def _user_macro(define: Define, attributes: Mapping[str, str], name: str) -> str:
    value = attributes.get(define.param) if define.param else None
    if value is not None and not _PLAIN.fullmatch(value):
        raise ModelFormatError(
            f"{name}: attribute {define.param}={value[:80]!r} cannot become the macro "
            f"{define.name}; only numbers and words with blanks, commas and signs between them can"
        )
    value = define.default if value is None else {"true": "1", "false": "0"}.get(value, value)
    if define.type in {"int[]", "float[]"}:
        value = f"({define.type}) {{{value}}}".replace("[]", " []")
    return f"#define {define.name} {value}"


def _extensions(values: Sequence[Value]) -> list[str]:
    half = any(value.storage.value == "f16" for value in values)
    return ["#pragma OPENCL EXTENSION cl_khr_fp16 : enable"] if half else []
