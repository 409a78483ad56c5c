"""nest_branches: what the device needs to know of an If."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.errors import NetworkError
from polydevice.network import Network
from polydevice.node import Evaluate, Node
from polydevice.ops.control_flow import BodyInput, BodyOutput, If
from polydevice_gpu.control_flow.nested import Branch, Branches, Given, Taken
from polydevice_gpu.graph import GpuGraph
from polydevice_gpu.host_layers import lives_on_host
from polydevice_gpu.passes.nesting.body_network import BodyNetwork, Build, constants_of


def nest_branches(
    outer: str, node: Node, op: If, evaluate: Evaluate, build: Build
) -> Branches | None:
    """Compile both bodies; None when the host has to run the If.

    Raises:
        UnsupportedNetworkError: no kernel takes something in a body.
    """
    made: list[Branch | None] = []
    for kind, body, ties, outputs in (
        ("then", op.then_body, op.then_inputs, op.then_outputs),
        ("else", op.else_body, op.else_inputs, op.else_outputs),
    ):
        assert isinstance(body, Network)
        work = BodyNetwork(body, f"{outer}/{node.name}/{kind}", evaluate)
        try:
            branch = _branch(node, work, ties, outputs)
        except NetworkError:  # inputs of these shapes never take this one
            made.append(None)
            continue
        if branch is None:
            return None
        branch.graph = build(work.network, frozenset())
        made.append(branch)
    return Branches(*made)


def _branch(
    node: Node, work: BodyNetwork, ties: Sequence[BodyInput], outputs: Sequence[BodyOutput]
) -> Branch | None:
    """Tie one body; None when a result is not of the size that the layer has."""
    descs = [parameter.output.desc for parameter in work.parameters]
    for tie in ties:
        descs[tie.parameter] = node.inputs[tie.input].desc
    work.describe(descs, constants_of(node, ties))
    branch = Branch(GpuGraph(""))
    for out in outputs:
        desc = work.source(out.result).desc
        if lives_on_host(desc) or desc.shape != node.outputs[out.output].shape:
            return None
        branch.taken.append(Taken(out.output, work.result(out.result, f"result {out.output}")))
    kept = work.read()
    tied = {tie.parameter: tie for tie in ties if tie.parameter in kept}
    if kept != tied.keys():
        return None
    for tie in tied.values():
        branch.given.append(Given(tie.input, work.parameters[tie.parameter].name))
    if any(lives_on_host(work.parameters[index].output.desc) for index in kept):
        return None
    work.finish(kept)
    return branch
