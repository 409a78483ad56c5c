"""What inferences compute, alone and many at a time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from polydevice.blob import Blob
from polydevice.core import Core
from polydevice.dtype import Array, ElementType
from polydevice.errors import (
    BlobError,
    DeviceError,
    InferenceError,
    RequestError,
)
from polydevice.infer_request import StatusCode
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc
from polydevice.testing.suite.subject import SHAPE, Subject, random_input


class Running(Subject):
    """Tests of answers."""

    def test_answers_right_every_time(self, core: Core) -> None:
        """Several inputs in turn, the first one again at the end."""
        request = self.load(core).create_infer_request()
        for seed in (0, 1, 2, 0):
            x = random_input(seed)
            self.check(request.infer({"x": x})["y"], x)
        assert request.latency > 0

    def test_requests_do_not_disturb_one_another(self, core: Core) -> None:
        """Two requests of one network keep their own inputs and outputs."""
        executable = self.load(core)
        first, second = executable.create_infer_request(), executable.create_infer_request()
        y = first.infer({"x": random_input(1)})["y"]
        second.infer({"x": random_input(2)})
        self.check(y, random_input(1))

    def test_uses_the_callers_memory(self, core: Core) -> None:
        """Memory given to `set_blob` is read and written in place."""
        request = self.load(core).create_infer_request()
        x, y = random_input(3), np.full_like(self.answer(random_input(3)), np.nan)
        request.set_blob("x", Blob(x))
        request.set_blob("y", Blob(y))
        request.infer()
        self.check(y, x)
        x[...] = random_input(4)
        request.infer()
        self.check(y, random_input(4))

    def test_shares_its_memory_or_says_that_it_has_none(self, core: Core) -> None:
        """Remote blobs of the network's context are inputs and outputs; or there is no context."""
        executable = self.load(core)
        try:
            context = executable.get_context()
        except DeviceError as error:
            assert self.device.partition(".")[0] in str(error)
            return
        request = executable.create_infer_request()
        source = context.create_blob(executable.inputs["x"].desc)
        result = context.create_blob(executable.outputs["y"].desc)
        request.set_blob("x", source)
        request.set_blob("y", result)
        for seed in (1, 2):
            source.copy_from(random_input(seed))
            assert request.infer() == {}
            request.wait()
            assert request.copies.with_host == 0
            with result.map("r") as array:
                self.check(array, random_input(seed))
        with pytest.raises(BlobError):
            request.set_blob("x", context.create_blob(TensorDesc(ElementType.f32, Shape([1]))))
        assert request.get_blob("x") is source
        source.release()
        with pytest.raises(BlobError):
            request.infer()

    def test_converts_what_does_not_fit_in_place(self, core: Core) -> None:
        """Strided and f64 inputs are converted."""
        request = self.load(core).create_infer_request()
        x = random_input(5)
        reversed_twice = np.ascontiguousarray(x[::-1, :, ::-1])[::-1, :, ::-1]
        self.check(request.infer({"x": reversed_twice})["y"], x)
        self.check(request.infer({"x": x.astype(np.float64)})["y"], x)

    @pytest.mark.parametrize(
        "inputs",
        [
            {"nobody": np.zeros(SHAPE, np.float32)},
            {"x": np.zeros((2, 3, 6), np.float32)},
            {"x": np.zeros(SHAPE, np.complex64)},
        ],
        ids=["name", "shape", "type"],
    )
    def test_refuses_wrong_inputs_and_goes_on(self, core: Core, inputs: dict[str, Array]) -> None:
        """A wrong name, shape or type is refused; the next inference is right."""
        request = self.load(core).create_infer_request()
        with pytest.raises(BlobError):
            request.infer(inputs)
        self.check(request.infer({"x": random_input(6)})["y"], random_input(6))

    def test_asynchronous(self, core: Core) -> None:
        """start_async, wait and the completion callback."""
        request = self.load(core).create_infer_request()
        assert request.wait() is StatusCode.INFER_NOT_STARTED
        seen: list[tuple[StatusCode, Any]] = []
        request.set_completion_callback(lambda *arguments: seen.append(arguments), "data")
        request.start_async({"x": random_input(7)})
        assert request.wait() is StatusCode.OK
        self.check(request.get_blob("y").array, random_input(7))
        assert seen == [(StatusCode.OK, "data")]

    def test_a_failing_callback_is_reported(self, core: Core) -> None:
        """An exception in a callback reaches whoever waits; the request stays usable."""
        request = self.load(core).create_infer_request()

        def fail(*_: object) -> None:
            raise ZeroDivisionError("from the callback")

        request.set_completion_callback(fail)
        request.start_async({"x": random_input(8)})
        with pytest.raises(InferenceError, match="from the callback"):
            request.wait()
        request.set_completion_callback(None)
        self.check(request.infer({"x": random_input(9)})["y"], random_input(9))

    def test_many_threads_get_their_own_answers(self, core: Core) -> None:
        """Four threads with a request each, ten inferences each."""
        executable = self.load(core)
        start = threading.Barrier(4)

        def work(thread: int) -> None:
            request = executable.create_infer_request()
            start.wait(timeout=60)
            for turn in range(10):
                x = random_input(100 * thread + turn)
                self.check(request.infer({"x": x})["y"], x)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))

    def test_a_pool_of_requests(self, core: Core) -> None:
        """`requests`, `start_async`, `wait` and `get_idle_request_id` of the network."""
        executable = self.load(core, num_requests=3)
        assert len(executable.requests) == 3
        for number in range(3):
            executable.start_async(number, {"x": random_input(number)})
        assert executable.wait() is StatusCode.OK
        for number in range(3):
            executable.requests[number].wait()
            self.check(executable.requests[number].get_blob("y").array, random_input(number))
        assert executable.get_idle_request_id() in range(3)
        with pytest.raises(RequestError):
            executable.start_async(3)
        assert len(self.load(core, num_requests=0).requests) >= 1
