"""HETERO and device memory: what stays on a device is not copied, and nothing else changes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from polydevice import Copies, Core, ElementType, RemoteBlob, Shape, TensorDesc
from polydevice.dtype import Array
from polydevice.errors import BlobError, DeviceError, InferenceError
from polydevice.network import Network
from polydevice.node import Node, constant
from polydevice.ops.arithmetic import Add, Multiply
from polydevice.ops.concat import Concat
from polydevice.ops.convert import Convert
from polydevice.ops.io import Parameter, Result
from polydevice.ops.state import Assign, ReadValue
from polydevice.shape import Dim
from tests.cpu.models import answer, build

F32 = ElementType.f32
WEIGHTS = {"three": np.array([3], "f4"), "half": np.array([0.5], "f4")}
rng = np.random.default_rng(70)


@pytest.fixture
def core() -> Iterator[Core]:
    with Core() as made:
        if not any(name.partition(".")[0] == "GPU" for name in made.available_devices):
            pytest.skip("needs an OpenCL device; `polydevice devices --why` says what is missing")
        yield made


def place(network: Network, device_of: Callable[[Node], str]) -> Network:
    for node in network.nodes():
        if node.type not in ("Parameter", "Const", "Result"):
            node.rt_info["affinity"] = device_of(node)
    return network


def by_type(**devices: str) -> Callable[[Node], str]:
    """Where operations of a type run; the others run on GPU."""
    return lambda node: devices.get(node.type, "GPU")


def there_and_back(*shape: int | str, outputs: tuple[str, ...] = ("y",)) -> bytes:
    """a = 3x on GPU; b = tanh a on CPU; c = a + b and y = c / 2 on GPU."""
    nodes = [
        ("Mul", ["x", "three"], ["a"], {}),
        ("Tanh", ["a"], ["b"], {}),
        ("Add", ["a", "b"], ["c"], {}),
        ("Mul", ["c", "half"], ["y"], {}),
    ]
    return build(nodes, {"x": shape}, outputs, WEIGHTS)


def normal(*shape: int) -> Array:
    return rng.standard_normal(shape).astype("f4")


def held(blob: RemoteBlob) -> Array:
    with blob.map("r") as array:
        return array.copy()


def check(request, model: bytes, x: Array) -> None:
    found = request.infer({"x": x})
    for name, right in zip(request.executable.outputs, answer(model, {"x": x}), strict=True):
        np.testing.assert_allclose(found[name], right, rtol=1e-5, atol=1e-6, err_msg=name)


# -- between parts --------------------------------------------------------------------------------


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
        kept.append(request._parts[0].get_blob("a/out"))
    assert isinstance(kept[0], RemoteBlob)
    assert kept[0] is kept[1] is kept[2], "allocated once"
    rows = {row.type: row.bytes_in for row in executable.placement()}
    assert rows["Tanh"] == 2 * 3 * 5 * 4
    assert rows["Add"] == 2 * 3 * 5 * 4, "of a and b only b crosses"


def test_dynamic_shapes(core) -> None:
    model = there_and_back("n", 3, "m", outputs=("y", "c", "a"))
    network = place(core.read_network(model), by_type(Tanh="CPU"))
    request = core.load_network(network, "HETERO:GPU,CPU").create_infer_request()
    blobs = []
    for shape in ((2, 3, 5), (4, 3, 1), (4, 3, 1), (2, 3, 5), (0, 3, 2), (1, 3, 7)):
        check(request, model, normal(*shape))
        assert request.copies.with_host <= 6
        blobs.append(request._parts[0].get_blob("a/out"))
    assert blobs[1] is blobs[2], "allocated when the shape changes only"
    assert blobs[0].shape == (2, 3, 5)


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
    assert request._parts[0].get_blob("a/out").context is core.get_default_context("GPU")


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


# -- running --------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(2, 3), ("n", 3)])
def test_many_requests_at_once(core, shape) -> None:
    model = there_and_back(*shape, outputs=("y", "c"))
    network = place(core.read_network(model), by_type(Tanh="CPU"))
    executable = core.load_network(network, "HETERO:GPU,CPU")
    queue = executable.infer_queue(4)
    given = [normal(2 if shape[0] == 2 else 1 + i % 4, 3) for i in range(40)]
    found: dict[int, Array] = {}
    queue.set_callback(
        lambda request, number: found.update({number: request.get_blob("y").array.copy()})
    )
    for number, x in enumerate(given):
        queue.start_async({"x": x}, number)
    queue.wait_all()
    assert len(found) == 40
    for number, x in enumerate(given):
        np.testing.assert_allclose(found[number], answer(model, {"x": x})[0], rtol=1e-5, atol=1e-6)


def test_requests_follow_each_other_through_the_devices(core, monkeypatch) -> None:
    """While one request is on CPU, the next is on GPU: neither waits for the other to end."""
    network = place(core.read_network(there_and_back(2, 3)), by_type(Tanh="CPU"))
    executable = core.load_network(network, "HETERO:GPU,CPU")
    first, second = executable.create_infer_request(), executable.create_infer_request()
    arrived, on_gpu = threading.Event(), threading.Event()
    on_cpu, next_on_gpu = first._parts[1]._run, second._parts[0]._run

    def run_on_cpu(stream: int) -> None:
        arrived.set()
        assert on_gpu.wait(20), "the second request never came to GPU"
        on_cpu(stream)

    def run_on_gpu(stream: int) -> None:
        assert arrived.wait(20)
        next_on_gpu(stream)
        on_gpu.set()

    monkeypatch.setattr(first._parts[1], "_run", run_on_cpu)
    monkeypatch.setattr(second._parts[0], "_run", run_on_gpu)
    x = normal(2, 3)
    first.start_async({"x": x})
    second.start_async({"x": x + 1})
    first.wait()
    second.wait()
    for request, value in ((first, x), (second, x + 1)):
        right = answer(there_and_back(2, 3), {"x": value})[0]
        np.testing.assert_allclose(request.get_blob("y").array, right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("broken", range(3))
def test_a_member_that_fails_leaves_the_rest_usable(core, monkeypatch, broken) -> None:
    model = there_and_back(2, 3)
    network = place(core.read_network(model), by_type(Tanh="CPU"))
    executable = core.load_network(network, "HETERO:GPU,CPU", num_requests=2)
    request, other = executable.requests
    check(request, model, normal(2, 3))

    def fail(stream: int) -> None:
        raise OSError("device lost")

    with monkeypatch.context() as patch:
        patch.setattr(request._parts[broken], "_run", fail)
        with pytest.raises(InferenceError, match=rf"subgraph {broken} on [CG]PU: .*device lost"):
            request.infer({"x": normal(2, 3)})
        check(other, model, normal(2, 3))
    check(request, model, normal(2, 3))
    assert request.copies == Copies(uploads=2, downloads=2)


def test_export_and_import(core) -> None:
    model = there_and_back(2, 3)
    network = place(core.read_network(model), by_type(Tanh="CPU"))
    content = core.load_network(network, "HETERO:GPU,CPU").export()
    request = core.import_network(content, "HETERO").create_infer_request()
    check(request, model, normal(2, 3))
    assert request.copies == Copies(uploads=2, downloads=2)


# -- other devices --------------------------------------------------------------------------------


def test_a_third_partys_device_memory(monkeypatch) -> None:
    """HETERO knows contexts, not GPUs: nothing leaves the vault that is not read outside."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    model = there_and_back(2, 3, outputs=("y", "c"))
    with Core() as core:
        core.register_plugin("vault", "VAULT")
        executable = core.load_network(core.read_network(model), "HETERO:VAULT,CPU")
        assert [part.device for part in executable.subgraphs] == ["VAULT", "CPU", "VAULT"]
        assert executable.get_context() is core.get_default_context("VAULT")
        request = executable.create_infer_request()
        for _ in range(2):
            check(request, model, normal(2, 3))
            assert request.copies == Copies(uploads=2, downloads=3)  # x, b; a, c, y
        blob = executable.get_context().create_blob(executable.outputs["y"].desc)
        request.set_blob("y", blob)
        x = normal(2, 3)
        assert list(request.infer({"x": x})) == ["c"]
        np.testing.assert_allclose(held(blob), answer(model, {"x": x})[0], rtol=1e-5, atol=1e-6)


def test_devices_with_memories_of_their_own(core, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "samples/npu_plugin"))
    core.register_plugin("vault", "VAULT")
    core.register_plugin("polydevice_npu", "NPU")
    model = there_and_back(2, 3, outputs=("y", "b"))
    network = place(core.read_network(model), by_type(Tanh="CPU", Add="VAULT"))
    next(node for node in network.nodes() if node.name == "y").rt_info["affinity"] = "NPU"
    executable = core.load_network(network, "HETERO:GPU,VAULT,NPU,CPU")
    assert [part.device for part in executable.subgraphs] == ["GPU", "CPU", "VAULT", "NPU"]
    request = executable.create_infer_request()
    for _ in range(2):
        check(request, model, normal(2, 3))
        assert request.copies == Copies(uploads=3, downloads=2)  # x, a, b; a, c
    with pytest.raises(DeviceError, match=r"in 2 contexts \(GPU.0, VAULT.0\)"):
        executable.get_context()
    blob = core.get_default_context("VAULT").create_blob(executable.inputs["x"].desc)
    with pytest.raises(BlobError, match="'x' cannot be .* it is read on GPU, outside"):
        request.set_blob("x", blob)


TWO_DEVICES = """
import numpy as np
from polydevice import Core, Copies
from polydevice.errors import BlobError, DeviceError
from tests.hetero.test_sharing import answer, check, held, normal, place, there_and_back

with Core() as core:
    if not {"GPU.0", "GPU.1"} <= set(core.available_devices):
        raise SystemExit(77)
    model = there_and_back(2, 3)
    for middle, crossings in (("GPU.1", 3), ("CPU", 2)):
        network = place(core.read_network(model), lambda n: middle if n.type == "Tanh" else "GPU.0")
        executable = core.load_network(network, f"HETERO:GPU.0,{middle}")
        assert [part.device for part in executable.subgraphs] == ["GPU.0", middle, "GPU.0"]
        request = executable.create_infer_request()
        for _ in range(2):
            check(request, model, normal(2, 3))
            # Between two devices a value goes down and up; a stays on GPU.0 all the same.
            assert request.copies == Copies(crossings, crossings), (middle, request.copies)
        blob = core.get_default_context("GPU.0").create_blob(executable.inputs["x"].desc)
        x = normal(2, 3)
        blob.copy_from(x)
        np.testing.assert_allclose(
            request.infer({"x": blob})["y"], answer(model, {"x": x})[0], rtol=1e-5, atol=1e-6
        )
        try:
            request.set_blob("y", core.get_default_context("GPU.1").create_blob(blob.desc))
        except BlobError as error:
            assert "it is computed on GPU.0, outside of the blob's context" in str(error)
        else:
            raise AssertionError("memory of the other device was taken")
"""


def test_two_gpus() -> None:
    """In a process of its own, where PoCL shows its two kinds of CPU devices."""
    environment = {
        **os.environ,
        "POLYDEVICE_GPU_DEVICES": "all-gpus,cpu",
        "POCL_DEVICES": "pthread basic",
    }
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", TWO_DEVICES],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    if done.returncode == 77:
        pytest.skip("needs two OpenCL devices")
    assert done.returncode == 0, done.stderr


# -- variables ------------------------------------------------------------------------------------


def memory(start: Callable[[Node], Node] | None = None, shape: tuple[int, ...] = (3,)) -> Network:
    """y = tanh(total + x); total = total + x: GPU reads and assigns, CPU computes tanh."""
    x = Node("x", Parameter(F32, Shape(shape)))
    given = [] if start is None else [start(x).output]
    read = Node("read", ReadValue("total", F32, Shape(shape)), given)
    total = Node("sum", Add(), [read.output, x.output])
    assign = Node("assign", Assign("total"), [total.output])
    late = Node("late", Multiply(), [total.output, constant("one", np.float32(1)).output])
    after = Node("after", Add(), [late.output, read.output])
    results = [Node(n, Result(output_name=n), [p.output]) for n, p in (("y", late), ("z", after))]
    return Network("memory", [x], results, [assign])


@pytest.mark.parametrize("start", [None, 10.0])
def test_variables_stay_on_the_device(core, start) -> None:
    """The part that reads the old value last runs after the one that assigns the new value."""
    begin = None if start is None else lambda x: constant("start", np.full(3, start, "f4"))
    network = place(memory(begin), lambda node: "CPU" if node.name == "late" else "GPU")
    request = core.load_network(network, "HETERO:GPU,CPU").create_infer_request()
    x = np.array([1, 2, 3], "f4")
    for _ in range(2):
        total = np.full(3, start or 0, "f4")
        for count in range(4):
            found = request.infer({"x": x})
            np.testing.assert_array_equal(found["y"], total + x)
            np.testing.assert_array_equal(found["z"], total + x + total)
            total = total + x
            if count:  # up: x, late; down: total for late, z. The variable is in neither.
                assert request.copies == Copies(uploads=2, downloads=2)
        (variable,) = request.query_state()
        np.testing.assert_array_equal(variable.state, total)
        variable.state = np.array([5, 5, 5], "f4")
        np.testing.assert_array_equal(request.infer({"x": x})["y"], x + 5)
        variable.reset()


def test_variables_take_turns_in_two_blobs(core) -> None:
    network = place(memory(), lambda node: "CPU" if node.name == "late" else "GPU")
    request = core.load_network(network, "HETERO:GPU,CPU").create_infer_request()
    seen = []
    for _ in range(6):
        request.infer({"x": np.ones(3, "f4")})
        seen.append(request._variables[0].value)
    assert all(isinstance(blob, RemoteBlob) for blob in seen)
    assert len({id(blob) for blob in seen}) == 2
    assert seen[-1] is not seen[-2]


def test_the_first_value_is_computed_in_a_part_of_its_own(core, monkeypatch) -> None:
    """GPU, then GPU: the part that begins passes its value to the one that goes on."""
    two = constant("two", np.float32(2))
    network = memory(lambda x: Node("doubled", Multiply(), [x.output, two.output]))
    place(network, lambda node: "GPU")
    executable = core.load_network(network, "HETERO:GPU,CPU", {"PERF_COUNT": "YES"})
    assert [part.device for part in executable.subgraphs] == ["GPU", "GPU"]
    request = executable.create_infer_request()
    x = np.array([1, 2, 3], "f4")
    np.testing.assert_array_equal(request.infer({"x": x})["y"], 3 * x)
    assert request.copies == Copies(uploads=1, downloads=2)
    assert any(name.startswith("subgraph0: ") for name in request.get_perf_counts())

    def never(stream: int) -> None:
        raise AssertionError("the first value is known")

    monkeypatch.setattr(request._parts[0], "_run", never)
    for count in (4, 5, 6):
        np.testing.assert_array_equal(request.infer({"x": x})["y"], count * x)
        assert request.copies == Copies(uploads=1, downloads=2)
        assert {name[:9] for name in request.get_perf_counts()} == {"subgraph1"}
    monkeypatch.undo()
    request.query_state()[0].reset()
    np.testing.assert_array_equal(request.infer({"x": x})["y"], 3 * x)
    fresh = executable.create_infer_request()
    fresh.query_state()[0].state = x
    np.testing.assert_array_equal(fresh.infer({"x": x})["y"], 2 * x)
    assert {name[:9] for name in fresh.get_perf_counts()} == {"subgraph1"}


def test_a_variable_that_grows(core) -> None:
    x = Node("x", Parameter(F32, Shape([Dim(0, None), 3])))
    start = constant("nothing", np.zeros((0, 3), np.float32))
    read = Node("read", ReadValue("list", F32, Shape([Dim(0, None), 3])), [start.output])
    longer = Node("longer", Concat(axis=0), [read.output, x.output])
    assign = Node("assign", Assign("list"), [longer.output])
    late = Node("late", Multiply(), [longer.output, constant("two", np.float32(2)).output])
    result = Node("y", Result(output_name="y"), [late.output])
    network = Network("growing", [x], [result], [assign])
    place(network, lambda node: "CPU" if node.name == "late" else "GPU")
    request = core.load_network(network, "HETERO:GPU,CPU").create_infer_request()
    for _ in range(2):
        known = np.zeros((0, 3), "f4")
        for rows in (2, 1, 4):
            x = normal(rows, 3)
            known = np.concatenate([known, x])
            np.testing.assert_array_equal(request.infer({"x": x})["y"], known * 2)
        assert request.copies == Copies(uploads=1, downloads=1)
        (variable,) = request.query_state()
        np.testing.assert_array_equal(variable.state, known)
        variable.reset()


def test_a_variable_in_the_users_memory_is_copied(core) -> None:
    """What the user may overwrite is no place for a variable."""
    x = Node("x", Parameter(F32, Shape([3])))
    read = Node("read", ReadValue("total", F32, Shape([3])))
    total = Node("sum", Add(), [read.output, x.output])
    results = [Node("y", Result(output_name="y"), [total.output])]
    network = Network("sum", [x], results, [Node("assign", Assign("total"), [total.output])])
    executable = core.load_network(network, "HETERO:GPU,CPU")
    request = executable.create_infer_request()
    blob = executable.get_context().create_blob(executable.outputs["y"].desc)
    one = np.ones(3, "f4")
    for count in range(1, 7):
        if count == 3:
            request.set_blob("y", blob)
        if count == 5:
            request.set_blob("y", np.zeros(3, "f4"))
        found = request.infer({"x": one})
        value = held(blob) if count in (3, 4) else found["y"]
        np.testing.assert_array_equal(value, count * one)
        blob.copy_from(np.full(3, 100, "f4"))


# -- the user's device memory ---------------------------------------------------------------------


def test_remote_inputs_and_outputs(core) -> None:
    model = there_and_back(2, 3, outputs=("y", "a"))
    network = core.read_network(model)
    executable = core.load_network(network, "HETERO:GPU,CPU")
    assert len(executable.parts) == 1
    context = executable.get_context()
    assert context is core.get_default_context("GPU")
    request = executable.create_infer_request()
    blobs = {
        name: context.create_blob(port.desc)
        for name, port in {**executable.inputs, **executable.outputs}.items()
    }
    for name, blob in blobs.items():
        request.set_blob(name, blob)
        assert request.get_blob(name) is blob
    for _ in range(2):
        x = normal(2, 3)
        blobs["x"].copy_from(x)
        assert request.infer() == {}
        assert request.copies == Copies()
        for name, right in zip(("y", "a"), answer(model, {"x": x}), strict=True):
            np.testing.assert_allclose(held(blobs[name]), right, rtol=1e-5, atol=1e-6)
    # Back to host memory; the blobs are left alone.
    for name in ("y", "a"):
        request.set_blob(name, np.zeros((2, 3), "f4"))
        blobs[name].copy_from(np.zeros((2, 3), "f4"))
    check(request, model, normal(2, 3))
    assert not held(blobs["y"]).any()


def test_remote_inputs_that_the_host_reads_too(core) -> None:
    nodes = [("Mul", ["x", "three"], ["a"], {}), ("Tanh", ["x"], ["b"], {})]
    model = build([*nodes, ("Add", ["a", "b"], ["y"], {})], {"x": (4, 6)}, ["y", "b"], WEIGHTS)
    network = place(core.read_network(model), by_type(Tanh="CPU"))
    executable = core.load_network(network, "HETERO:GPU,CPU")
    context = executable.get_context()
    request = executable.create_infer_request()
    x = normal(4, 6)
    whole = context.create_blob(executable.inputs["x"].desc)
    whole.copy_from(x)
    request.set_blob("x", whole)
    result = context.create_blob(executable.outputs["y"].desc)
    request.set_blob("y", result)
    right = answer(model, {"x": x})
    np.testing.assert_allclose(request.infer()["b"], right[1], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(held(result), right[0], rtol=1e-5, atol=1e-6)
    assert request.copies == Copies(uploads=1, downloads=1)  # b, and x for tanh
    with pytest.raises(BlobError, match="output 'b' cannot be .* it is computed on CPU, outside"):
        request.set_blob("b", result)


def test_the_same_memory_for_input_and_output(core) -> None:
    """The last part reads x after y is there: y is copied into the blob in the end."""
    nodes = [
        ("Mul", ["x", "three"], ["y"], {}),
        ("Tanh", ["y"], ["b"], {}),
        ("Add", ["b", "x"], ["z"], {}),
    ]
    model = build(nodes, {"x": (2, 3)}, ["y", "z"], WEIGHTS)
    executable = core.load_network(
        place(core.read_network(model), by_type(Tanh="CPU")), "HETERO:GPU,CPU"
    )
    context = executable.get_context()
    for order in (("x", "y"), ("y", "x")):
        request = executable.create_infer_request()
        blob = context.create_blob(executable.inputs["x"].desc)
        x = normal(2, 3)
        blob.copy_from(x)
        for name in order:
            request.set_blob(name, blob)
        for _ in range(3):
            found = request.infer()
            right = answer(model, {"x": x})
            np.testing.assert_allclose(held(blob), right[0], rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(found["z"], right[1], rtol=1e-5, atol=1e-6)
            assert request.copies.on_device == 1
            x = right[0]
        request.set_blob("z", blob)
        with pytest.raises(BlobError, match="'z' shares memory with another output"):
            request.infer()


def test_blobs_that_no_part_can_use(core) -> None:
    network = place(core.read_network(there_and_back(2, 3)), by_type(Tanh="CPU"))
    executable = core.load_network(network, "HETERO:GPU,CPU")
    request = executable.create_infer_request()
    context = executable.get_context()
    with pytest.raises(BlobError, match="shape"):
        request.set_blob("x", context.create_blob(TensorDesc(F32, Shape([3, 2]))))
    blob = context.create_blob(executable.inputs["x"].desc)
    blob.release()
    with pytest.raises(BlobError, match="released"):
        request.set_blob("x", blob)
    params = {"CONTEXT_TYPE": "OCL", "OCL_CONTEXT": other_context(context)}
    other = core.create_context("GPU", params)
    with pytest.raises(BlobError, match="'x' cannot be .* read on GPU, outside of the blob's"):
        request.set_blob("x", other.create_blob(executable.inputs["x"].desc))
    check(request, there_and_back(2, 3), normal(2, 3))


def other_context(context):
    import pyopencl as ocl

    return ocl.Context(context.params["OCL_CONTEXT"].devices)


def test_no_context(core) -> None:
    network = place(core.read_network(there_and_back(2, 3)), lambda node: "CPU")
    executable = core.load_network(network, "HETERO:GPU,CPU")
    with pytest.raises(DeviceError, match="no part of 'test' on HETERO:GPU,CPU runs on a device"):
        executable.get_context()


def test_outputs_that_are_kept(core) -> None:
    model = there_and_back("n", 3, outputs=("y", "b"))
    network = place(core.read_network(model), by_type(Tanh="CPU"))
    request = core.load_network(network, "HETERO:GPU,CPU").create_infer_request()
    for name in ("y", "b"):
        request.keep_on_device(name)
    for rows in (2, 2, 4):
        x = normal(rows, 3)
        right = answer(model, {"x": x})
        assert list(request.infer({"x": x})) == ["b"], "CPU has no memory but the host's"
        np.testing.assert_allclose(held(request.get_blob("y")), right[0], rtol=1e-5, atol=1e-6)
        assert request.copies == Copies(uploads=2, downloads=1)
    request.set_blob("y", np.zeros((4, 3), "f4"))
    check(request, model, normal(3, 3))


def test_a_configuration_that_changes_the_inputs_of_parts(core) -> None:
    model = build([("Mul", ["x", "three"], ["y"], {})], {"x": (1, 3, 4, 6)}, ["y"], WEIGHTS)
    network = core.read_network(model)
    network.inputs["x"].precision = "U8"
    network.inputs["x"].preprocess.color_format = "NV12"
    with pytest.raises(DeviceError, match="inputs x_Y0, x_UV0 instead of x; leave out"):
        core.load_network(network, "HETERO:GPU,CPU", {"GPU_NV12_TWO_INPUTS": "YES"})


def test_streams_of_the_members_are_used(core, monkeypatch) -> None:
    """Two requests are on the two streams of GPU at the same time."""
    model = build([("Mul", ["x", "three"], ["y"], {})], {"x": (4,)}, ["y"], WEIGHTS)
    config = {"GPU_THROUGHPUT_STREAMS": "2"}
    executable = core.load_network(core.read_network(model), "HETERO:GPU,CPU", config)
    requests = [executable.create_infer_request() for _ in range(2)]
    together = threading.Barrier(2)
    streams = []
    for request in requests:
        part = request._parts[0]

        def run(stream: int, real: Callable[[int], None] = part._run) -> None:
            together.wait(20)
            streams.append(stream)
            real(stream)

        monkeypatch.setattr(part, "_run", run)
    for request in requests:
        request.start_async({"x": np.ones(4, "f4")})
    for request in requests:
        request.wait()
        np.testing.assert_array_equal(request.get_blob("y").array, np.full(4, 3))
    assert sorted(streams) == [0, 1]
