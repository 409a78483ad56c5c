"""What options of ``polydevice bench`` do to a network before it is loaded."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from polydevice.benchmark import turns
from polydevice.benchmark.options.texts import (
    parse_channels,
    parse_data_shapes,
    parse_names,
    parse_shapes,
)
from polydevice.benchmark.printing import info, warn
from polydevice.network import Network
from polydevice.shape import Shape


def warn_of_unread(options: argparse.Namespace) -> None:
    """Name the options that change a network, which is not read here."""
    names = ("batch_size", "shape", "layout", "input_precision", "output_precision",
             "mean_values", "scale_values")  # fmt: skip
    given = [f"--{name}" for name in names if getattr(options, name)]
    if options.iop:
        given.append("--input_output_precision")
    if given:
        warn(f"{', '.join(given)}: without effect on a network that is loaded from a file")


def reshape(network: Network, options: argparse.Namespace) -> None:
    """Give a network the shapes and the batch of the options; a batch that is not known is 1."""
    shapes = parse_shapes(options.shape, list(network.inputs))
    in_turn = data_shapes(options, list(network.inputs))  # wrong ones fail early
    if options.shapes:
        turns.prepare(network, in_turn)
    elif shapes:
        network.reshape(shapes)
    if options.batch_size:
        network.batch_size = options.batch_size
    elif options.data_shape or options.shapes:
        pass  # the data says how large it is
    elif network.is_dynamic and isinstance(network.batch_size, int) is False:
        warn("the batch is dynamic and -b is not given: it is set to 1")
        network.batch_size = 1


def data_shapes(options: argparse.Namespace, inputs: list[str]) -> dict[str, list[list[int]]]:
    """Return the shapes of the data, in turn; none where the network says them."""
    if options.shapes:
        return turns.parse_turns(options.shapes, inputs, options.seed)
    return parse_data_shapes(options.data_shape, inputs)


def set_precisions(network: Network, options: argparse.Namespace) -> None:
    """Set precisions, layouts, means and scales of inputs and outputs as the options say."""
    names = [*network.inputs, *network.outputs]
    own = parse_names(options.iop, names, "-iop")
    layouts = parse_names(options.layout, list(network.inputs), "-layout")
    means = parse_channels(options.mean_values, list(network.inputs), "-imean")
    scales = parse_channels(options.scale_values, list(network.inputs), "-iscale")
    for name, inner in network.inputs.items():
        if name in layouts:
            inner.layout = layouts[name]
        if name in means or name in scales:
            inner.preprocess.set_mean(
                _per_channel(means.get(name, [0.0]), inner.shape),
                scale=_per_channel(scales.get(name, [1.0]), inner.shape),
            )
        if name in own or options.input_precision:
            inner.precision = own.get(name, options.input_precision)
        info(f"Network input {name!r}: precision {inner.precision}, {inner.shape}")
    for name, outer in network.outputs.items():
        if name in own or options.output_precision:
            outer.precision = own.get(name, options.output_precision)
        info(f"Network output {name!r}: precision {outer.precision}, {outer.shape}")


def _per_channel(values: Sequence[float], shape: Shape | None) -> list[float]:
    """Repeat one value for every channel of an input [N, C, …]."""
    channels = shape[1] if shape is not None and len(shape) > 1 else 1
    if len(values) == 1 and isinstance(channels, int):
        return [values[0]] * channels
    return list(values)
