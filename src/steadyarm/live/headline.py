"""The verdict in plain sentences, for people who have never heard of best-arm identification."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from steadyarm.inference import DriftReport
from steadyarm.live.settings import Settings
from steadyarm.live.verdict import Comparison, Verdict, compare_with_control
from steadyarm.wording import counted, listed, number, span

if TYPE_CHECKING:
    from steadyarm.live.scorecard import Scorecard

Floats = NDArray[np.float64]

FEW = 3  # names that are listed


def headline(card: Scorecard) -> str:
    """Progress, the leading variant, its certainty and warnings, in a few sentences.

    If a health check fails, no variant leads, and the sentences say what to check instead.
    """
    status, K = card.status, card.size
    if status.state == "draft":
        return f"Not started yet: {K:,} variants, {status.budget:,} visits."
    if not card.status.total_assigned:
        return (
            "Ended before the first visit."
            if card.ended
            else f"Waiting for the first of {status.budget:,} visits to {K:,} variants."
        )
    if unhealthy := _describe_failures(card):
        return f"{_describe_progress(card)}: {unhealthy}"
    if card.verdict is None:
        sentences = [f"{_describe_progress(card)}: {card.obstacle}"]
    else:
        looks = card.verdict.stopping
        sentences = [
            f"{_describe_progress(card)}, {_describe_standing(card, card.verdict)}",
            _describe_guardrails(card.verdict),
            "" if looks is None or (looks.reason and not looks.recommended) else looks.text,
            card.verdict.reach,
        ]
    if card.ended and card.rewards_until is not None:
        until = f"{card.rewards_until.day} {card.rewards_until:%b, %H:%M}"
        sentences.append(f"Rewards may still come until {until} UTC.")
    if card.needs_stop:
        sentences.append(
            "Stop the test when no more rewards will come; then all visits are judged."
        )
    if card.drift is not None:
        sentences.append(_describe_drift(card.drift, card.by_day))
    return " ".join(sentence for sentence in sentences if sentence)


MISSING = {
    "zero": "A missing reward counts as zero.",
    "drop": "A missing reward counts as the mean of its variant's rewards around it. This is right "
    "if rewards get lost regardless of their value.",
    "fail": "There is no verdict while a reward is missing.",
}


def rewards_in_words(settings: Settings) -> tuple[str, ...]:
    """Which rewards count, and as what."""
    good = "Larger" if settings.direction == "maximize" else "Smaller"
    window = "Rewards count whenever they come."
    if settings.reward_window is not None:
        grace = settings.reward_grace
        arriving = f"and arrive at most {span(grace)} after that" if grace else "and arrive by then"
        window = (
            f"Rewards count if they happen within {span(settings.reward_window)} {arriving}; later "
            "ones are refused."
        )
    if settings.reward_window is not None and settings.missing == "fail":
        window = (
            f"Rewards are expected within {span(settings.reward_window)}; later ones count, too."
        )
    ends = (
        "No range of possible rewards was declared."
        if settings.reward_range is None
        else f"Rewards lie between {number(settings.reward_range[0])} and "
        f"{number(settings.reward_range[1])}; others are refused."
    )
    return (f"{good} rewards are better.", window, MISSING[settings.missing], ends)


def announcement(card: Scorecard) -> str:
    """The news to read aloud when it changes: a decision or the leader, and failing checks."""
    if (unhealthy := _describe_failures(card)) or card.verdict is None:
        return unhealthy
    labels, decision = dict(zip(card.names, card.labels, strict=True)), card.decision
    if decision.word in ("ship", "keep") and decision.variant is not None:
        return f"{decision.word.capitalize()} {labels[decision.variant]}."
    return f"{labels[card.verdict.name]} leads."


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


def _describe_guardrails(verdict: Verdict) -> str:
    """Which guardrails the recommended variant breaks, if any."""
    guardrails = (result for result in verdict.metrics if result.metric.role == "guardrail")
    broken = [result.name for result in guardrails if verdict.name in result.broken]
    return f"But {listed(broken)} got worse by more than the margin." if broken else ""


def _describe_progress(card: Scorecard) -> str:
    status = card.status
    if card.status.total_assigned >= status.budget or card.policy_ended:
        return f"After all {card.status.total_assigned:,} visits"
    so_far = f"after {card.status.total_assigned:,} of {status.budget:,} visits"
    word = {"paused": "Paused ", "stopped": "Stopped ", "archived": "Stopped "}
    return f"{word[status.state]}{so_far}" if status.state in word else so_far.capitalize()


def _describe_standing(card: Scorecard, verdict: Verdict) -> str:
    """Describe which variant leads or beats the control, by how much, and how certain that is."""
    labels, K = dict(zip(card.names, card.labels, strict=True)), card.size
    name = labels[verdict.name]
    final = card.settled and not verdict.caution
    unknown = not np.isfinite(verdict.intervals[verdict.row]).all()
    if unknown and not np.isfinite(verdict.gap_intervals).all():
        few = "that is too little to tell" if card.ended else "it is too early to tell"
        return f"{name} is ahead, but {few} which is best."
    if not verdict.anytime and not final:
        return f"{name} leads; its interval is known only at the end."
    known = np.isfinite(verdict.estimates)
    dropped = {other for other, there in zip(card.names, known, strict=True) if not there}
    others = [n for n in verdict.plausible if n != verdict.name and n not in dropped]
    gone = f" {counted(len(dropped), 'variant was', 'variants were')} dropped." if dropped else ""
    unit = card.settings.primary.difference_unit
    against = compare_with_control(verdict, card.settings.direction, unit)
    if against is not None and verdict.shown is None:
        return _against_control(card.labels, verdict, against) + gone
    rivals = [labels[other] for other in others]
    said = (
        _describe_certainty(name, rivals, verdict.others, K - len(dropped), final, card.ended)
        + gone
    )
    if gone:
        said = said.replace("is the best;", "is the best of those measured to the end;")
    if against is not None and against.better[verdict.row]:
        said += f" It beats {verdict.control} by {against.amount(verdict.row)}."
    return said


def _against_control(labels: Sequence[str], verdict: Verdict, against: Comparison) -> str:
    """Describe which variants beat the control, are worse, or do not differ clearly."""
    control, known = labels[against.control], ~np.isnan(verdict.estimates)
    groups = [against.better & known, against.worse & known, against.unclear & known]
    better, worse, unclear = (np.flatnonzero(group).tolist() for group in groups)
    if better:
        best = max(better, key=lambda k: float(against.lifts[k]))
        lead = verdict.row if verdict.row in better else best
        better.remove(lead)
        said = [f"{labels[lead]} beats {control} by {against.amount(lead)}"]
    elif verdict.row in unclear:
        unclear.remove(verdict.row)
        ahead = f"{labels[verdict.row]} is ahead of {control} by {against.amount(verdict.row)}"
        said = [f"{ahead}, which is not clear"]
    elif unclear:
        said = [f"{control} has the best estimate"]
    else:
        return f"no other variant beats {control}."
    left = len(better) + len(worse) + len(unclear)
    for group, one, many in (
        (better, "beats it, too", "beat it, too"),
        (worse, "is worse", "are worse"),
        (
            unclear,
            f"does not differ clearly from {control}",
            f"do not differ clearly from {control}",
        ),
    ):
        if group:
            which = _some([labels[k] for k in group], len(group) == left)
            said.append(f"{which} {one if len(group) == 1 else many}")
            left -= len(group)
    return f"{'; '.join(said)}."


def _some(names: Sequence[str], rest: bool) -> str:
    """Some variants by name; by number if they are many, or several and all the rest."""
    if rest and len(names) > 1:
        words = {2: "two", 3: "three", 4: "four", 5: "five"}
        return f"the other {words.get(len(names), f'{len(names):,}')}"
    return listed(names) if len(names) <= FEW else f"{len(names):,} variants"


def _describe_certainty(
    name: str, others: list[str], more: int, K: int, final: bool, ended: bool
) -> str:
    """Describe the leader, and which of the K variants may be as good.

    more : how many of these are not among the others that have names
    final : whether no reward may come any more; ended : whether no visit may
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
        no = "no other is ruled out" if ended else "it is too early to rule out any other"
        return f"{name} {ahead}, but {no}."
    if len(others) + more <= FEW and not more:
        verb = "may be as good" if ended else "can still win"
        return f"{name} {ahead}; {listed(others)} {verb}."
    verb = "may be the best" if ended else "can still win"
    return f"{name} {ahead}; {len(others) + more + 1:,} of {K:,} variants {verb}."


def _describe_failures(card: Scorecard) -> str:
    """Advise against a decision, and say what to check, if a health check fails."""
    findings = () if card.health is None else card.health.findings
    failing = [
        f"{finding.explanation} {finding.advice}"
        for finding in findings
        if finding.status == "fail"
    ]
    return f"not healthy, do not decide yet. {' '.join(failing)}".strip() if failing else ""


def _describe_drift(report: DriftReport, by_day: bool) -> str:
    if report.gaps_move:
        k = int(np.argmin(report.arm_p_values))
        moved = report.estimates[:, k] - report.averages
        return (
            f"Differences between variants have changed{_when(report, moved, by_day)}. The "
            "verdict is about the average over the whole test."
        )
    if report.level_moves:
        moved = report.averages
        return (
            f"Rewards of all variants have drifted alike{_when(report, moved, by_day)}. The "
            "comparison is not affected."
        )
    return ""


def _when(report: DriftReport, moved: Floats, by_day: bool) -> str:
    if not by_day or not np.isfinite(moved).all():
        return " over time"
    day = since(report, moved)
    return f", most clearly since {day:%A} {day.day} {day:%b}"
