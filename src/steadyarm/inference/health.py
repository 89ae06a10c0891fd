"""Health: can the log of a test be trusted?

Sample-ratio mismatch: do the assignments in the log follow the probabilities in the log? Counts
minus expectations are sums of martingale differences whatever the policy did, so their squared
length, measured by the summed covariances, is chi-squared in large samples. More than a thousand
arms are judged one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincc, chdtrc, ndtr

from steadyarm.errors import InvalidInputError
from steadyarm.inference.evidence import json_ready
from steadyarm.segments import Segment
from steadyarm.wording import counted, strung

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
Says = Callable[[float, float], str]  # of an observed and an expected count

ALARM = 0.001  # p-value below which a test has failed
NOTICE = 0.01  # p-value below which it needs attention
MENTION = 0.05  # p-value below which the verdict says what is off
# Arms judged jointly, at most: played ones of a large set, and of others. The time grows with the
# cube of their number.
JOINT, JOINT_OF_ALL = 1000, 2**12
FURTHEST = 20  # arms that are named where arms are judged one by one
NORMAL = 10.0  # variance, in squared counts, from which on a count is taken as normal
RARE = 0.1  # share of the error probability spent on arms with less
NEGLIGIBLE = 1e-9  # variance, in squared counts, of a count that cannot vary
WHOLE = 1e-6  # difference of counts that is rounding
STRATUM = 30  # rows at least in which missing rewards are compared; fewer say next to nothing

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


# Tests of the counts per arm.


@dataclass(frozen=True, eq=False)
class LoggedSegment:
    """The log of one segment of n tests; n = 1 for a single test.

    Attributes
    ----------
    segment : its allocation
    assigned : (n, K) rows in the log, per arm
    rewarded : (n, K) rows that have a reward; None if this is not known
    drawn : (n, K) how often each arm was drawn, with rows that are lost; None if this is not known

    Examples
    --------
    >>> segment = Segment(np.array([[0.5, 0.5]]), np.array([100]))
    >>> LoggedSegment(segment, np.array([[48, 51]]), drawn=np.array([[49, 51]])).lost
    array([1])
    """

    segment: Segment
    assigned: Integers
    rewarded: Integers | None = None
    drawn: Integers | None = None

    @property
    def rows(self) -> Integers:
        """(n,) rows in the log."""
        return np.asarray(self.assigned.sum(axis=1))

    @property
    def opened(self) -> Integers:
        """(n,) positions that were assigned."""
        return self.segment.rounds if self.drawn is None else np.asarray(self.drawn.sum(axis=1))

    @property
    def lost(self) -> Integers:
        """(n,) assigned positions without a row."""
        return np.asarray(np.maximum(self.opened - self.rows, 0))


@dataclass(frozen=True, eq=False)
class CountTest:
    """Counts per arm against their expectations.

    Attributes
    ----------
    names : the names of the arms; where many were played, of those that are most off
    p_value : probability of counts at least this far off if all is well; 0 for an impossible log
    statistic, freedom : chi-squared part of the test; freedom 0 if all counts are small
    observed, expected : (K,)
    residuals : (K,) differences in standard deviations; infinite where nothing may vary
    culprit : the arm that is furthest off, if the p-value is below 0.01
    verdict : one sentence for people
    lost : assigned positions that have no row

    Examples
    --------
    >>> fair = Segment(np.array([[0.5, 0.5]]), np.array([10_000]))
    >>> found = srm_test(["A", "B"], [LoggedSegment(fair, np.array([[5000, 4800]]))])
    >>> found.p_value < 0.05
    True
    """

    names: tuple[str, ...]
    p_value: float
    statistic: float
    freedom: int
    observed: Floats
    expected: Floats
    residuals: Floats
    culprit: str | None
    verdict: str
    lost: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values; None for infinite residuals."""
        data: dict[str, Any] = json_ready(self)
        return data


def srm_test(names: Sequence[str], pieces: Iterable[LoggedSegment]) -> CountTest:
    """Whether the rows per arm fit what was drawn or, if that is not known, the probabilities.

    Right under any policy that logs its allocations, however they followed from the rewards. Rows
    that all arms lose alike raise no alarm (`lost` counts them); rows that one arm loses do. Rows
    of blocks vary less than independent draws, so that alarms are rarer. In a large set the arms
    that were played are judged; more than 1,000 of them one by one, by Bonferroni.

    Parameters
    ----------
    names : the names of the arms
    pieces : segments with the rows of every arm

    Returns
    -------
    CountTest : the p-value and what it means

    Examples
    --------
    >>> fair = Segment(np.array([[0.5, 0.5]]), np.array([10_000]))
    >>> found = srm_test(["A", "B"], [LoggedSegment(fair, np.array([[5010, 4990]]))])
    >>> round(found.p_value, 3)
    0.841
    >>> srm_test(["A", "B"], [LoggedSegment(fair, np.array([[5000, 4800]]))]).verdict
    'B got 4,800 of 9,800 visits, about 100 fewer than it should (-2.0 standard deviations; ...'
    """
    log = _Played.of(names, pieces)
    balance = total_of(assignment_balance(piece, log.joint) for piece in log.pieces)
    found = log.judge(balance, _got(int(balance.observed.sum())))
    found = replace(found, lost=sum(int(piece.lost[0]) for piece in log.pieces))
    for j, piece in enumerate(log.pieces):
        for k in np.flatnonzero(impossible_counts(piece)[0])[:1].tolist():
            verdict = _impossible_verdict(log.name(k), piece, j, k)
            return replace(found, p_value=0.0, culprit=log.name(k), verdict=verdict)
    if found.p_value < MENTION:
        return found
    rows = "per variant"
    if not log.joint:
        rows = f"of {len(log.arms):,} variants, each by itself,"
    fine = f"The rows {rows} fit the logged probabilities (p = {found.p_value:.2g})."
    return replace(found, verdict=fine)


def attrition_test(names: Sequence[str], pieces: Iterable[LoggedSegment]) -> CountTest:
    """Whether rewards go missing more often in some arms than in others.

    Compared within segments only, so the share of missing rewards may move over time together
    with the allocation. Short segments are joined with the next.

    Parameters
    ----------
    names : the names of the arms
    pieces : segments with the rows of every arm and how many of them have a reward

    Returns
    -------
    CountTest : the p-value and what it means

    Examples
    --------
    >>> fair = Segment(np.array([[0.5, 0.5]]), np.array([1000]))
    >>> piece = LoggedSegment(fair, np.array([[500, 500]]), rewarded=np.array([[490, 430]]))
    >>> attrition_test(["A", "B"], [piece]).verdict
    'B misses 70 rewards; about 40 were expected (+7.0 standard deviations; p = 2.7e-12).'
    """
    log = _Played.of(names, pieces)
    balance = total_of(attrition_balance(log.pieces, log.joint))
    found = log.judge(balance, _misses, too_many=True)
    if found.p_value < MENTION:
        return found
    missing = int(balance.observed.sum())
    lost = counted(missing, "reward is", "rewards are")
    fine = f"{lost} missing, in all variants alike (p = {found.p_value:.2g})."
    return replace(found, verdict=fine if missing else "No reward is missing.")


def srm_from_sums(
    names: Sequence[str],
    rows: int,
    sums: Floats,
    spread: Floats,
    largest: Floats,
    counts: NDArray[np.int64],
    of: str = "visits",
) -> CountTest:
    """The test for logs that hold only the probability of the arm that was drawn, from sums.

    The sum of 1/p over the rows of an arm should be the number T of all rows. Its variance is the
    sum over rounds of 1/p - 1, estimated by T times the mean of 1/p - 1, in which a row weighs 1/p
    (exact if p is constant). Arms are tested one by one and the p-value is Bonferroni's. An arm
    without rows cannot be judged: its probability is nowhere in the log.

    Parameters
    ----------
    rows : T, of all arms
    sums, spread : (K,) of 1/p and of (1/p - 1) / p; 0 for an arm without rows
    largest : (K,) largest 1/p
    counts : (K,) rows
    of : what rows are, for people

    Examples
    --------
    >>> sums, spread = np.array([1200.0, 2800 / 3]), np.array([3600.0, 2800 / 9])
    >>> counts = np.array([300, 700])
    >>> found = srm_from_sums(["A", "B"], 1000, sums, spread, np.array([4.0, 4 / 3]), counts)
    >>> round(found.p_value, 5), found.culprit
    (0.00052, 'B')
    >>> found.verdict
    'B got 700 of 1,000 visits, about 50 fewer than it should (-3.7 standard deviations; ...'
    """
    names, K = tuple(str(name) for name in names), len(names)
    seen = sums > 0
    variance = np.maximum(spread, 0.0) * rows / np.where(seen, sums, 1.0)
    off = np.where(seen, sums - rows, 0.0)
    residuals = standardise(off, variance, 1e-6 * rows)
    normal = variance >= NORMAL * largest**2
    each = 2 * ndtr(-np.abs(residuals))
    each = np.where(normal, each, _bennett(np.abs(off) / largest, variance / largest**2))
    each = np.where(residuals == 0, 1.0, each)
    p_value = float(min(1.0, each.min() * seen.sum()))
    worst = _furthest(residuals)
    # rows that stand for 1/p each should stand for all rows; so many would, were they like these
    should = counts[worst] * rows / sums[worst] if seen[worst] else 0.0
    said = _got(rows, of)(float(counts[worst]), should)
    verdict = f"The rows per variant fit the logged probabilities (p = {p_value:.2g})."
    if p_value < MENTION:
        verdict = _sentence(names[worst], said, residuals[worst], p_value)
    if not seen.all():
        unseen = [name for name, there in zip(names, seen, strict=True) if not there]
        verdict += f" Not tested, because the log has no rows of: {strung(unseen)}."
    culprit = names[worst] if p_value < NOTICE else None
    expected = np.full(K, float(rows))
    return CountTest(
        names, p_value, float(residuals[worst] ** 2), 1, sums, expected, residuals, culprit, verdict
    )


def _bennett(x: Floats, variance: Floats) -> Floats:
    """At most P(|sum| ≥ x), for differences of at most 1 with this summed variance."""
    v = np.maximum(variance, 1e-300)
    u = x / v
    return np.asarray(np.minimum(2 * np.exp(-v * ((1 + u) * np.log1p(u) - u)), 1.0))


@dataclass(frozen=True, eq=False)
class _Played:
    """The log of a single test, in the columns of the arms that were played.

    Attributes
    ----------
    names : the names of all arms
    arms : (U,) those that were played
    pieces : with U columns each
    joint : whether the arms are few enough to be judged jointly
    """

    names: Sequence[str]
    arms: Integers
    pieces: list[LoggedSegment]
    joint: bool

    @classmethod
    def of(cls, names: Sequence[str], pieces: Iterable[LoggedSegment]) -> _Played:
        log = list(pieces)
        arms, most = np.arange(len(names), dtype=np.int64), JOINT_OF_ALL
        if any(piece.segment.arms is not None for piece in log):
            lists = [arms if p.segment.arms is None else p.segment.arms for p in log]
            arms, most = np.unique(np.concatenate(lists)), JOINT
            log = [_in_columns(piece, arms) for piece in log]
        return cls(names, arms, log, len(arms) <= most)

    def name(self, k: int) -> str:
        """The name of the arm in a column."""
        return str(self.names[int(self.arms[k])])

    def judge(self, balance: Balance, says: Says, too_many: bool = False) -> CountTest:
        """The result of a test; `too_many` if only too many of something is a fault."""
        off, variance = balance.observed[0] - balance.expected[0], balance.variance[0]
        residuals, shown = standardise(off, variance), np.arange(len(self.arms))
        if self.joint:
            p, statistic, freedom = (float(value[0]) for value in surprise(balance))
        else:
            p, statistic, freedom = float(surprise_by_arm(balance)[0]), 0.0, 0.0
            size = residuals if too_many else np.abs(residuals)
            shown = np.sort(np.argsort(-size, kind="stable")[:FURTHEST])
        names = tuple(self.name(k) for k in shown.tolist())
        observed, expected = balance.observed[0, shown], balance.expected[0, shown]
        residuals = residuals[shown]
        worst = int(residuals.argmax()) if too_many else _furthest(residuals)
        said = says(observed[worst], expected[worst])
        return CountTest(
            names,
            p,
            statistic,
            int(freedom),
            observed,
            expected,
            residuals,
            names[worst] if p < NOTICE else None,
            _sentence(names[worst], said, residuals[worst], p),
        )


def _furthest(residuals: Floats) -> int:
    """The arm that is furthest off; of two, the one with too few, since loss is more common."""
    size = np.nan_to_num(np.abs(residuals), posinf=1e300)
    close = size >= size.max() * (1 - 1e-9)
    return int(np.where(close, residuals, np.inf).argmin())


def _in_columns(piece: LoggedSegment, arms: Integers) -> LoggedSegment:
    """The piece with a column for each of the arms."""
    segment = piece.segment
    place = np.searchsorted(arms, arms if segment.arms is None else segment.arms)

    def spread(values: NDArray[Any]) -> NDArray[Any]:
        out = np.zeros((len(values), len(arms)), dtype=values.dtype)
        out[:, place] = values
        return out

    rewarded = None if piece.rewarded is None else spread(piece.rewarded)
    dense = replace(segment, weights=spread(segment.weights), arms=None)
    drawn = None if piece.drawn is None else spread(piece.drawn)
    return LoggedSegment(dense, spread(piece.assigned), rewarded, drawn)


def _sentence(name: str, said: str, residual: float, p: float) -> str:
    return f"{name} {said} ({residual:+.1f} standard deviations; p = {p:.2g})."


def _got(total: int, of: str = "visits") -> Says:
    """Describe how many of `total` visits an arm got, and how many were expected."""

    def says(observed: float, expected: float) -> str:
        off = abs(observed - expected)
        size = f"{off:,.0f}" if off >= 10 else f"{off:.2g}"
        more = "more" if observed > expected else "fewer"
        return f"got {observed:,.0f} of {total:,} {of}, about {size} {more} than it should"

    return says


def _misses(observed: float, expected: float) -> str:
    return f"misses {observed:.0f} rewards; about {expected:.0f} were expected"


def _impossible_verdict(name: str, piece: LoggedSegment, j: int, k: int) -> str:
    count, rows, opened = int(piece.assigned[0, k]), int(piece.rows[0]), int(piece.opened[0])
    if rows > opened:
        return f"Segment {j} assigned {opened} positions but has {rows} rows: some are duplicates."
    if piece.segment.weights[0, k] <= 0:
        return f"Segment {j} never plays {name}, yet has {count} rows of it."
    assert piece.drawn is not None
    return f"Segment {j} drew {name} {piece.drawn[0, k]} times, yet has {count} rows of it."


# Balances: counts, and how far they may be from what they should be by chance.


@dataclass(frozen=True, eq=False)
class Balance:
    """Counts of n tests, and how far they may be from what they should be.

    Attributes
    ----------
    observed, expected, variance : (n, U) of each arm
    hits, draws : (n, U) and (n,): each arm's difference is that of so many independent yes-or-no
        draws, with so many expected to be yes, or varies less
    covariance : (n, U, U) of the counts; empty where arms are judged one by one
    """

    observed: Floats
    expected: Floats
    variance: Floats
    hits: Floats
    draws: Floats
    covariance: Floats

    def __add__(self, other: Balance) -> Balance:
        names = [one.name for one in fields(self)]
        return Balance(*(getattr(self, name) + getattr(other, name) for name in names))


def total_of(balances: Iterable[Balance]) -> Balance:
    """The sum over the segments of a log."""
    found = iter(balances)
    total = next(found, None)
    if total is None:
        raise InvalidInputError("no segment was given; give at least one.")
    return sum(found, start=total)


def surprise(balance: Balance) -> tuple[Floats, Floats, Integers]:
    """(n,) probability of counts at least as far off, the chi-squared statistic, its freedom.

    For arms each by itself. Directions with a variance of at least 10 counts make the statistic.
    Arms whose count has less are judged one by one by binomial tails, and share a tenth of the
    error probability (all of it if there is nothing else). A count that cannot vary and is off has
    probability 0.
    """
    off, variance = balance.observed - balance.expected, balance.variance
    p_common, statistic, freedom = chi_squared(off, balance.covariance)
    rare = (variance < NORMAL) & (variance > NEGLIGIBLE)
    p_rare = _least_tail(balance, rare)
    any_rare = rare.any(axis=1)
    p_value = np.where(any_rare, p_rare, p_common)
    both = np.minimum(p_common / (1 - RARE), p_rare / RARE)
    p_value = np.where(any_rare & (freedom > 0), both, p_value)
    stuck = ((variance <= NEGLIGIBLE) & (np.abs(off) > WHOLE)).any(axis=1)
    return np.where(stuck, 0.0, np.minimum(p_value, 1.0)), statistic, freedom


def surprise_by_arm(balance: Balance) -> Floats:
    """(n,) probability of any single count being so far off, by Bonferroni."""
    off, varies = balance.observed - balance.expected, balance.variance > NEGLIGIBLE
    stuck = (~varies & (np.abs(off) > WHOLE)).any(axis=1)
    return np.where(stuck, 0.0, np.minimum(_least_tail(balance, varies), 1.0))


def _least_tail(balance: Balance, among: Booleans) -> Floats:
    """(n,) the least tail probability of these arms times their number.

    No sum of independent yes-or-no draws, such as draws without replacement are too, has heavier
    tails than the binomial distribution (Hoeffding 1956).
    """
    off, hits, draws = balance.observed - balance.expected, balance.hits, balance.draws[:, None]
    p, x = np.clip(hits / np.maximum(draws, 1.0), 0.0, 1.0), np.abs(off)
    above = _binomial(betainc, np.ceil(hits + x - WHOLE) - 1, draws, p, beyond=(1.0, 0.0))
    below = _binomial(betaincc, np.floor(hits - x + WHOLE), draws, p, beyond=(0.0, 1.0))
    tails = np.where(x < 1 - WHOLE, 1.0, np.minimum(above + below, 1.0))
    return np.asarray(np.where(among, tails, 1.0).min(axis=1) * np.maximum(among.sum(axis=1), 1))


def _binomial(
    tail: np.ufunc, k: Floats, draws: Floats, p: Floats, beyond: tuple[float, float]
) -> Floats:
    """Probability of more than k hits (`betainc`), or of at most k (`betaincc`).

    `draws` need not be whole; `beyond` holds the values for k < 0 and k >= draws.
    """
    inside = (k >= 0) & (k < draws)
    found = tail(np.where(inside, k + 1, 1.0), np.where(inside, draws - k, 1.0), p)
    return np.where(inside, found, np.where(k < 0, *beyond))


def chi_squared(off: Floats, covariance: Floats) -> tuple[Floats, Floats, Integers]:
    """(n,) p-value, statistic and freedom of the directions that vary by at least ten counts.

    off : (n, U) differences; covariance : (n, U, U)
    """
    values, vectors = np.linalg.eigh(covariance)
    lengths = np.einsum("nkd,nk->nd", vectors, off)
    usable = values >= NORMAL
    statistic = np.where(usable, lengths**2 / np.where(usable, values, 1.0), 0.0).sum(axis=1)
    freedom = usable.sum(axis=1)
    p_value = np.where(freedom > 0, chdtrc(np.maximum(freedom, 1), statistic), 1.0)
    return p_value, statistic, freedom


def standardise(difference: Floats, variance: Floats, slack: float = WHOLE) -> Floats:
    """Differences in standard deviations; infinite where there is none but they exceed `slack`."""
    known = variance > NEGLIGIBLE
    off = np.abs(difference) > slack
    fixed = np.select([off & (difference > 0), off], [np.inf, -np.inf], 0.0)
    return np.where(known, difference / np.sqrt(np.where(known, variance, 1.0)), fixed)


def assignment_balance(piece: LoggedSegment, joint: bool = True) -> Balance:
    """Rows per arm against what was drawn, or else the logged allocation, given how many there are.

    Rows may have been lost. If arms lose alike, the rows of a segment are a random part of what was
    drawn: as many draws without replacement.
    """
    if piece.drawn is not None:
        size = piece.opened.astype(np.float64)
        shares = piece.drawn / np.maximum(size, 1.0)[:, None]
        return _part(piece.assigned.astype(np.float64), shares, size, joint)
    size = np.full(len(piece.rows), np.inf)
    return _part(piece.assigned.astype(np.float64), normalise(piece.segment), size, joint)


def attrition_balance(pieces: Iterable[LoggedSegment], joint: bool = True) -> Iterator[Balance]:
    """Rows without reward per arm, given how many each segment has and which arms it assigned.

    Within a segment every row is as likely to miss its reward if arms do not matter (the
    generalised test of Cochran, Mantel and Haenszel), so rates may move with the allocation.
    Segments of fewer than 30 rows, which alone say little or nothing, are joined with the next.
    """
    for assigned, missing in _strata(pieces):
        size = assigned.sum(axis=1)
        yield _part(missing, assigned / np.maximum(size, 1)[:, None], size, joint)


def _part(observed: Floats, shares: Floats, size: Floats, joint: bool) -> Balance:
    """The balance of counts that are a random part of what has these shares.

    observed, shares : (n, U) of the arms
    size : (n,) of the whole; infinite for independent draws
    joint : whether the covariance of all counts is needed
    """
    rows = np.minimum(observed.sum(axis=1), size)
    finite = np.where(np.isinf(size), 0.0, size)
    # variance that is left without replacement
    left = (finite - rows) / np.maximum(finite - 1, 1.0)
    spread = rows * np.where(np.isinf(size), 1.0, left)
    few = rows <= size / 2  # else of those that are left out
    draws = np.where(few, rows, finite - rows)
    return Balance(
        observed,
        rows[:, None] * shares,
        spread[:, None] * shares * (1 - shares),
        draws[:, None] * np.where(few[:, None], shares, 1 - shares),
        draws,
        spread[:, None, None] * _one_draw(shares if joint else shares[:, :0]),
    )


def _strata(pieces: Iterable[LoggedSegment]) -> Iterator[Floats]:
    """(2, n, K) rows, and rows without reward, of consecutive segments with enough rows."""
    joined: Floats | None = None
    for piece in pieces:
        assert piece.rewarded is not None
        counts = np.array([piece.assigned, piece.assigned - piece.rewarded], dtype=np.float64)
        joined = counts if joined is None else joined + counts
        if (joined[0].sum(axis=1) >= STRATUM).all():
            yield joined
            joined = None
    if joined is not None:
        yield joined


def normalise(segment: Segment) -> Floats:
    """Weights that sum to one; zero where nothing was played."""
    total = segment.weights.sum(axis=1)
    proper = (segment.weights >= 0).all(axis=1) & (np.abs(total - 1) < 1e-3)  # False for nan
    if not (proper | (segment.rounds == 0)).all():
        raise InvalidInputError(
            f"a segment's weights are negative, nan or do not sum to one (sums from "
            f"{total.min():g} to {total.max():g}); expected the probabilities of all arms."
        )
    weights = np.where(proper[:, None], segment.weights, 0.0)
    return np.asarray(weights / np.where(proper, total, 1.0)[:, None])


def impossible_counts(piece: LoggedSegment) -> Booleans:
    """(n, K) counts that cannot be, whatever the draws."""
    counts, weights = piece.assigned, normalise(piece.segment)
    wrong = (piece.rows > piece.opened)[:, None] & (counts > 0) | (counts > 0) & (weights <= 0)
    return np.asarray(wrong if piece.drawn is None else wrong | (counts > piece.drawn))


def _one_draw(shares: Floats) -> Floats:
    """(n, U, U) covariance of a single draw."""
    out: Floats = -shares[:, :, None] * shares[:, None, :]
    k = np.arange(shares.shape[1])
    out[:, k, k] += shares
    return out
