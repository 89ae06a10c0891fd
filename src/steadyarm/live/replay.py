"""Replay: recompute a live experiment from its log, and compare the results.

Arms, units and rewards must be the same. Sums, allocations and estimates must agree to 1e-9.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from math import isclose, isnan
from typing import TYPE_CHECKING, Any

import numpy as np

from steadyarm.errors import InvalidInputError, SteadyArmError
from steadyarm.live.decisions import (
    adjust_ledgers,
    build_ledger,
    first_slopes,
    first_state,
    is_over,
    load_slopes,
    load_state,
    next_segment,
    progress_of,
    state_after,
    state_with,
)
from steadyarm.live.settings import Settings
from steadyarm.policies import State
from steadyarm.segments import Draws, Segment
from steadyarm.storages.counting import Columns, Metrics, RunningSeries, RunningTally, columns_of
from steadyarm.storages.records import (
    Correction,
    ExperimentRecord,
    LogRow,
    SegmentRecord,
    SeriesSums,
    Snapshot,
    Tally,
    place_of,
    undo_corrections,
)
from steadyarm.wording import counted

if TYPE_CHECKING:
    from steadyarm.storages.storage import Storage

SHOWN = 20  # differences that are listed
PRECISION = 1e-9  # to which computed numbers agree


@dataclass(frozen=True)
class Replay:
    """Whether a test's log leads to what is stored.

    Attributes
    ----------
    assignments, rewards, segments : how many were computed anew
    corrections : changes by hand; they are undone for decisions made before them
    differences : the first twenty differences, in words; empty if all agrees
    events : the events of metrics, from which their values and sums were computed anew
    """

    assignments: int
    rewards: int
    segments: int
    differences: tuple[str, ...]
    corrections: int = 0
    events: int = 0

    @property
    def agrees(self) -> bool:
        """Whether every assignment, sum, allocation and estimate is the same."""
        return not self.differences

    def __str__(self) -> str:
        events = f", {counted(self.events, 'event')}" if self.events else ""
        what = (
            f"{counted(self.assignments, 'assignment')}, {counted(self.rewards, 'reward')}{events} "
            f"and {counted(self.segments, 'segment')} computed anew"
        )
        if self.corrections:
            what += f", with {counted(self.corrections, 'correction')}"
        if self.agrees:
            return f"{what}: all agree."
        return "\n  ".join([f"{what}: they do not agree.", *self.differences])


def replay(storage: Storage, experiment: ExperimentRecord, settings: Settings) -> Replay:
    """Compute every assignment, sum, allocation and estimate from the log.

    The test may go on meanwhile: assignments and rewards after its begin are left out.
    """
    before = storage.snapshot(experiment.key, everything=True)
    corrections = storage.trace(experiment.key, experiment.name).corrections
    lately: dict[int, list[Correction]] = {}  # of segments that the policy had observed, by number
    for correction in corrections:
        if correction.late:
            lately.setdefault(correction.number, []).append(correction)
    report, series = _Differences(), RunningSeries(Metrics.of(experiment.config))
    measured = storage.series(experiment.key)
    observed = RunningSeries(series.metrics)
    log = storage.pages(experiment.key)
    sums, seen = _count(log, before, settings, lately, report, series, observed)
    after = storage.snapshot(experiment.key, everything=True)
    _compare_tallies(before, after, sums, report)
    columns = {record.index: columns_of(record.segment) for record, _ in before.segments}
    if series.metrics:
        _compare_series(measured, storage.series(experiment.key), series, columns, report)
    # Tallies of another moment say nothing about decisions.
    if storage.trace(experiment.key, experiment.name).corrections == corrections:
        _follow(_restore_sums(before, seen, observed.sums(columns)), settings, report)
    return Replay(
        sum(tally.total_assigned for tally in sums.values()),
        sum(tally.total_rewarded for tally in sums.values()),
        len(before.segments),
        tuple(report.listed),
        len({correction.entry for correction in corrections}),
        sum(count.events for count in series.counts.values()),
    )


def _restore_sums(
    snapshot: Snapshot, seen: dict[int, Tally], series: Iterable[SeriesSums]
) -> Snapshot:
    """The snapshot with the sums of closed segments as the policy observed them.

    seen, series : of segments that were corrected after that; of the series, those of metrics that
        do not steer may be among them
    """
    kept = (part for part in snapshot.series if part.segment not in seen)
    return replace(
        snapshot,
        segments=tuple((record, seen.get(record.index, t)) for record, t in snapshot.segments),
        series=(*kept, *series),
    )


class _Differences:
    def __init__(self) -> None:
        self.listed: list[str] = []

    def __call__(self, text: str) -> None:
        if len(self.listed) < SHOWN:
            self.listed.append(text)


def _count(
    log: Iterable[list[LogRow]],
    before: Snapshot,
    settings: Settings,
    lately: Mapping[int, list[Correction]],
    report: _Differences,
    series: RunningSeries,
    observed: RunningSeries,
) -> tuple[dict[int, Tally], dict[int, Tally]]:
    """Tallies by segment from the rows; every row's arm and probability is drawn again.

    The second ones are of segments that were corrected after they were closed, as they stood then.

    lately : these corrections, by number
    series : to which the values of metrics are added
    observed : the same for segments that were corrected, as they stood when they were closed
    """
    known = {record.index: record for record, _ in before.segments}
    sums = {index: RunningTally(columns_of(known[index].segment)) for index in known}
    seen = {
        index: RunningTally(columns_of(known[index].segment))
        for index in {place_of(number)[0] for number in lately} & known.keys()
    }
    names, draws, units = settings.arms.names, Draws(), set[str]()
    for page in log:
        rows = []
        for row in page:
            index, position = place_of(row.number)
            if index not in known:
                continue  # of a segment that was opened meanwhile
            if position >= known[index].rounds:
                report(
                    f"segment {index} has {known[index].rounds} positions, but {position} is used"
                )
                continue
            rows.append(row)
        places = (place_of(row.number) for row in rows)
        drawn = draws.at(0, settings.seed, places, lambda index: known[index].segment)
        for row, (arm, probability) in zip(rows, drawn, strict=True):
            there = 0 <= row.arm < len(names)
            if (row.arm, row.probability) != (arm, probability):
                shown = names[row.arm] if there else f"variant {row.arm}, which is not there,"
                report(
                    f"place {place_of(row.number)} shows {shown} with probability "
                    f"{row.probability!r}; the draw is {names[arm]} with {probability!r}"
                )
            if settings.sticky == "unit":
                if row.unit in units:
                    report(f"unit {row.unit!r} has two assignments")
                units.add(row.unit)
            if not there:
                continue  # listed above, and in no sum
            index = place_of(row.number)[0]
            with suppress(InvalidInputError):  # of an arm that is not played: listed above
                sums[index].add(row)
                if index in seen:
                    then = undo_corrections(row, lately.get(row.number, ()))
                    seen[index].add(then)
                    if series.metrics.steering:
                        observed.add(then)
            if series.metrics:
                _count_events(row, series, report)
    return (
        {index: running.tally() for index, running in sums.items()},
        {index: running.tally() for index, running in seen.items()},
    )


def _count_events(row: LogRow, series: RunningSeries, report: _Differences) -> None:
    """Add the values of an assignment; its reward must be what its events count as."""
    metrics, place = series.metrics, place_of(row.number)
    try:
        series.add(row)
    except InvalidInputError as error:
        report(f"place {place}: {error}")
        return
    if metrics.by_event and row.reward != metrics.primary.value(row.events):
        report(
            f"the reward of place {place} is {row.reward!r}, its events count as "
            f"{metrics.primary.value(row.events)!r}"
        )


def _compare_series(
    before: Iterable[SeriesSums],
    after: Iterable[SeriesSums],
    series: RunningSeries,
    columns: Mapping[int, Columns],
    report: _Differences,
) -> None:
    """Compare sums that have not changed meanwhile with those of the rows."""
    stored, later, anew = (
        {(part.segment, part.day, part.series): _exact(part) for part in sums if any(part.rewarded)}
        for sums in (before, after, series.sums(columns))
    )
    for place in sorted({*stored, *later, *anew}):
        unchanged = stored.get(place) == later.get(place) and place[0] in columns
        if unchanged and not _sums_agree(stored.get(place), anew.get(place)):
            totals = [_total(sums.get(place)) for sums in (stored, anew)]
            report(
                f"segment {place[0]} has stored {totals[0]} of {place[2]!r} of day {place[1]}, its "
                f"rows give {totals[1]}"
            )


def _exact(sums: SeriesSums) -> tuple[Any, ...]:
    """The expected values of rows; they do not include events that came too late."""
    return sums.rewarded, sums.sums, sums.squares


def _sums_agree(stored: tuple[Any, ...] | None, anew: tuple[Any, ...] | None) -> bool:
    """Whether counts are the same, and sums and sums of squares agree."""
    if stored is None or anew is None or stored[0] != anew[0]:
        return stored is anew
    scale = np.sqrt(np.multiply(stored[0], stored[2]))  # no sum is larger
    sums = np.abs(np.subtract(stored[1], anew[1])) <= PRECISION * scale
    return bool(sums.all() and np.allclose(stored[2], anew[2], PRECISION, 0.0))


def _tallies_agree(stored: Tally, anew: Tally) -> bool:
    counts = [(tally.assigned, tally.excluded, tally.last) for tally in (stored, anew)]
    sums = [(tally.rewarded, tally.sums, tally.squares) for tally in (stored, anew)]
    return counts[0] == counts[1] and _sums_agree(*sums)


def _values_agree(stored: Any, anew: Any) -> bool:
    """Whether two states agree as JSON, in which NaN equals NaN."""
    if isinstance(stored, Mapping) and isinstance(anew, Mapping):
        return stored.keys() == anew.keys() and all(
            _values_agree(stored[name], anew[name]) for name in stored
        )
    if isinstance(stored, list | tuple) and isinstance(anew, list | tuple):
        return len(stored) == len(anew) and all(map(_values_agree, stored, anew))
    if isinstance(stored, float) and isinstance(anew, float):
        same = isclose(stored, anew, rel_tol=PRECISION, abs_tol=PRECISION)
        return same or (isnan(stored) and isnan(anew))
    return bool(stored == anew)


def _total(sums: tuple[Any, ...] | None) -> str:
    if sums is None:
        return "no values"
    return f"{counted(sum(sums[0]), 'value')} with the sum {float(sum(sums[1])):.17g}"


def _compare_tallies(
    before: Snapshot, after: Snapshot, sums: dict[int, Tally], report: _Differences
) -> None:
    later = {record.index: tally for record, tally in after.segments}
    for record, tally in before.segments:
        if tally == later[record.index] and not _tallies_agree(tally, sums[record.index]):
            report(
                f"segment {record.index} has stored sums {_short(tally)}, its rows give "
                f"{_short(sums[record.index])}"
            )
        if tally == later[record.index] and tally.total_assigned > record.used:
            report(f"segment {record.index} has more assignments than its counter")


def _follow(snapshot: Snapshot, settings: Settings, report: _Differences) -> None:
    """Let the policy decide again: every allocation from what it had observed when it opened."""
    closed = sorted(
        ((record, tally) for record, tally in snapshot.segments if record.closed is not None),
        key=lambda pair: pair[0].closed or 0,
    )
    state = load_state(settings, json.loads(json.dumps(first_state(settings))))
    states: list[State] = [state]
    slopes, series = first_slopes(settings), snapshot.series_by_segment()
    for record, tally in closed:
        ledger = build_ledger(settings, record, tally, True, series.get(record.index, ()))
        seen, slopes = adjust_ledgers([ledger], slopes)
        states.append(state_after(settings.policy, states[-1], seen))
    for record, tally in closed:
        if not is_over(settings, progress_of(record, tally), record.closed_at or 0):
            report(f"segment {record.index} was observed by the policy before it was over")
    if [record.closed for record, _ in closed] != list(range(1, len(closed) + 1)):
        report("the policy did not observe segments one by one")
    segments = {record.index: record.segment for record, _ in snapshot.segments}
    previous: SegmentRecord | None = None
    spare = settings.budget
    for record, _ in snapshot.segments:
        if record.policy_version >= len(states):
            report(f"segment {record.index} was opened from a state that is not there")
            continue
        carrying, scratch, state = None, None, states[record.policy_version]
        if previous is not None and record.carried_on and not previous.superseded:
            carrying = previous.segment
        early = record.early or ()
        if early:
            scratch = state_with(settings, state, segments, early)
        try:
            planned = next_segment(settings, state, carrying, spare, scratch)
        except SteadyArmError as error:
            report(f"segment {record.index} should not have been opened: {error}")
        else:
            if difference := _differ(record, planned, carrying is not None):
                report(f"segment {record.index} differs in its {difference}")
        previous, spare = record, spare - record.rounds
    rounds = sum(record.rounds for record, _ in closed)
    stored = snapshot.experiment.policy_state
    state, fitted = load_state(settings, stored), load_slopes(settings, stored)
    computed, kept = (
        [policy_state.to_dict(), count, None if memory is None else memory.to_dict()]
        for policy_state, count, memory in (
            (states[-1], rounds, slopes),
            (state, int(stored["rounds"]), fitted),
        )
    )
    if not _values_agree(computed, kept):
        report("the policy's state does not follow from its segments")


def _differ(record: SegmentRecord, planned: Segment, carried_on: bool) -> str | None:
    """In what a stored segment differs from the one that should have been opened, if at all."""
    stored, rounds = record.segment, int(planned.rounds[0])
    block = stored.block if stored.order == "blocks" else 1
    cut = record.superseded and 0 < record.rounds < rounds and record.rounds % block == 0
    whole = record.rounds == rounds
    checks: dict[str, Any] = {
        "arms": _same(stored.arms, planned.arms),
        "weights": _same(stored.weights, planned.weights),
        "order": (stored.order, stored.block) == (planned.order, planned.block),
        "reference": _same(stored.reference, planned.reference),
        "rounds": cut or whole,
        "mark of carrying on": record.carried_on == carried_on,
    }
    return next((what for what, good in checks.items() if not good), None)


def _same(stored: Any, planned: Any) -> bool:
    if stored is None or planned is None:
        return stored is planned
    return bool(
        stored.shape == planned.shape and np.allclose(stored, planned, PRECISION, PRECISION)
    )


def _short(tally: Tally) -> str:
    total = f"sum {float(sum(tally.sums)):.17g}"
    return f"({tally.total_assigned} assignments, {tally.total_rewarded} rewards, {total})"
