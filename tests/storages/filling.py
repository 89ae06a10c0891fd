"""Fills a storage with an experiment that was played elsewhere, faster than traffic could."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Table, insert, update

from steadyarm.storages.counting import RunningSeries, RunningTally, columns_of
from steadyarm.storages.records import ExperimentRecord, LogRow, Snapshot, dump, place_of
from steadyarm.storages.schema import assignments, events, experiments, rewards, segments
from steadyarm.storages.storage import Storage, segment_row
from steadyarm.storages.traffic import Transaction, add_counts, event_row, reward_row


def fill(
    storage: Storage, name: str, snapshot: Snapshot, pages: Iterable[Sequence[LogRow]]
) -> ExperimentRecord:
    """Store an experiment with its segments and rows; sums are counted from the rows."""
    old = snapshot.experiment
    record = storage.create(ExperimentRecord(**vars(old) | {"name": name}))
    sums = {each.index: RunningTally(columns_of(each.segment)) for each, _ in snapshot.segments}

    def work(t: Transaction) -> None:
        series = RunningSeries(t.metrics)
        put(t, segments, [segment_row(t.key, each) for each, _ in snapshot.segments])
        for page in pages:
            for row in page:
                sums[place_of(row.number)[0]].add(row)
                if t.metrics:
                    series.add(row)
            put(t, assignments, [_assignment_row(t, row) for row in page])
            put(t, rewards, [reward_row(t.key, row) for row in page if row.reward is not None])
            put(t, events, [event_row(t.key, r.number, event) for r in page for event in r.events])
        counts = {
            (segment, count.arm, day): count
            for segment, tally in sums.items()
            for day, by_arm in tally.days.items()
            for count in by_arm.values()
        }
        add_counts(t, counts, series.counts)
        state = {"policy_state": dump(old.policy_state)}
        t.connection.execute(update(experiments).where(experiments.c.key == t.key).values(state))

    storage._write(record.key, work, float("inf"))
    return record


def put(t: Transaction, table: Table, rows: list[dict[str, Any]]) -> None:
    """Insert rows, if there are any."""
    if rows:
        t.connection.execute(insert(table), rows)


def _assignment_row(t: Transaction, row: LogRow) -> dict[str, Any]:
    names = ("number", "unit", "arm", "probability", "created", "excluded")
    repeat = 0 if t.sticky else row.number + 1
    return {name: getattr(row, name) for name in names} | {"key": t.key, "repeat": repeat}
