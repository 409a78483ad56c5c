"""Products of tensors by machine code that is the same for all sizes."""

from __future__ import annotations

import mmap

import numpy as np
import pytest

from polydevice_cpu.algorithms.by_machine import matrix_code
from polydevice_cpu.algorithms.by_machine.code import Code, may_share
from polydevice_cpu.algorithms.by_machine.matrices import (
    MOST_TERMS,
    Seen,
    _known_products,
    products,
)
from polydevice_cpu.algorithms.by_machine.matrix_code import (
    LONGEST,
    OF_OPERANDS,
    ROWS,
    Columns,
    Function,
    Scope,
)
from polydevice_cpu.onednn import openmp
from polydevice_cpu.onednn.attributes import Attributes, Binary, Eltwise, Sum
from polydevice_cpu.onednn.constants import Algorithm, Arg
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.engine import MemoryObject, address_of, engine
from polydevice_cpu.onednn.primitive import Primitive, run_once
from polydevice_cpu.plan import settling
from polydevice_cpu.plan.filling.by_machine import matrices as by_machine
from polydevice_cpu.plan.step import MACHINE_CODE, CodeStep
from tests.cpu import models
from tests.cpu.loading import at_once, image, load, wait_for_settling
from tests.cpu.machine_code import with_avx512
from tests.guard_pages import SIDES, guarded

F = np.float32

pytestmark = with_avx512

ALGORITHMS = {
    Function.ADD: Algorithm.BINARY_ADD,
    Function.SUB: Algorithm.BINARY_SUB,
    Function.MUL: Algorithm.BINARY_MUL,
    Function.DIV: Algorithm.BINARY_DIV,
}
NUMPY = {
    Function.ADD: np.add,
    Function.SUB: np.subtract,
    Function.MUL: np.multiply,
    Function.DIV: np.divide,
}
OF_CONSTANTS = {
    Function.LINEAR: Algorithm.LINEAR,
    Function.ROUND: Algorithm.ROUND,
    Function.CLIP: Algorithm.CLIP,
}


def seen(array):
    return Seen(array.shape, tuple(step // array.itemsize for step in array.strides))


def run(told, arrays):
    """Run calls on arrays, the result's last."""
    call = Code.of(told).bound([address_of(array) for array in arrays])
    assert call() == 0


class Case:
    """Products of random numbers and sizes, followed by functions."""

    def __init__(self, seed):
        random = self.random = np.random.default_rng(seed)
        outer, inner = (int(n) for n in random.integers(1, 4, 2))
        rows, columns = (int(n) for n in random.integers(12, 150, 2))
        if seed % 4 == 0:
            rows = int(random.integers(1, 12))
        terms = int(random.integers(2, 257 if seed % 3 else 40))
        self.is_turned = bool(seed % 2)
        if seed % 5 == 0:
            columns = int(random.integers(1, 16))
        # Heads lie next to each other in memory, as in attention.
        if seed % 6 == 1 or seed % 9 == 0:  # or what is multiplied lies apart
            self.first = self.numbers(outer, inner, terms, rows).swapaxes(2, 3)
        else:
            self.first = self.numbers(outer, rows, inner, terms).transpose(0, 2, 1, 3)
        more = 1 if seed % 7 == 0 else outer  # the same for all
        if self.is_turned:
            self.second = self.numbers(more, columns, inner, terms).transpose(0, 2, 3, 1)
        else:
            self.second = self.numbers(more, terms, inner, columns).transpose(0, 2, 1, 3)
        self.shape = outer, inner, rows, columns
        self.chain, self.held = [], np.full(self.shape, np.nan, F)
        for _ in range(int(random.integers(0, LONGEST + 1))):
            function = list(Function)[random.integers(len(Function))]
            if function is Function.SUM:
                if np.isnan(self.held).all():  # once
                    self.held = self.numbers(*self.shape)
                    self.chain.append((function, (0.0, 0.0)))
                continue
            if function not in OF_OPERANDS:
                self.chain.append((function, tuple(sorted(random.normal(size=2).tolist()))))
                continue
            scope = list(Scope)[random.integers(len(Scope))]
            high = rows if scope is Scope.EACH else 1
            wide = 1 if scope is Scope.ALL else columns
            some = int(random.choice([1, outer])), int(random.choice([1, inner]))
            operand = np.abs(self.numbers(*some, high, wide)) + F(0.5)
            self.chain.append((function, operand))

    def numbers(self, *shape):
        return self.random.normal(size=shape).astype(F)

    @property
    def operands(self):
        return [each for _, each in self.chain if isinstance(each, np.ndarray)]

    def wanted(self):
        """The result in twice the precision."""
        y = self.first.astype(float) @ self.second.astype(float)
        for function, operand in self.chain:
            if function is Function.LINEAR:
                y = operand[0] * y + operand[1]
            elif function is Function.ROUND:
                y = np.rint(y)
            elif function is Function.CLIP:
                y = np.clip(y, *operand)
            elif function is Function.SUM:
                y = y + self.held
            else:
                y = NUMPY[function](y, operand)
        return y

    def got(self, place=None):
        """What machine code computes, in memory from `place`."""

        def placed(array):
            if place is None:
                return array
            order = np.argsort([-step for step in array.strides], kind="stable")
            dense = array.transpose(order)
            made = place(dense.nbytes).view(F).reshape(dense.shape)
            made[...] = dense
            return made.transpose(np.argsort(order))

        y = placed(self.held)
        y = self.held.copy() if y is self.held else y
        sides = [placed(self.first), placed(self.second)]
        others = [placed(each) for each in self.operands]
        left = iter(others)
        chain = tuple(
            (function, seen(next(left)) if function in OF_OPERANDS else operand)
            for function, operand in self.chain
        )
        told = products(*map(seen, (*sides, y)), chain)
        assert told is not None
        run(told, [*sides, *others, y])
        return y

    def by_onednn(self):
        """The same by oneDNN, and what its code is called."""
        chain = [
            Sum()
            if function is Function.SUM
            else Eltwise(OF_CONSTANTS[function], *operand)
            if function in OF_CONSTANTS
            else Binary(ALGORITHMS[function], Descriptor.strided(*seen(operand)))
            for function, operand in self.chain
        ]
        y = self.held.copy()
        layouts = [Descriptor.strided(*seen(each)) for each in (self.first, self.second, y)]
        with openmp.threads(1):
            made = Primitive.create(
                "matmul", engine(), layouts[0], layouts[1], None, layouts[2], Attributes(chain)
            )
        assert made is not None
        given = dict(
            zip((Arg.SRC, Arg.WEIGHTS, Arg.DST), zip(layouts, (self.first, self.second, y)))
        )
        for number, (_, operand) in enumerate(self.chain):
            if isinstance(operand, np.ndarray):
                index = Arg.ATTR_POST_OP * (number + 1) | Arg.SRC_1
                given[index] = Descriptor.strided(*seen(operand)), operand
        run_once(
            made, {at: MemoryObject(layout, address_of(x)) for at, (layout, x) in given.items()}
        )
        return made.implementation, y


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_products_are_those_of_numpy(first):
    for seed in range(first, first + 10):
        case = Case(seed)
        wanted = case.wanted()
        np.testing.assert_allclose(case.got(), wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


def test_products_are_those_of_onednn_to_the_bit():
    compared = 0
    for seed in range(100, 180):
        case = Case(seed)
        code, wanted = case.by_onednn()
        if code == "brg:avx512_core":
            compared += 1
            assert case.got().tobytes() == wanted.tobytes(), (case.shape, case.chain)
    assert compared > 25


def test_sums_of_the_most_terms_are_those_of_onednn_to_the_bit():
    for columns in (16, 31):
        case = Case(2)
        case.first = case.numbers(1, 2, 25, MOST_TERMS)
        case.second, case.chain = case.numbers(1, 2, MOST_TERMS, columns), []
        case.shape = 1, 2, 25, columns
        case.held = np.full(case.shape, np.nan, F)
        code, wanted = case.by_onednn()
        assert code == "brg:avx512_core"
        assert case.got().tobytes() == wanted.tobytes()


@pytest.mark.parametrize("side", SIDES)
def test_products_touch_nothing_beside(side):
    for seed in range(30):
        case = Case(seed)
        got = case.got(lambda size: guarded(side, size))
        np.testing.assert_array_equal(got, case.got())


def plain(*shape):
    return seen(np.empty(shape, F))


@pytest.mark.parametrize(
    ("first", "second", "result", "operand"),
    [
        (plain(1, 1, 0, 8), plain(1, 1, 8, 16), plain(1, 1, 0, 16), None),
        (
            Seen((0, 1, 20, 8), (160, 160, 8, 1)),
            *(
                Seen((0, 1, 8, 16), (128, 128, 16, 1)),
                Seen((0, 1, 20, 16), (320, 320, 16, 1)),
                None,
            ),
        ),
        (plain(1, 1, 20, 1), plain(1, 1, 1, 16), plain(1, 1, 20, 16), None),
        (plain(1, 1, 20, 513), plain(1, 1, 513, 8), plain(1, 1, 20, 8), None),
        (plain(1, 1, 20, 512), plain(1, 1, 512, 32), plain(1, 1, 20, 32), None),
        (Seen((1, 1, 20, 8), (320, 320, 2, 40)), plain(1, 1, 8, 16), plain(1, 1, 20, 16), None),
        (plain(1, 1, 20, 8), plain(1, 1, 8, 16), Seen((1, 1, 20, 16), (320, 320, 1, 20)), None),
        (plain(1, 1, 20, 8), plain(1, 1, 8, 16), plain(1, 1, 20, 16), plain(1, 1, 20, 1)),
        (
            *(plain(1, 1, 20, 8), plain(1, 1, 8, 16), plain(1, 1, 20, 16)),
            Seen((1, 1, 20, 16), (320, 320, 1, 20)),
        ),
    ],
    ids=range(9),
)
def test_products_that_there_is_no_code_for(first, second, result, operand):
    chain = () if operand is None else ((Function.ADD, operand),)
    assert products(first, second, result, chain) is None


def test_all_code_fits_into_three_pages():
    links = (
        *((Function.MUL, Scope.EACH), (Function.SUM, Scope.ALL)),
        *((Function.LINEAR, Scope.ALL), (Function.ROUND, Scope.ALL), (Function.CLIP, Scope.ALL)),
    )
    for width in ROWS:
        for columns in Columns:
            for link in links:
                for is_apart in (False, True):
                    code = matrix_code.product(width, columns, [link] * LONGEST, is_apart=is_apart)
                    assert len(code) <= 3 * mmap.PAGESIZE


def attention(heads=4, size=16, bias=False):
    """Attention with a mask, for texts of any length, and as many as there are."""
    width = heads * size
    weights = {name: image(number, width, width) / 8 for number, name in enumerate("qkvo")}
    weights["split"] = np.array([0, 0, heads, size], np.int64)
    weights["join"] = np.array([0, 0, width], np.int64)
    weights["scale"] = np.array(size**0.5, F)
    nodes = [("MatMul", ["x", name], [f"{name}0"], {}) for name in "qkv"]
    nodes += [("Reshape", [f"{name}0", "split"], [f"{name}1"], {}) for name in "qkv"]
    order = {"q": [0, 2, 1, 3], "k": [0, 2, 3, 1], "v": [0, 2, 1, 3]}
    nodes += [
        ("Transpose", [f"{name}1"], [f"{name}2"], {"perm": perm}) for name, perm in order.items()
    ]
    nodes += [
        ("MatMul", ["q2", "k2"], ["s0"], {}),
        ("Div", ["s0", "scale"], ["s1"], {}),
        ("Add", ["s1", "mask"], ["s2"], {}),
        ("Softmax", ["s2"], ["p"], {"axis": -1}),
        ("MatMul", ["p", "v2"], ["a0"], {}),
        ("Transpose", ["a0"], ["a1"], {"perm": [0, 2, 1, 3]}),
        ("Reshape", ["a1", "join"], ["a2"], {}),
        ("MatMul", ["a2", "o"], ["y"], {}),
    ]
    mask = ["n", heads, "length", "length"] if bias else ["n", 1, 1, "length"]
    return models.build(nodes, {"x": ["n", "length", width], "mask": mask}, ["y"], weights)


def given(seed, model_is_biased, count, length, heads=4, width=64):
    shape = (count, heads, length, length) if model_is_biased else (count, 1, 1, length)
    mask = np.where(np.random.default_rng(seed).random(shape) < 0.2, F(-1e4), F(0))
    return {"x": image(seed, count, length, width), "mask": mask}


def codes(executable):
    """Steps of machine code that multiplies two tensors; others are told of one, or it twice."""
    steps = executable.latest_plan().steps
    found = [step for step in steps if isinstance(step, CodeStep)]
    found = [step for step in found if step.implementation == MACHINE_CODE]
    return [step.type for step in found if len({*map(id, step.inputs[:2])}) > 1]


def assert_right(model, inputs, got):
    (wanted,) = models.answer(model, inputs)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


LENGTHS = [(2, 40), (1, 41), (3, 17), (1, 16), (2, 129), (1, 300), (2, 33)]


@pytest.mark.parametrize("is_biased", [False, True])
def test_attention_of_any_length(core, is_biased):
    model = attention(bias=is_biased)
    executable = load(core, model, CPU_THREADS_NUM="1")
    request = executable.create_infer_request()
    for number, sizes in enumerate([(1, 20), (2, 21), *LENGTHS]):
        inputs = given(number, is_biased, *sizes)
        assert_right(model, inputs, request.infer(inputs)["y"])
        if number > 3:
            assert len(codes(executable)) == 2
    for number in (6, 3):  # shapes that come back
        inputs = given(number, is_biased, *LENGTHS[number])
        assert_right(model, inputs, request.infer(inputs)["y"])
    for length in (3, 11):  # few rows at once
        inputs = given(0, is_biased, 2, length)
        assert_right(model, inputs, request.infer(inputs)["y"])
        assert len(codes(executable)) == 2


def test_answers_stay_the_same_to_the_bit_when_a_plan_is_settled(core, monkeypatch):
    monkeypatch.setattr(settling, "RUNS", 3)
    executable = load(core, attention(), CPU_THREADS_NUM="1")
    request = executable.create_infer_request()
    for number, sizes in enumerate([(1, 20), (2, 21), (1, 3), (2, 7), (3, 11), *LENGTHS]):
        inputs = given(number, False, *sizes)
        before = request.infer(inputs)["y"].copy()
        is_by_code = bool(codes(executable))
        for _ in range(settling.RUNS):
            request.infer(inputs)
        wait_for_settling()
        after = request.infer(inputs)["y"]
        np.testing.assert_array_equal(before, after)
        assert not codes(executable)
    assert is_by_code


def test_requests_with_other_shapes_at_once(core):
    model = attention()
    executable = load(core, model, CPU_THREADS_NUM="1", CPU_THROUGHPUT_STREAMS="2")

    def work(thread):
        request = executable.create_infer_request()
        for number in range(12):
            inputs = given(number, False, 1 + thread, 16 + 7 * ((number + thread) % 9))
            assert_right(model, inputs, request.infer(inputs)["y"])

    at_once(work, 3)


@pytest.mark.parametrize("few", [0, by_machine.FEW_PRODUCTS])
def test_several_threads_share_the_work(core, monkeypatch, few):
    monkeypatch.setattr(settling, "RUNS", 3)
    monkeypatch.setattr(by_machine, "FEW_PRODUCTS", few)
    model = attention()
    executable = load(core, model, CPU_THREADS_NUM="2")
    request, seen = executable.create_infer_request(), 0
    for number, sizes in enumerate([(3, 120), (4, 121), (4, 140), (5, 141), (4, 129), (1, 90)]):
        inputs = given(number, False, *sizes)
        got = request.infer(inputs)["y"].copy()
        assert_right(model, inputs, got)
        if codes(executable):
            seen += 1
            for _ in range(settling.RUNS):
                np.testing.assert_array_equal(request.infer(inputs)["y"], got)
            wait_for_settling()
            np.testing.assert_array_equal(request.infer(inputs)["y"], got)
    assert seen >= 3 or not may_share()


def test_without_machine_code(core, monkeypatch):
    model = attention()
    _known_products.cache_clear()
    monkeypatch.setattr("polydevice_cpu.algorithms.by_machine.matrices._function", lambda *_: None)
    executable = load(core, model, CPU_THREADS_NUM="1")
    request = executable.create_infer_request()
    for number, sizes in enumerate([(1, 20), (2, 21), *LENGTHS]):
        inputs = given(number, False, *sizes)
        assert_right(model, inputs, request.infer(inputs)["y"])
        assert not codes(executable)
    _known_products.cache_clear()


def test_inputs_and_outputs_that_move(core):
    """Softmax alone: code reads and writes what the caller provides."""
    node = [("Softmax", ["x"], ["y"], {"axis": -1})]
    model = models.build(node, {"x": ["n", "length"]}, ["y"], {})
    executable = load(core, model, CPU_THREADS_NUM="1")
    request = executable.create_infer_request()
    for number, length in enumerate([300, 301, 302, 303, 304, 303, 304]):
        for seed in range(3):
            x = image(10 * number + seed, 700, length)
            assert_right(model, {"x": x}, request.infer({"x": x})["y"])
    assert "polydevice:code" in executable.explain()
