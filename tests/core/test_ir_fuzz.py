"""Mutated IR files: whatever they say, reading ends soon, in a network or one of our exceptions."""

from __future__ import annotations

import re
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import polydevice.ops  # noqa: F401 - fills the table of operations
from polydevice.errors import ModelError, NetworkError
from polydevice.readers.ir import read_ir
from polydevice.readers.limits import ReadLimits

from .ir_text import addition, constant, edges, layer, net, parameter, result
from .test_ir_reader import tensor_iterator

LIMIT_S = 5
LIMIT_BYTES = 2 << 30
LIMITS = ReadLimits(tensor_elements=1 << 24, layer_outputs=1000)


def convolutions() -> bytes:
    """Several operations with attributes of every kind: lists, enumerations, numbers, booleans."""
    image, half = (1, 4, 9, 11), (1, 6, 5, 6)
    return net(
        parameter(0, "image", image)
        + constant(1, "w", (6, 4, 3, 3), 0, 864)
        + layer(2, "conv", "Convolution",
                {"strides": "2,2", "dilations": "1,1", "pads_begin": "1,1", "pads_end": "1,1",
                 "auto_pad": "explicit"},
                [(0, "FP32", image), (1, "FP32", (6, 4, 3, 3))], [(2, "FP32", half)])
        + layer(3, "clamp", "Clamp", {"min": "-1.5", "max": "6"}, [(0, "FP32", half)],
                [(1, "FP32", half)])
        + constant(4, "shape", (3,), 864, 24, "i64")
        + layer(5, "flat", "Reshape", {"special_zero": "true"},
                [(0, "FP32", half), (1, "I64", (3,))], [(2, "FP32", (1, 6, 30))])
        + constant(6, "axis", (), 888, 8, "i64")
        + layer(7, "parts", "Split", {"num_splits": "3"},
                [(0, "FP32", (1, 6, 30)), (1, "I64", ())],
                [(2, "FP32", (1, 2, 30)), (3, "FP32", (1, 2, 30)), (4, "FP32", (1, 2, 30))])
        + layer(8, "joined", "Concat", {"axis": "-1"},
                [(0, "FP32", (1, 2, 30)), (1, "FP32", (1, 2, 30))], [(2, "FP32", (1, 2, 60))])
        + result(9, "y", (1, 2, 60)),
        edges((0, 0, 2, 0), (1, 0, 2, 1), (2, 2, 3, 0), (3, 1, 5, 0), (4, 0, 5, 1), (5, 2, 7, 0),
              (6, 0, 7, 1), (7, 2, 8, 0), (7, 4, 8, 1), (8, 2, 9, 0)),
    )  # fmt: skip


WEIGHTS = (
    np.arange(216, dtype=np.float32).tobytes()
    + np.int64([0, 6, -1]).tobytes()
    + np.int64([1]).tobytes()
)
SEEDS = [addition(), addition(10), convolutions(), tensor_iterator()]


@contextmanager
def limited_memory() -> Iterator[None]:
    """Let allocations beyond what the process has now plus the limit fail."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + LIMIT_BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def survives(topology: bytes, weights: bytes) -> bool:
    """Read; return whether a network came out. Any exception but ours fails the test."""
    start = time.thread_time()
    cause = None
    try:
        with limited_memory():
            read_ir(topology, weights, LIMITS)
        read = True
    except (ModelError, NetworkError) as error:
        read, cause = False, error.__cause__
    assert not isinstance(cause, MemoryError)
    assert time.thread_time() - start < LIMIT_S
    return read


def test_the_seeds_themselves_are_read():
    for seed in SEEDS:
        assert survives(seed, WEIGHTS)


fuzz = settings(
    max_examples=400, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@fuzz
@given(
    st.sampled_from(SEEDS),
    st.lists(st.tuples(st.integers(0, 10_000), st.binary(min_size=0, max_size=4)), max_size=4),
)
def test_bytes_overwritten(seed, changes):
    text = bytearray(seed)
    for position, replacement in changes:
        position %= len(text)
        text[position : position + len(replacement)] = replacement
    survives(bytes(text), WEIGHTS)


ODD = st.sampled_from(
    ["", "-1", "0", "1", "2", "3", "7", "-9223372036854775808", "9223372036854775807", "1e308",
     "18446744073709551616", "nan", "inf", "-0", "?", "...", "1..2", "..", ",", ",,,", "0,0", "1,2",
     "-1,-1", "2147483648,2147483648", "1" * 400, "true", "false", "None", "f32", "u1", "i4",
     "string", "dynamic", "boolean", "undefined", "Const", "Result", "Parameter", "If", "Loop",
     "TensorIterator", "Split", "ShapeOf", "Transpose", "opset8", "opset15", "\u0000".strip("\0"),
     "%s%n", "../../x", "é", "[1]"]
)  # fmt: skip
VALUE = re.compile(rb'="([^"]*)"')


@fuzz
@given(
    st.sampled_from(SEEDS), st.lists(st.tuples(st.integers(0, 10_000), ODD), min_size=1, max_size=3)
)
@example(SEEDS[2], [(0, "11")])
def test_attribute_values_exchanged(seed, changes):
    text = seed
    for position, value in changes:
        found = list(VALUE.finditer(text))
        start, end = found[position % len(found)].span(1)
        text = text[:start] + value.encode() + text[end:]
    survives(text, WEIGHTS)


ELEMENT = re.compile(rb"<[^<>]*?/?>")


@fuzz
@given(
    st.sampled_from(SEEDS),
    st.lists(
        st.tuples(st.sampled_from("dup del swap"), st.integers(0, 10_000), st.integers(0, 10_000)),
        min_size=1,
        max_size=3,
    ),
)
def test_layers_edges_and_ports_duplicated_deleted_or_swapped(seed, changes):
    """Whole leaf elements move, so that the text stays well-formed XML."""
    text = seed
    for what, first, second in changes:
        leaves = [m for m in ELEMENT.finditer(text) if m.group().endswith(b"/>")]
        leaves += re.finditer(rb"<(layer|port|dim|edge) .*?</\1>", text)
        if not leaves:
            break
        a, b = leaves[first % len(leaves)], leaves[second % len(leaves)]
        if what == "del":
            text = text[: a.start()] + text[a.end() :]
        elif what == "dup":
            text = text[: b.start()] + a.group() + text[b.start() :]
        elif a.end() <= b.start():
            text = (
                text[: a.start()] + b.group() + text[a.end() : b.start()] + a.group()
                + text[b.end() :]
            )  # fmt: skip
    survives(text, WEIGHTS)


@fuzz
@given(st.sampled_from(SEEDS), st.binary(max_size=1000))
def test_any_weights(seed, weights):
    survives(seed, weights)


SMALL = st.sampled_from([-(2**63), -2, -1, 0, 1, 2, 3, 5, 2**31, 2**62, 2**63 - 1])


@fuzz
@given(st.lists(SMALL, min_size=4, max_size=4))
def test_numbers_that_the_shapes_depend_on(values):
    """Reshape's target and Split's axis come from the weights."""
    survives(SEEDS[2], WEIGHTS[:864] + np.int64(values).tobytes())


@pytest.mark.parametrize("count", [2, 7, 100])
def test_repeated_prefixes(count):
    for seed in SEEDS:
        assert not survives(seed[: len(seed) // 2] * count, WEIGHTS)
