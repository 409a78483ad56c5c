"""One random valid network with its data, from a seed."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from tests.fuzz.builder import Builder, RejectedError, Rng, Tensor
from tests.fuzz.evaluate import RefusedError, Value, captured, interpret
from tests.fuzz.families import Generator, load_families

OPSETS = tuple(range(7, onnx.defs.onnx_opset_version() + 1))
MORE = 6
"""Data of other sizes, where a network is tried with many: what is made for the first ones of them
serves the others."""


@dataclass
class Case:
    """A network, data for it, and what is right.

    `feeds[i]` is answered by `expected[i]`; None where nobody could say, or what they said is not
    finite. There are two of them or, where sizes are unknown, more.
    """

    model: onnx.ModelProto
    feeds: list[dict[str, np.ndarray]]
    expected: list[dict[str, Value] | None]
    known: dict[str, Value]

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs."""
        return [o.name for o in self.model.graph.output]


def rng_of(seed: int, kind: str, index: int) -> Rng:
    """Return the generator of one case; depends on nothing else."""
    return np.random.default_rng([seed, zlib.crc32(kind.encode()), index])


def generate(rng: Rng, classes: Sequence[str] = ()) -> Case:
    """Return a random valid network.

    Args:
        rng: what it depends on.
        classes: beginnings of generators' names ("patterns", "spatial.pooling"), of which at
            least the first node is drawn; none for all.
    """
    families = load_families()
    asked = [g for g in families if not classes or g.name.startswith(tuple(classes))]
    if not asked:
        names = ", ".join(sorted({g.name for g in families}))
        raise ValueError(f"no generator begins with {', '.join(classes)}; there are: {names}")
    while True:
        b = Builder(rng, _opset(rng))
        _grow(b, asked, families)
        outputs = _outputs(b)
        if outputs:
            return _case(b, outputs)


def _opset(rng: Rng) -> int:
    # Newer ones have more operators, and older ones are mostly what newer ones are too.
    return int(rng.choice(OPSETS[8:])) if rng.random() < 0.7 else int(rng.choice(OPSETS))


def _grow(b: Builder, asked: list[Generator], families: list[Generator]) -> None:
    wanted = b.choice((1, 1, 2, 3, 4, 6, 9))
    for attempt in range(4 * wanted):
        if len(b.nodes) >= wanted:
            break
        table = asked if attempt == 0 or b.chance(0.6) else families
        weights = np.array([g.weight for g in table])
        drawn = table[int(b.rng.choice(len(table), p=weights / weights.sum()))]
        try:
            drawn.add(b)
        except RejectedError:
            continue


def _outputs(b: Builder) -> list[Tensor]:
    """Choose outputs: all that nothing reads, some in between, now and then the odd ones."""
    used = {name for node in b.nodes for name in [*node.input, *captured(node)]}
    made = {name for node in b.nodes for name in node.output}
    arrays = [t for t in b.tensors if isinstance(t.value, np.ndarray)]
    results = [t for t in arrays if t.name in made]
    chosen = [t for t in results if t.name not in used or b.chance(0.1)]
    with contextlib.suppress(RejectedError):  # older opsets copy fewer types
        if chosen and b.chance(0.05):
            chosen.append(b.add("Identity", b.choice(chosen)))
        if chosen and b.chance(0.05):
            given = b.inputs[0].tensor if b.inputs else b.constant(1.5, "f4")
            chosen.append(b.add("Identity", given))
        if chosen and b.chance(0.03):
            chosen.append(b.add("Identity", b.constant([1, 2, 3])))
    if chosen and b.inputs and b.chance(0.04):
        chosen.append(b.inputs[-1].tensor)
    if chosen and b.chance(0.05):
        chosen = [chosen[int(i)] for i in b.rng.permutation(len(chosen))]
    return chosen


def _case(b: Builder, outputs: list[Tensor]) -> Case:
    used = {name for node in b.nodes for name in node.input} | {t.name for t in outputs}
    for node in b.nodes:
        used.update(captured(node))
    b.inputs = [i for i in b.inputs if i.tensor.name in used or b.chance(0.3)]
    loosen(b)
    model = b.model(outputs)
    first = {i.tensor.name: i.tensor.value for i in b.inputs}
    known = b.visible() | dict(b.initializers)
    names = [t.name for t in outputs]
    feeds: list[dict[str, np.ndarray]] = [first]
    expected: list[dict[str, Value] | None] = [{n: known[n] for n in names}]
    for _ in range(MORE if _may_change(b) and b.chance(0.3) else 1):
        other, answers = _other(b, model)
        feeds.append(other)
        expected.append(answers and {n: answers[n] for n in names})
    return Case(model, feeds, expected, known)


def loosen(b: Builder) -> None:
    """Give some sizes names, or none, so that the network's shapes are dynamic."""
    if b.chance(0.5):
        return
    names: dict[int, str] = {}
    probability = b.choice((0.5, 0.5, 0.9))
    for each in b.inputs:
        for axis, size in enumerate(each.tensor.shape):
            if b.chance(probability):
                shared = not each.fixed and b.chance(0.4)
                name = names.setdefault(size, f"d{size}") if shared else None
                each.sizes[axis] = name or (f"{each.tensor.name}_{axis}" if b.chance(0.6) else None)


# Other runtimes compute with shapes that these operators do not admit, so that only shapes that are
# right by construction can be judged.
LAX = {"ScatterND", "ScatterElements", "NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss",
       "GroupNormalization", "LayerNormalization", "RMSNormalization", "InstanceNormalization",
       "Pad", "Split", "GridSample", "RNN", "GRU", "LSTM", "Attention", "TensorScatter",
       "Gemm", "ConvTranspose", "RoiAlign", "QuantizeLinear",
       "DequantizeLinear", "ReverseSequence", "If", "Loop", "Scan"}  # fmt: skip


def _other(b: Builder, model: onnx.ModelProto) -> tuple[dict, dict[str, Value] | None]:
    """Return other data, of other sizes where they are unknown and everything still fits."""
    feeds: dict[str, np.ndarray] = {}
    may_change = _may_change(b)
    for attempt in range(4):
        feeds = _new_data(b, change=attempt < 2 and may_change)
        try:
            values = interpret(model, feeds)
        except RefusedError:
            continue
        if all(finite(v) for v in values.values()) and _windows_fit(model, values):
            return feeds, values
    return feeds, None


def _may_change(b: Builder) -> bool:
    """Say whether data of other sizes can be judged."""
    is_open = any(not isinstance(size, int) for each in b.inputs for size in each.sizes)
    return is_open and not any(node.op_type in LAX for node in b.nodes)


def _windows_fit(model: onnx.ModelProto, values: dict[str, Value]) -> bool:
    """Say whether no window is larger than its input; what that gives is not defined."""
    windows = [n for n in model.graph.node if "Pool" in n.op_type or "Conv" in n.op_type]
    splits = [n for n in model.graph.node if n.op_type == "Split" and len(n.input) > 1]
    return all(values[n.output[0]].size and _window_fits(n, values) for n in windows) and all(
        values[n.input[1]].sum() in values[n.input[0]].shape for n in splits
    )


def _window_fits(node: onnx.NodeProto, values: dict[str, Value]) -> bool:
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    sizes = values[node.input[0]].shape[2:]
    kernel = attributes.get("kernel_shape")
    if kernel is None or attributes.get("auto_pad", b"") in (b"SAME_UPPER", b"SAME_LOWER"):
        return True
    rank = len(kernel)
    pads = attributes.get("pads", [0] * 2 * rank)
    dilations = attributes.get("dilations", [1] * rank)
    return all(
        size + pads[i] + pads[i + rank] >= (kernel[i] - 1) * dilations[i] + 1
        for i, size in enumerate(sizes)
    )


def _new_data(b: Builder, change: bool) -> dict[str, np.ndarray]:
    sizes: dict[str, int] = {}
    feeds = {}
    for each in b.inputs:
        shape = list(each.tensor.shape)
        for axis, size in enumerate(each.sizes):
            if change and not each.fixed and not isinstance(size, int):
                key = size or f"{each.tensor.name}/{axis}"
                now = shape[axis]
                other = now, now + 1, max(now - 1, 0), 1, now * 2, now * 3 + 1
                sizes.setdefault(key, b.choice(other))
                shape[axis] = sizes[key]
        made = each.make(b.rng, tuple(shape))
        if made.shape != tuple(shape):  # data of one size only
            made = each.make(b.rng, each.tensor.shape) if not change else each.tensor.value
        feeds[each.tensor.name] = made
    return feeds


def finite(value: Value) -> bool:
    """Say whether a value has neither NaN nor infinity."""
    if isinstance(value, list):
        return all(finite(v) for v in value)
    if value is None or value.dtype.kind in "OUSbiu":
        return True
    return bool(np.isfinite(value.astype(np.float64)).all())
