"""Values of the oneDNN v3 C enumerations that we use.

The numbers come from the headers of oneDNN 3.2 and are the same up to 3.13.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polydevice_cpu.onednn.primitive import Primitive

MAX_RANK = 12
ENGINE_CPU = 1
STREAM_IN_ORDER = 1
FORWARD_INFERENCE = 96
SCRATCHPAD_USER = 1
FORMAT_KIND_BLOCKED = 2
USE_SCALE = 2
USE_SHIFT = 4


class Status(IntEnum):
    """dnnl_status_t."""

    SUCCESS = 0
    OUT_OF_MEMORY = 1
    INVALID_ARGUMENTS = 2
    UNIMPLEMENTED = 3
    LAST_IMPL_REACHED = 4
    RUNTIME_ERROR = 5


class DataType(IntEnum):
    """dnnl_data_type_t."""

    F16 = 1
    BF16 = 2
    F32 = 3
    S32 = 4
    S8 = 5
    U8 = 6


class Algorithm(IntEnum):
    """dnnl_alg_kind_t."""

    CONVOLUTION_DIRECT = 1
    CONVOLUTION_WINOGRAD = 2
    CONVOLUTION_AUTO = 3
    DECONVOLUTION_DIRECT = 10
    RELU = 32
    TANH = 33
    ELU = 34
    SQUARE = 35
    ABS = 36
    SQRT = 37
    LINEAR = 38
    SOFT_RELU = 39
    HARD_SIGMOID = 40
    LOGISTIC = 41
    EXP = 42
    GELU_TANH = 43
    SWISH = 44
    LOG = 45
    CLIP = 46
    POW = 48
    GELU_ERF = 49
    ROUND = 50
    MISH = 51
    HARD_SWISH = 52
    POOLING_MAX = 511
    POOLING_AVG_INCLUDE_PADDING = 767
    POOLING_AVG_EXCLUDE_PADDING = 1023
    LRN_ACROSS_CHANNELS = 2815
    LRN_WITHIN_CHANNEL = 3071
    VANILLA_RNN = 8191
    VANILLA_LSTM = 12287
    VANILLA_GRU = 16383
    LBR_GRU = 20479
    BINARY_ADD = 131056
    BINARY_MUL = 131057
    BINARY_MAX = 131058
    BINARY_MIN = 131059
    BINARY_DIV = 131060
    BINARY_SUB = 131061
    RESAMPLING_NEAREST = 196592
    RESAMPLING_LINEAR = 196593
    REDUCTION_MAX = 196594
    REDUCTION_MIN = 196595
    REDUCTION_SUM = 196596
    REDUCTION_MUL = 196597
    REDUCTION_MEAN = 196598
    SOFTMAX_ACCURATE = 196608
    SOFTMAX_LOG = 196609


class Arg(IntEnum):
    """Execution argument indices (DNNL_ARG_*)."""

    SRC = 1
    SRC_ITER = 2
    SRC_ITER_C = 3
    SRC_1 = 2
    DST = 17
    DST_ITER = 18
    DST_ITER_C = 19
    WEIGHTS = 33
    WEIGHTS_ITER = 34
    WEIGHTS_PEEPHOLE = 35
    BIAS = 41
    MEAN = 49
    VARIANCE = 50
    SCALE = 51
    SHIFT = 52
    SCRATCHPAD = 80
    MULTIPLE_SRC = 1024
    ATTR_SCALES = 4096
    ATTR_ZERO_POINTS = 8192
    ATTR_POST_OP = 32768


class Query(IntEnum):
    """dnnl_query_t."""

    IMPL_INFO = 8
    SRC = 129
    WEIGHTS = 131
    DST = 133
    SCRATCHPAD = 136
    RANK = 256
    DIMS = 257
    DATA_TYPE = 258
    STRIDES = 14
    PADDED_DIMS = 260
    FORMAT_KIND = 262
    INNER_BLOCKS = 263
    INNER_BLOCK_SIZES = 264
    INNER_BLOCK_DIMENSIONS = 265


class Direction(IntEnum):
    """dnnl_rnn_direction_t."""

    LEFT_TO_RIGHT = 1
    RIGHT_TO_LEFT = 2
    BIDIRECTIONAL_CONCAT = 3


class Tag(IntEnum):
    """dnnl_format_tag_t, as far as layouts are named rather than given by strides."""

    ANY = 1
    TNC = 4
    LDNC = 5
    LDGO = 5
    LDIGO = 6
    LDGOI = 31


BY_LINES, OF_ONE_ELEMENT, OF_BLOCKS = "brgconv", "brgconv_1x1", "jit"
DEPTHWISE, PRODUCT, POOL_OF_BYTES = "brdgmm_dw", "brg", "jit_int"
"""Names of oneDNN's code, without the instructions it is for: AVX-512's, or AVX2's."""

GEMM = "gemm:jit:f32"
"""Its code of products where rows lie apart, and of all without AVX-512; for some sizes it adds up
in another order."""

_INSTRUCTIONS = "avx512_core", "avx2"


def kind_of_code(given: Primitive) -> str:
    """Return the name of a primitive's code; nothing where it is for other instructions."""
    name, _, instructions = given.implementation.partition(":")
    return name if instructions in _INSTRUCTIONS else ""
