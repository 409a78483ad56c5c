"""The command line of ``polydevice compare``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from polydevice.benchmark.options.texts import key_and_value, parse_static_shapes
from polydevice.comparison.compare import compare
from polydevice.comparison.result import Compared, Comparison
from polydevice.core import Core


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to a parser."""
    add = parser.add_argument
    add("model", help="model file")
    add("-w", "--weights", help=".bin of an IR, when it has another name")
    add("-d", "--device", default="GPU", help="such as GPU, GPU.1 or HETERO:GPU,CPU")
    add("--against", default="CPU", help="a device, onnxruntime or openvino; CPU by default")
    add("--precision", default="", choices=("f32", "f16", "bf16"), help="of the device")
    add("-i", "--input", nargs="*", default=[], metavar="FILE",
        help="pictures, .npy or raw files, or name:file; random values if left out")  # fmt: skip
    add("--shape", default="", help="[1,3,224,224], or name[1,3],other[1,4]")
    add("-c", "--config", action="append", type=key_and_value, default=[], metavar="KEY=VALUE")
    add(
        "--bound", type=float, help="largest difference that is none, a part of the largest element"
    )
    add("--alone", action="store_true", help="also run each step by itself, on the same values")
    add("--bisect", metavar="FOLDER", help="write the step that is at fault as a small program")
    add("--seed", type=int, default=0, help="of the random inputs")
    add("--all", action="store_true", help="print every value, not only those that tell something")
    add("--json", action="store_true", help="everything, for machines")


def run(options: argparse.Namespace) -> int:
    """Compare and print; the exit status is 1 when an output is beyond the bound."""
    from rich.console import Console
    from rich.progress import Progress

    progress = Progress(
        console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True
    )
    bar = progress.add_task("comparing", total=None)
    with progress, Core() as core:
        shapes = {}
        if options.shape:
            names = list(core.read_network(options.model, options.weights).inputs)
            shapes = parse_static_shapes(options.shape, names)
        found = compare(
            options.model,
            options.device,
            against=options.against,
            weights=options.weights,
            precision=options.precision,
            config=dict(options.config),
            files=options.input,
            shapes=shapes,
            bound=options.bound,
            alone=options.alone,
            reproduction=options.bisect,
            seed=options.seed,
            progress=lambda done, total, name: progress.update(
                bar, completed=done, total=total, description=name[:40]
            ),
            core=core,
        )
    text = "\n".join(lines(found, every=options.all))
    sys.stdout.write(f"{json.dumps(found.as_dict(), indent=2) if options.json else text}\n")
    return int(not found.is_equal)


def lines(found: Comparison, *, every: bool = False) -> list[str]:
    """Return the page: outputs, the first layer beyond the bound, the largest differences.

    Args:
        found: what to say.
        every: list all values in the network's order instead of the largest differences.
    """
    precision = f" in {found.precision}" if found.precision else ""
    sides = f"{found.model} on {found.device}{precision} beside {found.against}"
    said = [
        f"{sides}; bound {found.bound:g} of the largest element; {found.seconds:.1f} s",
        "",
        "Outputs",
        *_rows(found.outputs),
    ]
    unknown = sum(layer.difference is None for layer in found.layers)
    if unknown:
        said += ["", f"{found.against} does not have {unknown} of {len(found.layers)} values."]
    first = found.first
    said += ["", "First value beyond the bound"]
    said += _rows([first]) if first else ["  none"]
    for what, words in (
        ("nan", "First NaN that the reference does not have"),
        ("infinite", "First infinity that the reference does not have"),
        ("saturated", "First value at f16's largest number"),
    ):
        layer = found.first_with(what)
        said += ["", words, *_rows([layer])] if layer else []
    if any(layer.own for layer in found.layers):
        said += ["", "Step that differs most when it is fed with the reference's values"]
        none = "  none is beyond the bound, so that `--bisect` writes nothing"
        said += _rows([found.guilty]) if found.guilty else [none]
    said += ["", "Every value" if every else "Largest differences"]
    said += _rows(found.layers if every else found.worst())
    if found.reproduction:
        said += ["", f"python {found.reproduction}/reproduce.py shows the step by itself."]
    return said


def _rows(layers: Sequence[Compared]) -> list[str]:
    rows = []
    for layer in layers:
        apart = layer.difference
        relative = "unknown" if apart is None else f"{apart.relative:.2e}"
        own = f", by itself {layer.own.relative:.2e}" if layer.own else ""
        fused = f" with {len(layer.fused)} more nodes" if layer.fused else ""
        kernel = f"  [{layer.kernel}{fused}]" if layer.kernel else ""
        text = f"  {apart.text}" if apart is not None and apart.text else ""
        mark = "!" if layer.is_beyond else " "
        rows.append(f"{mark} {relative}{own}  {layer.operation} {layer.layer}{kernel}{text}")
    return rows
