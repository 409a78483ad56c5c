"""InferenceSession: a model on a device."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from polydevice.bounds import within
from polydevice.compat.onnxruntime import model as models
from polydevice.compat.onnxruntime.errors import Fail, OrtError
from polydevice.compat.onnxruntime.io_binding import IOBinding
from polydevice.compat.onnxruntime.loaded import Done, LoadedModel
from polydevice.compat.onnxruntime.model import ModelMetadata, NodeArg
from polydevice.compat.onnxruntime.options import RunOptions, SessionOptions
from polydevice.compat.onnxruntime.providers import place
from polydevice.compat.onnxruntime.surface import Surface
from polydevice.compat.onnxruntime.values import OrtValue
from polydevice.errors import PolydeviceError
from polydevice.trace import Trace


class InferenceSession(Surface):
    """A model, loaded on a device; may be run from many threads at once."""

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str],
        sess_options: SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[Any, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        """Read and load a model.

        Args:
            path_or_bytes: path or content of an ONNX file, or the path of an OpenVINO IR.
            sess_options: see `SessionOptions`.
            providers: names, or (name, options); the first that is here counts.
            provider_options: options for each of them; of ours, configuration keys of the device.
            kwargs: of onnxruntime's optimiser; they have no meaning here.

        Raises:
            NoSuchFile, InvalidProtobuf, InvalidGraph, NotImplemented, Fail, EPFail: the model
                cannot be read, or the device cannot run it.
            TypeError: what is neither path nor bytes, or options of another type.
        """
        if isinstance(path_or_bytes, (str, os.PathLike)):
            self._model: str | bytes = os.fspath(path_or_bytes)
            self._model_path: str | None = str(self._model)
        elif isinstance(path_or_bytes, bytes):
            self._model, self._model_path = path_or_bytes, None
        else:
            raise TypeError(f"Unable to load from type '{type(path_or_bytes)}'")
        if sess_options is not None and not isinstance(sess_options, SessionOptions):
            raise TypeError(f"sess_options takes SessionOptions, not {sess_options!r}")
        self._sess_options = SessionOptions() if sess_options is None else sess_options
        self._load(providers, provider_options)

    def _load(
        self,
        providers: Sequence[Any] | None,
        provider_options: Sequence[Mapping[Any, Any]] | None,
    ) -> None:
        options = self._sess_options
        self._placement = place(providers or options._providers, provider_options)
        self._trace = Trace() if options.enable_profiling else None
        self._profiled_from = 0 if self._trace is None else self._trace.start_ns
        began = time.perf_counter_ns()
        network = models.read(self._model, options)
        names = [str(name) for name in network.notes("onnx", "overridable").values()]
        constants = {name: network.node(name).output.desc for name in names}
        self._overridable = [models.node_arg(network, n, d) for n, d in constants.items()]
        self._meta = models.metadata(network)
        self._loaded = loaded = LoadedModel(network, self._placement, options)
        self._with_inputs: dict[frozenset[str], LoadedModel] = {}
        if self._trace is not None:
            self._trace.add_span("session_initialization", began)
        self._inputs_meta = [models.node_arg(network, n, d) for n, d in loaded.descs.items()]
        self._outputs_meta = [
            models.node_arg(network, name, desc) for name, (_, desc) in loaded.outputs.items()
        ]

    def _with(self, feed: Mapping[str, Any]) -> LoadedModel:
        """Return the model with those initialisers as inputs that are given; loaded once."""
        known = self._loaded.descs
        given = frozenset(name for name in feed if name not in known)
        if not given or not given <= {arg.name for arg in self._overridable}:
            return self._loaded  # which says what is wrong
        loaded = self._with_inputs.get(given)
        if loaded is None:
            network = models.read(self._model, self._sess_options)
            for name in sorted(given):
                network.make_input(name)
            loaded = LoadedModel(network, self._placement, self._sess_options)
            self._with_inputs[given] = loaded
        return loaded

    # -- running ------------------------------------------------------------------------------

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        """Run the model.

        Args:
            output_names: which outputs; None or an empty list for all.
            input_feed: name → array (or what NumPy makes one of; a list of them for a sequence).
            run_options: see `RunOptions`.

        Returns:
            The outputs in the order asked for: arrays of the caller's own, or lists of them.

        Raises:
            ValueError: inputs are missing.
            InvalidArgument: a name that does not exist, a value of another type, rank or size.
            Fail, EPFail: the inference failed.
        """
        loaded = self._loaded
        if len(input_feed) > loaded.count:
            loaded = self._with(input_feed)
        if run_options is None:
            return loaded.run(output_names, input_feed, self._trace)
        with _ended_by(run_options):
            return loaded.run(output_names, input_feed, self._trace)

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Run the model on OrtValues, those on its device without a copy; see `run`."""
        feed = {name: value._value for name, value in input_dict_ort_values.items()}
        with _ended_by(run_options):
            values = self._loaded.run_on_device(output_names, feed)
        return [OrtValue(value) for value in values]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Done,
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Start an inference and return; its inputs are copied.

        Args:
            output_names: as in `run`.
            input_feed: as in `run`.
            callback: called in another thread as ``callback(outputs, user_data, error)``, where
                `error` is "" or says what failed, and `outputs` then is empty.
            user_data: handed to the callback.
            run_options: as in `run`.

        Raises:
            ValueError: inputs are missing.
        """
        if any(name not in input_feed for name in self._loaded.descs):
            raise self._loaded.missing(input_feed)
        with _ended_by(run_options):
            self._with(input_feed).start(output_names, input_feed, callback, user_data)

    # -- binding ------------------------------------------------------------------------------

    def io_binding(self) -> IOBinding:
        """Return a binding of inputs and outputs to memory."""
        return IOBinding(self)

    def run_with_iobinding(
        self, iobinding: IOBinding, run_options: RunOptions | None = None
    ) -> None:
        """Run the model on the memory of a binding.

        Raises:
            RuntimeError: memory that does not fit, or the inference failed.
        """
        try:
            began = time.perf_counter_ns()
            with _ended_by(run_options):
                iobinding._run()
            if self._trace is not None:
                self._trace.add_layers(iobinding._request.get_perf_counts(), began)
                self._trace.add_span("model_run", began)
        except (PolydeviceError, OrtError) as error:
            text = error.text if isinstance(error, OrtError) else error
            raise RuntimeError(f"Error in execution: {text}") from error

    # -- questions ----------------------------------------------------------------------------

    def get_inputs(self) -> list[NodeArg]:
        """Return the inputs."""
        return self._inputs_meta

    def get_outputs(self) -> list[NodeArg]:
        """Return the outputs."""
        return self._outputs_meta

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Return the initialisers that may be given to `run` like inputs."""
        return self._overridable

    def get_modelmeta(self) -> ModelMetadata:
        """Return what the model's file says about itself."""
        return self._meta

    def get_session_options(self) -> SessionOptions:
        """Return the options that the session was made with."""
        return self._sess_options

    # -- providers ----------------------------------------------------------------------------

    def get_providers(self) -> list[str]:
        """Return the providers in use, the one that counts first."""
        return list(self._placement.names)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Return provider → options."""
        return {name: dict(options) for name, options in self._placement.options.items()}

    def set_providers(
        self,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[Any, Any]] | None = None,
    ) -> None:
        """Load the model again on another device."""
        self._load(providers, provider_options)

    def disable_fallback(self) -> None:
        """Return: onnxruntime's fallback is to run again on CPU, which never happens here."""

    def enable_fallback(self) -> None:
        """Return: a run that failed is never repeated on CPU; see `disable_fallback`."""

    # -- profiling ----------------------------------------------------------------------------

    def end_profiling(self) -> str:
        """Write what was collected as a Chrome trace; return the file's name, "" without one.

        Raises:
            Fail: the file cannot be written.
        """
        trace, self._trace = self._trace, None
        if trace is None:
            return ""
        stamp = time.strftime("%Y-%m-%d_%H-%M-%S") + f"_{time.time_ns() // 1_000_000 % 1000:03}"
        path = f"{self._sess_options.profile_file_prefix}_{stamp}.json"
        try:
            trace.write(path)
        except OSError as error:
            raise Fail.of(f"{path!r} cannot be written: {error.strerror}") from error
        return path

    def get_profiling_start_time_ns(self) -> int:
        """Return when profiling began, in nanoseconds; 0 without profiling."""
        return self._profiled_from


def _ended_by(run_options: RunOptions | None) -> AbstractContextManager[object]:
    """Let the options' `terminate` end what the ``with`` block runs.

    Raises:
        TypeError: no RunOptions.
        Fail: it was set already.
    """
    if run_options is None:
        return nullcontext()
    if not isinstance(run_options, RunOptions):
        raise TypeError(f"run_options takes RunOptions, not {run_options!r}")
    if run_options.terminate:
        raise Fail.of("Exiting due to terminate flag being set to true.")
    return within(run_options._bounds)
