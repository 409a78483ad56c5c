"""The command line of ``polydevice serve``."""

from __future__ import annotations

import argparse
import gc
import sys
from dataclasses import fields
from typing import TYPE_CHECKING

from polydevice.benchmark.options.texts import key_and_value, parse_shapes
from polydevice.core import Core
from polydevice.errors import PluginError
from polydevice.serve.models.limits import Limits

if TYPE_CHECKING:
    from polydevice.serve.models.model import ModelSpec

_HELP = {
    "max_batch": "items computed together; 1 batches nothing",
    "max_delay_ms": "milliseconds that a request waits for others to be batched with",
    "requests": "inferences at a time of each model; 0 lets the device choose",
    "queue": "requests of each model that wait; more are refused",
    "body_bytes": "bytes of one request",
    "json_bytes": "bytes of JSON of one request, and of its answer",
    "pending_bytes": "bytes of all requests and answers over REST; gRPC's do not count",
    "connections": "connections at a time",
    "header_seconds": "seconds for the head of a request",
    "body_seconds": "seconds for the rest of it",
    "response_seconds": "seconds for a client to take its answer",
    "request_seconds": "seconds for a request to be answered",
    "drain_seconds": "seconds for what was accepted to be answered in the end",
}


_PACKAGES = {"grpc": "grpcio"}
"""Module → package that has it, where the names differ."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add = parser.add_argument
    add("models", nargs="+", metavar="[NAME[:VERSION]=]FILE", help="model files to serve")
    add("-d", "--device", default="AUTO", help="such as GPU, AUTO or MULTI:GPU.0,GPU.1")
    add("-c", "--config", action="append", type=key_and_value, default=[], metavar="KEY=VALUE")
    add(
        "--shape", default="", help="[1,3,224,224] or name[1,128]: sizes that the model leaves open"
    )
    add("--host", default="127.0.0.1", help="address to listen on; this machine alone if left out")
    add("--port", type=_port, default=8000, help="of REST; 0 for any that is free")
    add("--grpc-port", type=_port, default=8001, help="of gRPC; 0 for any that is free")
    add("--no-grpc", action="store_true", help="serve REST alone")
    limits = parser.add_argument_group("limits")
    for field in fields(Limits):
        kind = {"int": int, "float": float}[str(field.type)]
        option = f"--{field.name.replace('_', '-')}"
        text = f"{_HELP[field.name]} ({field.default})"
        limits.add_argument(option, type=kind, default=field.default, metavar="N", help=text)


def run(options: argparse.Namespace) -> int:
    """Serve until a signal.

    Raises:
        PluginError: the optional dependencies are not installed.
        PolydeviceError: a model cannot be loaded, or the address is taken.
    """
    try:
        import httptools  # noqa: F401 - to say at once that it lacks
        import prometheus_client  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401

        if not options.no_grpc:
            import grpc  # noqa: F401
    except ImportError as error:
        package = _PACKAGES.get(str(error.name), error.name)
        alone = ", or serve REST alone with --no-grpc" if package == "grpcio" else ""
        raise PluginError(
            f"`polydevice serve` needs {package}; install it with  pip install polydevice[serve]"
            + alone
        ) from error
    import asyncio

    from polydevice.serve.models.repository import Models
    from polydevice.serve.server import Server

    limits = Limits(**{field.name: getattr(options, field.name) for field in fields(Limits)})
    with Core() as core:
        models = Models(core, [_spec(core, text, options) for text in options.models], limits)

        async def serve() -> None:
            grpc_port = None if options.no_grpc else options.grpc_port
            server = Server(models, options.host, options.port, grpc_port)

            def started() -> None:
                host = f"[{options.host}]" if ":" in options.host else options.host
                sys.stdout.write(f"REST: http://{host}:{server.http_port}\n")
                if grpc_port is not None:
                    sys.stdout.write(f"gRPC: {host}:{server.grpc_port}\n")
                for model in models:
                    device = model.executable.device
                    sys.stdout.write(f"model: {model.name} version {model.version} on {device}\n")
                sys.stdout.flush()
                # Looking through modules and models for garbage would hold requests up at times.
                gc.collect()
                gc.freeze()

            await server.serve(started)

        asyncio.run(serve())
    return 0


def _spec(core: Core, text: str, options: argparse.Namespace) -> ModelSpec:
    from polydevice.serve.models.model import ModelSpec

    name, equals, path = text.partition("=")
    if not equals:
        name, path = "", text
    name, _, version = name.partition(":")
    shapes = {}
    if options.shape:
        shapes = parse_shapes(options.shape, list(core.read_network(path).inputs))
    return ModelSpec(
        path=path,
        name=name,
        version=version or "1",
        device=options.device,
        config=dict(options.config),
        shapes=shapes,
    )


def _port(text: str) -> int:
    number = int(text)
    if not 0 <= number < 1 << 16:
        raise argparse.ArgumentTypeError(f"{text} is not possible; use 0 to 65535")
    return number
