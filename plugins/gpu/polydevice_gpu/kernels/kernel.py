"""Kernel: one way to compute an operation on a device, and the table of all of them.

    @kernel(Det)
    class DetRef(SingleLaunch):
        source = "linear_algebra/det_ref.cl"

        def describe(self, call, op, mode): ...

The order in which kernels of an operation are declared is their order of preference; the last
one's name ends in ``Ref`` and it takes everything the operation allows: any layout and pitches,
every type that the device stores, odd sizes.
"""

from __future__ import annotations

import functools
import importlib
import operator
import pkgutil
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar, TypeVar

from polydevice.dataclass import dataclass
from polydevice.dtype import ElementType
from polydevice.ops.op import Op
from polydevice.ops.python_operation import PythonOperation
from polydevice.symbolic_trace import chosen
from polydevice_gpu.graph import GpuNode, Value
from polydevice_gpu.kernels.launch import Launch
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.layout import Layout, ordered, planar

Mode = Mapping[str, int]
"""Values of a kernel's tunable macros."""


class Kernel(ABC):
    """One way to compute an operation. Without state: one instance serves all nodes."""

    name: ClassVar[str] = ""
    """Name of the entry point in `source`, and in reports and tuning files."""
    source: ClassVar[str] = ""
    """The .cl file, as a path in the folder of kernels; by default beside the module, so named."""
    modes: ClassVar[Sequence[Mode]] = ({},)
    """Variants; a choice is a kernel's name and the number of its mode."""
    fixes_layout: ClassVar[bool] = False
    """Whether results must lie exactly as `output_layouts` says, whoever reads them."""
    reads_tiles: ClassVar[bool] = False
    """Whether rows of its first input may lie in tiles, see `tile_rows`."""
    writes_tiles: ClassVar[bool] = False
    """Whether every store of its first result asks for its place, in vectors of up to eight."""

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Say why this kernel cannot run the node on the device; empty when it can."""
        return ""

    def fuses(self, node: GpuNode) -> bool:
        """Whether pointwise operations on the result can be computed before it is stored."""
        return len(node.outputs) == 1

    def yields(self, node: GpuNode, target: Target) -> str:
        """Say why a later kernel is expected to be faster; tuning tries this one in any case."""
        return ""

    def input_layouts(self, node: GpuNode, target: Target) -> dict[int, Layout]:
        """Return the layouts that inputs must have; those not named may lie in any way."""
        return {}

    def input_storage(self, node: GpuNode, target: Target) -> dict[int, ElementType]:
        """Return the types in which inputs must be stored; those not named are read as they are."""
        return {}

    def accepts_layout(self, node: GpuNode, index: int, layout: Layout, target: Target) -> bool:
        """Whether input `index` may lie so: as `input_layouts` says, or in any way."""
        wanted = self.input_layouts(node, target).get(index)
        return wanted is None or layout.same_as(wanted, node.inputs[index].shape)

    def output_layouts(self, node: GpuNode, target: Target) -> list[Layout]:
        """Return how the results lie; the inputs have their layouts already.

        By default in the order of the first input of the same rank, so that channels-last data
        stays channels-last from layer to layer.
        """
        return [follow(value, node.own_inputs) for value in node.outputs]

    def default_mode(self, node: GpuNode, target: Target) -> int:
        """Return the number of the mode that is expected to be fastest."""
        return 0

    def general_mode(self, mode: int) -> int:
        """Return the mode that serves as many sizes as possible where this one is the fastest."""
        return mode

    def mode_supports(self, node: GpuNode, mode: Mode, target: Target) -> bool:
        """Whether a mode can run the node."""
        return True

    @abstractmethod
    def launches(self, node: GpuNode, mode: Mode, target: Target) -> list[Launch]:
        """Return the launches that compute the node, in order."""


class SingleLaunch(Kernel):
    """A kernel that computes a node in one launch, which it describes."""

    def launches(self, node: GpuNode, mode: Mode, target: Target) -> list[Launch]:
        """Return the launch."""
        call = Call(self.name, self.source, node, target)
        self.describe(call, node.op, mode)
        return [call.launch()]

    @abstractmethod
    def describe(self, call: Call, op: Any, mode: Mode) -> None:
        """Declare tensors, macros, scalars and NDRange of an operation of the kernel's type."""


def follow(value: Value, inputs: Sequence[Value]) -> Layout:
    """Lay `value` out in the order that the axes of the largest input of its rank lie in."""
    alike = [v for v in inputs if v.rank == value.rank and v.constant is None]
    if not alike:
        return planar(value.shape)
    orders = [v.placed.order(v.shape) for v in alike]
    largest = 0
    if any(order != orders[0] for order in orders):
        for number in range(1, len(alike)):
            pair = alike[largest].elements, alike[number].elements
            if chosen(functools.partial(operator.lt, *pair)):
                largest = number
    return ordered(value.shape, orders[largest])


@dataclass(frozen=True)
class Choice:
    """The kernel that runs a node, and its mode: the pair that a tuning file stores."""

    kernel: Kernel
    mode: int = 0
    tuned: str = field(default="", compare=False)
    """What timed it: "tuning" or "the pretuned file"; empty where it is expected to be fast."""
    stands_for: str = field(default="", compare=False)
    """The choice whose program is not built yet; empty where this one is meant to stay."""
    passed: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Kernel that would come first → why it was not taken."""

    def __str__(self) -> str:
        modes = len(self.kernel.modes) > 1
        return f"{self.kernel.name}[{self.mode}]" if modes else self.kernel.name


K = TypeVar("K", bound=type[Kernel])

_PACKAGE = __name__.rpartition(".")[0]

_TABLE: dict[type[Op], list[Kernel]] = {}


def kernel(*ops: type[Op]) -> Callable[[K], K]:
    """Enter a kernel in the table, after those declared before it.

    Raises:
        ValueError: when an operation already has a kernel of that name.
    """

    def register(cls: K) -> K:
        if not cls.name:
            cls.name = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", cls.__name__).lower()
        if not cls.source:
            room = cls.__module__.removeprefix(f"{_PACKAGE}.").rpartition(".")[0]
            cls.source = f"{room.replace('.', '/')}/{cls.name}.cl"
        instance = cls()
        for op in ops:
            known = _TABLE.setdefault(op, [])
            if any(other.name == cls.name for other in known):
                raise ValueError(f"{op.__name__} already has a kernel {cls.name}")
            known.append(instance)
        return cls

    return register


def kernels_of(op: type[Op]) -> list[Kernel]:
    """Return the kernels of an operation, best first; empty when there is none."""
    _load()
    if issubclass(op, PythonOperation):  # each is a class of its own, made when it is defined
        op = PythonOperation
    return _TABLE.get(op, [])


def all_kernels() -> dict[type[Op], list[Kernel]]:
    """Return the whole table."""
    _load()
    return _TABLE


@functools.cache
def _load() -> None:
    """Import every module of the package, which fills the table."""
    package = importlib.import_module(_PACKAGE)
    for module in pkgutil.walk_packages(package.__path__, f"{_PACKAGE}."):
        importlib.import_module(module.name)
