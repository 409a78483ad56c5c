"""AccuracyBound: how far outputs may be from those in f32, as ACCURACY_GUARD says it."""

from __future__ import annotations

import re

import numpy as np

from polydevice.dataclass import dataclass
from polydevice.dtype import Array

LEGAL = (
    "a part of the largest element, such as 1e-2, or a number of steps of f16, such as 8ulp; empty "
    "for none"
)
_ULPS = re.compile(r"(.*?)\s*ulp", re.IGNORECASE)


@dataclass(frozen=True)
class AccuracyBound:
    """A bound and the unit that it counts in.

    Attributes:
        limit: largest error that counts as none.
        in_ulp: whether errors count in units in the last place of f16 at the size of each element
            of the reference; else as a part of the reference's largest element.
    """

    limit: float
    in_ulp: bool = False

    @classmethod
    def parse(cls, text: object) -> AccuracyBound | None:
        """Return what a text says; None for an empty one.

        Raises:
            ValueError: it is none of the legal ones, with the list of them.
        """
        written = "" if isinstance(text, bool) else str(text).strip()
        if not written and isinstance(text, str):
            return None
        found = _ULPS.fullmatch(written)
        try:
            limit = float(found[1] if found else written)
        except ValueError:
            limit = -1.0
        if not 0 < limit < float("inf"):
            raise ValueError(f"legal: {LEGAL}")
        return cls(limit, found is not None)

    def error(self, ours: Array, reference: Array) -> float:
        """Return how far an output is from the reference's, in units of the bound.

        Of texts, truth values and integers it is the part of the elements that differ (in ulp:
        infinite when any does). Other shapes, and a NaN or infinity on one side only, are infinite.
        """
        if ours.shape != reference.shape:
            return float("inf")
        if reference.dtype.kind not in "fcV":
            part = float(np.mean(ours != reference)) if ours.size else 0.0
            return float("inf") if part and self.in_ulp else part
        wide = np.complex128 if reference.dtype.kind == "c" else np.float64
        a, b = ours.astype(wide), reference.astype(wide)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            apart = np.where(same, 0.0, np.abs(a - b))
        if not np.isfinite(apart).all():
            return float("inf")
        sizes = np.abs(np.where(np.isfinite(b), b, 0.0))
        if not self.in_ulp:
            largest, scale = apart.max(initial=0.0), sizes.max(initial=0.0)
            return float(largest / scale) if scale else float("inf") if largest else 0.0
        _, exponents = np.frexp(sizes)  # f16: 11 bits, and steps of 2**-24 below 2**-14
        steps = np.ldexp(1.0, np.where(sizes > 0, np.maximum(exponents - 11, -24), -24))
        return float((apart / steps).max(initial=0.0))

    def said(self, error: float) -> str:
        """Write an error with its unit."""
        return f"{error:.3g} ulp" if self.in_ulp else f"{error:.2e} of the largest element"

    def __str__(self) -> str:
        return f"{self.limit:g}{'ulp' if self.in_ulp else ''}"
