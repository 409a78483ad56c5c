"""Makes a failing case smaller while it goes on failing in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import onnx
from onnx import helper

from tests.fuzz.evaluate import Value, captured, type_of
from tests.fuzz.generate import Case
from tests.fuzz.mutants import Files

Fails = Callable[[onnx.ModelProto, list[dict[str, np.ndarray]]], bool]
TRIES = 150


def reduce_case(case: Case, fails: Fails) -> Case:
    """Return the smallest case found that fails in the same way.

    Outputs go first, then nodes, each replaced by an input with the value it had; then unknown
    sizes become known, and the second data goes.

    Args:
        case: one that fails; `case.known` has the values of the first data.
        fails: says whether a model with this data fails in the same way.
    """
    model, feeds, left = case.model, case.feeds, TRIES
    progress = True
    while progress and left > 0:
        progress = False
        for smaller in _smaller(model, feeds, case.known):
            left -= 1
            if left < 0:
                break
            if fails(*smaller):
                (model, feeds), progress = smaller, True
                break
    return Case(model, feeds, [], {})


Smaller = tuple[onnx.ModelProto, list[dict[str, np.ndarray]]]


def _smaller(
    model: onnx.ModelProto, feeds: list[dict[str, np.ndarray]], known: dict[str, Value]
) -> Iterator[Smaller]:
    if len(model.graph.output) > 1:
        for index in range(len(model.graph.output)):
            yield _pruned(_without_output(model, index), feeds)
    if len(feeds) > 2:
        yield from ((model, [feeds[0], other]) for other in feeds[1:])
        yield from ((model, feeds[:n] + feeds[n + 1 :]) for n in range(1, len(feeds)))
        return
    if any(not np.array_equal(feeds[0][n], feeds[1][n]) for n in feeds[0]):
        yield model, [feeds[0], dict(feeds[0])]
        return
    for index in reversed(range(len(model.graph.node))):
        made = [n for n in model.graph.node[index].output if n]
        if all(isinstance(known.get(n), np.ndarray) for n in made):
            yield _pruned(*_cut(model, index, feeds, known))
        yield from _with_output_of(model, index, feeds, known)
    for index, info in enumerate(model.graph.input):
        shape = info.type.tensor_type.shape
        if info.name in feeds[0] and any(not d.HasField("dim_value") for d in shape.dim):
            yield _with_known_sizes(model, index, feeds), feeds
    for name in feeds[0]:
        yield _frozen(model, name, feeds)


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    made = onnx.ModelProto()
    made.CopyFrom(model)
    return made


def _without_output(model: onnx.ModelProto, index: int) -> onnx.ModelProto:
    made = _copy(model)
    del made.graph.output[index]
    return made


def _cut(
    model: onnx.ModelProto, index: int, feeds: list[dict[str, np.ndarray]], known: dict[str, Value]
) -> Smaller:
    """Replace a node by inputs that have its values."""
    made = _copy(model)
    names = [n for n in made.graph.node[index].output if n]
    del made.graph.node[index]
    outputs = {o.name for o in made.graph.output}
    for name in names:
        if name in outputs:
            made.graph.node.add(op_type="Identity", input=[name], output=[f"{name}_out"])
            for info in made.graph.output:
                if info.name == name:
                    info.name = f"{name}_out"
        made.graph.input.append(
            helper.make_value_info(name, type_of(known[name], known[name].shape))
        )
    values = {name: known[name] for name in names}
    return made, [{**each, **values} for each in feeds]


def _with_output_of(
    model: onnx.ModelProto, index: int, feeds: list[dict[str, np.ndarray]], known: dict[str, Value]
) -> Iterator[Smaller]:
    """Make what a node reads the outputs instead of what it makes."""
    node = model.graph.node[index]
    outputs = [o.name for o in model.graph.output]
    if len(outputs) != 1 or outputs[0] not in node.output:
        return
    results = {n for other in model.graph.node for n in other.output}
    for name in node.input:
        if name in results and isinstance(known.get(name), np.ndarray):
            made = _copy(model)
            del made.graph.output[:]
            made.graph.output.append(helper.make_value_info(name, type_of(known[name])))
            yield _pruned(made, feeds)


def _frozen(model: onnx.ModelProto, name: str, feeds: list[dict[str, np.ndarray]]) -> Smaller:
    """Make an input a constant."""
    made = _copy(model)
    kept = [i for i in made.graph.input if i.name != name]
    del made.graph.input[:]
    made.graph.input.extend(kept)
    made.graph.initializer.append(onnx.numpy_helper.from_array(feeds[0][name], name))
    return made, [{n: a for n, a in each.items() if n != name} for each in feeds]


def _with_known_sizes(
    model: onnx.ModelProto, index: int, feeds: list[dict[str, np.ndarray]]
) -> onnx.ModelProto:
    made = _copy(model)
    info = made.graph.input[index]
    value = feeds[0][info.name]
    info.CopyFrom(helper.make_value_info(info.name, type_of(value, value.shape)))
    return made


def _pruned(model: onnx.ModelProto, feeds: list[dict[str, np.ndarray]]) -> Smaller:
    """Leave out what the outputs do not need."""
    made = _copy(model)
    needed = {o.name for o in made.graph.output}
    kept = []
    for node in reversed(list(made.graph.node)):
        if needed & set(node.output):
            kept.append(node)
            needed.update([*node.input, *captured(node)])
    inputs = [i for i in made.graph.input if i.name in needed]
    constants = [i for i in made.graph.initializer if i.name in needed]
    for values, field in ((kept[::-1], "node"), (inputs, "input"), (constants, "initializer")):
        values = [_clone(v) for v in values]
        made.graph.ClearField(field)
        getattr(made.graph, field).extend(values)
    names = {i.name for i in inputs}
    return made, [{n: a for n, a in each.items() if n in names} for each in feeds]


def _clone(message):
    made = type(message)()
    made.CopyFrom(message)
    return made


def reduce_files(sound: Files, files: Files, fails: Callable[[Files], bool]) -> Files:
    """Undo damage that the failure does not need, from both ends of the text."""
    current = list(files)
    for part in (0, 1):
        if sound[part] != current[part]:
            trial = list(current)
            trial[part] = sound[part]
            if fails((trial[0], trial[1])):
                current = trial
    return current[0], current[1]
