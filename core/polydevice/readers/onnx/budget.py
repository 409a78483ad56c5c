"""Budget: what is left of the limits while one ONNX model is read."""

from __future__ import annotations

from polydevice.errors import ModelLimitError
from polydevice.readers.limits import ReadLimits


class Budget:
    """Counts what a model has asked for; every method raises ModelLimitError beyond its limit."""

    def __init__(self, limits: ReadLimits) -> None:
        self.limits = limits
        self._nodes = 0
        self._dense_bytes = 0

    def take_node(self) -> None:
        """Count one node; those of functions count in every expansion."""
        self._nodes += 1
        if self._nodes > self.limits.layers:
            raise ModelLimitError(
                f"the model has more than {self.limits.layers} nodes after expanding functions"
            )

    def take_dense(self, size_bytes: int) -> None:
        """Count the dense form of a sparse tensor, or of what trees list sparsely."""
        self._dense_bytes += size_bytes
        if self._dense_bytes > self.limits.sparse_bytes:
            raise ModelLimitError(
                "sparse tensors and tables of trees take more than "
                f"{self.limits.sparse_bytes} bytes when dense"
            )

    def check_bodies(self, depth: int) -> None:
        """Check the nesting of bodies."""
        if depth > self.limits.body_depth:
            raise ModelLimitError(f"bodies are nested more than {self.limits.body_depth} deep")

    def check_calls(self, depth: int) -> None:
        """Check the nesting of function calls."""
        if depth > self.limits.function_depth:
            raise ModelLimitError(
                f"functions are nested more than {self.limits.function_depth} deep, or call "
                "themselves"
            )
