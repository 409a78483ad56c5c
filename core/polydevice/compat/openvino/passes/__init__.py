"""``openvino.passes``: what changes models; those that are nothing but a name are not here."""

from __future__ import annotations

from typing import Any

from polydevice.compat.openvino.errors import translated
from polydevice.compat.openvino.model import Model
from polydevice.compat.openvino.process import evaluate
from polydevice.compat.openvino.surface import Surface, missing
from polydevice.compat.openvino.writing import serialize
from polydevice.passes.compress_constants import compress_constants
from polydevice.passes.constant_folding import constant_folding

__all__ = ["ConstantFolding", "ConvertFP32ToFP16", "Manager", "ModelPass", "Serialize"]


class ModelPass(Surface):
    """Something that is done to a model; a subclass has `run_on_model`."""

    _name = ""

    def get_name(self) -> str:
        """Return the name: that of the class, unless another was set."""
        return self._name or type(self).__name__

    def set_name(self, name: str) -> None:
        """Give it a name."""
        self._name = name

    def run_on_model(self, model: Model) -> bool:
        """Change a model; returns whether anything was changed."""
        raise NotImplementedError(f"{type(self).__name__} does not define run_on_model()")


class ConstantFolding(ModelPass):
    """Computes what is known before an inference."""

    @translated
    def run_on_model(self, model: Model) -> bool:
        """Replace nodes whose inputs are constants by constants."""
        constant_folding(model._network, evaluate)
        return True


class ConvertFP32ToFP16(ModelPass):
    """Keeps constants as f16."""

    @translated
    def run_on_model(self, model: Model) -> bool:
        """Store f32 and f64 constants as f16."""
        compress_constants(model._network)
        return True


class Serialize(ModelPass):
    """Writes a model."""

    def __init__(self, path_to_xml: Any, path_to_bin: Any, version: str = "UNSPECIFIED") -> None:
        """Keep the paths."""
        self._paths = (path_to_xml, path_to_bin)

    def run_on_model(self, model: Model) -> bool:
        """Write a model."""
        serialize(model, *self._paths)
        return False


class Manager(Surface):
    """Passes in order."""

    def __init__(self) -> None:
        """Begin with none."""
        self._passes: list[ModelPass] = []

    def register_pass(self, *args: Any, **kwargs: Any) -> ModelPass:
        """Add a pass on whole models.

        Raises:
            TypeError: anything else.
        """
        (transformation,) = (*args, *kwargs.values())
        if not isinstance(transformation, ModelPass):
            raise TypeError(f"{transformation!r} is no pass on whole models")
        self._passes.append(transformation)
        return transformation

    def run_passes(self, model: Model) -> bool:
        """Run all passes on a model."""
        changed = [each.run_on_model(model) for each in self._passes]
        return any(changed)

    def set_per_pass_validation(self, new_state: bool) -> None:
        """Do nothing: passes keep types and shapes right."""


def __getattr__(name: str) -> object:
    raise missing(name, "passes")
