"""What is fused on CPU is proved first: trials find wrong code, and what they found is kept."""

from __future__ import annotations

import binascii
import contextlib
import ctypes
import errno
import struct
import threading

import numpy as np
import pytest

from polydevice.bounds import Bounds, within
from polydevice.dtype import ElementType
from polydevice.files import cache_folder
from polydevice.memory_budget import MemoryBudget
from polydevice.network import Network
from polydevice.node import Node, constant
from polydevice.ops.arithmetic import SquaredDifference
from polydevice.ops.io import Parameter, Result
from polydevice.shape import Shape
from polydevice_cpu import processor
from polydevice_cpu.onednn.attributes import Attributes, Binary, Eltwise, Sum
from polydevice_cpu.onednn.constants import Algorithm, Arg
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.library import library
from polydevice_cpu.onednn.primitive import run_once
from polydevice_cpu.onednn.primitives import binary, eltwise, layer_normalization, matmul
from polydevice_cpu.proof import ledger as ledger_module
from polydevice_cpu.proof import proof, trial
from polydevice_cpu.proof.claim import Claim, Link
from polydevice_cpu.proof.ledger import Ledger
from polydevice_cpu.proof.trial import Guarded, failure
from tests.cpu.loading import image, load, steps
from tests.cpu.machine_code import with_sigmoids_fused
from tests.cpu.models import answer, build, residual
from tests.cpu.proved import unproved

pytestmark = pytest.mark.skipif(library() is None, reason="needs oneDNN")

RELU = Eltwise(Algorithm.RELU)
VECTOR = (3, 37)
MXCSR_AT, TO_ZERO = 28, 0x8040
"""Of glibc's fenv_t on x86-64: where the SSE register is, and its bits for results and operands."""


@contextlib.contextmanager
def small_numbers_as_zero():
    """Let this thread's instructions take denormal numbers for zero."""
    libm = ctypes.CDLL("libm.so.6")
    before = ctypes.create_string_buffer(32)
    libm.fegetenv(before)
    (bits,) = struct.unpack_from("<I", before, MXCSR_AT)
    changed = ctypes.create_string_buffer(before.raw, 32)
    struct.pack_into("<I", changed, MXCSR_AT, bits | TO_ZERO)
    libm.fesetenv(changed)
    try:
        yield
    finally:
        libm.fesetenv(before)


def product(*post_ops):
    """A matrix product with post-operations, without, and its result's layout."""
    source, weights, result = (Descriptor.dense(s) for s in ((5, 24), (24, 20), (5, 20)))
    made, plain = (
        matmul(source, weights, None, result, Attributes(chain)) for chain in (post_ops, ())
    )
    return made, plain, result


class TestTrial:
    def test_a_right_chain_passes(self):
        operand = Descriptor.dense((1, 20))
        chain = [Binary(Algorithm.BINARY_MUL, operand), RELU, Sum()]
        made, plain, result = product(*chain)
        links = [Link.of(p, Arg.ATTR_POST_OP * k, result.shape) for k, p in enumerate(chain, 1)]
        assert failure(Claim(made, lambda: plain, links)) == ""

    @pytest.mark.parametrize(
        "claimed", [[], [Eltwise(Algorithm.TANH)], [RELU, Eltwise(Algorithm.LINEAR, 1.001, 0)]]
    )
    def test_a_chain_that_is_not_what_is_claimed_fails(self, claimed):
        made, plain, _ = product(RELU)
        assert "are wrong" in failure(Claim(made, lambda: plain, [Link(p) for p in claimed]))

    def test_an_operand_that_is_read_beyond_its_end_fails(self):
        layout = Descriptor.dense(VECTOR)
        made = layer_normalization(layout, layout, 1e-5, Attributes(), affine=True)
        plain = layer_normalization(layout, layout, 1e-5, Attributes(), affine=False)
        one = Descriptor.dense((1,))
        links = [
            Link(Binary(algorithm, one), argument, one, (1, 1))
            for algorithm, argument in (
                (Algorithm.BINARY_MUL, Arg.SCALE),
                (Algorithm.BINARY_ADD, Arg.SHIFT),
            )
        ]
        assert "nan where" in failure(Claim(made, lambda: plain, links))

    @pytest.mark.parametrize("name", ["BINARY_MAX", "BINARY_MIN", "BINARY_ADD", "BINARY_DIV"])
    def test_guards_count_in_every_function(self, name):
        """The operand is claimed to be one number where the primitive reads one per column."""
        layout, row, one = (Descriptor.dense(s) for s in (VECTOR, (1, 37), (1, 1)))
        made = binary(Algorithm[name], layout, row, layout, Attributes())
        link = Link(Binary(Algorithm[name], one), Arg.SRC_1, one, (1, 1))
        assert "are wrong" in failure(Claim(made, None, [link]))

    def test_a_write_outside_is_seen(self):
        guarded = Guarded(Descriptor.dense((7,)))
        assert guarded.is_intact
        guarded._all[guarded._inside.stop] = 0
        assert not guarded.is_intact

    @pytest.mark.parametrize("behind", [0, 100_000])
    def test_a_write_behind_the_scratchpad_is_seen(self, monkeypatch, behind):
        layout = Descriptor.dense(VECTOR)
        made = layer_normalization(layout, layout, 1e-5, Attributes(), affine=False)
        rooms = []

        class Noted(Guarded):
            def __init__(self, *given, **margins):
                super().__init__(*given, **margins)
                rooms.extend([self] if margins else [])

        def run_wrongly(primitive, arguments):
            run_once(primitive, arguments)
            rooms[-1]._all[rooms[-1]._inside.stop + behind] = 0

        monkeypatch.setattr(trial, "Guarded", Noted)
        claim = Claim(made, lambda: made, [])
        assert failure(claim) == ""
        monkeypatch.setattr(trial, "run_once", run_wrongly)
        assert failure(claim) == "it writes outside its scratchpad"

    def test_an_inexact_function_is_refused(self, monkeypatch):
        """oneDNN's softplus of -20 is 0 or negative."""
        book = Ledger(None)
        monkeypatch.setattr(proof, "ledger", lambda: book)
        assert "are wrong" in proof.inaccuracy(Eltwise(Algorithm.SOFT_RELU, 1.0))
        assert proof.inaccuracy(Eltwise(Algorithm.GELU_ERF)) == ""
        # AMD's processors lose reciprocals below 2e-38.
        assert proof.inaccuracy(Eltwise(Algorithm.SWISH, 1.0)) == ""
        assert proof.inaccuracy(Eltwise(Algorithm.LOGISTIC)) == ""

    def test_functions_are_proved_where_small_numbers_are_taken_for_zero(self, monkeypatch):
        """Programs may set the processor so (other runtimes do), where sigmoid(-88) is 0."""
        book = Ledger(None)
        monkeypatch.setattr(proof, "ledger", lambda: book)
        with small_numbers_as_zero():
            assert np.float32(1e-30) * np.float32(1e-10) == 0
            for name in ("SWISH", "LOGISTIC", "TANH", "EXP", "GELU_ERF", "GELU_TANH", "MISH"):
                assert proof.inaccuracy(Eltwise(Algorithm[name], 1.0)) == "", name

    def test_what_is_too_large_to_try_is_not_fused(self, monkeypatch):
        book = Ledger(None)
        monkeypatch.setattr(proof, "ledger", lambda: book)
        layout = Descriptor.dense(VECTOR)
        made = eltwise(Algorithm.RELU, layout, layout, 0, 0, Attributes())
        claim = Claim(made, None, [Link(RELU)])
        with within(Bounds(memory=MemoryBudget(1000, "this test"))):
            assert "too large" in proof.refusal(claim)
        assert proof.refusal(claim) == ""

    def test_weights_count_for_the_size_of_a_trial(self, monkeypatch):
        book = Ledger(None)
        monkeypatch.setattr(proof, "ledger", lambda: book)
        source, weights, result = (Descriptor.dense(s) for s in ((1, 512), (512, 512), (1, 512)))
        made, plain = (
            matmul(source, weights, None, result, Attributes(chain)) for chain in ((RELU,), ())
        )
        claim = Claim(made, lambda: plain, [Link(RELU)])
        one = weights.size_bytes  # of which a trial holds three, and little else
        for copies in (1, 2.5):
            with within(Bounds(memory=MemoryBudget(int(copies * one), "this test"))):
                assert "too large" in proof.refusal(claim)
        with within(Bounds(memory=MemoryBudget(4 * one, "this test"))):
            assert proof.refusal(claim) == ""

    def test_classes_tell_layouts_and_rests_of_blocks_apart(self):
        """One number per channel is added: it matters how many channels there are."""

        def key(shape, layout):
            row = Descriptor.dense((1, shape[1], 1, 1))
            made = binary(Algorithm.BINARY_ADD, layout, row, layout, Attributes())
            link = Link(Binary(Algorithm.BINARY_ADD, row), Arg.SRC_1, row, row.shape)
            return Claim(made, None, [link]).key

        shapes = [(1, 16, 5, 5), (1, 17, 5, 5), (1, 15, 5, 5), (2, 16, 5, 5), (1, 16, 5, 6)]
        dense = [key(shape, Descriptor.dense(shape)) for shape in shapes]
        last = key(shapes[0], Descriptor.channels_last(shapes[0]))
        assert len({*dense, last}) == 6
        assert key((1, 16, 9, 5), Descriptor.dense((1, 16, 9, 5))) == dense[0]
        assert key((1, 64, 5, 5), Descriptor.dense((1, 64, 5, 5))) == dense[0]

    def test_what_goes_by_the_number_of_elements_has_few_classes(self):
        """A function of each element, times one number, row-major: 31 rests, and sizes of 1."""

        def key(shape, layout):
            one = Descriptor.dense((1,) * len(shape))
            chain = [Binary(Algorithm.BINARY_MUL, one)]
            made = eltwise(Algorithm.RELU, layout, layout, 0, 0, Attributes(chain))
            links = [Link(RELU), Link.of(chain[0], Arg.ATTR_POST_OP * 1, shape)]
            return Claim(made, None, links).key

        rng = np.random.default_rng(8)
        shapes = [tuple(int(n) for n in row) for row in rng.integers(2, 40, (300, 3))]
        assert len({key(shape, Descriptor.dense(shape)) for shape in shapes}) <= 31
        one, other = (3, 5, 7), (3, 5, 8)
        assert key(one, Descriptor.dense(one)) != key(other, Descriptor.dense(other))
        assert key((1, 15, 7), Descriptor.dense((1, 15, 7))) != key(one, Descriptor.dense(one))
        last = [key(shape, Descriptor.channels_last(shape)) for shape in ((2, 4, 8), (2, 8, 4))]
        assert last[0] != last[1]


class TestDescriptor:
    @pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 1, 4, 5), (1, 3, 1, 1)])
    def test_the_layout_that_was_given_is_what_onednn_holds(self, shape):
        for made in (Descriptor.dense(shape), Descriptor.channels_last(shape)):
            read = Descriptor.clone(made.handle.value)
            assert (made.layout, made.strides) == (read.layout, read.strides)
            assert made.is_at(read.handle.value)

    def test_strides_of_single_elements_count(self):
        dense, last = Descriptor.dense((1, 3, 1, 1)), Descriptor.channels_last((1, 3, 1, 1))
        assert not dense.is_at(last.handle.value)
        assert not dense.is_at(Descriptor.dense((1, 3, 1, 2)).handle.value)


def _line(text: bytes) -> bytes:
    """A line of the file: its checksum by a polynomial of 32 bits, and JSON."""
    return b"%08x %s\n" % (binascii.crc32(text), text)


class TestLedger:
    def test_verdicts_outlive_the_process(self, tmp_path):
        path = tmp_path / "book.json"
        book = Ledger(path)
        book.note("good", "")
        book.note("bad", "3 of 4 are wrong")
        book.keep()
        again = Ledger(path)
        assert again.verdict("good") == ""
        assert again.verdict("bad") == "3 of 4 are wrong"
        assert again.verdict("other") is None

    def test_two_writers_keep_what_both_found(self, tmp_path):
        path = tmp_path / "book.json"
        books = [Ledger(path), Ledger(path)]
        for number, book in enumerate(books):
            book.note(f"key {number}", "")
            book.keep()
        assert set(Ledger(path).verdicts) == {"key 0", "key 1"}

    def test_two_writers_at_once_keep_what_both_found(self, tmp_path, monkeypatch):
        path = tmp_path / "book.json"
        path.write_bytes(b"damaged, so that it is written again\n")
        books = [Ledger(path), Ledger(path)]
        for number, book in enumerate(books):
            book.note(f"key {number}", "")
        other = threading.Thread(target=books[1].keep)
        write = cache_folder.write_atomically

        def write_late(*given):
            if other.ident is None:  # the first writer has read the file; now the second begins
                other.start()
                other.join(0.3)
            write(*given)

        monkeypatch.setattr(cache_folder, "write_atomically", write_late)
        books[0].keep()
        other.join()
        assert set(Ledger(path).verdicts) == {"key 0", "key 1"}

    def test_what_could_not_be_written_is_written_later(self, tmp_path, monkeypatch):
        path = tmp_path / "book.json"
        book = Ledger(path)
        book.note("good", "")

        def full(*_):
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(ledger_module, "_append", full)
            book.keep()
        assert Ledger(path).verdicts == {}
        book.keep()
        assert Ledger(path).verdicts == {"good": ""}

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"\xff\x00",
            b"\n\n 1\n",
            b"[" * 100_000,
            _line(b"[" * 100_000),
            _line(b"1"),
            _line(b'["wrong", 1, 2]'),
            b"00000000" + _line(b'["wrong", ""]')[8:],
        ],
    )
    def test_a_damaged_file_is_written_again(self, tmp_path, content):
        path = tmp_path / "book.json"
        path.write_bytes(content)
        book = Ledger(path)
        assert book.verdicts == {}
        book.note("good", "")
        book.keep()
        assert Ledger(path).verdicts == {"good": ""}
        assert not content or content not in path.read_bytes()

    def test_a_line_that_was_cut_off_costs_no_other(self, tmp_path):
        path = tmp_path / "book.json"
        book = Ledger(path)
        book.note("first", "")
        book.keep()
        with path.open("ab") as file:
            file.write(_line(b'["lost", ""]')[:-4])
        book.note("second", "why")
        book.keep()
        assert Ledger(path).verdicts == {"first": "", "second": "why"}

    def test_what_is_new_is_added_and_a_long_file_is_written_again(self, tmp_path, monkeypatch):
        monkeypatch.setattr(ledger_module, "LIMIT", 4)
        path = tmp_path / "book.json"
        book = Ledger(path)
        for number in range(9):
            before = path.read_bytes() if path.exists() else b""
            book.note(f"key {number}", "")
            book.keep()
            if number < 8:
                assert path.read_bytes().startswith(before)
        assert list(Ledger(path).verdicts) == [f"key {number}" for number in range(5, 9)]
        assert len(book.verdicts) == 9

    def test_a_folder_that_is_gone_costs_nothing(self, tmp_path):
        book = Ledger(tmp_path / "gone" / "book.json")
        book.note("good", "")
        book.keep()
        assert book.verdict("good") == ""


@pytest.mark.parametrize("channels", [4, 12, 16, 64])
@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
def test_a_full_tensor_added_to_a_pool(core, kind, channels):
    """oneDNN's pooling code took a plain operand for one in blocks of 16 channels."""
    nodes = [
        (kind, ["x"], ["p"], {"kernel_shape": [2, 2]}),
        ("Add", ["p", "r"], ["y"], {}),
    ]
    model = build(nodes, {"x": [2, channels, 6, 7], "r": [2, channels, 5, 6]}, ["y"], {})
    inputs = {"x": image(0, 2, channels, 6, 7), "r": image(1, 2, channels, 5, 6)}
    (want,) = answer(model, inputs)
    executable = load(core, model)
    for _ in range(2):
        np.testing.assert_allclose(executable.infer(inputs)["y"], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(2, 3, 1, 1), (2, 3, 1), (5, 17, 1, 1), (2, 16, 1, 1), (2, 3)])
@pytest.mark.parametrize("kinds", [("Mul", "Add"), ("Sub", "Mul"), ("Add", "Max"), ("Div", "Min")])
def test_per_channel_pairs_where_nothing_is_spatial(core, shape, kinds):
    """A post-operation per channel of oneDNN's binary primitive read the first channel's."""
    rng = np.random.default_rng(2)
    sizes = (shape[1], *[1] * (len(shape) - 2))
    weights = {name: rng.uniform(0.5, 2, sizes).astype(np.float32) for name in "ab"}
    nodes = [(kinds[0], ["x", "a"], ["t"], {}), (kinds[1], ["t", "b"], ["y"], {})]
    model = build(nodes, {"x": shape}, ["y"], weights)
    inputs = {"x": image(3, *shape)}
    (want,) = answer(model, inputs)
    np.testing.assert_allclose(load(core, model).infer(inputs)["y"], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("wide", ["", "s", "b", "sb"])
@pytest.mark.parametrize("shape", [(2, 1, 8), (1, 1, 4), (3, 5, 33), (2, 2, 3, 16), (4, 1)])
def test_layer_norm_with_one_number_as_scale_or_shift(core, shape, wide):
    """The primitive reads as many numbers as the axis is long: there was one."""
    rng = np.random.default_rng(4)
    weights = {
        name: rng.normal(size=shape[-1] if name in wide else 1).astype(np.float32) for name in "sb"
    }
    weights |= {"e": np.float32(1e-5), "axis": np.array([-1])}
    nodes = [
        ("ReduceMean", ["x", "axis"], ["m"], {"keepdims": 1}),
        ("Sub", ["x", "m"], ["c"], {}),
        ("Mul", ["c", "c"], ["q"], {}),
        ("ReduceMean", ["q", "axis"], ["v"], {"keepdims": 1}),
        ("Add", ["v", "e"], ["ve"], {}),
        ("Sqrt", ["ve"], ["r"], {}),
        ("Div", ["c", "r"], ["n"], {}),
        ("Mul", ["n", "s"], ["ns"], {}),
        ("Add", ["ns", "b"], ["y"], {}),
    ]
    model = build(nodes, {"x": shape}, ["y"], weights, opset=18)
    inputs = {"x": image(5, *shape)}
    (want,) = answer(model, inputs)
    for _ in range(2):
        got = load(core, model).infer(inputs)["y"]
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(2, 1, 8), (1, 1, 4, 4), (2, 3, 8)])
def test_instance_norm_of_few_channels(core, shape):
    weights = {n: np.full(shape[1], v, np.float32) for n, v in (("s", 2), ("b", 1))}
    nodes = [("InstanceNormalization", ["x", "s", "b"], ["y"], {})]
    model = build(nodes, {"x": shape}, ["y"], weights)
    inputs = {"x": image(6, *shape)}
    (want,) = answer(model, inputs)
    got = load(core, model).infer(inputs)["y"]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_softplus_of_small_numbers_stays_positive(core):
    model = build([("Softplus", ["x"], ["y"], {})], {"x": [6]}, ["y"], {})
    x = np.array([-87, -20, -17, -15, 0, 20], np.float32)
    result = load(core, model).infer({"x": x})["y"]
    np.testing.assert_allclose(result, np.logaddexp(0, x.astype(np.float64)), rtol=1e-6)


@pytest.mark.parametrize("bf16", [False, True])
def test_no_step_runs_unproved(core, bf16):
    """Convolutions with bias, sum and slopes, depthwise ones, products, pools, functions."""
    if bf16 and not processor.has_bf16():
        pytest.skip("no bfloat16 here")
    config = {"ENFORCE_BF16": "YES"} if bf16 else {}
    for channels in (12, 16, 32):
        executable = load(core, residual(channels), **config)
        executable.infer({"x": image(0, 2, 3, 14, 14)})
        assert not list(unproved(executable.latest_plan()))


def test_an_unproved_step_is_found(core, monkeypatch):
    monkeypatch.setattr("polydevice_cpu.plan.building.pending.refusal", lambda claim: "")
    executable = load(core, residual(20))
    assert any("convolution" in found for found in unproved(executable.latest_plan()))


@pytest.mark.parametrize(
    ("kind", "function"),
    [
        pytest.param("Tanh", np.tanh, marks=with_sigmoids_fused),
        ("Elu", lambda x: np.where(x < 0, np.expm1(x), x)),
    ],
)
def test_explain_says_what_was_not_fused_and_why(core, monkeypatch, kind, function):
    monkeypatch.setattr("polydevice_cpu.plan.building.pending.refusal", lambda claim: "it is wrong")
    nodes = [("Conv", ["x", "w"], ["c"], {}), (kind, ["c"], ["y"], {})]
    weights = {"w": np.ones((4, 3, 1, 1), np.float32)}
    executable = load(core, build(nodes, {"x": [1, 3, 5, 5]}, ["y"], weights))
    assert "it is wrong" in executable.explain()
    assert f"Convolution+{kind}" not in steps(executable)
    inputs = {"x": image(1, 1, 3, 5, 5)}
    want = function(inputs["x"].sum(1, keepdims=True).repeat(4, 1))
    np.testing.assert_allclose(executable.infer(inputs)["y"], want, rtol=1e-5, atol=1e-6)


def test_no_step_of_a_node_that_falls_back_is_left(core, monkeypatch):
    def without_square(claim):
        wrong = any(link.post_op == Eltwise(Algorithm.SQUARE) for link in claim.links)
        return "wrong, for this test" if wrong else proof.refusal(claim)

    monkeypatch.setattr("polydevice_cpu.lowering.activation.refusal", without_square)
    x = Node("x", Parameter(ElementType.f32, Shape((5, 37))))
    one = constant("one", np.array([1.5], np.float32)).output
    node = Node("y", SquaredDifference(), [x.output, one])
    network = Network("m", [x], [Node("r", Result(), [node.output])], [])
    network.infer()
    executable = core.load_network(network, "CPU")
    assert len(steps(executable)) == 1
    for seed in range(2):
        given = image(seed, 5, 37)
        (y,) = executable.infer({"x": given}).values()
        np.testing.assert_allclose(y, (given - np.float32(1.5)) ** 2, rtol=1e-5)


@pytest.mark.parametrize("channels", [17, 16])
def test_depthwise_sums_whose_code_would_fault_are_not_tried(core, channels):
    """Of gaps and pads so wide oneDNN takes code that reads 16 bytes at multiples of 16 only."""
    weights = {
        "one": image(1, channels, 1, 1, 1),
        "deep": image(2, channels, 1, 4, 7) / 5,
        "bias": image(3, channels),
    }
    geometry = {"strides": [3, 3], "dilations": [2, 2], "pads": [1, 3, 4, 9]}
    nodes = [
        ("Conv", ["x", "one"], ["a"], {"group": channels}),
        ("Conv", ["a", "deep", "bias"], ["b"], {"group": channels, **geometry}),
        ("Conv", ["r", "one"], ["c"], {"group": channels}),
        ("Add", ["b", "c"], ["y"], {}),
    ]
    shapes = {"x": [1, channels, 65, 13], "r": [1, channels, 22, 5]}
    open_ = {name: ["n", channels, f"{name}h", f"{name}w"] for name in shapes}
    given = {name: image(5, *shape) for name, shape in shapes.items()}
    for sizes in (shapes, open_):
        model = build(nodes, sizes, ["y"], weights)
        executable = load(core, model, CPU_THREADS_NUM=1)
        got = executable.infer(given)["y"]
        np.testing.assert_allclose(got, answer(model, given)[0], rtol=1e-4, atol=1e-5)
