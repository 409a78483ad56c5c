"""Mutants: damaged models of random networks, and what reading, loading and running them does."""

from __future__ import annotations

import zlib
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from polydevice import Core
from polydevice.errors import InternalError, PolydeviceError
from tests.fuzz import mutate_ir, mutate_onnx
from tests.fuzz.check import PASSED, Outcome
from tests.fuzz.generate import generate, rng_of

KINDS = ("onnx-mutants", "ir-mutants")
PER_MODEL = 40
"""Mutants of one network; making it takes about as long as running ten of them."""
LARGEST = 1 << 20
"""Elements of an input that is still made for an inference."""
ODD = (np.nan, np.inf, -np.inf, 1e30, -1e30, -0.0, -5.0, 1e6)
"""Numbers that programs forget; integers get what a cast makes of them."""
ODD_SHARE = 0.25
"""Of the inputs that have such numbers, and of their elements."""

TIMEOUT_MS = 5000
"""After which an inference is given up: a damaged trip count means what it says."""

Files = tuple[bytes, bytes]
"""Topology and weights; weights are empty for ONNX."""


def base(seed: int, kind: str, index: int, core: Core) -> Files | None:
    """Return the sound files of a random network; None when it cannot be written as IR."""
    model = generate(rng_of(seed, kind, index // PER_MODEL)).model.SerializeToString()
    if kind == "onnx-mutants":
        return model, b""
    try:
        with TemporaryDirectory() as folder:
            path = Path(folder, "model.xml")
            core.read_network(model).serialize(path)
            return path.read_bytes(), path.with_suffix(".bin").read_bytes()
    except PolydeviceError:  # an operation that is not supported, or has no form in IR
        return None


def mutant(files: Files, seed: int, kind: str, index: int) -> Files:
    """Return the damaged files of one number."""
    rng = rng_of(seed, f"{kind}/damage", index)
    if kind == "onnx-mutants":
        return mutate_onnx.mutate(files[0], rng), b""
    return mutate_ir.mutate(*files, rng)


def survive(files: Files, device: str, core: Core) -> Outcome:
    """Read, load and infer; every exception but ours is a failure, and so is InternalError."""
    try:
        network = core.read_network(files[0], files[1] or None)
        executable = core.load_network(network, device, {"INFER_TIMEOUT_MS": TIMEOUT_MS})
    except InternalError as error:
        return Outcome("InternalError", f"load: {error}"[:2000])
    except PolydeviceError as error:
        return Outcome(PASSED, f"refused: {type(error).__name__}")
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        return _foreign(error, "load")
    try:
        rng = np.random.default_rng(zlib.crc32(files[0]))
        feeds = {name: _data(port, rng) for name, port in executable.inputs.items()}
        if any(array is None for array in feeds.values()):
            return Outcome(PASSED, "loaded: too large to run")
        executable.create_infer_request().infer(feeds)
    except InternalError as error:
        return Outcome("InternalError", f"infer: {error}"[:2000])
    except PolydeviceError as error:
        return Outcome(PASSED, f"not inferred: {type(error).__name__}")
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        return _foreign(error, "infer")
    finally:
        executable.close()
    return Outcome(PASSED, "ran")


def _data(port, rng: np.random.Generator) -> np.ndarray | None:
    """Return data for an input of any shape, some of it odd; None when it would be too large."""
    shape = port.desc.shape
    sizes = [2, 3]
    if shape is not None:
        sizes = [size if isinstance(size, int) else max(2, size.min) for size in shape]
    if np.prod(np.maximum(np.array(sizes, object), 1)) > LARGEST:
        return None
    dtype = port.desc.element_type.dtype
    if dtype.kind == "O":
        return np.full(sizes, "a b", object)
    values = rng.uniform(0, 3, sizes)
    if rng.random() < ODD_SHARE:
        values = np.where(rng.random(sizes) < ODD_SHARE, rng.choice(ODD, sizes), values)
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(dtype)


def _foreign(error: Exception, when: str) -> Outcome:
    place = ""
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        place = f"{Path(code.co_filename).name}:{code.co_name}"
        trace = trace.tb_next
    name = "memory" if isinstance(error, MemoryError) else f"foreign {type(error).__name__}"
    return Outcome(name, f"{when}: in {place}: {error}"[:1000])
