"""Stopping: the verdict of a live test at its last look, and whether the test stops there.

Limits are those of `inference/sequences.py` with the boundaries of `inference/boundaries.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from steadyarm.inference.boundaries import Looks
from steadyarm.inference.evidence import Evidence
from steadyarm.inference.limits import shortlisted
from steadyarm.inference.sequences import ConfidenceSequence
from steadyarm.inference.stopping import futile_at
from steadyarm.live.conclusion import Decision
from steadyarm.live.decisions import SegmentLedger
from steadyarm.live.looks import Look, LookResult, Stopped, StopReport, next_look
from steadyarm.live.metrics import MetricResult
from steadyarm.live.settings import Settings
from steadyarm.live.verdict import Verdict, verdict_of
from steadyarm.storages.records import to_datetime

if TYPE_CHECKING:
    from steadyarm.live.results import LiveResults

LEVEL = 0.95  # at which tests stop


def verdict_at_look(
    results: LiveResults,
    level: float = LEVEL,
    metrics: tuple[MetricResult, ...] = (),
    at_stop: tuple[MetricResult, ...] | None = None,
) -> Verdict:
    """The verdict at the last look; before the first one estimates without limits.

    What is said of stopping is said at the level at which tests stop, whatever `level` is asked.

    metrics : what is known of further metrics, whose guardrails have a say in the decision
    at_stop : the same at the level at which tests stop; by default `metrics`
    """
    if not results.tells:
        results.explain_emptiness()
    settings, looks = results.settings, results.looks
    pieces = results.mature[: looks[-1].pieces] if looks else results.mature
    there = replace(results, pieces=pieces, ended=True)
    if looks and not there.tells:  # no reward came before the first look
        there, looks = replace(results, pieces=results.mature, ended=True), []
    pieces, evidence = there.pieces, there.evidence
    over = results.final
    schedule = schedule_of(settings, looks, pieces, evidence, over)
    verdict = verdict_of(
        settings,
        results.state_so_far(),
        evidence,
        level,
        anytime=True,
        as_policy=results.as_policy(pieces),
        looks=schedule,
    )
    if settings.covariates:
        verdict = replace(verdict, **there.beside(verdict))
    verdict = results.with_visits(verdict, pieces, level, watched=True)
    ahead = None if results.ended or over else next_look(settings, looks, results.mature)
    soonest = 0 if ahead is None else max(ahead[0] - verdict.judged, 0)
    plain, decision = (results.decided(verdict, given, soonest) for given in ((), metrics))
    decides = clear = bool(looks) and plain.word in ("ship", "keep")
    if evidence.arms.large:
        control = [] if settings.control is None else [settings.arms.index(settings.control)]
        evidence, _ = shortlisted(evidence, also=control)
    sequence = ConfidenceSequence(evidence, settings.budget, None, schedule)
    if looks and not verdict.unhealthy and not clear and _is_futile(settings, sequence):
        assert settings.futility is not None
        least = settings.shown(settings.futility)
        why = f"no variant can any longer be shown to differ by {least}"
        decision = plain = Decision("unclear", f"No clear winner: {why}.")
        decides = True
    verdict = replace(verdict, decision=decision, metrics=metrics)
    if level != LEVEL:
        usual = verdict_at_look(results, LEVEL, metrics if at_stop is None else at_stop)
        return replace(verdict, stopping=usual.stopping)
    report = StopReport(
        rule=settings.stop or "",
        spending=settings.spending or "",
        planned=settings.looks if isinstance(settings.looks, int) else None,
        looks=_look_results(settings, looks, pieces, sequence),
        recommended=decides and decision == plain and not over,
        reason=decision.text if decides else "",
        ahead="" if ahead is None else _ahead(*ahead),
    )
    if (stopped := results.stopped) is not None:
        when = None if stopped.when is None else to_datetime(stopped.when)
        report = replace(
            report, recommended=False, stopped=True, when=when, reason=stopped.reason, ahead=""
        )
    return replace(verdict, stopping=report)


def _ahead(visits: int, until: int | None) -> str:
    """What the next interim analysis rests on."""
    if until is None:
        return f"The next interim analysis is on the first {visits:,} visits."
    return f"The next interim analysis is on visits until {to_datetime(until):%A %d %b, %H:%M} UTC."


def stop_now(
    results: LiveResults, metrics: tuple[MetricResult, ...] = ()
) -> tuple[Stopped | None, bool]:
    """Why a test that may stop itself stops now, at its last look; None if it goes on.

    Also whether that look is done with: it is not if only a guardrail or a health check kept the
    test from stopping, since these may be fine a little later.
    """
    verdict = verdict_at_look(results, metrics=metrics)
    report = verdict.stopping
    if report is None or not report.recommended:
        return None, not verdict.unhealthy and (report is None or not report.reason)
    last = results.looks[-1]
    segment = results.mature[last.pieces - 1].index
    guardrails = {
        one.name: one.segment
        for one in metrics
        if one.metric.role == "guardrail" and one.segment is not None
    }
    return Stopped(last.number, segment, report.reason, guardrails=guardrails), True


def _look_results(
    settings: Settings,
    looks: Sequence[Look],
    pieces: Sequence[SegmentLedger],
    sequence: ConfidenceSequence,
) -> tuple[LookResult, ...]:
    """What was found at each look."""
    brought = np.cumsum([bool(piece.recorded) for piece in pieces])
    found = []
    for look in looks:
        j = int(brought[look.pieces - 1]) - 1
        boundary, reached = (np.inf, 0.0) if j < 0 else _extent(settings, sequence, j)
        when = None if look.last is None else to_datetime(look.last)
        share = look.visits / settings.budget
        found.append(LookResult(look.number, look.visits, share, when, boundary, reached))
    return tuple(found)


def _extent(settings: Settings, sequence: ConfidenceSequence, j: int) -> tuple[float, float]:
    """The boundary at the end of piece j, and how many standard errors were reached.

    A winner is declared if it leads all others; with a control a lead over that is enough, at the
    boundary of all comparisons with it. What is nearer to deciding is given.
    """
    arms, until = sequence.evidence.arms, sequence.until(j)
    best = int(until.best[0])
    X = arms.coordinates
    known = np.zeros((1, arms.size))
    errors = sequence.errors(j, (X[best] - X)[None], known, known)[0]
    leads = np.abs(until.estimates[0, best] - until.estimates[0]) / np.where(errors > 0, errors, 1)
    others = (np.arange(arms.size) != best) & (errors > 0)
    if not others.any():
        return np.inf, 0.0
    ways = [((1 - LEVEL) / 2, leads[others].min())]
    if settings.control is not None and others[row := arms.index(settings.control)]:
        ways.append(((1 - LEVEL) / (2 * max(sequence.evidence.family - 1, 1)), leads[row]))
    found = [(float(sequence.factor(j, alpha)[0, 0]), float(lead)) for alpha, lead in ways]
    boundary, reached = max(found, key=lambda way: way[1] / way[0])
    return (np.inf if boundary > 1e9 else boundary), reached


def _is_futile(settings: Settings, sequence: ConfidenceSequence) -> bool:
    """Whether nothing that matters can be decided any more, at the last look."""
    j = sequence.rounds.shape[1] - 1
    if settings.futility is None or sequence.looks_at(j)[0] < 0:
        return False
    arms = sequence.evidence.arms
    control = None if settings.control is None else arms.index(settings.control)
    return bool(futile_at(sequence, j, LEVEL, settings.futility, control)[0])


def schedule_of(
    settings: Settings,
    looks: Sequence[Look],
    pieces: Sequence[SegmentLedger],
    evidence: Evidence,
    over: bool,
) -> Looks:
    """The looks as intervals need them: shares of the budget that were judged at each.

    pieces : as for `looks_taken`; evidence : of those of them that brought rewards
    """
    brought = np.cumsum([bool(piece.recorded) for piece in pieces])
    rounds = np.cumsum(evidence.rounds[0])
    ends = sorted({int(brought[look.pieces - 1]) for look in looks} - {0})
    shares = tuple(float(rounds[end - 1] / settings.budget) for end in ends)
    assert settings.spending is not None
    return Looks(shares, settings.spending, over)
