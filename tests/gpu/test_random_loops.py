"""Random loops give ONNX Runtime's answers, written out and kept."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpu.loop_models import body, model, op, right
from tests.tiers import firsts

GO = {"yes": np.bool_(True)}


def random_loop(rng: np.random.Generator) -> tuple[bytes, dict[str, np.ndarray]]:
    """Carried values, parts and things from around, mixed by a few layers; Scan or Loop."""
    shape = [int(n) for n in rng.integers(1, 6, rng.integers(1, 4))]
    steps = int(rng.integers(1, 6))
    scanned = rng.random() < 0.6
    carried = [f"c{i}" for i in range(rng.integers(1, 4))]
    parts = [f"p{i}" for i in range(rng.integers(1, 3))] if scanned else []
    feeds = {f"{name}_first": rng.normal(size=shape).astype("f4") for name in carried}
    feeds["around"] = rng.normal(size=shape).astype("f4")
    known = [*carried, *parts, "around", "k"]
    nodes = [] if scanned else [op("on = Identity(go)")]
    for number in range(int(rng.integers(2, 7))):
        a, b = rng.choice(known, 2)
        kind = rng.choice(["Add", "Sub", "Mul", "Max", "Tanh", "Sigmoid", "Neg", "Softmax"])
        arguments = f"{a}, {b}" if kind in ("Add", "Sub", "Mul", "Max") else a
        nodes.append(op(f"t{number} = {kind}({arguments})"))
        known.append(f"t{number}")
    made = [name for name in known if name.startswith("t")]
    results = []
    for name in carried:
        # Sometimes it stays as it is, or becomes another one's present value.
        source = rng.choice([*made, *carried]) if rng.random() < 0.8 else name
        nodes += [
            op(f"{name}_bounded = Clip({source}, low, high)"),
            op(f"{name}_next = Identity({name}_bounded)"),
        ]
        results.append((f"{name}_next", "f4", shape))
    joined = []
    for number in range(rng.integers(1, 3)):
        nodes.append(op(f"j{number} = Identity({rng.choice([*made, *carried])})"))
        joined.append((f"j{number}", "f4", shape))
    weights = {
        "k": rng.normal(size=shape).astype("f4"), "low": np.float32(-3), "high": np.float32(3),
    }  # fmt: skip
    firsts = ", ".join(f"{name}_first" for name in carried)
    outputs = [f"last{i}" for i in range(len(carried))] + [f"all{i}" for i in range(len(joined))]
    inputs = [(name, "f4", shape) for name in feeds]
    if scanned:
        axes = [int(n) for n in rng.integers(0, len(shape) + 1, len(parts))]
        for name, axis in zip(parts, axes, strict=True):
            whole = [*shape[:axis], steps, *shape[axis:]]
            feeds[f"{name}_all"] = rng.normal(size=whole).astype("f4")
            inputs.append((f"{name}_all", "f4", whole))
        inside = body(
            nodes, [(name, "f4", shape) for name in [*carried, *parts]], [*results, *joined]
        )
        wholes = ", ".join(f"{name}_all" for name in parts)
        loop = op(
            f"{', '.join(outputs)} = Scan({firsts}, {wholes})", body=inside,
            num_scan_inputs=len(parts), scan_input_axes=axes,
            scan_input_directions=[int(n) for n in rng.integers(0, 2, len(parts))],
            scan_output_axes=[int(n) for n in rng.integers(0, len(shape) + 1, len(joined))],
            scan_output_directions=[int(n) for n in rng.integers(0, 2, len(joined))],
        )  # fmt: skip
    else:
        inside = body(
            nodes,
            [("i", "i8", []), ("go", "b", []), *((name, "f4", shape) for name in carried)],
            [("on", "b", []), *results, *joined],
        )
        loop = op(f"{', '.join(outputs)} = Loop(steps, yes, {firsts})", body=inside)
        weights |= {"steps": np.int64(steps), **GO}
    return model([loop], inputs, outputs, weights), feeds


@pytest.mark.parametrize("seed", firsts(3, range(12)))
def test_random_loop(core, seed) -> None:
    content, feeds = random_loop(np.random.default_rng([seed, 4]))
    expected = right(content, feeds)
    for unrolling in ("YES", "NO"):
        config = {"GPU_ENABLE_LOOP_UNROLLING": unrolling}
        executable = core.load_network(core.read_network(content), "GPU", config)
        assert not [node for node in executable.latest_plan().graph.nodes if node.on_host]
        request = executable.create_infer_request()
        for _ in range(2):
            for got, want in zip(request.infer(feeds).values(), expected, strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5, err_msg=unrolling)


def test_nothing_is_written_outside_of_its_memory(core) -> None:
    for seed in range(4):
        content, feeds = random_loop(np.random.default_rng([seed, 4]))
        config = {"GPU_ENABLE_LOOP_UNROLLING": "NO"}
        executable = core.load_network(core.read_network(content), "GPU", config)
        memory = executable.context.device.memory
        memory.guard_bytes = 4096
        try:
            request = executable.create_infer_request()
            for got, want in zip(request.infer(feeds).values(), right(content, feeds), strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
            memory.check_guards()
        finally:
            memory.guard_bytes = 0
