"""Scorecard: a live test at one moment, as pages, reports and plots show it.

It is computed from stored sums. Sections are computed when they are first read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from itertools import accumulate
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms.generated import walsh_of
from steadyarm.errors import RewardsPendingError
from steadyarm.inference import DriftReport, HealthReport, drift_report
from steadyarm.inference.evidence import SHORT, space_evenly
from steadyarm.inference.sequences import confidence_path
from steadyarm.live.breakdowns import Breakdown, compute_breakdown
from steadyarm.live.decisions import SegmentLedger, load_state
from steadyarm.live.effects import Effects, compute_effects, has_effects
from steadyarm.live.experiment import Experiment
from steadyarm.live.headline import announcement, headline
from steadyarm.live.moment import Moment
from steadyarm.live.results import (
    LiveResults,
    Status,
    compute_status,
    level_on_the_way,
    results_by_day,
    rewards_until,
    with_outlier,
)
from steadyarm.live.settings import Settings
from steadyarm.live.stopping import LEVEL, schedule_looks
from steadyarm.live.verdict import Decision, Verdict
from steadyarm.storages.records import AuditEntry, DaySums, Snapshot, to_datetime
from steadyarm.wording import counted, labels_of

LOOKS, FEWER, MANY = 60, 16, 64  # looks of a course; fewer where there are many variants
WORK = 5e8  # arms times squared parameters up to which every look goes through all arms
TOO_MANY = 2**12  # variants for a share of each
MOST_SHARES = 40  # variants of so many that have a share of their own
TURN = 0.02  # share of the traffic that has to move before it is a change of mind

HOUR = 3_600_000  # milliseconds
PACE = 7  # days from which the present pace is computed
FEW = 20  # visits in these below which no pace is known
PERIODS = 4  # of tests that last for less than two days

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
Light = Literal["ok", "warn", "fail", "none"]
Spans = Mapping[int, tuple[datetime, datetime]]  # first and last assignment, by segment


@dataclass(frozen=True, eq=False)
class Course:
    """The course of estimates: after each of J pieces, from the whole test up to there.

    Attributes
    ----------
    names : the names of the K variants; of a large set those on a short list
    times : when each piece ended; None for a test that has no clock
    rounds : (J,) assignments judged up to there
    estimates, low, high : (J, K) with intervals that hold at all times at once; infinite ends
        where too little is known
    leaders : (J,) index of the variant with the best estimate
    plausible : (J, K) whether a variant could not be ruled out as the best
    level : the level of the intervals
    size : number of variants of a large set; 0 if all are here
    others : (J,) further variants that could not be ruled out; None if they were not counted
    """

    names: Sequence[str]
    times: tuple[datetime, ...] | None
    rounds: Integers
    estimates: Floats
    low: Floats
    high: Floats
    leaders: Integers
    plausible: Booleans
    level: float
    size: int = 0
    others: Integers | None = None

    @property
    def variants(self) -> int:
        """The number of variants."""
        return self.size or len(self.names)

    @property
    def possible(self) -> Integers:
        """(J,) how many could not be ruled out, as far as they were counted."""
        here = self.plausible.sum(axis=1)
        return np.asarray(here if self.others is None else here + self.others)


@dataclass(frozen=True, eq=False)
class Shares:
    """The shares of variants in each of J pieces.

    Attributes
    ----------
    names : of the K variants; of a large set those assigned most often, and all others as one
    starts, ends : when the first and the last visit of each piece came; None without a clock
    rounds : (J,) visits of each piece
    planned : (J, K) shares with which they were drawn
    given : (J, K) how often each was assigned
    turns : (J,) whether the policy changed its mind when the piece began
    rest : of how many variants the last column is the sum; 0 if each has its own
    """

    names: Sequence[str]
    starts: tuple[datetime, ...] | None
    ends: tuple[datetime, ...] | None
    rounds: Integers
    planned: Floats
    given: Integers
    turns: Booleans
    rest: int = 0

    @property
    def single(self) -> int:
        """The number of columns that stand for one variant."""
        return len(self.names) - (self.rest > 0)

    @property
    def variants(self) -> int:
        """The number of variants that were assigned, or may have been."""
        return self.single + self.rest


@dataclass(frozen=True, eq=False)
class Waiting:
    """Rewards by the day (UTC) of their assignment.

    Attributes
    ----------
    days : D of them
    assigned, rewarded : (D,) visits of that day, and how many of them have a reward
    late : (D,) rewards that came too late and were refused
    hours : (D,) mean time from a variant to its reward; nan where none came
    """

    days: tuple[date, ...]
    assigned: Integers
    rewarded: Integers
    late: Integers
    hours: Floats


@dataclass(frozen=True, eq=False)
class Scorecard:
    """A live test at one moment.

    Attributes
    ----------
    name : the name of the test
    seen : that moment
    settings, status : what it was created with, and where it stands
    started, last : when the first and the last visit came; None before the first
    expected_end : when the budget will be spent at the present pace; None if that is not known
    policy_ended : whether the policy has chosen, however much of the budget is left
    rewards_until : up to when rewards may still come; None if none is waited for
    verdict : None if there is none yet; `obstacle` then says why, in one sentence
    drift : by day (`by_day`) if the test has lasted for at least two, else by equal shares; None
        if there is nothing to compare
    by_day : whether the periods of `drift` are days (UTC), with labels such as 2026-11-15
    health : None before the first visit
    waiting : None before the first visit
    shown : (m,) variants of a large set that are shown, in rising order; None for all. What has a
        row for each variant, such as `names` and the verdict, then has one for each of these
    planned : (m,) shares with which those shown are assigned now; None if that is not known
    corrections : entries of the audit log that corrected rewards or visits, oldest first
    needs_stop : all visits were assigned, rewards are missing and have no window: stopping the test
        says that none will come any more
    moment : what the other sections are computed from when they are read first
    """

    name: str
    seen: datetime
    settings: Settings
    status: Status
    started: datetime | None
    last: datetime | None
    expected_end: datetime | None
    policy_ended: bool
    rewards_until: datetime | None
    verdict: Verdict | None
    obstacle: str
    drift: DriftReport | None
    by_day: bool
    health: HealthReport | None
    waiting: Waiting | None
    shown: Integers | None = None
    planned: Floats | None = None
    needs_stop: bool = False
    corrections: tuple[AuditEntry, ...] = ()
    moment: Moment | None = None

    @cached_property
    def headline(self) -> str:
        """The verdict in a few plain sentences, without markup."""
        return headline(self)

    @cached_property
    def announcement(self) -> str:
        """The text to read aloud when it changes; it contains no numbers of visits."""
        return announcement(self)

    @property
    def _unbiased(self) -> Moment | None:
        """The moment, if there is a verdict and estimates are unbiased on the way."""
        return self.moment if self.verdict and self.settings.policy.unbiased else None

    @cached_property
    def course(self) -> Course | None:
        """The estimates at earlier times; None if estimates are biased or there are none yet."""
        if self._unbiased is None or self.verdict is None:
            return None
        results, spans = self._unbiased.results, self._unbiased.spans
        course = compute_course(results, self.settings.budget, spans, self.verdict.level)
        _end_with(course, self.verdict, self.settings.arms.names)
        return course

    @cached_property
    def shares(self) -> Shares | None:
        """Shares of the variants by segment; None before the first visit."""
        if self.moment is None or not self.moment.results.pieces:
            return None
        names, pieces = self.settings.arms.names, self.moment.results.pieces
        return compute_shares(names, pieces, self.moment.spans)

    @cached_property
    def effects(self) -> Effects | None:
        """Effects of factors or items; None if variants are not made of these."""
        if self._unbiased is None or self.verdict is None or not has_effects(self.settings.arms):
            return None
        evidence = self._unbiased.results.evidence
        return compute_effects(evidence, level=self.verdict.level, arm=self.verdict.arm)

    @cached_property
    def people(self) -> tuple[Breakdown, ...]:
        """Results by level of every attribute of units; empty without a verdict."""
        if self._unbiased is None or self.verdict is None or self.settings.arms.large:
            return ()
        moment, against = self._unbiased, self.settings.control or self.verdict.name
        level, known = self.verdict.level, (moment.results, moment.snapshot, moment.series)
        return tuple(
            compute_breakdown(*known, attribute, against, level)
            for attribute in self.settings.attributes
        )

    @property
    def light(self) -> Light:
        """The health in one word."""
        return "none" if self.health is None else self.health.status

    @property
    def size(self) -> int:
        """Number of variants, shown or not."""
        return self.settings.arms.size

    @property
    def names(self) -> Sequence[str]:
        """Names of the variants that are shown."""
        names = self.settings.arms.names
        return names if self.shown is None else tuple(names[k] for k in self.shown.tolist())

    @property
    def labels(self) -> tuple[str, ...]:
        """Short names of the variants that are shown, for people."""
        return tuple(self.names) if self.settings.arms.large else labels_of(self.names)

    @property
    def assigned(self) -> tuple[int, ...]:
        """Numbers of assignments of these variants."""
        return _of_those(self.status.assigned, self.status.arms, self.shown)

    @property
    def rewarded(self) -> tuple[int, ...]:
        """Numbers of rewards of these variants."""
        return _of_those(self.status.rewarded, self.status.arms, self.shown)

    @property
    def ended(self) -> bool:
        """Whether no more variants will be assigned."""
        spent = self.status.total_assigned >= self.status.budget
        return spent or self.policy_ended or self.status.state in ("stopped", "archived")

    @property
    def settled(self) -> bool:
        """Whether it has ended, and no reward is waited for: the verdict is final."""
        return self.ended and self.rewards_until is None and not self.needs_stop

    @property
    def decision(self) -> Decision:
        """The decision, in a word and in a sentence with short names of the variants."""
        if self.verdict is None:
            if self.light == "fail":
                return Decision("unhealthy", "Not healthy: do not decide.")
            if self.settled:
                return Decision("unclear", "No clear winner: there is nothing to judge by.")
            text = (
                "Not decided yet: rewards may still come." if self.ended else "Too early to decide."
            )
            return Decision("running", text)
        decision, text = self.verdict.decision, self.verdict.decision.text
        if not self.settings.arms.large:
            pairs = zip(self.names, self.labels, strict=True)
            for name, label in sorted(pairs, key=lambda pair: -len(pair[0])):
                text = text if name == label else text.replace(name, label)
        return replace(decision, text=text)


def _of_those(
    counts: tuple[int, ...], arms: tuple[int, ...] | None, shown: Integers | None
) -> tuple[int, ...]:
    """Counts of the variants shown, from those of the arms that were assigned."""
    if shown is None:
        return counts
    by_arm = dict(zip(range(len(counts)) if arms is None else arms, counts, strict=True))
    return tuple(by_arm.get(k, 0) for k in shown.tolist())


Standing = Literal["best", "leads", "ahead", "open", "maybe", "out", "dropped", "unknown"]


def order_of(card: Scorecard) -> list[int]:
    """Variants from the best to the worst: the recommended one, then by their estimates.

    Variants are given as rows: of a large set those that are shown have one. Those without an
    estimate come last; without a verdict variants stay as they were given.
    """
    if card.verdict is None:
        return list(range(len(card.names)))
    sign = 1.0 if card.settings.direction == "maximize" else -1.0
    order = np.argsort(-sign * card.verdict.estimates, kind="stable").tolist()  # nan goes last
    order.remove(card.verdict.row)  # first even where its estimate is not
    return [card.verdict.row, *order]


def standing_of(card: Scorecard, k: int) -> Standing:
    """The standing of a variant.

    best : recommended at the end, with all others that were measured ruled out
    leads : recommended while the test runs, or rewards of its last visits may still come
    ahead : recommended at the end, but others are not ruled out
    open, maybe : not ruled out, while variants are assigned and after the last visit
    out : ruled out
    dropped : the policy stopped measuring it
    unknown : there is no verdict
    """
    verdict = card.verdict
    if verdict is None:
        return "unknown"
    names = card.names
    if k == verdict.row:
        if not card.settled:
            return "leads"
        others = {
            names[j] for j in range(len(names)) if j != k and not _is_dropped(card, verdict, j)
        }
        alone = bool(others) and others.isdisjoint(verdict.plausible) and not verdict.others
        good = card.light != "fail" and not verdict.caution
        return "best" if alone and good else "ahead"
    if _is_dropped(card, verdict, k):
        return "dropped"
    if names[k] not in verdict.plausible:
        return "out"
    return "maybe" if card.ended else "open"


def _is_dropped(card: Scorecard, verdict: Verdict, k: int) -> bool:
    """Whether a variant has no estimate; one that is still assigned merely has no reward yet."""
    planned = card.planned is not None and bool(card.planned[k] > 0)
    return bool(np.isnan(verdict.estimates[k])) and not planned


# From the sums of a storage


def compute_course(
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
    at = space_evenly(len(pieces), LOOKS if arms.size <= MANY else FEWER)
    quick = walsh_of(arms.rows) is not None or arms.size * arms.rank**2 <= WORK
    counts = arms.large and quick
    used, schedule = level_on_the_way(level), None
    if results.settings.stop is not None:  # limits are those of the looks
        used, looks = level, results.looks
        over = results.final
        schedule = schedule_looks(results.settings, looks, results.mature, evidence, over)
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


def compute_shares(
    names: Sequence[str], pieces: Sequence[SegmentLedger], spans: Spans | None = None
) -> Shares:
    """The shares of variants, from pieces with an assignment."""
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


def date_of(day: int) -> date:
    """The date of a day counted from 1970."""
    return date(1970, 1, 1) + timedelta(days=day)


def drift_by_day(results: LiveResults, days: Sequence[int], level: float) -> DriftReport | None:
    """The drift report with a period for each day; None if there are fewer than two.

    results : the results of pieces that do not cross midnight
    days : the day of each piece, by its index
    """
    labels = [date_of(days[piece.index]).isoformat() for piece in results.judged()]
    if len(set(labels)) < 2:
        return None
    return drift_report(results.evidence, labels, level)


def count_waiting(sums: Iterable[DaySums]) -> Waiting:
    """Rewards by the day of their assignment."""
    totals: dict[int, NDArray[np.int64]] = {}
    for part in sums:
        row = totals.setdefault(part.day, np.zeros(4, dtype=np.int64))
        tally = part.tally.without_excluded()
        row += (tally.total_assigned, tally.total_rewarded, sum(part.late), sum(part.waited))
    days = sorted(totals)
    assigned, rewarded, late, waited = np.array([totals[day] for day in days]).T
    hours = np.where(rewarded > 0, waited / np.maximum(rewarded, 1) / HOUR, np.nan)
    return Waiting(tuple(map(date_of, days)), assigned, rewarded, late, hours)


def predict_end(waiting: Waiting, started: datetime, now: datetime, left: int) -> datetime | None:
    """When the budget will be spent at the pace of the last days; None if no pace is known.

    Examples
    --------
    >>> days = tuple(date(2026, 11, day) for day in (13, 14))
    >>> none = np.zeros(2, dtype=np.int64)
    >>> waiting = Waiting(days, np.array([600, 1200]), none, none, np.zeros(2))
    >>> began, now = datetime(2026, 11, 13, 12, tzinfo=UTC), datetime(2026, 11, 15, tzinfo=UTC)
    >>> predict_end(waiting, began, now, left=2400).isoformat()
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


def compute_scorecard(experiment: Experiment, level: float = LEVEL) -> Scorecard:
    """The test as it is now; reads sums, and of the log only the largest reward.

    Of a large set of variants a short list is shown, as the verdict has it.

    Intervals hold at all times at once, in large samples; those of a test that was played to its
    end are those of a single analysis.

    Examples
    --------
    >>> import steadyarm as sa
    >>> rules = {"reward_window": "1d", "missing": "zero"}  # no click within a day counts as 0
    >>> test = sa.create_experiment("button", ["A", "B"], sa.Steady(), 500, "memory", **rules)
    >>> compute_scorecard(test).headline
    'Waiting for the first of 500 visits to 2 variants.'
    """
    storage, settings = experiment.storage, experiment.settings
    moment = experiment.read_moment()
    snapshot, days, results, spans = moment.snapshot, moment.days, moment.results, moment.spans
    status = compute_status(settings, snapshot)
    started = min((start for start, _ in spans.values()), default=None)
    waiting = count_waiting(days) if days else None
    policy_ended = _has_chosen(settings, snapshot)
    left, end = status.budget - status.total_assigned, None
    runs = status.state == "running" and left > 0 and not policy_ended
    if waiting is not None and started is not None and runs:
        end = predict_end(waiting, started, to_datetime(moment.now), left)
    verdict, obstacle = None, ""
    try:
        verdict = moment.recommend(level)
    except RewardsPendingError as error:
        obstacle = f"{str(error).partition('. ')[0].rstrip('.')}."  # the rest says what to do
    drift, by_day = None, False
    if verdict is not None and settings.policy.unbiased:
        drift = drift_by_day(*results_by_day(results, snapshot, days), level)
        by_day = drift is not None
        drift = _test_drift(drift, results, level)
    open_until = rewards_until(settings, snapshot, moment.now)
    until = None if open_until is None else to_datetime(open_until)
    stuck = settings.policy.waits and any(p.exhausted and p.waiting for p in results.pieces)
    needs_stop = (
        (left <= 0 or (stuck and settings.window is None))
        and until is None
        and not results.ended
        and settings.missing != "fail"
    )
    shown = _select_shown(settings, status, verdict)
    health = None
    if results.pieces:
        extreme = None if results.clicks else storage.extreme(experiment.key)
        health = with_outlier(results, extreme)
    return Scorecard(
        name=experiment.name,
        seen=to_datetime(moment.now),
        settings=settings,
        status=status,
        started=started,
        last=max((last for _, last in spans.values()), default=None),
        expected_end=end,
        policy_ended=policy_ended,
        rewards_until=until,
        verdict=verdict,
        obstacle=obstacle,
        drift=drift,
        by_day=by_day,
        health=health,
        waiting=waiting,
        shown=shown,
        planned=_planned_shares(results, shown) if results.pieces else None,
        needs_stop=needs_stop,
        corrections=tuple(experiment.corrections()),
        moment=moment,
    )


def _select_shown(settings: Settings, status: Status, verdict: Verdict | None) -> Integers | None:
    """The variants to show of a large set: its short list, else those assigned most often."""
    if not settings.arms.large:
        return None
    if verdict is not None:
        return verdict.shown
    arms = range(settings.arms.size) if status.arms is None else status.arms
    pairs = sorted(zip(status.assigned, arms, strict=True), key=lambda pair: (-pair[0], pair[1]))
    most_assigned = [k for _, k in pairs[:SHORT]] or list(range(SHORT))
    return np.array(sorted(most_assigned), dtype=np.int64)


def _planned_shares(results: LiveResults, shown: Integers | None) -> Floats:
    """Shares with which the variants shown are assigned in the last piece."""
    segment = results.pieces[-1].segment
    if segment.arms is None:
        return np.asarray(segment.weights[0] if shown is None else segment.weights[0][shown])
    assert shown is not None
    place = np.minimum(np.searchsorted(segment.arms, shown), segment.columns - 1)
    return np.where(segment.arms[place] == shown, segment.weights[0][place], 0.0)


def _has_chosen(settings: Settings, snapshot: Snapshot) -> bool:
    """Whether a policy of epochs is done, which may be some visits before the budget is spent."""
    if not settings.policy.waits or not snapshot.segments:
        return False
    if any(record.closed is None for record, _ in snapshot.segments):
        return False
    state = load_state(settings, snapshot.experiment.policy_state)
    return settings.policy.next_segment(state) is None


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


def _test_drift(
    by_day: DriftReport | None, results: LiveResults, level: float
) -> DriftReport | None:
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
