"""InputInfo and OutputInfo: what a user may set on a network's inputs and outputs."""

from __future__ import annotations

from polydevice.dtype import ElementType
from polydevice.errors import NetworkError
from polydevice.network.preprocess import PreProcessInfo
from polydevice.node import Node, Port
from polydevice.shape import Shape


class _PortSetting:
    """What a user may set on an input or output; kept in the node, applied when loading."""

    def __init__(self, name: str, port: Port, node: Node) -> None:
        self.name = name
        self._port = port
        self._node = node

    @property
    def shape(self) -> Shape | None:
        """Sizes in the model's own order; None when the rank is unknown."""
        return self._port.shape

    @property
    def element_type(self) -> ElementType:
        """Element type inside the model."""
        return self._port.element_type

    @property
    def tensor_names(self) -> set[str]:
        """The framework's names."""
        return set(self._port.names)

    @property
    def precision(self) -> str:
        """Element type of the blob ("FP32", "U8"…); set it to have values converted."""
        return self.blob_type.precision

    @precision.setter
    def precision(self, name: str) -> None:
        self._node.rt_info["precision"] = ElementType.parse(name).value

    @property
    def blob_type(self) -> ElementType:
        """Element type of the blob."""
        own = self._node.rt_info.get("precision")
        return self.element_type if own is None else ElementType.parse(own)

    @property
    def layout(self) -> str:
        """Order of the blob's dimensions ("NCHW", "NHWC"…); set it to have values transposed."""
        given = self._node.rt_info.get("layout")
        return str(given) if given else default_layout(self._port.desc.rank)

    @layout.setter
    def layout(self, name: str) -> None:
        own = default_layout(self._port.desc.rank)
        if name not in (own, "ANY") and sorted(name) != sorted(own):
            raise NetworkError(
                f"{self.name!r} of shape {self.shape} cannot have layout {name!r}; "
                f"legal: orders of {own}"
            )
        self._node.rt_info["layout"] = own if name == "ANY" else name

    def __repr__(self) -> str:
        return f"{self.name}: {self.precision} {self.shape} {self.layout}"


class InputInfo(_PortSetting):
    """An input of a network."""

    @property
    def preprocess(self) -> PreProcessInfo:
        """What is done to the blob before the network sees it; change it in place."""
        held = self._node.rt_info.get("preprocess")
        if not isinstance(held, PreProcessInfo):
            held = self._node.rt_info["preprocess"] = PreProcessInfo()
        return held


class OutputInfo(_PortSetting):
    """An output of a network."""


def default_layout(rank: int | None) -> str:
    """Return the Inference Engine's layout name for a rank."""
    names = {0: "SCALAR", 1: "C", 2: "NC", 3: "CHW", 4: "NCHW", 5: "NCDHW"}
    return names.get(-1 if rank is None else rank, "BLOCKED")
