"""Loops that stay loops: bodies run on the device, values stay in its memory."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpu.loop_models import body, model, nested_layers, op, right

KEEP = {"GPU_ENABLE_LOOP_UNROLLING": "NO"}
TYPES = {"f4": (1e-4, 1e-5), "f2": (2e-2, 2e-2)}
YES = {"yes": np.bool_(True)}


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(2121)


def check(core, content, *feeds, config=KEEP, tolerance=TYPES["f4"], where="device"):
    """Infer each of the feeds twice, by turns, on two requests, and compare with ONNX Runtime."""
    executable = core.load_network(core.read_network(content), "GPU", config)
    requests = [executable.create_infer_request() for _ in range(2)]
    wanted = [right(content, each) for each in feeds]
    for _ in range(2):
        for given, expected in zip(feeds, wanted, strict=True):
            for request in requests:
                found = request.infer(given)
                for got, want in zip(found.values(), expected, strict=True):
                    assert got.shape == want.shape
                    np.testing.assert_allclose(
                        got.astype("f8"), want.astype("f8"), *tolerance, equal_nan=False
                    )
    assert set(nested_layers(executable).values()) <= {where}
    return executable


# -- sequences --------------------------------------------------------------------------------


def recurrence(kind: str, steps: int, axis: int, *, backwards: bool = False) -> bytes:
    """h ← tanh(x_t·W + h·R + b); all of h, the last, and a shifted sum of the inputs."""
    shape = [3, 5]
    whole = [*shape[:axis], steps, *shape[axis:]]
    rng = np.random.default_rng(5)
    weights = {
        "W": rng.normal(0, 0.4, (5, 7)), "R": rng.normal(0, 0.4, (7, 7)), "b": rng.normal(size=7),
    }  # fmt: skip
    inside = body(
        [
            op("xw = MatMul(part, W)"), op("hr = MatMul(h, R)"), op("sum = Add(xw, hr)"),
            op("biased = Add(sum, b)"), op("next = Tanh(biased)"), op("each = Neg(next)"),
            op("total = Add(s, part)"), op("other = Identity(total)"),
        ],
        [("h", kind, [3, 7]), ("s", kind, shape), ("part", kind, shape)],
        [
            ("next", kind, [3, 7]), ("total", kind, shape), ("each", kind, [3, 7]),
            ("other", kind, shape),
        ],
    )  # fmt: skip
    way = int(backwards)
    loop = op(
        "last, sum, all, sums = Scan(h0, s0, x)", body=inside, num_scan_inputs=1,
        scan_input_axes=[axis], scan_input_directions=[way], scan_output_axes=[1, axis],
        scan_output_directions=[way, 1 - way],
    )  # fmt: skip
    return model(
        [loop],
        [("x", kind, whole), ("h0", kind, [3, 7]), ("s0", kind, shape)],
        ["last", "sum", "all", "sums"],
        {name: value.astype(kind) for name, value in weights.items()},
    )


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("kind", TYPES)
def test_sequences(core, rng, kind, axis, backwards) -> None:
    for steps in (2, 5, 6):
        shape = [3, 5]
        shape.insert(axis, steps)
        content = recurrence(kind, steps, axis, backwards=backwards)
        feeds = [
            {
                "x": rng.normal(size=shape).astype(kind),
                "h0": rng.normal(size=(3, 7)).astype(kind),
                "s0": rng.normal(size=(3, 5)).astype(kind),
            }
            for _ in range(2)
        ]
        executable = check(core, content, *feeds, tolerance=TYPES[kind])
        assert len(nested_layers(executable)) == 1


def test_unrolled_and_kept_agree(core, rng) -> None:
    content = recurrence("f4", 5, 1)
    feed = {"x": rng.normal(size=(3, 5, 5)), "h0": np.ones((3, 7)), "s0": np.ones((3, 5))}
    feed = {name: value.astype("f4") for name, value in feed.items()}
    assert nested_layers(check(core, content, feed, config={})) == {}
    check(core, content, feed)


def test_half_precision_inside(core, rng) -> None:
    content = recurrence("f4", 4, 1)
    feed = {"x": rng.normal(size=(3, 4, 5)), "h0": np.ones((3, 7)), "s0": np.ones((3, 5))}
    feed = {name: value.astype("f4") for name, value in feed.items()}
    config = {**KEEP, "INFERENCE_PRECISION_HINT": "f16"}
    check(core, content, feed, config=config, tolerance=TYPES["f2"])


def test_results_are_the_same_the_hundredth_time_and_between_others(core, rng) -> None:
    content = recurrence("f4", 7, 1)
    executable = core.load_network(core.read_network(content), "GPU", KEEP)
    requests = [executable.create_infer_request() for _ in range(3)]
    feeds = [
        {
            "x": rng.normal(size=(3, 7, 5)).astype("f4"),
            "h0": rng.normal(size=(3, 7)).astype("f4"),
            "s0": rng.normal(size=(3, 5)).astype("f4"),
        }
        for _ in requests
    ]
    first = [{n: a.copy() for n, a in r.infer(f).items()} for r, f in zip(requests, feeds)]
    for _ in range(100):
        for request, feed in zip(requests, feeds, strict=True):
            request.start_async(feed)
        for request, before in zip(requests, first, strict=True):
            request.wait()
            for name, array in before.items():
                np.testing.assert_array_equal(request.get_blob(name).array, array)


# -- how often --------------------------------------------------------------------------------


def counting(*, joined: bool, condition: str = "", typed: str = "i8") -> bytes:
    """x ← 2·x + i, from trips, first and a limit that are inputs."""
    nodes = [
        op("f = Cast(i)", to=1), op("twice = Mul(x, two)"), op("next = Add(twice, f)"),
        op("on = Identity(go)"),
    ]  # fmt: skip
    if condition == "value":
        nodes[3:] = [op("most = ReduceMax(next)", keepdims=0), op("on = Less(most, limit)")]
    if condition == "number":
        nodes[3:] = [op("on = Less(f, limit)")]
    outputs = [("on", "b", []), ("next", "f4", [3, 5])]
    if joined:
        nodes.append(op("each = Mul(next, f)"))
        outputs.append(("each", "f4", [3, 5]))
    inside = body(
        nodes, [("i", "i8", []), ("go", "b", []), ("x", "f4", [3, 5])], outputs,
        {"two": np.float32(2)},
    )  # fmt: skip
    results = ["y", "all"] if joined else ["y"]
    return model(
        [
            op(f"{', '.join(results)} = Loop(trips, first, x0)", body=inside),
            op("used = Neg(limit)"),
        ],
        [("trips", "i8", []), ("first", "b", []), ("x0", "f4", [3, 5]), ("limit", "f4", [])],
        [*results, "used"],
    )


def feed(rng, trips: int, first: bool = True, limit: float = 20.0) -> dict:
    x = rng.normal(size=(3, 5)).astype("f4")
    return {
        "trips": np.int64(trips), "first": np.bool_(first), "x0": x, "limit": np.float32(limit),
    }  # fmt: skip


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("condition", ["", "value", "number"])
def test_trip_count_and_conditions_from_inputs(core, rng, condition, joined) -> None:
    """Which are host arrays here, so that nothing has to be read for the first two."""
    feeds = [feed(rng, 4), feed(rng, 1), feed(rng, 0), feed(rng, 5, first=False), feed(rng, 30)]
    if not condition:
        feeds.pop()
    executable = check(core, counting(joined=joined, condition=condition), *feeds)
    assert len(nested_layers(executable)) == 1


def test_no_iteration_gives_the_initial_value(core, rng) -> None:
    executable = core.load_network(core.read_network(counting(joined=True)), "GPU", KEEP)
    for given in (feed(rng, 0), feed(rng, 3, first=False)):
        found = executable.infer(given)
        np.testing.assert_array_equal(found["y"], given["x0"])
        assert found["all"].shape == (0, 3, 5)


def test_trip_count_that_the_device_computes(core, rng) -> None:
    inside = body(
        [op("next = Add(x, one)"), op("on = Identity(go)")],
        [("i", "i8", []), ("go", "b", []), ("x", "f4", [7])],
        [("on", "b", []), ("next", "f4", [7])],
        {"one": np.float32(1)},
    )
    content = model(
        [
            op("sum = ReduceSum(n)", keepdims=0), op("trips = Cast(sum)", to=7),
            op("y = Loop(trips, yes, x0)", body=inside),
        ],
        [("n", "f4", [3]), ("x0", "f4", [7])], ["y"], YES,
    )  # fmt: skip
    x = rng.normal(size=7).astype("f4")
    feeds = [{"n": np.float32(n), "x0": x} for n in ([1, 2, 3], [0, 0, 0], [1, 0, 0])]
    executable = check(core, content, *feeds)
    found = executable.infer({"n": np.float32([2, 1, 1]), "x0": x})
    np.testing.assert_allclose(found["y"], x + 4, rtol=1e-6)


def test_parts_whose_sizes_come_late_are_the_hosts(core, rng) -> None:
    inside = body(
        [
            op("next = Mul(x, two)"), op("on = Identity(go)"), op("places = NonZero(next)"),
        ],
        [("i", "i8", []), ("go", "b", []), ("x", "f4", [5])],
        [("on", "b", []), ("next", "f4", [5]), ("places", "i8", [1, "n"])],
        {"two": np.float32(2)},
    )  # fmt: skip
    content = model(
        [op("last, all = Loop(trips, yes, x0)", body=inside)],
        [("x0", "f4", [5])], ["last", "all"], {**YES, "trips": np.int64(3)},
    )  # fmt: skip
    check(core, content, {"x0": np.float32([1, 0, 2, 0, 0])}, where="host")


def test_a_loop_ends_that_its_body_never_changes(core) -> None:
    """What is carried unchanged is known: the condition stays true, so the count is known too."""
    inside = body(
        [op("next = Mul(x, x)"), op("on = Identity(go)"), op("same = Identity(k)")],
        [("i", "i8", []), ("go", "b", []), ("x", "f4", [2]), ("k", "f4", [2])],
        [("on", "b", []), ("next", "f4", [2]), ("same", "f4", [2]), ("same", "f4", [2])],
    )
    content = model(
        [op("y, k, ks = Loop(three, yes, x, k0)", body=inside)],
        [("x", "f4", [2]), ("k0", "f4", [2])], ["y", "k", "ks"], {"three": np.int64(3), **YES},
    )  # fmt: skip
    executable = check(core, content, {"x": np.float32([1, 2]), "k0": np.float32([3, 4])})
    found = executable.infer({"x": np.float32([1, 2]), "k0": np.float32([3, 4])})
    np.testing.assert_array_equal(found["y"], [1, 256])
    np.testing.assert_array_equal(found["ks"], [[3, 4]] * 3)
    assert executable.outputs["ks"].name == "ks"
    assert "the host reads" not in executable.explain()


def test_endless_loops_end_with_an_error_and_the_request_goes_on(core, rng, monkeypatch) -> None:
    from polydevice.errors import InferenceError
    from polydevice_gpu.control_flow import loop

    content = counting(joined=False, condition="value")
    executable = core.load_network(core.read_network(content), "GPU", KEEP)
    monkeypatch.setattr(loop, "ITERATION_LIMIT", 50)
    request = executable.create_infer_request()
    good, endless = feed(rng, 4), feed(rng, 1 << 40, limit=np.inf)
    endless["x0"] = -np.abs(endless["x0"]) - 100  # falls for ever
    for _ in range(2):
        with pytest.raises(InferenceError, match="50 iterations without an end"):
            request.infer(endless)
        np.testing.assert_allclose(request.infer(good)["y"], right(content, good)[0], rtol=1e-5)


def test_more_iterations_than_the_queue_may_hold(core, monkeypatch) -> None:
    from polydevice_gpu.runtime import backlog

    monkeypatch.setattr(backlog, "ITERATIONS", 16)
    inside = body(
        [op("next = Add(x, one)"), op("on = Identity(go)")],
        [("i", "i8", []), ("go", "b", []), ("x", "i4", [1])],
        [("on", "b", []), ("next", "i4", [1])],
        {"one": np.int32(1)},
    )
    content = model(
        [op("y = Loop(trips, yes, x)", body=inside)],
        [("x", "i4", [1])], ["y"], {"trips": np.int64(1000), **YES},
    )  # fmt: skip
    executable = core.load_network(core.read_network(content), "GPU", KEEP)
    for start in (0, 5, -7):
        assert executable.infer({"x": np.int32([start])})["y"] == [start + 1000]


# -- what is carried --------------------------------------------------------------------------


def test_values_that_change_places(core) -> None:
    """Fibonacci's numbers: a, b ← b, a + b, as far as 5 → 5, 8 from 0, 1."""
    inside = body(
        [op("c = Add(a, b)"), op("on = Identity(go)"), op("was = Identity(b)")],
        [("i", "i8", []), ("go", "b", []), ("a", "i8", [1]), ("b", "i8", [1])],
        [("on", "b", []), ("was", "i8", [1]), ("c", "i8", [1]), ("was", "i8", [1])],
    )
    for trips, expected in ((5, (5, 8)), (6, (8, 13)), (1, (1, 1))):
        content = model(
            [op("p, q, all = Loop(trips, yes, a, b)", body=inside)],
            [("a", "i8", [1]), ("b", "i8", [1])], ["p", "q", "all"],
            {"trips": np.int64(trips), **YES},
        )  # fmt: skip
        executable = core.load_network(core.read_network(content), "GPU", KEEP)
        for _ in range(2):
            found = executable.infer({"a": np.int64([0]), "b": np.int64([1])})
            assert (int(found["p"][0]), int(found["q"][0])) == expected
            assert found["all"].ravel().tolist() == [1, 1, 2, 3, 5, 8][:trips]


def test_one_result_read_by_two(core) -> None:
    inside = body(
        [op("c = Add(a, b)"), op("on = Identity(go)")],
        [("i", "i8", []), ("go", "b", []), ("a", "f4", [3]), ("b", "f4", [3])],
        [("on", "b", []), ("c", "f4", [3]), ("c", "f4", [3]), ("c", "f4", [3])],
    )
    content = model(
        [op("p, q, all = Loop(three, yes, a, b)", body=inside)],
        [("a", "f4", [3]), ("b", "f4", [3])], ["p", "q", "all"], {"three": np.int64(3), **YES},
    )  # fmt: skip
    check(core, content, {"a": np.float32([1, 2, 3]), "b": np.float32([0.5, 0, -1])})


def test_what_the_body_takes_from_around_it(core, rng) -> None:
    """A computed value, a constant and an input; initial values that are constants."""
    inside = body(
        [
            op("scaled = Mul(x, computed)"), op("more = Add(scaled, k)"), op("next = Add(more, z)"),
            op("on = Identity(go)"),
        ],
        [("i", "i8", []), ("go", "b", []), ("x", "f4", [4, 3])],
        [("on", "b", []), ("next", "f4", [4, 3]), ("scaled", "f4", [4, 3])],
    )  # fmt: skip
    weights = {"three": np.int64(3), "x0": np.eye(4, 3, dtype="f4"), "k": np.float32(0.25), **YES}
    content = model(
        [
            op("t = Transpose(z)", perm=[1, 0]), op("s = Sigmoid(t)"),
            op("computed = Transpose(s)", perm=[1, 0]),
            op("y, all = Loop(three, yes, x0)", body=inside), op("out = Relu(y)"),
        ],
        [("z", "f4", [4, 3])], ["out", "all"], weights,
    )  # fmt: skip
    check(core, content, *({"z": rng.normal(size=(4, 3)).astype("f4")} for _ in range(2)))


@pytest.mark.parametrize("kind", ["f4", "i4", "i8", "f2"])
def test_sliced_constants_and_types(core, rng, kind) -> None:
    table = rng.integers(-9, 9, (5, 3)).astype(kind)
    inside = body(
        [op("next = Add(s, part)"), op("each = Mul(next, part)")],
        [("s", kind, [3]), ("part", kind, [3])], [("next", kind, [3]), ("each", kind, [3])],
    )  # fmt: skip
    content = model(
        [op("y, all = Scan(s0, table)", body=inside, num_scan_inputs=1)],
        [("s0", kind, [3])], ["y", "all"], {"table": table},
    )  # fmt: skip
    check(core, content, {"s0": rng.integers(-5, 5, 3).astype(kind)}, tolerance=(1e-3, 1e-3))


def test_large_odd_parts(core, rng) -> None:
    """Parts whose beginnings are not aligned to any vector."""
    inside = body(
        [op("next = Add(s, part)"), op("each = Relu(next)")],
        [("s", "f4", [2, 37]), ("part", "f4", [2, 37])],
        [("next", "f4", [2, 37]), ("each", "f4", [2, 37])],
    )
    for axis in (0, 1, 2):
        shape = [2, 37]
        shape.insert(axis, 9)
        content = model(
            [
                op("y, all = Scan(s0, x)", body=inside, num_scan_inputs=1, scan_input_axes=[axis],
                   scan_output_axes=[axis]),
            ],
            [("s0", "f4", [2, 37]), ("x", "f4", shape)], ["y", "all"],
        )  # fmt: skip
        given = {"s0": rng.normal(size=(2, 37)), "x": rng.normal(size=shape)}
        check(core, content, {name: value.astype("f4") for name, value in given.items()})
