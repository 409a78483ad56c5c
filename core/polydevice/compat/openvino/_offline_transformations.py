"""``openvino._offline_transformations``: changes to models that tools ask for before writing."""

from __future__ import annotations

from typing import Any

from polydevice.compat.openvino.models.model import Model
from polydevice.compat.openvino.passes import ConstantFolding, ConvertFP32ToFP16, MakeStateful
from polydevice.compat.openvino.surface import missing


def apply_moc_transformations(model: Model, cf: bool, smart_reshape: bool = False) -> None:
    """Compute what is known, where `cf` asks for it; the rest is done when a model is loaded."""
    if cf:
        ConstantFolding().run_on_model(model)


def apply_moc_legacy_transformations(model: Model, params_with_custom_types: Any) -> None:
    """Do nothing: it is done when a model is loaded."""


def apply_fused_names_cleanup(model: Model) -> None:
    """Do nothing: nodes keep no list of names."""


def apply_make_stateful_transformation(model: Model, param_res_names: Any) -> None:
    """Make variables of inputs and outputs; see `passes.MakeStateful`."""
    MakeStateful(param_res_names).run_on_model(model)


def compress_model_transformation(model: Model) -> None:
    """Keep constants as f16."""
    ConvertFP32ToFP16().run_on_model(model)


def compress_quantize_weights_transformation(model: Model) -> None:
    """Do nothing: constants of quantised models are written as they are."""


def __getattr__(name: str) -> object:
    raise missing(name, "_offline_transformations")
