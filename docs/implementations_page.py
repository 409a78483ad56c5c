"""The page of oneDNN's code: which was seen, by instruction set, and the test that proves it."""

from __future__ import annotations

import json
from pathlib import Path

LISTED = Path(__file__).parent.parent / "tests" / "cpu" / "implementations.json"

HEAD = """\
# oneDNN's code

<!-- Written by scripts/docs from tests/cpu/implementations.json; `pytest --implementations` adds
to that file. -->

oneDNN chooses one of many implementations for each primitive, by processor, element type, layout
and sizes. These are all that the test suite has seen the [CPU device](cpu.md) execute, and for each
of them a test that compares its answers with ONNX's cases, ONNX Runtime, OpenVINO or numbers worked
out by hand. What is fused with it is proved [before its first use](cpu.md#proof-before-fusing), on
every machine anew.

    pytest --device CPU --implementations tests/cpu/implementations.json tests/conformance
    pytest --device CPU --implementations … --instruction-set avx2 tests/conformance

`--instruction-set` lets oneDNN generate what a lesser processor would get. The suite does that for
SSE4.1 and AVX2 (`tests/cpu/test_implementations.py`), so that what is chosen there is proved too,
whether it is in this list or not.
"""


def implementations() -> str:
    """Write the page."""
    parts = [HEAD]
    for instruction_set, proofs in json.loads(LISTED.read_text()).items():
        parts.append(
            f"\n## {instruction_set}\n\n| primitive | code | source | test |\n|---|---|---|---|\n"
        )
        for name, test in proofs.items():
            kind, _, rest = name.partition(" ")
            code, _, element_type = rest.rpartition(" ")
            shown = test.replace("|", "\\|")
            parts.append(f"| {kind} | `{code}` | {element_type} | `{shown}` |\n")
    return "".join(parts)
