"""Whether a device answers a case rightly: loads it, infers three times or more, compares."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from polydevice import Core
from polydevice.errors import (
    PolydeviceError,
    ShapeError,
    UnsupportedNetworkError,
    UnsupportedOperationError,
)
from polydevice.infer_request import InferRequest
from tests.fuzz.builder import Rng
from tests.fuzz.evaluate import RefusedError, Value, interpret
from tests.fuzz.generate import Case, finite
from tests.fuzz.known import known_difference
from tests.fuzz.tolerances import FIRST_RUNS, RUNS, disturbance, wrong

PASSED, UNSUPPORTED, KNOWN = "passed", "unsupported", "known"
MISTAKE = "mistake of the fuzzer"

AGAIN = 4
"""How often a request has data of the same sizes, where there are many: plans that run often change
in the background."""


@dataclass(frozen=True)
class Outcome:
    """What became of a case or a mutant.

    Attributes:
        kind: PASSED, UNSUPPORTED, KNOWN, or what went wrong: "value", "shape", "type",
            "input changed", an exception's name, "crash", "hang", "memory".
        detail: for people.
    """

    kind: str
    detail: str = ""

    @property
    def failed(self) -> bool:
        return self.kind not in (PASSED, UNSUPPORTED, KNOWN)

    @property
    def signature(self) -> str:
        """What outcomes of the same cause have in common, roughly: no numbers, no names."""
        text = re.sub(r"'[^']*'|\"[^\"]*\"|0x[0-9a-f]+|[\d.]+(e-?\d+)?", "…", self.detail)
        return self.kind if self.kind in ("value", "shape") else f"{self.kind}: {text[:90]}"


def check(case: Case, device: str, rng: Rng, core: Core) -> Outcome:
    """Run a case on a device.

    Args:
        case: with what is right.
        device: such as "CPU" or "HETERO:GPU,CPU".
        rng: for where the inputs lie in memory.
        core: to load it with.
    """
    try:
        executable = core.load_network(core.read_network(case.model.SerializeToString()), device)
    except (UnsupportedOperationError, UnsupportedNetworkError) as error:
        return _judged(case, device, Outcome(UNSUPPORTED, str(error)))
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        return _judged(case, device, _raised(error, "load"))
    try:
        request = executable.create_infer_request()
        others = range(2, len(case.feeds))
        for number in (0, 1, 0, *AGAIN * tuple(others)):
            outcome = _infer(case, number, request, rng)
            if outcome.failed:
                return _judged(case, device, outcome)
        return Outcome(PASSED)
    finally:
        executable.close()


def _raised(error: Exception, when: str) -> Outcome:
    ours = "" if isinstance(error, PolydeviceError) else "foreign "
    return Outcome(f"{ours}{type(error).__name__}", f"{when}: {error}"[:2000])


def _judged(case: Case, device: str, outcome: Outcome) -> Outcome:
    reason = known_difference(case, device, outcome.kind, outcome.detail)
    return Outcome(KNOWN, reason) if reason else outcome


def _infer(case: Case, number: int, request: InferRequest, rng: Rng) -> Outcome:
    feeds = case.feeds[number]
    placed = {name: place(array, rng) for name, array in feeds.items()}
    try:
        answer = request.infer(placed)
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        is_unknown = case.expected[number] is None
        if is_unknown or (isinstance(error, ShapeError) and _resized(case, number)):
            return Outcome(PASSED)
        return _raised(error, "infer")
    for name, array in feeds.items():
        if not _same(placed[name], array):
            return Outcome("input changed", f"{name} of data {number}")
    if case.expected[number] is None:
        return Outcome(PASSED)
    # By position: an output that is an input has another name than the input.
    names = zip(case.outputs, request.executable.outputs, strict=True)
    return compare(case, number, {ours: np.array(answer[theirs]) for ours, theirs in names})


def _resized(case: Case, number: int) -> bool:
    """Say whether data has other sizes than the first: other runtimes say too easily that they fit.

    Those of a NonZero or a Split of it too.
    """
    if any(a.shape != case.feeds[number][name].shape for name, a in case.feeds[0].items()):
        return True
    first, second = (interpret(case.model, case.feeds[each]) for each in (0, number))
    return any(_sizes(value) != _sizes(second.get(name)) for name, value in first.items())


def _sizes(value: object) -> object:
    """Return the shape of an array, or those of a sequence's items, which may be unlike."""
    return [_sizes(item) for item in value] if isinstance(value, list) else np.shape(value)


def compare(case: Case, number: int, results: dict[str, np.ndarray]) -> Outcome:
    """Compare results with what is right, asking further runtimes where they differ."""
    right = case.expected[number]
    assert right is not None
    differing = [n for n in case.outputs if wrong(results[n], right[n])]
    if not differing:
        return Outcome(PASSED)
    disturbed = _disturbed(case, number, range(FIRST_RUNS))
    if any(wrong(results[n], right[n], [run[n] for run in disturbed]) for n in differing):
        disturbed += _disturbed(case, number, range(FIRST_RUNS, RUNS))
    for name in differing:
        spread = [run[name] for run in disturbed]
        text = wrong(results[name], right[name], spread)
        if text and not _second_opinion(case, number, name, results[name], spread):
            kind = text.partition(" ")[0].rstrip(":").replace("values", "value")
            return Outcome(kind, f"data {number}, output {name} {text}")
    return Outcome(PASSED)


def _disturbed(case: Case, number: int, seeds: range) -> list[dict[str, Value]]:
    """Disturb everything that changes no sizes: a Resize's scales may be constants or inputs."""
    feeds, runs, right = case.feeds[number], [], case.expected[number] or {}
    for seed in seeds:
        run = None
        for constants, given in ((True, True), (False, True), (True, False), (False, False)):
            disturb = disturbance(np.random.default_rng(seed))
            try:
                run = interpret(
                    case.model, feeds, disturb=disturb, constants=constants, given=given
                )
            except RefusedError:
                continue
            if all(np.shape(run[name]) == np.shape(value) for name, value in right.items()):
                break
        if run is not None:
            runs.append(run)
    return runs


def _second_opinion(
    case: Case, number: int, name: str, found: np.ndarray, spread: list[Value]
) -> bool:
    """Say whether the other runtime answers what the device answers."""
    try:
        values = interpret(case.model, case.feeds[number], order=("reference", "onnxruntime"))
    except RefusedError:
        return False
    return finite(values[name]) and not wrong(found, values[name], spread)


def place(array: np.ndarray, rng: Rng) -> np.ndarray:
    """Return a copy of an array, now and then at an odd address or with strides."""
    if array.dtype.kind == "O" or rng.random() < 0.7 or not array.size:
        return array.copy()
    if rng.random() < 0.5:
        memory = np.zeros(array.nbytes + 64, np.uint8)
        offset = 64 - memory.ctypes.data % 64 + int(rng.choice((0, array.dtype.itemsize, 1)))
        moved = memory[offset % 64 :][: array.nbytes].view(array.dtype).reshape(array.shape)
    else:
        wider = np.zeros([2 * size for size in array.shape], array.dtype)
        cuts = (slice(0, s) if rng.random() < 0.5 else slice(0, 2 * s, 2) for s in array.shape)
        moved = wider[(*cuts, ...)]
    moved[...] = array
    return moved


def _same(first: np.ndarray, second: np.ndarray) -> bool:
    if first.dtype.kind == "O":
        return bool((first == second).all())
    return bool(np.ascontiguousarray(first).tobytes() == np.ascontiguousarray(second).tobytes())
