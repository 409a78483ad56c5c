"""What a session is made of: the network read, set up and loaded, and what its file says."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np

from polydevice.compat.onnxruntime.errors import Fail, InvalidArgument, OrtError, load_failure
from polydevice.compat.onnxruntime.options import SessionOptions
from polydevice.compat.onnxruntime.providers import Placement
from polydevice.compat.onnxruntime.values import type_name
from polydevice.core import shared_core
from polydevice.dataclass import dataclass
from polydevice.dtype import Array, ElementType
from polydevice.errors import PolydeviceError, UnsupportedNetworkError
from polydevice.executable_network import ExecutableNetwork
from polydevice.network import Network
from polydevice.readers.onnx.copy import copy_onnx
from polydevice.tensor import TensorDesc

_log = logging.getLogger("polydevice.compat.onnxruntime")
_default_threads = 0
_NO_VERSION = 2**63 - 1  # what onnxruntime says of a file that has none


def set_global_thread_pool_sizes(
    intra_op_num_threads: int = 0, inter_op_num_threads: int = 0
) -> None:
    """Set the threads of sessions that do not say how many (0: as many as the device chooses)."""
    global _default_threads  # noqa: PLW0603 - the process's own, as the function says
    _default_threads = intra_op_num_threads


@dataclass(frozen=True, eq=False)
class NodeArg:
    """An input, output or initialiser: name, type and sizes (numbers, names, or None)."""

    name: str
    type: str
    shape: list[int | str | None]

    def __str__(self) -> str:
        return f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape})"


@dataclass(frozen=True, eq=False)
class ModelMetadata:
    """What a model's file says about itself."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: dict[str, str]


def metadata(network: Network) -> ModelMetadata:
    """Return what the file says, empty where it says nothing."""
    own = network.notes("onnx")
    version = str(own.get("model_version", ""))
    return ModelMetadata(
        producer_name=str(own.get("producer_name", "")),
        graph_name=str(own.get("graph_name", network.name)),
        domain=str(own.get("domain", "")),
        description=str(own.get("doc_string", "")),
        graph_description=str(own.get("graph_doc_string", "")),
        version=int(version) if version.isdecimal() else _NO_VERSION,
        custom_metadata_map={key: str(v) for key, v in network.notes("framework").items()},
    )


def node_arg(network: Network, name: str, desc: TensorDesc) -> NodeArg:
    """Describe an input or output as onnxruntime does."""
    if desc.kind != "tensor" or desc.shape is None:
        return NodeArg(name, type_name(desc), [])
    names = network.dimension_names(name)
    sizes = [
        size if isinstance(size, int) else names.get(axis) for axis, size in enumerate(desc.shape)
    ]
    return NodeArg(name, type_name(desc), sizes)


def read(model: str | bytes, options: SessionOptions) -> Network:
    """Read a model and set it up as the options say.

    Raises:
        OrtError: (a subclass) as onnxruntime does.
    """
    source = model if isinstance(model, str) else None
    try:
        network = shared_core().read_network(model)
        for kind, sizes in options._dimensions.items():
            inputs = [node.name for node in network.parameters]
            known = {n for name in inputs for n in network.dimension_names(name, kind).values()}
            network.fix_dimensions({n: size for n, size in sizes.items() if n in known}, kind)
            if set(sizes) - known:
                _log.info("no input has an axis %s", ", ".join(sorted(set(sizes) - known)))
        for name, value in options._initializers.items():
            network.set_constant(name, value.numpy())
        if options.optimized_model_filepath:
            _write(network, model, options)
    except PolydeviceError as error:
        raise load_failure(error, source) from error
    return network


def _write(network: Network, model: str | bytes, options: SessionOptions) -> None:
    """Write the model as it was set up; as IR where the file's suffix says so."""
    path = options.optimized_model_filepath
    is_ir = isinstance(model, str) and Path(model).suffix == ".xml"
    if Path(path).suffix == ".xml" or is_ir:
        network.serialize(path)
        return
    _log.warning(
        "%s is the model as it was set up, for any runtime: polydevice optimises its own form of a "
        "network, for one device, which ExecutableNetwork.export keeps",
        path,
    )
    try:
        copy_onnx(model, path, *options._dimensions.values())
    except OSError as error:
        raise Fail.of(f"optimized_model_filepath={path!r}: {error.strerror}") from error


def load(network: Network, placement: Placement, options: SessionOptions) -> ExecutableNetwork:
    """Load a network on the device of a placement, or across it and the CPU.

    Raises:
        OrtError: (a subclass) as onnxruntime does.
    """
    core = shared_core()
    try:
        device = placement.device
        try:
            executable = core.load_network(network, device, _config(device, placement, options))
        except UnsupportedNetworkError:
            if not (placement.may_fall_back and device.startswith("GPU")):
                raise
            device = f"HETERO:{device},CPU"
            executable = core.load_network(network, device, _config(device, placement, options))
    except PolydeviceError as error:
        raise load_failure(error, None) from error
    if not placement.device.startswith("CPU"):
        _say_what_runs_on_the_processor(executable)
    return executable


def _say_what_runs_on_the_processor(executable: ExecutableNetwork) -> None:
    rows = [row for row in executable.placement() if row.type not in ("Const", "Result")]
    there = sorted({row.type for row in rows if row.device == "CPU"})
    if there:
        _log.warning(
            "%s: %d of %d nodes run on the processor (%s); `polydevice place` says why",
            executable.name,
            sum(row.device == "CPU" for row in rows),
            len(rows),
            ", ".join(there),
        )


def _config(device: str, placement: Placement, options: SessionOptions) -> dict[str, Any]:
    known = shared_core().option_keys(device)
    config: dict[str, Any] = {}
    threads = max(options.intra_op_num_threads, 0) or _default_threads
    if threads and "CPU_THREADS_NUM" in known:
        config["CPU_THREADS_NUM"] = threads
    if options.enable_profiling and "PERF_COUNT" in known:
        config["PERF_COUNT"] = True
    return {**config, **placement.config}


def misfit(name: str, desc: TensorDesc, value: Any) -> OrtError | None:
    """Return what onnxruntime raises for a value that does not fit; None when it does."""
    if not isinstance(value, np.ndarray) or desc.kind == "optional":
        return None
    fix = "Please fix either the inputs/outputs or the model."
    if desc.kind != "tensor" or not _has_type(value, desc):
        actual = type_name(TensorDesc(_element_type(value), None))
        return InvalidArgument.of(
            f"Unexpected input data type. Actual: ({actual}) , expected: ({type_name(desc)})"
        )
    if desc.shape is None or (not desc.shape and value.size == 1):  # any rank will do for a number
        return None
    if value.ndim != len(desc.shape):
        return InvalidArgument.of(
            f"Invalid rank for input: {name} Got: {value.ndim} Expected: {len(desc.shape)} {fix}"
        )
    wrong = [
        f" index: {axis} Got: {got} Expected: {expected}\n"
        for axis, (got, expected) in enumerate(zip(value.shape, desc.shape, strict=True))
        if isinstance(expected, int) and got != expected
    ]
    if not wrong:
        return None
    return InvalidArgument.of(
        f"Got invalid dimensions for input: {name} for the following indices\n"
        f"{''.join(wrong)} {fix}"
    )


def _has_type(value: Array, desc: TensorDesc) -> bool:
    """Whether a value has the type of an input, but for the order of its bytes."""
    if desc.dtype.hasobject:
        return value.dtype.kind in "OUS"
    return np.can_cast(value.dtype, desc.dtype, "equiv")


def _element_type(value: Array) -> ElementType:
    try:
        return ElementType.of(value.dtype.newbyteorder("="))
    except PolydeviceError as error:
        raise Fail.of(str(error)) from error
