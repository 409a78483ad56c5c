"""Where it is written how the GPU runs an operation: kernels, expressions, views and others."""

from __future__ import annotations

from polydevice.inspection.source_place import source_place
from polydevice.ops.control_flow import If, Loop, TensorIterator
from polydevice.ops.io import Constant, Parameter, Result
from polydevice.ops.op import Op
from polydevice.ops.state import Assign, ReadValue
from polydevice.passes.lower_state import lower_state
from polydevice.plugin import Line
from polydevice.rewrites import decompositions
from polydevice_gpu.host_layers import kind_on_host, why_on_host
from polydevice_gpu.kernels.kernel import kernels_of
from polydevice_gpu.kernels.pointwise import expression
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.passes.lower import lower
from polydevice_gpu.passes.nesting.nest_branches import nest_branches
from polydevice_gpu.passes.nesting.nest_loop import nest_loop
from polydevice_gpu.rewrites import gpu_wishes
from polydevice_gpu.views import find_view


def describe_operation(op: type[Op]) -> list[Line]:
    """Return a line for each way in which an operation runs, in the order in which they are tried.

    Where none of them takes a layer, or it has values that no kernel holds, the host computes it or
    the network is refused; `ExecutableNetwork.explain` says what became of a layer.
    """
    if issubclass(op, (Parameter, Constant, Result)):
        return [Line("no work", source_place(lower), "it names or holds a value")]
    if issubclass(op, (ReadValue, Assign)):
        return [Line("no work", source_place(lower_state), "requests keep variables")]
    lines = []
    for kind, nest in (((Loop, TensorIterator), nest_loop), ((If,), nest_branches)):
        if issubclass(op, kind):
            lines.append(Line("bodies", source_place(nest), "where kernels take what they hold"))
    if reason := kind_on_host(op):
        return [*lines, Line("host", source_place(why_on_host), reason)]
    for rule in decompositions(op, gpu_wishes(Target())):
        place, when = source_place(rule.function), _first_line(rule.function)
        lines.append(Line("decomposed", place, when))
    if (view := find_view(op)) is not None:
        when = "where its other inputs are known at load"
        lines.append(Line("view", source_place(view), when))
    if (form := expression.find(op)) is not None:
        place = form.place or source_place(expression.user_function)
        lines.append(Line("expression", place, "fused with its neighbours"))
    for kernel in kernels_of(op):
        place = f"{source_place(type(kernel))} {_FOLDER}{kernel.source}"
        lines.append(Line(f"kernel {kernel.name}", place, _first_line(type(kernel))))
    when = "where no kernel could hold its values, unless they are known at load; else refused"
    return lines or [Line("host", source_place(why_on_host), when)]


_FOLDER = "polydevice_gpu/kernels/"


def _first_line(thing: object) -> str:
    return (thing.__doc__ or "").strip().partition("\n")[0]
