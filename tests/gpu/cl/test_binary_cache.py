"""The cache of program binaries: a second process compiles nothing; damage is never fatal."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from polydevice.errors import KernelBuildError
from polydevice.files import cache_folder, file_cache
from polydevice.files.file_cache import CacheCounters
from polydevice_gpu import cl
from polydevice_gpu.cl.programs import binary_cache
from polydevice_gpu.cl.programs.binary_cache import BinaryCache, program_key

SOURCE = "__kernel void scale(__global int* x) { x[get_global_id(0)] *= FACTOR; }"
OPTIONS = ("-DFACTOR=7",)


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "kernels"


def run(device: cl.Device, folder: Path | None) -> tuple[list[int], CacheCounters, bool]:
    """Build with a fresh builder and run; returns (numbers, counters, whether from the cache)."""
    builder = cl.ProgramBuilder(device, folder)
    program = builder.build("scale", SOURCE, OPTIONS)
    buffer = device.memory.allocate(64, "x")
    launches = cl.LaunchList(device)
    launches.add(program.kernel("scale"), (16,), None, [buffer])
    numbers = np.arange(16, dtype=np.int32)
    with device.queue() as queue:
        queue.upload(buffer, numbers)
        launches.enqueue(queue)
        queue.download(buffer, numbers)
    assert builder.cache is not None
    return numbers.tolist(), builder.cache.counters, program.from_cache


RIGHT = [7 * i for i in range(16)]


def test_second_time_is_a_hit_and_gives_the_same(opencl, folder, monkeypatch) -> None:
    assert run(opencl, folder) == (RIGHT, CacheCounters(misses=1, stored=1), False)
    monkeypatch.setenv("POLYDEVICE_NO_COMPILE", "1")
    assert run(opencl, folder) == (RIGHT, CacheCounters(hits=1), True)


def test_second_process_compiles_nothing(opencl, folder) -> None:
    program = f"""if True:
        from polydevice_gpu import cl
        device = cl.open_device(cl.discover().devices[0])
        program = cl.ProgramBuilder(device, {str(folder)!r}).build("scale", {SOURCE!r}, {OPTIONS!r})
        print(program.from_cache)
    """
    answers = []
    for forbid in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "POLYDEVICE_NO_COMPILE": forbid},
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        answers.append(done.stdout.strip())
    assert answers == ["False", "True"]


def test_many_processes_start_cold_at_the_same_time(opencl, folder, tmp_path) -> None:
    program = f"""if True:
        from polydevice_gpu import cl
        device = cl.open_device(cl.discover().devices[0])
        builder = cl.ProgramBuilder(device, {str(folder)!r})
        for factor in range(2):
            builder.build("scale", {SOURCE!r}, (f"-DFACTOR={{factor}}",))
    """
    command = [sys.executable, "-c", program]
    # Processes that share PoCL 3.1's own cache crash now and then (1 in 12 turns of four).
    own = [{**os.environ, "POCL_CACHE_DIR": str(tmp_path / f"pocl{n}")} for n in range(3)]
    processes = [subprocess.Popen(command, env=env, stderr=subprocess.PIPE) for env in own]
    errors = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * 3, errors
    assert len(list(folder.iterdir())) == 2  # nothing but whole files
    assert run(opencl, folder)[0] == RIGHT


DAMAGES = {
    "empty": lambda content: b"",
    "header cut": lambda content: content[:30],
    "payload cut": lambda content: content[:-1],
    "payload gone": lambda content: content[: file_cache.HEADER_BYTES],
    "longer": lambda content: content + b"\0",
    "flipped bit": lambda content: content[:-5] + bytes([content[-5] ^ 1]) + content[-4:],
    "other magic": lambda content: b"P" + content[1:],
    "other key": lambda content: content[:25] + b"\0\0\0\0" + content[29:],
    "foreign": lambda content: b"#!/bin/sh\n" * 100,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_file_is_set_aside_and_built_again(opencl, folder, damage) -> None:
    run(opencl, folder)
    (path,) = folder.glob("*.cl_cache")
    path.write_bytes(damage(path.read_bytes()))
    assert run(opencl, folder) == (RIGHT, CacheCounters(misses=1, bad=1, stored=1), False)
    assert run(opencl, folder)[1:] == (CacheCounters(hits=1), True)


def test_binary_that_the_driver_refuses_is_built_again(opencl, folder) -> None:
    """Right by our checksum, but no program: what a driver of the same version may leave."""
    cache = BinaryCache(folder)
    options = cl.ProgramBuilder(opencl).completed(OPTIONS[:1])
    key = program_key(SOURCE, options, opencl.facts)
    cache.store(key, b"not a program" * 10)
    numbers, counters, from_cache = run(opencl, folder)
    assert numbers == RIGHT
    assert not from_cache
    assert (counters.hits, counters.bad, counters.stored) == (1, 1, 1)
    assert run(opencl, folder)[2]


@pytest.mark.parametrize(
    "change",
    [
        {"source": SOURCE + " "},
        {"options": "-DFACTOR=8"},
        {"driver_version": "9"},
        {"platform_version": "9"},
        {"name": "another"},
        {"version": "OpenCL 9.9"},
    ],
)
def test_key_depends_on_everything(opencl, change) -> None:
    from dataclasses import replace

    facts = {k: v for k, v in change.items() if k not in {"source", "options"}}
    changed = program_key(
        change.get("source", SOURCE), change.get("options", ""), replace(opencl.facts, **facts)
    )
    assert changed != program_key(SOURCE, "", opencl.facts)


def test_key_depends_on_our_version(opencl, monkeypatch) -> None:
    before = program_key(SOURCE, "", opencl.facts)
    monkeypatch.setattr(binary_cache, "__version__", "99")
    assert program_key(SOURCE, "", opencl.facts) != before


def test_key_does_not_run_parts_together(opencl) -> None:
    assert program_key("ab", "c", opencl.facts) != program_key("a", "bc", opencl.facts)


def test_least_recently_used_goes_first(tmp_path) -> None:
    cache = BinaryCache(tmp_path / "c", limit_bytes=3500)
    keys = [bytes([n]) * 32 for n in range(4)]
    for age, key in enumerate(keys[:3]):
        cache.store(key, bytes(1000))
        os.utime(cache._path(key), (age, age))
    assert cache.load(keys[0])  # now used
    cache.store(keys[3], bytes(1000))
    assert [cache.load(key) is not None for key in keys] == [True, False, True, True]
    assert cache.counters.evicted == 1


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.ENOENT])
def test_folder_that_cannot_be_written_costs_one_warning(opencl, folder, monkeypatch, code) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(cache_folder, "write_atomically", refuse)
    builder = cl.ProgramBuilder(opencl, folder)
    with pytest.warns(RuntimeWarning, match=f"not kept in .*{os.strerror(code)}"):
        builder.build("a", SOURCE, ("-DFACTOR=1",))
    builder.build("b", SOURCE, ("-DFACTOR=2",))  # a second warning would be an error here


def test_write_that_fails_leaves_nothing_behind(tmp_path, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(cache_folder.os, "fsync", full)
    with pytest.raises(OSError, match="full"):
        cache_folder.write_atomically(tmp_path / "x", b"content")
    assert not list(tmp_path.iterdir())


def test_folder_that_vanishes_is_a_miss(opencl, folder) -> None:
    builder = cl.ProgramBuilder(opencl, folder)
    folder.rmdir()
    with pytest.warns(RuntimeWarning, match="not kept"):
        assert not builder.build("scale", SOURCE, OPTIONS).from_cache


@pytest.mark.skipif(os.name != "posix", reason="modes and links are a matter of POSIX")
@pytest.mark.parametrize("kind", ["writable for others", "link", "file"])
def test_folder_that_cannot_be_trusted_is_refused(tmp_path, kind) -> None:
    folder = tmp_path / "c"
    if kind == "file":
        folder.write_text("")
    elif kind == "link":
        (tmp_path / "real").mkdir()
        folder.symlink_to(tmp_path / "real")
    else:
        folder.mkdir()
        folder.chmod(0o777)
    with pytest.warns(RuntimeWarning, match="not kept in"):
        cache = BinaryCache(folder)
    cache.store(bytes(32), b"x")
    assert cache.load(bytes(32)) is None
    assert kind == "file" or not list(folder.iterdir())


def test_folder_is_private(folder) -> None:
    BinaryCache(folder)
    assert folder.stat().st_mode & 0o77 == 0


def test_threads_that_store_and_load_see_whole_files_only(tmp_path) -> None:
    cache = BinaryCache(tmp_path / "c")
    key, wrong = bytes(32), []

    def work(number: int) -> None:
        for _ in range(50):
            cache.store(key, bytes([number]) * 5000)
            content = cache.load(key)
            if content is None or len(set(content)) != 1 or len(content) != 5000:
                wrong.append(content)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong
    assert cache.counters.bad == 0


def test_failed_build_is_not_kept(opencl, folder) -> None:
    builder = cl.ProgramBuilder(opencl, folder)
    with pytest.raises(KernelBuildError):
        builder.build("broken", "__kernel void f() { nonsense }")
    assert not list(folder.iterdir())


def test_only_what_is_kept_is_loaded_ahead(opencl, tmp_path) -> None:
    source = cl.ProgramSource("scale", SOURCE, OPTIONS)
    with ThreadPoolExecutor(1) as pool:
        builder = cl.ProgramBuilder(opencl, tmp_path)
        assert builder.load_ahead(source, pool) is None
        builder.build("scale", SOURCE, OPTIONS)
        other = cl.ProgramBuilder(opencl, tmp_path)
        loading = other.load_ahead(source, pool)
        assert loading is not None
        assert loading.result().from_cache
        assert other.build("scale", SOURCE, OPTIONS) is loading.result(), "who builds it finds it"
