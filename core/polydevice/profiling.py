"""LayerCount: what a request counts for each layer of an inference."""

from __future__ import annotations

from typing import Any, Literal

from polydevice.dataclass import dataclass

Status = Literal["EXECUTED", "OPTIMIZED_OUT", "NOT_RUN"]


@dataclass(frozen=True)
class LayerCount:
    """Counters of one layer.

    Attributes:
        name: the layer's name in the model (or of what the device inserted).
        status: EXECUTED, OPTIMIZED_OUT (fused or turned into a view) or NOT_RUN.
        layer_type: operation type.
        exec_type: name of the kernel or primitive that ran, "undef" without one.
        real_time_us: time on the device, in microseconds.
        cpu_time_us: time on the host, in microseconds.
        execution_index: position in the execution order.
    """

    name: str
    status: Status
    layer_type: str
    exec_type: str
    real_time_us: float
    cpu_time_us: float
    execution_index: int

    def as_dict(self) -> dict[str, Any]:
        """Return the Inference Engine's form of the counters."""
        return {
            "status": self.status,
            "exec_type": self.exec_type,
            "layer_type": self.layer_type,
            "real_time": round(self.real_time_us),
            "cpu_time": round(self.cpu_time_us),
            "execution_index": self.execution_index,
        }
