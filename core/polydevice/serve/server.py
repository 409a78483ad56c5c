"""Server: REST and gRPC on one event loop, from start to a graceful end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator

import uvicorn

from polydevice.errors import DeviceError
from polydevice.serve.http.app import make_app
from polydevice.serve.http.connections import bounded_protocol
from polydevice.serve.models.limits import Held
from polydevice.serve.models.repository import Models

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class _Http(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to `Server`, which has two servers to end."""
        yield


class Server:
    """Serves models over REST and gRPC.

    Attributes:
        http_port: where REST listens, once it does.
        grpc_port: where gRPC does; 0 when it is off.
    """

    def __init__(
        self,
        models: Models,
        host: str = "127.0.0.1",
        port: int = 8000,
        grpc_port: int | None = 8001,
    ) -> None:
        """Prepare to serve.

        Args:
            models: what is served; closed in the end.
            host: address to listen on.
            port: of REST; 0 for any that is free.
            grpc_port: of gRPC, likewise; None serves REST alone.
        """
        self._models = models
        self._host = host
        self.http_port = port
        self.grpc_port = 0
        self._grpc_wanted = grpc_port
        self._stop = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def serve(self, started: Callable[[], None] = lambda: None) -> None:
        """Serve until `stop`, or a signal in the main thread; then answer what was accepted.

        Raises:
            DeviceError: the address is taken, or not of this machine.
        """
        self._loop = asyncio.get_running_loop()
        limits = self._models.limits
        held = Held(limits)
        http = _Http(
            uvicorn.Config(
                make_app(self._models, held),
                http=bounded_protocol(limits, held),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,  # nobody asks who a client is
                limit_concurrency=limits.connections,
                timeout_graceful_shutdown=max(int(limits.drain_seconds), 1),
            )
        )
        listener = self._listen()
        self.http_port = listener.getsockname()[1]
        rpc = None
        try:
            if self._grpc_wanted is not None:
                from polydevice.serve.grpc.rpc import make_server  # REST alone needs no grpcio

                rpc = make_server(self._models)
                self.grpc_port = self._bind(rpc, self._grpc_wanted)
                await rpc.start()
            serving = asyncio.create_task(http.serve(sockets=[listener]))
            with self._signals():
                while not http.started and not serving.done():
                    await asyncio.sleep(0.005)
                started()
                stop = asyncio.create_task(self._stop.wait())
                await asyncio.wait((stop, serving), return_when=asyncio.FIRST_COMPLETED)
                stop.cancel()
            self._models.end()
            http.should_exit = True
            if rpc is not None:
                await rpc.stop(limits.drain_seconds)
            await serving
        finally:
            listener.close()
            await asyncio.to_thread(self._models.close, limits.drain_seconds)

    def stop(self) -> None:
        """End, from any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)

    def _listen(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            made = socket.create_server((self._host, self.http_port), family=family, backlog=256)
        except (OSError, OverflowError) as error:
            raise self._no_address(self.http_port, error) from error
        # Connections inherit it. asyncio sets it only where a socket was made with a protocol's
        # number; without it the second part of an answer waits 40 ms for the client's receipt.
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made

    def _bind(self, rpc: object, port: int) -> int:
        host = f"[{self._host}]" if ":" in self._host else self._host
        try:
            bound: int = rpc.add_insecure_port(f"{host}:{port}")  # type: ignore[attr-defined]
        except RuntimeError as error:
            raise self._no_address(port, error) from error
        if not bound:
            raise self._no_address(port, "it is not free")
        return bound

    def _no_address(self, port: int, why: object) -> DeviceError:
        return DeviceError(
            f"cannot listen on {self._host} port {port}: {why}. Choose another address with --host "
            "and --port"
        )

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """End at the first signal; the second one ends the process as ever."""
        assert self._loop is not None
        loop = self._loop

        def end(number: int) -> None:
            loop.remove_signal_handler(number)
            self._stop.set()

        taken = []
        with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):
            for number in _SIGNALS:  # refused in threads other than the main one
                loop.add_signal_handler(number, end, number)
                taken.append(number)
        try:
            yield
        finally:
            for number in taken:
                loop.remove_signal_handler(number)
