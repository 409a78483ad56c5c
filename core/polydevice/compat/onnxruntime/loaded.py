"""LoadedModel: a network on its device, the requests that runs take in turn, and their checks."""

from __future__ import annotations

import math
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy import ndarray

from polydevice.compat.onnxruntime import model as models
from polydevice.compat.onnxruntime.errors import InvalidArgument, OrtError, run_failure
from polydevice.compat.onnxruntime.options import SessionOptions
from polydevice.compat.onnxruntime.providers import Placement
from polydevice.dtype import Array
from polydevice.errors import BlobError, PolydeviceError
from polydevice.infer_request import InferRequest, StatusCode
from polydevice.network import Network
from polydevice.tensor import TensorDesc
from polydevice.trace import Trace
from polydevice.values import from_array, to_array

Done = Callable[[list[Any], Any, str], None]
Place = tuple[str, "np.dtype[Any]", tuple[int, ...], Array]

COPIED_BYTES = 16384
"""Inputs of together at most this many bytes are copied into the requests' own memory: pointing
oneDNN to other memory costs 3 µs an input, copying a kilobyte 0.4."""


class LoadedModel:
    """A network loaded for a session; `run` may be called from many threads at once.

    Attributes:
        executable: core's network.
        descs: input → type and shape.
        count: of inputs.
        outputs: output as the model calls it → name in the executable network, type and shape.
    """

    def __init__(self, network: Network, placement: Placement, options: SessionOptions) -> None:
        """Load a network, and look up all that `run` needs.

        Raises:
            OrtError: (a subclass) as onnxruntime does.
        """
        self.executable = executable = models.load(network, placement, options)
        weakref.finalize(self, executable.close).atexit = False  # threads end by themselves then
        self.descs = {name: port.desc for name, port in executable.inputs.items()}
        self.count = len(self.descs)
        results = zip(executable.outputs.items(), network.results, strict=True)
        self.outputs = {
            getattr(node.op, "output_name", "") or name: (name, port.desc)
            for (name, port), node in results
        }
        self._all = [name for name, _ in self.outputs.values()]
        self._by_name = dict(self.outputs.values())
        self._typed = [(name, desc.dtype) for name, desc in self.descs.items()]
        kinds = [*self.descs.values(), *self._by_name.values()]
        self._numbers = {name for name, desc in self.descs.items() if desc.shape == ()}
        self._plain = all(desc.kind == "tensor" for desc in kinds)
        self._copies = _bytes_of(self.descs.values()) <= COPIED_BYTES
        self._idle: deque[tuple[InferRequest, list[Place]]] = deque()
        self._on_device: deque[InferRequest] = deque()

    # -- running ------------------------------------------------------------------------------

    def run(
        self, output_names: Sequence[str] | None, feed: Mapping[str, Any], trace: Trace | None
    ) -> list[Any]:
        """Run a request on the inputs given, and return copies of its outputs.

        Raises:
            ValueError, OrtError: see `InferenceSession.run`.
        """
        names = self.chosen(output_names) if output_names else self._all
        try:
            request, places = self._idle.pop()
        except IndexError:
            request, places = self._request()
        try:
            for name, dtype, shape, place in places:
                value = feed[name]
                if type(value) is ndarray and value.dtype is dtype and value.shape == shape:
                    place[...] = value
                else:
                    self._copy(name, value, place)
            if trace is None and places and len(feed) == len(places):
                results = request.infer()
            else:
                results = self._infer(request, places, feed, trace)
            if not self._plain:
                return [from_array(results[name], self._by_name[name]) for name in names]
            if len(names) == 1:  # a comprehension is a call of its own before Python 3.12
                return [results[names[0]].copy()]
            return [results[name].copy() for name in names]
        except KeyError:
            raise self.missing(feed) from None
        except InvalidArgument:
            if any(name not in feed for name in self.descs):  # which is said first
                raise self.missing(feed) from None
            raise
        except PolydeviceError as error:
            raise self._failure(error, feed) from error
        finally:
            self._idle.append((request, places))

    def _request(self) -> tuple[InferRequest, list[Place]]:
        """Make a request, with the memory of inputs that are copied."""
        request = self.executable.create_infer_request()
        if not self._copies:
            return request, []
        arrays = ((name, request.get_blob(name).array) for name in self.descs)
        return request, [(name, array.dtype, array.shape, array) for name, array in arrays]

    def _copy(self, name: str, value: Any, place: Array) -> None:
        if isinstance(value, np.ndarray):
            self.refuse(name, value)
            if not place.ndim:
                value = value.reshape(())
        place[...] = self.executable.inputs[name].as_array(value)

    def _infer(
        self,
        request: InferRequest,
        places: Sequence[Place],
        feed: Mapping[str, Any],
        trace: Trace | None,
    ) -> dict[str, Array]:
        """Run on inputs that are read in place, or with a trace."""
        for name, dtype in self._typed:
            value = feed[name]
            if value.__class__ is np.ndarray and value.dtype != dtype:
                self.refuse(name, value)
        if len(feed) != len(self._typed):
            unknown = next(name for name in feed if name not in self.descs)
            raise InvalidArgument.of(f"Invalid input name: {unknown}")
        began = time.perf_counter_ns()
        results = request.infer(None if places else self.in_runtime(feed))
        if trace is not None:
            trace.add_layers(request.get_perf_counts(), began)
            trace.add_span("model_run", began)
        return results

    def run_on_device(
        self, output_names: Sequence[str] | None, feed: Mapping[str, Any]
    ) -> list[Any]:
        """Run on inputs of which some are blobs in device memory; see `run`."""
        names = self.chosen(output_names) if output_names else self._all
        if any(name not in feed for name in self.descs):
            raise self.missing(feed)
        request = self._on_device.pop() if self._on_device else None
        request = request or self.executable.create_infer_request()
        try:
            results = self._infer(request, (), feed, None)
            return [from_array(results[name], self._by_name[name]) for name in names]
        except PolydeviceError as error:
            raise self._failure(error, feed) from error
        finally:
            self._on_device.append(request)

    def start(
        self,
        output_names: Sequence[str] | None,
        feed: Mapping[str, Any],
        callback: Done,
        user_data: Any,
    ) -> None:
        """Begin an inference whose outcome `callback` gets; what does not fit too."""
        try:
            names = self.chosen(output_names) if output_names else self._all
            for name, value in feed.items():
                if name not in self.descs:
                    raise InvalidArgument.of(f"Invalid input name: {name}")
                self.refuse(name, value)
        except OrtError as error:
            callback([], user_data, error.text)
            return
        try:
            request = self._on_device.pop()
        except IndexError:
            request = self.executable.create_infer_request()

        def done(_: StatusCode, _data: Any) -> None:
            try:
                request.wait(0)
                arrays = {name: request.get_blob(name, "output").array for name in names}
                outputs = [from_array(arrays[name], self._by_name[name]) for name in names]
                error = ""
            except PolydeviceError as failure:
                outputs, error = [], str(failure)
            try:
                callback(outputs, user_data, error)
            finally:
                self._take_back(request)

        request.set_completion_callback(done)
        try:
            request.start_async(self.in_runtime(feed))
        except BaseException as failure:
            self._take_back(request)
            if not isinstance(failure, PolydeviceError):
                raise
            callback([], user_data, self._failure(failure, feed).text)

    def _take_back(self, request: InferRequest) -> None:
        """Let others run a request, which forgets what was to be called, and with what."""
        request.set_completion_callback(None)
        self._on_device.append(request)

    # -- checks -------------------------------------------------------------------------------

    def in_runtime(self, feed: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return inputs in the form that the runtime uses: lists of arrays, and numbers."""
        if self._plain and not self._numbers:
            return feed
        descs, made = self.descs, dict(feed)
        for name, value in feed.items():
            if descs[name].kind != "tensor":
                made[name] = to_array(value, descs[name])
            elif name in self._numbers and isinstance(value, np.ndarray) and value.size == 1:
                made[name] = value.reshape(())
        return made

    def chosen(self, output_names: Sequence[str]) -> list[str]:
        """Return core's names of outputs.

        Raises:
            TypeError: a text instead of a list.
            InvalidArgument: there is no output of that name.
        """
        if isinstance(output_names, (str, bytes)):
            raise TypeError(f"output_names is a list of names, not {output_names!r}")
        try:
            return [self.outputs[name][0] for name in output_names]
        except KeyError as error:
            raise InvalidArgument.of(f"Invalid output name:{error.args[0]}") from None

    def missing(self, feed: Mapping[str, Any]) -> ValueError:
        """Return the error for inputs that are not there."""
        missing = [name for name in self.descs if name not in feed]
        return ValueError(
            f"Required inputs ({missing}) are missing from input feed ({list(feed)})."
        )

    def refuse(self, name: str, value: Any) -> None:
        """Raise InvalidArgument for a value of another type, rank or size."""
        found = models.misfit(name, self.descs[name], value)
        if found is not None:
            raise found

    def _failure(self, error: PolydeviceError, feed: Mapping[str, Any]) -> OrtError:
        if isinstance(error, BlobError):
            for name, value in feed.items():
                if (found := models.misfit(name, self.descs[name], value)) is not None:
                    return found
        return run_failure(error)


def _bytes_of(descs: Iterable[TensorDesc]) -> float:
    """Return how many bytes values take together; infinity where that is not known."""
    spans = [desc.span_bytes if desc.is_static and desc.dtype != object else None for desc in descs]
    return sum(math.inf if span is None else span for span in spans)
