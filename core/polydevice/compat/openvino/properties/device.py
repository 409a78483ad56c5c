"""``openvino.properties.device``: names of properties, which make pairs when they are called."""

from __future__ import annotations

from polydevice.compat.openvino.properties.property import Listed, Property

__all__ = [
    "Capability",
    "Type",
    "architecture",
    "capabilities",
    "full_name",
    "gops",
    "id",
    "luid",
    "pci_info",
    "priorities",
    "properties",
    "thermal",
    "type",
    "uuid",
]


class Type(Listed):
    """Whether a device shares the host's memory."""

    INTEGRATED = 0
    DISCRETE = 1


class Capability:
    """Names of what a device can."""

    BF16 = "BF16"
    BIN = "BIN"
    EXPORT_IMPORT = "EXPORT_IMPORT"
    FP16 = "FP16"
    FP32 = "FP32"
    INT16 = "INT16"
    INT8 = "INT8"
    WINOGRAD = "WINOGRAD"


architecture = Property("DEVICE_ARCHITECTURE", settable=False)
capabilities = Property("OPTIMIZATION_CAPABILITIES", settable=False)
full_name = Property("FULL_DEVICE_NAME", settable=False)
gops = Property("DEVICE_GOPS", settable=False)
id = Property("DEVICE_ID")
luid = Property("DEVICE_LUID", settable=False)
pci_info = Property("DEVICE_PCI_INFO", settable=False)
priorities = Property("MULTI_DEVICE_PRIORITIES")
properties = Property("DEVICE_PROPERTIES")
thermal = Property("DEVICE_THERMAL", settable=False)
type = Property("DEVICE_TYPE", settable=False)
uuid = Property("DEVICE_UUID", settable=False)
