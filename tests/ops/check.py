"""check: run a case on the device, and on CPU also with the NumPy function it falls back to.

What OpenVINO answers is read from the IR that OpenVINO reads. An operation that can be decomposed
runs in its parts too, which are made once from known sizes and once from unknown ones: every rule
has the answers of its operation.
"""

from __future__ import annotations

import pytest

from polydevice.errors import UnsupportedNetworkError
from polydevice.network import Network
from polydevice.rewrites import Wishes, always, rewrite, rules
from polydevice.shape import Shape
from polydevice.testing.op_case import OpCase, network_of, run_case
from polydevice_cpu.implement import evaluate, run
from tests.ops.openvino_oracle import OpenVinoCase

NOT_ON_GPU = frozenset({
    "ExperimentalDetectronPriorGridGenerator",
    "ExperimentalDetectronROIFeatureExtractor",
    "FakeConvert",
    # The GPU runs some cases of these:
    "EmbeddingBagPacked",
    "EmbeddingBagPackedSum",
    "Resize",
})  # fmt: skip
"""Types of operations here of which the GPU leaves cases to the CPU; it runs all others."""

EVERYTHING = Wishes(decompose=dict.fromkeys(rules(), always))


def check(case: OpCase, device: str) -> None:
    """Run the case; skip when the GPU says that it lacks one of the operations above."""
    if device == "CPU":
        # oneDNN replaces some of these in a network; they serve where it is missing.
        run_case(case, "CPU (NumPy)", compute=run)
        for parts in filter(None, map(decomposed, (network_of(case), of_unknown_sizes(case)))):
            run_case(case, "CPU", network=parts)
    try:
        run_case(case, device, network=case.read() if isinstance(case, OpenVinoCase) else None)
    except UnsupportedNetworkError as error:
        if case.op.type not in NOT_ON_GPU or device == "CPU":
            raise
        pytest.skip(f"{device}: {error}")


def decomposed(network: Network) -> Network | None:
    """Return the network with its operation taken apart; None where no rule does."""
    if not rewrite(network, EVERYTHING, evaluate)["decompose"]:
        return None
    assert not rewrite(network, EVERYTHING, evaluate)["decompose"], "its parts have parts"
    return network


def of_unknown_sizes(case: OpCase) -> Network:
    """Return the case's network with inputs of which only the number of axes is known."""
    network = network_of(case)
    for node in network.parameters:
        rank = node.output.desc.rank
        if rank is not None:
            node.op = node.op.replace(shape=Shape([None] * rank))
    network.infer()
    return network
