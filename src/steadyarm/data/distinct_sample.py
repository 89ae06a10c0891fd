"""A uniform sample of the distinct vectors in a stream of any length, in constant memory.

Every vector gets a seeded hash of its own bits and the k smallest hashes are kept. Repetitions
change nothing, nor does the order of the stream, and samples of two streams merge into that of
their union.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steadyarm.errors import InvalidInputError

__all__ = ["DistinctSample"]


@dataclass(frozen=True)
class DistinctSample:
    """The `size` distinct vectors with the smallest hashes so far.

    Examples
    --------
    >>> stream = np.arange(1000.0).repeat(3).reshape(-1, 1)
    >>> sample = DistinctSample.empty(columns=1, size=4, seed=0)
    >>> sample.add(stream).vectors.ravel().tolist()
    [227.0, 2.0, 907.0, 332.0]
    >>> sample.add(stream[2000:]).add(stream[:2000]).vectors.ravel().tolist()
    [227.0, 2.0, 907.0, 332.0]
    """

    size: int
    seed: int
    hashes: NDArray[np.uint64]
    vectors: NDArray[np.float64]

    @classmethod
    def empty(cls, columns: int, size: int, seed: int) -> DistinctSample:
        """A sample of nothing yet."""
        if size < 1:
            raise InvalidInputError(f"the size of the sample is {size}; expected at least 1.")
        return cls(size, seed, np.empty(0, dtype=np.uint64), np.empty((0, columns)))

    def add(self, vectors: NDArray[np.float64]) -> DistinctSample:
        """The sample after these (n, columns) vectors."""
        hashes = _hash(vectors, self.seed)
        if len(self.hashes) == self.size:  # nearly all of a long stream ends here
            new = hashes < self.hashes[-1]
            hashes, vectors = hashes[new], vectors[new]
        return self._with(hashes, vectors) if len(hashes) else self

    def merge(self, other: DistinctSample) -> DistinctSample:
        """The sample of both streams together."""
        if (self.size, self.seed) != (other.size, other.seed):
            raise InvalidInputError(
                f"samples of sizes {self.size} and {other.size} with seeds {self.seed} and "
                f"{other.seed} cannot be merged; take the same size and seed for both."
            )
        return self._with(other.hashes, other.vectors)

    def _with(self, hashes: NDArray[np.uint64], vectors: NDArray[np.float64]) -> DistinctSample:
        together = np.concatenate([self.hashes, hashes])
        smallest, first = np.unique(together, return_index=True)
        kept = np.concatenate([self.vectors, vectors])[first[: self.size]]
        return DistinctSample(self.size, self.seed, smallest[: self.size], kept)


def _hash(vectors: NDArray[np.float64], seed: int) -> NDArray[np.uint64]:
    """64-bit hash of each row: the finaliser of splitmix64 after every column."""
    bits = np.ascontiguousarray(vectors + 0.0).view(np.uint64)  # adding 0 makes -0 and 0 one
    state = np.full(len(bits), seed % 2**64, dtype=np.uint64)
    for column in bits.T:
        state = (state ^ column) + np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state ^= state >> np.uint64(31)
    return state
