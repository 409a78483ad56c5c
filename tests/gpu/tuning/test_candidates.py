"""What tells layers apart, what may run them, and when results agree."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_gpu.graph import GpuNode
from polydevice_gpu.tuning.candidate_runner import agrees
from polydevice_gpu.tuning.candidates import candidates, find_choice, has_several
from polydevice_gpu.tuning.layer_key import LayerKey, layer_key
from polydevice_gpu.tuning.tuner import Tuner, TuningMode
from polydevice_gpu.tuning.tuning_file import TuningFile
from tests.gpu.tuning.network import LAYERS, MODEL, rng


def test_key_tells_layers_apart_that_differ_in_speed(core) -> None:
    texts = set()
    for size, precision in ((8, "f32"), (10, "f32"), (8, "f16")):
        network = core.read_network(MODEL)
        if size != 8:
            continue
        config = {"INFERENCE_PRECISION_HINT": precision}
        graph = core.load_network(network, "GPU", config).latest_plan().graph
        for node in graph.nodes:
            key = layer_key(node, "device")
            if key:
                texts.add((key.kind, key.text))
    assert len(texts) == 2 * LAYERS - 1  # the copy of the input is of f32 in both
    assert all(text.endswith(";device") for _, text in texts)


def test_all_candidates_are_distinct_and_the_default_is_first(core, opencl) -> None:
    executable = core.load_network(core.read_network(MODEL), "GPU")
    for node in executable.latest_plan().graph.nodes:
        if layer_key(node, ""):
            found = candidates(node, executable._compiler.target)
            assert has_several(node, executable._compiler.target)
            assert found[0] == node.choice
            assert len(set(map(str, found))) == len(found) > 2
            assert find_choice(
                node, found[-1].kernel.name, found[-1].mode, executable._compiler.target
            )
            assert isinstance(node, GpuNode)


@pytest.mark.parametrize(
    ("change", "same"), [(0, True), (1e-7, True), (1e-2, False), (np.nan, False), (np.inf, False)]
)
def test_agreement(change, same) -> None:
    right = rng.normal(0, 1, 100).astype(np.float32)
    output = right.copy()
    output[7] += change
    assert agrees(output, right) is same


def test_hash_is_fnv_1a() -> None:
    """The published test vector of "foobar", split at the separator that keys have."""
    value = 0xCBF29CE484222325
    for byte in b"A;b":
        value = ((value ^ byte) * 0x100000001B3) % 2**64
    assert LayerKey("A", "b").hash == str(value)


def test_a_tuner_finds_any_single_layer_of_which_it_knows(core, opencl) -> None:
    units, name = opencl.facts.max_compute_units, opencl.facts.name
    graph = core.load_network(core.read_network(MODEL), "GPU").latest_plan().graph
    nodes = [node for node in graph.nodes if layer_key(node, name)]
    assert len(nodes) == LAYERS
    for node in nodes:
        key = layer_key(node, name)
        file = TuningFile(None)
        tuner = Tuner(TuningMode.USE_EXISTING, TuningFile(None), shipped=file)
        assert not tuner.has_others(graph.nodes, opencl)
        file.store(units, LayerKey(key.kind, f"{key.text};other"), ("kernel", 0))
        assert not tuner.has_others(graph.nodes, opencl)
        file.store(units, key, ("kernel", 0))
        assert tuner.has_others(graph.nodes, opencl)
        tuner.shipped, tuner.exported = None, {(key.kind, key.text): ("kernel", 0)}
        assert tuner.has_others(graph.nodes, opencl)
