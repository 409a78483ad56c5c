"""What the table of one launch says of its stages."""

from __future__ import annotations

from polydevice.ops.pooling import MaxPool
from polydevice_gpu.compiler.settings import CompileSettings
from polydevice_gpu.kernels.launch import Weights
from polydevice_gpu.one_launch.source import FIELDS
from polydevice_gpu.one_launch.stretch import Stretch
from polydevice_gpu.runtime.plan import constant_of
from tests.gpu.graphs import Sketch, SparingBuilder, loaded


def test_weights_of_the_next_stage_are_read_ahead(opencl, monkeypatch) -> None:
    """By all groups, in lines of 128 bytes; where the next one has none, nothing is."""
    s = Sketch()
    first = s.conv("first", s.input("x", 1, 3, 6, 6), 8)
    pool = MaxPool(kernel=(3, 3), strides=(2, 2), pads_begin=(0, 0), pads_end=(0, 0))
    second = s.conv("second", s.add("pool", pool, first), 16)
    network = s.network(y=s.conv("third", second, 4, kernel=1))
    records = []
    record = Stretch.record

    def noted(self, *arguments):
        records.append(record(self, *arguments))
        return records[-1]

    monkeypatch.setattr(Stretch, "record", noted)
    settings = CompileSettings(single_launch="YES")
    executable = loaded(network, opencl, SparingBuilder(opencl), settings=settings)
    executable.create_infer_request()
    plan = executable.latest_plan()
    (stretch,) = set(plan.joined.values())
    assert len(records) == len(stretch.stages) == 4
    ahead = []
    for stage, own in zip(stretch.stages, records, strict=True):
        found = [a for a in stage.launch.arguments if isinstance(a, Weights)]
        sizes = {constant_of(a, plan.weights).size_bytes for a in found}
        places = [own[FIELDS + stage.launch.arguments.index(a)] for a in found]
        ahead.append((places[0], -(-max(sizes) // 128)) if found else (0, 0))
    assert [tuple(each[4:FIELDS]) for each in records] == [*ahead[1:], (0, 0)]
    assert [lines > 0 for _, lines in ahead] == [True, False, True, True]
