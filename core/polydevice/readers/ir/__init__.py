"""Reader of OpenVINO IR v10 and v11: a topology (.xml) and its weights (.bin).

Stages, in the order of the data: `document` (XML, hardened) → `layers` (records, checked for
consistency) → `order`, `unsupported` (what is needed, what is missing) → `graph` (nodes, with
constants from `weights`, and bodies from `control_flow`) → `preprocess` (mean values).
"""

from polydevice.readers.ir.reader import read_ir

__all__ = ["read_ir"]
