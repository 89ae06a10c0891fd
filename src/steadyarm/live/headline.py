"""The verdict in plain sentences, for people who have never heard of best-arm identification."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime

import numpy as np
from numpy.typing import NDArray

from steadyarm.inference import DriftReport, HealthReport
from steadyarm.live.assignments import Status
from steadyarm.live.verdict import Verdict
from steadyarm.wording import counted, listed

__all__ = ["Told", "announcement", "headline", "since"]

Floats = NDArray[np.float64]

FEW = 3  # names that are listed


@dataclass(frozen=True, eq=False)
class Told:
    """What the sentences are about; most as in `Scorecard`.

    Attributes
    ----------
    labels : short names of the variants that are shown, by their names
    until : when the last reward may come, if something is still waited for
    variants : how many there are, if not all are shown
    needs_stop : as in `Scorecard`
    """

    labels: Mapping[str, str]
    status: Status
    verdict: Verdict | None
    obstacle: str
    policy_ended: bool
    until: datetime | None
    drift: DriftReport | None
    by_day: bool
    health: HealthReport | None
    variants: int | None = None
    needs_stop: bool = False

    @property
    def size(self) -> int:
        """Number of variants."""
        return len(self.labels) if self.variants is None else self.variants

    @property
    def handed(self) -> int:
        """Visits so far."""
        return self.status.total_assigned

    @property
    def ended(self) -> bool:
        """Whether nothing more will be handed out."""
        spent = self.handed >= self.status.budget
        return spent or self.policy_ended or self.status.state in ("stopped", "archived")

    @property
    def settled(self) -> bool:
        """Whether the verdict is final: neither visits nor rewards will come."""
        return self.ended and self.until is None and not self.needs_stop


def headline(told: Told) -> str:
    """How far, who leads, how sure that is, and what is unusual, in a few sentences.

    Where a health check fails nobody leads: the sentences say what to look at instead.
    """
    status, K = told.status, told.size
    if status.state == "draft":
        return f"Not started yet: {K:,} variants, {status.budget:,} visits."
    if not told.handed:
        return (
            "Ended before the first visit."
            if told.ended
            else f"Waiting for the first of {status.budget:,} visits to {K:,} variants."
        )
    if unhealthy := _unhealthy(told):
        return f"{_progress(told)}: {unhealthy}"
    stop = "Stop the test when no more rewards will come: then all are judged."
    if told.verdict is None:
        return f"{_progress(told)}: {told.obstacle}{f' {stop}' if told.needs_stop else ''}"
    sentences = [f"{_progress(told)}, {_standing(told, told.verdict)}", told.verdict.reach]
    if told.ended and told.until is not None:
        until = f"{told.until.day} {told.until:%b, %H:%M}"
        sentences.append(f"Rewards may still come until {until} UTC.")
    if told.needs_stop:
        sentences.append(stop)
    if told.drift is not None:
        sentences.append(_drifted(told.drift, told.by_day))
    return " ".join(sentence for sentence in sentences if sentence)


def announcement(told: Told) -> str:
    """What is worth saying aloud when it changes: who leads, how sure that is, failing checks."""
    if unhealthy := _unhealthy(told):
        return unhealthy
    return "" if told.verdict is None else _standing(told, told.verdict)


def since(report: DriftReport, moved: Floats) -> date:
    """The day from which on values of days differ most from those before.

    moved : (P,) the values; the best split of their weighted squares
    """
    weights = report.rounds.astype(np.float64)
    sums, counts = np.cumsum(weights * moved), np.cumsum(weights)
    before, n = sums[:-1] / counts[:-1], counts[:-1]
    m = counts[-1] - n
    after = (sums[-1] - sums[:-1]) / m
    split = int(np.argmax(n * m * (after - before) ** 2))
    return date.fromisoformat(report.periods[split + 1])


def _progress(told: Told) -> str:
    status = told.status
    if told.handed >= status.budget or told.policy_ended:
        return f"After all {told.handed:,} visits"
    so_far = f"after {told.handed:,} of {status.budget:,} visits"
    word = {"paused": "Paused ", "stopped": "Stopped ", "archived": "Stopped "}
    return f"{word[status.state]}{so_far}" if status.state in word else so_far.capitalize()


def _standing(told: Told, verdict: Verdict) -> str:
    name, K = told.labels[verdict.name], told.size
    final = told.settled and not verdict.caution
    unknown = not np.isfinite(verdict.intervals[verdict.row]).all()
    if unknown and not np.isfinite(verdict.gap_intervals).all():
        few = "that is too little to tell" if final else "it is too early to tell"
        return f"{name} is ahead, but {few} which is best."
    if not verdict.anytime and not final:
        return f"{name} leads; how sure that is can be said only at the end."
    known = np.isfinite(verdict.estimates)
    dropped = {one for one, there in zip(told.labels, known, strict=True) if not there}
    others = [one for one in verdict.plausible if one != verdict.name and one not in dropped]
    gone = f" {counted(len(dropped), 'was', 'were')} dropped on the way." if dropped else ""
    rivals = [told.labels[one] for one in others]
    said = _sure(name, rivals, verdict.others, K - len(dropped), final) + gone
    return (
        said.replace("is the best;", "is the best of those measured to the end;") if gone else said
    )


def _sure(name: str, others: list[str], more: int, K: int, final: bool) -> str:
    """Who leads, and who of the K that were measured to the end may be as good.

    more : how many of these are not among the others that have names
    """
    if not others and not more:
        rest = "the other one is" if K == 2 else f"the other {K - 1:,} are"
        if K == 1:
            return f"{name} is left."
        return (
            f"{name} is the best; {rest} ruled out."
            if final
            else f"{name} leads, and {rest} ruled out already."
        )
    ahead = "has the best estimate" if final else "leads"
    if len(others) + more == K - 1 and K > 2:
        no = "no other is ruled out" if final else "it is too early to rule out any other"
        return f"{name} {ahead}, but {no}."
    if len(others) + more <= FEW and not more:
        verb = "may be as good" if final else "can still win"
        return f"{name} {ahead}; {listed(others)} {verb}."
    verb = "may be the best" if final else "can still win"
    return f"{name} {ahead}; {len(others) + more + 1:,} of {K:,} variants {verb}."


def _unhealthy(told: Told) -> str:
    """That nothing must be decided yet, and what to look at, if a health check fails."""
    findings = () if told.health is None else told.health.findings
    failing = [f"{one.explanation} {one.advice}" for one in findings if one.status == "fail"]
    return f"not healthy, do not decide yet. {' '.join(failing)}".strip() if failing else ""


def _drifted(report: DriftReport, by_day: bool) -> str:
    if report.gaps_move:
        k = int(np.argmin(report.arm_p_values))
        moved = report.estimates[:, k] - report.averages
        return (
            f"Differences between variants have changed{_when(report, moved, by_day)}; the verdict "
            "is about the average over the whole test."
        )
    if report.level_moves:
        moved = report.averages
        return (
            f"Rewards have drifted{_when(report, moved, by_day)}, for all variants alike; the "
            "comparison is not affected."
        )
    return ""


def _when(report: DriftReport, moved: Floats, by_day: bool) -> str:
    if not by_day or not np.isfinite(moved).all():
        return " over time"
    day = since(report, moved)
    return f", most clearly since {day:%A} {day.day} {day:%b}"
