"""CompiledModel: a model on a device."""

from __future__ import annotations

from typing import Any

from polydevice.compat.openvino.devices import settings
from polydevice.compat.openvino.errors import translated
from polydevice.compat.openvino.graph.ports import ConstOutput
from polydevice.compat.openvino.models.model import Model, chosen
from polydevice.compat.openvino.requests.infer_request import InferRequest
from polydevice.compat.openvino.requests.loaded import LoadedModel
from polydevice.compat.openvino.requests.results import OVDict
from polydevice.compat.openvino.requests.variable_state import VariableState
from polydevice.compat.openvino.surface import Surface
from polydevice.errors import UnknownOptionError
from polydevice.executable_network import ExecutableNetwork
from polydevice.network import Network


class ExportedModel(bytes):
    """What `CompiledModel.export_model` returns: bytes, as it was, that read like a stream."""

    def getvalue(self) -> bytes:
        """Return the bytes."""
        return self

    def getbuffer(self) -> memoryview:
        """Return the bytes' memory."""
        return memoryview(self)

    def read(self, size: int = -1) -> bytes:
        """Return the bytes, or so many of the first."""
        return self if size < 0 else self[:size]

    def seek(self, place: int, whence: int = 0) -> int:
        """Do nothing: `read` begins at the beginning."""
        return 0


class CompiledModel(Surface):
    """A model that was loaded on a device; calling it runs an inference."""

    __slots__ = ("__weakref__", "_given", "_infer_request", "_loaded")
    _given: dict[str, Any]
    _infer_request: InferRequest | None
    _loaded: LoadedModel

    def __init__(self, other: CompiledModel, weights: Any = None) -> None:
        """Share another; `Core.compile_model` makes one."""
        self._loaded, self._given = other._loaded, other._given
        self._infer_request = None

    @classmethod
    def _of(
        cls, executable: ExecutableNetwork, network: Network, config: Any = None
    ) -> CompiledModel:
        made = cls.__new__(cls)
        made._given = settings.pairs(config or {})
        made._loaded = LoadedModel(executable, network)
        made._infer_request = None
        return made

    # -- running ------------------------------------------------------------------------------

    def __call__(
        self,
        inputs: Any = None,
        share_inputs: bool = True,
        share_outputs: bool = False,
        *,
        decode_strings: bool = True,
    ) -> OVDict:
        """Run one inference on a request that is kept for it; see `InferRequest.infer`.

        Raises:
            RuntimeError: inputs that do not fit, or the inference failed.
        """
        request = self._infer_request or self._own_request()
        in_place = share_inputs and not self._loaded.small
        return request.infer(inputs, in_place, share_outputs, decode_strings=decode_strings)

    def _own_request(self) -> InferRequest:
        if self._infer_request is None:
            self._infer_request = self.create_infer_request()
        return self._infer_request

    def infer_new_request(self, inputs: Any = None) -> OVDict:
        """Run one inference on a request of its own; see `InferRequest.infer`."""
        return self.create_infer_request().infer(inputs)

    @translated
    def create_infer_request(self) -> InferRequest:
        """Make a request."""
        return InferRequest._of(self, self._loaded.executable.create_infer_request())

    def query_state(self) -> list[VariableState]:
        """Return the variables of the request that calls run on."""
        return self._own_request().query_state()

    def reset_state(self) -> None:
        """Return the variables of the request that calls run on to their initial values."""
        self._own_request().reset_state()

    def release_memory(self) -> None:
        """Free the memory of the request that calls run on; the next call makes it again."""
        self._infer_request = None

    # -- inputs and outputs -------------------------------------------------------------------

    @property
    def inputs(self) -> list[ConstOutput]:
        """The inputs."""
        return list(self._loaded.inputs)

    @property
    def outputs(self) -> list[ConstOutput]:
        """The outputs."""
        return list(self._loaded.outputs)

    def input(self, key: int | str | None = None) -> ConstOutput:
        """Return an input by number, by the name of its tensor, or the only one.

        Raises:
            IndexError: there is none of that number.
            RuntimeError: there is none of that name, or not exactly one.
        """
        return chosen(self._loaded.inputs, key, "Input")

    def output(self, key: int | str | None = None) -> ConstOutput:
        """Return an output by number, by the name of its tensor, or the only one.

        Raises:
            IndexError: there is none of that number.
            RuntimeError: there is none of that name, or not exactly one.
        """
        return chosen(self._loaded.outputs, key, "Output")

    # -- the loaded model ---------------------------------------------------------------------

    @translated
    def export_model(self, model_stream: Any = None) -> Any:
        """Return the loaded model as bytes, or write them to a stream; `Core.import_model` reads.

        Raises:
            RuntimeError: the device cannot export.
        """
        content = self._loaded.executable.export()
        if model_stream is None:
            return ExportedModel(content)
        model_stream.write(content)
        return None

    @translated
    def get_runtime_model(self) -> Model:
        """Return the graph that the device runs, to look at."""
        return Model._of(self._loaded.executable.get_exec_graph_info())

    @translated
    def get_property(self, property: str) -> Any:  # noqa: A002 - its name
        """Return a property of the loaded model.

        Raises:
            RuntimeError: there is none of that name.
        """
        executable, name = self._loaded.executable, str(property)
        metrics, keys = executable.get_metric("SUPPORTED_METRICS"), executable.options.keys()
        if name == "SUPPORTED_PROPERTIES":
            return dict.fromkeys([*metrics, "EXECUTION_DEVICES", *keys], "RO")
        if name == "EXECUTION_DEVICES":
            return list(dict.fromkeys(p.device for p in executable.placement() if p.device))
        if name == "LOADED_FROM_CACHE":
            return executable.from_cache
        if name == "NUM_STREAMS":
            return executable.streams
        if name in metrics:
            return executable.get_metric(name)
        if name == "MODEL_NAME":
            name = "NETWORK_NAME"
        found = settings.from_config(name, executable.get_config, keys)
        if found is None:
            found = settings.kept(name, self._given)
        if found is None:  # a device that does not say it, or has no such key
            found = self._given.get(name)
        if found is None:
            raise UnknownOptionError(
                f"Cannot get unsupported property: {name}; there are: "
                f"{', '.join(self.get_property('SUPPORTED_PROPERTIES'))}"
            )
        return found

    def set_property(self, *properties: Any) -> None:
        """Refuse: a loaded model keeps the configuration that it was loaded with.

        Raises:
            RuntimeError: for any property that means something.
        """
        names = [n for n in settings.pairs(properties) if n not in settings.WITHOUT_EFFECT]
        if names:
            raise RuntimeError(
                f"{', '.join(names)}: a loaded model keeps its configuration; give it to "
                "Core.compile_model()"
            )

    @translated
    def get_context(self) -> Any:
        """Return the context in which it was loaded; raises RuntimeError where there is none."""
        from polydevice.compat.openvino.devices.context import RemoteContext

        return RemoteContext(self._loaded.executable.get_context())

    def __repr__(self) -> str:
        inputs = "\n".join(map(repr, self._loaded.inputs))
        outputs = "\n".join(map(repr, self._loaded.outputs))
        return f"<CompiledModel:\ninputs[\n{inputs}\n]\noutputs[\n{outputs}\n]>"
