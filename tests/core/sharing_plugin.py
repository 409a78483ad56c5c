"""SHARE: a device whose memory is arrays in disguise, for tests of contexts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from polydevice.blob import Blob
from polydevice.errors import BlobError
from polydevice.executable_network import ExecutableNetwork
from polydevice.hookspecs import hookimpl
from polydevice.options import Options, option
from polydevice.plugin import Plugin, Version
from polydevice.remote import RemoteBlob, RemoteContext
from polydevice.runtime.runner import Runner
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc


class Memory(RemoteBlob):
    """Device memory that is an array in disguise."""

    def __init__(self, context: RemoteContext, desc: TensorDesc, params: dict[str, Any]) -> None:
        super().__init__(context, desc)
        self.given = params
        self.content = np.zeros(self.shape, self.element_type.dtype)

    @property
    def params(self) -> dict[str, Any]:
        return self.given

    @contextmanager
    def map(self, mode: str = "rw", queue: Any = None) -> Iterator[np.ndarray]:
        yield self.content

    def copy_from(self, source: Any, **how: Any) -> None:
        self.content[...] = source

    def copy_to(self, target: Any, **how: Any) -> None:
        target[...] = self.content

    def release(self) -> None:
        del self.content

    def cut(self, bounds: tuple[slice, ...]) -> Memory:
        part = self.content[bounds]
        return Memory(self.context, TensorDesc(self.element_type, Shape(part.shape)), {})


class Context(RemoteContext):
    def __init__(self, device_name: str, given: dict[str, Any]) -> None:
        super().__init__(device_name)
        self.given = given

    @property
    def params(self) -> dict[str, Any]:
        return self.given

    def create_blob(self, desc: TensorDesc, params: Any = None) -> Memory:
        return Memory(self, desc, dict(params or {}))


class SharingRunner(Runner):
    """Adds one, in device memory or on the host."""

    def check_remote(self, port: Any, blob: RemoteBlob) -> None:
        if blob.context is not self.executable.get_context():
            raise BlobError(f"{port.kind} {port.name!r}: another context")

    def run(self, stream: int) -> None:
        ports = (self.executable.inputs, self.executable.outputs)
        source, result = (self.blob(next(iter(found))) for found in ports)
        contents(result)[...] = contents(source) + 1


def contents(blob: Blob) -> np.ndarray:
    return blob.content if isinstance(blob, Memory) else blob.array


class SharingNetwork(ExecutableNetwork):
    def __init__(self, network: Any, options: Options, context: Context) -> None:
        super().__init__(network, context.device_name, options)
        self.context = context

    def create_runner(self) -> Runner:
        return SharingRunner(self)

    def get_context(self) -> RemoteContext:
        return self.context


class SharingOptions(Options):
    device: str = option("DEVICE_ID", "", help="Device.")


class SharingPlugin(Plugin):
    option_type = SharingOptions
    has_contexts = True

    @property
    def version(self) -> Version:
        return Version("sharing", 1, 0, "0")

    def device_ids(self, options: Options) -> list[str]:
        return ["0", "1"]

    def unsupported_nodes(self, network: Any, options: Options) -> dict[str, str]:
        return {}

    def context(self, options: Options, device_id: str, params: Any = None) -> Context:
        given = {"default": True} if params is None else dict(params)
        if "explode" in given:
            raise RuntimeError("a bug of the plugin")
        return Context(f"{self.name}.{device_id or '0'}", given)

    def load_network(
        self, network: Any, options: Options, device_id: str, context: RemoteContext | None = None
    ) -> SharingNetwork:
        assert context is None or isinstance(context, Context)
        return SharingNetwork(network, options, context or self.context(options, device_id))


@hookimpl
def register_devices(register: Any) -> None:
    register("SHARE", SharingPlugin)
