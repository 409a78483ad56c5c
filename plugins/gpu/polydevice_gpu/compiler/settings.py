"""CompileSettings: what the configuration says about compiling a network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from polydevice.dataclass import dataclass
from polydevice.dtype import ElementType
from polydevice.network.kept_layers import KeptLayers
from polydevice_gpu.custom.layer import CustomLayer
from polydevice_gpu.one_launch.choose import Mode
from polydevice_gpu.options import GpuOptions
from polydevice_gpu.reports.dumps import Dumps
from polydevice_gpu.tuning.tuner import Tuner


@dataclass(frozen=True)
class CompileSettings:
    """What the configuration says about compiling a network.

    Attributes:
        floats: type in which f16 and f32 values are stored between layers, None for each its own;
            sums stay in f32.
        kept: layers whose values are stored as f32 all the same.
        quantized_in_f32: whether networks with quantisation store all of them as f32.
        integers: whether quantised products are computed on integers.
        memory_pool: whether values that do not live at the same time share memory.
        loop_unrolling: whether loops of more than one iteration become plain layers.
        single_launch: whether launches that follow each other become one.
        may_join: whether they may on the device, as far as is known before there are any.
        side_by_side: whether those that do not wait for each other then run at the same time.
        streams: how many inferences run at the same time.
        on_users_queue: whether they run on a queue that is not the network's.
        dynamic_batch: whether requests may compute a part of the network's batch.
        nv12_two_inputs: whether the two planes of NV12 images become two inputs.
        dumps: where graphs and sources are written.
        tuner: chooses kernels from a tuning file, or None.
        custom_layers: operation type → the user's kernel.
        host_config: configuration of the CPU device for the layers that it computes.
    """

    floats: ElementType | None = None
    kept: KeptLayers = field(default_factory=KeptLayers)
    quantized_in_f32: bool = False
    integers: bool = True
    memory_pool: bool = True
    loop_unrolling: bool = True
    single_launch: Mode = "NO"
    may_join: bool = False
    side_by_side: bool = False
    streams: int = 1
    on_users_queue: bool = False
    dynamic_batch: bool = False
    nv12_two_inputs: bool = False
    dumps: Dumps = field(default_factory=Dumps)
    tuner: Tuner | None = None
    custom_layers: Mapping[str, CustomLayer] = field(default_factory=dict)
    host_config: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, options: GpuOptions, tuner: Tuner | None = None) -> CompileSettings:
        """Return what a configuration says.

        Args:
            options: the configuration.
            tuner: chooses kernels; None for those that are expected to be fastest.

        Raises:
            OptionValueError: a CONFIG_FILE is no longer what it was when the key was set.
        """
        threads = options.max_num_threads
        host: dict[str, Any] = {"CPU_THREADS_NUM": threads} if threads else {}
        if options.perf_count:
            host["PERF_COUNT"] = True
        floats = {"f32": ElementType.f32, "f16": ElementType.f16}
        return cls(
            floats=floats.get(options.inference_precision),
            quantized_in_f32=not options.fp16_for_quantized,
            integers=options.integers,
            memory_pool=options.memory_pool,
            loop_unrolling=options.loop_unrolling,
            single_launch=options.single_launch,
            streams=options.streams,
            dynamic_batch=options.dynamic_batch,
            nv12_two_inputs=options.nv12_two_inputs,
            dumps=Dumps(
                options.graph_dumps_dir,
                options.sources_dumps_dir,
                (options.sources_dumps_dir or ".") if options.dump_kernels else "",
            ),
            tuner=tuner,
            custom_layers=options.custom_layers,
            host_config=host,
        )
