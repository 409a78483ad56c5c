"""The IR writer's files: whole or not at all, where they are wanted."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.errors import ModelFileError, UnsupportedOperationError
from polydevice.readers.ir import read_ir
from polydevice.writers.ir import write_ir

from .conftest import relu_network
from .round_trip import of_constants


def test_files_appear_whole_or_not_at_all(tmp_path):
    network = of_constants((np.zeros(4, np.float32), ElementType.f32))
    write_ir(network, tmp_path / "m.xml")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert set(before) == {"m.xml", "m.bin"}
    bad = of_constants((np.zeros(4, np.complex64), ElementType.c64))
    with pytest.raises(UnsupportedOperationError):
        write_ir(bad, tmp_path / "m.xml")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_unwritable_places(tmp_path):
    network = relu_network()
    with pytest.raises(ModelFileError, match="missing/m.xml' cannot be written: No such file"):
        write_ir(network, tmp_path / "missing" / "m.xml")
    with pytest.raises(ModelFileError, match="cannot both"):
        write_ir(network, tmp_path / "m.xml", tmp_path / "m.xml")
    (tmp_path / "m.bin").mkdir()
    with pytest.raises(ModelFileError, match="m.bin' cannot be written"):
        write_ir(network, tmp_path / "m.xml")
    assert [path.name for path in tmp_path.iterdir()] == ["m.bin"]


def test_what_is_no_file_keeps_its_place(tmp_path):
    """As /dev/null has to: a pipe here, which nobody else uses."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for paths in ((pipe,), (tmp_path / "m.xml", pipe)):
        with pytest.raises(ModelFileError, match="pipe' cannot be written: it is no regular file"):
            write_ir(relu_network(), *paths)
    assert pipe.is_fifo() and [path.name for path in tmp_path.iterdir()] == ["pipe"]


@pytest.mark.parametrize("old", [True, False])
def test_a_topology_that_cannot_take_its_place_leaves_the_old_pair(tmp_path, old):
    if old:
        write_ir(of_constants((np.arange(4.0), ElementType.f64)), tmp_path / "n.xml")
        (tmp_path / "n.bin").rename(tmp_path / "m.bin")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    (tmp_path / "m.xml").mkdir()
    with pytest.raises(ModelFileError, match="m.xml' cannot be written"):
        write_ir(of_constants((np.ones(9), ElementType.f64)), tmp_path / "m.xml")
    (tmp_path / "m.xml").rmdir()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_the_weights_may_go_elsewhere(tmp_path):
    network = of_constants((np.arange(4.0), ElementType.f64))
    (tmp_path / "b").mkdir()
    write_ir(network, tmp_path / "m.xml", tmp_path / "b" / "w.dat")
    assert not (tmp_path / "m.bin").exists()
    assert read_ir(tmp_path / "m.xml", tmp_path / "b" / "w.dat").node("c0").constant.sum() == 6


def test_a_network_can_replace_the_files_it_was_read_from(tmp_path):
    path = tmp_path / "m.xml"
    write_ir(of_constants((np.arange(1e5), ElementType.f64)), path)
    network = read_ir(path)
    write_ir(network, path)
    np.testing.assert_array_equal(read_ir(path).node("c0").constant, np.arange(1e5))


def test_writers_at_the_same_time_do_not_mix(tmp_path):
    path = tmp_path / "m.xml"
    networks = [of_constants((np.full(5000 + i, i, np.int32), ElementType.i32)) for i in range(8)]
    threads = [threading.Thread(target=write_ir, args=(n, tmp_path / "m.xml")) for n in networks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.bin", "m.xml"]
    assert path.read_bytes().endswith(b"</net>\n")
