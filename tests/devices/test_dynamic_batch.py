"""DYN_BATCH_ENABLED on every device that has it: the first items of a batch, and no others."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice import Core
from polydevice.errors import RequestError, UnsupportedNetworkError
from tests.cpu.models import answer, build, residual

pytestmark = pytest.mark.usefixtures("compiled_sparingly")

BATCH = 5


@pytest.fixture
def core():
    with Core() as made:
        yield made


@pytest.fixture
def executable(core, device):
    network = core.read_network(residual(batch=BATCH))
    return core.load_network(network, device, {"DYN_BATCH_ENABLED": "YES"})


def test_first_items(executable, rng) -> None:
    names = list(executable.outputs)
    request, other = executable.create_infer_request(), executable.create_infer_request()
    other.set_batch(2)
    for size in (BATCH, 2, 1, 4, 3, BATCH):
        x = rng.random((BATCH, 3, 14, 14), np.float32)
        request.set_batch(size)
        for name in names:
            request.get_blob(name).array[...] = -7
        x[size:] = np.nan  # is not read
        results = request.infer({"x": x})
        right = answer(residual(batch=size), {"x": x[:size]})
        for name, expected in zip(names, right, strict=True):
            assert results[name].shape == (BATCH, *expected.shape[1:])
            np.testing.assert_allclose(results[name][:size], expected, rtol=1e-4, atol=1e-5)
            assert np.all(results[name][size:] == -7)
        found = other.infer({"x": x[:1].repeat(BATCH, 0)})
        np.testing.assert_allclose(found[names[0]][1], right[0][0], rtol=1e-4, atol=1e-5)


def test_memory_of_the_users(executable, rng) -> None:
    request = executable.create_infer_request()
    outputs = {n: np.full(p.sizes, -7, np.float32) for n, p in executable.outputs.items()}
    for name, array in outputs.items():
        request.set_blob(name, array)
    request.set_batch(3)
    for _ in range(2):
        x = rng.random((BATCH, 3, 14, 14), np.float32)
        request.start_async({"x": x})
        request.wait()
        right = answer(residual(batch=3), {"x": x[:3]})
        for array, expected in zip(outputs.values(), right, strict=True):
            np.testing.assert_allclose(array[:3], expected, rtol=1e-4, atol=1e-5)
            assert np.all(array[3:] == -7)


@pytest.mark.parametrize("size", [0, -1, BATCH + 1])
def test_batches_that_do_not_exist(executable, size) -> None:
    with pytest.raises(RequestError, match="legal: 1 to 5"):
        executable.create_infer_request().set_batch(size)


def test_what_is_refused(core, device) -> None:
    network = core.read_network(residual(batch=BATCH))
    with pytest.raises(RequestError, match="DYN_BATCH_ENABLED=YES"):
        core.load_network(network, device).create_infer_request().set_batch(1)
    sums = build([("ReduceSum", ["x"], ["y"], {"keepdims": 0})], {"x": [5, 3]}, ["y"], {})
    with pytest.raises(UnsupportedNetworkError, match="DYN_BATCH_ENABLED=YES is not possible"):
        core.load_network(core.read_network(sums), device, {"DYN_BATCH_ENABLED": "YES"})


def test_it_survives_exporting(executable, core, device, rng) -> None:
    imported = core.import_network(executable.export(), device)
    request = imported.create_infer_request()
    request.set_batch(1)
    x = rng.random((BATCH, 3, 14, 14), np.float32)
    got = request.infer({"x": x})
    right = answer(residual(batch=1), {"x": x[:1]})
    np.testing.assert_allclose(next(iter(got.values()))[:1], right[0], rtol=1e-4, atol=1e-5)
