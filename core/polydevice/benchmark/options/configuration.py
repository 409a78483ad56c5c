"""The configuration that ``polydevice bench`` loads a network with."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polydevice.benchmark.options.arguments import HINTS
from polydevice.benchmark.options.texts import parse_values
from polydevice.benchmark.printing import warn
from polydevice.core import Core
from polydevice.device_name import DeviceName
from polydevice.errors import OptionValueError


def make_configuration(core: Core, options: argparse.Namespace, device: str) -> dict[str, str]:
    """Combine the loaded file, what reports need, and the command line, which wins.

    Raises:
        OptionValueError: for -nstreams of a device that is not measured or has no streams.
    """
    config: dict[str, str] = {}
    if options.load_config:
        loaded = _read(Path(options.load_config))
        for name in (DeviceName.parse(device).family, device):
            config.update({key: str(value) for key, value in loaded.get(name, {}).items()})
    config.update(_counting(options, config))
    keys = known_keys(core, device)
    config.update(_streams(options, device, keys))
    if options.perf_hint in HINTS:
        config["PERFORMANCE_HINT"] = HINTS[options.perf_hint]
        if options.number_infer_requests:
            config["PERFORMANCE_HINT_NUM_REQUESTS"] = str(options.number_infer_requests)
    if options.number_threads:
        config["CPU_THREADS_NUM"] = str(options.number_threads)
    if options.enforcebf16:
        config["ENFORCE_BF16"] = "YES"
    config.update(_precisions(options, device, keys))
    config.update(_for_some_devices(options, device, keys))
    if options.cache_dir and "CACHE_DIR" in keys:
        config["CACHE_DIR"] = options.cache_dir
    if options.dump_config:
        _dump(Path(options.dump_config), options.target_device.split(), device, config)
    return config


def _for_some_devices(options: argparse.Namespace, device: str, keys: set[str]) -> dict[str, str]:
    """What only some devices understand; a warning for the others."""
    config: dict[str, str] = {}
    if options.path_to_cldnn_config:
        if "CONFIG_FILE" in keys:
            config["CONFIG_FILE"] = options.path_to_cldnn_config
        else:
            warn(f"-c is for GPU; {device} has no key CONFIG_FILE")
    if options.infer_threads_pinning:
        if "CPU_BIND_THREAD" in keys:
            config["CPU_BIND_THREAD"] = options.infer_threads_pinning
        else:
            warn(
                f"-pin {options.infer_threads_pinning} has no effect: {device} leaves its threads "
                "to the operating system; taskset or numactl can place the whole process"
            )
    if options.quantization_bits:
        warn(f"-qb {options.quantization_bits} has no effect: it is for GNA devices, not {device}")
    return config


def _read(path: Path) -> dict[str, dict[str, Any]]:
    try:
        loaded = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionValueError(f"-load_config {str(path)!r}: {error.strerror}") from None
    except ValueError as error:
        raise OptionValueError(f"-load_config {str(path)!r} is no JSON: {error}") from None
    if isinstance(loaded, dict) and all(isinstance(each, dict) for each in loaded.values()):
        return loaded
    raise OptionValueError(f"-load_config {str(path)!r} holds no {{device: {{key: value}}}}")


def _dump(path: Path, devices: list[str], device: str, config: Mapping[str, str]) -> None:
    """Write the configuration of a device beside those of the devices measured before it."""
    earlier = devices[: devices.index(device)] if device in devices else []
    kept = json.loads(path.read_text(encoding="utf-8")) if earlier and path.is_file() else {}
    found = {name: kept[name] for name in earlier if name in kept}
    text = json.dumps({**found, device: config}, indent=4)
    path.write_text(text + "\n", encoding="utf-8")


def _counting(options: argparse.Namespace, config: Mapping[str, str]) -> dict[str, str]:
    """PERF_COUNT: an explicit -pc wins, then the loaded file, then what reports need."""
    if options.perf_counts is not None:
        return {"PERF_COUNT": "YES" if options.perf_counts else "NO"}
    if "PERF_COUNT" in config:
        warn(f"PERF_COUNT={config['PERF_COUNT']} is taken from the loaded configuration")
        return {}
    if options.report_type in ("average_counters", "detailed_counters"):
        warn(f"counters are on: -report_type {options.report_type} needs them")
        return {"PERF_COUNT": "YES"}
    if options.exec_graph_path:
        warn("counters are on: -exec_graph_path needs them")
        return {"PERF_COUNT": "YES"}
    return {}


def known_keys(core: Core, device: str) -> set[str]:
    """Return the configuration keys of a device, and of those that it stands for."""
    name = DeviceName.parse(device)
    members = [member.name for member in name.members] or [device]
    if device == "AUTO":
        members += core.available_devices
    return {key for member in members for key in core.option_keys(member)}


_CPU_PRECISIONS = {"bf16": "YES", "f32": "NO", "fp32": "NO"}


def _precisions(options: argparse.Namespace, device: str, keys: set[str]) -> dict[str, str]:
    """-infer_precision: what a device computes in.

    Raises:
        OptionValueError: for a type that a device cannot compute in.
    """
    config: dict[str, str] = {}
    named = ":" in options.infer_precision
    for family, text in parse_values(
        options.infer_precision, _families(device), "-infer_precision"
    ).items():
        precision = text.lower()
        if family == "CPU":
            if precision not in _CPU_PRECISIONS:
                raise OptionValueError(
                    f"-infer_precision {text!r}: CPU computes in {', '.join(_CPU_PRECISIONS)}"
                )
            config["ENFORCE_BF16"] = _CPU_PRECISIONS[precision]
        elif "INFERENCE_PRECISION_HINT" in keys:
            config["INFERENCE_PRECISION_HINT"] = precision
        elif named:
            raise OptionValueError(f"-infer_precision: {family} does not let one choose")
        else:
            warn(f"-infer_precision has no effect: {family} does not let one choose")
    return config


def _families(device: str) -> list[str]:
    name = DeviceName.parse(device)
    return [member.family for member in name.members] or [name.family]


def _streams(options: argparse.Namespace, device: str, keys: set[str]) -> dict[str, str]:
    families = _families(device)
    config: dict[str, str] = {}
    given = parse_values(options.number_streams, families, "-nstreams")
    for family in dict.fromkeys(families):
        key = f"{family}_THROUGHPUT_STREAMS"
        if key not in keys:
            if family in given and family in options.number_streams:
                raise OptionValueError(
                    f"-nstreams {options.number_streams}: {family} has no key {key}"
                )
            continue
        if family in given:
            auto = given[family].upper() == "AUTO"
            config[key] = f"{family}_THROUGHPUT_AUTO" if auto else given[family]
        elif options.api == "async" and options.perf_hint is None:
            config[key] = f"{family}_THROUGHPUT_AUTO"
            warn(f"-nstreams is not given: {key} is set to {family}_THROUGHPUT_AUTO")
    return config
