"""OnnxRuntimeBackendRep: a model that ONNX's backend interface has prepared."""

from __future__ import annotations

from typing import Any

from polydevice.compat.onnxruntime.session import InferenceSession
from polydevice.compat.onnxruntime.surface import Surface


class OnnxRuntimeBackendRep(Surface):
    """A model that was loaded."""

    def __init__(self, session: InferenceSession) -> None:
        """Run on a session."""
        self._session = session

    def run(self, inputs: Any, **_: Any) -> list[Any]:
        """Run the model.

        Args:
            inputs: a list of arrays in the order of the inputs, or the only input's array.

        Returns:
            The outputs.

        Raises:
            RuntimeError: one array for a model of several inputs.
            ValueError, OrtError: see `InferenceSession.run`.
        """
        names = [each.name for each in self._session.get_inputs()]
        if not isinstance(inputs, list):
            if len(names) != 1:
                raise RuntimeError(f"Model expect {len(names)} inputs")
            inputs = [inputs]
        return self._session.run(None, dict(zip(names, inputs, strict=False)))
