"""Recurrent sequences in one launch, however many steps; their inputs are multiplied beforehand.

A step needs all of the state before it, so that one work-group owns a sequence and waits for
itself between steps; launches for each step would cost more than most steps do, and make plans that
grow with the length. The number of steps is an argument: all lengths share one program.
"""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.ops.activation import Elu, HardSigmoid, PRelu
from polydevice.ops.op import Op
from polydevice.ops.recurrent import PLAIN_FUNCTIONS, Direction, Gru, Lstm, Recurrent
from polydevice_gpu.graph import GpuNode, Value
from polydevice_gpu.kernels.convolution.convolution import vector_lanes
from polydevice_gpu.kernels.kernel import Mode, SingleLaunch, kernel
from polydevice_gpu.kernels.launch import Scratch, Weights
from polydevice_gpu.kernels.pointwise.expression import expression, literal
from polydevice_gpu.kernels.reason import NO_LOCAL_MEMORY, unless
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.kernels.types import c_type, compute_type
from polydevice_gpu.layout import Layout, ordered, planar
from polydevice_gpu.ops import RecurrentSteps


def _function(op: Recurrent, index: int, kind: ElementType) -> str:
    """Write one of a layer's activations as a function of OpenCL C, clip included."""
    name, alpha, beta = op.activation(index)
    real = compute_type(kind)
    a, b = literal(alpha, real), literal(beta, real)

    def of(function: Op, *more: str) -> str:
        return expression(function, ["x", *more], [kind] * (1 + len(more)), kind)

    if name in PLAIN_FUNCTIONS:
        text = of(PLAIN_FUNCTIONS[name])
    elif name == "elu":
        text = of(Elu(alpha=alpha))
    elif name == "leakyrelu":
        text = of(PRelu(), a)
    elif name == "hardsigmoid":
        text = of(HardSigmoid(), a, b)
    else:
        text = {
            "affine": f"x * {a} + {b}",
            "scaledtanh": f"tanh(x * {b}) * {a}",
            "thresholdedrelu": f"x > {a} ? x : 0",
        }[name]
    clip = ""
    if op.clip and index < 2:  # what an LSTM shows of its cell is not clipped
        limit = literal(op.clip, real)
        clip = f"x = x > {limit} ? {limit} : x < -{limit} ? -{limit} : x; "
    return f"static inline {real} act{index}({real} x) {{ {clip}return {text}; }}"


class RecurrentKernel(SingleLaunch):
    """What both kernels have in common; they differ in where the states are kept."""

    source = "recurrent/recurrent.cl"

    def fuses(self, node: GpuNode) -> bool:
        """Never: results are states of the next step too."""
        return False

    def mode_supports(self, node: GpuNode, mode: Mode, target: Target) -> bool:
        """Vectors are of floats and of weights that can be packed."""
        _, r = node.inputs[:2]
        vectors = r.constant is not None and not _is_double(node)
        fits = mode["LANES"] <= target.max_work_group_size
        return fits and (mode["WIDTH"] == 1 or vectors)

    def input_layouts(self, node: GpuNode, target: Target) -> dict[int, Layout]:
        """Weights that are computed lie by columns, so that neighbours read neighbours."""
        r = node.inputs[1]
        if r.constant is not None or not target.is_throughput:
            return {}
        return {1: ordered(r.shape, (0, 2, 1))}

    def output_layouts(self, node: GpuNode, target: Target) -> list[Layout]:
        """Units side by side."""
        return [planar(value.shape) for value in node.outputs]

    def declare(self, call: Call, mode: Mode) -> tuple[int, int]:
        """Declare everything but the states; return their size and the number of sequences."""
        node, op = call.node, call.node.operation(RecurrentSteps)
        layer, x = op.layer, node.inputs[0]
        optional = [
            *(["LENGTHS"] if op.has_lengths else []),
            *(["AFTER"] if op.has_after else []),
            *(["P"] if op.has_peepholes else []),
        ]
        roles = ["X", "R", *"HC"[: layer.states], *optional]
        for role, value in zip(roles, node.own_inputs, strict=True):
            if role != "R":
                call.tensor(role, value)
        for number, value in enumerate(node.outputs):
            call.tensor(f"OUT{number}", value)
        pitch = self._weights(call, node.inputs[1], mode, layer)
        real, width = compute_type(x.storage), mode["WIDTH"]
        call.define(ENTRY=self.name, REAL=real, **mode, GATES=layer.gates)
        call.define(VECTOR=real if width == 1 else f"{real}{width}")
        store = "*(p) = (v)" if width == 1 else f"vstore{width}(v, 0, p)"
        call.define(**{"SUMS_STORE(v, p)": store})
        call.define(
            HAS_LENGTHS=op.has_lengths, HAS_AFTER=op.has_after, HAS_PEEPHOLES=op.has_peepholes,
            DIRECTIONS=op.direction.count, REVERSE=op.direction is Direction.REVERSE,
            LSTM=isinstance(layer, Lstm), GRU=isinstance(layer, Gru),
        )  # fmt: skip
        if isinstance(layer, Lstm):
            names = {"f": "FORGET", "i": "INPUT", "c": "CELL", "o": "OUTPUT"}
            call.define(**{names[g]: place for place, g in enumerate(layer.weights_format)})
            call.define(INPUT_FORGET=layer.input_forget)
        if isinstance(layer, Gru):
            call.define(LINEAR=layer.linear_before_reset)
        call.scalars(STEPS=x.shape[1], HIDDEN=layer.hidden_size, PITCH=pitch)
        for index in range(len(layer.functions)):
            call.function(_function(layer, index, _real(node)))
        sequences = x.shape[0] * op.direction.count
        call.dispatch((mode["LANES"], sequences), (mode["LANES"], 1))
        return (2 + layer.gates) * pitch, sequences

    def _weights(self, call: Call, r: Value, mode: Mode, layer: Recurrent) -> int:
        """Declare the weights; return the elements from gate to gate."""
        call.define(PACKED=r.constant is not None)
        if r.constant is None:
            call.tensor("R", r)
            return layer.hidden_size
        hidden, gates, width = layer.hidden_size, layer.gates, mode["WIDTH"]
        whole = max(width, 4)  # four rows at a time
        pitch = -(-hidden // whole) * whole

        def packed(array: Array) -> Array:
            blocks = array.reshape(-1, gates, hidden, hidden).transpose(0, 3, 1, 2)
            more = (0, pitch - hidden)
            return np.pad(blocks, ((0, 0), more, (0, 0), more))

        form = Weights(r, f"recurrent, {gates} gates, columns of {whole}", packed, r.storage)
        call.weights("R", form, (width,) if width > 1 else ())
        call.define(**{"R_LOADS(i)": f"R_LOAD{width if width > 1 else ''}(i)"})
        return pitch


def _is_double(node: GpuNode) -> bool:
    return compute_type(node.inputs[0].storage) == "double"


def _real(node: GpuNode) -> ElementType:
    """Return the type of sums and states."""
    return ElementType.f64 if _is_double(node) else ElementType.f32


@kernel(RecurrentSteps)
class RecurrentGroup(RecurrentKernel):
    """One work-group walks one sequence; the states are in local memory."""

    # No more: NVIDIA's compiler gives a lane so many registers that 256 is all there is room for
    # (H200, driver 580.159.04).
    modes = tuple({"LANES": lanes, "WIDTH": 1} for lanes in (32, 64, 128, 256))

    def refuses(self, node: GpuNode, target: Target) -> str:
        """States and the sums of all gates fit real local memory."""
        layer = node.operation(RecurrentSteps).layer
        size = 8 if _is_double(node) else 4
        needed = size * (2 + layer.gates) * (layer.hidden_size + 3)
        return unless(
            (target.local_memory_bytes, NO_LOCAL_MEMORY),
            (needed <= target.local_memory_bytes, f"it needs {needed} bytes of local memory"),
            (target.max_work_group_size >= 32, "the device has no groups of 32 work-items"),
        )

    def default_mode(self, node: GpuNode, target: Target) -> int:
        """A work-item a column, as far as the device has them."""
        layer = node.operation(RecurrentSteps).layer
        columns = layer.gates * layer.hidden_size
        fitting = [i for i, m in enumerate(self.modes) if m["LANES"] <= target.max_work_group_size]
        return next((i for i in fitting if self.modes[i]["LANES"] >= columns), fitting[-1])

    def describe(self, call: Call, op: Op, mode: Mode) -> None:
        """States in local memory."""
        elements, _ = self.declare(call, mode)
        call.define(SPACE="__local", **{"STATES_START(sequence)": 0})
        call.local("STATES", c_type(_real(call.node)), elements)


@kernel(RecurrentSteps)
class RecurrentRef(RecurrentKernel):
    """One work-item in vectors, or a small group, walks one sequence; states in device memory."""

    modes = (
        {"LANES": 1, "WIDTH": 1},
        {"LANES": 64, "WIDTH": 1},
        *({"LANES": 1, "WIDTH": width} for width in (4, 8, 16)),
    )

    def default_mode(self, node: GpuNode, target: Target) -> int:
        """Vectors on processor cores, a group where work-items run in lockstep."""
        lanes = 64 if target.is_throughput and target.max_work_group_size >= 64 else 1
        width = max(w for w in (4, 8, 16) if w <= vector_lanes(target))
        wanted = {"LANES": lanes, "WIDTH": width if lanes == 1 else 1}
        index = list(self.modes).index(wanted)
        return index if self.mode_supports(node, wanted, target) else 0

    def describe(self, call: Call, op: Op, mode: Mode) -> None:
        """States in device memory."""
        elements, sequences = self.declare(call, mode)
        storage = _real(call.node)
        call.scalars(STATES_SIZE=elements)
        call.define(SPACE="__global", **{"STATES_START(sequence)": "(sequence) * STATES_SIZE"})
        call.buffer("STATES", Scratch(sequences * elements, storage), c_type(storage), written=True)
