"""Texts that are cut and padded: what is new is empty."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.onnx.models import model, run, tensor, value


@pytest.mark.parametrize("across", [False, True])
def test_center_crop_pad_of_texts(across, device):
    if across:  # constants that are texts go where they are read
        device = "HETERO:CPU" if device == "CPU" else f"HETERO:{device},CPU"
    node = helper.make_node("CenterCropPad", ["x", "s"], ["y"], axes=[0, 1])
    proto = model(
        [node], [value("x", (2, 3), TensorProto.STRING)], [value("y", None, TensorProto.STRING)],
        initializers=[tensor("s", np.array([4, 1]))],
    )  # fmt: skip
    for words in (["a", "b", "c", "d", "e", "f"], ["", "ä", "", "x y", "z", "0"]):
        x = np.array(words, object).reshape(2, 3)
        (y,) = run(proto, x, device=device)
        assert y.tolist() == [[""], [x[0, 1]], [x[1, 1]], [""]]
