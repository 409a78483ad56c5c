"""``openvino.properties.intel_cpu``: names of properties, which make pairs when they are called."""

from __future__ import annotations

from polydevice.compat.openvino.properties.property import Listed, Property

__all__ = [
    "TbbPartitioner",
    "denormals_optimization",
    "sparse_weights_decompression_rate",
    "tbb_partitioner",
]


class TbbPartitioner(Listed):
    """How TBB cuts loops."""

    STATIC = 1
    AUTO = 2


denormals_optimization = Property("CPU_DENORMALS_OPTIMIZATION")
sparse_weights_decompression_rate = Property("CPU_SPARSE_WEIGHTS_DECOMPRESSION_RATE")
tbb_partitioner = Property("TBB_PARTITIONER")
