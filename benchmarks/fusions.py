"""What each kind of fusion is worth to transformers on any OpenCL device, with it and without.

    python benchmarks/fusions.py                      # two layers of each kind, 256 tokens of 384
    python benchmarks/fusions.py --layers 12 --precisions f32,f16

Networks have random weights and are written as exporters write them: normalisations, GELU and
attention in steps, queries, keys and values of one product taken apart by Reshape, Transpose and
Gather (`vision`), or of three products (`text`). Each row: milliseconds per inference, host arrays
in and out, medians of runs by turns, and launches; then how many times as long it takes without
one kind of fusion, all others being there, and its launches. Answers are compared before anything
is timed. No other program is needed, and none of these gains needs an instruction of one vendor.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("POLYDEVICE_GPU_DEVICES", "all-gpus,cpu")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import onnx
from onnx import helper, numpy_helper

from benchmarks.interleave import Run, interleave
from polydevice import Core, __version__
from polydevice.ops.gather import Gather

Array = np.ndarray[Any, Any]
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
WIDTH, HEADS, TOKENS = 384, 12, 256
AGREEMENT = {"f32": 1e-3, "f16": 5e-2}
"""Largest difference between two ways, as part of the largest element."""


class Writer:
    """An ONNX graph of opset 13 in the making."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(1)

    def constant(self, array: Any) -> str:
        """Enter a constant; return its name."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weights(self, *shape: int) -> str:
        """Enter random numbers that keep the size of what they multiply."""
        scale = 1 / np.sqrt(shape[0]) if len(shape) > 1 else 0.1
        return self.constant((self._random.standard_normal(shape) * scale).astype("f4"))

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node; return its result's name."""
        name = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        return name

    def linear(self, x: str, terms: int, columns: int) -> str:
        """A product and its bias."""
        return self.add("Add", self.add("MatMul", x, self.weights(terms, columns)),
                        self.weights(columns))  # fmt: skip

    def norm(self, x: str) -> str:
        """LayerNorm in the steps of opsets below 17."""
        centred = self.add("Sub", x, self.add("ReduceMean", x, axes=[-1]))
        square = self.add("Pow", centred, self.constant(np.float32(2)))
        variance = self.add("ReduceMean", square, axes=[-1])
        root = self.add("Sqrt", self.add("Add", variance, self.constant(np.float32(1e-5))))
        scaled = self.add("Mul", self.add("Div", centred, root), self.weights(WIDTH))
        return self.add("Add", scaled, self.weights(WIDTH))

    def gelu(self, x: str) -> str:
        """GELU by erf, in steps."""
        inner = self.add("Erf", self.add("Div", x, self.constant(np.float32(np.sqrt(2)))))
        more = self.add("Add", inner, self.constant(np.float32(1)))
        return self.add("Mul", self.add("Mul", x, more), self.constant(np.float32(0.5)))

    def attention(self, q: str, k: str, v: str) -> str:
        """Scores, softmax and values of [1, heads, tokens, size]; heads are joined after it."""
        turned = self.add("Transpose", k, perm=[0, 1, 3, 2])
        scores = self.add("MatMul", q, turned)
        scale = self.constant(np.float32(np.sqrt(WIDTH / HEADS)))
        weights = self.add("Softmax", self.add("Div", scores, scale), axis=-1)
        y = self.add("Transpose", self.add("MatMul", weights, v), perm=[0, 2, 1, 3])
        return self.add("Reshape", y, self.constant(np.array([1, TOKENS, WIDTH])))

    def feed_forward(self, x: str) -> str:
        """Two products with GELU between them."""
        return self.linear(self.gelu(self.linear(x, WIDTH, 4 * WIDTH)), 4 * WIDTH, WIDTH)


def _vision(w: Writer, x: str) -> str:
    """A layer that normalises first, its queries, keys and values of one product."""
    parts = _parts(w, w.linear(w.norm(x), WIDTH, 3 * WIDTH))
    x = w.add("Add", x, w.linear(w.attention(*parts), WIDTH, WIDTH))
    return w.add("Add", x, w.feed_forward(w.norm(x)))


def _parts(w: Writer, x: str) -> list[str]:
    """Take queries, keys and values apart as PyTorch's exporter does."""
    shape = w.constant(np.array([1, TOKENS, 3, HEADS, WIDTH // HEADS]))
    turned = w.add("Transpose", w.add("Reshape", x, shape), perm=[2, 0, 3, 1, 4])
    return [w.add("Gather", turned, w.constant(np.int64(n)), axis=0) for n in range(3)]


def _text(w: Writer, x: str) -> str:
    """A layer that normalises after, with three products for queries, keys and values."""
    parts = []
    for _ in range(3):
        shape = w.constant(np.array([1, TOKENS, HEADS, WIDTH // HEADS]))
        heads = w.add("Reshape", w.linear(x, WIDTH, WIDTH), shape)
        parts.append(w.add("Transpose", heads, perm=[0, 2, 1, 3]))
    x = w.norm(w.add("Add", x, w.linear(w.attention(*parts), WIDTH, WIDTH)))
    return w.norm(w.add("Add", x, w.feed_forward(x)))


NETWORKS: dict[str, Callable[[Writer, str], str]] = {"vision": _vision, "text": _text}


def _model(name: str, layers: int) -> onnx.ModelProto:
    writer, x = Writer(), "x"
    for _ in range(layers):
        x = NETWORKS[name](writer, x)
    port = [
        helper.make_tensor_value_info(each, onnx.TensorProto.FLOAT, [1, TOKENS, WIDTH])
        for each in ("x", x)
    ]
    graph = helper.make_graph(writer.nodes, name, port[:1], port[1:], writer.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])


@contextmanager
def _replaced(module: str, name: str, change: Callable[[Any], Any]) -> Iterator[None]:
    """Let networks be loaded with something else in a module of polydevice."""
    where = importlib.import_module(module)
    whole = getattr(where, name)
    setattr(where, name, change(whole))
    try:
        yield
    finally:
        setattr(where, name, whole)


def _without_rewrite(name: str) -> contextlib.AbstractContextManager[None]:
    return _replaced(
        "polydevice.rewrites", "ORDER", lambda order: tuple(s for s in order if s[0] != name)
    )


def _without_pass(begin: str) -> contextlib.AbstractContextManager[None]:
    return _replaced(
        "polydevice_gpu.compiler.stages",
        "GRAPH",
        lambda passes: tuple(p for p in passes if not p.__name__.startswith(begin)),
    )


def _with_gathers() -> contextlib.AbstractContextManager[None]:
    """Let a Gather of known places copy them."""

    def change(rules: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: {op: rule for op, rule in rules().items() if op is not Gather}

    return _replaced("polydevice_gpu.rewrites", "rules", change)


WITHOUT: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "norms in steps": lambda: _without_rewrite("recognise normalisations"),
    "attention in steps": lambda: _without_rewrite("recognise attention"),
    "GELU in steps": lambda: _without_rewrite("recognise activations"),
    "gathers, not views": _with_gathers,
    "products apart": lambda: _without_pass("group_products"),
    "pointwise apart": lambda: _without_pass("fuse"),
}
"""What is left out → how to load a network without it."""


def main() -> int:
    """Measure and print a row per network and precision."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--precisions", default="f32", help="f32, f16 or both")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--clock", choices=CLOCKS, default="wall", help="cpu: for processors that do other work"
    )
    options = parser.parse_args()
    with Core() as core:
        print(f"polydevice {__version__} on {core.get_metric('GPU', 'FULL_DEVICE_NAME')}")
        print("| network | type | ms, launches | " + " | ".join(WITHOUT) + " |")
        for precision in options.precisions.split(","):
            for name in options.networks.split(","):
                times, launches = _measure(core, name, precision, options)
                now, count = times.pop("now"), launches.pop("now")
                ratios = [f"{times[what] / now:.2f}, {launches[what]}" for what in times]
                cells = " | ".join([name, precision, f"{now:.2f}, {count}", *ratios])
                print(f"| {cells} |", flush=True)
    return 0


def _measure(
    core: Core, name: str, precision: str, options: Any
) -> tuple[dict[str, float], dict[str, int]]:
    """Return milliseconds and launches, now and without each kind."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(_model(name, options.layers), path)
        network = core.read_network(path)
    config = {"INFERENCE_PRECISION_HINT": precision}
    given = {"x": np.random.default_rng(2).standard_normal((1, TOKENS, WIDTH), np.float32)}
    runs: dict[str, Run] = {}
    launches: dict[str, int] = {}
    right: Array | None = None
    for what, without in {"now": contextlib.nullcontext, **WITHOUT}.items():
        with without():
            executable: Any = core.load_network(network, "GPU", config)
            request = executable.create_infer_request()
            (answer,) = (np.array(array) for array in request.infer(given).values())
        right = answer if right is None else right
        if float(np.abs(answer - right).max()) > AGREEMENT[precision] * float(np.abs(right).max()):
            raise SystemExit(f"{name}: with {what} it gives another answer")
        steps: list[Any] = executable.latest_plan().steps
        launches[what] = sum(len(step.launches) for step in steps)
        runs[what] = lambda request=request: request.infer(given)  # type: ignore[misc]
    return interleave(runs, options.rounds, clock=CLOCKS[options.clock]), launches


if __name__ == "__main__":
    sys.exit(main())
