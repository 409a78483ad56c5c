"""A case as files: the model, and its inputs and right outputs in an .npz beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from tests.fuzz.evaluate import RefusedError, interpret
from tests.fuzz.generate import Case


def save(case: Case, stem: Path) -> None:
    """Write STEM.onnx and STEM.npz (arrays `feeds/NUMBER/NAME`)."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    stem.with_suffix(".onnx").write_bytes(case.model.SerializeToString())
    arrays = {
        f"feeds/{number}/{name}": array
        for number, feeds in enumerate(case.feeds)
        for name, array in feeds.items()
    }
    np.savez(stem.with_suffix(".npz"), **arrays)  # type: ignore[arg-type]


def load(path: Path) -> Case:
    """Read a case that `save` wrote; what is right is computed anew."""
    model = onnx.load(path.with_suffix(".onnx"))
    feeds: list[dict[str, np.ndarray]] = [{}, {}]  # a network without inputs has two of these
    types = {i.name: i.type.tensor_type.elem_type for i in model.graph.input}
    with np.load(path.with_suffix(".npz"), allow_pickle=True) as arrays:
        for key in arrays.files:
            _, number, name = key.split("/", 2)
            dtype = onnx.helper.tensor_dtype_to_np_dtype(types[name])
            array = arrays[key]  # .npz writes bfloat16 as bytes
            feeds += ({} for _ in range(int(number) + 1 - len(feeds)))
            feeds[int(number)][name] = array.view(dtype) if array.dtype.kind == "V" else array
    return answered(model, feeds)


def answered(model: onnx.ModelProto, feeds: list[dict[str, np.ndarray]]) -> Case:
    """Return a case with what is right computed.

    Raises:
        RefusedError: when nobody can say what is right for the first data.
    """
    names = [o.name for o in model.graph.output]
    expected = []
    for number, each in enumerate(feeds):
        try:
            values = interpret(model, each)
            expected.append({name: values[name] for name in names})
        except (RefusedError, KeyError) as error:
            if number == 0:
                raise RefusedError(str(error)) from error
            expected.append(None)
    return Case(model, feeds, expected, {})
