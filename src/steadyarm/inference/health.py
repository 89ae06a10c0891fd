"""Health: can the log of a test be trusted? Findings in plain sentences, with what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from steadyarm.errors import InvalidInputError
from steadyarm.inference.evidence import LoggedSegment, plain
from steadyarm.inference.srm import ALARM, NOTICE, attrition_test, srm_test
from steadyarm.validation import checked_range, whole_number

Status = Literal["ok", "warn", "fail"]
MARKS: dict[Status, str] = {"ok": "ok  ", "warn": "WARN", "fail": "FAIL"}
LOSS = 0.005  # share of lost or missing rows from which on they are worth a look


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes
    ----------
    name : what
    status : "ok", "warn" (look at it) or "fail" (do not trust the result before it is explained)
    p_value : of the test behind it; None if there is none
    explanation : what was found, in one sentence
    advice : what to do; empty if nothing
    """

    name: str
    status: Status
    p_value: float | None
    explanation: str
    advice: str = ""


@dataclass(frozen=True)
class HealthReport:
    """All findings of a test.

    Examples
    --------
    >>> report = HealthReport(tuple(reward_findings(rows=500, conflicting=3)))
    >>> report.status
    'fail'
    >>> print(report)
    Health: FAIL
      FAIL duplicate rewards: 3 of 500 rows came again with another reward.
           Find out which of the two is true; until then leave both out.
    """

    findings: tuple[Finding, ...]

    @property
    def status(self) -> Status:
        """The worst of the findings."""
        found = {finding.status for finding in self.findings}
        return "fail" if "fail" in found else "warn" if "warn" in found else "ok"

    @property
    def unhealthy(self) -> str:
        """Why nothing must be decided yet: what the failing checks found; empty if none fails."""
        failing = [finding.explanation for finding in self.findings if finding.status == "fail"]
        return f"Not healthy: do not decide yet. {' '.join(failing)}" if failing else ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"status": self.status, "findings": plain(self.findings)}

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
    rewards: Iterable[Finding] = (),
    mature: Iterable[LoggedSegment] | None = None,
) -> HealthReport:
    """Assignments, lost rows, missing rewards, and what `reward_findings` found.

    mature : the pieces whose missing rewards will not come any more; all of them by default

    Examples
    --------
    >>> import numpy as np
    >>> from steadyarm.segments import Segment
    >>> fair = Segment(np.array([[0.5, 0.5]]), np.array([1000]))
    >>> piece = LoggedSegment(fair, np.array([[507, 493]]), rewarded=np.array([[500, 487]]))
    >>> print(health_report(["A", "B"], [piece]))
    Health: WARN
      ok   assignments: The rows per variant fit the logged probabilities (p = 0.66).
      ok   lost rows: Every position that was handed out has its row.
      WARN missing rewards: 13 rewards are missing, in all variants alike (p = 1).
           ...
    """
    log = list(pieces)
    findings = [_assignments(names, log), _lost_rows(log)]
    over = log if mature is None else list(mature)
    if over and all(piece.rewarded is not None for piece in over):
        findings.append(_missing_rewards(names, over))
    return HealthReport((*findings, *rewards))


def late_finding(names: Sequence[str], pieces: Iterable[LoggedSegment]) -> Finding:
    """Whether rewards were refused because they came too late, and more of some arms than others.

    pieces : with `rewarded` counting the rows whose reward was not refused

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
    late, rows = int(found.observed.sum()), sum(int(piece.rows[0]) for piece in log)
    if not late:
        return Finding(name, "ok", None, "No reward came too late.")
    text = f"{late:,} of {rows:,} rewards came too late and were refused"
    status = status_of(found.p_value)
    if status == "ok":
        text += f", of all variants alike (p = {found.p_value:.2g})."
        if late <= LOSS * rows:
            return Finding(name, "ok", found.p_value, text)
        advice = "Give the next test a longer reward_window; what comes late counts as missing."
        return Finding(name, "warn", found.p_value, text, advice)
    text += f", more of {found.culprit} than of others (p = {found.p_value:.2g})."
    advice = (
        f"Find why rewards of {found.culprit} take longer; they count as missing, so the "
        "comparison is not fair. Give the next test a longer reward_window."
    )
    return Finding(name, status, found.p_value, text, advice)


def reward_findings(
    rows: int,
    agreeing: int | None = None,
    conflicting: int | None = None,
    out_of_range: int | None = None,
    reward_range: tuple[float, float] | None = None,
) -> list[Finding]:
    """Findings on rewards that came twice or are out of range; None for what was not counted.

    Parameters
    ----------
    rows : assignments in the log
    agreeing : rewards that came again with the same value
    conflicting : rewards that came again with another value
    out_of_range : rewards outside of `reward_range`
    """
    whole_number(rows, "rows")
    findings = []
    if agreeing is not None or conflicting is not None:
        same = whole_number(agreeing or 0, "agreeing")
        other = whole_number(conflicting or 0, "conflicting")
        findings.append(_duplicates(rows, same, other))
    if out_of_range is not None:
        if reward_range is None:
            raise InvalidInputError(
                "out_of_range was given without reward_range; say which rewards are possible, "
                "such as reward_range=(0, 1)."
            )
        low, high = checked_range(reward_range)
        beyond = whole_number(out_of_range, "out_of_range")
        findings.append(_range(rows, beyond, low, high))
    return findings


def _assignments(names: Sequence[str], log: list[LoggedSegment]) -> Finding:
    found = srm_test(names, log)
    status = status_of(found.p_value)
    advice = (
        ""
        if status == "ok"
        else f"Compare serving and logging of {found.culprit} with the others (redirects, bots, "
        "crashes, filters); estimates are biased while rows depend on the variant."
    )
    return Finding("assignments", status, found.p_value, found.verdict, advice)


def _lost_rows(log: list[LoggedSegment]) -> Finding:
    handed = sum(int(piece.positions[0]) for piece in log)
    lost = sum(int(piece.lost[0]) for piece in log)
    if not lost:
        text = "Every position that was handed out has its row."
        return Finding("lost rows", "ok", None, text)
    text = f"{lost} of {handed} positions that were handed out have no row ({lost / handed:.2%})."
    status: Status = "warn" if lost > LOSS * handed else "ok"
    advice = "Find where rows are lost; it is harmless only as long as variants lose alike."
    return Finding("lost rows", status, None, text, advice if status == "warn" else "")


def _missing_rewards(names: Sequence[str], log: list[LoggedSegment]) -> Finding:
    found = attrition_test(names, log)
    rows = sum(int(piece.rows[0]) for piece in log)
    status = status_of(found.p_value)
    if status == "ok" and found.observed.sum() > LOSS * rows:
        advice = (
            "Wait for rewards that are only late. Means over those who answered are right only "
            "if missing does not depend on the reward."
        )
        return Finding("missing rewards", "warn", found.p_value, found.verdict, advice)
    advice = (
        f"Find why rewards of {found.culprit} are lost; if no reward means failure, count it as 0, "
        "else the comparison is between different people."
    )
    return Finding(
        "missing rewards", status, found.p_value, found.verdict, "" if status == "ok" else advice
    )


def _duplicates(rows: int, same: int, other: int) -> Finding:
    name = "duplicate rewards"
    if other:
        text = f"{other} of {rows} rows came again with another reward."
        advice = "Find out which of the two is true; until then leave both out."
        return Finding(name, "fail", None, text, advice)
    if same:
        text = f"{same} of {rows} rows came again with the same reward."
        return Finding(name, "ok", None, text, "Nothing to do: each is counted once.")
    return Finding(name, "ok", None, "No reward came twice.")


def _range(rows: int, beyond: int, low: float, high: float) -> Finding:
    name, ends = "range of rewards", f"{low:g} to {high:g}"
    if not beyond:
        return Finding(name, "ok", None, f"All rewards lie in {ends}.")
    text = f"{beyond} of {rows} rewards lie outside of {ends}."
    advice = "Correct them at the source, or widen reward_range; intervals rely on it."
    return Finding(name, "fail", None, text, advice)


def status_of(p_value: float) -> Status:
    """Of a test's p-value: "fail" below 0.001, "warn" below 0.01."""
    return "fail" if p_value < ALARM else "warn" if p_value < NOTICE else "ok"
