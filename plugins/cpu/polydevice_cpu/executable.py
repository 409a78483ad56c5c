"""CpuExecutableNetwork: a network compiled for the CPU."""

from __future__ import annotations

from functools import partial
from typing import Any

from polydevice.errors import DeviceError
from polydevice.executable_network import ExecutableNetwork
from polydevice.exported import export_network
from polydevice.files.kept_source import KeptSource, empty
from polydevice.memory_budget import WORTH_BYTES
from polydevice.network import Network
from polydevice.network.dynamic_batch import open_batch
from polydevice.network.kept_layers import KeptLayers
from polydevice.ops.state import ReadValue
from polydevice.passes.check_sizes import constants
from polydevice.runtime.executor import Executor
from polydevice_cpu.cores import cores_of_streams
from polydevice_cpu.onednn import openmp
from polydevice_cpu.onednn.constants import DataType
from polydevice_cpu.onednn.library import give_back_code
from polydevice_cpu.options import CpuOptions
from polydevice_cpu.passes import UseOfIntegers, prepare
from polydevice_cpu.plan.building.builder import Settings
from polydevice_cpu.plan.building.weights import WeightStore
from polydevice_cpu.plan.compiled import CompiledNetwork
from polydevice_cpu.plan.plan import Plan
from polydevice_cpu.report import execution_graph, explanation
from polydevice_cpu.runner import CpuRunner

NODE_BYTES = 2000
"""What a node takes with the passes applied, twice over, as sizes are filled into a copy."""


def _heavy_type(options: CpuOptions) -> DataType:
    if options.enforce_f16:
        return DataType.F16
    return DataType.BF16 if options.enforce_bf16 else DataType.F32


def _spare_bytes(network: Network, source: KeptSource) -> int:
    """What constants take that can be had again; 0 where something lives with the network's nodes.

    That is what has a body, or a variable. The passes made some of them, others are in a file; what
    nodes take counts, too.
    """
    nodes = network.nodes()
    if any(node.op.has_bodies or node.op.is_stateful for node in nodes):
        return 0
    given = set(map(id, source.constants))
    arrays = [node.constant for node in nodes if id(node.constant) not in given]
    made = sum(array.nbytes for array in arrays if array is not None)
    return source.stored_bytes + made + NODE_BYTES * len(nodes)


def _prepared(source: KeptSource, integers: UseOfIntegers) -> Network:
    """What is planned of a network, made once more."""
    network = source.network()
    prepare(network, integers)
    return network


class CpuExecutableNetwork(ExecutableNetwork):
    """A compiled network; a static one is planned at load, a dynamic one when shapes are known."""

    survives_fork = True

    def __init__(
        self,
        network: Network,
        options: CpuOptions,
        executor: Executor | None,
        batch_limit: int = 0,
    ) -> None:
        """Prepare the graph, pack the weights and, with static shapes, build the plan.

        Args:
            network: what to run, which is changed.
            options: the configuration.
            executor: shared with other networks; None for one of its own.
            batch_limit: the network's batch, when requests may compute less of it; else 0.
        """
        super().__init__(network, "CPU", options, streams=options.streams, executor=executor)
        self.executor.when_idle = openmp.stop_workers
        self.cores = cores_of_streams(options.bind_thread, options.streams)
        self.perf_count = options.perf_count
        self._source = KeptSource(network)  # what prepare() makes is for this plugin alone
        settings = Settings(
            heavy=_heavy_type(options),
            integers=UseOfIntegers(options.integers, options.row_group),
            threads=options.threads_per_stream,
            kept=KeptLayers.of(network),
        )
        self.batch_limit = batch_limit
        self.largest_batch = min(batch_limit, options.batch_limit or batch_limit)
        shapes = [parameter.output.shape for parameter in network.parameters]
        if batch_limit:
            open_batch(network, batch_limit)
        prepare(network, settings.integers)
        self.memory.hold_arrays(self, constants(network), "the network's constants")
        is_static = all(shape is not None and shape.is_static for shape in shapes)
        self._is_dynamic = network.is_dynamic
        self.variables = [node for node in network.nodes() if isinstance(node.op, ReadValue)]
        weights, again = WeightStore(self.memory), None
        if is_static and not batch_limit and _spare_bytes(network, self._source) >= WORTH_BYTES:
            again = partial(_prepared, self._source, settings.integers)
        self.compiled = CompiledNetwork(network, settings, weights, self.memory, again=again)
        if is_static:
            plan = self.compiled.plan(tuple(shape.static for shape in shapes if shape is not None))
            plan.compile()
            openmp.stop_workers()  # who infers may be another thread
            if self.compiled.let_go():
                self._source.let_go()
                for node in network.nodes():
                    if node.constant is not None:
                        empty(node)
            weights.give_back()
            give_back_code()

    def latest_plan(self) -> Plan:
        """Return the plan that was made or used last.

        Raises:
            DeviceError: for a network with dynamic shapes before its first inference, or closed.
        """
        plan = self.compiled.plans.latest()
        if plan is None:
            self.check_open()
            raise DeviceError(
                f"network {self.name!r} has dynamic shapes and is planned at its first inference; "
                "infer once, then ask again"
            )
        return plan

    def get_exec_graph_info(self) -> Network:
        """Return the steps that run; with times after an inference under PERF_COUNT.

        Raises:
            DeviceError: for a network with dynamic shapes before its first inference.
        """
        return execution_graph(self.compiled.network, self.latest_plan())

    def explain(self) -> str:
        """Say what became of each layer; one line a layer.

        Raises:
            DeviceError: for a network with dynamic shapes before its first inference.
        """
        plan, others = self.latest_plan(), None
        if self._is_dynamic:
            others = [other for other in self.compiled.plans.plans() if other is not plan]
        return "\n".join([explanation(plan, self.layers, others), *self.noted_lines])

    def export(self) -> bytes:
        """Return the network and its configuration; weights are packed again when importing.

        Raises:
            ModelFileError: weights that were let go of cannot be read again from the model's file.
        """
        return export_network("CPU", self._source.network(), self.options)

    def release(self) -> None:
        """Let go of plans and packed weights, once the network is closed."""
        self.compiled.release()

    def create_runner(self) -> CpuRunner:
        """Make what runs the network for one request."""
        return CpuRunner(self)

    def metrics(self) -> dict[str, Any]:
        """Return how much the packed weights take."""
        return {"WEIGHTS_BYTES": self.compiled.weights.size_bytes}
