"""Replay: a live experiment computed anew from its log, and compared to the bit."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from steadyarm.errors import InvalidInputError, SteadyArmError
from steadyarm.live.decisions import (
    adjusted_ledgers,
    first_slopes,
    first_state,
    is_over,
    ledger_of,
    next_segment,
    progress_of,
    state_after,
    stored_state,
)
from steadyarm.live.settings import Settings
from steadyarm.policies import State
from steadyarm.segments import Draws, Segment
from steadyarm.storages.base import Storage
from steadyarm.storages.changes import Correction, as_observed
from steadyarm.storages.records import (
    Columns,
    ExperimentRecord,
    LogRow,
    RunningTally,
    SegmentRecord,
    Snapshot,
    Tally,
    columns_of,
    place_of,
)
from steadyarm.storages.series import Metrics, RunningSeries, SeriesSums
from steadyarm.wording import counted

SHOWN = 20  # differences that are listed


@dataclass(frozen=True)
class Replay:
    """Whether a test's log leads to what is stored.

    Attributes
    ----------
    assignments, rewards, segments : how many were computed anew
    corrections : changes by hand; they are undone for decisions made before them
    differences : what disagrees, in words, the first twenty; empty if all agrees to the bit
    events : of metrics, from which their values and sums were computed anew
    """

    assignments: int
    rewards: int
    segments: int
    differences: tuple[str, ...]
    corrections: int = 0
    events: int = 0

    @property
    def agrees(self) -> bool:
        """Whether every assignment, sum, allocation and estimate is the same to the bit."""
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
            return f"{what}: all agree to the bit."
        return "\n  ".join([f"{what}: they do not agree.", *self.differences])


def replay(storage: Storage, experiment: ExperimentRecord, settings: Settings) -> Replay:
    """Compute every assignment, sum, allocation and estimate from the log.

    The test may go on meanwhile: assignments and rewards after its begin are left out.
    """
    before = storage.snapshot(experiment.key, everything=True)
    corrections = storage.trace(experiment.key, experiment.name).corrections
    lately: dict[int, list[Correction]] = {}  # of segments that the policy had observed, by number
    for each in corrections:
        if each.late:
            lately.setdefault(each.number, []).append(each)
    found, series = _Differences(), RunningSeries(Metrics.of(experiment.config))
    measured = storage.series(experiment.key)
    sums, seen = _count(storage.pages(experiment.key), before, settings, lately, found, series)
    after = storage.snapshot(experiment.key, everything=True)
    _compare_tallies(before, after, sums, found)
    if series.metrics:
        columns = {record.index: columns_of(record.segment) for record, _ in before.segments}
        _compare_series(measured, storage.series(experiment.key), series, columns, found)
    # Tallies of another moment say nothing about decisions.
    if storage.trace(experiment.key, experiment.name).corrections == corrections:
        _follow(_as_observed(before, seen), settings, found)
    return Replay(
        sum(tally.total_assigned for tally in sums.values()),
        sum(tally.total_rewarded for tally in sums.values()),
        len(before.segments),
        tuple(found.listed),
        len({each.entry for each in corrections}),
        sum(count.events for count in series.counts.values()),
    )


def _as_observed(snapshot: Snapshot, seen: dict[int, Tally]) -> Snapshot:
    """The snapshot with tallies of closed segments as the policy observed them."""
    return replace(
        snapshot,
        segments=tuple((record, seen.get(record.index, t)) for record, t in snapshot.segments),
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
    found: _Differences,
    series: RunningSeries,
) -> tuple[dict[int, Tally], dict[int, Tally]]:
    """Tallies by segment from the rows; every row's arm and probability is drawn again.

    The second ones are of segments that were corrected after they were closed, as they stood then.

    lately : these corrections, by number
    series : to which the values of metrics are added
    """
    known = {record.index: record for record, _ in before.segments}
    sums = {index: RunningTally(columns_of(known[index].segment)) for index in known}
    seen = {
        index: RunningTally(columns_of(known[index].segment))
        for index in {place_of(number)[0] for number in lately} & known.keys()
    }
    names, draws, units = settings.arms.names, Draws(), set[str]()
    late = None if settings.missing == "fail" else settings.window
    for page in log:
        rows = []
        for row in page:
            index, position = place_of(row.number)
            if index not in known:
                continue  # of a segment that was opened meanwhile
            if position >= known[index].rounds:
                found(
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
                found(
                    f"place {place_of(row.number)} shows {shown} with probability "
                    f"{row.probability!r}; the draw is {names[arm]} with {probability!r}"
                )
            if late is not None and row.rewarded is not None:
                if row.rewarded - row.created > late:
                    found(f"the reward of place {place_of(row.number)} came after its window")
                elif (row.received or row.rewarded) - row.created > late + settings.grace:
                    found(f"the reward of place {place_of(row.number)} arrived after its grace")
            if settings.sticky == "unit":
                if row.unit in units:
                    found(f"unit {row.unit!r} has two assignments")
                units.add(row.unit)
            if not there:
                continue  # listed above, and in no sum
            index = place_of(row.number)[0]
            with suppress(InvalidInputError):  # of an arm that is not played: listed above
                sums[index].add(row)
                if index in seen:
                    seen[index].add(as_observed(row, lately.get(row.number, ())))
            if series.metrics:
                _count_events(row, series, found)
    return (
        {index: running.tally() for index, running in sums.items()},
        {index: running.tally() for index, running in seen.items()},
    )


def _count_events(row: LogRow, series: RunningSeries, found: _Differences) -> None:
    """Add the values of an assignment; its reward must be what its events count as."""
    metrics, place = series.metrics, place_of(row.number)
    try:
        series.add(row)
        rules = [metrics.rule(event.metric) for event in row.events]
    except InvalidInputError as error:
        found(f"place {place}: {error}")
        return
    for event, rule in zip(row.events, rules, strict=True):
        if rule.window is not None and event.at - row.created > rule.window:
            found(f"the event {event.event!r} of {rule.name!r} of place {place} came too late")
        elif rule.window is not None and event.arrived - row.created > rule.window + rule.grace:
            found(f"the event {event.event!r} of {rule.name!r} of place {place} arrived too late")
    if metrics.by_event and row.reward != metrics.primary.value(row.events):
        found(
            f"the reward of place {place} is {row.reward!r}, its events count as "
            f"{metrics.primary.value(row.events)!r}"
        )


def _compare_series(
    before: Iterable[SeriesSums],
    after: Iterable[SeriesSums],
    series: RunningSeries,
    columns: Mapping[int, Columns],
    found: _Differences,
) -> None:
    """Compare sums that have not changed meanwhile with those of the rows."""
    stored, later, anew = (
        {(each.segment, each.day, each.series): _exact(each) for each in sums if any(each.rewarded)}
        for sums in (before, after, series.sums(columns))
    )
    for place in sorted({*stored, *later, *anew}):
        if stored.get(place) == later.get(place) != anew.get(place) and place[0] in columns:
            given = [_total(sums.get(place)) for sums in (stored, anew)]
            found(
                f"segment {place[0]} has stored {given[0]} of {place[2]!r} of day {place[1]}, its "
                f"rows give {given[1]}"
            )


def _exact(sums: SeriesSums) -> tuple[Any, ...]:
    """What rows must give; they do not know of events that came too late."""
    return sums.rewarded, sums.sums, sums.squares


def _total(sums: tuple[Any, ...] | None) -> str:
    if sums is None:
        return "no values"
    return f"{counted(sum(sums[0]), 'value')} with the sum {float(sum(sums[1])):.17g}"


def _compare_tallies(
    before: Snapshot, after: Snapshot, sums: dict[int, Tally], found: _Differences
) -> None:
    later = {record.index: tally for record, tally in after.segments}
    for record, tally in before.segments:
        if tally == later[record.index] and tally != sums[record.index]:
            found(
                f"segment {record.index} has stored sums {_short(tally)}, its rows give "
                f"{_short(sums[record.index])}"
            )
        if tally == later[record.index] and tally.total_assigned > record.handed:
            found(f"segment {record.index} has more assignments than its counter says")


def _follow(snapshot: Snapshot, settings: Settings, found: _Differences) -> None:
    """Let the policy decide again: every allocation from what it had observed when it opened."""
    closed = sorted(
        ((record, tally) for record, tally in snapshot.segments if record.closed is not None),
        key=lambda pair: pair[0].closed or 0,
    )
    state = stored_state(settings, json.loads(json.dumps(first_state(settings))))
    states: list[State] = [state]
    slopes = first_slopes(settings)
    for record, tally in closed:
        ledger = ledger_of(settings, record, tally, given_up=True)
        seen, slopes = adjusted_ledgers([ledger], slopes)
        states.append(state_after(settings.policy, states[-1], seen))
    for record, tally in closed:
        if not is_over(settings, progress_of(record, tally), record.closed_at or 0):
            found(f"segment {record.index} was observed by the policy before it was over")
    if [record.closed for record, _ in closed] != list(range(1, len(closed) + 1)):
        found("the policy did not observe segments one by one")
    previous: SegmentRecord | None = None
    spare = settings.budget
    for record, _ in snapshot.segments:
        if record.policy_version >= len(states):
            found(f"segment {record.index} was opened from a state that is not there")
            continue
        carrying = None
        if previous is not None and record.carried_on and not previous.superseded:
            carrying = previous.segment
        try:
            planned = next_segment(settings, states[record.policy_version], carrying, spare)
        except SteadyArmError as error:
            found(f"segment {record.index} should not have been opened: {error}")
        else:
            if difference := _differ(record, planned, carrying is not None):
                found(f"segment {record.index} differs in its {difference}")
        previous, spare = record, spare - record.rounds
    rounds = sum(record.rounds for record, _ in closed)
    stored = snapshot.experiment.policy_state
    after = stored_state(settings, stored), int(stored["rounds"])  # however it was written
    # Compared as JSON, in which NaN equals NaN: some states hold it before the first estimate.
    if json.dumps([states[-1].to_dict(), rounds]) != json.dumps([after[0].to_dict(), after[1]]):
        found("the policy's state differs from what its segments lead to")


def _differ(record: SegmentRecord, planned: Segment, carried_on: bool) -> str | None:
    """In what a stored segment differs from the one that should have been opened, if at all."""
    stored, rounds = record.segment, int(planned.rounds[0])
    block = stored.block if stored.order == "blocks" else 1
    cut = record.superseded and 0 < record.rounds < rounds and record.rounds % block == 0
    whole = record.rounds == rounds
    checks: dict[str, Any] = {
        "arms": _same(stored.arms, planned.arms),
        "weights": np.array_equal(stored.weights, planned.weights),
        "order": (stored.order, stored.block) == (planned.order, planned.block),
        "reference": _same(stored.reference, planned.reference),
        "rounds": cut or whole,
        "mark of carrying on": record.carried_on == carried_on,
    }
    return next((what for what, good in checks.items() if not good), None)


def _same(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    return bool(np.array_equal(one, other))


def _short(tally: Tally) -> str:
    total = f"sum {float(sum(tally.sums)):.17g}"
    return f"({tally.total_assigned} assignments, {tally.total_rewarded} rewards, {total})"
