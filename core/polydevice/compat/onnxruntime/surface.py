"""onnxruntime's public names: what stands behind them here, what differs, what is not there.

`docs/coming-from-onnxruntime.md` is written from these tables, and the tests hold them against the
package.
"""

from __future__ import annotations

from polydevice.compat import missing as missing_names

_ADAPTERS = "LoRA adapters are not applied at run time; merge them into the model's weights"
_EP_DEVICES = "providers are named, not built of devices; `polydevice devices` lists what is here"
_EP_CONTEXT = "there are no EP-context models; `ExecutableNetwork.export` keeps compiled networks"
_SPARSE = "values are dense; sparse initialisers of a model are read"
_LIBRARIES = "devices are plugins found by entry points (docs/adding-a-device.md), not libraries"
_ARENA = "memory is planned when a network is loaded; there are no arenas to set up"
_PACKAGE = "it is Python of onnxruntime's own; install onnxruntime beside polydevice and it is used"

_PACKAGES = (
    "packages of several models are onnxruntime's own; give the path of one .onnx or .xml file"
)

ABSENT: dict[str, str] = {
    "AdapterFormat": _ADAPTERS,
    "LoraAdapter": _ADAPTERS,
    "ModelCompiler": _EP_CONTEXT,
    "ModelPackage": _PACKAGES,
    "ModelPackageComponentContext": _PACKAGES,
    "ModelPackageContext": _PACKAGES,
    "ModelPackageOptions": _PACKAGES,
    "ModelPackageWriteMode": _PACKAGES,
    "OrtArenaCfg": _ARENA,
    "OrtCompileApiFlags": _EP_CONTEXT,
    "OrtEpAssignedNode": "`polydevice place` and `ExecutableNetwork.placement` say what runs where",
    "OrtEpAssignedSubgraph": "`ExecutableNetwork.placement` says what runs where",
    "OrtEpContextData": _EP_CONTEXT,
    "OrtEpContextDataBuffer": _EP_CONTEXT,
    "OrtEpDevice": _EP_DEVICES,
    "OrtExternalInitializerInfo": "external data is read by polydevice's own reader",
    "OrtHardwareDevice": _EP_DEVICES,
    "OrtHardwareDeviceType": _EP_DEVICES,
    "OrtMemoryInfoDeviceType": _EP_DEVICES,
    "OrtSyncStream": "inferences run on the network's own streams, or on an OpenCL queue of yours "
    "(docs/remote-blobs.md)",
    "SessionIOBinding": "the C++ part of IOBinding; use `InferenceSession.io_binding`",
    "SparseTensor": _SPARSE,
    "create_and_register_allocator": _ARENA,
    "create_and_register_allocator_v2": _ARENA,
    "get_ep_devices": _EP_DEVICES,
    "set_default_logger_callback": "give the logger `polydevice` of Python's logging a handler",
    "import_capi_exception": "there is no C++ part that could fail to load",
    "register_execution_provider_library": _LIBRARIES,
    "training": "polydevice infers; it does not train",
    "unregister_execution_provider_library": _LIBRARIES,
    "InferenceSession.create_ortvalue_from_shape_and_type": "use "
    "`OrtValue.ortvalue_from_shape_and_type`",
    "InferenceSession.get_input_epdevices": _EP_DEVICES,
    "InferenceSession.get_input_memory_infos": _EP_DEVICES,
    "InferenceSession.get_output_memory_infos": _EP_DEVICES,
    "InferenceSession.get_provider_graph_assignment_info": "`polydevice place` says where each "
    "node runs",
    "InferenceSession.get_tuning_results": "tuning is `polydevice tune` (docs/tuning.md)",
    "InferenceSession.release_captured_graph": "there are no captured graphs; plans are replayed "
    "anyway",
    "InferenceSession.run_with_ortvaluevector": "use `run_with_ort_values`",
    "InferenceSession.set_ep_dynamic_options": "options are fixed when the session is made",
    "InferenceSession.set_tuning_results": "tuning is `polydevice tune` (docs/tuning.md)",
    "OrtMemoryInfo.create_v2": _EP_DEVICES,
    "OrtValue.as_sparse_tensor": _SPARSE,
    "OrtValue.ort_value_from_sparse_tensor": _SPARSE,
    "RunOptions.add_active_adapter": _ADAPTERS,
    "SessionOptions.add_external_initializers_from_files_in_memory": "pass a path: external data "
    "is read from beside it",
    "SessionOptions.add_provider_for_devices": _EP_DEVICES,
    "SessionOptions.clear_ep_context_data_read_func": _EP_CONTEXT,
    "SessionOptions.set_ep_context_data_read_func": _EP_CONTEXT,
    "SessionOptions.set_load_cancellation_flag": "loading cannot be cancelled",
    "SessionOptions.set_provider_selection_policy_delegate": _EP_DEVICES,
}
"""Name, or class.name → why it is not there."""

INSTALLED = dict.fromkeys(("datasets", "quantization", "tools", "transformers"), _PACKAGE)
"""Packages of an onnxruntime that is installed, which run on polydevice → what to say otherwise."""

DIFFERENT: dict[str, str] = {
    **dict.fromkeys(INSTALLED, "that of an onnxruntime that is installed, run on polydevice"),
    "OrtSparseFormat": "for its numbers alone",
    "OrtMemoryInfo": "describes memory; nothing takes one",
    "copy_tensors": "copies through host memory",
    "cuda_version": "empty",
    "disable_telemetry_events": "does nothing: there is no telemetry",
    "enable_telemetry_events": "does nothing: there is no telemetry",
    "get_all_providers": "`PolydeviceGPU`, `PolydeviceCPU`, and the names that mean one of them",
    "get_available_providers": "`PolydeviceGPU` and the provider of the GPU's vendor where there "
    "is one, `PolydeviceCPU`, `CPUExecutionProvider`",
    "get_build_info": "says that it is polydevice",
    "preload_dlls": "does nothing: no such libraries are needed",
    "print_debug_info": "one line of polydevice's own",
    "set_default_logger_severity": "of Python's logger `polydevice.compat.onnxruntime`",
    "set_default_logger_verbosity": "does nothing: messages have levels alone",
    "set_seed": "has no effect and says so: random operators take the seeds in the model",
    "InferenceSession": "also takes the path of an OpenVINO IR; operators that polydevice lacks "
    "raise `NotImplemented`, all of them named",
    "InferenceSession.disable_fallback": "does nothing; a run that failed is never repeated on CPU",
    "InferenceSession.enable_fallback": "does nothing; a run that failed is never repeated on CPU",
    "InferenceSession.end_profiling": "writes layers in execution order, one after the other",
    "InferenceSession.get_outputs": "sizes are those that polydevice infers: one that it does not "
    "know is the name that the file gives it, or None",
    "IOBinding.bind_input": "an address on the host; those of other GPU libraries are refused",
    "IOBinding.bind_output": "likewise",
    "IOBinding.synchronize_inputs": "nothing to wait for",
    "IOBinding.synchronize_outputs": "nothing to wait for",
    "OrtValue.data_ptr": "of host memory alone",
    "OrtValue.from_dlpack": "host memory alone",
    "RunOptions.add_run_config_entry": "kept; has no effect",
    "RunOptions.log_severity_level": "kept; has no effect",
    "RunOptions.log_verbosity_level": "kept; has no effect",
    "RunOptions.logid": "kept; has no effect",
    "RunOptions.only_execute_path_to_fetches": "kept; the whole network runs",
    "SessionOptions.add_session_config_entry": "kept; has no effect",
    "SessionOptions.enable_cpu_mem_arena": "kept; " + _ARENA,
    "SessionOptions.enable_mem_pattern": "kept; " + _ARENA,
    "SessionOptions.enable_mem_reuse": "kept; " + _ARENA,
    "SessionOptions.execution_mode": "kept; the device decides",
    "SessionOptions.execution_order": "kept; the device decides",
    "SessionOptions.graph_optimization_level": "kept; all optimisations are always made",
    "SessionOptions.inter_op_num_threads": "kept; has no effect",
    "SessionOptions.log_severity_level": "kept; has no effect",
    "SessionOptions.log_verbosity_level": "kept; has no effect",
    "SessionOptions.logid": "kept; has no effect",
    "SessionOptions.optimized_model_filepath": "writes the model as it was set up, not optimised, "
    "and says so; with the suffix .xml as OpenVINO IR",
    "SessionOptions.register_custom_ops_library": "refused: write custom layers "
    "(docs/custom-layers.md)",
    "SessionOptions.set_provider_selection_policy": "chooses between GPU and CPU",
    "SessionOptions.use_deterministic_compute": "kept; has no effect",
    "SessionOptions.use_per_session_threads": "kept; every session has its own",
}
"""Name, or class.name → what is different."""

OURS: dict[str, str] = {
    "backend": "onnx_backend",
    "IOBinding": "InferRequest",
    "IOBinding.bind_cpu_input": "InferRequest.set_blob",
    "IOBinding.bind_input": "InferRequest.set_blob",
    "IOBinding.bind_ortvalue_input": "InferRequest.set_blob",
    "IOBinding.bind_ortvalue_output": "InferRequest.set_blob",
    "IOBinding.bind_output": "InferRequest.set_blob, .keep_on_device",
    "IOBinding.get_outputs": "InferRequest.get_blob",
    "InferenceSession": "Core.read_network, .load_network",
    "InferenceSession.end_profiling": "Trace",
    "InferenceSession.get_inputs": "ExecutableNetwork.inputs",
    "InferenceSession.get_modelmeta": "Network.rt_info",
    "InferenceSession.get_outputs": "ExecutableNetwork.outputs",
    "InferenceSession.get_overridable_initializers": "Network.make_input",
    "InferenceSession.get_providers": "ExecutableNetwork.device",
    "InferenceSession.io_binding": "ExecutableNetwork.create_infer_request",
    "InferenceSession.run": "InferRequest.infer",
    "InferenceSession.run_async": "InferRequest.start_async",
    "InferenceSession.run_with_iobinding": "InferRequest.infer",
    "InferenceSession.run_with_ort_values": "InferRequest.infer",
    "ModelMetadata": "Network.rt_info",
    "NodeArg": "PortInfo",
    "OrtValue": "Blob, RemoteBlob",
    "OrtValue.numpy": "Blob.array, RemoteBlob.copy_to",
    "OrtValue.ortvalue_from_numpy": "Blob, RemoteContext.create_blob",
    "OrtValue.ortvalue_from_shape_and_type": "Blob.empty, RemoteContext.create_blob",
    "OrtValue.update_inplace": "RemoteBlob.copy_from",
    "RunOptions.terminate": "InferRequest.cancel",
    "SessionOptions": "config of Core.load_network",
    "SessionOptions.add_free_dimension_override_by_denotation": "Network.fix_dimensions",
    "SessionOptions.add_free_dimension_override_by_name": "Network.fix_dimensions",
    "SessionOptions.add_initializer": "Network.set_constant",
    "SessionOptions.add_external_initializers": "Network.set_constant",
    "SessionOptions.enable_profiling": "PERF_COUNT",
    "SessionOptions.intra_op_num_threads": "CPU_THREADS_NUM",
    "SessionOptions.optimized_model_filepath": "Network.serialize",
    "get_available_providers": "Core.available_devices",
    "get_device": "Core.available_devices",
    "set_global_thread_pool_sizes": "CPU_THREADS_NUM",
}
"""Name, or class.name → what it is in polydevice's own interface."""


class Surface(missing_names.StandIn):
    """A class of the interface, which says why a name is not there."""

    __slots__ = ()
    facade = ("onnxruntime", ABSENT)


def missing(name: str, owner: str = "") -> AttributeError:
    """Return the error for a name that is not there, with the reason where one is known."""
    return missing_names.missing("onnxruntime", {**ABSENT, **INSTALLED}, name, owner)
