"""scorecard_of: a live test as people see it, from the sums that storages keep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms.generated import walsh_of
from steadyarm.errors import RewardsPendingError
from steadyarm.inference import DriftReport, drift_report
from steadyarm.inference.limits import SHORT, evenly_spaced
from steadyarm.inference.sequences import confidence_path
from steadyarm.live.breakdowns import Breakdown, breakdown_of
from steadyarm.live.decisions import SegmentLedger, stored_state
from steadyarm.live.effects import effects_of, has_effects
from steadyarm.live.estimates import MetricResult
from steadyarm.live.experiment import Experiment
from steadyarm.live.measured import metric_results
from steadyarm.live.results import (
    LiveResults,
    Status,
    level_on_the_way,
    results_by_day,
    results_of,
    rewards_until,
    status_of,
    with_outlier,
)
from steadyarm.live.scorecard import (
    Course,
    Effects,
    Scorecard,
    Shares,
    Waiting,
    announcement,
    headline,
)
from steadyarm.live.settings import Settings
from steadyarm.live.stopping import LEVEL, schedule_of, stopped_in
from steadyarm.live.verdict import Verdict
from steadyarm.storages.records import DaySums, SeriesSums, Snapshot, to_datetime
from steadyarm.wording import counted

__all__ = ["LEVEL", "course_of", "expected_end", "scorecard_of", "shares_of", "waiting_of"]

LOOKS, FEWER, MANY = 60, 16, 64  # looks of a course; fewer where there are many variants
WORK = 5e8  # arms times squared parameters up to which every look goes through all arms
TOO_MANY = 2**12  # variants for a share of each
MOST_SHARES = 40  # variants of so many that have a share of their own
TURN = 0.02  # share of the traffic that has to move before it is a change of mind

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Spans = Mapping[int, tuple[datetime, datetime]]  # first and last assignment, by segment


def course_of(
    results: LiveResults,
    budget: int,
    spans: Spans | None = None,
    level: float = LEVEL,
) -> Course:
    """Estimates at up to 60 moments, with intervals that hold at all of them at once.

    Parameters
    ----------
    spans : times of the first and the last assignment, by the index of the segment
    """
    evidence, pieces = results.evidence, results.judged()
    arms = evidence.arms
    at = evenly_spaced(len(pieces), LOOKS if arms.size <= MANY else FEWER)
    quick = walsh_of(arms.rows) is not None or arms.size * arms.rank**2 <= WORK
    counts = arms.large and quick
    used, schedule = level_on_the_way(level), None
    if results.settings.stop is not None:  # limits are those of the looks
        used, looks = level, results.looks
        over = results.final
        schedule = schedule_of(results.settings, looks, results.mature, evidence, over)
        brought = np.cumsum([bool(piece.recorded) for piece in results.mature])
        taken = sorted({int(brought[look.pieces - 1]) - 1 for look in looks} - {-1})
        at = np.array(taken) if taken else at
    path = confidence_path(evidence, budget, used, at=at, count_all=counts, looks=schedule)
    times, clip = None, results.settings.primary.clip
    if spans is not None:
        ends = list(accumulate((spans[piece.index][1] for piece in pieces), max))
        times = tuple(ends[j] for j in at)
    return Course(
        names=path[0].arms.names,
        times=times,
        rounds=np.array([look.rounds[0] for look in path]),
        estimates=np.array([look.estimates[0] for look in path]),
        low=clip(np.array([look.low[0] for look in path])),
        high=clip(np.array([look.high[0] for look in path])),
        leaders=np.array([look.recommended[0] for look in path]),
        plausible=np.array([look.plausible[0] for look in path]),
        level=level,
        size=arms.size if arms.large else 0,
        others=np.array([look.others for look in path]) if counts else None,
    )


def shares_of(
    names: Sequence[str], pieces: Sequence[SegmentLedger], spans: Spans | None = None
) -> Shares:
    """How variants were assigned, from pieces with an assignment."""
    planned, given, rest = _columns(pieces)
    moved = np.abs(np.diff(planned, axis=0)).sum(axis=1) / 2
    shown: Sequence[str] = names
    if rest is not None:
        planned, given, shown = _most_frequent(names, planned, given, rest)
    between = None if spans is None else [spans[piece.index] for piece in pieces]
    return Shares(
        names=shown,
        starts=None if between is None else tuple(start for start, _ in between),
        ends=None if between is None else tuple(end for _, end in between),
        rounds=np.array([piece.assigned.sum() for piece in pieces]),
        planned=planned,
        given=given,
        turns=np.concatenate([[False], moved > TURN]),
        rest=0 if rest is None else max(len(rest) - MOST_SHARES, 0),
    )


def _columns(pieces: Sequence[SegmentLedger]) -> tuple[Floats, Integers, Integers | None]:
    """(J, U) planned shares and counts, and which arms of a large set the columns are."""
    lists = [piece.segment.arms for piece in pieces]
    played = [arms for arms in lists if arms is not None]
    if len(played) < len(lists):
        planned = np.array([piece.segment.weights[0] for piece in pieces])
        every = np.arange(planned.shape[1], dtype=np.int64) if planned.shape[1] > TOO_MANY else None
        return planned, np.array([piece.assigned for piece in pieces]), every
    arms = np.unique(np.concatenate(played))
    planned = np.zeros((len(pieces), arms.size))
    given = np.zeros(planned.shape, dtype=np.int64)
    for j, piece in enumerate(pieces):
        at = np.searchsorted(arms, played[j])
        planned[j, at], given[j, at] = piece.segment.weights[0], piece.assigned
    return planned, given, arms


def _most_frequent(
    names: Sequence[str], planned: Floats, given: Integers, arms: Integers
) -> tuple[Floats, Integers, tuple[str, ...]]:
    """The columns of those assigned most often, and one for all others."""
    order = np.lexsort((-given.sum(axis=0), -planned[-1].round(4)))
    top, rest = np.sort(order[:MOST_SHARES]), order[MOST_SHARES:]
    shown = tuple(names[k] for k in arms[top].tolist())
    if not rest.size:
        return planned[:, top], given[:, top], shown
    return (
        np.column_stack([planned[:, top], planned[:, rest].sum(axis=1)]),
        np.column_stack([given[:, top], given[:, rest].sum(axis=1)]),
        (*shown, counted(rest.size, "other variant")),
    )


HOUR = 3_600_000  # milliseconds
PACE = 7  # days from which the present pace is computed
FEW = 20  # visits in these below which no pace is known


def date_of(day: int) -> date:
    """The date of a day counted from 1970."""
    return date(1970, 1, 1) + timedelta(days=day)


def drift_by_day(results: LiveResults, days: Sequence[int], level: float) -> DriftReport | None:
    """The drift report with a period for each day; None if there are fewer than two.

    results : of pieces that do not cross midnight
    days : the day of each piece, by its index
    """
    labels = [date_of(days[piece.index]).isoformat() for piece in results.judged()]
    if len(set(labels)) < 2:
        return None
    return drift_report(results.evidence, labels, level)


def waiting_of(sums: Iterable[DaySums]) -> Waiting:
    """Rewards by the day of their assignment."""
    found: dict[int, NDArray[np.int64]] = {}
    for part in sums:
        row = found.setdefault(part.day, np.zeros(4, dtype=np.int64))
        tally = part.tally.counted()
        row += (tally.total_assigned, tally.total_rewarded, sum(part.late), sum(part.waited))
    days = sorted(found)
    assigned, rewarded, late, waited = np.array([found[day] for day in days]).T
    hours = np.where(rewarded > 0, waited / np.maximum(rewarded, 1) / HOUR, np.nan)
    return Waiting(tuple(map(date_of, days)), assigned, rewarded, late, hours)


def expected_end(waiting: Waiting, started: datetime, now: datetime, left: int) -> datetime | None:
    """When the budget will be spent at the pace of the last days; None if no pace is known.

    Examples
    --------
    >>> days = tuple(date(2026, 11, day) for day in (13, 14))
    >>> none = np.zeros(2, dtype=np.int64)
    >>> waiting = Waiting(days, np.array([600, 1200]), none, none, np.zeros(2))
    >>> began, now = datetime(2026, 11, 13, 12, tzinfo=UTC), datetime(2026, 11, 15, tzinfo=UTC)
    >>> expected_end(waiting, began, now, left=2400).isoformat()
    '2026-11-17T00:00:00+00:00'
    """
    first = now.date() - timedelta(days=PACE)
    pairs = zip(waiting.days, waiting.assigned, strict=True)
    recent = sum(int(assigned) for day, assigned in pairs if day >= first)
    since = max(started, datetime(first.year, first.month, first.day, tzinfo=UTC))
    if recent < FEW or now <= since:
        return None
    try:
        return now + (now - since) * (left / recent)
    except OverflowError:
        return None


PERIODS = 4  # of tests that last for less than two days


def scorecard_of(experiment: Experiment, level: float = LEVEL) -> Scorecard:
    """The test as it is now; reads sums, and of the log only the largest reward.

    Of a large set of variants a short list is shown, as the verdict has it.

    Intervals hold at all times at once, in large samples; those of a test that was played to its
    end are those of a single analysis.

    Examples
    --------
    >>> import steadyarm as sa
    >>> rules = {"reward_window": "1d", "missing": "zero"}  # no click within a day counts as 0
    >>> test = sa.create_experiment("button", ["A", "B"], sa.Steady(), 500, "memory", **rules)
    >>> scorecard_of(test).headline
    'Waiting for the first of 500 visits to 2 variants.'
    """
    storage, settings, now = experiment.storage, experiment.settings, experiment.now()
    snapshot = storage.snapshot(experiment.key, everything=True)
    days = storage.days(experiment.key)
    status = status_of(settings, snapshot)
    stopped = stopped_in(storage.history, settings, snapshot.experiment)
    results = results_of(settings, snapshot, days, now, stopped=stopped)
    spans = _spans(snapshot)
    started = min((start for start, _ in spans.values()), default=None)
    waiting = waiting_of(days) if days else None
    policy_ended = _has_chosen(settings, snapshot)
    left, end = status.budget - status.total_assigned, None
    runs = status.state == "running" and left > 0 and not policy_ended
    if waiting is not None and started is not None and runs:
        end = expected_end(waiting, started, to_datetime(now), left)
    metrics: tuple[MetricResult, ...] = ()
    at_stop = metrics
    series = storage.series(experiment.key) if settings.further or settings.attributes else ()
    if settings.further:
        metrics = at_stop = metric_results(settings, snapshot, series, now, level, stopped=stopped)
        if settings.stop is not None and level != LEVEL:
            at_stop = metric_results(settings, snapshot, series, now, LEVEL, stopped=stopped)
    verdict, obstacle = _verdict(results, snapshot, level, metrics, at_stop)
    drift, by_day = None, False
    if verdict is not None and settings.policy.unbiased:
        drift = drift_by_day(*results_by_day(results, snapshot, days), level)
        by_day = drift is not None
        drift = _alarmed(drift, results, level)
    open_until = rewards_until(settings, snapshot, now)
    until = None if open_until is None else to_datetime(open_until)
    stuck = settings.policy.waits and any(p.exhausted and p.waiting for p in results.pieces)
    needs_stop = (
        (left <= 0 or (stuck and settings.window is None))
        and until is None
        and not results.ended
        and settings.missing != "fail"
    )
    shown = _shown(settings, status, verdict)
    health = None
    if results.pieces:
        extreme = None if results.clicks else storage.extreme(experiment.key)
        health = with_outlier(results, extreme)
    card = Scorecard(
        name=experiment.name,
        seen=to_datetime(now),
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
        drift=drift,
        by_day=by_day,
        health=health,
        waiting=waiting,
        shown=shown,
        planned=_planned(results, shown) if results.pieces else None,
        needs_stop=needs_stop,
        corrections=tuple(experiment.corrections()),
        sections=StoredSections(results, snapshot, series, spans, level, verdict),
    )
    return replace(card, headline=headline(card), announcement=announcement(card))


@dataclass(frozen=True)
class StoredSections:
    """Sections of the scorecard of a stored test; see `Scorecard`."""

    results: LiveResults
    snapshot: Snapshot
    series: Sequence[SeriesSums]
    spans: Spans
    level: float
    verdict: Verdict | None

    @property
    def _told(self) -> Verdict | None:
        """The verdict, if estimates are unbiased on the way."""
        return self.verdict if self.results.settings.policy.unbiased else None

    def course(self) -> Course | None:
        """What one would have seen at earlier times."""
        settings = self.results.settings
        if self._told is None:
            return None
        course = course_of(self.results, settings.budget, self.spans, self.level)
        _end_with(course, self._told, settings.arms.names)
        return course

    def shares(self) -> Shares | None:
        """Shares of the variants by segment."""
        results = self.results
        if not results.pieces:
            return None
        return shares_of(results.settings.arms.names, results.pieces, self.spans)

    def effects(self) -> Effects | None:
        """Effects of factors or items."""
        if self._told is None or not has_effects(self.results.settings.arms):
            return None
        return effects_of(self.results.evidence, level=self.level, arm=self._told.arm)

    def people(self) -> tuple[Breakdown, ...]:
        """Results by level of each attribute."""
        settings = self.results.settings
        if self._told is None or settings.arms.large:
            return ()
        against = settings.control or self._told.name
        return tuple(
            breakdown_of(self.results, self.snapshot, self.series, name, against, self.level)
            for name in settings.attributes
        )


def _shown(settings: Settings, status: Status, verdict: Verdict | None) -> Integers | None:
    """Of a large set those on the verdict's short list, else those assigned most often."""
    if not settings.arms.large:
        return None
    if verdict is not None:
        return verdict.shown
    arms = range(settings.arms.size) if status.arms is None else status.arms
    pairs = sorted(zip(status.assigned, arms, strict=True), key=lambda pair: (-pair[0], pair[1]))
    found = [k for _, k in pairs[:SHORT]] or list(range(SHORT))
    return np.array(sorted(found), dtype=np.int64)


def _planned(results: LiveResults, shown: Integers | None) -> Floats:
    """Shares with which the variants shown are assigned in the last piece."""
    segment = results.pieces[-1].segment
    if segment.arms is None:
        return np.asarray(segment.weights[0] if shown is None else segment.weights[0][shown])
    assert shown is not None
    place = np.minimum(np.searchsorted(segment.arms, shown), segment.columns - 1)
    return np.where(segment.arms[place] == shown, segment.weights[0][place], 0.0)


def _spans(snapshot: Snapshot) -> dict[int, tuple[datetime, datetime]]:
    """First and last assignment of each segment that has one."""
    return {
        record.index: (to_datetime(record.opened), to_datetime(tally.last))
        for record, tally in snapshot.segments
        if tally.last is not None
    }


def _has_chosen(settings: Settings, snapshot: Snapshot) -> bool:
    """Whether a policy of epochs is done, which may be some visits before the budget is spent."""
    if not settings.policy.waits or not snapshot.segments:
        return False
    if any(record.closed is None for record, _ in snapshot.segments):
        return False
    state = stored_state(settings, snapshot.experiment.policy_state)
    return settings.policy.next_segment(state) is None


def _verdict(
    results: LiveResults,
    snapshot: Snapshot,
    level: float,
    metrics: tuple[MetricResult, ...],
    at_stop: tuple[MetricResult, ...],
) -> tuple[Verdict | None, str]:
    """The verdict, or why there is none; metrics as for `LiveResults.recommend`."""
    try:
        results.check_complete()
    except RewardsPendingError as error:
        return None, f"{error}".partition(", and")[0] + ", so there is no verdict."
    if results.tells:
        return results.recommend(level, metrics=metrics, at_stop=at_stop), ""
    if results.judged():
        return None, results.silence(results.mature)
    if not any(tally.total_rewarded for _, tally in snapshot.segments):
        return None, "no reward has come yet, so nobody leads."
    return None, _too_early(results, snapshot)


def _too_early(results: LiveResults, snapshot: Snapshot) -> str:
    """Why no visit can be judged yet, and from when on some can be."""
    settings = results.settings
    open_ones = {p.index for p in results.pieces if not (p.observed or p.complete)}
    record, tally = next(
        (pair for pair in snapshot.segments if pair[0].index in open_ones), snapshot.segments[0]
    )
    if not tally.waiting and tally.total_assigned < record.rounds:
        return f"the first verdict comes after {record.rounds:,} visits."
    waiting = f"{tally.waiting:,} of {tally.total_assigned:,} visits"
    text = f"no visit can be judged yet, since {waiting} at the beginning wait for their rewards"
    if settings.patience is None or settings.missing == "fail" or tally.last is None:
        return f"{text}."
    until = to_datetime(tally.last + settings.patience)
    return f"{text}; they may come until {until:%A %d %b, %H:%M} UTC."


def _end_with(course: Course, verdict: Verdict, names: Sequence[str]) -> None:
    """Let a course end with the verdict: of equal estimates the policy chooses, and intervals of
    a test that was played to its end, or may stop early, are narrower.
    """
    rows = np.arange(len(course.names))
    if verdict.shown is not None:
        if verdict.name not in course.names:
            return  # the policy prefers another one of very near ones
        places = {names[k]: row for row, k in enumerate(verdict.shown.tolist())}
        rows = np.array([places[name] for name in course.names])
    course.leaders[-1] = int(np.flatnonzero(rows == verdict.row)[0])
    if not verdict.anytime or verdict.stopping is not None:
        course.low[-1], course.high[-1] = verdict.intervals[rows].T
        alive = set(verdict.plausible)
        course.plausible[-1] = [name in alive for name in course.names]
        if course.others is not None:
            course.others[-1] = verdict.possible - int(course.plausible[-1].sum())


def _alarmed(by_day: DriftReport | None, results: LiveResults, level: float) -> DriftReport | None:
    """The report by day, else by shares; whether anything moves is tested in one way for both."""
    report = results.drift(PERIODS, level)
    if by_day is None:
        return report if len(report.periods) > 1 else None
    return replace(
        by_day,
        gap_p_value=report.gap_p_value,
        level_p_value=report.level_p_value,
        looks=report.looks,
    )
