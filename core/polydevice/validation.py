"""validate: what a model file asks for and which devices could run it, without loading it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from polydevice.arguments import integer, options, shown
from polydevice.core import Core
from polydevice.dataclass import dataclass
from polydevice.errors import (
    DeviceNameError,
    ModelLimitError,
    OptionValueError,
    PolydeviceError,
    nearest,
)
from polydevice.files.safe_open import noting_paths
from polydevice.network import Network
from polydevice.readers.limits import ReadLimits

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice.readers import ModelSource


_DIGITS = 100
"""Longest text that is taken for a number; Python itself refuses to convert thousands of digits."""


_AS_MANY_AS_IT_TAKES = (1 << 31) - 1
"""A trip count from here on states none: exporters write the largest int32 or int64."""


@dataclass(frozen=True)
class ValidationLimits(ReadLimits):
    """Bounds of `validate`: those of reading, and on what was read.

    Attributes:
        constant_bytes: elements of all constants together, in bytes.
        string_bytes: texts among the constants, in bytes of UTF-8.
        loop_trips: iterations that a Loop states, times those of the loops around it; one that
            states none ends by its condition alone, and is listed without being refused.
    """

    constant_bytes: int = 1 << 40
    string_bytes: int = 1 << 30
    loop_trips: int = 1_000_000

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> ValidationLimits:
        """Make limits of name → number, the others as they are.

        Raises:
            OptionValueError: for an unknown name, or what is no integer of 0 or more.
        """
        known = [each.name for each in dataclasses.fields(cls)]
        found = {}
        for name, value in options(values, "limits", OptionValueError).items():
            if name not in known:
                raise OptionValueError(
                    f"there is no limit {name!r}.{nearest(name, known)} Legal: {', '.join(known)}"
                )
            short = isinstance(value, str) and value.isdecimal() and len(value) <= _DIGITS
            number = int(value) if short else value
            found[name] = integer(number, name, OptionValueError, least=0)
        return cls(**found)


@dataclass(frozen=True)
class Problem:
    """Why a model was refused: the exception's name, and its message."""

    error: str
    message: str


@dataclass
class Validation:
    """What `validate` found.

    Attributes:
        problems: empty for a model that can be read within the limits.
        files: every path that reading it asks for, in order, whether or not it may be opened.
        counts: nodes, depth of bodies, bytes of constants and texts, largest tensor and rank.
        loops: loop → iterations that it states, times those of the loops around it; None where
            only its condition ends it.
        operations: operation ("MatMul opset1") → how many, bodies included.
        devices: device → node → why the device cannot run it; empty where it runs them all.
    """

    problems: list[Problem] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    loops: dict[str, int | None] = field(default_factory=dict)
    operations: dict[str, int] = field(default_factory=dict)
    devices: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def is_valid(self) -> bool:
        """Whether the model can be read within the limits."""
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """Return everything as what JSON can hold."""
        return {"is_valid": self.is_valid, **dataclasses.asdict(self)}


def validate(
    model: ModelSource,
    weights: ModelSource | None = None,
    *,
    limits: ReadLimits | Mapping[str, Any] | None = None,
    devices: Sequence[str] | None = None,
) -> Validation:
    """Read a model and check what it asks for, without loading it on a device.

    Args:
        model: as for `Core.read_network`.
        weights: likewise.
        limits: `ValidationLimits`, or name → number of those that differ from the defaults.
        devices: which to ask what they can run; None asks all that are there, and [] none.

    Returns:
        What was found. A model that is refused is no exception but a problem in it.

    Raises:
        OptionValueError: for limits that do not exist.
        DeviceError: (a subclass) for devices that are not there.
    """
    if isinstance(limits, ReadLimits):
        bounds = ValidationLimits.of(dataclasses.asdict(limits))
    else:
        bounds = ValidationLimits.of({} if limits is None else limits)
    if devices is not None and not isinstance(devices, (list, tuple)):
        raise DeviceNameError(f"devices are a list of names, not {shown(devices)}")
    found = Validation()
    with Core() as core:
        names = core.available_devices if devices is None else list(devices)
        for name in names:  # whether it is there, also where the model turns out unreadable
            core.unsupported_nodes(Network("nothing", [], []), name)
        with noting_paths() as paths:
            try:
                network = core.read_network(model, weights, limits=bounds)
                _measure(network, found, 1, 1)
                _check(found, bounds)
            except PolydeviceError as error:
                found.problems.append(Problem(type(error).__name__, str(error)))
        found.files = paths
        if found.is_valid:
            found.devices = {name: core.unsupported_nodes(network, name) for name in names}
    return found


def _measure(network: Network, found: Validation, depth: int, around: int | None) -> None:
    counts = found.counts
    largest = {"depth": depth}
    for node in network.nodes():
        _add(found.operations, f"{node.type} {node.op.opset}", 1)
        _add(counts, "nodes", 1)
        if node.constant is not None:
            texts = node.constant.dtype == object
            size = sum(map(_text_bytes, node.constant.flat)) if texts else node.constant.nbytes
            _add(counts, "string_bytes" if texts else "constant_bytes", size)
        for port in node.outputs:
            shape = port.desc.shape
            largest["rank"] = max(largest.get("rank", 0), 0 if shape is None else len(shape))
            if shape is not None and shape.is_static:
                largest["tensor_elements"] = max(largest.get("tensor_elements", 0), shape.elements)
        trips = around
        if node.type in ("Loop", "TensorIterator"):
            trips = _trips(node, around)
            found.loops[node.name] = trips
        for body in _bodies(node):
            _measure(body, found, depth + 1, trips)
    for name, value in largest.items():
        counts[name] = max(counts.get(name, 0), value)


def _add(counts: dict[str, int], name: str, number: int) -> None:
    counts[name] = counts.get(name, 0) + number


def _text_bytes(value: object) -> int:
    return len(str(value).encode("utf-8", "surrogatepass"))


def _trips(node: Node, around: int | None) -> int | None:
    """Return how often a loop's body runs at most; None where the file does not say.

    PyTorch's ``while`` is a Loop of as many trips as an integer holds, which its condition ends.
    """
    if node.type != "Loop" or around is None:
        return None
    stated = node.inputs[0].desc.static_ints
    if not stated or not 0 <= stated[0] < _AS_MANY_AS_IT_TAKES:
        return None
    return stated[0] * around


def _bodies(node: Node) -> Iterator[Network]:
    if node.op.has_bodies:
        yield from (value for value in vars(node.op).values() if isinstance(value, Network))


def _check(found: Validation, limits: ValidationLimits) -> None:
    for name in ("constant_bytes", "string_bytes"):
        number, limit = found.counts.get(name, 0), getattr(limits, name)
        if number > limit:
            raise ModelLimitError(f"{name} is {number}, more than the limit of {limit}")
    for name, trips in found.loops.items():
        if trips is not None and trips > limits.loop_trips:
            raise ModelLimitError(
                f"loop {name!r} runs {trips} times, more than loop_trips = {limits.loop_trips}"
            )
