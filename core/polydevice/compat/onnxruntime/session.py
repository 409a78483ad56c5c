"""InferenceSession: a model on a device."""

from __future__ import annotations

import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from numpy import ndarray

from polydevice.compat.onnxruntime import model as models
from polydevice.compat.onnxruntime.errors import Fail, InvalidArgument, OrtError, run_failure
from polydevice.compat.onnxruntime.io_binding import IOBinding
from polydevice.compat.onnxruntime.model import ModelMetadata, NodeArg
from polydevice.compat.onnxruntime.options import RunOptions, SessionOptions
from polydevice.compat.onnxruntime.providers import place
from polydevice.compat.onnxruntime.surface import Surface
from polydevice.compat.onnxruntime.values import OrtValue
from polydevice.errors import BlobError, PolydeviceError
from polydevice.infer_request import InferRequest, StatusCode
from polydevice.profiling import Trace
from polydevice.values import from_array, to_array

Done = Callable[[list[Any], Any, str], None]


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
        self._enable_fallback = True
        self._load(providers, provider_options)

    def _load(
        self,
        providers: Sequence[Any] | None,
        provider_options: Sequence[Mapping[Any, Any]] | None,
    ) -> None:
        options = self._sess_options
        self._placement = place(providers or options._providers, provider_options)
        self._trace = Trace() if options.enable_profiling else None
        began = time.perf_counter_ns()
        network = models.read(self._model, options)
        overridable = [str(name) for name in network.notes("onnx", "overridable").values()]
        self._overridable = {name: network.node(name).output.desc for name in overridable}
        self._executable = models.load(network, self._placement, options)
        self._with_inputs: dict[frozenset[str], InferenceSession] = {}
        if self._trace is not None:
            self._trace.add_span("session_initialization", began)
        finalizer = weakref.finalize(self, self._executable.close)
        finalizer.atexit = False  # the executor ends its threads itself
        self._idle: deque[InferRequest] = deque()
        self._describe(network)

    def _describe(self, network: Any) -> None:
        """Look up all that `run` needs, so that it only looks it up."""
        executable = self._executable
        self._meta = models.metadata(network)
        self._descs = {name: port.desc for name, port in executable.inputs.items()}
        self._typed = [(name, desc.dtype) for name, desc in self._descs.items()]
        results = zip(executable.outputs.items(), network.results, strict=True)
        self._outputs = {
            getattr(node.op, "output_name", "") or name: (name, port.desc)
            for (name, port), node in results
        }
        self._all = [name for name, _ in self._outputs.values()]
        kinds = [*self._descs.values(), *(desc for _, desc in self._outputs.values())]
        self._plain = all(desc.kind == "tensor" for desc in kinds)
        self._inputs_meta = [models.node_arg(network, n, d) for n, d in self._descs.items()]
        self._outputs_meta = [
            models.node_arg(network, name, desc) for name, (_, desc) in self._outputs.items()
        ]
        self._overridable_meta = [
            models.node_arg(network, n, d) for n, d in self._overridable.items()
        ]

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
        if run_options is not None:
            _check_options(run_options)
        names = self._chosen(output_names) if output_names else self._all
        try:
            for name, dtype in self._typed:
                value = input_feed[name]
                if value.__class__ is ndarray and value.dtype != dtype:
                    self._refuse(name, value)
        except KeyError:
            raise self._missing(input_feed) from None
        if len(input_feed) != len(self._typed):
            return self._overriding(input_feed).run(output_names, input_feed)
        if not self._plain:
            input_feed = self._containers(input_feed)
        try:
            request = self._idle.pop()
        except IndexError:
            request = self._executable.create_infer_request()
        try:
            if self._trace is not None:
                return self._traced(self._trace, request, names, input_feed)
            results = request.infer(input_feed)
            if self._plain:
                return [results[name].copy() for name in names]
            return self._converted(results, names)
        except PolydeviceError as error:
            raise self._failure(error, input_feed) from error
        finally:
            self._idle.append(request)

    def _containers(self, feed: Mapping[str, Any]) -> dict[str, Any]:
        descs = self._descs
        return {
            name: value if descs[name].kind == "tensor" else to_array(value, descs[name])
            for name, value in feed.items()
        }

    def _converted(self, results: Mapping[str, Any], names: Sequence[str]) -> list[Any]:
        descs = dict(self._outputs.values())
        return [from_array(results[name], descs[name]) for name in names]

    def _traced(
        self, trace: Trace, request: InferRequest, names: Sequence[str], feed: Mapping[str, Any]
    ) -> list[Any]:
        began = time.perf_counter_ns()
        results = self._converted(request.infer(feed), names)
        trace.add_layers(request.get_perf_counts(), began)
        trace.add_span("model_run", began)
        return results

    def _chosen(self, output_names: Sequence[str]) -> list[str]:
        if isinstance(output_names, (str, bytes)):
            raise TypeError(f"output_names is a list of names, not {output_names!r}")
        try:
            return [self._outputs[name][0] for name in output_names]
        except KeyError as error:
            raise InvalidArgument.of(f"Invalid output name:{error.args[0]}") from None

    def _missing(self, feed: Mapping[str, Any]) -> ValueError:
        missing = [name for name in self._descs if name not in feed]
        return ValueError(
            f"Required inputs ({missing}) are missing from input feed ({list(feed)})."
        )

    def _refuse(self, name: str, value: Any) -> None:
        found = models.misfit(name, self._descs[name], value)
        if found is not None:
            raise found

    def _failure(self, error: PolydeviceError, feed: Mapping[str, Any]) -> OrtError:
        if isinstance(error, BlobError):
            for name, value in feed.items():
                found = models.misfit(name, self._descs[name], value)
                if found is not None:
                    return found
        return run_failure(error)

    def _overriding(self, feed: Mapping[str, Any]) -> InferenceSession:
        """Return a session in which the initialisers that are given are inputs; made once."""
        given = frozenset(name for name in feed if name not in self._descs)
        for name in given:
            if name not in self._overridable:
                raise InvalidArgument.of(f"Invalid input name: {name}")
        session = self._with_inputs.get(given)
        if session is None:
            session = self._with_inputs[given] = object.__new__(InferenceSession)
            session.__dict__.update(self.__dict__, _idle=deque(), _with_inputs={})
            network = models.read(self._model, self._sess_options)
            for name in sorted(given):
                network.make_input(name)
            session._executable = models.load(network, self._placement, self._sess_options)
            weakref.finalize(session, session._executable.close).atexit = False
            session._describe(network)
        return session

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Run the model on OrtValues, those on its device without a copy; see `run`."""
        feed = {name: value._blob for name, value in input_dict_ort_values.items()}
        return [OrtValue(value) for value in self.run(output_names, feed, run_options)]

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
        if any(name not in input_feed for name in self._descs):
            raise self._missing(input_feed)
        try:
            if run_options is not None:
                _check_options(run_options)
            names = self._chosen(output_names) if output_names else self._all
            for name, value in input_feed.items():
                if name not in self._descs:
                    raise InvalidArgument.of(f"Invalid input name: {name}")
                self._refuse(name, value)
            feed = self._containers(input_feed)
        except OrtError as error:
            callback([], user_data, error.text)
            return
        self._start(names, feed, callback, user_data)

    def _start(
        self, names: Sequence[str], feed: Mapping[str, Any], callback: Done, user_data: Any
    ) -> None:
        try:
            request = self._idle.pop()
        except IndexError:
            request = self._executable.create_infer_request()

        def done(_: StatusCode, _data: Any) -> None:
            try:
                request.wait(0)
                blobs = {name: request.get_blob(name).array for name in names}
                outputs, error = self._converted(blobs, names), ""
            except PolydeviceError as failure:
                outputs, error = [], str(failure)
            try:
                callback(outputs, user_data, error)
            finally:
                self._idle.append(request)

        request.set_completion_callback(done)
        request.start_async(feed)

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
            if run_options is not None:
                _check_options(run_options)
            began = time.perf_counter_ns()
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
        return self._overridable_meta

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
        """Note it: onnxruntime's fallback is to run again on CPU, which never happens here."""
        self._enable_fallback = False

    def enable_fallback(self) -> None:
        """Note it; see `disable_fallback`."""
        self._enable_fallback = True

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
        return 0 if self._trace is None else self._trace.start_ns


def _check_options(run_options: RunOptions) -> None:
    if not isinstance(run_options, RunOptions):
        raise TypeError(f"run_options takes RunOptions, not {run_options!r}")
    if run_options.terminate:
        raise Fail.of("Exiting due to terminate flag being set to true.")
