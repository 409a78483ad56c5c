"""``polydevice explain``: what becomes of each layer of a model on a device."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from polydevice.benchmark.options.arguments import positive
from polydevice.benchmark.options.texts import key_and_value, parse_static_shapes
from polydevice.commands.output import add_json
from polydevice.core import Core
from polydevice.errors import OptionValueError

if TYPE_CHECKING:
    from polydevice.network import Network


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to a parser."""
    add = parser.add_argument
    add("model", help="model file")
    add("-d", "--device", default="CPU", help="such as GPU.1")
    add("-b", "--batch", type=positive, help="batch; the model's if left out, 1 if it is not known")
    add("-shape", "--shape", default="", help="of the inputs: [1,3,224,224], or name[1,3],other[2]")
    add("-w", "--weights", help=".bin of an IR, when it has another name")
    add("-c", "--config", action="append", type=key_and_value, default=[], metavar="KEY=VALUE")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print what `ExecutableNetwork.explain` says of a model."""
    config = dict(options.config)
    with Core() as core:
        network = core.read_network(options.model, options.weights)
        _fix_shapes(network, options)
        loaded = core.load_network(network, options.device, config)
        text = loaded.explain()
    if options.json:
        lines = text.splitlines()
        print(json.dumps({"network": loaded.name, "device": loaded.device, "lines": lines}))
    else:
        print(text)
    return 0


def _fix_shapes(network: Network, options: argparse.Namespace) -> None:
    """Give the inputs the sizes of the command line; a batch that is not known is 1.

    Raises:
        OptionValueError: sizes that are still not known.
    """
    if shapes := parse_static_shapes(options.shape, list(network.inputs)):
        network.reshape(shapes)
    if options.batch:
        network.batch_size = options.batch
    elif network.is_dynamic and not isinstance(network.batch_size, int):
        print(
            "polydevice: the batch is not known and is set to 1; -b sets another", file=sys.stderr
        )
        network.batch_size = 1
    unknown = [
        f"{name}{info.shape}"
        for name, info in network.inputs.items()
        if info.shape is None or not info.shape.is_static
    ]
    if unknown:
        raise OptionValueError(
            f"layers are explained for known sizes; give those of {', '.join(unknown)} with "
            "--shape, such as --shape name[1,3,224,224]"
        )
