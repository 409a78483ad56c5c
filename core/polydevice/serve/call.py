"""Call: an inference that a client asks for, once it is read and checked; and its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from math import prod
from typing import TYPE_CHECKING, Any

from polydevice.dataclass import dataclass
from polydevice.dtype import Array
from polydevice.errors import BlobError, nearest
from polydevice.runtime.port_info import PortInfo
from polydevice.serve.datatypes import datatype_of
from polydevice.serve.refusal import Reason, RefusedError

if TYPE_CHECKING:
    from polydevice.serve.models.model import ServedModel

MOST_DIMENSIONS = 32
MOST_SIZE = 1 << 31
MOST_ELEMENTS = 1 << 48


@dataclass
class Call:
    """An inference.

    Attributes:
        model: the model that runs it.
        id: the client's name for it; it comes back with the answer.
        inputs: name → array, of the type and a shape of that input.
        outputs: names of the outputs that are wanted, in order.
        seconds: how long the client waits; None leaves it to the server's limits.
    """

    model: ServedModel
    id: str = ""
    inputs: dict[str, Array] = field(default_factory=dict)
    outputs: Sequence[str] = ()
    seconds: float | None = None

    def port(self, name: object, datatype: object, shape: object) -> tuple[PortInfo, Any]:
        """Return the input that a tensor is for, and its shape, before its data is looked at.

        Raises:
            RefusedError: there is no such input, it comes twice, or type or shape do not fit.
        """
        inputs = self.model.inputs
        if not isinstance(name, str) or name not in inputs:
            shown = str(name)[:80]
            raise RefusedError(
                Reason.INVALID,
                f"model {self.model.name!r} has no input {shown!r}; inputs: {', '.join(inputs)}."
                + nearest(shown, inputs),
            )
        if name in self.inputs:
            raise RefusedError(Reason.INVALID, f"input {name!r} is given twice")
        port = inputs[name]
        if datatype != datatype_of(port.element_type):
            raise RefusedError(
                Reason.INVALID,
                f"input {name!r} has datatype {datatype_of(port.element_type)}, not "
                f"{str(datatype)[:40]!r}",
            )
        sizes = _sizes(name, shape)
        try:
            port.check(port.element_type, sizes)
        except BlobError as error:
            raise RefusedError(Reason.INVALID, str(error)) from None
        return port, sizes

    def complete(self, wanted: Sequence[object]) -> None:
        """Note which outputs are wanted, none meaning all, and check that nothing lacks.

        Raises:
            RefusedError: an input lacks, or there is no such output.
        """
        lacking = [name for name in self.model.inputs if name not in self.inputs]
        if lacking:
            raise RefusedError(Reason.INVALID, f"inputs lack: {', '.join(lacking)}")
        outputs = self.model.outputs
        for name in wanted:
            if not isinstance(name, str) or name not in outputs:
                raise RefusedError(
                    Reason.INVALID,
                    f"model {self.model.name!r} has no output {str(name)[:80]!r}; outputs: "
                    f"{', '.join(outputs)}",
                )
        if len(set(wanted)) != len(wanted):
            raise RefusedError(Reason.INVALID, "an output is asked for twice")
        self.outputs = [str(name) for name in wanted] or list(outputs)
        self.model.check_items(self.inputs)

    def note_parameters(self, given: Mapping[str, Any], known: Sequence[str] = ()) -> None:
        """Take the parameters of a request; `known` ones are the caller's own.

        Raises:
            RefusedError: for one that is not supported: without it the answer would be another.
        """
        for name, value in given.items():
            if name == "timeout":
                if type(value) is not int or not 0 <= value < 1 << 62:
                    raise RefusedError(
                        Reason.INVALID, "parameter 'timeout' is a number of microseconds, 0 or more"
                    )
                self.seconds = value / 1e6 or None
            elif name not in known:
                legal = ", ".join(["timeout", *known])
                raise RefusedError(
                    Reason.INVALID,
                    f"parameter {str(name)[:80]!r} is not supported; supported: {legal}",
                )


def _sizes(name: str, shape: object) -> tuple[int, ...]:
    sizes = tuple(shape) if isinstance(shape, Sequence) and not isinstance(shape, str) else None
    if sizes is None or not all(type(size) is int and 0 <= size < MOST_SIZE for size in sizes):
        raise RefusedError(
            Reason.INVALID,
            f"input {name!r} needs a shape: a list of integers from 0 to {MOST_SIZE - 1}",
        )
    if len(sizes) > MOST_DIMENSIONS:
        raise RefusedError(
            Reason.INVALID, f"input {name!r} has more than {MOST_DIMENSIONS} dimensions"
        )
    if prod(size or 1 for size in sizes) > MOST_ELEMENTS:  # NumPy has no such shape, empty or not
        raise RefusedError(
            Reason.INVALID, f"input {name!r} has too large a shape: {str(list(sizes))[:200]}"
        )
    return sizes
