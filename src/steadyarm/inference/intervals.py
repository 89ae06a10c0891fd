"""Intervals for time-averaged rewards and gaps after a test, although it adapted and drifted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steadyarm.arms import ArmSet
from steadyarm.errors import InvalidInputError
from steadyarm.inference.evidence import Evidence
from steadyarm.inference.quantiles import critical_values
from steadyarm.inference.variance import (
    LEAST_FREEDOM,
    LEAST_ROUNDS,
    Scatter,
    score_scatter,
    third_moments,
)
from steadyarm.validation import check_fraction

__all__ = ["Intervals", "fixed_budget"]

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]

ASSUMPTIONS = {
    "rounds": "Many rounds, none dominating the sum; variants drawn independently as recorded.",
    "lists": "Many rounds, none dominating the sum; the world does not react to assignments.",
    "differences": "Many blocks, none dominating the sum; the world does not react to assignments.",
}


@dataclass(frozen=True, eq=False)
class Intervals:
    """What can be said of n tests; unknown is infinite, never nan.

    Each of the three statements, on all values, on all gaps and on the plausible set, holds with
    probability `level`, each over all arms at once and whichever arm is recommended.

    Attributes
    ----------
    arms : the variants
    recommended : (n,) the arm that gaps are measured from
    estimates, low, high : (n, K) time-averaged reward of every arm over the rounds played
    gaps, gap_low, gap_high : (n, K) by how much the recommended arm is better; 0 for itself
    plausible : (n, K) arms that cannot be ruled out as the best
    standard_errors : (n, K) of the estimates
    rounds : (n,) rounds played
    level : probability of each statement
    method : how the variance was found, or which confidence sequence
    assumption : what must be true, in one line
    """

    arms: ArmSet
    recommended: NDArray[np.int64]
    estimates: Floats
    low: Floats
    high: Floats
    gaps: Floats
    gap_low: Floats
    gap_high: Floats
    plausible: Booleans
    standard_errors: Floats
    rounds: NDArray[np.int64]
    level: float
    method: str
    assumption: str

    def plausible_names(self, test: int = 0) -> tuple[str, ...]:
        """Names of the arms that may be the best of one test."""
        return tuple(self.arms.names[k] for k in np.flatnonzero(self.plausible[test]))


def fixed_budget(
    evidence: Evidence, level: float = 0.95, recommended: ArrayLike | None = None
) -> Intervals:
    """Intervals for a test that is looked at once, when its budget is spent.

    The error of an estimate is a martingale divided by the rounds, so it is about normal; its
    variance is estimated from the scores (`variance.py`), and what all arms share enters the
    critical values (`quantiles.py`). Where scores are skewed the limit on the long side is moved
    out, as far as Hall's second-order expansion asks.

    Parameters
    ----------
    level : probability of each of the three statements
    recommended : (n,) arm of each test that gaps are measured from; by default the best estimate

    Examples
    --------
    >>> from steadyarm.segments import Segment, SegmentStats
    >>> arms = ArmSet.one_hot(["A", "B"])
    >>> half = Segment(np.array([[0.5, 0.5]]), np.array([200]))
    >>> clicks = np.array([[60.0, 30.0]])
    >>> stats = SegmentStats(np.array([[100, 100]]), clicks, clicks)
    >>> found = fixed_budget(Evidence.from_segments(arms, [(half, stats)]))
    >>> found.low.round(2).tolist(), found.high.round(2).tolist()
    ([[0.46, 0.19]], [[0.74, 0.41]])
    >>> found.plausible_names()
    ('A',)
    """
    alpha = 1 - check_fraction(level, "level")
    X = evidence.arms.coordinates
    best = recommended_arms(evidence, recommended)
    scatter = score_scatter(evidence)
    T = np.maximum(evidence.played, 1)[:, None]
    z, z_pair, z_best = critical_values(X, scatter.total, scatter.freedom, alpha)
    everywhere = np.broadcast_to(X, (len(best), *X.shape))
    error, skew = _error_and_skew(everywhere, evidence, scatter)
    low, high = skewed_limits(evidence.estimates, error / T, skew / T, z[:, None])

    D, gaps = gap_directions(evidence, best)
    gap_error, gap_skew = _error_and_skew(D, evidence, scatter)
    gap_low, gap_high = skewed_limits(gaps, gap_error / T, gap_skew / T, z_pair[:, None])
    lead, _ = skewed_limits(gaps, gap_error / T, gap_skew / T, z_best)
    rows = np.arange(len(best))
    gap_low[rows, best] = gap_high[rows, best] = lead[rows, best] = 0.0
    return Intervals(
        arms=evidence.arms,
        recommended=best,
        estimates=evidence.estimates,
        low=low,
        high=high,
        gaps=gaps,
        gap_low=gap_low,
        gap_high=gap_high,
        plausible=lead <= 0,
        standard_errors=error / T,
        rounds=evidence.played,
        level=float(level),
        method=scatter.method,
        assumption=ASSUMPTIONS[scatter.method],
    )


def recommended_arms(evidence: Evidence, recommended: ArrayLike | None) -> NDArray[np.int64]:
    """(n,) checked arms, or the best estimates."""
    if recommended is None:
        return evidence.best
    arms = np.atleast_1d(np.asarray(recommended))
    n, K = len(evidence.rounds), evidence.arms.size
    if (
        arms.shape != (n,)
        or not np.issubdtype(arms.dtype, np.integer)
        or not ((arms >= 0) & (arms < K)).all()
    ):
        raise InvalidInputError(
            f"recommended is {recommended!r}; expected the index of an arm, 0 to {K - 1}, for each "
            f"of the {n} tests."
        )
    return arms.astype(np.int64)


def gap_directions(evidence: Evidence, best: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """(n, K, r) what to multiply parameters with to get gaps, and (n, K) the estimated gaps."""
    X = evidence.arms.coordinates
    sign = 1.0 if evidence.direction == "maximize" else -1.0
    estimates = evidence.estimates
    gaps = sign * (estimates[np.arange(len(best)), best][:, None] - estimates)
    return sign * (X[best][:, None, :] - X), gaps


def quadratic(D: Floats, M: Floats) -> Floats:
    """(n, K) d'Md for directions (n, K, r) and matrices (n, r, r); rounding below 0 is cut off."""
    return np.asarray(np.maximum(((D @ M) * D).sum(axis=-1), 0.0))


def _error_and_skew(D: Floats, evidence: Evidence, scatter: Scatter) -> tuple[Floats, Floats]:
    """(n, K) standard errors of sums d'Σs, infinite if unknown; third moment over variance."""
    variance = quadratic(D, scatter.total)
    seen = quadratic(D, evidence.squares.sum(axis=1))
    enough = (evidence.played >= LEAST_ROUNDS) & (scatter.freedom >= LEAST_FREEDOM)
    known = (variance > 1e-14 * seen) & enough[:, None]
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
