"""Comparison: what `compare` found, value by value."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from polydevice.comparison.difference import Difference
from polydevice.dataclass import dataclass


@dataclass(frozen=True)
class Compared:
    """One value of the network on both sides.

    Attributes:
        layer: name of the node that makes it, with ``.index`` where that has several outputs; in
            `Comparison.outputs` the output's name.
        operation: type of that node.
        kernel: that makes it on the device; "" where the device does not say.
        fused: further nodes that the kernel computes.
        is_output: whether it is an output of the network.
        difference: how far the sides are apart; None where the reference does not have the value.
        own: the same for the step by itself, fed with the reference's values; None where that was
            not asked for or is not possible.
    """

    layer: str
    operation: str
    kernel: str
    fused: tuple[str, ...]
    is_output: bool
    difference: Difference | None
    own: Difference | None = None

    @property
    def is_beyond(self) -> bool:
        """Whether the sides are known to differ."""
        return self.difference is not None and self.difference.is_beyond

    @property
    def is_guilty(self) -> bool:
        """Whether the step differs even when it is fed with the reference's values."""
        return self.own is not None and self.own.is_beyond

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        fields = {**vars(self), "fused": list(self.fused)}
        for name in ("difference", "own"):
            fields[name] = fields[name].as_dict() if fields[name] else None
        return fields


@dataclass(frozen=True)
class Comparison:
    """What `compare` found.

    Attributes:
        model: name of the network.
        device: that was looked at.
        against: the reference.
        precision: that the device computed in; "" for its own choice.
        bound: largest difference that counts as none.
        outputs: the network's outputs, of a run in which nothing else was kept.
        layers: the values inside, in the network's order.
        seconds: that it took.
        reproduction: folder that a reproduction was written to; "" for none.
    """

    model: str
    device: str
    against: str
    precision: str
    bound: float
    outputs: tuple[Compared, ...]
    layers: tuple[Compared, ...]
    seconds: float
    reproduction: str = ""

    @property
    def is_equal(self) -> bool:
        """Whether all outputs are known to be within the bound."""
        return all(o.difference is not None and not o.is_beyond for o in self.outputs)

    @property
    def first(self) -> Compared | None:
        """The first value in the network's order that is beyond the bound."""
        return next((layer for layer in self.layers if layer.is_beyond), None)

    @property
    def guilty(self) -> Compared | None:
        """The step that differs most from the reference when fed with the reference's values.

        None where no step was run by itself, or all of them are within the bound.
        """
        found = [layer for layer in self.layers if layer.is_guilty]
        return max(found, key=lambda layer: layer.own.relative if layer.own else 0, default=None)

    def first_with(self, what: str) -> Compared | None:
        """Return the first layer whose value holds more of something than the reference's.

        Args:
            what: "nan", "infinite" or "saturated".
        """
        for layer in self.layers:
            found = layer.difference
            if found is None or found.ours is None or found.reference is None:
                continue
            if getattr(found.ours, what) > getattr(found.reference, what):
                return layer
        return None

    def worst(self, count: int = 10) -> list[Compared]:
        """Return the layers with the largest relative differences, the largest first."""
        known = [layer for layer in self.layers if layer.difference is not None]
        return sorted(known, key=lambda c: -c.difference.relative if c.difference else 0)[:count]

    def written(self, folder: Path) -> Comparison:
        """Return a copy that names the folder of the reproduction."""
        return replace(self, reproduction=str(folder))

    def as_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {
            **vars(self),
            "outputs": [output.as_dict() for output in self.outputs],
            "layers": [layer.as_dict() for layer in self.layers],
            "is_equal": self.is_equal,
        }
