"""Part: the request's counterpart on one device."""

from __future__ import annotations

from polydevice.blob import Blob
from polydevice.dtype import Array
from polydevice_auto.member import Member


class Part:
    """A request of a device, and which memory it was given.

    Attributes:
        request: the device's own.
        member: the device.
    """

    def __init__(self, member: Member) -> None:
        """Make a request there."""
        self.request = member.executable.create_infer_request()
        self.request.runner.is_part = True
        self.member = member
        self._inputs: dict[str, Blob] = {}
        self._outputs: dict[str, Blob] = {}

    def infer(
        self, blobs: dict[str, Blob], outputs: dict[str, Blob], stream: int
    ) -> dict[str, Array]:
        """Run one inference.

        Args:
            blobs: all inputs, in memory that is used in place.
            outputs: those for which the user set memory. It is written directly unless the device
                may be left behind, in the midst of writing.
            stream: of the device's network.

        Returns:
            Name → array of all outputs; of the user's memory, or of the request's.
        """
        changed = {n: blob for n, blob in blobs.items() if self._inputs.get(n) is not blob}
        if not self.member.is_watched:
            for name, blob in outputs.items():
                if self._outputs.get(name) is not blob:
                    self.request.set_blob(name, blob, "output")
                    self._outputs[name] = blob
        results = self.request.infer(changed or None, stream=stream)
        self._inputs.update(changed)
        return results
