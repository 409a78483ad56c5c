"""Functions of machine code: lists of calls end where one fails, and pass on what they get."""

from __future__ import annotations

import ctypes
import mmap
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from polydevice.processor.machine_code import _CALLS, CALL, calls, for_good, function_of

FAR = 2**47


@pytest.fixture(autouse=True)
def _loops() -> None:
    if function_of(_CALLS) is None:
        pytest.skip("no machine code for this system")


@pytest.mark.parametrize("refused", [None, 0, 3, 4], ids=["all", "first", "fourth", "last"])
def test_calls_end_where_one_fails(refused) -> None:
    seen: list[tuple] = []
    number = ctypes.c_uint64

    @ctypes.CFUNCTYPE(ctypes.c_int, number, number, number, number)
    def function(*arguments: int) -> int:
        seen.append(arguments)
        return -51 if len(seen) - 1 == refused else 0

    address = ctypes.cast(function, ctypes.c_void_p).value
    rows = [(address, FAR + n, n, 2**33 + n, 2**64 - 1 - n) for n in range(5)]
    made = calls(np.array(rows, CALL))
    for _ in range(2):
        seen.clear()
        result = made()
        if refused is None:
            assert result == 0
        else:
            assert (5 - (result >> 32), ctypes.c_int32(result).value) == (refused, -51)
        assert seen == [row[1:] for row in rows][: None if refused is None else refused + 1]


def test_no_calls() -> None:
    assert calls(np.empty(0, CALL))() == 0


def test_code_of_several_pages() -> None:
    code = bytes.fromhex("f30f1efa") + b"\x90" * (3 * mmap.PAGESIZE) + bytes.fromhex("b82a000000c3")
    assert function_of(code)() == 42


def test_threads_that_want_new_code_at_once_get_one_function() -> None:
    """Calls know its address alone: one that was let go would end the process."""
    wait = threading.Barrier(8)
    for number in range(40):
        code = bytes.fromhex("f30f1efab8") + (number + 7_000_000).to_bytes(4, "little") + b"\xc3"
        found = []

        def work(code: bytes = code, found: list = found) -> None:
            wait.wait()
            found.append(function_of(code))

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({id(function) for function in found}) == 1
        assert found[0]() == number + 7_000_000  # mov eax, number; ret


def test_who_asks_at_once_gets_the_same_for_good():
    """Or code would be told where something lies that is let go of."""
    begin, made = threading.Barrier(4), []

    @for_good
    def room(size):
        begin.wait(10)  # all of them have found nothing
        made.append(size)
        return np.zeros(size)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(room, [3] * 4))
    assert len(made) == 4
    assert all(each is found[0] for each in found)
    assert room(3) is found[0]
