"""Tuning files know layers of single sizes; plans for others are filled in without asking them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from polydevice_gpu.tuning.candidates import candidates
from polydevice_gpu.tuning.layer_key import layer_key, part, part_of, sizes_of
from polydevice_gpu.tuning.tuning_file import TuningFile
from tests.cpu import models
from tests.gpu.open_networks import attention, residual

CASES = {
    "residual": residual([(66, 70), (67, 93), (81, 64), (75, 75), (81, 64)]),
    "attention": attention([33, 41, 57, 70, 57]),
}
KNOWN = 2
"""Number of the input, and of one of equal size later, for which a file knows a layer."""


def executables(core, model, **config):
    return core.load_network(core.read_network(model), "GPU", config)


def plans(executable, model, inputs):
    """Infer everything, check the answers, and return the plan of each inference."""
    found = []
    for x in inputs:
        got = executable.infer({"x": x})
        for ours, theirs in zip(got.values(), models.answer(model, {"x": x}), strict=True):
            scale = np.abs(theirs).max(initial=0)
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4 * scale)
        found.append(executable.latest_plan())
    return found


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_what_a_file_knows_counts_for_that_size_alone(case, version, core, opencl, tmp_path):
    model, inputs = CASES[case]
    untuned = executables(core, model)
    units, name = opencl.facts.max_compute_units, opencl.facts.name
    keys = [
        {layer_key(node, name): node for node in plan.graph.nodes if layer_key(node, name)}
        for plan in plans(untuned, model, inputs)
    ]
    elsewhere = {
        key for number, some in enumerate(keys) if number not in (KNOWN, 4) for key in some
    }
    target = untuned._compiler.target
    tried = 0
    for key, node in keys[KNOWN].items():
        if key in elsewhere:
            continue
        tried += 1
        choice = candidates(node, target)[-1]
        file = tmp_path / f"{tried}.json"
        entry = [choice.kernel.name, choice.mode]
        if version == 2:
            content = {"version_2": {str(units): {key.kind: {key.text: entry}}}}
        else:
            content = {"version_1": {str(units): {key.hash: entry}}}
        file.write_text(json.dumps(content))
        tuned = executables(core, model, TUNING_MODE="TUNING_USE_EXISTING", TUNING_FILE=str(file))
        for number, plan in enumerate(plans(tuned, model, inputs)):
            found = {layer_key(n, name) for n in plan.graph.nodes if n.choice and n.choice.tuned}
            assert found == ({key} if number in (KNOWN, 4) else set())
        assert tuned._prepared.templates.filled >= 2
    assert tried >= 3


def test_parts_of_a_key_are_those_of_the_layer(core, opencl):
    model, inputs = CASES["residual"]
    (plan,) = plans(executables(core, model), model, inputs[:1])
    keys = {node: key for node in plan.graph.nodes if (key := layer_key(node, "device"))}
    assert len(keys) > 3
    for node, key in keys.items():
        assert sizes_of(key.text) == node.inputs[0].shape
        assert part_of(key.text) == part(node)
        file = TuningFile(None)
        assert file.parts(4) == {}
        file.store(4, key, ("kernel", 0))
        assert file.parts(4) == {(key.kind, part(node)): {node.inputs[0].shape}}


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("F32_BFYX_v6_p1_v5_p6_v3_p30_v1_p90;F16_OI_v3_p1_v4_p3;x", (1, 3, 5, 6)),
        ("F32_SCALAR;F16_OI_v3_p1", ()),
        ("", ()),
        ("F32_BFYX_v6_p-1_c4,5;rest", (6,)),
        (f"F32_BFYX_v{'9' * 5000}_p1;", ()),
        (";;", ()),
    ],
)
def test_sizes_that_a_key_says(text, sizes):
    assert sizes_of(text) == sizes
