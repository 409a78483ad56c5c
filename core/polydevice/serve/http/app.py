"""The REST side as an ASGI application: the Open Inference Protocol, statistics and metrics."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from polydevice.serve.http.rest import COPIED, HEADER_LENGTH, RestCall
from polydevice.serve.metrics import CONTENT_TYPE, registry_of, text_of
from polydevice.serve.models.limits import Held, Limits
from polydevice.serve.models.model import ServedModel
from polydevice.serve.models.repository import Models
from polydevice.serve.refusal import Reason, RefusedError, refusal
from polydevice.serve.time_limit import time_limit
from polydevice.version import __version__

EXTENSIONS = ("binary_tensor_data", "statistics", "model_repository")
SERVER = {"name": "polydevice", "version": __version__, "extensions": list(EXTENSIONS)}

APART_BYTES = 64 << 10
"""JSON and texts from here on are read and written in threads, which takes two turns between
threads more: to do so with all that is long cost more than it gave. JSON takes 0.3 to 0.5 µs a
number (benchmarks/scaling.py)."""

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
_Handler = Callable[[Request], Awaitable[Response]]


def make_app(models: Models, held: Held | None = None) -> Starlette:
    """Return an application that answers for these models, and counts what it holds."""
    handlers = Handlers(models, held or Held(models.limits))
    named = "/v2/models/{name}"
    paths: list[tuple[str, _Handler, str]] = [  # looked through in order, so inferences are first
        (f"{named}/infer", handlers.infer, "POST"),
        (f"{named}/versions/{{version}}/infer", handlers.infer, "POST"),
        ("/v2", handlers.server, "GET"),
        ("/v2/health/live", handlers.live, "GET"),
        ("/v2/health/ready", handlers.ready, "GET"),
        ("/v2/models/stats", handlers.statistics, "GET"),
        ("/v2/repository/index", handlers.index, "POST"),
        ("/v2/repository/{rest:path}", handlers.fixed, "POST"),
        ("/metrics", handlers.metrics, "GET"),
    ]
    for prefix in (named, f"{named}/versions/{{version}}"):
        paths += [
            (prefix, handlers.model, "GET"),
            (f"{prefix}/ready", handlers.model_ready, "GET"),
            (f"{prefix}/stats", handlers.statistics, "GET"),
        ]
    routes = [Route(path, _refusing(handler), methods=[method]) for path, handler, method in paths]
    return Starlette(routes=routes, exception_handlers={404: _unknown, 405: _unknown})


async def apart(size: int, work: Callable[..., _T], *arguments: Any) -> _T:
    """Do what takes long for so many bytes in a thread, so that other requests go on meanwhile."""
    if size < APART_BYTES:
        return work(*arguments)
    return await asyncio.to_thread(work, *arguments)


def _json(value: Any, status: int = 200) -> Response:
    return Response(json.dumps(value), status, media_type="application/json")


async def _unknown(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    what = f"{request.method} {request.url.path}"[:200]
    return _json({"error": f"there is no {what}; this server speaks /v2 and /metrics"}, status)


def _refusing(handler: _Handler) -> _Handler:
    """Turn what a handler raises into the protocol's errors."""

    async def handle(request: Request) -> Response:
        try:
            return await handler(request)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody reads it
        except Exception as error:  # noqa: BLE001 - the client gets an answer whatever happened
            refused = refusal(error)
            if refused.reason is Reason.FAILED:
                _log.warning("%s failed", request.url.path, exc_info=error)
            response = _json({"error": str(refused)}, refused.reason.http)
            if refused.reason in (Reason.BUSY, Reason.ENDING):
                response.headers["Retry-After"] = "1"
            if refused.reason in (Reason.TOO_LARGE, Reason.TOO_SLOW):
                response.headers["Connection"] = "close"  # the rest of the body is not read
            return response

    return handle


class Handlers:
    """What answers each address."""

    def __init__(self, models: Models, held: Held) -> None:
        """Answer for these models, and count what is held meanwhile."""
        self._models = models
        self._held = held
        self._bodies = _Bodies(models.limits, held)
        self._registry = registry_of(models)

    async def server(self, request: Request) -> Response:
        """Describe the server."""
        return _json(SERVER)

    async def live(self, request: Request) -> Response:
        """Say that the server runs."""
        return _json({"live": True})

    async def ready(self, request: Request) -> Response:
        """Say whether it takes requests."""
        ready = not self._models.ending
        return _json({"ready": ready}, 200 if ready else 503)

    async def model(self, request: Request) -> Response:
        """Describe a model."""
        params = request.path_params
        found = self._models.get(params["name"], params.get("version", ""))
        return _json(found.metadata(self._models.versions(found.name)))

    async def model_ready(self, request: Request) -> Response:
        """Say whether a model takes requests."""
        params = request.path_params
        found = self._models.get(params["name"], params.get("version", ""))
        ready = not self._models.ending
        return _json({"name": found.name, "ready": ready}, 200 if ready else 503)

    async def statistics(self, request: Request) -> Response:
        """Return the counts of one model, all versions of it, or all models."""
        params = request.path_params
        found = list(self._models)
        if "name" in params:
            versions = self._models.versions(params["name"])
            if "version" in params:
                versions = [self._models.get(params["name"], params["version"]).version]
            found = [self._models.get(params["name"], version) for version in versions]
        rows = [
            {"name": each.name, "version": each.version, **each.statistics.as_dict()}
            for each in found
        ]
        return _json({"model_stats": rows})

    async def index(self, request: Request) -> Response:
        """List the models."""
        state = "UNAVAILABLE" if self._models.ending else "READY"
        rows = [
            {"name": each.name, "version": each.version, "state": state, "reason": ""}
            for each in self._models
        ]
        return _json(rows)

    async def fixed(self, request: Request) -> Response:
        """Refuse to load or unload anything."""
        raise RefusedError(
            Reason.FORBIDDEN, "this server's models are fixed when it starts; start another one"
        )

    async def metrics(self, request: Request) -> Response:
        """Return metrics for Prometheus."""
        return Response(text_of(self._registry), headers={"Content-Type": CONTENT_TYPE})

    async def infer(self, request: Request) -> Response:
        """Compute."""
        params, limits = request.path_params, self._models.limits
        model = self._models.taking(params["name"], params.get("version", ""))
        if request.headers.get("Content-Encoding", "identity") != "identity":
            raise RefusedError(
                Reason.UNSUPPORTED, "compressed requests are not taken; send the body as it is"
            )
        body = await self._bodies.read(request)
        held = len(body)
        try:
            length = request.headers.get(HEADER_LENGTH)
            made = await apart(_slow(model, body, length), RestCall, model, body, length, limits)
            outputs = await model.answer(made.call)
            size = sum(array.nbytes for array in outputs.values())
            self._held.take(size)
            held += size
            answer, header_length = await apart(made.json_bytes(outputs), made.write, outputs)
        finally:
            self._held.free(held)
        if header_length is None:
            return Response(answer, media_type="application/json")
        headers = {HEADER_LENGTH: str(header_length)}
        return Response(answer, media_type="application/octet-stream", headers=headers)


def _slow(model: ServedModel, body: bytes, header_length: str | None) -> int:
    """Return how many bytes of a body are JSON or texts; binary tensors are used in place."""
    texts = any(port.dtype == object for port in model.inputs.values())
    if texts or header_length is None or not header_length.isdecimal():
        return len(body)
    return min(int(header_length[:16]), len(body)) + len(body) // COPIED


class _Bodies:
    """Reads bodies, and counts their bytes."""

    def __init__(self, limits: Limits, held: Held) -> None:
        self._limits = limits
        self._held = held

    async def read(self, request: Request) -> bytes:
        """Return a body, whose bytes count until they are freed.

        Raises:
            RefusedError: it is too large, comes too slowly, or there are too many of them.
        """
        announced = request.headers.get("Content-Length", "0")
        if announced.isdigit() and int(announced[:20]) > self._limits.body_bytes:
            raise self._too_large()
        chunks: list[bytes] = []
        size = 0
        try:
            with time_limit(self._limits.body_seconds):
                async for chunk in request.stream():
                    self._held.take(len(chunk))
                    size += len(chunk)
                    chunks.append(chunk)
                    if size > self._limits.body_bytes:
                        raise self._too_large()
            return b"".join(chunks)
        except TimeoutError:
            self._held.free(size)
            raise RefusedError(
                Reason.TOO_SLOW,
                f"the body did not come within {self._limits.body_seconds:g} s",
            ) from None
        except BaseException:
            self._held.free(size)
            raise

    def _too_large(self) -> RefusedError:
        return RefusedError(
            Reason.TOO_LARGE,
            f"a request may have {self._limits.body_bytes} bytes, and this one has more; send "
            "fewer items at a time",
        )
