"""split_nv12_inputs: an NV12 image comes as its two planes, as video decoders leave it.

Where the preprocessing of an input converts NV12, the input becomes two for every item of the
batch: ``<name>_Y0`` [1, H, W, 1] and ``<name>_UV0`` [1, H/2, W/2, 2], ``<name>_Y1``…
"""

from __future__ import annotations

from polydevice.emitter import Emitter
from polydevice.errors import NetworkError, UnsupportedNetworkError
from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.ops.color import NV12toBGR
from polydevice.ops.concat import Concat
from polydevice.ops.io import Parameter
from polydevice.shape import DimLike, Shape


def split_nv12_inputs(network: Network) -> None:
    """Replace the inputs; networks without such inputs stay as they are.

    Raises:
        UnsupportedNetworkError: the batch is not known, or a new name is taken.
    """
    for parameter in list(network.parameters):
        users = network.consumers()[parameter.output]
        # The core's preprocessing names its nodes after the input.
        converters = [
            node
            for node, _ in users
            if isinstance(node.op, NV12toBGR)
            and node.name.startswith(f"{parameter.name}/preprocess")
        ]
        if not converters or len(users) != 1 or len(converters[0].inputs) != 1:
            continue
        inputs, image = _planes(network, parameter)
        network.replace({converters[0].output: image})
        place = network.parameters.index(parameter)
        network.parameters[place : place + 1] = inputs
    network.infer()


def _planes(network: Network, parameter: Node) -> tuple[list[Node], Port]:
    """Return the new inputs, and the images that they make."""
    shape, kind = parameter.output.shape, parameter.output.element_type
    if shape is None or not isinstance(shape[0], int):
        raise UnsupportedNetworkError(
            f"GPU_NV12_TWO_INPUTS=YES needs a fixed batch; {parameter.title} has shape {shape}"
        )
    rows, width = shape[1], shape[2]
    height: DimLike = rows * 2 // 3
    taken = {node.name for node in network.nodes()}
    inputs, images = [], []
    build = Emitter(f"{parameter.name}/preprocess/batch")
    for item in range(shape[0]):
        planes = []
        for plane, sizes in (
            ("Y", [1, height, width, 1]),
            ("UV", [1, height // 2, width // 2, 2]),
        ):
            name = f"{parameter.name}_{plane}{item}"
            if name in taken:
                raise UnsupportedNetworkError(f"GPU_NV12_TWO_INPUTS=YES: {name!r} is there already")
            made = Node(name, Parameter(kind, Shape(sizes)), rt_info={"blob_layout": "NHWC"})
            planes.append(made)
        inputs += planes
        name = f"{parameter.name}/preprocess/NV12toBGR_{item}"
        try:
            images.append(build.emit(NV12toBGR(), *(plane.output for plane in planes), name=name))
        except NetworkError as error:
            raise UnsupportedNetworkError(f"GPU_NV12_TWO_INPUTS=YES: {error}") from error
    if len(images) == 1:
        return inputs, images[0]
    return inputs, build.emit(Concat(axis=0), *images)
