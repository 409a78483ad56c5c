"""Random bits in the sequences of other programs: Philox 4x32-10 and the Mersenne twister.

Sources: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011; ISO C++ 14882,
seed_seq and mt19937.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from polydevice.dtype import Array

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def philox(key: int, counter: int, count: int) -> Array:
    """Return at least `count` random u32, four for each of the blocks 0, 1 and so on.

    Args:
        key: 64 bits, OpenVINO's global seed.
        counter: the upper 64 bits of the counter, OpenVINO's operation seed.
        count: how many numbers are needed.
    """
    blocks = np.arange(-(-count // 4), dtype=np.uint64)
    low, high = counter & 0xFFFFFFFF, counter >> 32 & 0xFFFFFFFF
    x = [blocks & _LOW, blocks >> _HALF, np.full_like(blocks, low), np.full_like(blocks, high)]
    keys = [key & 0xFFFFFFFF, key >> 32 & 0xFFFFFFFF]
    for _ in range(_ROUNDS):
        first, second = _MULTIPLIERS[0] * x[0], _MULTIPLIERS[1] * x[2]
        x = [
            (second >> _HALF) ^ x[1] ^ np.uint64(keys[0]),
            second & _LOW,
            (first >> _HALF) ^ x[3] ^ np.uint64(keys[1]),
            first & _LOW,
        ]
        keys = [(k + step) & 0xFFFFFFFF for k, step in zip(keys, _KEY_STEPS, strict=True)]
    return np.stack(x, axis=1).reshape(-1).astype(np.uint32)


def mersenne(seed: int, count: int) -> Array:
    """Return `count` random u32 as PyTorch's generator does after manual_seed(seed)."""
    return np.frombuffer(np.random.RandomState(seed & 0xFFFFFFFF).bytes(4 * count), "<u4")


def mersenne_of_sequence(seeds: tuple[int, ...], count: int) -> Array:
    """Return `count` random u32 as C++'s mt19937 does, seeded by a seed_seq."""
    twister = np.random.RandomState()
    twister.set_state(("MT19937", _seed_sequence(seeds, 624), 624, 0, 0.0))
    return np.frombuffer(twister.bytes(4 * count), "<u4")


def _seed_sequence(seeds: tuple[int, ...], n: int) -> npt.NDArray[np.uint32]:
    """Spread seeds over n words, as C++'s seed_seq::generate does for n >= 623."""
    size, mask = len(seeds), 0xFFFFFFFF
    words = [0x8B8B8B8B] * n
    p = (n - 11) // 2
    q = p + 11

    def mixed(x: int) -> int:
        return x ^ (x >> 27)

    for k in range(n):
        previous, middle = words[k - 1], (k + p) % n
        first = 1664525 * mixed(words[k] ^ words[middle] ^ previous) & mask
        added = (size, *seeds)[k] if k <= size else 0
        second = (first + k + added) & mask
        words[middle] = (words[middle] + first) & mask
        words[(k + q) % n] = (words[(k + q) % n] + second) & mask
        words[k] = second
    for k in range(n):
        previous, middle = words[k - 1], (k + p) % n
        first = 1566083941 * mixed((words[k] + words[middle] + previous) & mask) & mask
        second = (first - k) & mask
        words[middle] ^= first
        words[(k + q) % n] ^= second
        words[k] = second
    return np.array(words, np.uint32)
