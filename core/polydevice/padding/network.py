"""PaddedNetwork: a network on a device that pads inputs of unknown size, and cuts its outputs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from polydevice.errors import DeviceError, OptionValueError, UnsupportedNetworkError
from polydevice.executable_network import ExecutableNetwork
from polydevice.inspection.placement import Placement
from polydevice.network import Network
from polydevice.options import Options
from polydevice.options.shape_buckets import ShapeBuckets
from polydevice.padding.guards import add_guards
from polydevice.padding.proof import Proof, describe, prove
from polydevice.padding.runner import PaddedRunner
from polydevice.padding.symbols import Symbol, symbols
from polydevice.remote import RemoteContext
from polydevice.runtime.follower import Follower

_log = logging.getLogger("polydevice.padding")

Load = Callable[[Network, Options], ExecutableNetwork]
"""Loads a network, which it may change, on the device in question."""


def padded(network: Network, options: Options, load: Load) -> ExecutableNetwork:
    """Load a network whose inputs are padded up to the sizes of SHAPE_BUCKETS.

    Args:
        network: the device's own copy.
        options: with `shape_buckets`.
        load: loads on the device.

    Returns:
        What `load` returns where every size of the inputs is known.

    Raises:
        UnsupportedNetworkError: padding may change an answer; says which operation and why.
        OptionValueError: sizes for an axis that none of the inputs leaves open; or together with
            ACCURACY_GUARD.
        PolydeviceError: (a subclass) what `load` raises.
    """
    buckets = ShapeBuckets.parse(options.shape_buckets)
    plain = options.model_copy(update={"shape_buckets": ""})
    groups = [symbols(network, buckets, by_name=each) for each in (True, False)] if buckets else []
    if not any(groups):
        return load(network, plain)
    if options.accuracy_guard:
        raise OptionValueError(
            "SHAPE_BUCKETS and ACCURACY_GUARD do not go together; find the layers to keep in f32 "
            "without SHAPE_BUCKETS, or leave one of them out"
        )
    found, proof = _proved(network, options.shape_buckets, groups)
    guarded = network.clone()
    masks = add_guards(guarded, proof.guards)
    return PaddedNetwork(network, options, load(guarded, plain), found, proof, masks)


def _proved(
    network: Network, buckets: str, groups: Sequence[list[Symbol]]
) -> tuple[list[Symbol], Proof]:
    """Return the first of several groups of sizes that can be padded, with the proof."""
    failure: UnsupportedNetworkError | None = None
    for number, group in enumerate(groups):
        if number and group == groups[0]:
            continue
        try:
            return group, prove(network, group, network.evaluate)
        except UnsupportedNetworkError as error:
            failure = failure or error
    raise UnsupportedNetworkError(
        f"SHAPE_BUCKETS={buckets} is not possible for {network.name!r}: {failure}. Leave the key "
        "out, or name the axes that may be padded, as 0:powers does"
    ) from failure


class PaddedNetwork(ExecutableNetwork):
    """A network whose requests pad inputs, run it, and cut the outputs.

    Attributes:
        inner: the network as it is loaded on the device.
        symbols: sizes that are padded.
        proof: why that changes nothing.
        masks: padded size → the input of `inner` that says what is no padding.
        unfit: sizes that `inner` does not take though what they were padded from is legal → why.
    """

    survives_fork = True  # as far as `inner` does, which is asked

    def __init__(
        self,
        network: Network,
        options: Options,
        inner: ExecutableNetwork,
        symbols: list[Symbol],
        proof: Proof,
        masks: Mapping[str, str],
    ) -> None:
        """Take over what was loaded; see the class for the arguments."""
        super().__init__(network, inner.device, options, streams=inner.streams)
        self.inner = inner
        self.memory = inner.memory
        self.noted_lines = inner.noted_lines
        self.from_cache = inner.from_cache
        self.symbols = symbols
        self.proof = proof
        self.masks = dict(masks)
        self.unfit: dict[tuple[int, ...], str] = {}

    def create_runner(self) -> PaddedRunner:
        """Make what pads, runs and cuts for one request."""
        return PaddedRunner(self)

    def give_up(self, sizes: tuple[int, ...], error: Exception) -> None:
        """Pad no input to these sizes from now on, since the network does not take them."""
        self.unfit[sizes] = f"{type(error).__name__}: {error}".partition("\n")[0]
        _log.warning(
            "%s: inputs are no longer padded to %s, which the network does not take: %s",
            *(self.name, list(sizes), self.unfit[sizes]),
        )

    def get_exec_graph_info(self) -> Network:
        """Return the graph that the device runs, for padded inputs."""
        return self.inner.get_exec_graph_info()

    def explain(self) -> str:
        """Say what is padded to which sizes and what is hidden from padding; then of each layer."""
        titles = {symbol.name: symbol.title for symbol in self.symbols}
        lines = [f"SHAPE_BUCKETS: {each.title}: padded to {each.ladder}" for each in self.symbols]
        lines += [f"  guarded: {line}" for line in describe(self.proof.guards, titles)]
        lines += [
            f"  not padded to {list(sizes)}: {why}" for sizes, why in list(self.unfit.items())
        ]
        try:
            layers = self.inner.explain()
        except DeviceError as error:  # with dynamic shapes, before the first inference
            layers = str(error)
        return "\n".join([*lines, layers])

    def placement(self) -> list[Placement]:
        """Say for every node on which device it runs, and why."""
        return self.inner.placement()

    def get_config(self, key: str) -> str:
        """Return the value of a key that the network was loaded with."""
        own = key.removeprefix("KEY_") == "SHAPE_BUCKETS"
        return super().get_config(key) if own else self.inner.get_config(key)

    def metrics(self) -> dict[str, Any]:
        """Return the device's metrics of the network."""
        names = self.inner.get_metric("SUPPORTED_METRICS")
        return {name: self.inner.get_metric(name) for name in names}

    def get_context(self) -> RemoteContext:
        """Return the context in which the network was loaded."""
        return self.inner.get_context()

    def export(self) -> bytes:
        """Refuse: what is exported would take padded inputs alone.

        Raises:
            DeviceError: always, saying what to do instead.
        """
        raise DeviceError(
            f"network {self.name!r} was loaded with SHAPE_BUCKETS and cannot be exported; load it "
            "without the key and export that, or set CACHE_DIR, which keeps what is compiled"
        )

    def follow(self, follower: Follower) -> None:
        """Tell a follower of inferences, and of what runs on the device."""
        super().follow(follower)
        self.inner.follow(follower)

    def leave(self, follower: Follower) -> None:
        """Tell a follower nothing more."""
        super().leave(follower)
        self.inner.leave(follower)

    def release(self) -> None:
        """Close what was loaded on the device, which nothing runs any more."""
        self.inner.close_by(self.closing_end)
