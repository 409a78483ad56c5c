"""Isolation: one step of the device by itself, fed with the reference's values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polydevice.comparison.checkpoints import Checkpoint, read_from_outside
from polydevice.comparison.sides import as_kept
from polydevice.dataclass import dataclass
from polydevice.dtype import Array
from polydevice.network import Network
from polydevice.node import Port


@dataclass(frozen=True)
class Isolated:
    """A step as a network of its own.

    Attributes:
        network: the step's nodes; inputs ``input_0``…, one output ``output_0``.
        inputs: name → the reference's value.
        expected: the reference's value of the output.
    """

    network: Network
    inputs: Mapping[str, Array]
    expected: Array


def isolate(
    network: Network,
    checkpoint: Checkpoint,
    values: Mapping[Port, Array],
    config: Mapping[str, Any],
) -> Isolated | None:
    """Cut a step out of a network; None where a value that it reads or makes is not there.

    Args:
        network: that the step belongs to.
        checkpoint: what leaves the step.
        values: the reference's, of what enters the step and what leaves it.
        config: of the device, which says in which type it keeps what leaves the step.
    """
    ports = read_from_outside(checkpoint)
    if checkpoint.port not in values or any(port not in values for port in ports):
        return None
    names = {port: f"input_{number}" for number, port in enumerate(ports)}
    part = network.extract(
        checkpoint.layers, names, {checkpoint.port: "output_0"}, name=checkpoint.port.name
    )
    part.reshape({name: values[port].shape for port, name in names.items()})
    (result,) = part.results
    result.inputs = [as_kept(result.inputs[0], config)]
    part.infer()
    inputs = {name: values[port] for port, name in names.items()}
    return Isolated(part, inputs, values[checkpoint.port])
