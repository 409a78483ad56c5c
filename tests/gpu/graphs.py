"""Small networks for tests of the graph compiler, and how to compile and run them."""

from __future__ import annotations

import os
import tempfile
from collections import OrderedDict
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from polydevice.dtype import Array, ElementType
from polydevice.network import Network
from polydevice.node import Node, Port, constant
from polydevice.ops.convolution import Convolution
from polydevice.ops.io import Parameter, Result
from polydevice.ops.op import Op
from polydevice.shape import Shape
from polydevice_cpu.implement import evaluate
from polydevice_gpu import cl
from polydevice_gpu.blobs.context import GpuContext
from polydevice_gpu.cl import device as devices
from polydevice_gpu.cl.discovery.troubles import TROUBLES
from polydevice_gpu.cl.programs import program
from polydevice_gpu.compiler.compiler import Compiler
from polydevice_gpu.compiler.settings import CompileSettings
from polydevice_gpu.compiler.stages import build_graph
from polydevice_gpu.executable import GpuExecutable
from polydevice_gpu.graph import GpuGraph
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.options import GpuOptions
from tests.openvino_answers import inferred

_random = np.random.default_rng(7)


class Sketch:
    """A network in the making: ``s.input("x", 1, 3, 4)``, ``s.add("y", Relu(), x)``."""

    def __init__(self) -> None:
        self.parameters: list[Node] = []
        self.results: list[Node] = []

    def input(self, name: str, *shape: int, kind: ElementType = ElementType.f32) -> Port:
        node = Node(name, Parameter(element_type=kind, shape=Shape(shape)))
        self.parameters.append(node)
        return node.output

    def weights(self, name: str, *shape: int) -> Port:
        return constant(name, _random.standard_normal(shape).astype("f4") * 0.3).output

    def const(self, name: str, value: object) -> Port:
        return constant(name, value).output

    def add(self, name: str, op: Op, *inputs: Port) -> Port:
        return Node(name, op, inputs).outputs[0]

    def node(self, name: str, op: Op, *inputs: Port) -> Node:
        return Node(name, op, inputs)

    def conv(self, name: str, x: Port, channels: int, kernel: int = 3) -> Port:
        assert x.shape is not None
        w = self.weights(f"{name}/w", channels, x.shape.static[1], kernel, kernel)
        pads = (kernel // 2,) * 2
        op = Convolution(strides=(1, 1), pads_begin=pads, pads_end=pads, dilations=(1, 1))
        return self.add(name, op, x, w)

    def network(self, **outputs: Port) -> Network:
        self.results = [Node(n, Result(output_name=n), [p]) for n, p in outputs.items()]
        return Network("test", self.parameters, self.results)


def compiled(network: Network, **target: int) -> GpuGraph:
    """Run all passes for a made-up device."""
    copy = network.clone()
    copy.evaluate = evaluate
    return build_graph(copy, Target(**target), evaluate, CompileSettings())


_NO_OPTIMISING = "-cl-opt-disable"
_completed = cl.ProgramBuilder.completed


def has_trouble(facts: cl.DeviceFacts, what: str) -> bool:
    """Whether the driver is known to get something wrong that is described with these words."""
    described = [trouble for trouble in TROUBLES if what in trouble.wrong]
    assert described, f"no known trouble is described with {what!r}"
    return any(trouble.concerns(facts) for trouble in described)


class SparingBuilder(cl.ProgramBuilder):
    """Compiles for processors without optimising, for tests that ask for answers alone.

    26 programs of products of bytes take 7.9 instead of 47.9 s of CPU time (PoCL 3.1).
    """

    def completed(self, options: Sequence[str]) -> str:
        facts = self.device.facts
        sound = not has_trouble(facts, _NO_OPTIMISING)
        spares = sound and facts.kind == "CPU" and _NO_OPTIMISING not in options
        return _completed(self, (*options, _NO_OPTIMISING) if spares else options)


_KEPT = 256
_kept: OrderedDict[tuple[cl.Device, bytes], cl.Program] = OrderedDict()
_compile = cl.ProgramBuilder._compile


def _compile_once(
    self: cl.ProgramBuilder, name: str, source: str, key: bytes, options: str
) -> cl.Program:
    """Compile what no test before has compiled for this device, which all Cores share."""
    if self.cache is not None or program.NO_COMPILE_VARIABLE in os.environ:
        return _compile(self, name, source, key, options)
    made = _kept.pop((self.device, key), None) or _compile(self, name, source, key, options)
    if self.device in devices._open.values():  # others live as long as who made them
        _kept[self.device, key] = made
        while len(_kept) > _KEPT:
            _kept.popitem(last=False)
    return made


def compile_sparingly(patch: pytest.MonkeyPatch) -> None:
    """Let the programs of every Core be compiled as by `SparingBuilder`, until the patch is undone.

    A case of an operation takes 0.06 instead of 0.11 s of CPU time so (PoCL 3.1, nothing kept).
    Programs are kept for tests that follow: PoCL takes 6 ms for one that is in its own cache, and
    half of what `tests/gpu` builds was built by a test before.
    """
    patch.setattr(cl.ProgramBuilder, "completed", SparingBuilder.completed)
    patch.setattr(cl.ProgramBuilder, "_compile", _compile_once)


class HostServices:
    """Services without a core: constants only."""

    def evaluate(self, op: Op, inputs: list[Array]) -> list[Array] | None:
        return evaluate(op, inputs)


def loaded(
    network: Network,
    opencl,
    builder,
    services=None,
    settings: CompileSettings | None = None,
    **options,
) -> GpuExecutable:
    """Load a network on the tests' device."""
    chosen = GpuOptions(**options)
    settings = settings or CompileSettings.of(chosen)
    compiler = Compiler(opencl, settings, services or HostServices(), builder)
    prepared = compiler.prepare(network.clone())
    return GpuExecutable(prepared, compiler, chosen, GpuContext("GPU", opencl))


def random_inputs(network: Network, seed: int = 0) -> dict[str, Array]:
    """Return an array for every input."""
    random = np.random.default_rng(seed)
    return {
        node.name: random.standard_normal(node.output.shape.static).astype("f4")
        for node in network.parameters
    }


def launching(graph: GpuGraph, **target: int) -> dict[str, int]:
    """Return how many launches each node makes; views and what lies in place make none."""
    device = Target(**target)
    found = {}
    for node in graph.nodes:
        if node.choice is not None and not node.is_view:
            kernel = node.choice.kernel
            mode = kernel.modes[node.choice.mode]
            found[node.name] = len(kernel.launches(node, mode, device))
    return found


def openvino_answers(network: Network, inputs: dict[str, Array]) -> dict[str, Array]:
    """Compute a network with OpenVINO's CPU device in f32; layer by layer where it is missing."""
    if find_spec("openvino") is None:  # on a machine with a GPU and no more
        return layer_answers(network, inputs)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "network.xml")
        network.serialize(path)
        topology, weights = path.read_bytes(), path.with_suffix(".bin").read_bytes()
    results = inferred(topology, weights, [inputs[node.name] for node in network.parameters])
    return {result.op.output_name: y for result, y in zip(network.results, results, strict=True)}


def layer_answers(network: Network, inputs: dict[str, Array]) -> dict[str, Array]:
    """Compute one layer after the other as the CPU device does: no pass sees the network."""
    values: dict[Port, Array] = {}
    for node in network.nodes():
        if node.name in inputs:
            values[node.output] = inputs[node.name]
        elif node.constant is not None:
            values[node.output] = node.constant
        elif not isinstance(node.op, Result):
            results = evaluate(node.op, [values[port] for port in node.inputs])
            assert results is not None, node.name
            values.update(zip(node.outputs, results, strict=True))
    return {result.op.output_name: values[result.inputs[0]] for result in network.results}


def check_answers(
    network: Network, opencl, builder, *, rtol: float = 1e-4, atol: float = 1e-5
) -> None:
    """Compare a network on the tests' device with OpenVINO; twice, with other numbers."""
    executable = loaded(network, opencl, builder)
    request = executable.create_infer_request()
    for seed in (0, 1):
        inputs = random_inputs(network, seed)
        outputs = request.infer(inputs)
        for name, answer in openvino_answers(network, inputs).items():
            np.testing.assert_allclose(outputs[name], answer, rtol, atol, err_msg=name)
