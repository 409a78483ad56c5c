"""HETERO and device memory: what stays on a device is not copied, and nothing else changes."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from polydevice import Copies, ElementType, RemoteBlob, Shape, TensorDesc
from polydevice.errors import BlobError
from polydevice.network import Network
from polydevice.node import Node, constant
from polydevice.ops.arithmetic import Multiply
from polydevice.ops.convert import Convert
from polydevice.ops.io import Parameter, Result
from tests.cpu.models import answer, build
from tests.gpu.strict import refuse_empty_transfers
from tests.hetero.networks import WEIGHTS, by_type, check, held, normal, place, there_and_back

pytestmark = pytest.mark.usefixtures("compiled_sparingly")

F32 = ElementType.f32


def test_what_stays_on_the_device_is_not_copied(core) -> None:
    model = there_and_back(2, 3, 5)
    network = place(core.read_network(model), by_type(Tanh="CPU"))
    executable = core.load_network(network, "HETERO:GPU,CPU")
    assert [part.device for part in executable.subgraphs] == ["GPU", "CPU", "GPU"]
    assert executable.parts[0].get_context() is executable.parts[2].get_context()
    request = executable.create_infer_request()
    kept = []
    for _ in range(3):
        check(request, model, normal(2, 3, 5))
        # x up, a down for tanh, b up, y down; through the host a would go up once more.
        assert request.copies == Copies(uploads=2, downloads=2)
        kept.append(request.runner.parts[0].get_blob("a/out"))
    assert isinstance(kept[0], RemoteBlob)
    assert kept[0] is kept[1] is kept[2], "allocated once"
    rows = {row.type: row.bytes_in for row in executable.placement()}
    assert rows["Tanh"] == 2 * 3 * 5 * 4
    assert rows["Add"] == 2 * 3 * 5 * 4, "of a and b only b crosses"


def test_dynamic_shapes(core, monkeypatch) -> None:
    refused = refuse_empty_transfers(monkeypatch)
    model = there_and_back("n", 3, "m", outputs=("y", "c", "a"))
    network = place(core.read_network(model), by_type(Tanh="CPU"))
    request = core.load_network(network, "HETERO:GPU,CPU").create_infer_request()
    blobs = []
    for shape in ((2, 3, 5), (4, 3, 1), (4, 3, 1), (2, 3, 5), (0, 3, 2), (1, 3, 7)):
        check(request, model, normal(*shape))
        assert request.copies.with_host <= 6
        blobs.append(request.runner.parts[0].get_blob("a/out"))
    assert blobs[1] is blobs[2], "allocated when the shape changes only"
    assert blobs[0].shape == (2, 3, 5)
    assert not refused, "transfers of no bytes"


def test_neighbouring_parts_on_one_device(core) -> None:
    """ "GPU" and "GPU.0" are two members, but one device in one context."""
    model = there_and_back(3, 4, outputs=("y", "b"))
    network = place(core.read_network(model), by_type(Tanh="GPU.0", Add="GPU.0"))
    executable = core.load_network(network, "HETERO:GPU.0,GPU")
    assert len(executable.parts) == 3
    request = executable.create_infer_request()
    for _ in range(2):
        check(request, model, normal(3, 4))
        assert request.copies == Copies(uploads=1, downloads=2)
    assert not any(row.bytes_in for row in executable.placement())


def test_a_value_of_the_host_is_uploaded_once(core) -> None:
    """x, and t = tanh x on CPU, are read by the GPU before and after another part on CPU."""
    nodes = [
        ("Tanh", ["x"], ["t"], {}),
        ("Mul", ["x", "t"], ["a"], {}),
        ("Sigmoid", ["a"], ["b"], {}),
        ("Add", ["b", "t"], ["c"], {}),
        ("Mul", ["c", "x"], ["y"], {}),
    ]
    model = build(nodes, {"x": ("n", 5)}, ["y"], {})
    network = place(core.read_network(model), by_type(Tanh="CPU", Sigmoid="CPU"))
    executable = core.load_network(network, "HETERO:GPU,CPU")
    assert [part.device for part in executable.subgraphs] == ["CPU", "GPU", "CPU", "GPU"]
    request = executable.create_infer_request()
    for rows in (3, 3, 2):
        check(request, model, normal(rows, 5))
        assert request.copies == Copies(uploads=3, downloads=2)  # x, t, b; a, y


def test_a_value_read_on_the_host_and_given_out_is_downloaded_once(core) -> None:
    nodes = [
        ("Mul", ["x", "three"], ["a"], {}),
        ("Tanh", ["a"], ["b"], {}),
        ("Mul", ["b", "half"], ["c"], {}),
        ("Sigmoid", ["c"], ["d"], {}),
        ("Add", ["d", "a"], ["e"], {}),
        ("Softplus", ["e"], ["f"], {}),
        ("Add", ["f", "a"], ["y"], {}),
    ]
    model = build(nodes, {"x": (4, 5)}, ["y", "a"], WEIGHTS)
    network = place(
        core.read_network(model),
        lambda node: "GPU" if node.name in ("a", "c", "y") or node.type == "Multiply" else "CPU",
    )
    executable = core.load_network(network, "HETERO:GPU,CPU")
    assert len(executable.parts) == 5
    request = executable.create_infer_request()
    into = np.zeros((4, 5), "f4")
    for _ in range(2):
        check(request, model, normal(4, 5))
        # Up: x, b, f. Down: a (read by two parts on CPU, and an output), c, y.
        assert request.copies == Copies(uploads=3, downloads=3)
        request.set_blob("a", into)
    x = normal(4, 5)
    request.infer({"x": x})
    np.testing.assert_allclose(into, x * 3, rtol=1e-6)


def bfloat16() -> Network:
    """y = 2 · bf16(x), the rounding on one part and the product on the next."""
    x = Node("x", Parameter(F32, Shape([4])))
    rounded = Node("rounded", Convert(ElementType.bf16), [x.output])
    two = constant("two", np.array(2, ElementType.bf16.dtype), ElementType.bf16)
    twice = Node("twice", Multiply(), [rounded.output, two.output])
    y = Node("back", Convert(F32), [twice.output])
    return Network("bfloat16", [x], [Node("y", Result(output_name="y"), [y.output])])


def test_types_that_the_device_holds_as_others_go_through_the_host(core) -> None:
    network = place(bfloat16(), lambda node: "GPU.0" if node.name == "rounded" else "GPU")
    executable = core.load_network(network, "HETERO:GPU.0,GPU")
    request = executable.create_infer_request()
    x = np.array([1 + 2**-9, -3, 0.5, 1 + 2**-7], "f4")
    for _ in range(2):
        np.testing.assert_array_equal(request.infer({"x": x})["y"], [2, -6, 1, 2 + 2**-6])
        assert request.copies == Copies(uploads=2, downloads=2)
    (crossing,) = (row.bytes_in for row in executable.placement() if row.node == "twice")
    assert crossing == 8


def test_half_precision_inside(core) -> None:
    """INFERENCE_PRECISION_HINT changes what parts compute in, not what passes between them."""
    model = there_and_back(2, 8)
    network = place(core.read_network(model), by_type(Tanh="CPU"))
    config = {"INFERENCE_PRECISION_HINT": "f16"}
    request = core.load_network(network, "HETERO:GPU,CPU", config).create_infer_request()
    x = normal(2, 8)
    np.testing.assert_allclose(request.infer({"x": x})["y"], answer(model, {"x": x})[0], atol=5e-3)
    assert request.copies == Copies(uploads=2, downloads=2)


def test_sizes_known_only_when_computed(core) -> None:
    """NonZero finds how many; that value is of the host, and the others still are not copied."""
    nodes = [
        ("Mul", ["x", "three"], ["a"], {}),
        ("Tanh", ["a"], ["b"], {}),
        ("Relu", ["b"], ["c"], {}),
        ("NonZero", ["c"], ["places"], {}),
        ("Transpose", ["places"], ["y"], {}),
        ("Add", ["c", "a"], ["z"], {}),
    ]
    model = build(nodes, {"x": (3, 4)}, ["y", "z"], WEIGHTS)
    network = core.read_network(model)
    refused = core.unsupported_nodes(network, "GPU")
    place(network, lambda n: "CPU" if n.name in refused or n.type == "Tanh" else "GPU")
    request = core.load_network(network, "HETERO:GPU,CPU").create_infer_request()
    for _ in range(3):
        check(request, model, normal(3, 4))
    assert request.runner.parts[0].get_blob("a/out").context is core.get_default_context("GPU")


def random_network(seed: int) -> bytes:
    """A random graph of pointwise operations on two inputs."""
    random = np.random.default_rng(seed)
    names = ["x0", "x1"]
    nodes = []
    for number in range(14):
        one, two = random.choice(names[-6:], 2)
        kind = random.choice(["Tanh", "Add", "Mul", "Sigmoid", "Abs"])
        given = [one, two] if kind in ("Add", "Mul") else [one]
        nodes.append((str(kind), [str(name) for name in given], [f"v{number}"], {}))
        names.append(f"v{number}")
    outputs = sorted({"v13", *(str(name) for name in random.choice(names[2:], 3))})
    return build(nodes, {"x0": ("n", 6), "x1": ("n", 6)}, outputs, {})


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs_on_random_parts(core, seed) -> None:
    model = random_network(seed)
    random = np.random.default_rng(seed)
    devices = ["GPU", "CPU", "GPU.0"] if seed % 2 else ["GPU", "CPU"]
    network = place(core.read_network(model), lambda node: str(random.choice(devices)))
    executable = core.load_network(network, f"HETERO:{','.join(devices)}")
    request = executable.create_infer_request()
    context = executable.get_context()
    able = [name for name in executable.outputs if takes(request, context, name)]
    for turn in range(4):
        given = {name: normal(2 + turn // 2, 6) for name in ("x0", "x1")}
        blobs = {}
        if turn == 3:  # the same with the user's memory on the device
            blobs = {n: context.create_blob(TensorDesc(F32, Shape([3, 6]))) for n in able}
            for name, blob in blobs.items():
                request.set_blob(name, blob)
        found = request.infer(given)
        found.update({name: held(blob) for name, blob in blobs.items()})
        right = dict(zip(executable.outputs, answer(model, given), strict=True))
        assert found.keys() == right.keys()
        for name, value in right.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


def takes(request, context, name: str) -> bool:
    try:
        request.set_blob(name, context.create_blob(TensorDesc(F32, Shape([3, 6]))))
    except BlobError as error:
        return "it is computed on GPU" in str(error)  # wrong: set_blob() will raise again
    request.set_blob(name, np.zeros((3, 6), "f4"))
    return True


def test_memory_goes_with_the_requests(core) -> None:
    memory = core.get_default_context("GPU").device.memory
    gc.collect()  # what earlier tests left
    before = memory.bytes_allocated
    network = place(core.read_network(there_and_back(50, 40)), by_type(Tanh="CPU"))
    used = []
    for _ in range(3):
        executable = core.load_network(network, "HETERO:GPU,CPU")
        request = executable.create_infer_request()
        for _ in range(2):
            request.infer({"x": normal(50, 40)})
        used.append(memory.bytes_allocated)
        executable.close()
        del executable, request
        gc.collect()
        assert memory.bytes_allocated == before
    assert used[0] == used[1] == used[2] > before
