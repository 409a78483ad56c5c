"""Recorder: collects what a report needs while a network is measured."""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from polydevice.benchmark.measure import Statistics
from polydevice.benchmark.options.configuration import known_keys
from polydevice.core import Core
from polydevice.dtype import Array
from polydevice.errors import PolydeviceError
from polydevice.executable_network import ExecutableNetwork
from polydevice.inspection import measured
from polydevice.network import Network
from polydevice.report.gather import MemorySampler, machine, profile
from polydevice.report.peaks import measure_peaks
from polydevice.report.run import Details, Peaks, thinned

Load = Callable[[Mapping[str, str]], ExecutableNetwork]
"""Loads the measured network once more, with another configuration."""

_MARKS = {4: "read", 7: "load", 10: "measure", 11: ""}
"""Step of the tool → what begins there."""


class Recorder:
    """Of one run on one device.

    Attributes:
        details: what was collected.
        network: as it was read; None where it was not.
        load: loads it again.
        inputs: that it was measured with.
    """

    def __init__(self, core: Core, device: str) -> None:
        """Begin to watch the memory of the process."""
        self.details = Details(machine=machine(core, device))
        self.network: Network | None = None
        self.load: Load | None = None
        self.inputs: Sequence[Mapping[str, Array]] = ()
        self._core, self._device = core, device
        self._memory = MemorySampler()

    def begins(self, step: int) -> None:
        """Note that a step of the tool begins; memory is watched until measuring has ended."""
        if _MARKS.get(step):
            self._memory.mark(_MARKS[step])
        elif step in _MARKS:
            self.end_memory()

    def end_memory(self) -> None:
        """Keep what the memory was until now."""
        self._memory.close()
        self.details.memory = list(self._memory.samples)
        self.details.marks = list(self._memory.marks)

    def keep_latencies(self, statistics: Statistics) -> None:
        """Keep the latencies."""
        self.details.latencies_ms = thinned(list(statistics.in_order))

    @contextmanager
    def new_processes(self, config: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
        """Yield the configuration with an empty CACHE_DIR, where the device has that key.

        So the first process compiles, and the second one finds what the first one compiled. Where
        they fail, the report says so: its other parts are worth having.
        """
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            keys = known_keys(self._core, self._device)
            try:
                yield {**config, "CACHE_DIR": folder} if "CACHE_DIR" in keys else config
            except PolydeviceError as error:
                self.details.missing["loading"] = str(error)

    def profile(self, config: Mapping[str, str]) -> None:
        """Load the network again with PERF_COUNT, time its layers, and measure the peaks."""
        if self.load is None or not self.inputs:
            return
        try:
            with self.load({**config, "PERF_COUNT": "YES"}) as executable:
                profile(executable, self.inputs, self.network, self.details)
        except PolydeviceError as error:  # the other parts of the report are worth having
            for part in ("layers", "fates", "places"):
                self.details.missing.setdefault(part, str(error))
        try:
            self.details.peaks = self._peaks(config)
        except PolydeviceError as error:
            self.details.missing["peaks"] = f"The device's peaks are not measured: {error}"

    def _peaks(self, config: Mapping[str, str]) -> Peaks:
        """Measure peaks with this configuration; those of other types as they were kept."""
        peaks = measure_peaks(self._core, self._device, config)
        kept = measured.load(self._core.device_identity(self._device))
        others = {} if kept is None else {t: g * 1e9 for t, g in kept.gops.items()}
        if others.keys() - peaks.operations.keys():
            peaks.how += "; those of other types by `polydevice devices --measure`"
        peaks.operations = {**others, **peaks.operations}
        return peaks

    def figures(self) -> dict[str, Any]:
        """Return the date and what was collected, for JSON."""
        now = dt.datetime.now(dt.timezone.utc)
        return {"date": f"{now:%Y-%m-%d %H:%M} UTC", "report": self.details.model_dump()}
