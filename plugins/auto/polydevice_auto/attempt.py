"""Attempt: an inference, on one device and, where that fails or hangs, on another."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from polydevice.bounds import current_bounds, enter_bounds
from polydevice.dtype import Array
from polydevice.errors import (
    BlobError,
    DeviceLostError,
    InferCancelledError,
    InferTimeoutError,
    PolydeviceError,
    RequestBusyError,
)
from polydevice_auto.member import Member
from polydevice_auto.schedule import Waiting
from polydevice_auto.watch import WATCH, Watched

if TYPE_CHECKING:
    from polydevice_auto.part import Part
    from polydevice_auto.runner import SharedRunner

_OF_THE_REQUEST = (BlobError, InferCancelledError, InferTimeoutError, RequestBusyError)
"""What is no fault of the device."""

Computed: TypeAlias = "tuple[Part, dict[str, Array]]"
"""What computed, and name → output."""

_here = threading.local()


def holds_slot() -> bool:
    """Whether the calling thread runs inferences of a device (one's callback, say).

    It must not wait for a slot: it has one, perhaps the only one.
    """
    return getattr(_here, "holds_slot", False)


class Attempt(Waiting):
    """An inference of a request, until some device has computed it or none can."""

    def __init__(
        self, runner: SharedRunner, end: Callable[[BaseException | None], None], *, waits: bool
    ) -> None:
        """Prepare; see `go`.

        Args:
            runner: whose.
            end: called once, from any thread, when its outputs are ready, or with what went wrong.
            waits: for a free device; otherwise it computes beside what runs, in this thread.
        """
        self.runner = runner
        self.only = runner.pinned
        self.last = runner.last
        self.failed = {}
        self.bounds = current_bounds()
        self._end = end
        self._waits = waits

    def go(self) -> None:
        """Begin on a device, when one is free.

        Raises:
            DeviceError: no device is left.
            PolydeviceError: what the request failed with first, when it failed on all.
        """
        schedule = self.runner.executable.schedule
        if self._waits:
            schedule.ask(self)
            return
        member, slot = schedule.take(self)
        if member.is_watched and slot < member.slots:
            self.begin(member, slot)
        else:  # beyond the slots there are no threads
            Job(self, member, slot).run_here()

    def begin(self, member: Member, slot: int) -> None:
        """Run in one of the device's threads."""
        Job(self, member, slot).submit()

    def give_up(self, error: PolydeviceError) -> None:
        """End, since no device is left."""
        self._finish(error)

    def withdraw(self) -> bool:
        """Forget it while it waits; False where it runs."""
        if not self.runner.executable.schedule.withdraw(self):
            return False
        self._take_out_hanging()
        return True

    def ended(
        self,
        member: Member,
        result: Computed | None,
        error: BaseException | None,
    ) -> bool:
        """Keep what a device computed and end; False where another is to compute it."""
        runner = self.runner
        if result is not None:
            try:
                runner.keep_results(*result)
            except BaseException as raised:  # noqa: BLE001 - the request raises it
                error = raised
        runner.executable.ran(runner, member)
        goes_on = isinstance(error, PolydeviceError) and not isinstance(error, _OF_THE_REQUEST)
        if goes_on and self.only is None:
            assert isinstance(error, PolydeviceError)
            self.failed = {**self.failed, member: error}
            return False
        self._finish(error)
        return True

    def go_on(self) -> None:
        """Begin on another device; where there is none, end with what went wrong first."""
        before = enter_bounds(self.bounds)
        try:
            self.go()
        except PolydeviceError as error:
            self._finish(error)
        finally:
            enter_bounds(before)

    def _finish(self, error: BaseException | None) -> None:
        if self.failed:
            if error is None:
                self.runner.executable.schedule.take_out(self.failed)
            elif isinstance(error, _OF_THE_REQUEST):
                self._take_out_hanging()
        self.runner.attempt = None  # it holds the request
        self._end(error)

    def _take_out_hanging(self) -> None:
        """Where the request's time is over, take out the devices that hang, if there are others."""
        hanging = {member: error for member, error in self.failed.items() if member.left}
        schedule = self.runner.executable.schedule
        if hanging and schedule.has_others(hanging):
            schedule.take_out(hanging)


class Job(Watched):
    """An attempt on one device, in a thread that is left behind where the device hangs.

    Until the device has computed, it changes nothing that others see.
    """

    def __init__(self, attempt: Attempt, member: Member, slot: int) -> None:
        """Prepare to run in a slot that was taken."""
        self._attempt = attempt
        self._member = member
        self._slot = slot
        self._limit_s = 0.0

    def submit(self) -> None:
        """Run in a thread of the device."""
        self._watch()
        try:
            self._member.threads.submit(self._run, self._dropped)
        except InferCancelledError:
            self._dropped()
        except PolydeviceError as error:  # no thread can be started
            self._refused(error)

    def run_here(self) -> None:
        """Run in this thread, however long that takes."""
        streams = self._member.executable.streams
        following = self._compute(self._slot % streams)
        if following is not None:
            following.submit()

    def _watch(self) -> None:
        if self._member.is_watched:
            self._limit_s = self._member.limit_s
            WATCH.begin(self, self._limit_s)

    def _run(self, stream: int) -> None:
        """Run, and what the slot gets next as well."""
        _here.holds_slot = True
        following = self._compute(stream)
        while following is not None:
            following._watch()
            following = following._compute(stream)

    def _compute(self, stream: int) -> Job | None:
        """Compute; return what the thread is to run next, which has the same slot."""
        attempt, member = self._attempt, self._member
        result: Computed | None = None
        error: BaseException | None = None
        seconds = 0.0
        before = enter_bounds(attempt.bounds)
        try:
            attempt.bounds.check()
            start = time.perf_counter()
            result = attempt.runner.compute(member, stream % member.executable.streams)
            seconds = time.perf_counter() - start
        except BaseException as raised:  # noqa: BLE001 - the request raises it
            error = raised
        finally:
            enter_bounds(before)
        if self._limit_s and not WATCH.end(self):
            with attempt.runner.executable.schedule.changed:
                member.left -= 1
            return None  # others went on
        if result is not None:
            attempt.runner.executable.schedule.note(member, seconds)
        return self._ended(result, error)

    def _ended(self, result: Computed | None, error: BaseException | None) -> Job | None:
        """Go on; the slot is free when the callback has ended, whose thread it is."""
        attempt, member = self._attempt, self._member
        executable = attempt.runner.executable
        is_over = attempt.ended(member, result, error)
        following = executable.schedule.give_back(member, self._slot)
        executable.freed(member)
        if not is_over:
            attempt.go_on()
        return Job(following, member, self._slot) if isinstance(following, Attempt) else None

    def _dropped(self) -> None:
        """End without having run, since the network was closed."""
        self._refused(InferCancelledError("the network was closed"))

    def _refused(self, error: PolydeviceError) -> None:
        """End without having run, or run elsewhere."""
        if self._limit_s and not WATCH.end(self):
            return
        self._submit_following(self._ended(None, error))

    def leave_behind(self) -> None:
        """Let the device be, which hangs, and let the attempt go on without it."""
        attempt, member = self._attempt, self._member
        with attempt.runner.executable.schedule.changed:
            member.left += 1
        if attempt.only is None:
            attempt.runner.leave(member)
        words = f"{member.device} has not ended an inference within {self._limit_s:.3g} s"
        self._submit_following(self._ended(None, DeviceLostError(words)))

    @staticmethod
    def _submit_following(following: Job | None) -> None:
        if following is not None:
            following.submit()
