"""Which operators, in which versions, a campaign has reached."""

from __future__ import annotations

import collections

import onnx

NOT_GENERATED = {
    "Bernoulli": "random", "Multinomial": "random", "ImageDecoder": "no images here",
    "Scatter": "deprecated", "Optional": "polydevice has no optional outputs",
    "SequenceEmpty": "of no element", "LinearAttention": "no other runtime has it",
}  # fmt: skip


def summary(reached: collections.Counter[tuple[str, str, int]], every: bool = False) -> str:
    """Say how many of ONNX's operators and versions were reached, and which were not.

    Args:
        reached: (domain, operator, version) → networks.
        every: name also the versions that were not reached.
    """
    oldest = 7
    schemas = [s for s in onnx.defs.get_all_schemas_with_history()
               if s.domain == "" and not s.deprecated]  # fmt: skip
    names = {s.name for s in schemas}
    versions = {(s.name, s.since_version) for s in schemas if _usable(s, schemas, oldest)}
    ours = {(name, version) for domain, name, version in reached if domain == ""}
    seen = {name for name, _ in ours}
    left = sorted(names - seen - set(NOT_GENERATED))
    first = (
        f"operators reached: {len(seen & names)} of {len(names)}, in {len(ours & versions)} of "
        f"{len(versions)} versions since opset {oldest}; {len(NOT_GENERATED)} are not generated"
    )
    lines = [first]
    if left:
        lines.append(f"not reached this time: {', '.join(left)}")
    if every:
        lines += [f"not reached: {name}-{version}" for name, version in sorted(versions - ours)]
    return "\n".join(lines)


def _usable(schema, schemas, oldest: int) -> bool:
    """Say whether a version is in force in some opset from the oldest on."""
    later = [s.since_version for s in schemas if s.name == schema.name]
    after = [v for v in later if v > schema.since_version]
    return schema.since_version >= oldest or not after or min(after) > oldest
