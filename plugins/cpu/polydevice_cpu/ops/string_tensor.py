"""StringTensorUnpack and StringTensorPack."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import InferenceError
from polydevice.ops.string_tensor import StringTensorPack, StringTensorUnpack
from polydevice_cpu.implement import implements


@implements(StringTensorUnpack)
def unpack(_op: StringTensorUnpack, x: Array) -> tuple[Array, Array, Array]:
    """Encode and count."""
    encoded = [_encoded(item) for item in x.reshape(-1)]
    ends = np.cumsum([len(item) for item in encoded], dtype=np.int64)
    if ends.size and ends[-1] > np.iinfo(np.int32).max:
        raise InferenceError(f"StringTensorUnpack: {ends[-1]} bytes are too many for i32 offsets")
    begins = np.concatenate([[0], ends[:-1]]) if ends.size else ends
    symbols = np.frombuffer(b"".join(encoded), np.uint8)
    return begins.reshape(x.shape).astype(np.int32), ends.reshape(x.shape).astype(np.int32), symbols


def _encoded(item: object) -> bytes:
    return item if isinstance(item, bytes) else str(item).encode()


@implements(StringTensorPack)
def pack(_op: StringTensorPack, begins: Array, ends: Array, symbols: Array) -> Array:
    """Decode each range of bytes; what is no UTF-8 becomes the replacement character."""
    data = symbols.astype(np.uint8).tobytes()
    first, last = begins.reshape(-1).astype(np.int64), ends.reshape(-1).astype(np.int64)
    bad = (first < 0) | (last < first) | (last > len(data))
    if bad.any():
        at = int(np.flatnonzero(bad)[0])
        raise InferenceError(
            f"StringTensorPack: string {at} from byte {first[at]} to {last[at]} "
            f"lies outside the {len(data)} bytes"
        )
    y = np.empty(first.size, object)
    for i, (start, end) in enumerate(zip(first, last, strict=True)):
        y[i] = data[start:end].decode(errors="replace")
    return y.reshape(begins.shape)
