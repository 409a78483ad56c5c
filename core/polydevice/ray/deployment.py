"""deployment: models behind Ray Serve, with the application of ``polydevice serve``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from polydevice.core import Core
from polydevice.network import Network
from polydevice.ray.placement import config_here, core_here, device_here, import_ray
from polydevice.serve.models.limits import Limits
from polydevice.serve.models.model import ModelSpec


def deployment(
    model: str | Path | Network | ModelSpec | Sequence[ModelSpec],
    device: str = "AUTO",
    *,
    name: str = "",
    config: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
    **settings: Any,
) -> Any:
    """Return an application for ``ray.serve.run``: the Open Inference Protocol over REST.

    ::

        from ray import serve
        serve.run(polydevice.ray.deployment("model.onnx", num_replicas=4), route_prefix="/")

    Each replica loads the models, which are read here and sent along, and answers as
    ``polydevice serve`` does over REST; statistics and metrics are those of one replica.

    Args:
        model: file of a model, a network, or models with names and versions.
        device: "AUTO" for the GPUs that Ray gives to each replica, else the CPU; or a name.
        name: by which clients ask for a single model; its file's, if left out.
        config: configuration of the device.
        limits: as ``polydevice serve`` has them; those of connections are Ray Serve's.
        settings: of the deployment: ``num_replicas``, ``ray_actor_options={"num_gpus": 1}``,
            ``autoscaling_config``, ``max_ongoing_requests``…

    Raises:
        PluginError: Ray, or what the server needs, is not installed.
        PolydeviceError: a model cannot be read.
    """
    import_ray()
    from ray import serve

    bounds = limits or Limits()
    with Core() as core:
        specs = [_read(core, spec) for spec in _specs(model, device, name, config or {})]

    def build() -> Any:
        """Load the models in a replica."""
        return _application(specs, bounds)

    made = serve.deployment(**{"max_ongoing_requests": bounds.queue, **settings})
    return made(serve.ingress(build)()).bind()


def _specs(model: Any, device: str, name: str, config: Mapping[str, Any]) -> Sequence[ModelSpec]:
    if isinstance(model, ModelSpec):
        return [model]
    if isinstance(model, (str, Path, Network)):
        return [ModelSpec(model, name=name, device=device, config=config)]
    return list(model)


def _read(core: Core, spec: ModelSpec) -> ModelSpec:
    network = spec.path if isinstance(spec.path, Network) else core.read_network(spec.path)
    return replace(spec, path=network)


def _application(specs: Sequence[ModelSpec], limits: Limits) -> Any:
    from polydevice.serve.http.app import make_app
    from polydevice.serve.models.repository import Models

    core = core_here()
    here = []
    for spec in specs:
        device = device_here(core, spec.device)
        here.append(replace(spec, device=device, config=config_here(device, spec.config)))
    return make_app(Models(core, here, limits))
