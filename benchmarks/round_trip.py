"""Read, write and read models again: whether they come back, for us and for OpenVINO.

    python benchmarks/round_trip.py FILE...              # ONNX files, and XML files of OpenVINO IR

Each model is a process of its own, as some end OpenVINO's. `written twice` says whether what is
written of what was written is the same text. `ours` and `OpenVINO` are the largest difference
between answers from the original and from the written file, over the largest answer, of random
inputs on one thread of the CPU; 0 where all bits are the same.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from polydevice import Core
from polydevice.errors import PolydeviceError

Arrays = dict[str, np.ndarray[Any, Any]]

SECONDS = 300
SIZES = ((64, 16), (128, 512), (224, 576), (32, 10), (96, 1))
"""Sides of pictures and lengths of all else, where a model leaves them open; the first that fit."""


def main() -> int:
    """Print a row for each model."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--here", action="store_true", help="one file, in this process")
    options = parser.parse_args()
    if options.here:
        for found in round_trip(options.files[0]):
            print(json.dumps(found), flush=True)
        return 0
    print(f"{'model':<44}{'written twice':>14}{'ours':>10}{'OpenVINO':>10}")
    for path in options.files:
        command = [sys.executable, __file__, "--here", str(path)]
        try:
            done = subprocess.run(
                command, check=False, capture_output=True, text=True, timeout=SECONDS
            )
        except subprocess.TimeoutExpired:
            print(f"{path.name[-43:]:<44}  not done after {SECONDS} s", flush=True)
            continue
        found: dict[str, Any] = {}
        for line in done.stdout.splitlines():
            found.update(json.loads(line))
        why = found.get("why", "")
        if done.returncode:
            why += f" ended with {done.returncode}: {done.stderr.strip().rpartition(chr(10))[2]}"
        same, ours, others = (found.get(key, "") for key in ("same", "ours", "openvino"))
        row = f"{path.name[-43:]:<44}{same:>14}{ours:>10}{others:>10}  {why}"
        print(row[:240].rstrip(), flush=True)
    return 0


def round_trip(path: Path) -> Iterator[dict[str, Any]]:
    """Give what is found out, piece by piece: OpenVINO may end the process."""
    with Core() as core, tempfile.TemporaryDirectory() as folder:
        network = core.read_network(path)
        written, twice = Path(folder) / "once.xml", Path(folder) / "twice.xml"
        network.serialize(written)
        again = core.read_network(written)
        again.serialize(twice)
        yield {"same": "same" if written.read_bytes() == twice.read_bytes() else "other"}
        inputs, before = _first_that_fit(core, network)
        yield {"ours": _difference(before, _ours(core, again, inputs))}
        try:
            original = _openvino(path, inputs)
        except RuntimeError as error:
            yield {"why": f"OpenVINO does not take the original: {_line(error)}"}
            return
        try:
            yield {"openvino": _difference(original, _openvino(written, inputs))}
        except RuntimeError as error:
            yield {"openvino": "refused", "why": _line(error)}


def _first_that_fit(core: Core, network: Any) -> tuple[Arrays, Arrays]:
    for side, length in SIZES:
        inputs = _inputs(network, side, length)
        try:
            return inputs, _ours(core, network, inputs)
        except PolydeviceError as error:
            last = error
    raise last


def _inputs(network: Any, side: int, length: int) -> Arrays:
    """Return random inputs: one item, one state of a recurrent layer, the rest as given."""
    rng, made = np.random.default_rng(0), {}
    for name, port in network.inputs.items():
        shape = []
        for axis, size in enumerate(port.shape):
            rest = side if len(port.shape) == 4 else length
            is_count = axis == 0 or (len(port.shape) == 3 and port.shape[0] == 2)
            shape.append(size if isinstance(size, int) else 1 if is_count else rest)
        kind = port.element_type.dtype
        floats = np.issubdtype(kind, np.floating)
        values = rng.standard_normal(shape) if floats else rng.integers(1, 10, shape)
        made[name] = np.asarray(values).astype(kind)
        if name == "sr":  # of voices: networks know two
            made[name] = np.full(shape, 16000, kind)
    return made


def _ours(core: Core, network: Any, inputs: Arrays) -> Arrays:
    with core.load_network(network, "CPU", {"CPU_THREADS_NUM": "1"}) as executable:
        return {name: x.copy() for name, x in executable.infer(inputs).items()}


def _openvino(path: Path, inputs: Arrays) -> Arrays:
    import openvino

    config = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
    compiled = openvino.Core().compile_model(str(path), "CPU", config)
    given = {port: inputs[_name_of(port, inputs)] for port in compiled.inputs}
    answers = compiled(given)
    return {str(place): np.array(answers[port]) for place, port in enumerate(compiled.outputs)}


def _name_of(port: Any, inputs: Mapping[str, Any]) -> str:
    names = {*port.get_names(), port.get_node().get_friendly_name()}
    return next(name for name in inputs if name in names)


def _difference(some: Arrays, others: Arrays) -> str:
    worst = 0.0
    for one, other in zip(some.values(), others.values(), strict=True):
        if one.shape != other.shape or one.dtype != other.dtype:
            return "shapes"
        if one.tobytes() != other.tobytes():
            a, b = one.astype("f8"), other.astype("f8")
            worst = max(worst, float(np.abs(a - b).max() / max(np.abs(a).max(), 1e-30)), 1e-300)
    return f"{worst:.1g}" if worst else "0"


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[-150:]


if __name__ == "__main__":
    sys.exit(main())
