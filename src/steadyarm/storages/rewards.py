"""Rewards and events of metrics, each counted once.

A reward has one row, which the first transaction inserts. Events of one assignment add up, so
whoever records one locks the assignment, and reads what others have recorded before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from sqlalchemy.dialects.postgresql import insert

from steadyarm.storages.records import (
    ArmDay,
    LogRow,
    Measured,
    Outcome,
    check_not_archived,
    day_of,
    place_of,
)
from steadyarm.storages.rows import (
    Place,
    Transaction,
    add_series,
    add_tallies,
    event_row,
    find_rows,
    hold_open_segments,
    hold_segments,
    insert_new,
    lock_rows,
    read_standing,
    reward_row,
)
from steadyarm.storages.schema import events, rewards
from steadyarm.storages.series import RunningSeries

INSERT = insert(rewards).on_conflict_do_nothing()
INSERT_EVENTS = insert(events).on_conflict_do_nothing()
_replace = insert(rewards)
# Only of rewards that are made of events: who replaces one has locked its assignment.
REPLACE = _replace.on_conflict_do_update(
    index_elements=rewards.primary_key,
    set_={name: _replace.excluded[name] for name in ("reward", "created", "at")},
)


def record_events(
    t: Transaction,
    entries: Sequence[Measured],
    now: int,
    limits: tuple[int | None, int] | None = None,
) -> tuple[Outcome, ...]:
    """Record rewards and events of metrics, with one outcome each.

    limits : window and grace of rewards, if they are not those of the metric
    """
    for entry in entries:
        t.metrics.event_of(entry)  # refuses what is no event
    # Segments are locked first, so that what is read of their assignments stays true.
    check_not_archived(read_standing(t.connection, t.key, hold=True)[0])
    still_open = hold_open_segments(t)
    found = find_rows(t, [entry.target for entry in entries])
    before = {row.number: row for row in found if row is not None}
    if t.metrics:
        hold_segments(t, {place_of(number)[0] for number in before} - still_open)
        before = lock_rows(t, before)
    after = dict(before)
    counts: defaultdict[Place, ArmDay] = defaultdict(lambda: ArmDay(0))
    series = RunningSeries(t.metrics)
    outcomes: list[Outcome] = []
    for there, entry in zip(found, entries, strict=True):
        if there is None:
            outcomes.append(Outcome("unknown"))
            continue
        row, rule = after[there.number], t.metrics.rule(entry.metric)
        index = place_of(row.number)[0]
        outcome, new = t.metrics.measured(row, entry, index not in still_open, now, limits)
        outcomes.append(outcome)
        if new is not None:
            after[row.number] = new
        elif outcome.status in ("late", "closed") and row.excluded is None:
            if rule is t.metrics.primary:
                counts[index, row.arm, day_of(row.created)].late += 1
            else:
                series.at(row, rule.name).late += 1
    changed = [
        (before[number], after[number])
        for number in sorted(after)
        if after[number] is not before[number]
    ]
    for old, row in changed:
        if (old.reward, old.rewarded) != (row.reward, row.rewarded):
            count = counts[place_of(row.number)[0], row.arm, day_of(row.created)]
            count.reward_of(old, -1)
            count.reward_of(row)
        if t.metrics:
            series.change(old, row)
    _store(t, changed)
    add_tallies(t, counts)
    add_series(t, series.counts)
    return tuple(outcomes)


def _store(t: Transaction, changed: Sequence[tuple[LogRow, LogRow]]) -> None:
    """Store new rewards and events; a collision if others have stored one of them meanwhile."""
    new_rewards = [
        reward_row(t.key, row)
        for old, row in changed
        if (old.reward, old.rewarded, old.received) != (row.reward, row.rewarded, row.received)
    ]
    new_events = [
        event_row(t.key, row.number, event)
        for old, row in changed
        for event in row.events
        if event not in old.events
    ]
    insert_new(t, INSERT_EVENTS, new_events)
    insert_new(t, REPLACE if t.metrics.by_event else INSERT, new_rewards)
