"""Real models cut at random between GPU and CPU give the answers of other runtimes."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from polydevice import Core
from tests.models.models import MODELS, Model
from tests.models.test_models import cached_case, close

QUICK = {"blazeface", "mtcnn_pnet", "silero_vad_16k_sequence"}
"""Small ones: without a cache of kernels the others compile for up to minutes."""


@pytest.fixture(scope="module")
def gpu() -> str:
    with Core() as core:
        found = [name for name in core.available_devices if name.partition(".")[0] == "GPU"]
    if not found:
        pytest.skip("needs an OpenCL device; `polydevice devices --why` says what is missing")
    return found[0]


# On one device alone `tests/models` has them all as users have them compiled.
@pytest.mark.usefixtures("repeated_sparingly")
@pytest.mark.parametrize(
    "model",
    [pytest.param(m, marks=() if m.name in QUICK else pytest.mark.full, id=m.name) for m in MODELS],
)
def test_random_cuts(model: Model, gpu: str) -> None:
    given, wanted = cached_case(model)
    random = np.random.default_rng(zlib.crc32(model.name.encode()))
    with Core() as core:
        network = core.read_network(model.file.get())
        for name in model.extra_outputs:
            network.add_outputs(network.name_of_tensor(name))
        network.reshape({name: list(array.shape) for name, array in given.items()})
        refused = core.unsupported_nodes(network, gpu)
        device = gpu
        for node in network.nodes():
            if random.random() < 0.08:
                device = "CPU" if device == gpu else gpu
            if node.type not in ("Parameter", "Const", "Result"):
                node.rt_info["affinity"] = "CPU" if node.name in refused else device
        executable = core.load_network(network, f"HETERO:{gpu},CPU")
        used = {row.device for row in executable.placement() if row.subgraph is not None}
        # A network of few nodes may meet no cut, whatever the seed.
        assert (
            used >= {gpu, "CPU"} or sum(r.subgraph is not None for r in executable.placement()) < 40
        )
        results = list(executable.infer(given).values())
    for index, (got, want) in enumerate(zip(results, wanted, strict=True)):
        close(f"{model.name} output {index}", got, want, model)
