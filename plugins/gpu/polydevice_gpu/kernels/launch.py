"""Launch: one kernel launch, fully described but not yet bound to buffers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from typing import Any

import numpy as np

from polydevice.dataclass import dataclass
from polydevice.dtype import Array, ElementType
from polydevice.symbolic_size import SymbolicSize, is_formula, is_symbolic, mentions_sizes
from polydevice.symbolic_trace import settled
from polydevice_gpu.graph import Memory, Value


@dataclass(frozen=True)
class Weights:
    """A constant in the form that a kernel wants; made once and shared by all that want the same.

    Attributes:
        value: the constant.
        form: names the form, so that equal forms of one constant are made once.
        make: turns the constant's array into that form.
        storage: type of its elements in device memory.
        only_moves: whether `make` puts elements elsewhere and zeros beside them, and no more; then
            what is stored as f16 is rounded first, and half the bytes are moved.
    """

    value: Value
    form: str
    make: Callable[[Array], Array]
    storage: ElementType
    only_moves: bool = False


@dataclass(frozen=True, eq=False)
class Scratch:
    """Device memory of one node's launches only.

    Attributes:
        elements: how many.
        storage: their type.
        kept: whether it is zero before the first launch and is kept from one inference to the
            next; otherwise anything is in it, and others use it when the node has run.
    """

    elements: int
    storage: ElementType
    kept: bool = False


@dataclass(frozen=True)
class Local:
    """Local memory of a work-group, in bytes."""

    bytes: int


@dataclass(frozen=True, eq=False)
class Computed:
    """A number that is computed from sizes.

    Attributes:
        kind: its type as an argument.
        number: with its formula.
    """

    kind: type[np.generic]
    number: SymbolicSize


Argument = Value | Memory | Weights | Scratch | Local | Computed | np.generic


def scalar(kind: type[np.generic], value: Any) -> Computed | np.generic:
    """Return a number as an argument."""
    return Computed(kind, value) if is_symbolic(value) else kind(value)


_WIDE = {"float": np.float32, "double": np.float64, "uchar": np.uint8}


def single(constant: Array, storage: ElementType, computed: str) -> Computed | np.generic:
    """Return the only element of a constant as an argument.

    Args:
        constant: of one element.
        storage: the type in which it would be stored, to which it is rounded.
        computed: OpenCL's name of the type of the argument.
    """
    number, kind = constant.reshape(-1)[:1], storage.dtype
    if computed in ("float", "double", "int", "long") and may_vary(number, storage):
        return scalar(kind.type, number.item())
    number = number.astype(kind)
    single_: np.generic = number.astype(_WIDE.get(computed, number.dtype))[0]
    return single_


def may_vary(constant: Array, storage: ElementType) -> bool:
    """Whether a constant is computed of sizes and holds them as they are, also in other plans.

    Which limits them to what elements of that type can be.
    """
    if not is_formula(constant) or storage is ElementType.f16:
        return False
    if not storage.is_integer:
        return storage.is_float
    limits = np.iinfo(storage.dtype)
    return all(limits.min <= number <= limits.max for number in constant.reshape(-1).tolist())


@dataclass(frozen=True)
class Body:
    """A kernel's source in parts, so that another kernel can call it as a function.

    Where ``KERNEL`` and ``LOCAL_ARRAY`` are defined before the text, it is a function of whoever
    did; else it is a kernel.

    Attributes:
        preludes: what stands first, the same in many kernels.
        text: the rest.
        parameters: each as it is declared.
        sub_groups: whether it may call sub-group functions.
    """

    preludes: tuple[str, ...]
    text: str
    parameters: tuple[str, ...]
    sub_groups: bool = False


@dataclass
class Launch:
    """One launch.

    Attributes:
        kernel: name of the entry point.
        text: complete source; equal texts share one program.
        global_size: work-items in each dimension.
        local_size: work-items of a group; None leaves it to the driver.
        arguments: in the order of the entry point's parameters.
        options: of the OpenCL compiler.
        is_custom: whether the user brought the source.
        body: the source in parts; None for a text that is a kernel and nothing else.
    """

    kernel: str
    text: str
    global_size: tuple[int, ...]
    local_size: tuple[int, ...] | None
    arguments: list[Argument] = field(default_factory=list)
    options: tuple[str, ...] = ()
    is_custom: bool = False
    body: Body | None = None

    def settle(self) -> None:
        """Put numbers into its texts where they name symbolic sizes: programs are made of them."""
        self.options = tuple(map(settled, self.options))
        self.arguments = [
            replace(argument, form=settled(argument.form))
            if isinstance(argument, Weights) and mentions_sizes(argument.form)
            else argument
            for argument in self.arguments
        ]
        if mentions_sizes(self.text):
            self.text, body = settled(self.text), self.body
            if body is not None:
                preludes, parameters = map(settled, body.preludes), map(settled, body.parameters)
                self.body = Body(
                    tuple(preludes), settled(body.text), tuple(parameters), body.sub_groups
                )
