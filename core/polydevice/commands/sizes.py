"""Sizes of a model's inputs on the command line, for commands that need all of them."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from polydevice.benchmark.options.arguments import positive
from polydevice.benchmark.options.texts import parse_static_shapes
from polydevice.errors import OptionValueError

if TYPE_CHECKING:
    from polydevice.network import Network


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """Add the options that say them."""
    add = parser.add_argument
    add("-b", "--batch", type=positive, help="batch; the model's if left out, 1 if it is not known")
    add("-shape", "--shape", default="", help="of the inputs: [1,3,224,224], or name[1,3],other[2]")


def fix_sizes(network: Network, options: argparse.Namespace, what: str) -> None:
    """Give the inputs the sizes of the command line; a batch that is not known is 1.

    Args:
        network: the model.
        options: of the command line.
        what: is done for known sizes alone, for the message.

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
            f"layers are {what} for known sizes; give those of {', '.join(unknown)} with "
            "--shape, such as --shape name[1,3,224,224]"
        )
