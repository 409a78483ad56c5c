"""The public names of the Inference Engine's Python API of 2021: what is behind them, what differs.

`docs/coming-from-inference-engine.md` is written from these tables. There is no package to
hold them against any more; the tests hold them against the list of its names.
"""

from __future__ import annotations

from polydevice.compat import missing as missing_names

_CAPSULE = "nGraph functions are made with `polydevice.compat.openvino`, whose Model serialises"

ABSENT: dict[str, str] = {
    "IENetwork.from_capsule": _CAPSULE,
    "IENetwork.get_function": _CAPSULE,
    "IENetwork.layers": "removed in 2021.1; `IECore.query_network` lists the layers' names",
}
"""Name, or class.name → why it is not there."""

DIFFERENT: dict[str, str] = {
    "Blob": "BF16 has NumPy's bfloat16 of ml_dtypes",
    "ExecutableNetwork.export": "also of GPU",
    "ExecutableNetwork.wait": "a timeout of 0 only asks",
    "IECore": "plugins are found by entry points, not in a file",
    "IECore.add_extension": "refused: extensions are libraries of OpenVINO's; register operations "
    "with the hook register_operations, kernels as custom layers (docs/custom-layers.md)",
    "IECore.register_plugin": "takes an importable module, not a library",
    "IECore.register_plugins": "refused: plugins are found by entry points",
    "IECore.set_config": "also for one device, such as GPU.1",
    "IECore.unregister_plugin": "forgets the name too",
    "InferRequest.wait": "an inference that failed raises RuntimeError",
}
"""Name, or class.name → what is different."""

OURS: dict[str, str] = {
    "Blob": "Blob",
    "Blob.buffer": "Blob.array",
    "ColorFormat": "preprocess.ColorFormat",
    "DataPtr": "InputInfo, OutputInfo",
    "ExecutableNetwork": "ExecutableNetwork",
    "ExecutableNetwork.export": "ExecutableNetwork.export",
    "ExecutableNetwork.get_config": "ExecutableNetwork.get_config",
    "ExecutableNetwork.get_exec_graph_info": "ExecutableNetwork.get_exec_graph_info",
    "ExecutableNetwork.get_idle_request_id": "ExecutableNetwork.get_idle_request_id",
    "ExecutableNetwork.get_metric": "ExecutableNetwork.get_metric",
    "ExecutableNetwork.infer": "ExecutableNetwork.infer",
    "ExecutableNetwork.input_info": "ExecutableNetwork.inputs",
    "ExecutableNetwork.outputs": "ExecutableNetwork.outputs",
    "ExecutableNetwork.requests": "ExecutableNetwork.requests",
    "ExecutableNetwork.start_async": "ExecutableNetwork.start_async",
    "ExecutableNetwork.wait": "ExecutableNetwork.wait",
    "IECore": "Core",
    "IECore.available_devices": "Core.available_devices",
    "IECore.get_config": "Core.get_config",
    "IECore.get_metric": "Core.get_metric",
    "IECore.get_versions": "Core.get_versions",
    "IECore.import_network": "Core.import_network",
    "IECore.load_network": "Core.load_network",
    "IECore.query_network": "Core.query_network",
    "IECore.read_network": "Core.read_network",
    "IECore.register_plugin": "Core.register_plugin",
    "IECore.set_config": "Core.set_config",
    "IECore.unregister_plugin": "Core.unregister_plugin",
    "IENetwork": "Network",
    "IENetwork.add_outputs": "Network.add_outputs",
    "IENetwork.batch_size": "Network.batch_size",
    "IENetwork.get_ov_name_for_tensor": "Network.name_of_tensor",
    "IENetwork.input_info": "Network.inputs",
    "IENetwork.name": "Network.name",
    "IENetwork.outputs": "Network.outputs",
    "IENetwork.reshape": "Network.reshape",
    "IENetwork.serialize": "Network.serialize",
    "InferRequest": "InferRequest",
    "InferRequest.async_infer": "InferRequest.start_async",
    "InferRequest.get_perf_counts": "InferRequest.get_perf_counts",
    "InferRequest.infer": "InferRequest.infer",
    "InferRequest.input_blobs": "InferRequest.input_blobs",
    "InferRequest.latency": "InferRequest.latency",
    "InferRequest.output_blobs": "InferRequest.output_blobs",
    "InferRequest.query_state": "InferRequest.query_state",
    "InferRequest.set_batch": "InferRequest.set_batch",
    "InferRequest.set_blob": "InferRequest.set_blob",
    "InferRequest.set_completion_callback": "InferRequest.set_completion_callback",
    "InferRequest.wait": "InferRequest.wait",
    "InputInfoPtr": "InputInfo",
    "PreProcessInfo": "PreProcessInfo",
    "ResizeAlgorithm": "preprocess.ResizeAlgorithm",
    "StatusCode": "StatusCode",
    "TensorDesc": "TensorDesc",
    "VariableState": "VariableState",
    "read_network": "Core.read_network",
}
"""Name, or class.name → what it is in polydevice's own interface."""


class Surface(missing_names.StandIn):
    """A class of the interface, which says why a name is not there."""

    __slots__ = ()
    facade = ("openvino.inference_engine", ABSENT)


def missing(name: str, owner: str = "") -> AttributeError:
    """Return the error for a name that is not there, with the reason where one is known."""
    return missing_names.missing("openvino.inference_engine", ABSENT, name, owner)
