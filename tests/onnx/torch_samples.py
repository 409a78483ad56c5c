"""Runs PyTorch's operator samples, which `tests.onnx.torch_export` exported, on a device.

    python -m tests.onnx.torch_samples samples.tar.xz --device GPU

A sample is right if the device gives PyTorch's answer. Where it does not, ONNX Runtime and ONNX's
reference are asked: if one of them gives what the device gives, the exporter wrote something else
than PyTorch computed, and if neither runs the file, it is not valid. Prints how
many samples were which, the reasons of refusals, and exits with 1 where some are wrong that are not
in `KNOWN`.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import fnmatch
import io
import itertools
import pathlib
import sys
import tarfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from polydevice import Core
from polydevice.errors import (
    InternalError,
    PolydeviceError,
    UnsupportedNetworkError,
    UnsupportedOperationError,
)

Array = np.ndarray[Any, Any]

_ALIGNED = "Resize by fractions of a pixel with align_corners follows ONNX's cases and reference"
_NAN_IS_LARGEST = "TopK takes NaN for the largest number, so ArgMin never chooses it"
_TRAINING = "PyTorch writes five outputs of BatchNormalization, which has at most three"
KNOWN = {
    **{f"nn.functional.interpolate.{kind}linear#[2-5]": _ALIGNED for kind in ("", "bi", "tri")},
    "nn.functional.interpolate.bicubic#[45]": _ALIGNED,
    "nn.functional.upsample_bilinear#[23]": _ALIGNED,
    "masked.argmin#*": _NAN_IS_LARGEST,
    "nn.functional.instance_norm#*": _TRAINING,
    "gather#4": "GatherElements needs indices of the data's rank",
    "nn.functional.embedding_bag#28": "the mean of no elements is NaN, in ONNX Runtime 0",
}
"""Pattern of samples → why we differ from PyTorch and other runtimes on purpose."""

KNOWN_ON_CPU = {
    "masked.logsumexp#*": "oneDNN's exponential of NaN is infinity (docs/cpu.md)",
}
"""The same for CPU alone."""

MOST = (1e-3, 1e-4)
"""Relative and absolute difference that counts as none."""


@dataclass(frozen=True)
class Sample:
    """One call of an operator.

    Attributes:
        name: operator, variant and number.
        model: the ONNX file's content.
        inputs: x0…
        answers: PyTorch's.
    """

    name: str
    model: bytes
    inputs: dict[str, Array]
    answers: list[Array]


def samples(archive: pathlib.Path) -> Iterator[Sample]:
    """Yield what an archive has, in its order."""
    held = b""
    with tarfile.open(archive) as opened:
        for entry in opened:
            name, _, kind = entry.name.rpartition(".")
            file = opened.extractfile(entry)
            if file is None or kind == "json":
                continue
            if kind == "npz":
                held = file.read()
                continue
            values = dict(np.load(io.BytesIO(held)))
            answers = [values.pop(f"y{k}") for k in range(sum(n[0] == "y" for n in values))]
            yield Sample(name, file.read(), values, answers)


def fault(core: Core, device: str, sample: Sample, answers: list[Array]) -> str:
    """Run a sample twice; return what differs from the answers, or "".

    Raises:
        PolydeviceError: (a subclass) the device does not run it.
    """
    with core.load_network(core.read_network(sample.model), device) as executable:
        given = {name: x for name, x in sample.inputs.items() if name in executable.inputs}
        for _ in range(2):
            results = list(executable.create_infer_request().infer(given).values())
            if len(results) != len(answers):
                return f"{len(results)} outputs, not {len(answers)}"
            for got, want in zip(results, answers, strict=True):
                if got.shape != want.shape:
                    return f"shape {got.shape}, not {want.shape}"
                wide = np.asarray(got, np.float64), np.asarray(want, np.float64)
                close = np.isclose(*wide, *MOST, equal_nan=True)
                if not close.all():
                    return f"{wide[0][~close][:3]} not {wide[1][~close][:3]}"
    return ""


def _onnxruntime(sample: Sample) -> list[Array]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(sample.model, options)
    names = {i.name for i in session.get_inputs()}
    return list(session.run(None, {k: v for k, v in sample.inputs.items() if k in names}))


def _reference(sample: Sample) -> list[Array]:
    from onnx.reference import ReferenceEvaluator

    session = ReferenceEvaluator(onnx.load_from_string(sample.model))
    given = {k: v for k, v in sample.inputs.items() if k in session.input_names}
    return [np.asarray(value) for value in session.run(None, given)]


OTHERS = {"ONNX Runtime": _onnxruntime, "ONNX's reference": _reference}


def _said_elsewhere(core: Core, device: str, sample: Sample) -> str:
    """Return what other runtimes make of a file that we do not run as PyTorch: "" for PyTorch's.

    Where one gives what the device gives, the exporter wrote something else than PyTorch computed;
    where none runs it, the file is not valid.
    """
    ran = []
    for name, run in OTHERS.items():
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                answers = run(sample)
        except Exception:  # noqa: BLE001 - whatever it raises, it does not run the file, and has no say
            continue
        ran.append(name)
        try:
            if not fault(core, device, sample, answers):
                return f"as {name}, unlike PyTorch"
        except PolydeviceError:
            break
    return "" if ran else "run by nobody"


class Keeper:
    """Writes an archive of few samples: of an operator, one for each list of nodes."""

    def __init__(self, archive: tarfile.TarFile, most_bytes: int = 2048) -> None:
        self._archive, self._most_bytes = archive, most_bytes
        self._seen: set[tuple[str, ...]] = set()

    def add(self, sample: Sample) -> None:
        """Write a sample whose arrays are small and whose kind is not there yet."""
        arrays = {**sample.inputs, **{f"y{k}": y for k, y in enumerate(sample.answers)}}
        nodes = onnx.load_from_string(sample.model).graph.node
        kind = (sample.name.partition("#")[0], *sorted(n.op_type for n in nodes))
        if kind in self._seen or sum(x.nbytes for x in arrays.values()) > self._most_bytes:
            return
        self._seen.add(kind)
        values = io.BytesIO()
        np.savez(values, **arrays)
        for suffix, content in (("npz", values.getvalue()), ("onnx", sample.model)):
            entry = tarfile.TarInfo(f"{sample.name}.{suffix}")
            entry.size = len(content)
            self._archive.addfile(entry, io.BytesIO(content))


def outcome(core: Core, device: str, sample: Sample) -> tuple[str, str]:
    """Return what became of a sample, and why."""
    try:
        why = fault(core, device, sample, sample.answers)
    except (UnsupportedNetworkError, UnsupportedOperationError) as error:
        return "refused", str(error).partition(": ")[2][:110]
    except InternalError as error:
        return "wrong", f"{type(error).__name__}: {error}"[:300]
    except PolydeviceError as error:
        why = f"{type(error).__name__}: {error}"[:300]
    if not why:
        return "right", ""
    expected = {**KNOWN, **KNOWN_ON_CPU} if device == "CPU" else KNOWN
    known = [why for pattern, why in expected.items() if fnmatch.fnmatchcase(sample.name, pattern)]
    if known:
        return "known to differ", known[0]
    said = _said_elsewhere(core, device, sample)
    return (said, f"{sample.name.partition('#')[0]}: {why[:100]}") if said else ("wrong", why)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive", type=pathlib.Path)
    parser.add_argument("--device", default="CPU")
    parser.add_argument("--operator", default="", help="part of the names of samples to run")
    parser.add_argument("--first", type=int, default=0, help="number of the first sample")
    parser.add_argument("--last", type=int, help="number of the sample to stop before")
    parser.add_argument("--save", type=pathlib.Path, help="folder for models that come out wrong")
    parser.add_argument("--keep", type=pathlib.Path, help="archive to write with few right ones")
    options = parser.parse_args()
    counts: collections.Counter[str] = collections.Counter()
    reasons: collections.Counter[str] = collections.Counter()
    with contextlib.ExitStack() as stack:
        core = stack.enter_context(Core())
        kept = options.keep and stack.enter_context(tarfile.open(options.keep, "w:xz"))
        keeper = Keeper(kept) if kept else None
        for sample in itertools.islice(samples(options.archive), options.first, options.last):
            if options.operator not in sample.name:
                continue
            what, why = outcome(core, options.device, sample)
            counts[what] += 1
            if what == "right" and keeper:
                keeper.add(sample)
            if what == "wrong":
                print(f"WRONG {sample.name}: {why}", flush=True)
                if options.save:
                    (options.save / f"{sample.name}.onnx").write_bytes(sample.model)
            elif why:
                reasons[f"{what}: {why}"] += 1
            if sum(counts.values()) % 500 == 0:
                print(dict(counts), flush=True)
    for reason, number in reasons.most_common():
        print(f"{number} {reason}")
    print(f"{counts.total()} samples:", ", ".join(f"{n} {what}" for what, n in counts.items()))
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
