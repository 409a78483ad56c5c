"""A short, always equal campaign, and the fuzzer's own parts: it must see what is wrong."""

from __future__ import annotations

import subprocess
import sys

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from polydevice import Core
from tests.fuzz import __main__ as command
from tests.fuzz.campaign import Campaign, Failure, Plan
from tests.fuzz.check import MISTAKE, Outcome, check, compare
from tests.fuzz.files import answered, load, save
from tests.fuzz.generate import generate, rng_of
from tests.fuzz.misbehaving import Misbehaving
from tests.fuzz.mutants import base, mutant
from tests.fuzz.reduce import reduce_case
from tests.fuzz.worker import Batch, Limits, Workplace


def rounded() -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    nodes = [helper.make_node("Mul", ["x", "x"], ["s"]), helper.make_node("Floor", ["s"], ["y"])]
    return helper.make_model(
        helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 21)],
        ir_version=10,
    )  # fmt: skip


def test_a_short_campaign_finds_nothing():
    plan = Plan(minutes=5, seed=11, devices=("CPU",), start=1, count=40)
    campaign = Campaign(plan)
    campaign.run()
    assert not [f.outcome for f in campaign.failures]
    assert campaign.tried == {f"{kind} on CPU": 40 for kind in plan.kinds}


@pytest.mark.parametrize(
    ("tried", "kinds", "status"),
    [(1, [], 0), (1, ["value"], command.FOUND), (1, ["value", MISTAKE], 1), (0, [], 1)],
)
def test_exit_status_tells_a_find_from_a_defect_of_the_fuzzer(monkeypatch, tried, kinds, status):
    def run(campaign: Campaign) -> None:
        campaign.tried["models on CPU"] += tried
        batch = Batch("models", 1, 0, 1, "CPU")
        campaign.failures += [Failure(batch, 0, Outcome(kind)) for kind in kinds]

    monkeypatch.setattr(Campaign, "run", run)
    monkeypatch.setattr("sys.argv", ["fuzz", "--minutes", "0"])
    assert command.main() == status


def test_the_same_seed_makes_the_same_network():
    first, second = (generate(rng_of(3, "models", 8)) for _ in range(2))
    assert first.model.SerializeToString() == second.model.SerializeToString()
    assert all(np.array_equal(v, second.feeds[1][k]) for k, v in first.feeds[1].items())


@pytest.mark.parametrize("number", range(30))
def test_networks_are_valid(number):
    onnx.checker.check_model(generate(rng_of(1, "valid", number)).model, full_check=False)


def test_a_wrong_value_is_seen_and_a_rounding_tie_is_not():
    x = np.float32([0.5, 1.5, np.sqrt(np.float32(2)), -2.25])
    case = answered(rounded(), [{"x": x}, {"x": -x}])
    right = case.expected[0]["y"]
    assert not compare(case, 0, {"y": right}).failed
    tie = right + np.float32([0, 0, 1 if right[2] == 1 else -1, 0])  # √2·√2 is 2, or just below
    assert not compare(case, 0, {"y": tie}).failed
    assert compare(case, 0, {"y": right + np.float32([1, 0, 0, 0])}).kind == "value"
    assert compare(case, 0, {"y": right[:3]}).kind == "shape"
    assert compare(case, 0, {"y": right.astype(np.float64)}).kind == "type"


def one_node(operator: str, inputs: dict[str, np.ndarray], **attributes) -> onnx.ModelProto:
    given = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), None)
        for n, x in inputs.items()
    ]
    node = helper.make_node(operator, [*inputs], ["y"], **attributes)
    graph = helper.make_graph([node], "g", given, [helper.make_empty_tensor_value_info("y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_a_zero_that_is_a_difference_is_not_exact(dtype):
    x = np.array([-3.1875, -0.15625], dtype)
    case = answered(one_node("Gelu", {"x": x}, approximate="tanh"), [{"x": x}, {"x": x}])
    exact = np.array([-0.0020, -0.0684], dtype)  # 1 + tanh is 0 in bfloat16
    assert compare(case, 0, {"y": exact}).failed == (dtype == np.float32)
    wrong = np.array([-0.05, -0.0684], dtype)
    assert compare(case, 0, {"y": wrong}).kind == "value"


def test_a_network_is_disturbed_where_numbers_among_its_inputs_have_to_stay():
    given = {
        "x": np.tile(np.float32([1, -0.5]), (2, 2, 2, 1)),
        "roi": np.float32([]),
        "scales": np.float32([1, 1, 1, 0.7]),
    }
    model = one_node("Resize", given, mode="linear", antialias=1)
    case = answered(model, [given, given])
    off = case.expected[0]["y"] + np.float32(6e-6)
    assert not compare(case, 0, {"y": off}).failed
    assert compare(case, 0, {"y": off + np.float32(1e-3)}).kind == "value"


def test_one_pixel_between_corners_lies_where_the_reference_puts_it():
    given = {"theta": np.float32([[[1, 0, 3], [0, 1, 5]]]), "size": np.array([1, 1, 1, 2])}
    model = one_node("AffineGrid", given, align_corners=1)
    expected = answered(model, [given, given]).expected[0]["y"]
    np.testing.assert_array_equal(expected, np.float32([[[[2, 4], [4, 4]]]]))


def test_a_foreign_exception_is_seen():
    class Broken(Core):
        def load_network(self, *arguments, **settings):
            raise KeyError("port")

    x = np.ones(4, np.float32)
    case = answered(rounded(), [{"x": x}, {"x": x}])
    assert check(case, "CPU", np.random.default_rng(0), Broken()).kind == "foreign KeyError"


def test_a_failure_is_reduced_to_the_node_that_fails():
    case = generate(rng_of(6, "models", 0), ["patterns.convolution_with_tail"])

    def fails(model, feeds):
        return any(node.op_type == "Conv" for node in model.graph.node)

    small = reduce_case(case, fails)
    assert [node.op_type for node in small.model.graph.node] == ["Conv"]


def test_a_saved_case_is_the_same_when_read(tmp_path):
    case = generate(rng_of(2, "models", 4))
    save(case, tmp_path / "case")
    again = load(tmp_path / "case.onnx")
    assert again.model == case.model
    assert all(np.array_equal(v, again.feeds[0][k]) for k, v in case.feeds[0].items())
    assert set(again.expected[0]) == set(case.expected[0])


def test_mutants_differ_from_their_network_and_repeat():
    with Core() as core:
        sound = base(1, "onnx-mutants", 0, core)
        made = {mutant(sound, 1, "onnx-mutants", number)[0] for number in range(20)}
        assert len(made) > 10
        assert mutant(sound, 1, "onnx-mutants", 5) == mutant(sound, 1, "onnx-mutants", 5)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("ends", "code 7"),
        pytest.param("spins", "CPU time", marks=pytest.mark.full),
        pytest.param("sleeps", "waits for ever", marks=pytest.mark.full),
    ],
)
def test_a_child_that_ends_spins_or_waits_is_noticed_and_replaced(how, said):
    with Workplace(Limits(cpu_s=3, stuck_s=3)) as place:
        with pytest.raises(RuntimeError, match=said):
            place.one(Misbehaving(how))
        assert [d.outcome.failed for d in place.run(Batch("models", 1, 0, 1, "CPU"))] == [False]


def test_the_limit_of_address_space_ends_with_the_jobs_that_need_none():
    """Drivers of GPUs reserve more than any job takes, and find no device under a limit."""
    code = """if True:
        import resource
        from tests.fuzz.worker import _limit_memory
        before = resource.getrlimit(resource.RLIMIT_AS)
        for _ in range(2):
            _limit_memory(1 << 30)
            assert resource.getrlimit(resource.RLIMIT_AS)[0] not in (before[0], -1)
            _limit_memory(None)
            assert resource.getrlimit(resource.RLIMIT_AS) == before
        """
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
