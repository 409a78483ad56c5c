"""``openvino.passes``: what changes models; those that are nothing but a name are not here."""

from __future__ import annotations

from typing import Any

from polydevice.compat.openvino.errors import translated
from polydevice.compat.openvino.models.model import Model
from polydevice.compat.openvino.models.writing import serialize
from polydevice.compat.openvino.passes.patterns import (
    AnyInput,
    Optional,
    Or,
    Predicate,
    WrapType,
    attrs_match,
    consumers_count,
    has_static_dim,
    has_static_dims,
    has_static_rank,
    has_static_shape,
    rank_equals,
    type_matches,
    type_matches_any,
)
from polydevice.compat.openvino.passes.rewriting import (
    BackwardGraphRewrite,
    GraphRewrite,
    Matcher,
    MatcherPass,
    ModelPass,
    PassBase,
)
from polydevice.compat.openvino.passes.stateful import MakeStateful
from polydevice.compat.openvino.process import evaluate
from polydevice.compat.openvino.surface import Surface, missing
from polydevice.passes.compress_constants import compress_constants
from polydevice.passes.constant_folding import constant_folding

__all__ = [
    "AnyInput",
    "BackwardGraphRewrite",
    "ConstantFolding",
    "ConvertFP32ToFP16",
    "GraphRewrite",
    "MakeStateful",
    "Manager",
    "Matcher",
    "MatcherPass",
    "ModelPass",
    "Optional",
    "Or",
    "PassBase",
    "Predicate",
    "Serialize",
    "WrapType",
    "attrs_match",
    "consumers_count",
    "has_static_dim",
    "has_static_dims",
    "has_static_rank",
    "has_static_shape",
    "rank_equals",
    "type_matches",
    "type_matches_any",
]


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

    def register_pass(self, *args: Any, **kwargs: Any) -> Any:
        """Add a pass on whole models, or one that looks for a pattern.

        Args:
            args: the pass; or the name of one that takes no arguments, such as "ConstantFolding".
            kwargs: the same by name.

        Raises:
            TypeError: anything else.
        """
        transformation: Any
        transformation, *rest = (*args, *kwargs.values())
        if isinstance(transformation, str):
            made = _BY_NAME.get(transformation)
            if made is None:
                raise TypeError(f"there is no pass {transformation!r}; by name: {list(_BY_NAME)}")
            transformation = made(*rest)
        if isinstance(transformation, MatcherPass):
            rewrite = GraphRewrite()
            rewrite.add_matcher(transformation)
            self._passes.append(rewrite)
        elif isinstance(transformation, ModelPass):
            self._passes.append(transformation)
        else:
            raise TypeError(f"{transformation!r} is no pass")
        return transformation

    def run_passes(self, model: Model) -> bool:
        """Run all passes on a model."""
        changed = [each.run_on_model(model) for each in self._passes]
        return any(changed)

    def set_per_pass_validation(self, new_state: bool) -> None:
        """Do nothing: passes keep types and shapes right."""


_BY_NAME: dict[str, Any] = {
    each.__name__: each for each in (ConstantFolding, ConvertFP32ToFP16, MakeStateful, Serialize)
}


def __getattr__(name: str) -> object:
    raise missing(name, "passes")
