"""Options: the configuration of a device, declared once per key.

A plugin lists its keys as fields of one pydantic model. From that table come validation, error
texts, read-back, SUPPORTED_CONFIG_KEYS, the documentation page and command-line help::

    class CpuOptions(Options):
        threads_num: int = option("CPU_THREADS_NUM", 0, ge=0, help="Threads for one inference …")
        perf_count: Flag = option("PERF_COUNT", False, help="Collect times per layer.")

    options = CpuOptions().updated({"PERF_COUNT": "YES"})
"""

from __future__ import annotations

import typing
import warnings
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from typing_extensions import Self

from polydevice.dataclass import dataclass
from polydevice.errors import OptionValueError, UnknownOptionError, nearest
from polydevice.options.accuracy_bound import LEGAL as LEGAL_ACCURACY
from polydevice.options.accuracy_bound import AccuracyBound
from polydevice.options.shape_buckets import LEGAL as LEGAL_BUCKETS
from polydevice.options.shape_buckets import ShapeBuckets


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if value == "YES":
        return True
    if value == "NO":
        return False
    raise ValueError("legal: YES, NO")


Flag = Annotated[bool, BeforeValidator(_flag)]
"""YES or NO in text, True or False in Python."""


_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


def _bytes(value: object) -> int:
    text = str(value).strip().upper().removesuffix("B").removesuffix("I")
    number, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS and text else (text, "")
    if isinstance(value, (bool, float)) or not number.strip().isdecimal():
        raise ValueError("legal: a number of bytes, also with K, M, G or T behind it (of 1024)")
    return int(number) << _UNITS[unit]


Bytes = Annotated[int, BeforeValidator(_bytes)]
"""A number of bytes; in text also with a unit: 512M, 2 GiB."""


def _accuracy(value: object) -> str:
    bound = AccuracyBound.parse(value)
    return "" if bound is None else str(bound)


def _buckets(value: object) -> str:
    buckets = ShapeBuckets.parse(value)
    return "" if buckets is None else str(buckets)


@dataclass(frozen=True)
class OptionInfo:
    """What documentation and messages say about one key."""

    key: str
    field: str
    aliases: tuple[str, ...]
    default: str
    legal: str
    help: str
    deprecated: str


def option(
    key: str,
    default: Any,
    *,
    help: str,  # noqa: A002 - reads best where options are declared
    aliases: tuple[str, ...] = (),
    deprecated: str = "",
    legal: str = "",
    exported: bool = True,
    adds: bool = False,
    ge: int | None = None,
    le: int | None = None,
) -> Any:
    """Declare one configuration key as a field of an `Options` model.

    Args:
        key: the Inference Engine's name, without ``KEY_``.
        default: value when nobody sets the key.
        help: one or two sentences; they appear in the documentation.
        aliases: deprecated names that mean the same; using one warns.
        deprecated: why the key itself is deprecated and what to use instead.
        legal: legal values in words, where the type and range do not say it.
        exported: whether an exported network keeps it; not what is about one machine or run.
        adds: whether the key is a list of words, and setting it again adds words to it; an empty
            text empties it.
        ge: smallest legal number.
        le: largest legal number.
    """
    extra: dict[str, Any] = {
        "key": key,
        "aliases": list(aliases),
        "deprecated": deprecated,
        "legal": legal,
        "exported": exported,
        "adds": adds,
    }
    return Field(default, description=help, ge=ge, le=le, json_schema_extra=extra)


class Options(BaseModel):
    """The configuration of one device; immutable, so that a network keeps what it was given."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=False)

    performance_hint: Literal["", "LATENCY", "THROUGHPUT"] = option(
        "PERFORMANCE_HINT",
        "",
        legal="LATENCY, THROUGHPUT, or nothing",
        help="What the device should aim at where no key says how: the time of one request, or "
        "the number of requests per second. Keys set explicitly win.",
    )
    hint_num_requests: int = option(
        "PERFORMANCE_HINT_NUM_REQUESTS",
        0,
        ge=0,
        help="How many requests will run at once at most, as a limit to what PERFORMANCE_HINT "
        "chooses; 0 does not say.",
    )
    infer_timeout_ms: int = option(
        "INFER_TIMEOUT_MS",
        0,
        ge=0,
        exported=False,
        help="Milliseconds, from infer() or start_async() on, after which an inference is given "
        "up with InferTimeoutError; 0 for no limit. It is looked at in every iteration of a loop, "
        "between steps of a plan and while waiting for a queue; a launch or primitive that runs "
        "is not interrupted.",
    )
    memory_limit: Bytes = option(
        "MEMORY_LIMIT",
        0,
        legal="bytes, also with K, M, G or T behind the number (of 1024 each)",
        exported=False,
        help="The most memory that the network may use, all its requests together: constants and "
        "packed weights, the memory of plans, inputs and outputs, and values whose size is known "
        "only when they are computed. It is checked before memory is taken (DeviceMemoryError). "
        "0 is what the machine or its control groups have, and for device memory what the device "
        "has; a limit that is set holds for the sum of both.",
    )
    shape_buckets: Annotated[str, BeforeValidator(_buckets)] = option(
        "SHAPE_BUCKETS",
        "",
        legal=LEGAL_BUCKETS,
        exported=False,
        help="Sizes that inputs of unknown size are padded up to, so that few shapes are planned. "
        "Outputs are cut back. A network is refused where padding might change an answer, with the "
        "operation and the axis. See [shapes that change](shapes.md).",
    )

    accuracy_guard: Annotated[str, BeforeValidator(_accuracy)] = option(
        "ACCURACY_GUARD",
        "",
        legal=LEGAL_ACCURACY,
        exported=False,
        help="How far the outputs of a network that the device computes in f16, bf16 or on 8-bit "
        "integers may be from those in f32. Loading then compares the two, and keeps the fewest "
        "layers in f32 that bring the outputs within the bound; `explain()` lists them. See "
        "[the accuracy guard](accuracy-guard.md).",
    )
    accuracy_guard_inputs: str = option(
        "ACCURACY_GUARD_INPUTS",
        "",
        legal="a path",
        exported=False,
        help="What the accuracy guard compares on: an .npz file with an array for each input, an "
        ".npy file for a network with one input, or a folder of such files. Empty for random "
        "values.",
    )
    accuracy_guard_seconds: int = option(
        "ACCURACY_GUARD_SECONDS",
        300,
        ge=1,
        exported=False,
        help="Seconds after which the accuracy guard stops looking for the fewest layers, and "
        "keeps whole groups of them in f32 instead.",
    )

    def trial(self, *, in_f32: bool) -> Self:
        """Return the configuration with which the accuracy guard tries a network.

        A device that computes in less than f32 overrides it; the guard compares what the two
        configurations compute, and guards nothing where they are equal.

        Args:
            in_f32: whether all is to be computed in f32; else as this configuration says.
        """
        del in_f32
        return self

    def hinted(self, field: str, throughput: int) -> int:
        """Return a number of streams: what was set explicitly, else what PERFORMANCE_HINT means.

        Args:
            field: the field that holds the device's number of streams.
            throughput: the number that gives the most requests per second.
        """
        if field in self.model_fields_set or not self.performance_hint:
            return int(getattr(self, field))
        if self.performance_hint == "LATENCY":
            return 1
        return min(throughput, self.hint_num_requests or throughput)

    @classmethod
    def table(cls) -> list[OptionInfo]:
        """Describe every key, sorted by name; fields marked ``internal`` are no keys."""
        rows = [
            _describe(name, field)
            for name, field in cls.model_fields.items()
            if not typing.cast("dict[str, Any]", field.json_schema_extra or {}).get("internal")
        ]
        return sorted(rows, key=lambda row: row.key)

    @classmethod
    def keys(cls) -> list[str]:
        """Every key that can be set and read back, aliases included, sorted."""
        return sorted(key for row in cls.table() for key in (row.key, *row.aliases))

    @classmethod
    def field_of(cls, key: str) -> str:
        """Return the field behind a key, an alias, or either with ``KEY_`` in front.

        Raises:
            UnknownOptionError: naming the nearest legal keys.
        """
        if not isinstance(key, str):
            raise UnknownOptionError(f"configuration keys are strings, not {key!r}")
        name = key.removeprefix("KEY_")
        for row in cls.table():
            if name == row.key or name in row.aliases:
                return row.field
        known = cls.keys()
        raise UnknownOptionError(
            f"unknown configuration key {key!r}.{nearest(name, known)} Legal: {', '.join(known)}"
        )

    def updated(self, config: Mapping[str, Any]) -> Self:
        """Return a copy with some keys changed; all of them or none.

        Raises:
            UnknownOptionError: for a key that does not exist.
            OptionValueError: for an illegal value, or an alias and its successor that disagree.
        """
        changes: dict[str, Any] = {}
        given: dict[str, str] = {}
        for key, value in config.items():
            field = self.field_of(key)
            if field in changes and changes[field] != value:
                raise OptionValueError(
                    f"{given[field]}={changes[field]!r} and {key}={value!r} set the same option "
                    "to different values; give one of them"
                )
            changes[field], given[field] = value, key
        if not changes:
            return self
        for field, value in list(changes.items()):
            if self._adds(field):
                changes[field] = _together(getattr(self, field), value)
        try:
            # Re-validating the whole keeps what one field says about another checked as well.
            made = type(self).model_validate({**self.model_dump(exclude_unset=True), **changes})
        except ValidationError as error:
            raise OptionValueError(_explain(type(self), given, error)) from None
        self._warn(given)
        return made

    @classmethod
    def _adds(cls, field: str) -> bool:
        extra = typing.cast("dict[str, Any]", cls.model_fields[field].json_schema_extra or {})
        return bool(extra.get("adds"))

    @classmethod
    def merged(cls, earlier: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
        """Return what two configurations given one after the other amount to.

        Raises:
            UnknownOptionError: for a key that does not exist.
        """
        before = {cls.field_of(key): (key, value) for key, value in earlier.items()}
        made: dict[str, Any] = {}
        for key, value in later.items():
            field = cls.field_of(key)
            adds = field in before and cls._adds(field)
            made[key] = _together(before[field][1], value) if adds else value
        named = {cls.field_of(key) for key in later}
        return {**{key: v for field, (key, v) in before.items() if field not in named}, **made}

    def exported(self) -> dict[str, str]:
        """Return key → text of what was set and an exported network keeps."""
        found = {}
        for name in self.model_fields_set:
            extra = typing.cast(
                "dict[str, Any]", type(self).model_fields[name].json_schema_extra or {}
            )
            if extra.get("exported", True) and not extra.get("internal"):
                found[extra.get("key", name.upper())] = as_text(getattr(self, name))
        return dict(sorted(found.items()))

    def over(self, exported: Mapping[str, Any]) -> Self:
        """Return this configuration with what it leaves unset taken from an exported network.

        Raises:
            OptionError: (a subclass) a key or value is not legal here.
        """
        below = type(self)().updated(exported)
        return below.model_copy(update=self.model_dump(exclude_unset=True))

    @classmethod
    def _warn(cls, given: Mapping[str, str]) -> None:
        for row in cls.table():
            key = given.get(row.field, row.key).removeprefix("KEY_")
            if row.field in given and key in row.aliases:
                message = f"configuration key {key} is deprecated; use {row.key}"
                warnings.warn(message, DeprecationWarning, stacklevel=4)

    def read(self, key: str) -> str:
        """Return the value of a key as text (YES/NO for flags).

        Raises:
            UnknownOptionError: naming the nearest legal keys.
        """
        return as_text(getattr(self, self.field_of(key)))


def _together(earlier: Any, later: Any) -> Any:
    """Append the words of a text; one that was there moves to the end, where it counts last."""
    if not isinstance(later, str) or not later.strip():
        return later
    added = later.split()
    return " ".join([word for word in str(earlier).split() if word not in added] + added)


def as_text(value: Any) -> str:
    """Write a value the way the Inference Engine does: YES/NO, numbers, plain text."""
    if isinstance(value, bool):
        return "YES" if value else "NO"
    if isinstance(value, (tuple, list)):
        return ",".join(as_text(item) for item in value)
    return "" if value is None else str(value)


def _describe(name: str, field: FieldInfo) -> OptionInfo:
    extra = typing.cast("dict[str, Any]", field.json_schema_extra or {})
    default = field.default if field.default is not PydanticUndefined else None
    return OptionInfo(
        key=extra.get("key", name.upper()),
        field=name,
        aliases=tuple(extra.get("aliases", ())),
        default=as_text(default),
        legal=extra.get("legal") or _legal(field),
        help=field.description or "",
        deprecated=extra.get("deprecated", ""),
    )


def _legal(field: FieldInfo) -> str:
    kind = field.annotation
    if kind is bool:
        return "YES, NO"
    if typing.get_origin(kind) is Literal:
        return ", ".join(as_text(choice) for choice in typing.get_args(kind))
    limits = {type(m).__name__.lower(): m for m in field.metadata}
    low = getattr(limits.get("ge"), "ge", None)
    high = getattr(limits.get("le"), "le", None)
    if kind is int:
        if low is not None and high is not None:
            return f"{low} to {high}"
        return f"an integer, {low} or more" if low is not None else "an integer"
    return "text" if kind is str else str(getattr(kind, "__name__", kind))


def _explain(cls: type[Options], given: Mapping[str, str], error: ValidationError) -> str:
    legal = {row.field: row.legal for row in cls.table()}
    keys = {row.field: row.key for row in cls.table()}
    parts = []
    for item in error.errors():
        field = str(item["loc"][0]) if item["loc"] else ""
        key = given.get(field, keys.get(field, field))
        reason = item["msg"].removeprefix("Value error, ")
        hint = f"; legal: {legal[field]}" if legal.get(field) and "legal:" not in reason else ""
        parts.append(f"{key}={item['input']!r} is not legal: {reason}{hint}")
    return "; ".join(parts)
