"""Many short random streams at once, with the very bits of NumPy's generators.

Stream i is ``Generator(Philox(SeedSequence(seed, spawn_key=(*place, i))))``. To make one takes
about fifteen microseconds, which is long beside the dozen numbers that a block of a live test takes
from it. Here whole-number arithmetic on arrays makes the same numbers for all streams together.

References: Salmon, Moraes, Dror, Shaw, Parallel random numbers: as easy as 1, 2, 3 (2011), for
Philox 4x64 with ten rounds; O'Neill, Developing a seed_seq alternative (2015), for the seeds.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["numbers_to_shuffle", "one_stream", "raw_numbers", "shuffle_each", "uniform"]

Words = NDArray[np.uint64]

# Of SeedSequence: how words are hashed into the pool, out of the pool, and with each other.
POOL = 4
INTO, INTO_FACTOR = 0x43B0D7E5, 0x931E8875
OUT, OUT_FACTOR = 0x8B51F9DD, 0x58F38DED
MIX_LEFT, MIX_RIGHT = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
HALF_WORD = np.uint32(16)

# Of Philox: factors of the two products of a round, and what is added to the keys after it.
ROUNDS = 10
FACTORS = np.array([[0xD2E7470EE14C6C93], [0xCA5A826395121157]], dtype=np.uint64)
STEPS = np.array([[0x9E3779B97F4A7C15], [0xBB67AE8584CAA73B]], dtype=np.uint64)
DONE = 2**32  # a bit that no half has
LOW, HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
FACTORS_LOW, FACTORS_HIGH = FACTORS & LOW, FACTORS >> HALF


def one_stream(seed: int, *place: int) -> np.random.Generator:
    """NumPy's generator of one stream."""
    return np.random.Generator(np.random.Philox(_sequence(seed, *place)))


def _sequence(seed: int, *place: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed, spawn_key=place)


def raw_numbers(seed: int, place: tuple[int, ...], first: int, stop: int, count: int) -> Words:
    """(at least `count`, n) first numbers of the n streams (*place, first) to (*place, stop - 1).

    stop : at most 2³²

    Examples
    --------
    >>> made = raw_numbers(7, (2,), 5, 8, count=4)
    >>> made[:, 0].tolist() == one_stream(7, 2, 5).bit_generator.random_raw(4).tolist()
    True
    """
    n, steps = stop - first, -(-count // 4)
    keys = _keys(seed, place, np.arange(first, stop, dtype=np.uint32))
    counters = np.repeat(np.arange(1, steps + 1, dtype=np.uint64), n)
    made = _philox(counters, np.tile(keys, steps)).reshape(4, steps, n)
    return made.swapaxes(0, 1).reshape(4 * steps, n)


def uniform(numbers: Words) -> NDArray[np.float64]:
    """What ``Generator.random`` makes of such numbers."""
    return np.asarray((numbers >> np.uint64(11)) * 2.0**-53)


def numbers_to_shuffle(m: int) -> int:
    """How many numbers `shuffle_each` should be given for m things: enough but for 1 in 10,000."""
    chance = np.arange(2, m + 1) / (_masks(m)[1:] + 1)  # that a draw is not repeated
    needed = float((1 / chance).sum()) + 4 * math.sqrt(((1 - chance) / chance**2).sum())
    return math.ceil(needed / 2) + 1


def shuffle_each(rows: NDArray[Any], numbers: Words) -> NDArray[np.bool_]:
    """Shuffle every column of `rows` (m, n) in place as ``Generator.shuffle`` does with its stream.

    Each thing from the last to the second changes places with one at most as far from the
    beginning, whose place is drawn from halves of numbers, low ones first: as many bits as the
    largest place has, and again if they say more than that.

    rows : C-contiguous
    numbers : (any, n) of each stream
    Returns (n,) for which columns the numbers did not suffice; their order is meaningless.
    """
    m, n = rows.shape
    halves = np.empty((len(numbers), 2, n), dtype=np.int64)
    halves[:, 0], halves[:, 1] = numbers & LOW, numbers >> HALF
    halves = halves.reshape(-1, n) | DONE
    masks = _masks(m)
    masks[0] = DONE  # larger than any place: a column that is finished accepts nothing
    at, places = np.empty_like(halves), np.empty_like(halves)
    accepted = np.empty(halves.shape, dtype=bool)
    now, used = np.full(n, m - 1), 0
    for used, half in enumerate(halves):  # used afterwards
        at[used] = now
        np.bitwise_and(half, masks[now], out=places[used])
        np.less_equal(places[used], now, out=accepted[used])
        now = now - accepted[used]
        if used >= m - 2 and not now.any():
            break
    row, column = np.nonzero(accepted[: used + 1])
    others = np.zeros((m, n), dtype=np.int64)
    others[at[row, column], column] = places[row, column] * n + column
    flat = rows.reshape(-1)
    for i in range(m - 1, 0, -1):
        kept = rows[i].copy()
        rows[i] = flat[others[i]]
        flat[others[i]] = kept
    return now > 0


def _masks(m: int) -> NDArray[np.int64]:
    """(m,) for places up to i the smallest 2ᵏ - 1 that holds them, i = 0, …, m - 1."""
    return np.array([(1 << i.bit_length()) - 1 for i in range(m)], dtype=np.int64)


def _keys(seed: int, place: tuple[int, ...], last: NDArray[np.uint32]) -> Words:
    """(2, n) keys of the streams (*place, i) for every i in `last`.

    SeedSequence hashes the words of the seed and of the place one after the other into its pool,
    so that what comes before the last word is the same for all.
    """
    hashed = max(_words(seed), POOL) + sum(map(_words, place))  # words that are in the pool
    constants = [INTO * pow(INTO_FACTOR, POOL * hashed, 2**32) % 2**32]
    for _ in range(POOL):
        constants.append(constants[-1] * INTO_FACTOR % 2**32)
    used = np.array(constants, dtype=np.uint32)[:, None]
    word = (last ^ used[:POOL]) * used[1:]
    word ^= word >> HALF_WORD
    pool = np.asarray(_sequence(seed, *place).pool)[:, None] * MIX_LEFT - word * MIX_RIGHT
    pool ^= pool >> HALF_WORD
    constants = [OUT]
    for _ in range(POOL):
        constants.append(constants[-1] * OUT_FACTOR % 2**32)
    used = np.array(constants, dtype=np.uint32)[:, None]
    state = (pool ^ used[:POOL]) * used[1:]
    state ^= state >> HALF_WORD
    wide = state.astype(np.uint64)
    return wide[0::2] | wide[1::2] << HALF


def _words(number: int) -> int:
    """How many words of 32 bits SeedSequence takes for a whole number."""
    return max(-(-int(number).bit_length() // 32), 1)


def _philox(counters: Words, keys: Words) -> Words:
    """(4, n) numbers that Philox makes at each count (n,) with its key (2, n)."""
    factored = np.stack([counters, np.zeros_like(counters)])  # words 0 and 2
    rest = np.zeros_like(factored)  # words 3 and 1
    for i in range(ROUNDS):
        if i:
            keys = keys + STEPS
        low, high = factored & LOW, factored >> HALF
        middle = high * FACTORS_LOW + (low * FACTORS_LOW >> HALF)
        carry = low * FACTORS_HIGH + (middle & LOW)
        upper = high * FACTORS_HIGH + (middle >> HALF) + (carry >> HALF)
        # Upper halves of the products go to the other word, lower ones to the words beside.
        factored, rest = upper[::-1] ^ rest[::-1] ^ keys, factored * FACTORS
    return np.stack([factored[0], rest[1], factored[1], rest[0]])
