"""The verdict in plain sentences, for people who have never heard of best-arm identification."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

import numpy as np
from numpy.typing import NDArray

from steadyarm.answers import Status
from steadyarm.inference import DriftReport, HealthReport
from steadyarm.verdict import Verdict

__all__ = ["headline", "since"]

Floats = NDArray[np.float64]

FEW = 3  # names that are listed


def headline(
    labels: Mapping[str, str],
    status: Status,
    verdict: Verdict | None,
    obstacle: str,
    drift: DriftReport | None,
    by_day: bool,
    health: HealthReport | None,
) -> str:
    """One to three sentences: how far, who leads, how sure that is, and what is unusual.

    labels : short names of the variants, by their names
    """
    handed, K = sum(status.assigned), len(status.assigned)
    if status.state == "draft":
        return f"Not started yet: {K:,} variants, {status.budget:,} visits."
    if not handed:
        ended = status.state in ("stopped", "archived")
        return (
            "Ended before the first visit."
            if ended
            else f"Waiting for the first of {status.budget:,} visits to {K:,} variants."
        )
    if verdict is None:
        return f"{_progress(status, handed)}: {obstacle}"
    sentences = [f"{_progress(status, handed)}, {_standing(labels, status, verdict, handed, K)}"]
    if drift is not None:
        sentences.append(_drifted(drift, by_day))
    if health is not None and health.status == "fail":
        sentences.append("A health check fails: do not rely on this before it is explained.")
    return " ".join(sentence for sentence in sentences if sentence)


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


def _progress(status: Status, handed: int) -> str:
    if handed >= status.budget:
        return f"After all {status.budget:,} visits"
    so_far = f"after {handed:,} of {status.budget:,} visits"
    word = {"paused": "Paused ", "stopped": "Stopped ", "archived": "Stopped "}
    return f"{word[status.state]}{so_far}" if status.state in word else so_far.capitalize()


def _standing(
    labels: Mapping[str, str], status: Status, verdict: Verdict, handed: int, K: int
) -> str:
    name = labels[verdict.name]
    ended = handed >= status.budget or status.state in ("stopped", "archived")
    if not np.isfinite(verdict.intervals[verdict.arm]).all():
        few = "that is too little to tell" if ended else "it is too early to tell"
        return f"{name} is ahead, but {few} which is best."
    others = [labels[one] for one in verdict.plausible if one != verdict.name]
    if not others:
        rest = "the other one is" if K == 2 else f"the other {K - 1:,} are"
        return (
            f"{name} is the best; {rest} ruled out."
            if ended
            else f"{name} leads, and {rest} ruled out already."
        )
    ahead = "has the best estimate" if ended else "leads"
    if len(others) == K - 1 and K > 2:
        no = "no variant is ruled out" if ended else "it is too early to rule out any variant"
        return f"{name} {ahead}, but {no}."
    if len(others) <= FEW:
        verb = "may be as good" if ended else "can still win"
        return f"{name} {ahead}; {_and(others)} {verb}."
    verb = "may be the best" if ended else "can still win"
    return f"{name} {ahead}; {len(others) + 1:,} of {K:,} variants {verb}."


def _drifted(report: DriftReport, by_day: bool) -> str:
    if report.gaps_move:
        k = int(np.argmin(report.arm_p_values))
        moved = report.estimates[:, k] - report.estimates.mean(axis=1)
        return (
            f"Differences between variants have changed{_when(report, moved, by_day)}; the verdict "
            "is about the average over the whole test."
        )
    if report.level_moves:
        moved = report.estimates.mean(axis=1)
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


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
