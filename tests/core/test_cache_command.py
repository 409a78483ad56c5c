"""``polydevice cache info | verify | clear``."""

from __future__ import annotations

import hashlib

import pytest

from polydevice.cli import main
from polydevice.files.file_cache import MAGIC, FileCache, files_of, payload_of

KEYS = [bytes([number]) * 32 for number in range(4)]


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "cache"
    kernels = FileCache(made, ".cl_cache", "kernels")
    for number, key in enumerate(KEYS):
        kernels.store(key, b"x" * (100 * number + 1))
    FileCache(made, ".blob", "networks").store(KEYS[0], b"network")
    (made / "notes.txt").write_text("mine")
    (made / "mine.blob").write_text("mine")
    return made


def run(capsys, *arguments: object) -> tuple[int, list[list[str]]]:
    status = main(["cache", *map(str, arguments)])
    return status, [line.split("\t") for line in capsys.readouterr().out.splitlines()]


def test_info(folder, capsys) -> None:
    sizes = [path.stat().st_size for path in folder.glob("*.cl_cache")]
    assert run(capsys, "info", folder) == (
        0,
        [
            ["compiled kernels", "4", str(sum(sizes))],
            ["networks", "1", str((folder / f"{KEYS[0].hex()}.blob").stat().st_size)],
            ["bad", "0", "0"],
        ],
    )


def test_verify_names_every_bad_file(folder, capsys) -> None:
    assert run(capsys, "verify", folder) == (0, [])
    damaged = folder / f"{KEYS[1].hex()}.cl_cache"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    renamed = folder / f"{KEYS[2].hex()}.cl_cache"
    renamed = renamed.rename(folder / f"{'ab' * 32}.cl_cache")
    status, rows = run(capsys, "verify", folder)
    assert status == 1
    assert {row[0] for row in rows} == {str(damaged), str(renamed)}


def test_clear_deletes_the_cache_and_nothing_else(folder, capsys) -> None:
    (folder / f"{KEYS[3].hex()}.cl_cache").rename(folder / f"{KEYS[3].hex()}.bad")
    status, rows = run(capsys, "clear", folder)
    assert status == 0 and [row[1] for row in rows] == ["3", "1", "1"]
    assert files_of(folder) == []
    assert sorted(path.name for path in folder.iterdir()) == ["mine.blob", "notes.txt"]


def test_folder_that_is_not_there(tmp_path, capsys) -> None:
    assert main(["cache", "info", str(tmp_path / "no")]) == 1
    assert "is not a folder" in capsys.readouterr().err


def test_least_recently_used_go_first(tmp_path) -> None:
    import os

    cache = FileCache(tmp_path, ".cl_cache", "kernels", limit_bytes=3000)
    for number, key in enumerate(KEYS[:3]):
        cache.store(key, b"x" * 800)
        os.utime(tmp_path / f"{key.hex()}.cl_cache", ns=(number, number))
    assert cache.load(KEYS[0]) is not None  # used now
    cache.store(KEYS[3], b"x" * 800)
    assert [cache.load(key) is not None for key in KEYS] == [True, False, True, True]
    assert cache.counters.evicted == 1


def test_a_file_without_a_payload_is_no_file_of_ours() -> None:
    key = hashlib.sha256(b"key").digest()
    header = MAGIC + key
    assert payload_of(header + hashlib.sha256(b"x").digest() + b"x", key) == b"x"
    assert payload_of(header + hashlib.sha256(b"").digest(), key) is None
