"""``polydevice explain``: what becomes of each layer of a model on a device."""

from __future__ import annotations

import argparse
import json

from polydevice.benchmark.options.texts import key_and_value
from polydevice.commands.output import add_json
from polydevice.commands.sizes import add_sizes, fix_sizes
from polydevice.core import Core


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to a parser."""
    add = parser.add_argument
    add("model", help="model file")
    add("-d", "--device", default="CPU", help="such as GPU.1")
    add_sizes(parser)
    add("-w", "--weights", help=".bin of an IR, when it has another name")
    add("-c", "--config", action="append", type=key_and_value, default=[], metavar="KEY=VALUE")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print what `ExecutableNetwork.explain` says of a model."""
    config = dict(options.config)
    with Core() as core:
        network = core.read_network(options.model, options.weights)
        fix_sizes(network, options, "explained")
        loaded = core.load_network(network, options.device, config)
        text = loaded.explain()
    if options.json:
        lines = text.splitlines()
        print(json.dumps({"network": loaded.name, "device": loaded.device, "lines": lines}))
    else:
        print(text)
    return 0
