"""Models: what one server serves; fixed when it starts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from polydevice.core import Core
from polydevice.errors import DeviceNameError, nearest
from polydevice.serve.models.limits import Limits
from polydevice.serve.models.model import ModelSpec, ServedModel
from polydevice.serve.refusal import Reason, RefusedError


class Models:
    """Models by name and version. Requests name one of these; nothing that they say loads any.

    Attributes:
        limits: of the server.
        ending: whether it takes no more requests.
    """

    def __init__(self, core: Core, specs: Sequence[ModelSpec], limits: Limits) -> None:
        """Load every model.

        Raises:
            DeviceNameError: two have the same name and version, or there is none.
            PolydeviceError: one cannot be loaded; those before it are closed again.
        """
        self.limits = limits
        self.ending = False
        self._models: dict[str, dict[str, ServedModel]] = {}
        if not specs:
            raise DeviceNameError("there is no model to serve")
        named = [(spec.name, int(spec.version)) for spec in specs]
        for name, version in named:
            if named.count((name, version)) > 1:
                raise DeviceNameError(
                    f"model {name!r} has version {version} twice; name another: "
                    f"{name}:{version + 1}=…"
                )
        try:
            for spec in specs:
                self._models.setdefault(spec.name, {})[spec.version] = ServedModel(
                    core, spec, limits
                )
        except BaseException:
            self.close(0)
            raise

    def __iter__(self) -> Iterator[ServedModel]:
        return (model for versions in self._models.values() for model in versions.values())

    def versions(self, name: str) -> list[str]:
        """Return the versions of a model, in order.

        Raises:
            RefusedError: there is no such model.
        """
        if name not in self._models:
            shown = name[:80]
            raise RefusedError(
                Reason.NOT_FOUND,
                f"no model {shown!r} is served; there are: {', '.join(self._models)}."
                + nearest(shown, self._models),
            )
        return sorted(self._models[name], key=int)

    def get(self, name: str, version: str = "") -> ServedModel:
        """Return a model; of the highest version where none is named.

        Raises:
            RefusedError: there is no such model, or no such version of it.
        """
        versions = self.versions(name)
        found = self._models[name].get(version or versions[-1])
        if found is None:
            raise RefusedError(
                Reason.NOT_FOUND,
                f"model {name!r} has no version {version[:40]!r}; there are: {', '.join(versions)}",
            )
        return found

    def taking(self, name: str, version: str = "") -> ServedModel:
        """Return a model for a request that is to be computed.

        Raises:
            RefusedError: as `get`; or the server is ending.
        """
        if self.ending:
            raise RefusedError(Reason.ENDING, "the server is ending; ask another one")
        return self.get(name, version)

    def end(self) -> None:
        """Take no more requests, and compute what waits at once."""
        self.ending = True
        for model in self:
            model.batcher.flush()

    def close(self, seconds: float) -> None:
        """Answer what waits, for so long at most, and close every network."""
        self.end()
        end = time.monotonic() + seconds
        for model in self:
            model.close(end)
