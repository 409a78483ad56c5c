"""Reasons: why something is not done, in words for reports; empty when it is done."""

from __future__ import annotations


def unless(*conditions: tuple[object, str]) -> str:
    """Return the reason behind the first condition that does not hold; empty when all do."""
    return next((reason for holds, reason in conditions if not holds), "")


NO_FLOATS = "its values are not computed in float"
VARIABLE_WEIGHTS = "its weights are no constant"
WIDE_WEIGHTS = "its weights do not fit into bytes"
NO_MODE = "none of its modes fits the device and the layer"
NO_HALF = "it is not computed in half"
NO_LOCAL_MEMORY = "the device lacks fast local memory"
NO_SUB_GROUPS = "the device has no sub-groups of its sizes"
NO_UNIT = "the device lacks its matrix units"
ON_PROCESSORS = "vectors of a work-item are expected to be faster on processor cores"
LOCAL_MEMORY_IS_FASTER = "local memory is expected to be faster"
