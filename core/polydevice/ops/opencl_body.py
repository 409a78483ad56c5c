"""OpenClBody: the text that computes an operation of a user in OpenCL C, and what it needs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from polydevice.dataclass import dataclass

MOST_OPENCL_INPUTS = 5
"""Inputs that a pointwise expression of a kernel has names for."""

LOCAL_TYPES = {"float": 4, "int": 4, "uint": 4, "half": 2, "ushort": 2, "double": 8}
"""OpenCL types that local memory may be declared of → bytes of one."""

WorkGroups = Callable[..., Any]
"""The inputs' shapes, and attributes by keyword → number of work-groups, one or up to three."""


@dataclass(frozen=True)
class OpenClBody:
    """What computes one element in OpenCL C.

    Attributes:
        parameters: names of the inputs' elements in the body; attributes have their own names.
        body: statements that end in `return`.
        file: Python file in which the body stands.
        line: its first line there.
    """

    parameters: tuple[str, ...]
    body: str
    file: str
    line: int


@dataclass(frozen=True)
class OpenClGroupBody:
    """What a work-group computes in OpenCL C.

    Attributes:
        parameters: names of the inputs, then of the outputs.
        body: statements.
        file: Python file in which the body stands.
        line: its first line there.
        work_groups: says how many work-groups there are.
        local_size: work-items of a group in up to three dimensions.
        local: name → (type, elements) of memory that a group shares.
    """

    parameters: tuple[str, ...]
    body: str
    file: str
    line: int
    work_groups: WorkGroups
    local_size: tuple[int, ...]
    local: Mapping[str, tuple[str, int]]


def lines_above(code: Any) -> int:
    """Return how many lines of a function stand above the first of its docstring's text.

    The first line of code is that of the first decorator; the docstring begins below `def`.
    """
    try:
        lines, _ = inspect.getsourcelines(code)
    except (OSError, TypeError):
        return 2  # a decorator and the def
    return next((n for n, line in enumerate(lines) if re.search(r"\"\"\"|'''", line)), 2)
