"""Lack of fit: do the rewards follow the linear model that the estimates rest on?

Where arms share parameters, the values of combinations are sums of effects. Plays of the same
combination show how much noise there is, and so whether the distance between its mean and the
model is more than noise (Fisher's F test for lack of fit). Every piece has its own parameters, so
drift of the parameters is no lack of fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, ndtri

from steadyarm.arms import ArmSet
from steadyarm.errors import InvalidInputError
from steadyarm.inference.drift import box_test
from steadyarm.inference.evidence import json_ready
from steadyarm.inference.health import Finding, status_of
from steadyarm.segments import Segment, SegmentStats
from steadyarm.wording import listed

Floats = NDArray[np.float64]

MOST_ARMS = 256  # arms that are tested
USUAL = 0.683  # probability of an estimate within one standard error of nothing
LEAST_FREEDOM = 10.0  # degrees of freedom of the noise that a test needs
ROUNDING = 1e-9  # share of the largest eigenvalue below which one is taken as zero


@dataclass(frozen=True, eq=False)
class Missing:
    """The product of two features, not in the model, that would explain the distances best.

    Attributes
    ----------
    name : such as "interaction of 'image' and 'text'"
    p_value : that the best of all products is as far from nothing if the model is right
    share : the share of its estimate that is not noise
    effects : (K,) by how much it would change the values of the combinations
    error : standard error of its estimate, as a share of the estimate
    """

    name: str
    p_value: float
    share: float
    effects: Floats
    error: float


@dataclass(frozen=True)
class LackOfFit:
    """Whether the means of combinations differ from the linear model by more than noise.

    Attributes
    ----------
    p_value : probability of distances at least this large if the model is right
    statistic : weighted sum of squared distances, over its expectation
    freedom : degrees of freedom of both
    worst : the combination that is most standard errors away from the model
    plays : how often it was played in the pieces that were compared
    observed, fitted : its mean reward in these plays, and what the model says of the same plays
    error : standard error of their difference
    parameters, combinations : of the model
    missing : the interaction that would explain the distances best
    covariance : (K, K) of the values of the combinations by the model

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.factorial({"image": ["a", "b"], "text": ["x", "y"]}, interactions=1)
    >>> world = sa.Environment.from_means(
    ...     arms, [0.2, 0.3, 0.3, 0.7], sa.BernoulliReward(), budget=800
    ... )
    >>> piece = Segment(np.full((1, 4), 0.25), np.array([800]), "blocks", 8)
    >>> stats = world.play(piece, np.array([0]), np.random.default_rng(1), squares=True)
    >>> lack_of_fit(arms, [(piece, stats)]).finding.status
    'fail'
    """

    p_value: float
    statistic: float
    freedom: tuple[float, float]
    worst: str
    plays: int
    observed: float
    fitted: float
    error: float
    parameters: int
    combinations: int
    missing: Missing = field(compare=False)
    covariance: Floats = field(repr=False, compare=False)

    def doubt(
        self,
        names: Sequence[str],
        best: int,
        rivals: NDArray[np.bool_],
        leads: Floats,
        level: float,
        sign: float = 1.0,
    ) -> str:
        """Why the model's lead of one arm over others does not count; empty if it does.

        The lead has to be above 0, too, if the interaction that is missing most is added to the
        model by the share of its estimate that is not noise (James and Stein's 1 - 1/F).

        Parameters
        ----------
        names : the names of the arms
        best : the arm that leads
        rivals : (K,) the arms that it has to lead
        leads : (K,) the model's estimates
        level : the level of the two-sided limits of a lead
        sign : -1 if small rewards are good
        """
        share, V = self.missing.share, self.covariance
        apart = sign * (self.missing.effects[best] - self.missing.effects)
        model = np.maximum(np.diagonal(V) + V[best, best] - 2 * V[best], 0.0)
        error = np.sqrt(model + share * (apart * self.missing.error) ** 2)
        low = leads + share * apart + ndtri((1 - level) / 2) * error
        low = np.where(rivals, low, np.inf)
        if share == 0 or low.min() > 0:
            return ""
        return (
            f"{names[best]} may lead {names[int(low.argmin())]} only because effects are not "
            f"additive (p = {self.missing.p_value:.2g}). {self.remedy}"
        )

    @property
    def remedy(self) -> str:
        """Which model to use instead, in one sentence."""
        return (
            f"Add the {self.missing.name} to the model, or analyse the {self.combinations} "
            "combinations as separate variants (ArmSet.one_hot)."
        )

    @property
    def finding(self) -> Finding:
        """The same as a finding of the health report."""
        status, name = status_of(self.p_value), "lack of fit"
        if status == "ok":
            text = (
                f"The rewards fit the model of {self.parameters} parameters for "
                f"{self.combinations} combinations (p = {self.p_value:.2g})."
            )
            return Finding(name, status, self.p_value, text)
        away = (self.observed - self.fitted) / self.error
        text = (
            f"{self.worst} had {self.observed:.4g} on average in {self.plays:,} plays; the model "
            f"of {self.parameters} parameters gives {self.fitted:.4g} ({away:+.1f} standard "
            f"errors; all combinations together p = {self.p_value:.2g})."
        )
        return Finding(name, status, self.p_value, text, self.remedy)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, with the finding's status."""
        plain = {one.name: getattr(self, one.name) for one in fields(self)}
        del plain["covariance"]
        plain |= {"missing": self.missing.name, "status": self.finding.status}
        data: dict[str, Any] = json_ready(plain)
        return data


@dataclass(frozen=True, eq=False)
class _Comparison:
    """Distances from the model of n tests, summed over pieces; shapes (n,), (n, K), (n, K, K).

    covariance : of the distances; alike : the same if every reward had a variance of 1
    noise : variance of a reward
    """

    plays: Floats
    sums: Floats
    residuals: Floats
    covariance: Floats
    alike: Floats
    noise: Floats
    rank: Floats
    p_value: Floats
    statistic: Floats
    freedom: Floats


def lack_of_fit(arms: ArmSet, segments: Iterable[tuple[Segment, SegmentStats]]) -> LackOfFit | None:
    """Test the linear model of a single test against the means of its combinations.

    Within each piece the model is fitted to the arms' means, and the distances, summed over
    pieces, are compared with the spread of rewards of the same arm in the same piece. Right under
    adaptive allocations, and however the model's parameters drift.

    Parameters
    ----------
    arms : the set whose features the estimates use
    segments : pieces of one test with their sums, in units of the rewards, as for
        `Evidence.from_segments`; either direction

    Returns
    -------
    None if there is nothing to test: every arm has a parameter of its own, no piece plays more
    arms than it has parameters, arms are hardly ever played twice, rewards of the same arm never
    differ, or there are more than 256 arms.

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.factorial({"image": ["a", "b"], "text": ["x", "y"]}, interactions=1)
    >>> means = [0.2, 0.3, 0.3, 0.7]  # together image b and text y do more than add up
    >>> world = sa.Environment.from_means(arms, means, sa.BernoulliReward(), budget=800)
    >>> piece = Segment(np.full((1, 4), 0.25), np.array([800]), "blocks", 8)
    >>> stats = world.play(piece, np.array([0]), np.random.default_rng(1), squares=True)
    >>> found = lack_of_fit(arms, [(piece, stats)])
    >>> print(found.finding.status, f"{found.observed:.2f} {found.fitted:.2f}")
    fail 0.20 0.11
    """
    if arms.large or arms.size > MOST_ARMS or arms.rank == arms.size:
        return None
    log = list(segments)
    if log and log[0][0].trials != 1:
        raise InvalidInputError(
            f"the segments belong to a batch of {log[0][0].trials} tests; give one test to "
            "lack_of_fit, or use lack_of_fit_p_values."
        )
    found = _compare(arms, log)
    plays, R, V = found.plays[0], found.residuals[0], np.diagonal(found.covariance[0])
    known = ROUNDING * V.max() < V
    if not found.rank[0] or not known.any() or found.freedom[0, 1] < LEAST_FREEDOM:
        return None
    away = np.where(known, np.abs(R) / np.sqrt(np.where(known, V, 1.0)), 0.0)
    k = int(np.argmax(away > away.max() * (1 - 1e-9)))  # the first of equal ones
    N = max(plays[k], 1.0)
    gram = arms.coordinates.T @ (plays[:, None] * arms.coordinates)
    return LackOfFit(
        p_value=float(found.p_value[0]),
        statistic=float(found.statistic[0]),
        freedom=(float(found.freedom[0, 0]), float(found.freedom[0, 1])),
        worst=arms.names[k],
        plays=int(plays[k]),
        observed=float(found.sums[0, k] / N),
        fitted=float((found.sums[0, k] - R[k]) / N),
        error=float(np.sqrt(V[k]) / N),
        parameters=arms.rank,
        combinations=arms.size,
        missing=_missing(arms, found),
        covariance=found.noise[0] * arms.coordinates @ np.linalg.pinv(gram) @ arms.coordinates.T,
    )


def _missing(arms: ArmSet, found: _Comparison) -> Missing:
    """The product of features with the largest estimate in standard errors, of those tried."""
    X, R, V, A = arms.features, found.residuals[0], found.covariance[0], found.alike[0]
    rows, columns = np.triu_indices(X.shape[1])
    P = X[:, rows] * X[:, columns]
    info = np.einsum("kp,kp->p", P, A @ P)
    new = info > ROUNDING * np.einsum("kp,kp->p", P, found.plays[0][:, None] * P)
    variance = np.einsum("kp,kp->p", P, V @ P)
    new &= variance > ROUNDING * found.noise[0] * info  # rewards may hardly vary
    sizes = np.abs(R @ P) / np.sqrt(np.where(new, variance, np.inf))
    best = int(np.argmax(sizes))
    size, tried = float(sizes[best]), max(int(new.sum()), 1)
    single = min(float(chdtrc(1, size**2)), 1 - ROUNDING)
    p_value = -np.expm1(tried * np.log1p(-single))
    usual = -ndtri(-np.expm1(np.log(USUAL) / tried) / 2)
    pair = f"{arms.feature_names[rows[best]]}:{arms.feature_names[columns[best]]}".split(":")
    parts = list(dict.fromkeys(repr(part.partition("=")[0]) for part in pair))
    name = f"{'interaction' if len(parts) > 1 else 'square'} of {listed(parts)}"
    return Missing(
        name if new.any() else "features that it lacks",
        float(p_value),
        max(1 - (usual / max(size, ROUNDING)) ** 2, 0.0),
        A
        @ P[:, best]
        * (R @ P[:, best])
        / max(info[best], ROUNDING)
        / np.maximum(found.plays[0], 1.0),
        1 / max(size, ROUNDING),
    )


def lack_of_fit_p_values(arms: ArmSet, segments: Iterable[tuple[Segment, SegmentStats]]) -> Floats:
    """(n,) p-values of `lack_of_fit` for a batch of n tests; 1 where there is nothing to test.

    Parameters
    ----------
    arms : the variants
    segments : what was played, and its sums with squares

    Returns
    -------
    (n,) p-values

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.factorial({"image": ["a", "b"], "text": ["x", "y"]}, interactions=1)
    >>> world = sa.Environment.from_means(
    ...     arms, [0.2, 0.3, 0.3, 0.7], sa.BernoulliReward(), budget=800
    ... )
    >>> piece = Segment(np.full((2, 4), 0.25), np.full(2, 800), "blocks", 8)
    >>> stats = world.play(piece, np.zeros(2, np.int64), np.random.default_rng(1), squares=True)
    >>> bool((lack_of_fit_p_values(arms, [(piece, stats)]) < 0.05).all())
    True
    """
    found = _compare(arms, list(segments))
    tested = (found.rank > 0) & (found.freedom[:, 1] >= LEAST_FREEDOM)
    return np.where(tested, found.p_value, 1.0)


def _compare(arms: ArmSet, log: list[tuple[Segment, SegmentStats]]) -> _Comparison:
    """Distances of all pieces, tested as `periods.variation` tests distances between periods.

    With M = I - N X (X'NX)⁻ X' a piece's distances are M y, y the sums of the arms' rewards. If
    noise is alike their covariance is M N M' = M N, whose inverse over all pieces is the metric.
    """
    if not log:
        raise InvalidInputError("no segment was given; give at least one that was played.")
    X, n = arms.coordinates, log[0][0].trials
    K = len(X)
    plays, sums, R = np.zeros((3, n, K))
    alike, pieces = np.zeros((n, K, K)), []
    columns = [_columns(segment, stats, K) for segment, stats in log]
    for N, y, squares in columns:
        weighted = N[:, :, None] * X
        gram = weighted.swapaxes(1, 2) @ X
        M: Floats = np.eye(K) - weighted @ np.linalg.pinv(gram, 1e-10, hermitian=True) @ X.T
        own = M * N[:, None, :]
        free = np.diagonal(own, axis1=1, axis2=2) > ROUNDING * np.maximum(N, 1)
        says = np.any(free, axis=1, keepdims=True)  # False: no more arms than parameters
        if says.any():
            M, own = M * says[:, :, None], own * says[:, :, None]
            plays, sums, alike = plays + N * says, sums + y * says, alike + own
            R = R + (M @ y[:, :, None])[:, :, 0]
            pieces.append((N, _scatter(N, y, squares), M))
    W = np.linalg.pinv(alike, rcond=ROUNDING, hermitian=True)
    rank = np.linalg.matrix_rank(alike, rtol=ROUNDING, hermitian=True).astype(np.float64)
    usual, behind = _usual_noise(columns)
    V, T, spread = np.zeros((n, K, K)), np.zeros(n), np.zeros(n)
    weight, seen, filled = np.zeros(n), np.zeros(n), np.zeros((n, K))
    for N, scatter, M in pieces:
        variance = np.where(N > 1, scatter / np.maximum(N - 1, 1), usual)
        spread = spread + (N * variance).sum(axis=1) * M.any(axis=(1, 2))
        V = V + (M * (N * variance)[:, None, :]) @ M.swapaxes(1, 2)
        share = N * np.maximum(((W @ M) * M).sum(axis=1), 0.0)
        T, weight = T + (share * variance).sum(axis=1), weight + share.sum(axis=1)
        seen = seen + np.where(N > 1, share**2 / np.maximum(N - 1, 1), 0.0).sum(axis=1)
        filled = filled + np.where(N > 1, 0.0, share)
    rarity = seen + np.where(filled > 0, filled**2 / np.maximum(behind, 0.1), 0.0).sum(axis=1)
    noise = T**2 * rarity / np.where(weight > 0, weight, 1.0) ** 2
    WV = W @ V
    traces = np.trace(WV @ WV, axis1=1, axis2=2)
    Q = (R[:, None] @ W @ R[:, :, None])[:, 0, 0]
    p_value, statistic, freedom = box_test(Q, T, traces, noise, 2 * noise, rank)
    spread = spread / np.maximum(plays.sum(axis=1), 1.0)
    return _Comparison(plays, sums, R, V, alike, spread, rank, p_value, statistic, freedom)


def _usual_noise(columns: list[tuple[Floats, Floats, Floats]]) -> tuple[Floats, Floats]:
    """(n, K) variance of the rewards of an arm that is played once in a piece, and its freedom.

    From its pieces with more plays, and from the difference to the piece before in which it was
    played; drift between the two makes this too large. An arm that has neither: as all arms.
    """
    total, count, mean, before = np.zeros((4, *columns[0][0].shape))
    for N, y, squares in columns:
        once, now = (N == 1) & (before > 0), y / np.maximum(N, 1)
        step = (now - mean) ** 2 * before / (before + 1)
        total = total + _scatter(N, y, squares) + np.where(once, step, 0.0)
        count = count + np.maximum(N - 1, 0) + once
        mean, before = np.where(N > 0, now, mean), np.where(N > 0, N, before)
    every = count.sum(axis=1, keepdims=True)
    pooled = total.sum(axis=1, keepdims=True) / np.maximum(every, 1)
    usual = np.where(count > 0, total / np.maximum(count, 1), pooled)
    return usual, 2 / 3 * np.where(count > 0, count, every)  # von Neumann's ratio


def _scatter(N: Floats, y: Floats, squares: Floats) -> Floats:
    """(n, K) sum of squared distances of an arm's rewards from their mean in the piece."""
    return np.where(N > 1, np.maximum(squares - y**2 / np.maximum(N, 1), 0.0), 0.0)


def _columns(segment: Segment, stats: SegmentStats, arms: int) -> tuple[Floats, Floats, Floats]:
    """(n, K) plays, sums and sums of squares of all arms."""
    if stats.squares is None:
        raise InvalidInputError(
            "a segment's statistics have no sums of squared rewards, which a test of the model "
            "needs; play it with squares=True."
        )
    found = stats.counts.astype(np.float64), stats.sums, stats.squares
    if segment.arms is None:
        return found
    out = np.zeros((3, segment.trials, arms))
    out[:, :, segment.arms] = found
    return out[0], out[1], out[2]
