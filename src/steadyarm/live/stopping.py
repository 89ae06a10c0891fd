"""Interim analyses of a test that may stop early: when they are made, and what they decide.

The visits of an interim analysis follow from the number and times of assignments, never from
rewards, so that every process and every replay agree. Limits are those of
`inference/sequences.py` with the boundaries of `inference/boundaries.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from steadyarm.inference.boundaries import FIRST_LOOK, Looks
from steadyarm.inference.evidence import Evidence, shortlist
from steadyarm.inference.sequences import ConfidenceSequence, futile_at
from steadyarm.live.decisions import SegmentLedger
from steadyarm.live.estimates import MetricResult
from steadyarm.live.settings import MOST_LOOKS, Settings
from steadyarm.live.verdict import Decision, Verdict, compute_verdict
from steadyarm.storages.records import AuditEntry, ExperimentHead, to_datetime

if TYPE_CHECKING:
    from steadyarm.live.results import LiveResults

LEVEL = 0.95  # at which tests stop
ITSELF = "the test itself"  # who stopped it, in the audit log
DAY = 86_400_000_000  # microseconds
WEEK = 7 * DAY


@dataclass(frozen=True)
class InterimAnalysis:
    """One look at a test.

    Attributes
    ----------
    number : of the planned looks, from 1; daily and weekly ones are counted as they are taken
    pieces : how many segments it rests on, from the first one on
    visits : assignments in these
    last : when the last of them was made, in microseconds since 1970; None without a clock
    """

    number: int
    pieces: int
    visits: int
    last: int | None


@dataclass(frozen=True)
class EarlyStop:
    """The stop of a test by itself.

    Attributes
    ----------
    look : number of the look that decided it
    segment : index of the last segment that this look rests on
    reason : the finding, in a sentence
    when : microseconds since 1970; None without a clock
    guardrails : index of the last segment that each guardrail was judged on, by its name
    """

    look: int
    segment: int
    reason: str
    when: int | None = None
    guardrails: Mapping[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Numbers and texts, as the audit log and the JSON of sessions keep them."""
        detail = {"look": self.look, "segment": self.segment, "reason": self.reason}
        return detail | ({"guardrails": dict(self.guardrails)} if self.guardrails else {})

    def of_metric(self, name: str) -> EarlyStop:
        """The same with the last segment that a further metric rests on, as at the stop."""
        return replace(self, segment=self.guardrails.get(name, self.segment))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], when: int | None = None) -> EarlyStop:
        """What `to_dict` wrote."""
        look, segment, reason = int(data["look"]), int(data["segment"]), str(data["reason"])
        return cls(look, segment, reason, when, data.get("guardrails", {}))


@dataclass(frozen=True)
class InterimResult:
    """The result of one look.

    Attributes
    ----------
    number : the number of the look, from 1
    visits, share : that it rests on, and as a share of the budget
    when : the last of these visits was assigned; None without a clock
    boundary : standard errors that decide; None if the look was too early to decide anything
    reached : standard errors that were seen, of what was nearest to its boundary: the lead of the
        best variant over the nearest other one or, with a control, over that
    """

    number: int
    visits: int
    share: float
    when: datetime | None
    boundary: float | None
    reached: float


@dataclass(frozen=True)
class StopReport:
    """The progress of a test that may stop early.

    Attributes
    ----------
    rule : "when sure" if the test stops itself, "recommend" if it only says so
    spending : how the error probability is spent
    planned : number of looks; None if they are taken daily or weekly
    looks : results of the looks so far
    recommended : whether the last of them decides, so that the test should be stopped; False at
        its end, and while a guardrail forbids what was decided
    stopped : whether the test stopped itself
    when : it did; None if it did not, or has no clock
    reason : the result of the last look, in a sentence; empty if it decides nothing
    ahead : the visits of the next look, in a sentence; empty if none follows
    """

    rule: str
    spending: str
    planned: int | None
    looks: tuple[InterimResult, ...] = ()
    recommended: bool = False
    stopped: bool = False
    when: datetime | None = None
    reason: str = ""
    ahead: str = ""

    @property
    def text(self) -> str:
        """The same in a sentence."""
        of = "" if self.planned is None else f" of {self.planned}"
        if not self.looks:
            return f"No interim analysis{of} was made yet. {self.ahead}".rstrip()
        at = f"interim analysis {self.looks[-1].number}{of}"
        if self.stopped:
            day = "" if self.when is None else f" on {self.when:%A %d %b %Y}"
            return f"Stopped{day} at {at}: {self.reason}"
        if self.recommended:
            return f"Stop the test: {at} decided it."
        if self.reason:
            return f"{at.capitalize()} decided: {self.reason}"
        return f"{at.capitalize()}: no decision. {self.ahead}".rstrip()


def list_looks(
    settings: Settings, pieces: Sequence[SegmentLedger], over: bool
) -> list[InterimAnalysis]:
    """The looks at a test that have been taken; none before a twentieth of the budget.

    A look is taken at the end of the first segment that reaches the next share of the budget, or
    the next midnight or whole week since the first assignment; at most one in every sixtieth of
    the budget.

    Parameters
    ----------
    pieces : ledgers of the segments that can be judged, a prefix of the test
    over : whether the test has been played to its end, which is a look, too
    """
    looks: list[InterimAnalysis] = []
    visits, passed, last = 0, 0, None
    began = next((piece.opened for piece in pieces if piece.opened is not None), None)
    for count, piece in enumerate(pieces, start=1):
        visits += piece.used + int(piece.excluded.sum())
        if piece.last is not None:
            last = piece.last if last is None else max(last, piece.last)
        reached = _count_due_looks(settings, visits, began, last)
        if reached <= passed:
            continue
        passed = reached
        before = looks[-1].visits if looks else 0
        near = (visits - before) * MOST_LOOKS < settings.budget
        if visits >= FIRST_LOOK * settings.budget and not near:
            number = reached if isinstance(settings.looks, int) else len(looks) + 1
            looks.append(InterimAnalysis(number, count, visits, last))
    if over and pieces and not (looks and looks[-1].pieces == len(pieces)):
        number = settings.looks if isinstance(settings.looks, int) else len(looks) + 1
        looks.append(InterimAnalysis(number, len(pieces), visits, last))
    return looks


def next_look(
    settings: Settings, looks: Sequence[InterimAnalysis], pieces: Sequence[SegmentLedger]
) -> tuple[int, int | None] | None:
    """About how many visits the next look rests on, and until when; None if that is not known.

    Visits until a time are those of the pace so far.

    pieces : as for `list_looks`
    """
    first = ceil(FIRST_LOOK * settings.budget)
    if isinstance(settings.looks, int):
        number = looks[-1].number + 1 if looks else 1
        return min(
            max(ceil(number * settings.budget / settings.looks), first), settings.budget
        ), None
    times = [piece.opened for piece in pieces[:1]] + [piece.last for piece in pieces]
    known = [time for time in times if time is not None]
    if not known or max(known) == known[0]:
        return None
    began, last = known[0], max(known)
    seen = began if not looks or looks[-1].last is None else looks[-1].last
    until = (seen // DAY + 1) * DAY
    if settings.looks == "weekly":
        until = began + ((seen - began) // WEEK + 1) * WEEK
    pace = sum(piece.used for piece in pieces) / (last - began)
    return min(max(round(pace * (until - began)), first), settings.budget), until


def _count_due_looks(settings: Settings, visits: int, began: int | None, last: int | None) -> int:
    """The number of looks that are due after so many visits."""
    if isinstance(settings.looks, int):
        return visits * settings.looks // settings.budget
    if began is None or last is None:
        return 0
    if settings.looks == "daily":
        return last // DAY - began // DAY
    return (last - began) // WEEK


def find_early_stop(
    history: Callable[[str], Iterable[AuditEntry]], settings: Settings, head: ExperimentHead
) -> EarlyStop | None:
    """Find in the audit log that an experiment stopped itself; None if it did not.

    history : reads the entries about the experiment of a name, such as `Storage.history`
    """
    if settings.stop != "when sure" or head.state not in ("stopped", "archived"):
        return None
    entries = [entry for entry in history(head.name) if entry.action == "experiment.stopped"]
    if not entries or "look" not in entries[-1].detail:
        return None
    return EarlyStop.from_dict(entries[-1].detail, entries[-1].created)


# The verdict at the last interim analysis, and whether the test stops there


def verdict_at_look(results: LiveResults, metrics: tuple[MetricResult, ...] = ()) -> Verdict:
    """The verdict at the last look; before the first one estimates without limits.

    metrics : results of secondary metrics, whose guardrails have a say in the decision
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
    schedule = schedule_looks(settings, looks, pieces, evidence, over)
    verdict = compute_verdict(
        settings,
        results.state_so_far(),
        evidence,
        LEVEL,
        anytime=True,
        as_policy=results.as_policy(pieces),
        looks=schedule,
    )
    if settings.covariates:
        verdict = replace(verdict, **there.beside(verdict))
    verdict = results.with_visits(verdict, pieces, LEVEL, watched=True)
    ahead = None if results.ended or over else next_look(settings, looks, results.mature)
    soonest = 0 if ahead is None else max(ahead[0] - verdict.judged, 0)
    plain, decision = (results.decide(verdict, judged, soonest) for judged in ((), metrics))
    decides = clear = bool(looks) and plain.word in ("ship", "keep")
    if evidence.arms.large:
        control = [] if settings.control is None else [settings.arms.index(settings.control)]
        evidence, _ = shortlist(evidence, also=control)
    sequence = ConfidenceSequence(evidence, settings.budget, None, schedule)
    if looks and not verdict.unhealthy and not clear and _is_futile(settings, sequence):
        assert settings.futility is not None
        least = settings.format_value(settings.futility)
        why = f"no variant can any longer be shown to differ by {least}"
        decision = plain = Decision("unclear", f"No clear winner: {why}.")
        decides = True
    verdict = replace(verdict, decision=decision, metrics=metrics)
    report = StopReport(
        rule=settings.stop or "",
        spending=settings.spending or "",
        planned=settings.looks if isinstance(settings.looks, int) else None,
        looks=_look_results(settings, looks, pieces, sequence),
        recommended=decides and decision == plain and not over,
        reason=decision.text if decides else "",
        ahead="" if ahead is None else _describe_next(*ahead),
    )
    if (stopped := results.stopped) is not None:
        when = None if stopped.when is None else to_datetime(stopped.when)
        report = replace(
            report, recommended=False, stopped=True, when=when, reason=stopped.reason, ahead=""
        )
    return replace(verdict, stopping=report)


def _describe_next(visits: int, until: int | None) -> str:
    """Describe the visits of the next interim analysis."""
    if until is None:
        return f"The next interim analysis is on the first {visits:,} visits."
    return f"The next interim analysis is on visits until {to_datetime(until):%A %d %b, %H:%M} UTC."


def stop_now(
    results: LiveResults, metrics: tuple[MetricResult, ...] = ()
) -> tuple[EarlyStop | None, bool]:
    """The reason to stop a test at its last look; None if it goes on.

    Also whether that look is done with: it is not if only a guardrail or a health check kept the
    test from stopping, since these may be fine a little later.
    """
    verdict = verdict_at_look(results, metrics)
    report = verdict.stopping
    if report is None or not report.recommended:
        return None, not verdict.unhealthy and (report is None or not report.reason)
    last = results.looks[-1]
    segment = results.mature[last.pieces - 1].index
    guardrails = {
        metric.name: metric.segment
        for metric in metrics
        if metric.metric.role == "guardrail" and metric.segment is not None
    }
    return EarlyStop(last.number, segment, report.reason, guardrails=guardrails), True


def _look_results(
    settings: Settings,
    looks: Sequence[InterimAnalysis],
    pieces: Sequence[SegmentLedger],
    sequence: ConfidenceSequence,
) -> tuple[InterimResult, ...]:
    """The results of each look."""
    brought = np.cumsum([bool(piece.recorded) for piece in pieces])
    results = []
    for look in looks:
        j = int(brought[look.pieces - 1]) - 1
        boundary, reached = (None, 0.0) if j < 0 else _extent(settings, sequence, j)
        when = None if look.last is None else to_datetime(look.last)
        share = look.visits / settings.budget
        results.append(InterimResult(look.number, look.visits, share, when, boundary, reached))
    return tuple(results)


def _extent(settings: Settings, sequence: ConfidenceSequence, j: int) -> tuple[float | None, float]:
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
        return None, 0.0
    ways = [((1 - LEVEL) / 2, leads[others].min())]
    if settings.control is not None and others[row := arms.index(settings.control)]:
        ways.append(((1 - LEVEL) / (2 * max(sequence.evidence.family - 1, 1)), leads[row]))
    ways_reached = [(float(sequence.factor(j, alpha)[0, 0]), float(lead)) for alpha, lead in ways]
    boundary, reached = max(ways_reached, key=lambda way: way[1] / way[0])
    return (None if boundary > 1e9 else boundary), reached


def _is_futile(settings: Settings, sequence: ConfidenceSequence) -> bool:
    """Whether nothing that matters can be decided any more, at the last look."""
    j = sequence.rounds.shape[1] - 1
    if settings.futility is None or sequence.looks_at(j)[0] < 0:
        return False
    arms = sequence.evidence.arms
    control = None if settings.control is None else arms.index(settings.control)
    return bool(futile_at(sequence, j, LEVEL, settings.futility, control)[0])


def schedule_looks(
    settings: Settings,
    looks: Sequence[InterimAnalysis],
    pieces: Sequence[SegmentLedger],
    evidence: Evidence,
    over: bool,
) -> Looks:
    """The looks as intervals need them: shares of the budget that were judged at each.

    pieces : as for `list_looks`; evidence : of those of them that brought rewards
    """
    brought = np.cumsum([bool(piece.recorded) for piece in pieces])
    rounds = np.cumsum(evidence.rounds[0])
    ends = sorted({int(brought[look.pieces - 1]) for look in looks} - {0})
    shares = tuple(float(rounds[end - 1] / settings.budget) for end in ends)
    assert settings.spending is not None
    return Looks(shares, settings.spending, over)
