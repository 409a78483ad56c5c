"""Call: puts one launch together from a kernel's .cl file and the node that it runs.

Sizes and pitches are arguments of the kernel, so that layers which differ only in size share one
program: compiling a kernel costs 80 ms on PoCL 3.1 (10 ms to parse, 70 ms to vectorise) against
some ns to read an argument. What changes the code is a macro: types, which pitches are 0 or 1,
fused operations, window sizes and tiles. The same upper-case name may be either, and the .cl file
does not care.

For every tensor ``T`` (IN0, IN1, …, OUT0, …, EXT0, … of the epilogue) a kernel gets

    T_LOAD(i)          element i in its compute type        T_LOAD4(i)   a vector of neighbours
    T_STORE(i, v)      store an element                     T_STORE4(i, v)
    T_AT(c0, c1, …)    index of the element at these coordinates

and for the result, epilogue included,

    WRITE(v, c0, c1, …)            store one element
    WRITE4(v, c0, c1, …)           store 4 neighbours along the last coordinate
    WRITE4_FIRST(n, v, c0, c1, …)  the first n of them
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from importlib import resources

import numpy as np

from polydevice.dtype import ElementType
from polydevice.shape import stay_equal
from polydevice.symbolic_size import largest
from polydevice_gpu.graph import Border, GpuNode, Place, Value
from polydevice_gpu.kernels import types
from polydevice_gpu.kernels.addressing import (
    Groups,
    aligned_widths,
    operand_step,
    spread,
    step_along,
)
from polydevice_gpu.kernels.launch import Argument, Body, Launch, Local, Weights, scalar, single
from polydevice_gpu.kernels.pointwise.expression import literal
from polydevice_gpu.kernels.pointwise.fragment import (
    ROUNDED_DIVISIONS,
    Operand,
    needs_rounding,
    user_functions,
    write_functions,
)
from polydevice_gpu.kernels.row_tiles import IN_ROW_TILES
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.layout import Layout, collapse
from polydevice_gpu.ops import Fused

_LOCAL_ARRAY = (
    "#define LOCAL_ARRAY(type, name, count, rest, alignment) "
    "__local type name[count] rest __attribute__((aligned(alignment)))"
)
"""Declares ``type name[count] rest`` in local memory; only a kernel itself can have any."""

_INSIDE = (
    "{ if (get_global_id(0) < ITEMS_X) name##_inside(ARGUMENTS); } void name##_inside(PARAMETERS)"
)
"""Lets those work-items run what follows that are not beyond the end."""

_GROUP = 8
"""Work-items of such groups: 4 to 64 are equally fast on PoCL, and few rows have many groups."""

_INCLUDE = re.compile(r'^#include "(include/\w+\.cl)"\n', re.MULTILINE)


class Call:
    """One launch in the making.

    Attributes:
        node: what it computes.
        target: the device.
    """

    def __init__(self, kernel: str, source: str, node: GpuNode, target: Target) -> None:
        self.node = node
        self.target = target
        self._kernel = kernel
        self._source = source
        self._macros: list[str] = []
        self._functions: list[str] = []
        self._attributes: list[str] = []
        self._parameters: list[str] = []
        self._names: list[str] = []
        self._arguments: list[Argument] = []
        self._options: tuple[str, ...] = ()
        self._global: tuple[int, ...] = (1,)
        self._local: tuple[int, ...] | None = None
        self._anywhere = False
        self._across = 0  # work-items along x that have something to do; 0 for all

    # -- what a kernel declares -------------------------------------------------------------------

    def define(self, **macros: object) -> None:
        """Fix names at compile time; each set of values is a program of its own."""
        for name, value in macros.items():
            if isinstance(value, bool):
                value = int(value)
            elif isinstance(value, float):
                value = f"{value!r}f"
            self._macros.append(f"#define {name} {value}")

    def scalars(self, **values: float | np.generic) -> None:
        """Pass numbers at launch; one program serves every value."""
        for name, value in values.items():
            if isinstance(value, (float, np.floating)):
                self._parameter(f"const float {name}", name, scalar(np.float32, value))
            else:
                self._parameter(f"const int {name}", name, scalar(np.int32, value))

    def tensor(
        self, role: str, value: Value, groups: Groups | None = None, widths: Sequence[int] = ()
    ) -> None:
        """Declare an input or output and how coordinates address it.

        Args:
            role: IN0, OUT0 …
            value: the tensor.
            groups: the axes behind each coordinate; None gives every axis its own.
            widths: vector widths in which it is read or written, at multiples along the last
                coordinate; see `vectors_anywhere`.
        """
        axes: Groups = [(axis,) for axis in range(value.rank)] if groups is None else groups
        self.pointer(role, value)
        self.access(role, value.storage, self.aligned(value.placed, value.shape, axes, widths))
        self.index(role, value, value.placed, value.shape, axes)

    def pointer(self, role: str, value: Value) -> None:
        """Declare the buffer of a tensor alone; `tensor` does all that is usual."""
        const = "" if role.startswith("OUT") else "const "
        kind = types.c_type(value.storage)
        self._parameter(f"__global {const}{kind}* restrict {role.lower()}", role.lower(), value)

    def operand(
        self,
        role: str,
        value: Value,
        layout: Layout,
        shape: Sequence[int],
        groups: Groups,
        widths: Sequence[int] = (),
    ) -> None:
        """Declare an input of a fragment; a constant of one element becomes a plain argument."""
        if value.constant is None or value.elements != 1:
            self.pointer(role, value)
            part = role if value.border is None else f"{role}_INSIDE"
            aligned = self.aligned(layout, shape, groups, widths)
            if value.border is not None:  # which shifts what is read by how wide it is
                aligned = dict.fromkeys(aligned, False)
            self.access(role, value.storage, aligned, part)
            self.index(part, value, layout, shape, groups)
            if value.border is not None:
                self._bordered(role, value, value.border, groups, widths)
            return
        name = f"{role}_VALUE"
        kind = types.compute_type(value.storage)
        self._parameter(
            f"const {kind} {name}", name, single(np.asarray(value.constant), value.storage, kind)
        )
        coordinates = ", ".join(f"c{n}" for n in range(len(groups)))
        self.define(**{f"{role}_LOAD(i)": name, f"{role}_AT({coordinates})": 0})

    def _bordered(
        self, role: str, value: Value, border: Border, groups: Groups, widths: Sequence[int]
    ) -> None:
        """Define an operand that is a number where it is not in memory: its index is -1 there.

        ``<role>_WHOLE<width>`` says whether a vector along the last coordinate lies inside.
        """
        within: dict[int, str] = {}
        for axis, (first, count) in enumerate(border.inside):
            if stay_equal(count, value.shape[axis]):
                continue
            number, group = next((n, list(g)) for n, g in enumerate(groups) if axis in g)
            place = group.index(axis)
            names = {f"{role}_FIRST{axis}": first, f"{role}_COUNT{axis}": count}
            names[f"{role}_UNDER{axis}"] = math.prod(value.shape[a] for a in group[place + 1 :])
            names[f"{role}_SIZE{axis}"] = value.shape[axis]
            self.scalars(**names)
            coordinate = f"(c{number}) / {role}_UNDER{axis} % {role}_SIZE{axis}"
            within[axis] = f"(uint)({coordinate} - {role}_FIRST{axis}) < (uint){role}_COUNT{axis}"
        names_ = ", ".join(f"c{number}" for number in range(len(groups)))
        at = f"{role}_INSIDE_AT({names_})"
        if within:  # or the sizes happen to be those that it is padded to
            at = f"({' && '.join(within.values())} ? {at} : -1)"
        self.define(**{f"{role}_AT({names_})": at})
        inner = next((axis for axis in reversed(groups[-1]) if axis in within), None)
        for width in widths if inner is not None else ():
            # Behind the innermost border of the last coordinate all lies side by side.
            under = f"{role}_UNDER{inner}"
            along = f"(c{len(groups) - 1}) % ({role}_SIZE{inner} * {under})"
            run = f"{role}_COUNT{inner} * {under}"
            starts = f"(uint)({along} - {role}_FIRST{inner} * {under}) <= (uint)({run} - {width})"
            parts = [f"{run} >= {width}", starts]
            parts += [text for axis, text in within.items() if axis != inner]
            self.define(**{f"{role}_WHOLE{width}({names_})": f"({' && '.join(parts)})"})
        kind = types.compute_type(value.storage)
        real = kind in ("float", "double")
        fill = literal(border.fill, kind) if real else f"{int(border.fill)}"
        for width in (1, *widths):
            tail = "" if width == 1 else str(width)
            read = f"((i) < 0 ? ({kind}{tail})({fill}) : {role}_INSIDE_LOAD{tail}(i))"
            self.define(**{f"{role}_LOAD{tail}(i)": read})

    def access(
        self,
        role: str,
        storage: ElementType,
        widths: Mapping[int, bool] | None = None,
        macro: str = "",
    ) -> None:
        """Define how elements of a tensor are read and written.

        Args:
            role: the tensor's name.
            storage: type of its elements.
            widths: vector widths wanted, and whether every such vector is aligned.
            macro: what the macros begin with; by default the tensor's name.
        """
        name, role = role.lower(), macro or role
        self.define(**{f"{role}_T": types.c_type(storage)})
        kind = types.compute_type(storage)
        self.define(**{f"{role}_C": kind})
        for width, at_multiple in {1: True, **(widths or {})}.items():
            tail = "" if width == 1 else str(width)
            aligned = at_multiple and (width == 1 or not self._reads_anywhere)
            otherwise = types.At.ANYWHERE if self.target.is_throughput else types.At.LOOSE
            at = types.At.MULTIPLES if aligned else otherwise
            read = types.load(storage, name, "(i)", width, at)
            self.define(**{f"{role}_LOAD{tail}(i)": read})
            if role.startswith("OUT"):
                text = types.store(storage, name, "(i)", "(v)", width, at)
                self.define(**{f"{role}_STORE{tail}(i, v)": text})

    def aligned(
        self, layout: Layout, shape: Sequence[int], groups: Groups, widths: Sequence[int]
    ) -> dict[int, bool]:
        """Return for each width whether its vectors are read and written as aligned ones."""
        if self._reads_anywhere:  # then it does not matter how the sizes turn out
            return dict.fromkeys(widths, False)
        return aligned_widths(layout, shape, groups, widths)

    def vectors_anywhere(self) -> None:
        """Say, before tensors are declared, that vectors begin at other than multiples, too."""
        self._anywhere = True

    @property
    def _reads_anywhere(self) -> bool:
        """Processor cores read vectors from anywhere as fast: one program serves all sizes."""
        return self._anywhere or (self.target.sizes_vary and not self.target.is_throughput)

    def index(
        self, role: str, value: Value, layout: Layout, shape: Sequence[int], groups: Groups
    ) -> None:
        """Define ``role_AT``; pitches other than 0 and 1 become arguments."""
        terms = []
        weights = value.memory is not None and value.memory.place is Place.WEIGHTS
        if not weights or layout.offset:  # weights have one where they are part of a constant
            self.scalars(**{f"{role}_OFFSET": layout.offset})
            terms.append(f"{role}_OFFSET")
        for number, axes in enumerate(groups):
            blocks = collapse([(shape[a], layout.pitches[a]) for a in axes])
            terms += self._terms(role, number, blocks)
        names = ", ".join(f"c{number}" for number in range(len(groups)))
        at = "(" + (" + ".join(terms) or "0") + ")"
        if value.memory is not None and value.memory.row_tiles:
            if IN_ROW_TILES not in self._functions:
                self.function(IN_ROW_TILES)
            at = f"in_row_tiles({at}, {value.memory.row_tiles})"
        self.define(**{f"{role}_AT({names})": at})

    def unravel(self, macro: str, prefix: str, shape: Sequence[int]) -> None:
        """Define ``macro(i)``, which declares the coordinates of element i of a row-major shape.

        Args:
            macro: its name; may be used once in a block.
            prefix: coordinates are called ``<prefix>0``, ``<prefix>1`` …
            shape: sizes.
        """
        steps = [f"int {prefix}_rest = (i);"]
        for axis in reversed(range(1, len(shape))):
            name = f"{macro}_{axis}"
            self.scalars(**{name: max(shape[axis], 1)})
            steps.append(f"const int {prefix}{axis} = {prefix}_rest % {name};")
            steps.append(f"{prefix}_rest /= {name};")
        if shape:
            steps.append(f"const int {prefix}0 = {prefix}_rest;")
        self.define(**{f"{macro}(i)": " ".join(steps)})

    def buffer(self, role: str, argument: Argument, c_type: str, *, written: bool = False) -> None:
        """Declare a buffer that is no tensor of the graph: packed weights, scratch memory."""
        const = "" if written else "const "
        self._parameter(
            f"__global {const}{c_type}* restrict {role.lower()}", role.lower(), argument
        )

    def weights(self, role: str, form: Weights, widths: Sequence[int] = ()) -> None:
        """Declare packed weights, read with ``role_LOAD`` at multiples of the width."""
        self.buffer(role, form, types.c_type(form.storage))
        self.access(role, form.storage, dict.fromkeys(widths, True))

    def local(self, role: str, c_type: str, elements: int) -> None:
        """Declare local memory given by the launch."""
        size = {"float": 4, "int": 4, "uint": 4, "half": 2, "ushort": 2, "double": 8}[c_type]
        self._parameter(
            f"__local {c_type}* restrict {role.lower()}", role.lower(), Local(size * elements)
        )

    def result(
        self,
        groups: Groups | None = None,
        widths: Sequence[int] = (),
    ) -> None:
        """Declare the first output as OUT0, with the node's epilogue, and WRITE.

        Args:
            groups: the axes behind each coordinate, as for `tensor`.
            widths: vector widths in which WRITE is needed; the last coordinate is the vector's.
        """
        node = self.node
        value = node.output
        axes: Groups = [(axis,) for axis in range(value.rank)] if groups is None else groups
        self.tensor("OUT0", value, axes, widths)
        extras = node.extra_inputs
        for number, extra in enumerate(extras):
            self.operand(f"EXT{number}", extra, spread(extra, value), value.shape, axes, widths)
        self._functions += write_functions(
            node.epilogue,
            [
                Operand(f"EXT{n}", operand_step(extra, spread(extra, value), value.shape, axes))
                for n, extra in enumerate(extras)
            ],
            len(axes),
            widths,
            types.compute_type(node.result_type),
            types.compute_type(value.storage),
            contiguous=step_along(value.placed, value.shape, axes) == 1,
            whole_vectors=not self.target.is_throughput,
        )

    def dispatch(self, global_size: Sequence[int], local_size: Sequence[int] | None = None) -> None:
        """Set the NDRange; sizes are rounded up to multiples of the local size.

        Without a local size no work-item sees another one. Drivers for processor cores compile a
        kernel anew for every local size, some 100 ms on PoCL, and choose it by the global size: a
        network whose sizes vary has groups of one size there, and work-items beyond end at once.

        Their number is not limited: NVIDIA's OpenCL knows nothing of CUDA's 65,535 work-groups
        along y and z (1,300,003 tried, driver 580.159.04).
        """
        if local_size is None:
            self._global = tuple(largest([size, 1]) for size in global_size)
            if not self.target.sizes_vary or self.target.is_throughput:
                return
            self._across = self._global[0]
            is_one = stay_equal(self._across, 1)
            local_size = (1 if is_one else _GROUP, *[1] * (len(global_size) - 1))
        self._local = tuple(local_size)
        self._global = tuple(
            -(-largest([g, 1]) // n) * n for g, n in zip(global_size, local_size, strict=True)
        )

    def function(self, text: str) -> None:
        """Add a function that the .cl file uses; ``PARAMETERS`` is complete there."""
        self._functions.append(text)

    def attribute(self, text: str) -> None:
        """Give the entry point an attribute."""
        self._attributes.append(text)

    def options(self, *options: str) -> None:
        """Add options of the OpenCL compiler."""
        self._options += options

    # -- the result -------------------------------------------------------------------------------

    def launch(self) -> Launch:
        """Return the finished launch."""
        attributes = self._attributes
        if self._local is not None:
            size = ", ".join(str(n) for n in (*self._local, 1, 1)[:3])
            attributes = [*attributes, f"reqd_work_group_size({size})"]
        attribute = "".join(f"__attribute__(({text})) " for text in attributes)
        parameters, arguments = ", ".join(self._parameters), self._arguments
        kernel = f"{attribute}__kernel void name({parameters})"
        is_bounded = self._local is not None and self._across > 0 and self._local[0] > 1
        if is_bounded:
            arguments = [*arguments, scalar(np.int32, self._across)]
            kernel = f"{attribute}__kernel void name({parameters}, const int ITEMS_X)"
            kernel = f"void name##_inside(PARAMETERS); {kernel} {_INSIDE}"
        head = [
            f"#define ARGUMENTS {', '.join(self._names)}",
            # Without restrict: functions are inlined, and it would only come back as metadata
            # that oclgrind 21.10 does not know.
            f"#define PARAMETERS {parameters.replace(' restrict', '')}",
            f"#ifndef KERNEL\n#define KERNEL(name) {kernel}",
            f"{_LOCAL_ARRAY}\n#endif",
        ]
        op = self.node.op
        fragments = (self.node.epilogue, op.fragment if isinstance(op, Fused) else None)
        users = dict(text for fragment in fragments for text in user_functions(fragment))
        parts = [*self._macros, *head, *users, *self._functions]
        if self.node.output.storage is ElementType.f16:
            parts[:0] = _short_functions("\n".join(self._functions))
        parts += [_read(self._source), *users.values()]
        own_size = any("sub_group" in text for text in self._attributes)
        sub_groups = own_size or any(text.startswith("#define SHARE ") for text in self._macros)
        preludes, text = tuple(_prelude(self.node, self.target)), "\n".join(parts)
        body = Body(preludes, text, tuple(self._parameters), sub_groups)
        if any(needs_rounding(fragment) for fragment in fragments):
            self.options(ROUNDED_DIVISIONS)
        return Launch(
            self._kernel,
            "\n".join([*preludes, text]),
            self._global,
            self._local,
            arguments,
            self._options,
            body=None if users or is_bounded else body,
        )

    def _parameter(self, text: str, name: str, argument: Argument) -> None:
        self._parameters.append(text)
        self._names.append(name)
        self._arguments.append(argument)

    def _terms(self, role: str, number: int, blocks: list[tuple[int, int]]) -> list[str]:
        """Write one coordinate's share of an index."""
        coordinate = f"(c{number})"
        terms = []
        for place, (size, pitch) in enumerate(reversed(blocks)):
            outermost = place == len(blocks) - 1
            part = coordinate
            if not outermost:
                name = f"{role}_N{number}_{place}"
                self.scalars(**{name: size})
                part = f"({coordinate} % {name})"
                coordinate = f"({coordinate} / {name})"
            if pitch == 0:
                continue
            if pitch == 1:
                terms.append(part)
            else:
                tail = f"_{place}" if len(blocks) > 1 else ""
                name = f"{role}_P{number}{tail}"
                self.scalars(**{name: pitch})
                terms.append(f"{part} * {name}")
        return terms


def _short_functions(text: str) -> list[str]:
    """Give functions that are used their shorter forms, for results in half."""
    names = [f"GELU_float{n}" for n in ("", 2, 4, 8, 16) if f"GELU_float{n}(" in text]
    return [f"#define {name} {name.replace('GELU', 'GELU_HALF')}" for name in names]


def _prelude(node: GpuNode, target: Target) -> list[str]:
    used = [value.storage.value for value in (*node.inputs, *node.outputs)]
    lines = []
    if "f64" in used:
        lines.append("#pragma OPENCL EXTENSION cl_khr_fp64 : enable")
    if "f16" in used:
        lines.append(_read("include/half.cl"))
    if not target.is_throughput:
        lines.append(_read("include/loose.cl"))
    return [*lines, _read("include/pointwise.cl")]


@functools.cache
def _read(name: str) -> str:
    """Return a .cl file, by its path in the folder of kernels, with what it includes."""
    text = resources.files("polydevice_gpu.kernels").joinpath(name).read_text("utf-8")
    return _INCLUDE.sub(lambda found: _read(found[1]), text)
