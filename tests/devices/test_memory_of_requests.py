"""What an inference reads, what it writes and what it returns never are the same memory.

Random networks of elementwise operations whose outputs are also inputs, constants and one value
twice; random cuts in HETERO; and users who hand back what they got. Right is NumPy.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pytest

from polydevice import Blob, Core
from polydevice.dtype import Array
from polydevice.errors import BlobError
from polydevice.infer_request import InferRequest
from tests.cpu.models import build

pytestmark = pytest.mark.usefixtures("compiled_sparingly")

SHAPE = (3, 5)
OPERATIONS: dict[str, Callable[..., Array]] = {
    "Relu": lambda x: np.maximum(x, 0),
    "Neg": np.negative,
    "Abs": np.abs,
    "Add": np.add,
    "Sub": np.subtract,
}


class RandomNetwork(NamedTuple):
    """A model, and what computes the same."""

    model: bytes
    inputs: list[str]
    outputs: list[str]
    answer: Callable[[Mapping[str, Array]], dict[str, Array]]


def random_network(rng: np.random.Generator, dynamic: bool) -> RandomNetwork:
    sizes: tuple[int | str, ...] = ("a", "b") if dynamic else SHAPE
    inputs = {f"x{i}": sizes for i in range(rng.integers(1, 4))}
    constant = rng.integers(-9, 9, (1, 5)).astype(np.float32)
    steps: list[tuple[str, list[str], list[str], dict[str, object]]] = []
    values = [*inputs]
    for number in range(rng.integers(2, 9)):
        kind = str(rng.choice([*OPERATIONS]))
        operands = [str(v) for v in rng.choice(values, 2 if kind in ("Add", "Sub") else 1)]
        steps.append((kind, operands, [f"v{number}"], {}))
        values.append(f"v{number}")
    outputs = []
    for number in range(rng.integers(2, 6)):  # Identity makes outputs of inputs, and two of one
        source = str(rng.choice([*values[-3:], *values, "constant"]))
        steps.append(("Identity", [source], [f"y{number}"], {}))
        outputs.append(f"y{number}")
    model = build(steps, inputs, outputs, {"constant": constant})

    def answer(feeds: Mapping[str, Array]) -> dict[str, Array]:
        known = {**feeds, "constant": constant}
        for kind, operands, (name,), _ in steps:
            arrays = [known[each] for each in operands]
            known[name] = arrays[0] if kind == "Identity" else OPERATIONS[kind](*arrays)
        return {name: known[name].copy() for name in outputs}

    return RandomNetwork(model, [*inputs], outputs, answer)


@pytest.fixture(scope="module")
def core() -> Iterator[Core]:
    with Core() as made:
        made.register_plugin("tests.hetero.second_cpu", "PICKY")
        yield made


def request_on(core: Core, made: RandomNetwork, device: str, rng) -> InferRequest:
    network = core.read_network(made.model)
    _, _, members = device.partition(":")
    for node in network.nodes() if members else ():
        if node.type not in ("Parameter", "Const", "Result"):
            node.rt_info["affinity"] = str(rng.choice(members.split(",")))
    return core.load_network(network, device).create_infer_request()


@pytest.fixture(autouse=True)
def _picky_takes_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.hetero.second_cpu.PickyPlugin.refused", ())


def step(made: RandomNetwork, request: InferRequest, last: dict[str, Array], rng) -> None:
    """One inference, on new arrays or on arrays that the request gave or was given before."""
    dynamic = not request.executable.inputs[made.inputs[0]].desc.is_static
    shape = (int(rng.integers(1, 5)), 5) if dynamic else SHAPE
    feeds: dict[str, Array] = {}
    for name in made.inputs:
        old = [a for a in last.values() if a.shape == shape]
        if old and rng.random() < 0.6:
            feeds[name] = old[rng.integers(len(old))]
        else:
            feeds[name] = rng.integers(-9, 9, shape).astype(np.float32)
    right = made.answer({name: array.copy() for name, array in feeds.items()})
    for name in rng.permutation(made.outputs):
        if rng.random() < 0.25 and right[name].shape == shape:
            pool = [a for a in (*feeds.values(), *last.values()) if a.shape == shape]
            request.set_blob(name, Blob(pool[rng.integers(len(pool))]))
    given = {n: request.get_blob(n).array for n in made.outputs if n in request._blobs}
    clash = any(np.shares_memory(a, b) for a, b in itertools.combinations(given.values(), 2))
    before = {name: array.copy() for name, array in feeds.items()}
    if clash:
        with pytest.raises(BlobError, match="shares memory with another output"):
            request.infer(feeds)
        for name in made.outputs:
            request.set_blob(name, np.empty(right[name].shape, np.float32))
    found = request.infer(feeds)
    for name in made.outputs:
        np.testing.assert_array_equal(found[name], right[name], err_msg=name)
    written = [*given.values(), *found.values(), *last.values()]
    for name, array in feeds.items():  # unless the user asked for it, nobody wrote there
        if not any(np.shares_memory(array, each) for each in written):
            np.testing.assert_array_equal(array, before[name], err_msg=name)
            assert not any(np.shares_memory(array, result) for result in found.values())
    for one, other in itertools.combinations(found.values(), 2):
        assert not np.shares_memory(one, other)
    for name, array in found.items():
        last[f"{name} {rng.integers(2)}"] = array


def need(core: Core, where: str) -> None:
    if "GPU" in where and not any(name.startswith("GPU") for name in core.available_devices):
        pytest.skip("needs an OpenCL device; `polydevice devices --why` says what is missing")


def use(core: Core, device: str, dynamic: bool, networks: int, rng) -> None:
    for _ in range(networks):
        made = random_network(rng, dynamic)
        request = request_on(core, made, device, rng)
        last: dict[str, Array] = {}
        for _ in range(6):
            step(made, request, last, rng)
        request.executable.close()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("where", ["CPU", "HETERO:CPU,PICKY"])
def test_random_use(core, where, dynamic, seed, rng) -> None:
    use(core, where, dynamic, 12, rng)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("where", ["GPU", "HETERO:GPU,CPU"])
def test_random_use_of_a_gpu(core, where, dynamic, rng) -> None:
    need(core, where)
    use(core, where, dynamic, 4, rng)


def test_a_region_is_read_anew_by_every_inference(core, device) -> None:
    model = build([("Relu", ["x"], ["y"], {})], {"x": (1, 1, 4, 4)}, ["y"], {})
    request = core.load_network(core.read_network(model), device).create_infer_request()
    image = np.ones((1, 1, 8, 8), np.float32)
    request.set_blob("x", Blob(image).roi(1, 1, 4, 4))
    for value in (1, 3, 2):
        image[:] = value
        assert (request.infer()["y"] == value).all()


@pytest.mark.parametrize("where", ["GPU", "HETERO:CPU,PICKY", "HETERO:GPU,CPU"])
def test_results_of_unknown_size_between_parts(core, where, rng) -> None:
    """Also where their size turns out to be known, since there is one element only."""
    nodes = [
        ("Neg", ["x"], ["n"], {}),
        ("Unique", ["n"], ["u", "i", "j", "k"], {"axis": 1}),
        ("Abs", ["u"], ["y"], {}),
        ("NonZero", ["n"], ["places"], {}),
        ("Cast", ["places"], ["z"], {"to": 1}),
        ("Cast", ["j"], ["w"], {"to": 1}),
    ]
    model = build(nodes, {"x": ("a", "b", "c", "d")}, ["y", "z", "w"], {})
    need(core, where)
    network = core.read_network(model)
    members = where.partition(":")[2].split(",")
    for _ in range(3):
        for node in network.nodes() if ":" in where else ():
            if node.type not in ("Parameter", "Const", "Result"):
                node.rt_info["affinity"] = str(rng.choice(members))
        request = core.load_network(network, where).create_infer_request()
        for shape in [(4, 4, 7, 1), (1, 1, 1, 1), (2, 1, 1, 3), (4, 4, 7, 1), (3, 2, 0, 1)]:
            x = rng.integers(-2, 3, shape).astype(np.float32)
            found = request.infer({"x": x})
            unique, inverse = np.unique(-x, axis=1, return_inverse=True)
            np.testing.assert_array_equal(found["y"], np.abs(unique))
            np.testing.assert_array_equal(found["z"], np.nonzero(x))
            np.testing.assert_array_equal(found["w"], np.ravel(inverse))


@pytest.mark.parametrize("where", ["CPU", "GPU", "HETERO:CPU,PICKY", "HETERO:GPU,CPU"])
def test_constant_outputs_belong_to_the_caller(core, where) -> None:
    """A constant, spread without memory of its own, that the caller then writes into."""
    nodes = [("Relu", ["x"], ["z"], {}), ("Expand", ["one", "shape"], ["y"], {})]
    constants = {"one": np.ones(1, np.float32), "shape": np.array([2, 3])}
    model = build(nodes, {"x": (4,)}, ["z", "y"], constants)
    need(core, where)
    executable = core.load_network(core.read_network(model), where)
    for _ in range(2):
        found = executable.create_infer_request().infer({"x": np.ones(4, np.float32)})
        np.testing.assert_array_equal(found["y"], np.ones((2, 3)))
        found["y"][:] = 7
