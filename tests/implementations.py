"""Which code of oneDNN the suite runs, and the test that proves each: ``pytest --implementations``.

oneDNN chooses among dozens of implementations by processor, type, layout and size. With
``--implementations FILE`` every primitive that a test's networks execute is noted, and counts as
proved by the first test that passed with it, shortest name first: tests compare with the answers
of others. ``--instruction-set`` makes oneDNN choose as on a lesser processor (its environment
variable would limit OpenVINO's oneDNN, too, whose answers some tests ask for, and which crashes
then). The file is JSON: instruction set → "kind implementation type" → test.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock

LISTED = Path(__file__).with_name("cpu") / "implementations.json"
"""What is in the repository."""

COMPARE_NOTHING = ("test_misfits.py", "test_no_step_runs_unproved", "TestTrial")
"""Parts of the names of tests that ask for other things than right answers; they prove nothing."""

Proofs = dict[str, dict[str, str]]


def read(path: Path) -> Proofs:
    """Read a list; empty where there is none yet."""
    return json.loads(path.read_text()) if path.exists() else {}  # type: ignore[no-any-return]


def merge(path: Path, found: Proofs) -> None:
    """Add what was found to a list; what it has already keeps its test."""
    with FileLock(f"{path}.lock"):
        known = read(path)
        for instruction_set, proofs in found.items():
            known[instruction_set] = {**proofs, **known.get(instruction_set, {})}
        ordered = {isa: dict(sorted(proofs.items())) for isa, proofs in sorted(known.items())}
        path.write_text(json.dumps(ordered, indent=1) + "\n")


class Recorder:
    """Notes what each test executes; a plugin of pytest."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._now: set[str] = set()
        self._proved: dict[str, str] = {}

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Note every primitive that is bound, until the patch is undone."""
        from polydevice_cpu.onednn.primitive import Primitive

        call = Primitive.call

        def noted(primitive: Primitive, *given: object, **named: object) -> object:
            made = (primitive.kind, primitive.implementation, primitive.src.data_type.name.lower())
            self._now.add(" ".join(made))
            return call(primitive, *given, **named)  # type: ignore[arg-type]

        patch.setattr(Primitive, "call", noted)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Iterator[None]:
        report = yield
        if call.when == "setup":
            self._now.clear()
        elif (
            call.when == "call"
            and report.passed  # type: ignore[attr-defined]
            and not any(part in item.nodeid for part in COMPARE_NOTHING)
        ):
            for name in self._now:
                self._proved.setdefault(name, item.nodeid)
        return report  # type: ignore[return-value]

    def pytest_sessionfinish(self) -> None:
        """Write what this process has found."""
        if self._proved:
            merge(self._path, {_instruction_set(): self._proved})


def _instruction_set() -> str:
    """Return the name of what oneDNN generates code for."""
    from polydevice_cpu.onednn.descriptor import required

    loaded = required()
    number = int(loaded.value("get_effective_cpu_isa"))
    names = {value: name for name, value in INSTRUCTION_SETS.items()}
    return f"oneDNN {loaded.version}, {names.get(number, f'{number:#x}')}"


def limit(instruction_set: str) -> None:
    """Let oneDNN use no more instructions than that; before it is used for anything."""
    from polydevice_cpu.onednn.library import library

    loaded = library()
    if loaded is not None:
        function = ctypes.CDLL(str(loaded.path)).dnnl_set_max_cpu_isa
        assert function(INSTRUCTION_SETS[instruction_set]) == 0


INSTRUCTION_SETS = {
    "sse41": 0x1,
    "avx": 0x3,
    "avx2": 0x7,
    "avx2_vnni": 0xF,
    "avx512_core": 0x27,
    "avx512_core_vnni": 0x67,
    "avx512_core_bf16": 0xE7,
    "avx10_1_512": 0x1EF,
    "avx10_1_512_amx": 0xFEF,
}
"""dnnl_cpu_isa_t of oneDNN 3."""
