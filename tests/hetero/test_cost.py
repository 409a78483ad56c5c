"""Where HETERO places what is too large for one device, and what measuring says is slow there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from polydevice import Core
from polydevice.errors import OptionValueError, UnsupportedNetworkError
from polydevice_hetero import cost
from tests.auto.shaky import TROUBLES, Trouble
from tests.cpu.models import build

SIDE = 24
BYTES = SIDE * SIDE * 4


def chain(layers: int) -> tuple[bytes, list[np.ndarray]]:
    """x w₀ w₁ …, each with |…| behind it."""
    rng = np.random.default_rng(4)
    weights = [rng.standard_normal((SIDE, SIDE)).astype("f4") / 5 for _ in range(layers)]
    nodes, value = [], "x"
    for n in range(layers):
        last = "y" if n == layers - 1 else f"a{n}"
        nodes += [("MatMul", [value, f"w{n}"], [f"m{n}"], {}), ("Abs", [f"m{n}"], [last], {})]
        value = last
    named = {f"w{n}": weight for n, weight in enumerate(weights)}
    return build(nodes, {"x": (2, SIDE)}, ("y",), named), weights


def right(x: np.ndarray, weights: list[np.ndarray]) -> np.ndarray:
    for weight in weights:
        x = np.abs(x @ weight)
    return x


@pytest.fixture
def core() -> Iterator[Core]:
    TROUBLES.update(SHAKY=Trouble(), SHAKY2=Trouble())
    with Core() as made:
        made.register_plugin("tests.auto.shaky", "SHAKY")
        made.register_plugin("tests.auto.shaky", "SHAKY2")
        yield made
    TROUBLES.clear()


def places(executable) -> dict[str, set[str]]:
    """Return member → types of the operations that it computes."""
    found: dict[str, set[str]] = {}
    for row in executable.placement():
        if row.subgraph is not None:
            found.setdefault(row.device, set()).add(row.node)
    return found


def test_weights_that_one_device_does_not_hold_go_over_several(core, rng) -> None:
    model, weights = chain(6)
    memory = f"CPU:{BYTES * 2 + 100},SHAKY:{BYTES * 3}"
    executable = core.load_network(
        core.read_network(model), "HETERO:CPU,SHAKY,SHAKY2", {"HETERO_MEMORY": memory}
    )
    assert [part.device for part in executable.subgraphs] == ["CPU", "SHAKY", "SHAKY2"]
    assert {name: len(nodes) for name, nodes in places(executable).items()} == {
        "CPU": 4, "SHAKY": 6, "SHAKY2": 2,
    }  # fmt: skip
    (row,) = [row for row in executable.placement() if row.node == "m2"]
    assert f"not on CPU: its parts hold {BYTES * 2} of {BYTES * 2 + 100} bytes" in row.reason
    queue = executable.infer_queue(ordered=True)  # requests follow each other through the devices
    got: list[np.ndarray] = []
    queue.set_callback(lambda request, _: got.append(request.get_blob("y").array.copy()))
    xs = [rng.standard_normal((2, SIDE)).astype("f4") for _ in range(20)]
    for x in xs:
        queue.start_async(x)
    queue.wait_all()
    for x, y in zip(xs, got, strict=True):
        np.testing.assert_allclose(y, right(x, weights), rtol=1e-3, atol=1e-4)


def test_three_quarters_of_the_memory_that_devices_have_are_for_weights(core) -> None:
    for trouble in TROUBLES.values():
        trouble.memory = 4 * BYTES
    executable = core.load_network(core.read_network(chain(6)[0]), "HETERO:SHAKY,SHAKY2")
    assert {name: len(nodes) for name, nodes in places(executable).items()} == {
        "SHAKY": 6, "SHAKY2": 6,
    }  # fmt: skip


def test_room_that_is_not_there(core) -> None:
    network = core.read_network(chain(6)[0])
    for memory, error, words in (
        ("CPU:100,SHAKY:100", UnsupportedNetworkError, "there is no room for .*m0"),
        ("CPU:9,GPU:9", OptionValueError, "names 'GPU', which is no member"),
        ("CPU", OptionValueError, "which is no member"),
        ("CPU:much", OptionValueError, "write members with bytes"),
        ("CPU:" + "9" * 5000, OptionValueError, "write members with bytes"),
        ("CPU:5,CPU:6", OptionValueError, "names 'CPU' twice"),
    ):
        with pytest.raises(error, match=words):
            core.load_network(network, "HETERO:CPU,SHAKY", {"HETERO_MEMORY": memory})


@pytest.mark.parametrize(
    ("slow", "devices", "wanted"),
    [
        ("SHAKY", "HETERO:SHAKY,CPU", "CPU"),
        pytest.param("SHAKY", "HETERO:SHAKY,SHAKY2", "SHAKY2", marks=pytest.mark.full),
        pytest.param(  # the default is the quickest
            *("SHAKY2", "HETERO:SHAKY,SHAKY2", "SHAKY"), marks=pytest.mark.full
        ),
    ],
)
def test_what_measuring_says_is_slow_moves(core, rng, slow, devices, wanted) -> None:
    model, weights = chain(3)
    x = rng.standard_normal((2, SIDE)).astype("f4")
    TROUBLES[slow].seconds = 0.1
    default = core.load_network(core.read_network(model), devices)
    assert set(places(default)) == {"SHAKY"}
    executable = core.load_network(core.read_network(model), devices, {"HETERO_AFFINITY": "COST"})
    assert set(places(executable)) == {wanted}
    np.testing.assert_allclose(executable.infer(x)["y"], right(x, weights), rtol=1e-3, atol=1e-4)
    (row,) = [row for row in executable.placement() if row.node == "m0"]
    assert "part 0: " in row.reason
    assert " ms on SHAKY" in row.reason
    assert f"{2 * 2 * SIDE * 4} bytes in and out" in row.reason
    told = {row.node for row in executable.placement() if " ms as by FIRST" in row.reason}
    assert told == {row.node for row in executable.placement() if row.subgraph is not None}


class Warming(Trouble):
    """Slow for its first inferences, as a device whose clock is low, or while others keep it."""

    @property
    def seconds(self) -> float:
        return 0.05 if len(self.runs) < 5 else 0.0

    @seconds.setter
    def seconds(self, value: float) -> None:
        pass


def test_what_was_slow_for_a_while_stays(core, monkeypatch) -> None:
    monkeypatch.setattr(cost, "RUNS", 3)  # and one before: of a part, and by turns
    monkeypatch.setattr(cost, "SECONDS", 60)
    TROUBLES["SHAKY"], TROUBLES["SHAKY2"].seconds = Warming(), 0.02
    executable = core.load_network(
        core.read_network(chain(2)[0]), "HETERO:SHAKY,SHAKY2", {"HETERO_AFFINITY": "COST"}
    )
    assert len(TROUBLES["SHAKY"].runs) == 8
    assert set(places(executable)) == {"SHAKY"}


def test_a_device_that_cannot_be_measured_leaves_the_default(core, rng) -> None:
    model, weights = chain(2)
    TROUBLES["SHAKY"].seconds = 0.1
    TROUBLES["SHAKY2"].refuses = True
    executable = core.load_network(
        core.read_network(model), "HETERO:SHAKY,SHAKY2", {"HETERO_AFFINITY": "COST"}
    )
    assert set(places(executable)) == {"SHAKY"}
    assert not any("whole network" in row.reason for row in executable.placement())
    x = rng.standard_normal((2, SIDE)).astype("f4")
    np.testing.assert_allclose(executable.infer(x)["y"], right(x, weights), rtol=1e-3, atol=1e-4)
    network = core.read_network(model)
    network.reshape({"x": [None, SIDE]})
    executable = core.load_network(network, "HETERO:SHAKY,CPU", {"HETERO_AFFINITY": "COST"})
    assert set(places(executable)) == {"SHAKY"}
    (row,) = [row for row in executable.placement() if row.node == "m0"]
    assert "COST measured nothing: sizes are not known" in row.reason


TWO_GPUS = """
import sys
import numpy as np
from polydevice import Core
from tests.hetero.test_cost import BYTES, chain, right
with Core() as core:
    if [d for d in core.available_devices if d.startswith("GPU")] != ["GPU.0", "GPU.1"]:
        sys.exit(77)
    model, weights = chain(6)
    rng = np.random.default_rng(0)
    xs = [rng.standard_normal((2, 24)).astype("f4") for _ in range(40)]
    memory = {"HETERO_MEMORY": f"GPU.0:{BYTES * 3},GPU.1:{BYTES * 3}"}
    cost = {"HETERO_AFFINITY": "COST"}
    for device, config in (
        ("HETERO:GPU.0,GPU.1", memory), ("HETERO:GPU.0,GPU.1", cost), ("MULTI:GPU.0,GPU.1", {})
    ):
        executable = core.load_network(core.read_network(model), device, config)
        if config is memory:
            assert [part.device for part in executable.subgraphs] == ["GPU.0", "GPU.1"]
        if config is cost:
            (reason,) = [row.reason for row in executable.placement() if row.node == "m0"]
            assert " ms on GPU.0" in reason, reason
            assert " ms on GPU.1" in reason, reason
        got = []
        queue = executable.infer_queue(4, ordered=True)
        queue.set_callback(lambda request, _: got.append(request.get_blob("y").array.copy()))
        for x in xs:
            queue.start_async(x)
        queue.wait_all()
        for x, y in zip(xs, got, strict=True):
            np.testing.assert_allclose(y, right(x, weights), rtol=1e-2, atol=1e-3)
    assert min(executable.get_metric("INFERENCES").values()) > 0
"""


@pytest.mark.full
def test_two_gpus() -> None:
    """Real ones, else two devices of PoCL's: as a pipeline, by what they cost, and side by side."""
    environment = {**os.environ, "POCL_DEVICES": "pthread pthread"}
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", TWO_GPUS],
        env=environment, cwd=root, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    if done.returncode == 77:
        pytest.skip("PoCL does not show two devices here")
    assert done.returncode == 0, done.stderr[-3000:]
