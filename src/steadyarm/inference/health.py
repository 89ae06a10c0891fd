"""Health: can the log of a test be trusted? Findings in plain sentences, with what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from steadyarm.inference.evidence import json_ready
from steadyarm.inference.srm import (
    ALARM,
    NOTICE,
    CountTest,
    LoggedSegment,
    attrition_test,
    srm_test,
)

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
    name : what was checked
    status : "ok", "warn" (look at it) or "fail" (do not trust the result before it is explained)
    p_value : of the test behind it; None if there is none
    explanation : what was found, in one sentence
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
    findings : what was found, one for each check

    Examples
    --------
    >>> report = HealthReport((zero_finding(500),))
    >>> report.status
    'fail'
    >>> print(report)
    Health: FAIL
      FAIL rewards: All 500 rewards are 0, so there is no best variant.
           See whether the right event, or column, is counted, and whether it is recorded at all.
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
    names : of the arms
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
    """What a test of the rows per arm means; `why` ends the advice."""
    status = status_of(found.p_value)
    advice = (
        f"Compare serving and logging of {found.culprit} with the others (redirects, bots, "
        f"crashes, filters){why}"
    )
    return Finding(
        "assignments", status, found.p_value, found.verdict, "" if status == "ok" else advice
    )


def missing_finding(found: CountTest, alike: str, unlike: str, missing: int, rows: int) -> Finding:
    """What a test of the missing rewards per arm means.

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
        "Wait for rewards that are only late. Means of the rewards that arrived are right only if "
        "whether a reward is missing does not depend on its value.",
        f"Find why rewards of {found.culprit} are lost; if no reward means failure, count it as 0, "
        "else the comparison is between different people.",
    )


def late_finding(names: Sequence[str], pieces: Iterable[LoggedSegment]) -> Finding:
    """Whether rewards were refused because they came too late, and more of some arms than others.

    Parameters
    ----------
    names : of the arms
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
        return Finding(name, "ok", None, "No reward came too late.")
    text, p = f"{late:,} of {rows:,} rewards came too late and were refused", found.p_value
    return _attrition_finding(
        name,
        found,
        (
            f"{text}, of all variants alike (p = {p:.2g}).",
            f"{text}, more of {found.culprit} than of others (p = {p:.2g}).",
        ),
        late > LOSS * rows,
        "Give the next test a longer reward_window; what comes late counts as missing.",
        f"Find why rewards of {found.culprit} take longer; they count as missing, so the "
        "comparison is not fair. Give the next test a longer reward_window.",
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
        "See whether the right event, or column, is counted, and whether it is recorded at all.",
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
    share : of that square in the sum of all
    units : how many there are
    total, squares : sums of all rewards and of their squares; those of the others are worth as
        many equal rewards as (sum)² / (sum of squares)
    reward : of that unit
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
    advice = "Declare a cap or exclude it: as it stands it widens intervals, or decides."
    return Finding(name, "warn", None, text.replace("%", " %"), advice)


def _lost_rows(log: list[LoggedSegment]) -> Finding:
    assigned = sum(int(piece.opened[0]) for piece in log)
    lost = sum(int(piece.lost[0]) for piece in log)
    if not lost:
        return Finding("lost rows", "ok", None, "Every assigned position has its row.")
    text = f"{lost} of {assigned} assigned positions have no row ({lost / assigned:.2%})."
    if lost <= LOSS * assigned:
        return Finding("lost rows", "ok", None, text)
    advice = "Find where rows are lost; it is harmless only as long as variants lose alike."
    return Finding("lost rows", "warn", None, text, advice)


def rows_of(log: Iterable[LoggedSegment]) -> int:
    """Rows of a single test's log."""
    return sum(int(piece.rows[0]) for piece in log)


def status_of(p_value: float) -> Status:
    """Of a test's p-value: "fail" below 0.001, "warn" below 0.01."""
    return "fail" if p_value < ALARM else "warn" if p_value < NOTICE else "ok"
