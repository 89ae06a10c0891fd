"""Regular fractions: few arms of a factorial set whose equal weights are as good as all of them.

For the first designs of `nested` and `large_xy`, and the base of `factorial_xy`.

A(λ) of equal weights only depends on how often levels of 2q factors meet, with q the order of the
interactions. In an orthogonal array of strength 2q all of these meet equally often, so that A is
that of the full set. For p levels, p prime, arms u ↦ (⟨u, c₁⟩, …, ⟨u, cₙ⟩) over all u in GF(p)ᵇ are
such an array if any 2q of the columns c are independent (Rao 1947). The columns are chosen
greedily, as in a lexicographic code.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms.rows import FactorialRows

__all__ = ["fraction"]

MOST_SUMS = 10**6  # sums of columns that are kept while the next column is looked for

Indices = NDArray[np.int64]


def fraction(rows: FactorialRows) -> Indices:
    """Sorted indices of arms whose equal weights have the A of equal weights on all arms.

    Factors with a number of levels that is not prime keep all their levels; if nothing can be
    left out, these are all arms.

    Examples
    --------
    >>> rows = FactorialRows([2] * 16)
    >>> arms = fraction(rows)
    >>> X = rows.take(arms)
    >>> rows.shape, arms.size, bool(np.allclose(X.T @ X / arms.size, np.eye(137)))
    ((65536, 137), 256, True)
    """
    return _fraction(tuple(rows.levels), rows.interactions)


@lru_cache(maxsize=16)
def _fraction(levels: tuple[int, ...], interactions: int) -> Indices:
    arms = np.zeros(1, dtype=np.int64)
    place = {f: int(np.prod(levels[f + 1 :], dtype=np.int64)) for f in range(len(levels))}
    for count in sorted(set(levels)):
        factors = [f for f, other in enumerate(levels) if other == count]
        groups = [factors] if _is_prime(count) else [[f] for f in factors]
        for group in groups:
            runs = _array(count, len(group), 2 * interactions)
            offsets = runs @ np.array([place[f] for f in group], dtype=np.int64)
            arms = (arms[:, None] + offsets).ravel()
    answer = np.sort(arms)
    answer.setflags(write=False)
    return answer


def _array(p: int, factors: int, strength: int) -> Indices:
    """(runs, factors) levels, in which every choice of `strength` factors is balanced."""
    columns = _columns(p, factors, strength) if strength < factors else None
    if columns is None:
        return np.array(list(product(range(p), repeat=factors)), dtype=np.int64)
    digits = int(np.flatnonzero(columns.any(axis=0)).max()) + 1
    messages = np.array(list(product(range(p), repeat=digits)), dtype=np.int64)
    return np.asarray(messages @ columns[:, :digits].T % p)


def _columns(p: int, factors: int, strength: int) -> Indices | None:
    """(factors, factors) digits of vectors of which any `strength` are independent; or None.

    The next vector is the least that is no combination of fewer than `strength` earlier ones.
    """
    powers = p ** np.arange(factors, dtype=np.int64)
    sums = [np.zeros((1, factors), dtype=np.int64)] + [
        np.zeros((0, factors), dtype=np.int64) for _ in range(strength - 1)
    ]
    taken, columns, candidate = {0}, [], 0
    for _ in range(factors):
        while candidate in taken:
            candidate += 1
        column = candidate // powers % p
        columns.append(column)
        for size in range(strength - 1, 0, -1):
            new = [(sums[size - 1] + c * column) % p for c in range(1, p)]
            sums[size] = np.vstack([sums[size], *new])
            taken.update(np.concatenate([part @ powers for part in new]).tolist())
        if sum(map(len, sums)) > MOST_SUMS:
            return None
    return np.array(columns, dtype=np.int64)


def _is_prime(count: int) -> bool:
    return all(count % divisor for divisor in range(2, int(count**0.5) + 1))
