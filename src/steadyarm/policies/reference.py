"""A predictable reference for rewards: the control variate of inverse-propensity policies.

Called by `ips.py`, for policies with ``control_variate=True``.

With any m computed from the past, m + A(λ)⁻¹x(r - x'm) is as unbiased as A(λ)⁻¹xr, and varies only
by what m does not explain. Several forgetful least-squares fits compete, with one that extrapolates
and with no reference at all; the one that has predicted best lately is used, so that a bad
reference costs little.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from steadyarm.compiled import exponentials, kernel
from steadyarm.linalg import cholesky, cholesky_solve, information
from steadyarm.segments import SegmentStats

Floats = NDArray[np.float64]

# In blocks: how far back each fit reaches. The last candidate extrapolates from the two shortest.
MEMORIES = (np.inf, 3.0, 1.25)
EXTRAPOLATION = 1.0
BLOCKS_PER_FIT = 2  # after which references are fitted again
LATELY = 10.0  # blocks over which predictions are judged
PRIOR_ROUNDS = 5.0  # of the G-optimal design with rewards of zero, that every fit starts from


def new_memory(trials: int, r: int) -> dict[str, Any]:
    """Fields of a state that remembers nothing yet."""
    fits = len(MEMORIES)
    return {
        "gram": np.zeros((trials, fits, r, r)),
        "moment": np.zeros((trials, fits, r)),
        "references": np.zeros((trials, fits + 1, r)),
        "losses": np.zeros((trials, fits + 1)),
    }


def best_reference(references: Floats, losses: Floats) -> Floats:
    """(n, r) the candidate with the smallest loss of late; zero if all did worse than zero."""
    best = losses.argmin(axis=1)
    rows = np.arange(len(losses))
    chosen = references[rows, best]
    return np.where((losses[rows, best] < 0)[:, None], chosen, 0.0)


def remember(
    X: Floats,
    prior: Floats,
    stats: SegmentStats,
    blocks: Floats,
    memory: dict[str, Any],
) -> dict[str, Any]:
    """The memory after a segment of `blocks` (n,) block lengths.

    X : (m, r) arms of the segment; prior : (r, r) information of a round of the G-optimal design
    """
    after = {name: array.copy() for name, array in memory.items()}
    decay = exponentials(-blocks[:, None] / np.array([*MEMORIES, LATELY]))
    _remember_kernel(
        X,
        stats.counts.astype(np.float64),
        stats.sums,
        decay,
        PRIOR_ROUNDS * prior,
        EXTRAPOLATION,
        after["gram"],
        after["moment"],
        after["references"],
        after["losses"],
    )
    return after


@kernel
def _remember_kernel(
    X: Floats,
    counts: Floats,
    sums: Floats,
    decay: Floats,
    prior: Floats,
    extrapolation: float,
    gram: Floats,
    moment: Floats,
    references: Floats,
    losses: Floats,
) -> None:
    """Judge the references by the segment, then fit them anew, in place.

    X : (K, r); counts, sums : (n, K); decay : (n, J + 1), the last for losses; prior : (r, r)
    gram : (n, J, r, r) lower part; moment : (n, J, r); references : (n, J + 1, r);
    losses : (n, J + 1), squared errors of prediction less those of predicting zero
    """
    n, J, r = moment.shape
    A, more, v, b = np.empty((r, r)), np.empty((r, r)), np.empty(r), np.empty(r)
    for i in range(n):
        information(X, counts[i], more)
        b[:] = 0.0
        for k in range(X.shape[0]):
            if sums[i, k] != 0.0:
                for a in range(r):
                    b[a] += sums[i, k] * X[k, a]
        for j in range(J + 1):
            # m'(X'NX)m - 2 m'b is the squared error less that of zero
            loss = 0.0
            for a in range(r):
                row = 0.5 * more[a, a] * references[i, j, a]
                for c in range(a):
                    row += more[a, c] * references[i, j, c]
                loss += 2.0 * references[i, j, a] * (row - b[a])
            losses[i, j] = decay[i, J] * losses[i, j] + loss
        for j in range(J):
            for a in range(r):
                moment[i, j, a] = decay[i, j] * moment[i, j, a] + b[a]
                v[a] = moment[i, j, a]
                for c in range(a + 1):
                    gram[i, j, a, c] = decay[i, j] * gram[i, j, a, c] + more[a, c]
                    A[a, c] = gram[i, j, a, c] + prior[a, c]
            cholesky(A, 0.0)
            cholesky_solve(A, v)
            for a in range(r):
                references[i, j, a] = v[a]
        for a in range(r):
            step = references[i, J - 1, a] - references[i, J - 2, a]
            references[i, J, a] = references[i, J - 1, a] + extrapolation * step
