"""Prints the metrics and the default configuration of every device."""

from __future__ import annotations

import logging
import signal
import sys

from polydevice import Core
from polydevice.errors import PolydeviceError

log = logging.getLogger("sample")
LISTS = ("SUPPORTED_METRICS", "SUPPORTED_CONFIG_KEYS")


def text(value: object) -> str:
    """A value as the sample prints it: items of lists and tuples joined by a comma."""
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return str(value)


def print_metrics(core: Core, device: str) -> None:
    """Print every metric of a device; one that cannot be read says why."""
    log.info("\tSUPPORTED_METRICS:")
    for name in core.get_metric(device, "SUPPORTED_METRICS"):
        if name in LISTS:
            continue
        try:
            value = text(core.get_metric(device, name))
        except PolydeviceError as error:
            value = f"UNAVAILABLE: {error}"
        log.info("\t\t%s: %s", name, value)
    log.info("")


def print_config(core: Core, device: str) -> None:
    """Print every configuration key of a device with its default."""
    log.info("\tSUPPORTED_CONFIG_KEYS (default values):")
    for key in core.get_metric(device, "SUPPORTED_CONFIG_KEYS"):
        log.info("\t\t%s: %s", key, core.get_config(device, key))
    log.info("")


def main() -> int:
    """Print everything; any argument is a mistake."""
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `… | head` ends quietly
    logging.basicConfig(
        format="[ %(levelname)s ] %(message)s", level=logging.INFO, stream=sys.stdout
    )
    if len(sys.argv) > 1:
        print(f"Usage: {sys.argv[0]}", file=sys.stderr)
        return 1
    log.info("Creating Core")
    with Core() as core:
        log.info("Available devices:")
        for device in core.available_devices:
            log.info("%s :", device)
            print_metrics(core, device)
            print_config(core, device)
    return 0


if __name__ == "__main__":
    sys.exit(main())
