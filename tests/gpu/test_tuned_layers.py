"""Every operation that can be computed in several ways is tuned, remembered and used again."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from polydevice import Core
from polydevice.ops.transpose import Transpose
from polydevice.testing.inference import TOLERANCES
from polydevice.testing.op_case import network_of
from polydevice_gpu.compiler import compiler
from polydevice_gpu.compiler.device_target import target_of
from polydevice_gpu.compiler.settings import CompileSettings
from polydevice_gpu.kernels.kernel import all_kernels
from polydevice_gpu.measured_ops import MeasuredMatMul, MomentsMatMul
from polydevice_gpu.ops import NormalizedMatMul
from polydevice_gpu.options import GpuOptions
from polydevice_gpu.rounded_ops import ROUNDED_PRODUCTS
from polydevice_gpu.tuning.candidate_runner import CandidateRunner, Outcome
from polydevice_gpu.tuning.candidates import candidates
from polydevice_gpu.tuning.layer_key import layer_key
from polydevice_gpu.tuning.tuner import Tuner
from tests.gpu import graphs
from tests.gpu.graphs import Sketch
from tests.gpu.kernel_cases import CASES, cases_of
from tests.tiers import firsts

TUNABLE = [
    op
    for op, kernels in all_kernels().items()
    if op in CASES and sum(len(kernel.modes) for kernel in kernels) > 1
    # These are computed in one way but on NVIDIA's matrix units, and in half.
    if op not in (NormalizedMatMul, MeasuredMatMul, MomentsMatMul)
]


@pytest.fixture(scope="module")
def core():
    with Core() as made:
        yield made


@pytest.fixture(scope="module")
def builder(opencl):
    return graphs.SparingBuilder(opencl)


@pytest.fixture
def load(monkeypatch, opencl, builder, core, few_candidates):
    """Return a function that loads a network with tuning, on a device with fast local memory."""
    target = dataclasses.replace(
        target_of(opencl), local_memory_bytes=49152, max_work_group_size=1024
    )
    monkeypatch.setattr(compiler, "target_of", lambda _: target)

    def loaded(network, mode, path):
        options = GpuOptions().updated({"TUNING_MODE": mode, "TUNING_FILE": str(path)})
        settings = CompileSettings(tuner=Tuner.open(options, opencl.facts))
        return graphs.loaded(network, opencl, builder, core, settings)

    return loaded


def _nodes(loaded, op):
    return [n for n in loaded.latest_plan().graph.nodes if type(n.op) is op and layer_key(n, "")]


@pytest.mark.parametrize("op", firsts(6, TUNABLE), ids=lambda op: op.__name__)
def test_is_tuned_and_remembered(monkeypatch, load, core, opencl, tmp_path, op):
    """The last candidate is said to be the fastest; it is what later loads choose, untimed."""
    timed: list[str] = []
    real, clock = CandidateRunner.run, [10**9]

    def run(self, choice, **settings):
        if not settings.get("timed", True):
            timed.append(self._node.name)
        outcome = real(self, choice, timed=False)
        clock[0] -= 1
        return outcome and Outcome(outcome.outputs, clock[0])

    monkeypatch.setattr(CandidateRunner, "run", run)
    found = (
        (case, network)
        for case in cases_of(op, "f4")
        for network in _networks(case)
        if _is_several_ways(load, core, network, op)
    )
    case, network = next(found, (None, None))
    if case is None and op in ROUNDED_PRODUCTS and not target_of(opencl).sums_byte_vectors:
        pytest.skip(f"{op.__name__} is computed in one way here, by no vectors of bytes")
    assert case is not None
    path = tmp_path / "tuning.json"
    default = [n.choice for n in _nodes(load(network, "TUNING_DISABLED", path), op)]
    created = load(network, "TUNING_CREATE", path)
    tuned = [n.choice for n in _nodes(created, op)]
    assert timed and len(tuned) == len(default)
    assert tuned != default, "no candidate but the default gives the right result"
    written = path.read_bytes()
    kinds = next(iter(json.loads(written)["version_2"].values()))
    stored = [tuple(entry) for kind in kinds.values() for entry in kind.values()]
    assert all((choice.kernel.name, choice.mode) in stored for choice in tuned)
    timed.clear()
    for mode in ("TUNING_USE_EXISTING", "TUNING_CREATE", "TUNING_UPDATE"):
        again = load(network, mode, path)
        assert [n.choice for n in _nodes(again, op)] == tuned
    assert not timed and json.loads(path.read_bytes()) == json.loads(written)
    given = {f"input{i}": a for i, a in enumerate(case.inputs) if not case.is_constant(i)}
    if network.name == "turned":
        given["input0"] = np.ascontiguousarray(case.inputs[0].transpose(0, 2, 3, 1))
    outputs = again.create_infer_request().infer(given)
    for index, answer in enumerate(case.answers()):
        found = outputs[f"output{index}"]
        kind = next((k for k in TOLERANCES if k.dtype == found.dtype), None)
        tolerance = case.tolerance or (TOLERANCES[kind] if kind else (0, 0))
        np.testing.assert_allclose(found.astype("f8"), np.asarray(answer, "f8"), *tolerance)


def _networks(case):
    """Return the case as it is, and for images with their channels side by side."""
    yield network_of(case)
    x = case.inputs[0]
    if x.ndim == 4 and len(case.inputs) == 1:
        s = Sketch()
        image = s.input("input0", *(x.shape[axis] for axis in (0, 2, 3, 1)))
        view = s.add("view", Transpose(), image, s.const("order", np.array([0, 3, 1, 2])))
        network = s.network(output0=s.add("y", case.op, view))
        network.name = "turned"
        yield network


def _is_several_ways(load, core, network, op) -> bool:
    network.evaluate = core.evaluate
    network.infer()
    loaded = load(network, "TUNING_DISABLED", "")
    target = compiler.target_of(None)
    return any(len(candidates(node, target)) > 1 for node in _nodes(loaded, op))
