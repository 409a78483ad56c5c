"""time_limit: a bound on awaits, without the task that ``asyncio.wait_for`` makes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Bound the awaits of the body, which runs in a task.

    ``asyncio.timeout`` does this from Python 3.11 on. Up to 3.11 ``asyncio.wait_for`` makes a task
    for each await, which came to three further turns of the event loop for a request.

    Args:
        seconds: how long they may take together; awaits that need not wait may end later.

    Raises:
        TimeoutError: they took longer.
    """
    task = asyncio.current_task()
    assert task is not None, "it is awaited for in a task"
    late = False
    before = task.cancelling() if hasattr(task, "cancelling") else 0  # Python 3.11 counts

    def give_up() -> None:
        nonlocal late
        late = True
        task.cancel()

    timer = asyncio.get_running_loop().call_later(max(seconds, 0), give_up)
    try:
        yield
    except asyncio.CancelledError:
        if not late:
            raise
        if hasattr(task, "cancelling") and task.cancelling() > before + 1:
            raise  # somebody else cancelled it, too
        raise TimeoutError from None
    finally:
        timer.cancel()
        if late and hasattr(task, "uncancel"):
            task.uncancel()
