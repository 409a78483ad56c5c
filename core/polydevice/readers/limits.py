"""ReadLimits: how much an untrusted model file may ask for."""

from __future__ import annotations

from polydevice.dataclass import dataclass


@dataclass(frozen=True)
class ReadLimits:
    """Bounds on what reading a model may cost; exceeding one raises ModelLimitError.

    The defaults admit every published model known to us (the largest IR topologies, language
    models with their tokenizers, are about 20 MB of XML) and keep the memory that a hostile file
    of the largest legal size can claim within a few times its own size.

    Attributes:
        topology_bytes: size of the topology file (.xml), in bytes.
        xml_elements: XML elements in it.
        xml_depth: nesting of XML elements.
        element_attributes: attributes of one XML element.
        text_characters: length of one attribute value or text.
        layers: layers, those of all bodies included.
        body_depth: nesting of TensorIterator, Loop and If bodies; each level infers the shapes of
            those below it several times.
        layer_outputs: outputs of one layer.
        tensor_elements: elements of one tensor of known shape.
        rank: dimensions of one tensor.
        onnx_bytes: size of an ONNX file; protobuf itself ends at 2 GiB.
        function_depth: nesting of calls of ONNX functions.
        sparse_bytes: what a model's sparse tensors, and the tables that its decision trees become,
            may take together once they are dense.
        weights_bytes: size of the weights file (.bin), in bytes.
        copied_weights_bytes: weights files up to this size are read into memory, which makes the
            network independent of later changes to the file (reading 256 MiB takes 0.1 s). Larger
            ones are memory-mapped without a copy: replace such a file by renaming a new one over
            it; rewriting it in place while a network uses it is an error that the operating
            system answers by ending the program.
    """

    topology_bytes: int = 256 << 20
    xml_elements: int = 4_000_000
    xml_depth: int = 128
    element_attributes: int = 256
    text_characters: int = 16 << 20
    layers: int = 500_000
    body_depth: int = 8
    layer_outputs: int = 65_536
    tensor_elements: int = 1 << 40
    rank: int = 64
    onnx_bytes: int = (2 << 30) - 1
    function_depth: int = 64
    sparse_bytes: int = 1 << 30
    weights_bytes: int = 1 << 40
    copied_weights_bytes: int = 256 << 20
