"""PyTorch's operator samples (OpInfo), exported to ONNX and run on a device.

    python -m tests.onnx.torch_samples --device CPU --samples 3000

Needs the packages torch, expecttest and onnxscript, which nothing else here does. A sample is right
if the device gives PyTorch's answer. Where it does not, ONNX Runtime is asked: if it refuses the
file too, or gives what the device gives, the fault is the exporter's. Prints how many samples were
which, the reasons of refusals, and exits with 1 where some are wrong.

Known: Resize by fractions of a pixel with align_corners follows ONNX's test cases and reference,
which ONNX Runtime and PyTorch do not.
"""

from __future__ import annotations

import argparse
import collections
import io
import pathlib
import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnxruntime
import torch
from torch.testing._internal.common_methods_invocations import op_db

from polydevice import Core
from polydevice.errors import PolydeviceError, UnsupportedOperationError

RANDOM = (
    "dropout", "bernoulli", "rand", "normal", "uniform", "multinomial", "exponential", "geometric",
    "cauchy", "empty", "_like", "rrelu", "fractional", "functional.unfold",
)  # fmt: skip
"""Parts of names of operators whose answer is random, or memory as it was; and of one whose export
ends the process."""


class _Call(torch.nn.Module):
    """An operator with everything fixed but its tensors."""

    def __init__(self, op: Any, args: Any, kwargs: Any) -> None:
        super().__init__()
        self.op, self.args, self.kwargs = op, args, kwargs

    def forward(self, *tensors: Any) -> Any:
        left = iter(tensors)
        args, kwargs = _mapped((self.args, self.kwargs), lambda _: next(left))
        found = self.op(*args, **kwargs)
        return tuple(found) if isinstance(found, (list, tuple)) else found


def _mapped(value: Any, function: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(_mapped(item, function) for item in value)
    if isinstance(value, dict):
        return {key: _mapped(item, function) for key, item in value.items()}
    return value


def _tensors(value: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    _mapped(value, found.append)
    return found


def samples(per_operator: int) -> Iterator[tuple[str, Any, list[torch.Tensor]]]:
    """Yield name, module and inputs of the first samples of every operator."""
    for info in op_db:
        name = f"{info.name}.{info.variant_test_name}".rstrip(".")
        if any(part in name for part in RANDOM) or torch.float32 not in info.dtypes:
            continue
        try:
            found = list(info.sample_inputs("cpu", torch.float32, requires_grad=False))
        except Exception as error:  # noqa: BLE001 - PyTorch's own
            _say(f"{name}: no samples: {type(error).__name__}")
            continue
        for number, sample in enumerate(found[:per_operator]):
            args = (sample.input, *sample.args)
            tensors = [t.detach().clone() for t in _tensors((args, sample.kwargs))]
            if not tensors or any(t.layout is not torch.strided or t.is_complex() for t in tensors):
                continue
            yield f"{name}#{number}", _Call(info.op, args, sample.kwargs), tensors


def exported(module: Any, tensors: list[torch.Tensor], opset: int) -> bytes:
    """Return the ONNX model of a call."""
    file = io.BytesIO()
    names = [f"x{k}" for k in range(len(tensors))]
    torch.onnx.export(
        module, tuple(tensors), file, input_names=names, opset_version=opset, dynamo=False
    )
    return file.getvalue()


def _judged(core: Core, device: str, content: bytes, tensors: list[Any], answers: list[Any]) -> str:
    """Return "" where the device is right."""
    network = core.read_network(content)
    executable = core.load_network(network, device)
    given = {f"x{k}": t.numpy() for k, t in enumerate(tensors) if f"x{k}" in executable.inputs}
    for _ in range(2):
        results = list(executable.create_infer_request().infer(given).values())
        if len(results) != len(answers):
            return f"{len(results)} outputs, not {len(answers)}"
        for got, want in zip(results, answers, strict=True):
            want = want.detach().resolve_conj().resolve_neg().numpy()
            if got.shape != want.shape:
                return f"shape {got.shape}, not {want.shape}"
            wide = np.asarray(got, np.float64), np.asarray(want, np.float64)
            if not np.allclose(*wide, 1e-3, 1e-4, equal_nan=True):
                where = ~np.isclose(*wide, 1e-3, 1e-4, equal_nan=True)
                return f"{wide[0][where][:3]} not {wide[1][where][:3]}"
    return ""


def _same_elsewhere(core: Core, device: str, content: bytes, tensors: list[Any]) -> bool:
    """Whether ONNX Runtime refuses the file too, or gives what the device gives: the exporter's."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    given = {f"x{k}": t.numpy() for k, t in enumerate(tensors)}
    try:
        session = onnxruntime.InferenceSession(content, options)
        names = {i.name for i in session.get_inputs()}
        answers = session.run(None, {k: v for k, v in given.items() if k in names})
    except Exception:  # noqa: BLE001 - of ONNX Runtime's many kinds
        return True
    try:
        return not _judged(core, device, content, tensors, [torch.from_numpy(a) for a in answers])
    except PolydeviceError:
        return False


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class _Tally:
    """What became of the samples on one device."""

    def __init__(self, core: Core, device: str, opset: int, save: str | None) -> None:
        self._core, self._device, self._opset, self._save = core, device, opset, save
        self.counts: collections.Counter[str] = collections.Counter()
        self.refused: collections.Counter[str] = collections.Counter()

    @property
    def tried(self) -> int:
        return sum(self.counts[what] for what in ("right", "wrong", "refused"))

    def add(self, name: str, module: Any, tensors: list[torch.Tensor]) -> None:
        """Try a sample, and count it."""
        try:
            with torch.no_grad():
                answers = _tensors(module(*[t.clone() for t in tensors]))
                content = exported(module, tensors, self._opset)
        except Exception:  # noqa: BLE001 - PyTorch cannot export it
            self.counts["not exported"] += 1
            return
        if any(a.is_complex() for a in answers):
            self.counts["complex"] += 1
            return
        self.counts[self._outcome(name, content, tensors, answers)] += 1

    def _outcome(self, name: str, content: bytes, tensors: list[Any], answers: list[Any]) -> str:
        try:
            verdict = _judged(self._core, self._device, content, tensors, answers)
        except UnsupportedOperationError as error:
            self.refused[str(error).partition(": ")[2][:110]] += 1
            return "refused"
        except PolydeviceError as error:
            verdict = f"{type(error).__name__}: {error}"[:300]
        if not verdict:
            return "right"
        if _same_elsewhere(self._core, self._device, content, tensors):
            return "as ONNX Runtime, unlike PyTorch"
        _say(f"WRONG {name}: {verdict}")
        if self._save:
            path = pathlib.Path(self._save) / f"{name.replace('/', '_')}.onnx"
            path.write_bytes(content)
        return "wrong"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="CPU")
    parser.add_argument("--samples", type=int, default=3000)
    parser.add_argument("--per-operator", type=int, default=10)
    parser.add_argument("--opset", type=int, default=17)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--save", help="folder for the models that come out wrong")
    parser.add_argument("--from", dest="first", default="", help="operator to begin with")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    end, begun = time.monotonic() + 60 * options.minutes, not options.first
    with Core() as core:
        tally = _Tally(core, options.device, options.opset, options.save)
        for name, module, tensors in samples(options.per_operator):
            begun = begun or name.startswith(options.first)
            if tally.tried >= options.samples or time.monotonic() > end:
                break
            if begun:
                tally.add(name, module, tensors)
    for reason, number in tally.refused.most_common():
        _say(f"refused {number}: {reason}")
    _say(", ".join(f"{number} {what}" for what, number in sorted(tally.counts.items())))
    return 1 if tally.counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
