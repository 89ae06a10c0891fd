"""Health: can the log of a test, and the model of its variants, be trusted?

Where arms share parameters, the values of combinations are sums of effects. Plays of the same
combination show how much noise there is, and so whether the distance between its mean and the
model is more than noise (Fisher's F test for lack of fit). Every piece has its own parameters, so
drift of the parameters is no lack of fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, ndtri

from steadyarm.arms import ArmSet
from steadyarm.errors import InvalidInputError
from steadyarm.inference.drift import box_test
from steadyarm.inference.evidence import json_ready
from steadyarm.inference.srm import (
    ALARM,
    NOTICE,
    CountTest,
    LoggedSegment,
    attrition_test,
    srm_test,
)
from steadyarm.segments import Segment, SegmentStats
from steadyarm.wording import listed

Status = Literal["ok", "warn", "fail"]
MARKS: dict[Status, str] = {"ok": "ok  ", "warn": "WARN", "fail": "FAIL"}
LOSS = 0.005  # share of lost or missing rows above which they need attention
ALL_ZERO = "rewards"  # name of the check
DOMINATING = 0.2  # share of the variance above which one unit needs attention
MANY_UNITS = 100  # up to which a large share is no surprise


@dataclass(frozen=True)
class Finding:
    """The outcome of one check.

    Attributes
    ----------
    name : the name of the check
    status : "ok", "warn" (look at it) or "fail" (do not trust the result before it is explained)
    p_value : the p-value of the test behind it; None if there is none
    explanation : the result, in one sentence
    advice : what to do; empty if nothing

    Examples
    --------
    >>> zero_finding(500).status
    'fail'
    """

    name: str
    status: Status
    p_value: float | None
    explanation: str
    advice: str = ""


@dataclass(frozen=True)
class HealthReport:
    """All findings of a test.

    Parameters
    ----------
    findings : the findings, one for each check

    Examples
    --------
    >>> report = HealthReport((zero_finding(500),))
    >>> report.status
    'fail'
    >>> print(report)
    Health: FAIL
      FAIL rewards: All 500 rewards are 0, so there is no best variant.
           Check that the right event or column is counted and recorded.
    """

    findings: tuple[Finding, ...]

    @property
    def status(self) -> Status:
        """The worst of the findings."""
        found = {finding.status for finding in self.findings}
        return "fail" if "fail" in found else "warn" if "warn" in found else "ok"

    @property
    def unhealthy(self) -> str:
        """Why nothing should be decided yet: what failing checks found; empty if none fails."""
        failing = [finding.explanation for finding in self.findings if finding.status == "fail"]
        return f"Not healthy: do not decide yet. {' '.join(failing)}" if failing else ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"status": self.status, "findings": json_ready(self.findings)}

    def __str__(self) -> str:
        lines = [f"Health: {self.status if self.status == 'ok' else self.status.upper()}"]
        for finding in self.findings:
            lines.append(f"  {MARKS[finding.status]} {finding.name}: {finding.explanation}")
            if finding.advice:
                lines.append(f"       {finding.advice}")
        return "\n".join(lines)


def health_report(
    names: Sequence[str],
    pieces: Iterable[LoggedSegment],
    mature: Iterable[LoggedSegment] | None = None,
) -> HealthReport:
    """Assignments, lost rows and missing rewards.

    Parameters
    ----------
    names : the names of the arms
    pieces : segments with the rows of every arm
    mature : the pieces whose missing rewards will not come any more; all of them by default

    Returns
    -------
    HealthReport : ``print`` shows every finding

    Examples
    --------
    >>> import numpy as np
    >>> from steadyarm.segments import Segment
    >>> fair = Segment(np.array([[0.5, 0.5]]), np.array([1000]))
    >>> piece = LoggedSegment(fair, np.array([[507, 493]]), rewarded=np.array([[500, 487]]))
    >>> print(health_report(["A", "B"], [piece]))
    Health: WARN
      ok   assignments: The rows per variant fit the logged probabilities (p = 0.66).
      ok   lost rows: Every assigned position has its row.
      WARN missing rewards: 13 rewards are missing, in all variants alike (p = 1).
           ...
    """
    log = list(pieces)
    findings = [
        assignment_finding(
            srm_test(names, log), "; estimates are biased while rows depend on the variant."
        ),
        _lost_rows(log),
    ]
    over = log if mature is None else list(mature)
    if over and all(piece.rewarded is not None for piece in over):
        found = attrition_test(names, over)
        text, missing = found.verdict, int(found.observed.sum())
        findings.append(missing_finding(found, text, text, missing, rows_of(over)))
    return HealthReport(tuple(findings))


def assignment_finding(found: CountTest, why: str) -> Finding:
    """Explain a test of the rows per arm; `why` ends the advice."""
    status = status_of(found.p_value)
    advice = (
        f"Compare serving and logging of {found.culprit} with the others (redirects, bots, "
        f"crashes, filters){why}"
    )
    return Finding(
        "assignments", status, found.p_value, found.verdict, "" if status == "ok" else advice
    )


def missing_finding(found: CountTest, alike: str, unlike: str, missing: int, rows: int) -> Finding:
    """Explain a test of the missing rewards per arm.

    Parameters
    ----------
    alike, unlike : what to say if all arms miss rewards alike, and if they do not
    missing, rows : rewards that are missing, and all rows
    """
    return _attrition_finding(
        "missing rewards",
        found,
        (alike, unlike),
        missing > LOSS * rows,
        "Wait for late rewards. Means of the rewards that arrived are right only if rewards are "
        "lost regardless of their value.",
        f"Find out why rewards of {found.culprit} are lost. If no reward means failure, count it "
        "as 0; otherwise the comparison is not fair.",
    )


def late_finding(names: Sequence[str], pieces: Iterable[LoggedSegment]) -> Finding:
    """Whether rewards were refused because they came too late, and more of some arms than others.

    Parameters
    ----------
    names : the names of the arms
    pieces : with `rewarded` counting the rows whose reward was not refused

    Returns
    -------
    Finding

    Examples
    --------
    >>> import numpy as np
    >>> from steadyarm.segments import Segment
    >>> fair = Segment(np.array([[0.5, 0.5]]), np.array([1000]))
    >>> piece = LoggedSegment(fair, np.array([[500, 500]]), rewarded=np.array([[500, 400]]))
    >>> late_finding(["A", "B"], [piece]).status
    'fail'
    """
    log, name = list(pieces), "late rewards"
    found = attrition_test(names, log)
    late, rows = int(found.observed.sum()), rows_of(log)
    if not late:
        return Finding(name, "ok", None, "No reward arrived too late.")
    text, p = f"{late:,} of {rows:,} rewards arrived too late and were refused", found.p_value
    return _attrition_finding(
        name,
        found,
        (
            f"{text}, of all variants alike (p = {p:.2g}).",
            f"{text}, more of {found.culprit} than of others (p = {p:.2g}).",
        ),
        late > LOSS * rows,
        "Late rewards count as missing. Give the next test a longer reward_window.",
        f"Find out why rewards of {found.culprit} take longer. Late rewards count as missing, so "
        "the comparison is not fair. Give the next test a longer reward_window.",
    )


def _attrition_finding(
    name: str, found: CountTest, texts: tuple[str, str], many: bool, wait: str, find: str
) -> Finding:
    """Rewards that are missing: alike and few, alike and many, or not alike in all arms."""
    status = status_of(found.p_value)
    if status != "ok":
        return Finding(name, status, found.p_value, texts[1], find)
    return Finding(name, "warn" if many else "ok", found.p_value, texts[0], wait if many else "")


def zero_finding(rewards: int) -> Finding:
    """Nothing but zeros: more often a name that is wrong than a test without success."""
    return Finding(
        ALL_ZERO,
        "fail",
        None,
        f"All {rewards:,} rewards are 0, so there is no best variant.",
        "Check that the right event or column is counted and recorded.",
    )


def outlier_finding(
    unit: str,
    share: float,
    units: int,
    total: float,
    squares: float,
    reward: float,
    what: str = "rewards",
) -> Finding:
    """Whether one unit carries so much of the variance that intervals say little.

    Intervals need a sum that no single unit dominates. With a share h of the variance in one unit
    the sum is at best as normal as that of 1/h units; below five it is not. Few successes have
    large shares without being unusual, so that a fifth is said of many only.

    Parameters
    ----------
    unit : with the largest squared distance from the mean of its arm, by name
    share : the share of that square in the sum of all
    units : how many there are
    total, squares : sums of all rewards and of their squares; those of the others are worth as
        many equal rewards as (sum)² / (sum of squares)
    reward : the reward of that unit
    what : the metric

    Examples
    --------
    >>> found = outlier_finding("user 4711", 0.61, 20_000, 3_200, 16_000, 100, "orders")
    >>> found.explanation, found.status
    ('One unit (user 4711) accounts for 61 % of the variance of orders.', 'warn')
    """
    name = "outliers"
    others = (total - reward) ** 2 / max(squares - reward**2, 1e-300)
    if share <= DOMINATING or min(units, others) <= MANY_UNITS:
        return Finding(name, "ok", None, "No unit accounts for a large part of the variance.")
    text = f"One unit ({unit}) accounts for {share:.0%} of the variance of {what}."
    advice = "Declare a cap or exclude the unit: it widens intervals and can decide the test."
    return Finding(name, "warn", None, text.replace("%", " %"), advice)


def _lost_rows(log: list[LoggedSegment]) -> Finding:
    assigned = sum(int(piece.opened[0]) for piece in log)
    lost = sum(int(piece.lost[0]) for piece in log)
    if not lost:
        return Finding("lost rows", "ok", None, "Every assigned position has its row.")
    text = f"{lost} of {assigned} assigned positions have no row ({lost / assigned:.2%})."
    if lost <= LOSS * assigned:
        return Finding("lost rows", "ok", None, text)
    advice = "Find out where rows are lost. This is harmless only if all variants lose alike."
    return Finding("lost rows", "warn", None, text, advice)


def rows_of(log: Iterable[LoggedSegment]) -> int:
    """Rows of a single test's log."""
    return sum(int(piece.rows[0]) for piece in log)


def status_of(p_value: float) -> Status:
    """The status of a test's p-value: "fail" below 0.001, "warn" below 0.01."""
    return "fail" if p_value < ALARM else "warn" if p_value < NOTICE else "ok"


# Lack of fit: do the rewards follow the linear model that the estimates rest on?

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
    sizes = np.abs(R @ P) / np.sqrt(np.where(new, np.einsum("kp,kp->p", P, V @ P), np.inf))
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
