"""How work ends before it is done, and how networks are closed."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import numpy as np
import pytest

from polydevice.core import Core
from polydevice.dtype import Array
from polydevice.errors import (
    BlobError,
    DeviceError,
    InferCancelledError,
    InferTimeoutError,
)
from polydevice.infer_request import StatusCode
from polydevice.testing.suite.subject import SHAPE, Subject, random_input


class Ending(Subject):
    """Tests of cancelling, time limits and closing."""

    ENDLESS: ClassVar[dict[str, Array]] = {
        "x": np.zeros(SHAPE, np.float32),
        "trips": np.array(-1, np.int64),
    }

    def load_repeating(self, core: Core, **config: Any) -> Any:
        """Load the network with a loop, or skip the test if the device runs none."""
        network = self.repeating()
        if reasons := core.unsupported_nodes(network, self.device, self.config):
            pytest.skip(f"{self.device} runs no loop: {reasons}")
        executable = core.load_network(network, self.device, {**self.config, **config})
        self.check_repeating(executable.create_infer_request())
        return executable

    def check_repeating(self, request: Any) -> None:
        """Run three iterations."""
        x = random_input(7)
        y = request.infer({"x": x, "trips": np.array(3, np.int64)})["y"]
        np.testing.assert_allclose(y, x + 3, rtol=1e-3, atol=1e-3)

    def test_cancels_what_runs(self, core: Core) -> None:
        """`cancel` ends an endless loop, of `start_async` and of `infer`; the request goes on."""
        request = self.load_repeating(core).create_infer_request()
        for _ in range(2):
            request.start_async(self.ENDLESS)
            assert request.wait(20) is StatusCode.RESULT_NOT_READY
            request.cancel()
            with pytest.raises(InferCancelledError, match="cancelled"):
                request.wait()
            self.check_repeating(request)
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(request.infer, self.ENDLESS)
            while not running.done():
                request.cancel()  # without effect until the inference has begun
                time.sleep(0.01)
            assert isinstance(running.exception(), InferCancelledError)
        self.check_repeating(request)

    def test_ends_when_its_time_is_over(self, core: Core) -> None:
        """INFER_TIMEOUT_MS ends an endless loop, and leaves the request usable."""
        # Long enough for the inference that ends, on a busy machine too.
        request = self.load_repeating(core, INFER_TIMEOUT_MS=700).create_infer_request()
        with pytest.raises(InferTimeoutError, match="INFER_TIMEOUT_MS"):
            request.infer(self.ENDLESS)
        request.start_async(self.ENDLESS)
        with pytest.raises(InferTimeoutError, match="700 ms"):
            request.wait()
        self.check_repeating(request)

    def test_others_do_not_wait_for_an_endless_one(self, core: Core) -> None:
        """Another request of the same network answers while one runs for ever."""
        executable = self.load_repeating(core)
        endless, other = (executable.create_infer_request() for _ in range(2))
        endless.start_async(self.ENDLESS)
        assert endless.wait(20) is StatusCode.RESULT_NOT_READY
        for _ in range(3):
            self.check_repeating(other)
        assert endless.wait(0) is StatusCode.RESULT_NOT_READY
        endless.cancel()
        with pytest.raises(InferCancelledError):
            endless.wait()

    def test_closing_cancels_what_runs(self, core: Core) -> None:
        """Closing a network, and a core, ends endless loops."""
        executable = self.load_repeating(core, PERFORMANCE_HINT="THROUGHPUT")
        requests = [executable.create_infer_request() for _ in range(2)]
        for request in requests:
            request.start_async(self.ENDLESS)
        executable.close()
        for request in requests:
            with pytest.raises(InferCancelledError, match="was closed"):
                request.wait(0)
            for begin in (request.infer, request.start_async):
                with pytest.raises(DeviceError, match="is closed"):
                    begin(self.ENDLESS)
        with Core() as second:
            self.register(second)
            running = self.load_repeating(second).create_infer_request()
            running.start_async(self.ENDLESS)
        with pytest.raises(InferCancelledError, match="was closed"):
            running.wait(0)

    def test_refuses_to_write_read_only_memory(self, core: Core) -> None:
        """A read-only array is an input, but no output."""
        request = self.load(core).create_infer_request()
        x, y = random_input(3), np.zeros_like(self.answer(random_input(3)))
        for array in (x, y):
            array.flags.writeable = False
        request.set_blob("x", x)
        with pytest.raises(BlobError, match="read-only"):
            request.set_blob("y", y)
        self.check(request.infer()["y"], x)
        assert not y.any()

    # -- the end ------------------------------------------------------------------------------

    def test_closing(self, core: Core) -> None:
        """A closed network refuses new requests; closing twice is fine; the core goes on."""
        executable = self.load(core)
        executable.create_infer_request().infer({"x": random_input(0)})
        executable.close()
        executable.close()
        with pytest.raises(DeviceError):
            executable.create_infer_request()
        x = random_input(1)
        self.check(self.load(core).infer({"x": x})["y"], x)

    def test_closing_with_work_in_flight(self, core: Core) -> None:
        """Closing while requests run neither hangs nor crashes."""
        executable = self.load(core, num_requests=4)
        for number in range(4):
            executable.start_async(number, {"x": random_input(number)})
        requests = executable.requests
        executable.close()
        for request in requests:
            assert not request.is_busy
