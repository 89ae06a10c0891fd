"""Looking at a live test: everything that people see of it, from sums alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from steadyarm.answers import Status, moment
from steadyarm.decisions import state_of
from steadyarm.errors import RewardsPendingError
from steadyarm.experiment import Experiment
from steadyarm.inference import DriftReport
from steadyarm.inference.shortlist import SHORT
from steadyarm.judgement import Judgement
from steadyarm.judging import health_of, judge, judge_days, rewards_until, status_of
from steadyarm.looks.course import LEVEL, course_of, shares_of
from steadyarm.looks.days import drift_by_day, expected_end, waiting_of
from steadyarm.looks.effects import effects_of, has_effects
from steadyarm.looks.headline import Told, announcement, headline
from steadyarm.looks.look import Course, Effects, Look
from steadyarm.settings import Settings
from steadyarm.storages.records import Snapshot
from steadyarm.verdict import Verdict

__all__ = ["look_at"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

PERIODS = 4  # of tests that last for less than two days


def look_at(experiment: Experiment, level: float = LEVEL) -> Look:
    """The test as it is now; reads sums, never the log.

    Of a large set of variants a short list is shown, as the verdict has it.

    Intervals hold at all looks at once, in large samples; those of a test that was played to its
    end are those of one look.

    Examples
    --------
    >>> import steadyarm as sa
    >>> rules = {"reward_window": "1d", "missing": "zero"}  # no click within a day counts as 0
    >>> test = sa.create_experiment("button", ["A", "B"], sa.Steady(), 500, "memory", **rules)
    >>> look_at(test).headline
    'Waiting for the first of 500 visits to 2 variants.'
    """
    storage, settings, now = experiment.storage, experiment.settings, experiment.now()
    snapshot = storage.snapshot(experiment.key, everything=True)
    days = storage.days(experiment.key)
    status = status_of(settings, snapshot, storage.leases(experiment.key))
    whole, spans = judge(settings, snapshot, now, strict=False), _spans(snapshot)
    started = min((start for start, _ in spans.values()), default=None)
    waiting = waiting_of(days) if days else None
    policy_ended = _has_chosen(settings, snapshot)
    left, end = status.budget - status.handed, None
    runs = status.state == "running" and left > 0 and not policy_ended
    if waiting is not None and started is not None and runs:
        end = expected_end(waiting, started, moment(now), left)
    judgement, verdict, obstacle = _judged(settings, snapshot, now, level)
    course = effects = drift = None
    by_day = False
    unbiased = settings.policy.unbiased
    if unbiased and judgement is not None and verdict is not None and judgement.judged():
        course = course_of(judgement, settings.budget, spans, level, settings.reward_range)
        _end_with(course, verdict, settings.arms.names)
        effects = _effects(judgement, level, verdict.arm)
        # the days may be a moment younger than the segments, so nothing is demanded of them
        drift = drift_by_day(*judge_days(settings, snapshot, days, now, strict=False), level)
        by_day = drift is not None
        drift = _alarmed(drift, judgement, level)
    health = health_of(whole, snapshot, days) if whole.pieces else None
    if verdict is not None and health is not None:
        verdict = replace(verdict, unhealthy=health.unhealthy)
    open_until = rewards_until(settings, snapshot, now)
    until = None if open_until is None else moment(open_until)
    stuck = settings.policy.waits and any(p.exhausted and p.waiting for p in whole.pieces)
    needs_stop = (
        (left <= 0 or (stuck and settings.window is None))
        and until is None
        and not whole.ended
        and settings.missing != "fail"
    )
    shown = _shown(settings, status, verdict)
    look = Look(
        name=experiment.name,
        seen=moment(now),
        settings=settings,
        status=status,
        started=started,
        last=max((last for _, last in spans.values()), default=None),
        expected_end=end,
        policy_ended=policy_ended,
        rewards_until=until,
        headline="",
        announcement="",
        verdict=verdict,
        obstacle=obstacle,
        course=course,
        shares=shares_of(settings.arms.names, whole.pieces, spans) if whole.pieces else None,
        drift=drift,
        by_day=by_day,
        health=health,
        effects=effects,
        waiting=waiting,
        shown=shown,
        planned=_planned(whole, shown) if whole.pieces else None,
        needs_stop=needs_stop,
        corrections=tuple(experiment.corrections()),
    )
    labels = dict(zip(look.names, look.labels, strict=True))
    told = Told(
        labels,
        status,
        verdict,
        obstacle,
        policy_ended,
        until,
        drift,
        by_day,
        health,
        look.size,
        needs_stop,
    )
    return replace(look, headline=headline(told), announcement=announcement(told))


def _shown(settings: Settings, status: Status, verdict: Verdict | None) -> Integers | None:
    """Of a large set those on the verdict's short list, else those handed out most often."""
    if not settings.arms.large:
        return None
    if verdict is not None:
        return verdict.shown
    arms = range(settings.arms.size) if status.arms is None else status.arms
    pairs = sorted(zip(status.assigned, arms, strict=True), key=lambda pair: (-pair[0], pair[1]))
    found = [k for _, k in pairs[:SHORT]] or list(range(SHORT))
    return np.array(sorted(found), dtype=np.int64)


def _planned(whole: Judgement, shown: Integers | None) -> Floats:
    """Shares with which the variants shown are handed out in the last piece."""
    segment = whole.pieces[-1].segment
    if segment.arms is None:
        return np.asarray(segment.weights[0] if shown is None else segment.weights[0][shown])
    assert shown is not None
    place = np.minimum(np.searchsorted(segment.arms, shown), segment.columns - 1)
    return np.where(segment.arms[place] == shown, segment.weights[0][place], 0.0)


def _spans(snapshot: Snapshot) -> dict[int, tuple[datetime, datetime]]:
    """When the first and the last of each segment was handed out; of those that were."""
    return {
        record.index: (moment(record.opened), moment(tally.last))
        for record, tally in snapshot.segments
        if tally.last is not None
    }


def _has_chosen(settings: Settings, snapshot: Snapshot) -> bool:
    """Whether a policy of epochs is done, which may be some visits before the budget is spent."""
    if not settings.policy.waits or not snapshot.segments:
        return False
    if any(record.closed is None for record, _ in snapshot.segments):
        return False
    state = state_of(settings, snapshot.experiment.policy_state)
    return settings.policy.next_segment(state) is None


def _judged(
    settings: Settings, snapshot: Snapshot, now: int, level: float
) -> tuple[Judgement | None, Verdict | None, str]:
    """The judgement and its verdict, or why there is none."""
    try:
        judgement = judge(settings, snapshot, now)
    except RewardsPendingError as error:
        return None, None, f"{error}".partition(", and")[0] + ", so there is no verdict."
    if not judgement.judged():
        if not any(tally.told for _, tally in snapshot.segments):
            return None, None, "no reward has come yet, so nobody leads."
        return None, None, _too_early(settings, snapshot, judgement)
    return judgement, _within(judgement.recommend(level), settings), ""


def _too_early(settings: Settings, snapshot: Snapshot, judgement: Judgement) -> str:
    """Why no visit can be judged yet, and from when on some can be."""
    open_ones = {p.index for p in judgement.pieces if not (p.observed or p.complete)}
    record, tally = next(
        (pair for pair in snapshot.segments if pair[0].index in open_ones), snapshot.segments[0]
    )
    if not tally.waiting and tally.handed_out < record.rounds:
        return f"the first verdict comes after {record.rounds:,} visits."
    waiting = f"{tally.waiting:,} of {tally.handed_out:,} visits"
    text = f"no visit can be judged yet, since {waiting} at the beginning wait for their rewards"
    if settings.patience is None or settings.missing == "fail" or tally.last is None:
        return f"{text}."
    return (
        f"{text}; they may come until {moment(tally.last + settings.patience):%A %d %b, %H:%M} UTC."
    )


def _end_with(course: Course, verdict: Verdict, names: Sequence[str]) -> None:
    """Let a course end with the verdict: of equal estimates the policy chooses, and intervals of
    a test that was played to its end are narrower.
    """
    rows = np.arange(len(course.names))
    if verdict.shown is not None:
        if verdict.name not in course.names:
            return  # the policy prefers another one of very near ones
        places = {names[k]: row for row, k in enumerate(verdict.shown.tolist())}
        rows = np.array([places[name] for name in course.names])
    course.leaders[-1] = int(np.flatnonzero(rows == verdict.row)[0])
    if not verdict.anytime:
        course.low[-1], course.high[-1] = verdict.intervals[rows].T
        alive = set(verdict.plausible)
        course.plausible[-1] = [name in alive for name in course.names]
        if course.others is not None:
            course.others[-1] = verdict.possible - int(course.plausible[-1].sum())


def _within(verdict: Verdict, settings: Settings) -> Verdict:
    """Means of rewards lie where rewards lie."""
    if settings.reward_range is None:
        return verdict
    limits = verdict.intervals
    inside = np.where(np.isfinite(limits), np.clip(limits, *settings.reward_range), limits)
    return replace(verdict, intervals=inside)


def _effects(judgement: Judgement, level: float, arm: int) -> Effects | None:
    if not has_effects(judgement.arms):
        return None
    return effects_of(judgement.evidence(), level=level, arm=arm)


def _alarmed(by_day: DriftReport | None, judgement: Judgement, level: float) -> DriftReport | None:
    """The report by day, else by shares; whether anything moves is tested in one way for both."""
    report = judgement.drift(PERIODS, level)
    if by_day is None:
        return report if len(report.periods) > 1 else None
    return replace(
        by_day,
        gap_p_value=report.gap_p_value,
        level_p_value=report.level_p_value,
        looks=report.looks,
    )
