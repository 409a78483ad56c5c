"""How far outputs are apart in the units of a bound, and the search for the fewest steps."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from polydevice import Core
from polydevice.accuracy.calibration import given_samples, random_samples
from polydevice.accuracy.search import Search
from polydevice.errors import OptionValueError
from polydevice.options.accuracy_bound import AccuracyBound


@pytest.mark.parametrize(
    ("text", "ours", "reference", "error"),
    [
        ("1e-2", [1.0, 2.0], [1.0, 4.0], 0.5),  # two of four
        ("1e-2", [0.0], [0.0], 0.0),
        ("1e-2", [1e-9], [0.0], np.inf),
        ("1e-2", [np.nan, np.inf], [np.nan, np.inf], 0.0),
        ("1e-2", [np.inf], [1.0], np.inf),
        ("1e-2", [1.0], [np.nan], np.inf),
        ("8ulp", [1.0 + 2.0**-10], [1.0], 1.0),  # f16 has ten bits behind the point
        ("8 ULP", [2048.0], [2052.0], 2.0),  # from 2048 on, f16 steps by two
        ("8ulp", [2.0**-24], [0.0], 1.0),  # the smallest number of f16
        ("1e-2", [1, 2, 3, 4], [1, 2, 3, 9], 0.25),  # a quarter of the integers differs
        ("1e-2", [True, False], [True, False], 0.0),
        ("8ulp", [1, 2], [1, 3], np.inf),
        ("1e-2", [1.0], [[1.0]], np.inf),
    ],
)
def test_error_of_an_output(text, ours, reference, error) -> None:
    bound = AccuracyBound.parse(text)
    assert bound is not None
    assert bound.error(np.asarray(ours), np.asarray(reference)) == pytest.approx(error)


@pytest.mark.parametrize("text", ["x", "0", "-1", "nan", "inf", "ulp", True, "1e-2%", None])
def test_bounds_that_are_none(text) -> None:
    with pytest.raises(ValueError, match="legal: a part of the largest element"):
        AccuracyBound.parse(text)
    with Core() as core, pytest.raises(OptionValueError, match="ACCURACY_GUARD="):
        core.set_config({"ACCURACY_GUARD": text}, "CPU")


STEPS = [(f"layer {n}",) for n in range(100)]


def searched(own, limit, *, trials_left=10**6, together=0.0):
    """Search where a step's error is known, and errors of steps add like independent ones."""
    calls = []

    def measure(kept):
        calls.append(kept)
        rest = [own.get(int(step[0].split()[1]), 0.0) for step in STEPS if step not in kept]
        return float(np.sqrt(np.sum(np.square(rest)))) * (1 + together * (len(rest) > 1))

    search = Search(STEPS, measure, limit, lambda: len(calls) >= trials_left)
    return search.run(measure(frozenset())), search, calls


@pytest.mark.parametrize("guilty", [[0], [99], [49, 50], [3, 40, 41, 77], []])
def test_only_the_guilty_are_kept_and_few_trials_find_them(guilty) -> None:
    own = {**dict.fromkeys(range(0, 100, 3), 1e-4), **dict.fromkeys(guilty, 0.3)}
    found, search, calls = searched(own, 1e-2)
    assert found and search.error <= 1e-2
    assert [step for step in STEPS if step in search.kept] == [STEPS[n] for n in guilty]
    assert all(search.kept[STEPS[n]] == pytest.approx(0.3, rel=1e-3) for n in guilty)
    assert len(calls) <= 3 + 15 * len(guilty)


@pytest.mark.parametrize("together", [0.0, 0.5])
def test_many_small_errors_cost_as_many_steps_as_it_takes(together) -> None:
    """Each of a hundred steps errs by 0.5 %: of independent ones, four make 1 %."""
    found, search, _ = searched(dict.fromkeys(range(100), 5e-3), 1e-2, together=together)
    most = 4 if not together else 1
    assert found and 100 - len(search.kept) in range(1, most + 1)


def test_when_the_time_is_over_whole_groups_are_kept() -> None:
    found, search, calls = searched({10: 0.3, 80: 0.3}, 1e-2, trials_left=5)
    assert found and search.error <= 1e-2
    assert STEPS[10] in search.kept and STEPS[80] in search.kept
    assert 2 < len(search.kept) < 100 and len(calls) < 12


def test_what_cannot_be_reached_is_said() -> None:
    """Even with everything kept, as where a network draws random numbers."""
    search = Search(STEPS[:4], lambda kept: 1.0, 1e-2, lambda: False)
    assert not search.run(1.0)
    assert len(search.kept) == 4


def network_of(core, shape, kind="f32"):
    from polydevice import opset

    x = opset.parameter(shape, kind, name="x")
    y = opset.logical_not(x) if kind == "boolean" else opset.relu(x)
    return opset.network("n", {"y": y})


def test_random_samples_differ_repeat_and_have_the_inputs_types() -> None:
    with Core() as core:
        network = network_of(core, [-1, 3, 16, 16])
        samples = [sample["x"] for sample in random_samples(network)]
        again = [sample["x"] for sample in random_samples(network)]
        assert [s.shape for s in samples] == [(1, 3, 16, 16)] * 4
        assert all(s.dtype == np.float32 and np.isfinite(s).all() for s in samples)
        for one, other in itertools.combinations(samples, 2):
            assert np.abs(one - other).max() > 0.1
        for one, other in zip(samples, again, strict=True):
            np.testing.assert_array_equal(one, other)
        for kind in ("u8", "i8", "i32", "u4", "boolean", "f16", "bf16"):
            (first, *_) = random_samples(network_of(core, [5], kind))
            assert (
                first["x"].dtype
                == core.load_network(network_of(core, [5], kind), "CPU").inputs["x"].dtype
            )
        with pytest.raises(
            OptionValueError, match="input 'x' has the shape .*ACCURACY_GUARD_INPUTS"
        ):
            random_samples(network_of(core, [1, -1]))


def test_given_samples_are_read_and_what_they_lack_is_said(tmp_path) -> None:
    with Core() as core:
        network = network_of(core, [2, 3])
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        np.savez(tmp_path / "a.npz", x=x, unused=x)
        np.save(tmp_path / "b.npy", 2 * x)
        (tmp_path / "notes.txt").write_text("not an input")
        first, second = given_samples(network, str(tmp_path))
        np.testing.assert_array_equal(first["x"], x)
        np.testing.assert_array_equal(second["x"], 2 * x)
        np.savez(tmp_path / "c.npz", X=x)
        with pytest.raises(OptionValueError, match="no array 'x'"):
            given_samples(network, str(tmp_path / "c.npz"))
        (tmp_path / "d.npy").write_bytes(b"no array")
        with pytest.raises(OptionValueError, match="cannot be read"):
            given_samples(network, str(tmp_path / "d.npy"))
        with pytest.raises(OptionValueError, match="has no inputs; legal"):
            given_samples(network, str(tmp_path / "missing"))
