"""How many launches real networks take: a pass that stops working shows here."""

from __future__ import annotations

from pathlib import Path

import pytest

from polydevice import Core
from polydevice_cpu.implement import evaluate
from tests.gpu.graphs import compiled, launching

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("file", "most"),
    [
        # 49 convolutions, a mean and a product.
        ("samples/models/efficientnet_lite0/efficientnet_lite0.xml", 51),
        # 37 convolutions and three pools; residual sums, heads and what widens are part of them.
        ("samples/models/blazeface/blazeface.xml", 40),
        # 9 convolutions and two transposed ones; nested concatenations are not copied.
        ("tests/models/data/wechat_qr_sr.xml", 11),
        # 80 convolutions, a pool and a softmax; the heads of SSD are not copied.
        ("tests/models/data/wechat_qr_detect_ssd.xml", 82),
    ],
    ids=["efficientnet_lite0", "blazeface", "wechat_qr_sr", "wechat_qr_detect_ssd"],
)
def test_no_more_than_there_have_to_be(file: str, most: int) -> None:
    with Core() as core:
        network = core.read_network(ROOT / file)
    sizes = {
        node.name: [size if isinstance(size, int) else 1 for size in node.output.shape or ()]
        for node in network.parameters
    }
    network.evaluate = evaluate
    network.reshape(sizes)
    counts = launching(compiled(network, vector_width=8), vector_width=8)
    assert sum(counts.values()) <= most, counts
