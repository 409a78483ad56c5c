"""nest_bodies: loops and Ifs whose bodies the device can run get a graph for each body."""

from __future__ import annotations

from polydevice.errors import UnsupportedNetworkError
from polydevice.network import Network
from polydevice.node import Evaluate, Node
from polydevice.ops.control_flow import If, Iteration, Loop, TensorIterator
from polydevice.rewrites import When, never
from polydevice_gpu.control_flow.nested import Nested
from polydevice_gpu.graph import GpuGraph
from polydevice_gpu.host_layers import bodies_of, lives_on_host
from polydevice_gpu.passes.nesting.body_network import Build
from polydevice_gpu.passes.nesting.nest_branches import nest_branches
from polydevice_gpu.passes.nesting.nest_loop import nest_loop


def nest_bodies(
    network: Network, evaluate: Evaluate, build: Build, leaves: When = never
) -> dict[Node, Nested]:
    """Return the loops and Ifs that the device runs; all others are the host's.

    The host computes those with values that device memory cannot hold, with random numbers or
    variables inside, with layers that no kernel takes, or with nothing that a kernel computes.

    Args:
        network: of static shapes, with constants folded.
        evaluate: computes constants.
        build: compiles a body.
        leaves: which ones are the host's in any case.
    """
    found: dict[Node, Nested] = {}
    for node in network.nodes():
        if not isinstance(node.op, (If, TensorIterator, Loop)) or not _fits(node) or leaves(node):
            continue
        try:
            if isinstance(node.op, If):
                made: Nested | None = nest_branches(network.name, node, node.op, evaluate, build)
            else:
                made = nest_loop(network.name, node, node.op, evaluate, build)
        except UnsupportedNetworkError:
            continue  # no kernel takes something in the body
        if made is not None and all(_is_worth_it(graph) for graph in made.graphs):
            found[node] = made
    return found


def _fits(node: Node) -> bool:
    """Whether device memory holds all inputs and outputs, and bodies keep nothing.

    Joined results may be of unknown length: those are collected on the host.
    """
    ties = node.op.body_outputs if isinstance(node.op, Iteration) else ()
    joined = {tie.output for tie in ties if tie.slicing is not None}
    others = [port for port in node.outputs if port.index not in joined]
    if any(lives_on_host(port.desc) for port in (*node.inputs, *others)):
        return False
    return not any(_keeps_something(body) for body in bodies_of(node))


def _keeps_something(body: Network) -> bool:
    """Whether a body has state, as variables and random numbers are."""
    return bool(body.sinks) or any(
        node.op.is_stateful or any(_keeps_something(inner) for inner in bodies_of(node))
        for node in body.nodes()
    )


def _is_worth_it(graph: GpuGraph) -> bool:
    return any(not node.on_host for node in graph.nodes) or not graph.nodes
