"""OpenVINO's public names: what stands behind them here, what differs, what is not there.

`docs/coming-from-openvino.md` is written from these tables, and the tests hold them against the
package.
"""

from __future__ import annotations

from polydevice.compat import missing as missing_names

_EXTENSION = (
    "extensions are libraries, or classes, of OpenVINO's; register operations with the hook "
    "register_operations (docs/hooks.md), kernels as custom layers (docs/custom-layers.md)"
)
_CLASS = "nodes of one's own are operations of the hook register_operations (docs/hooks.md)"
_FRONTEND = "readers are polydevice's own: `Core.read_model` reads OpenVINO IR and ONNX"
_VA = "surfaces of VA-API are shared as OpenCL memory (docs/remote-blobs.md)"
_INTERNAL = "it is about how OpenVINO's own Python package is made"
_NARROW = "there is no such element type here; the nearest are u2, u4 and u8"
_BOUNDS = "shapes are inferred by `Model.validate_nodes_and_infer_types`"

ABSENT: dict[str, str] = {
    "FrontEnd.add_extension": _EXTENSION,
    "FrontEnd.convert_partially": _FRONTEND,
    "FrontEnd.decode": _FRONTEND,
    "FrontEnd.normalize": _FRONTEND,
    "Matcher.get_symbols": "there are no symbols of sizes",
    "Extension": _EXTENSION,
    "Node.set_output_size": _CLASS,
    "Node.set_output_type": _CLASS,
    "Node.visit_attributes": _CLASS,
    "Op": _CLASS,
    "OpExtension": _EXTENSION,
    "Type.nf4": _NARROW,
    "Type.u3": _NARROW,
    "Type.u6": _NARROW,
    "VAContext": _VA,
    "VASurfaceTensor": _VA,
    "experimental": _BOUNDS,
    "frontend.ConversionExtension": _EXTENSION,
    "frontend.DecoderTransformationExtension": _EXTENSION,
    "FrontEndManager.register_front_end": _FRONTEND,
    "frontend.NodeContext": _EXTENSION,
    "frontend.OpExtension": _EXTENSION,
    "frontend.Place": _FRONTEND,
    "frontend.ProgressReporterExtension": _EXTENSION,
    "frontend.TelemetryExtension": "there is no telemetry",
    "frontend.frontend": _INTERNAL,
    "frontend.get_version": _INTERNAL,
    "frontend.tensorflow": _FRONTEND,
    "helpers.packing": _INTERNAL,
    "op.util.ArithmeticReduction": _CLASS,
    "op.util.BinaryElementwiseArithmetic": _CLASS,
    "op.util.BinaryElementwiseComparison": _CLASS,
    "op.util.BinaryElementwiseLogical": _CLASS,
    "op.util.IndexReduction": _CLASS,
    "op.util.UnaryElementwiseArithmetic": _CLASS,
    "package_utils": _INTERNAL,
    "passes.LowLatency2": "write the network with ReadValue and Assign",
    "passes.Version": _INTERNAL,
    "passes.VisualizeTree": "`polydevice place --svg` draws a network (docs/hetero.md)",
    "passes.graph_rewrite": _INTERNAL,
    "passes.manager": _INTERNAL,
    "passes.shape_matches": "ask for sizes with a predicate of your own",
    "preprocess.get_version": _INTERNAL,
    "torch": "models of PyTorch are not read; export them to ONNX",
    "utils.classproperty": _INTERNAL,
    "utils.data_helpers": _INTERNAL,
    "utils.deprecated": _INTERNAL,
    "utils.deprecatedclassproperty": _INTERNAL,
    "utils.get_cmake_path": _INTERNAL,
    "utils.input_validation": _INTERNAL,
    "utils.make_postponed_constant": "use `op.Constant`",
    "utils.node_factory": "use the functions of opset1 to opset17",
    "utils.numpy_to_c": _INTERNAL,
    "utils.postponed_constant": "use `op.Constant`",
}
"""Name, or class.name → why it is not there; the names of submodules with theirs in front."""

_EDITED = "a model is edited as a Model, after `FrontEnd.convert`"
for _name in (
    "add_name_for_tensor",
    "add_output",
    "cut_and_add_new_input",
    "cut_and_add_new_output",
    "extract_subgraph",
    "free_name_for_operation",
    "free_name_for_tensor",
    "get_element_type",
    "get_inputs",
    "get_outputs",
    "get_partial_shape",
    "get_place_by_input_index",
    "get_place_by_operation_name",
    "get_place_by_operation_name_and_input_port",
    "get_place_by_operation_name_and_output_port",
    "get_place_by_tensor_name",
    "override_all_inputs",
    "override_all_outputs",
    "remove_output",
    "set_element_type",
    "set_name_for_dimension",
    "set_name_for_operation",
    "set_name_for_tensor",
    "set_partial_shape",
    "set_tensor_value",
):
    ABSENT[f"InputModel.{_name}"] = _EDITED
for _number in range(1, 18):
    ABSENT[f"opset{_number}.ops"] = _INTERNAL

DIFFERENT: dict[str, str] = {
    "AsyncInferQueue.start_async": "inputs are always copied, as requests take turns",
    "CompiledModel.release_memory": "frees the request that calls run on",
    "CompiledModel.set_property": "refused: a loaded model keeps its configuration",
    "Core": "plugins are found by entry points, not in a file",
    "Core.add_extension": "refused: " + _EXTENSION,
    "Core.register_plugin": "takes an importable module, not a library",
    "Core.register_plugins": "refused: plugins are found by entry points",
    "Core.set_property": "properties about how OpenVINO itself works are taken and change nothing",
    "InferRequest.set_input_tensors": "items of a batch are joined in host memory, in every "
    "inference",
    "InferRequest.set_tensors": "items of a batch are joined in host memory, in every inference",
    "Model.add_variables": "does nothing: nodes say which variables there are",
    "Model.remove_variable": "does nothing: nodes say which variables there are",
    "Model.reshape": "shapes of variables are those of their initial values",
    "Node": "Python's own numbers take the other operand's type in arithmetic",
    "Output.get_target_inputs": "of nodes that were taken from a model",
    "Output.remove_target_input": "refused: an input always reads something",
    "Tensor": "elements narrower than a byte are copied, not shared",
    "convert_model": "ONNX and OpenVINO IR",
    "op": "the nodes with a class of their own",
    "opset17": "has the functions of all sets before it too",
    **dict.fromkeys(
        [f"passes.{name}" for name in ("AnyInput", "Optional", "Or", "WrapType")],
        "a pattern is no node: it has `output` alone",
    ),
    "save_model": "constants of f32 and f64 whose values f16 cannot hold stay as they are",
    "set_batch": "without layouts, the first axis of every input",
    "shutdown": "does nothing: devices are closed when the process ends",
    "utils.decorators": "custom_preprocess_function alone",
    "tools": "those of an OpenVINO that is installed, such as benchmark, run on polydevice",
}
"""Name, or class.name → what is different."""

OURS: dict[str, str] = {
    "AsyncInferQueue": "InferQueue",
    "CompiledModel": "ExecutableNetwork",
    "CompiledModel.create_infer_request": "ExecutableNetwork.create_infer_request",
    "CompiledModel.export_model": "ExecutableNetwork.export",
    "CompiledModel.get_property": "ExecutableNetwork.get_metric, .get_config",
    "CompiledModel.get_runtime_model": "ExecutableNetwork.get_exec_graph_info",
    "Core": "Core",
    "Core.available_devices": "Core.available_devices",
    "Core.compile_model": "Core.load_network",
    "Core.create_context": "Core.create_context",
    "Core.get_default_context": "Core.get_default_context",
    "Core.get_property": "Core.get_metric, .get_config",
    "Core.get_versions": "Core.get_versions",
    "Core.import_model": "Core.import_network",
    "Core.query_model": "Core.query_network",
    "Core.read_model": "Core.read_network",
    "Core.register_plugin": "Core.register_plugin",
    "Core.set_property": "Core.set_config",
    "Core.unload_plugin": "Core.unregister_plugin",
    "Dimension": "Dim",
    "InferRequest": "InferRequest",
    "InferRequest.cancel": "InferRequest.cancel",
    "InferRequest.get_tensor": "InferRequest.get_blob",
    "InferRequest.infer": "InferRequest.infer",
    "InferRequest.profiling_info": "InferRequest.get_perf_counts",
    "InferRequest.query_state": "InferRequest.query_state",
    "InferRequest.set_callback": "InferRequest.set_completion_callback",
    "InferRequest.set_tensor": "InferRequest.set_blob",
    "InferRequest.start_async": "InferRequest.start_async",
    "InferRequest.wait": "InferRequest.wait",
    "InferRequest.wait_for": "InferRequest.wait",
    "Model": "Network",
    "Model.add_outputs": "Network.add_outputs",
    "Model.clone": "Network.clone",
    "Model.get_ops": "Network.nodes",
    "Model.inputs": "Network.parameters",
    "Model.outputs": "Network.results",
    "Model.reshape": "Network.reshape",
    "Model.rt_info": "Network.rt_info",
    "Model.validate_nodes_and_infer_types": "Network.infer",
    "Node": "Node",
    "Output": "Port",
    "PartialShape": "Shape",
    "RemoteContext": "RemoteContext",
    "RemoteTensor": "RemoteBlob",
    "Shape": "Shape",
    "Tensor": "Blob",
    "Type": "ElementType",
    "get_batch": "Network.batch_size",
    "passes.ConstantFolding": "passes.constant_folding",
    "preprocess.PrePostProcessor": "PreProcessInfo, of Network.inputs",
    "save_model": "Network.serialize",
    "serialize": "Network.serialize",
    "set_batch": "Network.batch_size",
}
"""Name, or class.name → what it is in polydevice's own interface."""

SUBMODULES = ("frontend", "helpers", "layout_helpers", "op", "passes", "preprocess", "utils")
"""Those whose names the tables list one by one."""


class Surface(missing_names.StandIn):
    """A class of the interface, which says why a name is not there."""

    __slots__ = ()
    facade = ("openvino", ABSENT)


def missing(name: str, owner: str = "") -> AttributeError:
    """Return the error for a name that is not there, with the reason where one is known."""
    return missing_names.missing("openvino", ABSENT, name, owner)
