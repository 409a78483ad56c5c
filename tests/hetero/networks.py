"""Small networks that tests of HETERO cut, and how they check them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from polydevice import RemoteBlob
from polydevice.dtype import Array
from polydevice.network import Network
from polydevice.node import Node
from tests.cpu.models import answer, build

WEIGHTS = {"three": np.array([3], "f4"), "half": np.array([0.5], "f4")}
rng = np.random.default_rng(70)


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
