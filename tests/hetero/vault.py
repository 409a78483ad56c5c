"""A device of a third party with memory of its own, which nobody reads by accident."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from polydevice.blob import Blob
from polydevice.dtype import Array
from polydevice.errors import BlobError, DeviceError
from polydevice.executable_network import ExecutableNetwork
from polydevice.hookspecs import hookimpl
from polydevice.network import Network
from polydevice.ops.activation import Relu
from polydevice.ops.arithmetic import Add, Multiply
from polydevice.ops.io import Constant, Parameter, Result
from polydevice.options import Options
from polydevice.plugin import Plugin, Version
from polydevice.remote import Copies, RemoteBlob, RemoteContext
from polydevice.runtime.port_info import PortInfo
from polydevice.runtime.runner import Runner
from polydevice.tensor import TensorDesc

OPERATIONS: dict[type, Any] = {
    Add: np.add,
    Multiply: np.multiply,
    Relu: lambda x: np.maximum(x, 0),
}


class VaultContext(RemoteContext):
    @property
    def params(self) -> dict[str, Any]:
        return {"CONTEXT_TYPE": "VAULT"}

    def create_blob(self, desc: TensorDesc, params: Mapping[str, Any] | None = None) -> VaultBlob:
        return VaultBlob(self, desc)


class VaultBlob(RemoteBlob):
    def __init__(self, context: RemoteContext, desc: TensorDesc) -> None:
        super().__init__(context, desc)
        self.secret = np.empty(self.shape, self.element_type.dtype)

    @property
    def params(self) -> dict[str, Any]:
        return {}

    @contextmanager
    def map(self, mode: str = "rw", queue: Any = None) -> Iterator[Array]:
        yield self.secret

    def copy_from(self, source: Blob | Array, **arguments: Any) -> Any:
        self.secret[...] = source.secret if isinstance(source, VaultBlob) else np.asarray(source)

    def copy_to(self, target: Blob | Array, **arguments: Any) -> Any:
        assert isinstance(target, np.ndarray)
        target[...] = self.secret

    def release(self) -> None:
        raise DeviceError("never")

    def cut(self, bounds: tuple[slice, ...]) -> RemoteBlob:
        raise BlobError("no regions")


class VaultPlugin(Plugin):
    option_type = Options
    has_contexts = True

    @property
    def version(self) -> Version:
        return Version("vault", 0, 1, "0")

    def device_ids(self, options: Options) -> list[str]:
        return ["0"]

    def unsupported_nodes(self, network: Network, options: Options) -> dict[str, str]:
        runs = (*OPERATIONS, Parameter, Constant, Result)
        return {n.name: "not in the vault" for n in network if not isinstance(n.op, runs)}

    def context(self, options: Options, device_id: str, params: Any = None) -> RemoteContext:
        self.made = getattr(self, "made", None) or VaultContext("VAULT.0")
        return self.made

    def load_network(
        self,
        network: Network,
        options: Options,
        device_id: str,
        context: RemoteContext | None = None,
    ) -> ExecutableNetwork:
        return VaultExecutable(network, options, context or self.context(options, device_id))


class VaultExecutable(ExecutableNetwork):
    def __init__(self, network: Network, options: Options, context: RemoteContext) -> None:
        super().__init__(network, "VAULT", options)
        self.network, self.context = network, context

    def get_context(self) -> RemoteContext:
        return self.context

    def create_runner(self) -> Runner:
        return VaultRunner(self)


class VaultRunner(Runner):
    executable: VaultExecutable
    counted = Copies()

    @property
    def copies(self) -> Copies:
        return self.counted

    def check_remote(self, port: PortInfo, blob: RemoteBlob) -> None:
        if blob.context is not self.executable.context:
            raise BlobError("not of this vault")

    def run(self, stream: int) -> None:
        self.counted = Copies()
        network = self.executable.network
        values: dict[Any, Array] = {}
        for name, port in network.input_ports():
            blob = self.blob(name)
            self.counted.uploads += not isinstance(blob, VaultBlob)
            values[port] = blob.secret if isinstance(blob, VaultBlob) else blob.array.copy()
        for node in network.nodes():
            if isinstance(node.op, Constant):
                values[node.output] = node.op.value
            elif type(node.op) in OPERATIONS:
                arrays: Sequence[Array] = [values[port] for port in node.inputs]
                values[node.output] = OPERATIONS[type(node.op)](*arrays)
        for name, port in network.output_ports():
            blob = self.blobs.get(name)
            if name in self.kept:
                desc = TensorDesc(port.element_type, port.shape)
                blob = self.kept[name] or self.executable.context.create_blob(desc)
                self.kept[name] = self.blobs[name] = blob
            if isinstance(blob, VaultBlob):
                blob.secret[...] = values[port]
                continue
            self.counted.downloads += 1
            self.blob(name).array[...] = values[port]


@hookimpl
def register_devices(register: Any) -> None:
    register("VAULT", VaultPlugin)
