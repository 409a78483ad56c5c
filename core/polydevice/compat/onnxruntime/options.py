"""SessionOptions and RunOptions: settings under onnxruntime's names."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar, overload

from polydevice.bounds import Bounds
from polydevice.compat.onnxruntime.enums import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    OrtExecutionProviderDevicePolicy,
)
from polydevice.compat.onnxruntime.errors import NotImplemented as OrtNotImplemented
from polydevice.compat.onnxruntime.surface import Surface

T = TypeVar("T")


class _Setting(Generic[T]):
    """An attribute that takes values of one type only, as onnxruntime's do."""

    def __init__(self, default: T, check: Callable[[Any], T]) -> None:
        self.default = default
        self.check = check

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> _Setting[T]: ...
    @overload
    def __get__(self, instance: _Settings, owner: type) -> T: ...
    def __get__(self, instance: _Settings | None, owner: type) -> _Setting[T] | T:
        if instance is None:
            return self
        value: T = instance._values.get(self.name, self.default)
        return value

    def __set__(self, instance: _Settings, value: Any) -> None:
        try:
            instance._values[self.name] = self.check(value)
        except TypeError:
            wanted = type(self.default).__name__
            raise TypeError(
                f"{type(instance).__name__}.{self.name} takes {wanted}, not {value!r}"
            ) from None


def _bool(value: Any) -> bool:
    if not isinstance(value, (bool,)) and type(value).__name__ not in ("bool_", "bool"):
        raise TypeError
    return bool(value)


def _one_of(kind: type[T]) -> Callable[[Any], T]:
    def check(value: Any) -> T:
        if not isinstance(value, kind):
            raise TypeError
        return value

    return check


class _Settings(Surface):
    """What both kinds of options share."""

    __slots__ = ("_entries", "_values")

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._entries: dict[str, str] = {}

    def _entry(self, key: str) -> str:
        if key not in self._entries:
            raise RuntimeError(f"{type(self).__name__} does not have configuration with key: {key}")
        return self._entries[key]


class _Terminate(_Setting[bool]):
    """Ends, when it is set, the runs that were given these options."""

    def __set__(self, instance: Any, value: Any) -> None:
        super().__set__(instance, value)
        if value:
            instance._bounds.cancel("RunOptions.terminate was set")
        else:
            instance._bounds = Bounds()


class SessionOptions(_Settings):
    """How a session is made.

    Those with an effect here: `intra_op_num_threads` (threads of the CPU device),
    `enable_profiling`, `profile_file_prefix`, `log_severity_level`, free dimensions, initialisers,
    providers, and `optimized_model_filepath` (an IR with the suffix .xml). The others are kept and
    can be read back; what they ask for (arenas, order of execution, level of optimisation)
    polydevice decides at load.
    """

    __slots__ = ("_dimensions", "_initializers", "_providers")

    enable_cpu_mem_arena = _Setting(True, _bool)
    enable_mem_pattern = _Setting(True, _bool)
    enable_mem_reuse = _Setting(True, _bool)
    enable_profiling = _Setting(False, _bool)
    execution_mode = _Setting(ExecutionMode.ORT_SEQUENTIAL, _one_of(ExecutionMode))
    execution_order = _Setting(ExecutionOrder.DEFAULT, _one_of(ExecutionOrder))
    graph_optimization_level = _Setting(
        GraphOptimizationLevel.ORT_ENABLE_ALL, _one_of(GraphOptimizationLevel)
    )
    inter_op_num_threads = _Setting(0, operator.index)
    intra_op_num_threads = _Setting(0, operator.index)
    log_severity_level = _Setting(-1, operator.index)
    log_verbosity_level = _Setting(0, operator.index)
    logid = _Setting("", _one_of(str))
    optimized_model_filepath = _Setting("", os.fspath)
    profile_file_prefix = _Setting("onnxruntime_profile_", os.fspath)
    use_deterministic_compute = _Setting(False, _bool)
    use_per_session_threads = _Setting(True, _bool)

    def __init__(self) -> None:
        """Make options with onnxruntime's defaults."""
        super().__init__()
        self._dimensions: dict[str, dict[str, int]] = {"dimensions": {}, "denotations": {}}
        self._initializers: dict[str, Any] = {}
        self._providers: list[tuple[str, dict[str, str]]] = []

    def add_free_dimension_override_by_name(self, arg0: str, arg1: int) -> None:
        """Fix the size of axes that the file calls by this name."""
        self._dimensions["dimensions"][arg0] = operator.index(arg1)

    def add_free_dimension_override_by_denotation(self, arg0: str, arg1: int) -> None:
        """Fix the size of axes that the file says to mean this."""
        self._dimensions["denotations"][arg0] = operator.index(arg1)

    def add_initializer(self, arg0: str, arg1: Any) -> None:
        """Use an OrtValue in the place of the model's initialiser of that name."""
        self._initializers[arg0] = arg1

    def add_session_config_entry(self, arg0: str, arg1: str) -> None:
        """Keep an entry; none of onnxruntime's has an effect here."""
        self._entries[arg0] = arg1

    def get_session_config_entry(self, arg0: str) -> str:
        """Return an entry; raises RuntimeError when it was not added."""
        return self._entry(arg0)

    def add_provider(self, arg0: str, arg1: Mapping[str, str]) -> None:
        """Append a provider, for sessions that are made without a list of their own."""
        self._providers.append((arg0, dict(arg1)))

    def has_providers(self) -> bool:
        """Whether providers were added or a policy was set."""
        return bool(self._providers)

    def set_provider_selection_policy(self, arg0: OrtExecutionProviderDevicePolicy) -> None:
        """Choose between GPU and CPU; there is no other device that the policies name."""
        policy = OrtExecutionProviderDevicePolicy
        on_cpu = (policy.PREFER_CPU, policy.DEFAULT, policy.MIN_OVERALL_POWER)
        self._providers = [("PolydeviceCPU", {})]
        if arg0 not in on_cpu:
            self._providers.insert(0, ("PolydeviceGPU", {}))

    def register_custom_ops_library(self, arg0: str) -> None:
        """Refuse: the library holds kernels for onnxruntime.

        Raises:
            NotImplemented: always.
        """
        raise OrtNotImplemented.of(
            f"{arg0} holds operators compiled for onnxruntime, which polydevice cannot call. Write "
            "them as custom layers in OpenCL (docs/custom-layers.md) or as a plugin's operations "
            "(docs/adding-an-operator.md), or make them ordinary operators of the model"
        )

    def add_external_initializers(self, arg0: Sequence[str], arg1: Sequence[Any]) -> None:
        """Use OrtValues in the place of initialisers; see `add_initializer`."""
        self._initializers.update(zip(arg0, arg1, strict=True))


class RunOptions(_Settings):
    """How inferences are run; `terminate` ends those that run with these options."""

    __slots__ = ("_bounds",)

    log_severity_level = _Setting(-1, operator.index)
    log_verbosity_level = _Setting(0, operator.index)
    logid = _Setting("", _one_of(str))
    only_execute_path_to_fetches = _Setting(False, _bool)
    terminate = _Terminate(False, _bool)

    def __init__(self) -> None:
        """Make options with onnxruntime's defaults."""
        super().__init__()
        self._bounds = Bounds()

    def add_run_config_entry(self, arg0: str, arg1: str) -> None:
        """Keep an entry; none of onnxruntime's has an effect here."""
        self._entries[arg0] = arg1

    def get_run_config_entry(self, arg0: str) -> str:
        """Return an entry; raises RuntimeError when it was not added."""
        return self._entry(arg0)
