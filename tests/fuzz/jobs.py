"""What the child does for each job: makes cases and mutants from numbers, and runs them."""

from __future__ import annotations

import contextlib
import functools
import traceback
from collections.abc import Callable, Iterator

import onnx

from polydevice import Core
from tests.fuzz import mutants
from tests.fuzz.check import MISTAKE, Outcome, check
from tests.fuzz.evaluate import RefusedError
from tests.fuzz.files import answered
from tests.fuzz.generate import Case, generate, rng_of
from tests.fuzz.worker import Batch, Done, Single

Run = Callable[[], Done]


def runs(job: Batch | Single, core: Core) -> Iterator[tuple[int, Run]]:
    """Yield the numbers of a job, and what runs each."""
    if isinstance(job, Single):
        yield 0, functools.partial(_single, job, core)
        return
    for number in range(job.start, job.start + job.count):
        run = _case if job.kind == "models" else _mutant
        yield number, functools.partial(_guarded, run, job, number, core)


def _guarded(run: Callable[..., Done], batch: Batch, number: int, core: Core) -> Done:
    """Run, and own up to a defect of the fuzzer itself."""
    try:
        return run(batch, number, core)
    except Exception:  # noqa: BLE001 - the rest goes on
        return Done(number, Outcome(MISTAKE, traceback.format_exc()[-600:]))


def case_of(batch: Batch, number: int) -> Case:
    """Return the case of a number."""
    return generate(rng_of(batch.seed, batch.kind, number), batch.classes)


def _case(batch: Batch, number: int, core: Core) -> Done:
    case = case_of(batch, number)
    outcome = check(case, batch.device, rng_of(batch.seed, "places", number), core)
    return Done(number, outcome, operators(case.model))


@functools.lru_cache(maxsize=2)
def _base(seed: int, kind: str, index: int, core: Core) -> mutants.Files | None:
    return mutants.base(seed, kind, index, core)


def files_of(batch: Batch, number: int, core: Core) -> mutants.Files | None:
    """Return the files of a mutant's number; None when its network cannot be written."""
    sound = _base(batch.seed, batch.kind, number - number % mutants.PER_MODEL, core)
    return sound and mutants.mutant(sound, batch.seed, batch.kind, number)


def _mutant(batch: Batch, number: int, core: Core) -> Done:
    files = files_of(batch, number, core)
    if files is None:
        return Done(number, Outcome("unsupported", "not written as IR"))
    return Done(number, mutants.survive(files, batch.device, core))


def _single(job: Single, core: Core) -> Done:
    if job.kind != "models":
        return Done(0, mutants.survive(job.content, job.device, core))
    model, feeds = job.content
    try:
        case = answered(onnx.ModelProto.FromString(model), feeds)
    except RefusedError as error:
        return Done(0, Outcome("unsupported", f"nobody can say: {error}"))
    return Done(0, check(case, job.device, rng_of(0, "places", 0), core))


def operators(model: onnx.ModelProto) -> tuple[tuple[str, str, int], ...]:
    """Return the (domain, operator, version of the operator) that a model uses."""
    opsets = {o.domain: o.version for o in model.opset_import}
    found = set()
    for node in nodes(model.graph):
        version = opsets[node.domain]
        with contextlib.suppress(onnx.defs.SchemaError):  # ONNX Runtime's own
            version = onnx.defs.get_schema(node.op_type, version, node.domain).since_version
        found.add((node.domain, node.op_type, version))
    return tuple(sorted(found))


def nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield all nodes, those of bodies included."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from nodes(attribute.g)
