"""Limits of what sums of scores say of arms and gaps; for all arms of a large set in passes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms.rows import Rows
from steadyarm.arms.walsh import walsh_of
from steadyarm.designs.forms import forms
from steadyarm.designs.passes import blocks
from steadyarm.inference.evidence import Evidence
from steadyarm.inference.variance import LEAST_FREEDOM, LEAST_ROUNDS, Scatter, third_moments

__all__ = [
    "SOME",
    "TINY",
    "error_and_skew",
    "gap_forms",
    "in_passes",
    "linear_forms",
    "others_than",
    "quadratic",
    "skewed_limits",
]

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]

SOME = 2000  # arms that are looked at more closely at a time
TINY = 1e-14  # share of the squared scores below which a variance is rounding


def quadratic(D: Floats, M: Floats) -> Floats:
    """(n, K) d'Md for directions (n, K, r) and matrices (n, r, r); rounding below 0 is cut off."""
    return np.asarray(np.maximum(((D @ M) * D).sum(axis=-1), 0.0))


def error_and_skew(D: Floats, evidence: Evidence, scatter: Scatter) -> tuple[Floats, Floats]:
    """(n, K) standard errors of sums d'Σs, infinite if unknown; third moment over variance."""
    variance = quadratic(D, scatter.total)
    seen = quadratic(D, evidence.squares.sum(axis=1))
    enough = (evidence.played >= LEAST_ROUNDS) & (scatter.freedom >= LEAST_FREEDOM)
    known = (variance > TINY * seen) & enough[:, None]
    sums = scatter.sums @ D.swapaxes(1, 2)
    parts = np.stack([quadratic(D, part) for part in scatter.variances.swapaxes(0, 1)], axis=1)
    third = third_moments(sums, parts, scatter.rounds)[:, -1]
    error = np.sqrt(variance)
    skew = np.where(known, third, 0.0) / np.where(known, variance, 1.0)
    return np.where(known, error, np.inf), np.clip(skew, -error, error)


def skewed_limits(centre: Floats, error: Floats, skew: Floats, z: Floats) -> tuple[Floats, Floats]:
    """Normal limits, and those with the second-order correction for skewness if wider."""
    reach, shift = z * error, (2 * z**2 + 1) / 6 * skew
    wider = np.sqrt(reach**2 + shift**2)
    low = np.minimum(centre - reach, centre + shift - wider)
    return low, np.maximum(centre + reach, centre + shift + wider)


def in_passes(evidence: Evidence, scatter: Scatter, best: Floats, z: float) -> Booleans:
    """(K,) which arms of the whole set cannot be ruled out as the best, at z standard errors.

    Skewness can only widen a limit, and only so far: where the arm is plausible without it, or
    ruled out with the most of it, it need not be looked at.

    best : (r,) the arm that gaps are measured from
    """
    arms = evidence.arms if evidence.whole is None else evidence.whole
    sign = 1.0 if evidence.direction == "maximize" else -1.0
    T, theta = max(int(evidence.played[0]), 1), evidence.theta[0]
    out = np.ones(arms.size, dtype=bool)
    if evidence.played[0] < LEAST_ROUNDS or scatter.freedom[0] < LEAST_FREEDOM:
        return out
    rows, total = arms.rows, scatter.total[0]
    gaps = T * sign * (best @ theta - linear_forms(rows, theta))
    variance = gap_forms(rows, total, best)
    error = np.sqrt(variance)
    largest = float(np.linalg.eigvalsh(evidence.squares[0].sum(axis=0))[-1])
    known = variance > TINY * largest * gap_forms(rows, np.eye(len(best)), best)
    ahead = np.flatnonzero((gaps > z * error) | ~known)
    out[ahead] = ~(known & (gaps > _widest(error, error, z)))[ahead]
    steps, slack = _most_skew(scatter)
    unsure = ahead[out[ahead]]
    for start in range(0, unsure.size, SOME):
        few = unsure[start : start + SOME]
        D = sign * (best - rows.take(few))
        size = 1 + slack * (D**2).sum(axis=1) / np.where(known[few], variance[few], 1.0)
        most = np.minimum(np.abs(D @ steps).sum(axis=1) * size, error[few])
        left = ~(known[few] & (gaps[few] > _widest(error[few], most, z)))
        exact, skew = error_and_skew(D[None, left], evidence, scatter)
        low, _ = skewed_limits(gaps[None, few[left]], exact, skew, np.full((1, 1), z))
        out[few] = False
        out[few[left]] = (low[0] <= 0) | (gaps[few[left]] <= 0)
    return out


def _widest(error: Floats, skew: Floats, z: float) -> Floats:
    """How far below the estimate a limit can lie with so much skewness, and a little more."""
    shift = (2 * z**2 + 1) / 6 * skew
    return np.asarray((1 + 1e-9) * (shift + np.sqrt((z * error) ** 2 + shift**2)))


def gap_forms(rows: Rows, M: Floats, best: Floats) -> Floats:
    """(K,) d'Md for the differences d of the best arm to each of a large set."""
    moved = M @ best
    return np.asarray(np.maximum(forms(rows, M, -2 * moved) + best @ moved, 0.0))


def linear_forms(rows: Rows, theta: Floats) -> Floats:
    """(K,) values of all arms of a large set."""
    if walsh_of(rows) is not None:
        return forms(rows, np.zeros((theta.size, theta.size)), theta)
    return np.concatenate([rows.block(*ends) @ theta for ends in blocks(*rows.shape)])


def _most_skew(scatter: Scatter) -> tuple[Floats, float]:
    """(r, G - 1) such that |skew| of d is at most sum |d'column| (1 + slack |d|² / variance of d).

    As in `third_moments`, with the largest change of the variance between neighbours, over all
    directions, in units of the whole variance.
    """
    total, N = scatter.total[0], np.maximum(scatter.rounds[0], 1).astype(np.float64)
    r = len(total)
    slack = max(1e-10 * float(np.trace(total)) / r, 1e-300)
    inverse = np.linalg.inv(np.linalg.cholesky(total + slack * np.eye(r)))
    columns, covered = [np.zeros(r)], 0.0
    for g in range(1, len(N)):
        n, m = N[g - 1], N[g]
        if min(n, m) < max(n, m) / 2 or not scatter.rounds[0, g]:
            continue  # not compared
        change = scatter.variances[0, g] / m - scatter.variances[0, g - 1] / n
        size = np.abs(np.linalg.eigvalsh(inverse @ change @ inverse.T)).max() if change.any() else 0
        columns.append((scatter.sums[0, g] * n - scatter.sums[0, g - 1] * m) * size / 2)
        covered += (n + m) / 2
    factor = float(scatter.rounds[0].sum()) / max(covered, 1.0)
    return factor * np.column_stack(columns), slack


def others_than(evidence: Evidence, plausible: Booleans) -> int:
    """How many arms that are not shown are plausible."""
    shown = evidence.shown
    return int(plausible.sum()) - (0 if shown is None else int(plausible[shown].sum()))
