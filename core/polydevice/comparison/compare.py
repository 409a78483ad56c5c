"""compare: a model on a device beside a reference, value by value."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from polydevice.benchmark.inputs import make_inputs
from polydevice.comparison.checkpoints import (
    Checkpoint,
    checkpoints,
    groups,
    read_from_outside,
    step_of,
)
from polydevice.comparison.difference import Difference, difference
from polydevice.comparison.isolation import isolate
from polydevice.comparison.reproduction import write_reproduction
from polydevice.comparison.result import Compared, Comparison
from polydevice.comparison.sides import (
    DeviceSide,
    Side,
    infer_once,
    make_side,
    precision_config,
)
from polydevice.comparison.values_on_disk import ValuesOnDisk, values_on_disk
from polydevice.core import Core
from polydevice.dataclass import dataclass
from polydevice.dtype import Array
from polydevice.errors import OptionValueError, nearest
from polydevice.network import Network
from polydevice.node import Port
from polydevice.shape import DimLike, Shape

BOUNDS = {"": 1e-4, "f32": 1e-4, "f16": 1e-2, "bf16": 5e-2}
"""Largest difference by precision that counts as none, as a part of the largest element."""

GROUP_BYTES = 1 << 28
"""Of values that one side has in memory; a device holds them twice while they leave it."""

Progress = Callable[[int, int, str], None]
"""Told the number of values compared so far, their number in all, and the one at hand."""


def compare(
    model: Any,
    device: str = "CPU",
    *,
    against: str = "CPU",
    weights: Any = None,
    precision: str = "",
    config: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Array] | None = None,
    files: Sequence[str] = (),
    shapes: Mapping[str, Sequence[int]] | None = None,
    bound: float | None = None,
    alone: bool = False,
    reproduction: str | Path | None = None,
    seed: int = 0,
    group_bytes: int = GROUP_BYTES,
    progress: Progress | None = None,
    core: Core | None = None,
) -> Comparison:
    """Run a model on a device and on a reference with the same inputs and compare every value.

    What the device computes in one step stays one step: compared is what leaves it. A value
    differs by the errors of its step and by those that came in; `alone` tells them apart.

    Args:
        model: as `Core.read_network` takes it, or a Network.
        device: such as "GPU", "GPU.1" or "HETERO:GPU,CPU".
        against: another device of ours, computing in f32, or "onnxruntime" or "openvino", which
            read the model's file themselves.
        weights: of an IR, where its .bin has another name.
        precision: f32, f16 or bf16; by default what the device does by itself.
        config: further configuration of the device.
        inputs: name → array; random ones (normal floats, integers below 100) for those left out.
            Unknown sizes are those of the arrays.
        files: as the option -i of ``polydevice bench``: pictures, .npy or raw files.
        shapes: name → sizes of inputs. Where nothing but the first size is unknown, it is 1.
        bound: largest difference that counts as none, as a part of the reference's largest element;
            by default 1e-4 in f32, 1e-2 in f16, 5e-2 in bf16. Integers must be equal; quantised
            values may be one step apart.
        alone: also run each step by itself, fed with the reference's values.
        reproduction: folder for the smallest network that shows the difference, with its inputs,
            kernels and a script that runs by itself; written where a step by itself is beyond the
            bound. Asks for `alone`.
        seed: of the random inputs.
        group_bytes: values that are in memory at once; larger networks run several times. Those of
            the reference that later steps read stay on disk meanwhile: in ``TMPDIR``, else in
            /var/tmp.
        progress: called as values are compared.
        core: to use; its own when left out.

    Raises:
        OptionValueError: a reference that is not there, a bound or precision that is not possible.
        PolydeviceError: (a subclass) the model cannot be read, loaded or run.
    """
    allowed = BOUNDS.get(precision, BOUNDS[""]) if bound is None else bound
    if not 0 <= allowed < float("inf"):
        raise OptionValueError(f"bound {bound!r} is not possible; use a number from 0")
    start = time.monotonic()
    with _core(core) as used:
        network = model.clone() if isinstance(model, Network) else used.read_network(model, weights)
        sizes = {**_sizes_of(network, inputs or {}), **(shapes or {})}
        network.reshape({**_one_item(network), **sizes})
        configured = {**(config or {}), **precision_config(used, device, precision)}
        reference = make_side(used, against, model, network, sizes)
        executable = used.load_network(network, device, configured)
        try:
            given = make_inputs(executable.inputs, files, seed, 1)[0]
            given.update(inputs or {})
            found = checkpoints(network, executable)
            answers = executable.infer(given)
        finally:
            executable.close()
        run = _Run(used, network, device, configured, reference, given, allowed)
        outputs = run.outputs(answers, found)
        layers: list[Compared] = []
        apart = alone or reproduction is not None
        with values_on_disk() as kept:
            for group in groups(found, group_bytes):
                for layer in run.layers(group, kept, apart):
                    layers.append(layer)
                    if progress is not None:
                        progress(len(layers), len(found), layer.layer)
                unread = found[len(layers) :] if apart else []
                kept.keep_only({port for c in unread for port in read_from_outside(c)})
        made = Comparison(
            model=network.name,
            device=device,
            against=against,
            precision=precision,
            bound=allowed,
            outputs=tuple(outputs),
            layers=tuple(layers),
            seconds=time.monotonic() - start,
        )
        if reproduction is None or made.guilty is None:
            return made
        folder = Path(reproduction)
        guilty = next(c for c in found if c.port.name == made.guilty.layer)
        run.reproduce(folder, guilty, against)
        return made.written(folder)


def _sizes_of(network: Network, inputs: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
    """Return the sizes of arrays that are given for inputs of unknown sizes.

    Raises:
        OptionValueError: there is no such input.
    """
    nodes = {node.name: node for node in network.parameters}
    found = {}
    for name, value in inputs.items():
        if name not in nodes:
            raise OptionValueError(
                f"{network.name!r} has no input {name!r}; inputs: {', '.join(nodes)}."
                + nearest(name, nodes)
            )
        if not nodes[name].output.desc.is_static:
            found[name] = np.shape(value)
    return found


def _one_item(network: Network) -> dict[str, list[DimLike]]:
    """Return shapes with a batch of 1 for inputs of which nothing but the batch is unknown."""
    shapes: dict[str, list[DimLike]] = {}
    for node in network.parameters:
        shape = node.output.shape
        if shape is not None and len(shape) and not shape.is_static and Shape(shape[1:]).is_static:
            shapes[node.name] = [1, *shape[1:]]
    return shapes


@contextmanager
def _core(given: Core | None) -> Iterator[Core]:
    if given is not None:
        yield given
        return
    with Core() as own:
        yield own


@dataclass(frozen=True)
class _Run:
    """Both sides of one comparison, and the inputs they share."""

    core: Core
    network: Network
    device: str
    config: Mapping[str, Any]
    reference: Side
    given: Mapping[str, Array]
    bound: float

    def outputs(self, answers: Mapping[str, Array], found: Iterable[Checkpoint]) -> list[Compared]:
        """Compare the network's outputs, of a run in which nothing else was kept."""
        names = self.network.output_names()  # by which `infer` answers
        ports = list(zip(names, (port for _, port in self.network.output_ports()), strict=True))
        expected = self._reference_values([port for _, port in ports])
        by_port = {checkpoint.port: checkpoint for checkpoint in found}
        results = []
        for name, port in ports:
            checkpoint = by_port.get(port, Checkpoint(port, "", (port.node,)))
            apart = None
            if port in expected:
                apart = self._difference(answers[name], expected[port], port)
            results.append(replace(_compared(checkpoint, True, apart), layer=name))
        return results

    def layers(
        self, group: Sequence[Checkpoint], kept: ValuesOnDisk, alone: bool
    ) -> Iterator[Compared]:
        """Compare the values of some steps, which one side at a time has in memory.

        Args:
            group: the steps.
            kept: the reference's values that are on disk; this group's are added.
            alone: whether to run each step by itself too.
        """
        results = {port for _, port in self.network.output_ports()}
        ports = [checkpoint.port for checkpoint in group]
        entering = [p for c in group for p in read_from_outside(c)] if alone else []
        self._keep_reference([p for p in [*ports, *entering] if p not in kept], kept)
        ours = DeviceSide(self.core, self.network, self.device, self.config)
        values = ours.values([port for port in ports if port in kept], self.given)
        for checkpoint in group:
            port = checkpoint.port
            apart = own = None
            if port in kept:
                apart = self._difference(values.pop(port), kept[port], port)
                own = self._alone(checkpoint, kept) if alone else None
            yield _compared(checkpoint, port in results, apart, own)

    def _keep_reference(self, ports: Sequence[Port], kept: ValuesOnDisk) -> None:
        values = self._reference_values(ports)
        for port in list(values):
            kept.put(port, values.pop(port))

    def reproduce(self, folder: Path, checkpoint: Checkpoint, against: str) -> None:
        """Write the reproduction of a step that differs by itself."""
        values = self._reference_values([*read_from_outside(checkpoint), checkpoint.port])
        step = isolate(self.network, checkpoint, values, self.config)
        assert step is not None, "it was run before"
        told = {
            "bound": self.bound,
            "step": step_of(checkpoint.port),
            "title": checkpoint.port.name,
            "model": self.network.name,
            "kernel": checkpoint.kernel,
            "against": against,
        }
        write_reproduction(folder, self.core, step, self.device, self.config, told)

    def _reference_values(self, ports: Sequence[Port]) -> dict[Port, Array]:
        own = {node.output: self.given[node.name] for node in self.network.parameters}
        asked = list(dict.fromkeys(port for port in ports if port not in own))
        values = self.reference.values(asked, self.given)
        return {**values, **{port: own[port] for port in ports if port in own}}

    def _alone(self, checkpoint: Checkpoint, kept: ValuesOnDisk) -> Difference | None:
        asked = dict.fromkeys([*read_from_outside(checkpoint), checkpoint.port])
        values = {port: kept[port] for port in asked if port in kept}
        step = isolate(self.network, checkpoint, values, self.config)
        if step is None:
            return None
        answer = infer_once(self.core, step.network, self.device, self.config, step.inputs)
        return self._difference(answer["output_0"], step.expected, checkpoint.port)

    def _difference(self, ours: Array, reference: Array, port: Port) -> Difference:
        return difference(ours, reference, self.bound, step_of(port))


def _compared(
    checkpoint: Checkpoint,
    is_output: bool,
    apart: Difference | None,
    own: Difference | None = None,
) -> Compared:
    node = checkpoint.port.node
    return Compared(
        layer=checkpoint.port.name,
        operation=node.op.type,
        kernel=checkpoint.kernel,
        fused=tuple(other.name for other in checkpoint.layers if other is not node),
        is_output=is_output,
        difference=apart,
        own=own,
    )
