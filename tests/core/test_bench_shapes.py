"""``polydevice bench --shapes``: what it says, and what is told of shapes that take turns."""

from __future__ import annotations

import json

import pytest

from polydevice.benchmark.measure import Statistics
from polydevice.benchmark.turns import open_shapes, over_shapes, parse_turns
from polydevice.cli import main
from polydevice.errors import OptionValueError
from polydevice.shape import Dim
from tests.cpu.models import build


def test_shapes_are_read():
    assert parse_turns("1x3,2x3", ["a", "b"], 0) == {key: [[1, 3], [2, 3]] for key in "ab"}
    assert parse_turns("a=1x8+b=4,b=5+a=1x9", ["a", "b"], 0) == {
        "a": [[1, 8], [1, 9]],
        "b": [[4], [5]],
    }
    found = parse_turns("random:200:1x3x5..7x4", ["a", "b"], 3)
    assert found["a"] == found["b"]
    assert len(found["a"]) == 200
    assert {tuple(shape) for shape in found["a"]} == {(1, 3, n, 4) for n in (5, 6, 7)}
    assert found == parse_turns("random:200:1x3x5..7x4", ["a", "b"], 3)
    assert found != parse_turns("random:200:1x3x5..7x4", ["a", "b"], 4)
    assert len(parse_turns("random:1x2..9", ["a"], 0)["a"]) == 30
    assert open_shapes(found) == {key: [1, 3, Dim(5, 7), 4] for key in "ab"}


@pytest.mark.parametrize(
    "wrong",
    ["1x3x", "1xa", "1x2..4", "random:1x4..2", "random:0:1x2", "random:x:1x2", "other:1x2", "c=1",
     "a=1", "1x-2", ""],
)  # fmt: skip
def test_what_is_no_shape_is_refused_with_an_example(wrong):
    with pytest.raises(OptionValueError, match=r"--shapes"):
        parse_turns(wrong, ["a", "b"], 0)
    with pytest.raises(OptionValueError, match="different numbers"):
        open_shapes(parse_turns("1x2,1x2x3", ["a"], 0))


def test_percentiles_are_over_shapes():
    later = ((1.0, 2.0, 30.0), (5.0,), (), (3.0, 4.0))
    statistics = Statistics((), 6, 1.0, 1, False, by_inputs=later)
    assert over_shapes([9.0, 7.0, 8.0], statistics) == {
        "first": {"p50": 8.0, "p90": 9.0, "p99": 9.0, "most": 9.0},
        "later": {"p50": 3.0, "p90": 5.0, "p99": 5.0, "most": 5.0},
    }


@pytest.mark.parametrize("shapes", ["2x5,2x300,2x7,2x9", "random:4:2x1..500"])
@pytest.mark.parametrize("sizes", [("n", "w"), (1, 5)], ids=["unknown", "fixed"])
def test_shapes_take_turns(shapes, sizes, tmp_path, capsys):
    path, out = tmp_path / "model.onnx", tmp_path / "out.json"
    path.write_bytes(build([("Relu", ["x"], ["y"], {})], {"x": sizes}, ("y",), {}))
    command = ["bench", "-m", str(path), "-niter", "12", "--json", str(out), "--shapes", shapes]
    assert main(command) == 0
    assert "4 shapes: p50" in capsys.readouterr().out
    (result,) = json.loads(out.read_text())["results"]
    assert result["number of iterations"] == 12
    assert list(result["over shapes (ms)"]) == ["first", "later"]
    assert main([*command, "-b", "2"]) == 1
    assert "--shapes" in capsys.readouterr().err
