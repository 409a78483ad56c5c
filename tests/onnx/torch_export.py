"""Exports PyTorch's operator samples (OpInfo) to ONNX, with PyTorch's answers, into one archive.

    python -m tests.onnx.torch_export samples.tar.xz --per-operator 30

Needs the packages torch, expecttest and onnxscript, which nothing else here does. The archive has
`NAME#NUMBER.onnx` and `.npz` (inputs x0…, answers y0…) of every sample, and `counts.json`: what
became of all of them. Every operator is exported in a child process, since the exporter divides by
zero and reads where it must not: the sample that ends a child counts as "exporter died", and the
next child goes on behind it. `tests.onnx.torch_samples` runs what the archive has.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import json
import multiprocessing
import os
import pathlib
import sys
import tarfile
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import torch
from torch.testing._internal.common_methods_invocations import op_db

RANDOM = (
    "dropout", "bernoulli", "rand", "normal", "uniform", "multinomial", "exponential", "geometric",
    "cauchy", "empty", "_like", "rrelu", "fractional",
)  # fmt: skip
"""Parts of names of operators whose answer is random, or memory as it was."""

SECONDS = 120
"""That one operator may take."""

REASON = 100
"""Characters of a reason that are kept."""


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


def _array(tensor: torch.Tensor) -> Any:
    return tensor.detach().resolve_conj().resolve_neg().numpy()


def operators() -> Iterator[tuple[str, Any]]:
    """Yield name and OpInfo of the operators whose answers are no accident."""
    for info in op_db:
        name = f"{info.name}.{info.variant_test_name}".rstrip(".")
        if not any(part in name for part in RANDOM) and torch.float32 in info.dtypes:
            yield name, info


def _outcome(folder: pathlib.Path, name: str, info: Any, sample: Any, opset: int) -> str:
    """Export one sample; return what became of it."""
    args = (sample.input, *sample.args)
    tensors = [t.detach().clone() for t in _tensors((args, sample.kwargs))]
    if not tensors or any(t.layout is not torch.strided or t.is_complex() for t in tensors):
        return "not of numbers alone"
    module = _Call(info.op, args, sample.kwargs)
    try:
        with torch.no_grad():
            answers, again = (_tensors(module(*[t.clone() for t in tensors])) for _ in range(2))
            names = [f"x{k}" for k in range(len(tensors))]
            file = io.BytesIO()
            torch.onnx.export(
                module, tuple(tensors), file, input_names=names, opset_version=opset, dynamo=False
            )
    except Exception as error:  # noqa: BLE001 - PyTorch cannot export it
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        return f"not exported: {said[:REASON]}"
    if any(a.is_complex() for a in answers):
        return "complex"
    if not all(torch.allclose(a, b, equal_nan=True) for a, b in zip(answers, again, strict=True)):
        return "random"
    # PyTorch's samples fix the seed of each call: two answers do not show a Dropout in training.
    nodes = onnx.load_from_string(file.getvalue()).graph.node
    if any(node.op_type == "Dropout" and len(node.input) > 2 for node in nodes):
        return "random"
    try:
        arrays = {f"x{k}": _array(t) for k, t in enumerate(tensors)}
        arrays.update({f"y{k}": _array(a) for k, a in enumerate(answers)})
    except TypeError:
        return "of a type that NumPy does not have"
    np.savez(folder / f"{name}.npz", **arrays)
    (folder / f"{name}.onnx").write_bytes(file.getvalue())
    return "exported"


def _child(folder: pathlib.Path, name: str, info: Any, first: int, last: int, opset: int) -> None:
    """Export an operator's samples; the last line of the log says which one is at hand."""
    with contextlib.suppress(OSError):
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
    torch.manual_seed(0)
    with (folder / "log").open("a") as log:
        try:
            samples = list(info.sample_inputs("cpu", torch.float32, requires_grad=False))[:last]
        except Exception as error:  # noqa: BLE001 - PyTorch's own
            log.write(json.dumps([-1, f"no samples: {type(error).__name__}"]) + "\n")
            return
        for number in range(first, len(samples)):
            log.write(json.dumps([number, ""]) + "\n")
            log.flush()
            done = _outcome(folder, f"{name}#{number}", info, samples[number], opset)
            log.write(json.dumps([number, done]) + "\n")
            log.flush()


def export(name: str, info: Any, limit: int, opset: int, folder: pathlib.Path) -> dict[str, str]:
    """Export an operator's samples into a folder; return what became of each."""
    context = multiprocessing.get_context("fork")
    found: dict[str, str] = {}
    first = 0
    while first < limit:
        child = context.Process(target=_child, args=(folder, name, info, first, limit, opset))
        child.start()
        child.join(SECONDS)
        late = child.is_alive()
        if late:
            child.kill()
            child.join()
        lines = (folder / "log").read_text().splitlines() if (folder / "log").exists() else []
        said = dict(map(json.loads, lines))
        died = [number for number, what in said.items() if not what]
        said.update(dict.fromkeys(died, "exporter took too long" if late else "exporter died"))
        (folder / "log").unlink(missing_ok=True)
        found.update({f"{name}#{number}": what for number, what in said.items()})
        if not died:
            if child.exitcode:
                found[name] = "exporter died"
            return found
        first = max(died) + 1
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive", type=pathlib.Path)
    parser.add_argument("--per-operator", type=int, default=30)
    parser.add_argument("--opset", type=int, default=17)
    parser.add_argument("--operator", default="", help="part of the names of operators to export")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    counts: collections.Counter[str] = collections.Counter()
    with tarfile.open(options.archive, "w:xz") as archive:
        for name, info in operators():
            if options.operator not in name:
                continue
            with tempfile.TemporaryDirectory() as made:
                folder = pathlib.Path(made)
                found = export(name, info, options.per_operator, options.opset, folder)
                for file in sorted(folder.iterdir()):
                    archive.add(file, file.name)
            counts.update(found.values())
            lost = [sample for sample, what in found.items() if what.startswith("exporter ")]
            for sample in lost:
                print(f"{sample}: {found[sample]}", flush=True)
        content = json.dumps(counts.most_common(), indent=1).encode()
        entry = tarfile.TarInfo("counts.json")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    brief: collections.Counter[str] = collections.Counter()
    for what, number in counts.items():
        brief[what.partition(":")[0]] += number
    print(", ".join(f"{number} {what}" for what, number in brief.most_common()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
