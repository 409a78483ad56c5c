"""First-inference latency: process start to first answer, in a fresh process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from polydevice.dataclass import dataclass
from polydevice.errors import InferenceError

_SCRIPT = """
import json, sys, time
marks = [time.time()]
import numpy, polydevice
core = polydevice.Core()
marks.append(time.time())
arguments = json.loads(sys.argv[1])
if arguments["model"].endswith(".blob"):
    network, load = arguments["model"], core.import_network
else:
    network, load = core.read_network(arguments["model"]), core.load_network
    if arguments["shapes"]:
        network.reshape(arguments["shapes"])
marks.append(time.time())
executable = load(network, arguments["device"], arguments["config"])
marks.append(time.time())
from polydevice.benchmark.inputs import make_inputs
inputs = make_inputs(executable.inputs, [], 0, 1, arguments["data"])[0]
begin = time.time()
executable.infer(inputs)
marks.append(time.time())
print(json.dumps({"marks": marks, "begin": begin}))
"""


@dataclass(frozen=True)
class FirstInference:
    """Milliseconds from the start of a process to its first answer, by step."""

    start: float
    imports: float
    read: float
    load: float
    first_run: float

    @property
    def total(self) -> float:
        """The whole time."""
        return self.start + self.imports + self.read + self.load + self.first_run


def measure_first_inference(
    model: str,
    device: str,
    config: Mapping[str, str],
    shapes: Mapping[str, Sequence[int]],
    data: Mapping[str, Sequence[int]],
    limit_s: float = 600,
) -> FirstInference:
    """Start a process that answers once, and time its steps.

    Args:
        model: its file.
        device: such as "GPU.1".
        config: of the network.
        shapes: what inputs of the network are reshaped to.
        data: sizes of the data for inputs whose sizes the network does not say.
        limit_s: seconds for the whole.

    Raises:
        InferenceError: with the process's message when it fails, or after `limit_s`.
    """
    arguments = json.dumps(
        {
            "model": model,
            "device": device,
            "config": dict(config),
            "shapes": {name: list(sizes) for name, sizes in shapes.items()},
            "data": {name: [list(sizes)] for name, sizes in data.items()},
        }
    )
    begin = time.time()
    try:
        done = subprocess.run(
            [sys.executable, "-c", _SCRIPT, arguments],
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise InferenceError(f"no first answer within {limit_s:g} s") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise InferenceError(f"the measuring process failed: {lines[-1]}")
    answer = json.loads(done.stdout.splitlines()[-1])
    marks = answer["marks"]
    steps = [
        marks[0] - begin,
        marks[1] - marks[0],
        marks[2] - marks[1],
        marks[3] - marks[2],
        marks[4] - answer["begin"],
    ]
    return FirstInference(*(step * 1e3 for step in steps))
