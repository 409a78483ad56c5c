"""What is done once, when a network is loaded, whatever the shapes of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field

from polydevice.dataclass import dataclass
from polydevice.dtype import Array, ElementType
from polydevice.executable_network import ExecutableNetwork
from polydevice.network import Network
from polydevice.network.dynamic_batch import dynamic_batch_limit, open_batch
from polydevice.ops.io import Constant, Parameter, Result
from polydevice.passes.constant_folding import constant_folding
from polydevice.passes.lower_state import Variable, lower_state
from polydevice.plugin import Services
from polydevice.rewrites.integers import hold_integers
from polydevice.rewrites.join_branches import join_branches
from polydevice.runtime.plan_cache import Shapes
from polydevice.runtime.templates import Templates
from polydevice.shape import Dim, Shape
from polydevice_gpu import cl
from polydevice_gpu.compiler.device_target import target_of
from polydevice_gpu.compiler.late_parts import LateParts
from polydevice_gpu.compiler.limits import check_memory
from polydevice_gpu.compiler.new_shapes.size_inputs import size_inputs
from polydevice_gpu.compiler.settings import CompileSettings
from polydevice_gpu.custom.operation import use_custom_layers
from polydevice_gpu.host_layers import bodies_of
from polydevice_gpu.kernels.kernel import Choice
from polydevice_gpu.passes import split_nv12_inputs as nv12
from polydevice_gpu.rewrites import gpu_wishes
from polydevice_gpu.rewrites.compressed import Matrix, hold_matrices
from polydevice_gpu.rewrites.rounded import round_products
from polydevice_gpu.runtime.plan import Plan
from polydevice_gpu.runtime.state import known_starts
from polydevice_gpu.tuning.tuner import TuningMode


@dataclass
class Prepared:
    """A network from which plans are made, one for each set of shapes.

    Attributes:
        network: as it was given, with the inputs that it has on the device.
        device: where it will run.
        services: evaluates constants.
        settings: how to compile.
        load_part: loads a part on the device; None where the host computes what late sizes have.
        batch_limit: the network's batch, when requests may compute less of it; else 0.
        variables: what requests carry from one inference to the next.
        starts: variable → its first value, None where the network computes it from its inputs.
        folded: what is copied for each set of shapes: what no shape changes is computed in it.
        templates: what plans for other shapes are filled in from.
        size_inputs: inputs whose values say sizes, and stand for their shapes where plans are made.
        parts: layers behind late sizes.
        choices: kernels and modes that its plans run.
        joined_kernels: sources, plan by plan, that were built behind to run launches as one.
        constants: ids of its constants, which all plans share.
        matrices: those that a plan reads as they are stored, or as floats; see `hold_matrices`.
    """

    network: Network
    device: cl.Device
    services: Services
    settings: CompileSettings
    load_part: Callable[[Network], ExecutableNetwork] | None = None
    batch_limit: int = 0
    variables: list[Variable] = field(default_factory=list)
    starts: Mapping[str, Array | None] = field(default_factory=dict)
    folded: Network = field(init=False)
    templates: Templates[Plan] = field(init=False)
    parts: LateParts = field(init=False)
    constants: set[int] = field(default_factory=set)
    matrices: Mapping[int, Matrix] = field(default_factory=dict)
    size_inputs: frozenset[str] = frozenset()
    choices: set[Choice] = field(default_factory=set)
    joined_kernels: set[frozenset[str]] = field(default_factory=set)

    @property
    def has_shapes_to_set(self) -> bool:
        """Whether plans may be made for other shapes than those that the network says."""
        return self.varies or bool(self.batch_limit) or bool(self.variables)

    @property
    def varies(self) -> bool:
        """Whether inferences have sizes of their own."""
        return self.network.is_dynamic or bool(self.size_inputs)

    def sizes(self, shapes: Shapes) -> dict[str, tuple[int, ...] | None]:
        """Return input → its size, variables included."""
        names = [node.name for node in self.network.parameters]
        names += [variable.input for variable in self.variables]
        return dict(zip(names, shapes, strict=True))


def split_nv12_inputs(prepared: Prepared) -> None:
    """Let NV12 images come as two inputs, where the configuration says so.

    Raises:
        UnsupportedNetworkError: the batch is not known, or a new name is taken.
    """
    if prepared.settings.nv12_two_inputs:
        nv12.split_nv12_inputs(prepared.network)


def find_batch(prepared: Prepared) -> None:
    """Find out whether parts of the batch can be computed, where the configuration wants it.

    Raises:
        UnsupportedNetworkError: naming what does not follow the batch.
    """
    if prepared.settings.dynamic_batch:
        prepared.batch_limit = dynamic_batch_limit(prepared.network, prepared.services)


def find_variables(prepared: Prepared) -> None:
    """Find out what requests carry, and what it is at first."""
    prepared.variables = lower_state(prepared.network.clone())
    if prepared.variables:
        prepared.starts = known_starts(prepared.network, prepared.services.evaluate)


def find_size_inputs(prepared: Prepared) -> None:
    """Find out which inputs say sizes by their values."""
    if not (prepared.batch_limit or prepared.variables or prepared.settings.on_users_queue):
        prepared.network.evaluate = prepared.services.evaluate
        prepared.size_inputs = size_inputs(prepared.network)


def find_parts(prepared: Prepared) -> None:
    """Prepare for layers behind late sizes."""
    computed = [n for n in prepared.network.nodes() if not isinstance(n.op, _GIVEN)]
    prepared.parts = LateParts(prepared.load_part, len(computed), varies=prepared.varies)


_GIVEN = (Parameter, Constant, Result)


def fold_ahead(prepared: Prepared) -> None:
    """Compute what no shape changes.

    Folding again for each shape would make those constants anew, and upload them.

    Raises:
        ModelLimitError: for a value that is too large for the device.
    """
    network = prepared.folded = prepared.network.clone()
    if prepared.batch_limit > 1:
        open_batch(network, prepared.batch_limit)
    if prepared.varies:
        check_memory(network, prepared.device)
        use_custom_layers(network, prepared.settings.custom_layers)
        target = target_of(prepared.device)
        if prepared.settings.integers and target.byte_product:
            network.evaluate = prepared.services.evaluate
            # Before folding, which would make floats of quantised weights.
            wishes = gpu_wishes(target)
            hold_integers(network, wide=wishes.wide, takes=wishes.takes)
            if target.sums_byte_vectors and prepared.settings.floats is not ElementType.f16:
                round_products(network)
        if prepared.settings.integers:
            prepared.matrices = hold_matrices(network, prepared.services.evaluate, target)
        constant_folding(network, prepared.services.evaluate)
        join_branches(network, gpu_wishes(target).leave)
    prepared.constants = set(map(id, _constants(network)))


def prepare_templates(prepared: Prepared) -> None:
    """Find out of which sizes plans may be functions."""
    settings, tuner = prepared.settings, prepared.settings.tuner
    varies = not (
        prepared.batch_limit
        or prepared.variables
        or settings.dumps.graphs
        or settings.single_launch == "YES"  # which builds a program for each set of shapes
        or (tuner is not None and tuner.mode is not TuningMode.USE_EXISTING)
    )
    shapes: list[Shape | None] = [] if varies else [None]
    for node in prepared.network.parameters:
        shape = node.output.shape
        if node.name in prepared.size_inputs and shape is not None:
            shape = Shape([Dim()] * shape.elements)
        shapes.append(shape)
    # Only the first while an inference waits: it takes two to four times as long as a plan. On a
    # processor the second, too: a text's tokens are planned otherwise than the prompt, and each of
    # ten took 0.1 s and more until a thread that lets inferences go first had made it behind.
    at_once = 1 if target_of(prepared.device).is_throughput else 2
    prepared.templates = Templates[Plan](shapes, at_once=at_once, may_be_empty=True)


def _constants(network: Network) -> Iterator[Array]:
    """Yield the constants of a network, those in bodies included."""
    for node in network.nodes():
        if node.constant is not None:
            yield node.constant
        for body in bodies_of(node):
            yield from _constants(body)
