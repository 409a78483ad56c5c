"""What tests of planned networks share: loading on CPU, inputs, and the steps of a plan."""

from __future__ import annotations

import numpy as np


def load(core, model, **config):
    return core.load_network(core.read_network(model), "CPU", config)


def image(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def steps(executable):
    """The types of the planned steps of a static network."""
    request = executable.create_infer_request()
    request.infer()
    return [step.type for step in request.runner.bound.plan.steps]
