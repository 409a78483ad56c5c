"""The accuracy guard: loads a network so that its outputs stay near those in f32."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field

from polydevice.accuracy.calibration import KINDS, Sample, given_samples, random_samples
from polydevice.accuracy.search import Search, Step
from polydevice.dataclass import dataclass
from polydevice.dtype import Array
from polydevice.errors import PolydeviceError
from polydevice.exec_graph import original_layers
from polydevice.executable_network import ExecutableNetwork
from polydevice.network import Network
from polydevice.network.kept_layers import ALL_F32, GUARD, keep
from polydevice.ops.io import Constant, Parameter, Result
from polydevice.options import Options
from polydevice.options.accuracy_bound import AccuracyBound

AIM = 0.5
"""Part of the bound that is to be kept on the inputs at hand, since others have other errors."""

CHECKS = 5
"""Sets of other random inputs on which what was found is checked before the last is believed."""

FIRST, MORE, MOST = 8, 4, 128
"""Inputs of the first set, how many times as many the next one has after one that held, and the
most: few inputs say little of networks that are far off on one in fifty."""

CHECK_SHARE = 0.25
"""Of ACCURACY_GUARD_SECONDS, for a larger set; where it would take more, it is left out."""

CHECK_BYTES = 1 << 28
"""Likewise of memory, for the inputs of one set."""

HARDEST = 8
"""Inputs of a larger set that count from then on: those with the largest errors."""

_log = logging.getLogger("polydevice.accuracy")
_trying: ContextVar[bool] = ContextVar("trying", default=False)

Load = Callable[[Network, Options], ExecutableNetwork]
"""Loads a network, which it may change, on the device in question."""


def is_trying() -> bool:
    """Whether what is loaded now is a trial of a guard, of which nothing is to be kept."""
    return _trying.get()


def guarded(network: Network, options: Options, load: Load) -> ExecutableNetwork:
    """Load a network whose outputs are within ACCURACY_GUARD of those in f32.

    Args:
        network: the device's own copy.
        options: with `accuracy_guard`.
        load: loads on the device.

    Raises:
        OptionValueError: the inputs to compare on cannot be read, or cannot be made up.
        PolydeviceError: (a subclass) the network cannot be loaded or run.
    """
    bound = AccuracyBound.parse(options.accuracy_guard)
    reduced, exact = options.trial(in_f32=False), options.trial(in_f32=True)
    if bound is None or reduced == exact:
        return load(network, options)
    path = options.accuracy_guard_inputs
    samples = given_samples(network, path) if path else _random(network, range(FIRST // KINDS))
    with _trial():
        trials = _Trials(network, bound, reduced, exact, load, options.accuracy_guard_seconds)
        unguarded = trials.check(samples, frozenset())
        search = Search(trials.steps, trials.error, AIM * bound.limit, trials.expired)
        found = search.run(unguarded)
        if not path:
            found = found and _holds_on_others(network, trials, search)
    where = f"{trials.checked} {'given' if path else 'random'} inputs"
    said = f"bound {bound}, on {where}; without it {bound.said(unguarded)} on the first"
    if not found:
        text = f"all is computed in f32, since what else was tried stays beyond the {said}"
        _log.warning("%s: %s", network.name, text)
        network.rt_info.update({GUARD: text, ALL_F32: True})
        everything = [name for step in trials.steps for name in step]
        keep(network, dict.fromkeys(everything, "nothing less helps"))
        return load(network, exact.model_copy(update=_own(options, exact, reduced)))
    keep(network, {name: _why(bound, own) for step, own in search.kept.items() for name in step})
    number = f"{len(search.kept)} of {len(trials.steps)} steps kept in f32"
    network.rt_info[GUARD] = f"{number}; error {bound.said(search.error)}; {said}"
    _log.info("%s: %s, found in %.1f s", network.name, network.rt_info[GUARD], trials.seconds)
    return load(network, options)


def _random(network: Network, seeds: range) -> list[Sample]:
    """Return random inputs, one of each kind for every seed."""
    return [sample for seed in seeds for sample in random_samples(network, seed)]


def _holds_on_others(network: Network, trials: _Trials, search: Search) -> bool:
    """Check what was found on inputs that had no part in finding it, and go on where it breaks."""
    count, seed = FIRST, FIRST // KINDS
    for _ in range(CHECKS):
        samples = _random(network, range(seed, seed + count // KINDS))
        seed += count // KINDS
        begin = trials.seconds
        error = trials.check(samples, frozenset(search.kept), HARDEST)
        if error > search.limit:
            if not search.go_on(error):
                return False
            continue
        search.error = max(search.error, error)
        seconds = MORE * (trials.seconds - begin)
        size = MORE * sum(value.nbytes for sample in samples for value in sample.values())
        count *= MORE
        if count > MOST or seconds > CHECK_SHARE * trials.limit_s or size > CHECK_BYTES:
            break
    return True


def _why(bound: AccuracyBound, own: float) -> str:
    return f"in less, it alone moves an output by {bound.said(own)}"


def _own(options: Options, exact: Options, reduced: Options) -> dict[str, object]:
    """Return the fields in which trials differ from what was asked, except for the precision."""
    fields = type(options).model_fields
    return {
        name: getattr(options, name)
        for name in fields
        if getattr(exact, name) == getattr(reduced, name)
    }


@contextmanager
def _trial() -> Iterator[None]:
    token = _trying.set(True)
    try:
        yield
    finally:
        _trying.reset(token)


@dataclass
class _Trials:
    """Loads of one network with other layers kept, and what they compute.

    Attributes:
        network: what is loaded; every trial has a copy.
        bound: in whose units errors are.
        reduced: the configuration of trials.
        exact: the configuration in f32.
        load: loads on the device.
        limit_s: seconds after which the time is over.
        samples: the inputs.
        reference: outputs of each sample in f32.
        steps: the network's layers by the steps that the device computes, in order; known after
            the first trial of the reduced configuration.
        count: of trials so far.
        checked: inputs on which anything was measured.
    """

    network: Network
    bound: AccuracyBound
    reduced: Options
    exact: Options
    load: Load
    limit_s: float
    samples: list[Sample] = field(default_factory=list)
    reference: list[Mapping[str, Array]] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    count: int = 0
    checked: int = 0
    _start: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Time since the first trial began."""
        return time.monotonic() - self._start

    def expired(self) -> bool:
        """Whether the time is over."""
        return self.seconds > self.limit_s

    def _outputs(
        self, network: Network, options: Options, samples: list[Sample]
    ) -> list[Mapping[str, Array]]:
        """Load, run every sample on a request of its own, whose variables are fresh, and let go."""
        executable = self.load(network, options)
        try:
            found: list[Mapping[str, Array]] = [
                {name: value.copy() for name, value in self._infer(executable, sample).items()}
                for sample in samples
            ]
            if options is self.reduced and not self.steps:
                self.steps = _steps(self.network, executable)
            return found
        finally:
            executable.close()

    def _infer(self, executable: ExecutableNetwork, sample: Sample) -> Mapping[str, Array]:
        return executable.create_infer_request().infer(sample)

    def error(self, kept: AbstractSet[Step]) -> float:
        """Return the largest error of an output with some steps kept in f32."""
        return max(self._errors(self.samples, self.reference, kept))

    def check(
        self, samples: list[Sample], kept: AbstractSet[Step], hardest: int | None = None
    ) -> float:
        """Return the same on other inputs alone.

        From now on they count like those before: all, or as many as given with the largest errors.
        """
        references = self._outputs(self.network.clone(), self.exact, samples)
        errors = self._errors(samples, references, kept)
        order = sorted(range(len(samples)), key=lambda number: -errors[number])
        for number in order[:hardest]:
            self.samples.append(samples[number])
            self.reference.append(references[number])
        self.checked += len(samples)
        return max(errors)

    def _errors(
        self,
        samples: list[Sample],
        references: list[Mapping[str, Array]],
        kept: AbstractSet[Step],
    ) -> list[float]:
        network = self.network.clone()
        keep(network, {name: "a trial" for step in kept for name in step})
        answers = self._outputs(network, self.reduced, samples)
        errors = [
            max(self.bound.error(ours[name], value) for name, value in reference.items())
            for ours, reference in zip(answers, references, strict=True)
        ]
        self.count += 1
        _log.info(
            "%s: trial %d, %d of %d steps in f32: %s; %.0f of at most %.0f s",
            self.network.name, self.count, len(kept), len(self.steps), self.bound.said(max(errors)),
            self.seconds, self.limit_s,
        )  # fmt: skip
        return errors


def _steps(network: Network, executable: ExecutableNetwork) -> list[Step]:
    """Return the network's layers by the steps that a device computes.

    What it computes in no step of its own, such as a view, counts to the layer before. Where a
    device does not describe its execution, every layer is a step.
    """
    given = (Constant, Parameter, Result)
    layers = [node.name for node in network.nodes() if not isinstance(node.op, given)]
    known = set(layers)
    try:
        nodes = executable.get_exec_graph_info().nodes()
    except PolydeviceError:
        return [(name,) for name in layers]
    number: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for name in original_layers(node, known):
            number.setdefault(name, index)
    steps: dict[int, list[str]] = {}
    latest = -1
    for name in layers:
        latest = number.get(name, latest)
        steps.setdefault(latest, []).append(name)
    return [tuple(names) for names in steps.values()]
