"""Networks of unknown sizes compile nothing for a new one on GPU, once they have met two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from polydevice import Core
from polydevice_gpu.cl.capabilities import Capabilities
from polydevice_gpu.cl.programs.program import ProgramBuilder
from polydevice_gpu.compiler.new_shapes.specialiser import Specialiser
from tests.models.models import MODELS

Draw = Callable[[int, int], int]

Sizes = Callable[[Draw], dict[str, tuple[int, ...]]]

SHAPES = 12

# Shapes of inputs, of all that models take. Not here: few pictures for open_nsfw, which are below,
# and less than 17 frames of a voice, whose recurrence is written out step by step.
DRAWN: dict[str, Sizes] = {
    "efficientnet_lite0": lambda draw: {"image": (draw(1, 9), 3, 224, 224)},
    "ppocr_cls": lambda draw: {"x": (draw(1, 7), 3, 48, draw(4, 400))},
    "mtcnn_pnet": lambda draw: {"input": (1, 3, draw(12, 300), draw(12, 300))},
    "mtcnn_rnet": lambda draw: {"input": (draw(1, 65), 3, 24, 24)},
    "mtcnn_onet": lambda draw: {"input": (draw(1, 65), 3, 48, 48)},
    "blazeface": lambda draw: {"input": (draw(1, 17), 3, 128, 128)},
    "ppocr_det": lambda draw: {"x": (1, 3, 32 * draw(1, 13), 32 * draw(1, 13))},
    "ppocr_rec": lambda draw: {"x": (draw(1, 3), 3, 48, draw(15, 640))},
    "basic_pitch": lambda draw: {"serving_default_input_2:0": (draw(1, 4), 43844, 1)},
    "minilm": lambda draw: dict.fromkeys(
        ("input_ids", "attention_mask"), (draw(1, 5), draw(1, 129))
    ),
    "silero_vad_16k_sequence": lambda draw: {"input": (draw(17, 100), 576)},
    "silero_vad": lambda draw: voices(draw(17, 65)),
}


def voices(count: int) -> dict[str, tuple[int, ...]]:
    """Shapes for as many voices at once, each with its state."""
    return {"input": (count, 576), "state": (2, count, 128)}


def drawing(rng: np.random.Generator, number: int) -> Draw:
    """Return what draws a size: for the first two shapes none of the smallest, later often one.

    What is built for the smallest sizes does not serve all others.
    """

    def draw(low: int, high: int) -> int:
        if number < 2:
            low = max(low + 1, (low + high) // 6)
        elif rng.random() < 0.5:
            high = min(low + 8, high)
        return int(rng.integers(low, high))

    return draw


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Programs that inferences wait for."""
    found: list[str] = []
    compile_ = ProgramBuilder._compile

    def noted(builder: ProgramBuilder, program: str, *rest: str) -> object:
        found.append(program)
        return compile_(builder, program, *rest)

    monkeypatch.setattr(ProgramBuilder, "_compile", noted)
    monkeypatch.setattr(Capabilities, "compiles_in_turn", False)  # or children compile
    # What is better for some sizes is built behind, and no inference waits for it.
    monkeypatch.setattr(Specialiser, "note", lambda *_: None)
    return found


@pytest.mark.full
@pytest.mark.usefixtures("needs_gpu")
@pytest.mark.parametrize("name", DRAWN)
def test_nothing_is_compiled_after_the_second_shape(
    name: str, rng: np.random.Generator, compiled: list[str]
) -> None:
    model = next(each for each in MODELS if each.name == name)
    given = model.inputs()
    with Core() as core:
        executable = core.load_network(core.read_network(model.file.get()), model.on("GPU"))
        request = executable.create_infer_request()
        for number in range(SHAPES):
            shapes = DRAWN[name](drawing(rng, number))
            inputs = {key: np.resize(x, shapes.get(key, x.shape)) for key, x in given.items()}
            compiled.clear()
            request.infer(inputs)
            assert number < 2 or not compiled, shapes


ONE_ELEMENT: dict[str, list[tuple[int, ...]]] = {
    "mtcnn_pnet": [(1, 3, 60, 70), (1, 3, 50, 31), (1, 3, 12, 40), (1, 3, 30, 12), (1, 3, 12, 12)],
    "minilm": [(3, 30), (2, 17), (2, 1), (1, 1), (1, 2)],
}


@pytest.mark.full
@pytest.mark.usefixtures("needs_gpu")
@pytest.mark.parametrize("name", ONE_ELEMENT)
def test_nothing_is_compiled_for_one_element(name: str, compiled: list[str]) -> None:
    """An axis has no neighbours there, so that the pitch of another one may be 1."""
    import onnxruntime

    model = next(each for each in MODELS if each.name == name)
    given, path = model.inputs(), str(model.file.get())
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    with Core() as core:
        executable = core.load_network(core.read_network(path), model.on("GPU"))
        request = executable.create_infer_request()
        for number, shape in enumerate(ONE_ELEMENT[name]):
            inputs = {key: np.resize(x, shape) for key, x in given.items()}
            compiled.clear()
            found = request.infer(inputs)
            assert number < 2 or not compiled, shape
            for ours, theirs in zip(found.values(), session.run(None, inputs), strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)


@pytest.mark.full
@pytest.mark.usefixtures("needs_gpu")
def test_no_inference_with_few_pictures_waits_for_a_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A template serves them all, though others would be chosen for some, and are built behind."""
    model = next(each for each in MODELS if each.name == "open_nsfw")
    ((name, picture),) = model.inputs().items()
    compiled: list[str] = []
    behind: list[object] = []
    compile_, specialise = ProgramBuilder._compile, Specialiser._specialise

    def noted(builder: ProgramBuilder, program: str, *rest: str) -> object:
        if not behind:
            compiled.append(program)
        return compile_(builder, program, *rest)

    def aside(specialiser: Specialiser, *given: Any) -> None:
        behind.append(given)
        try:
            specialise(specialiser, *given)
        finally:
            behind.pop()

    monkeypatch.setattr(ProgramBuilder, "_compile", noted)
    monkeypatch.setattr(Specialiser, "_specialise", aside)
    with Core() as core:
        executable = core.load_network(core.read_network(model.file.get()), "GPU")
        request = executable.create_infer_request()
        for number, batch in enumerate([1, 2, 4, 3, 8]):
            compiled.clear()
            request.infer({name: np.resize(picture, (batch, *picture.shape[1:]))})
            assert number < 2 or not compiled, batch
            executable._specialiser.wait()  # type: ignore[attr-defined]
