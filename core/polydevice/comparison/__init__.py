"""Comparing a model on a device with a reference, value by value."""

from __future__ import annotations

from polydevice.comparison.compare import compare
from polydevice.comparison.difference import Difference, Numbers, difference
from polydevice.comparison.result import Compared, Comparison

__all__ = ["Compared", "Comparison", "Difference", "Numbers", "compare", "difference"]
