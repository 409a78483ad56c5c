"""Run: what ``polydevice bench`` measured on one device, as its JSON file has it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from polydevice.errors import OptionValueError

SMALLEST, LARGEST = 1e-15, 1e30
"""No figure that was measured lies outside, but for 0; quotients of two of them are finite."""


def _measurable(value: float) -> float:
    if 0 < value < SMALLEST:
        raise ValueError(f"Input should be 0 or at least {SMALLEST:g}")
    return value


Time = Annotated[float, Field(ge=0, le=LARGEST, allow_inf_nan=False), AfterValidator(_measurable)]
Count = Annotated[int, Field(ge=0, lt=1 << 63)]

PEAK_TYPES = {
    "FP32": "f32", "FP16": "f16", "BF16": "bf16", "I8": "i8", "U8": "i8", "FP64": "f64",
}  # fmt: skip
"""The Inference Engine's names of element types → names of peaks."""

LARGEST_FILE_BYTES = 256 << 20
"""Of a file that is read; one of 10,000 layers has 3 MiB."""


class Layer(BaseModel):
    """One step that ran.

    Attributes:
        name: of the step, the model's name of a layer where it has one.
        type: of its operations.
        kernel: that ran.
        time_us: on average, in microseconds.
        layers: the model's layers that it computes.
        element_type: of what it writes, in the Inference Engine's names.
        operations: arithmetic operations, a product with a sum being two; None when not known.
        bytes: read and written, each tensor once; None when a size is not known.
    """

    name: str
    type: str
    kernel: str
    time_us: Time
    layers: list[str] = []
    element_type: str = ""
    operations: Count | None = None
    bytes: Count | None = None


class Fate(BaseModel):
    """What became of a layer of the model."""

    name: str
    type: str
    reason: str


class DeviceShare(BaseModel):
    """How many layers run on a device for one reason; the device is "" for none."""

    device: str
    reason: str
    layers: Count
    bytes_in: Count = 0


class Peaks(BaseModel):
    """What a device can do at most, as it was measured.

    Attributes:
        operations: element type, such as "f32" → operations per second.
        bytes: bytes per second, read and written together.
        how: says where the figures come from.
    """

    operations: dict[str, Time] = {}
    bytes: Time = 0
    how: str = ""


class Details(BaseModel):
    """What only a report needs; every part may be missing.

    Attributes:
        machine: what → text.
        latencies_ms: in the order of the inferences, thinned out evenly.
        layers: in execution order.
        fates: of every layer, from `explain`.
        notes: the further lines of `explain`: launches, memory.
        places: on which devices layers run.
        memory: seconds since the start and bytes of the process.
        marks: seconds since the start and what began then.
        peaks: of the device; None when they are not measured.
        missing: part → why it is not there.
    """

    machine: dict[str, str] = {}
    latencies_ms: list[Time] = []
    layers: list[Layer] = []
    fates: list[Fate] = []
    notes: list[str] = []
    places: list[DeviceShare] = []
    memory: list[tuple[Time, Time]] = []
    marks: list[tuple[Time, str]] = []
    peaks: Peaks | None = None
    missing: dict[str, str] = {}


class Run(BaseModel):
    """One measured device; the names are those of the JSON file."""

    model_config = ConfigDict(populate_by_name=True)

    device: str
    model: str = ""
    error: str = ""
    date: str = ""
    config: dict[str, str] = {}
    shapes: dict[str, list[int | str]] = {}
    iterations: Count | None = Field(None, alias="number of iterations")
    duration_ms: Time | None = Field(None, alias="total execution time (ms)")
    throughput: Time | None = Field(None, alias="throughput (FPS)")
    p50: Time | None = Field(None, alias="latency p50 (ms)")
    p90: Time | None = Field(None, alias="latency p90 (ms)")
    p99: Time | None = Field(None, alias="latency p99 (ms)")
    read_ms: Time | None = Field(None, alias="read network time (ms)")
    load_ms: Time | None = Field(None, alias="load network time (ms)")
    first_ms: Time | None = Field(None, alias="first inference time (ms)")
    phases: dict[str, Time] = Field({}, alias="phases (ms)")
    compare: dict[str, Time] = Field({}, alias="compare (ms)")
    host_bytes: Count | None = Field(None, alias="peak host memory (bytes)")
    device_bytes: Count | None = Field(None, alias="peak device memory (bytes)")
    cold: dict[str, Time] = Field({}, alias="first inference, cold process (ms)")
    warm: dict[str, Time] = Field({}, alias="first inference, warm process (ms)")
    details: Details = Field(default_factory=Details, alias="report")

    @property
    def title(self) -> str:
        """The model's file name without its folder, and the device."""
        return f"{Path(self.model).name or 'a network'} on {self.device}"


def runs_of(results: Sequence[Mapping[str, Any]], source: str) -> list[Run]:
    """Return the runs of a file's results.

    Raises:
        OptionValueError: naming the file, and what in it is no figure of ``polydevice bench``.
    """
    try:
        return [Run.model_validate(result) for result in results]
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise OptionValueError(
            f"{source!r} is no file of `polydevice bench --json`: {place}: {first['msg']}"
        ) from None


def read_runs(path: str) -> list[Run]:
    """Return the runs in a file that ``polydevice bench --json`` wrote.

    Raises:
        OptionValueError: the file cannot be read, or holds something else.
    """
    wrong = f"{path!r} is no file of `polydevice bench --json`"
    try:
        if Path(path).stat().st_size > LARGEST_FILE_BYTES:
            raise OptionValueError(f"{wrong}: it has more than {LARGEST_FILE_BYTES} bytes")
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionValueError(f"{path!r} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise OptionValueError(f"{wrong}: {error}") from None
    results = content.get("results") if isinstance(content, dict) else None
    if not isinstance(results, list) or not results:
        raise OptionValueError(f"{wrong}: it has no results")
    return runs_of(results, path)


def thinned(values: list[float], most: int = 4000) -> list[float]:
    """Return at most so many of the values, evenly spread, in their order."""
    step = math.ceil(len(values) / most) if values else 1
    return values[::step]
