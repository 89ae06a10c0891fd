"""Checks of segments that play some of very many arms: sums in their columns, arms by index."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from steadyarm.errors import InvalidInputError
from steadyarm.segments import Order, Segment
from steadyarm.storages.base import Storage
from steadyarm.storages.checks.bench import (
    DAY,
    NOW,
    Check,
    Open,
    assign,
    leased,
    new_experiment,
    new_segment,
    open_segment,
    refused,
)
from steadyarm.storages.checks.looking import (
    accounted,
    dayed,
    every,
    has_arms_of,
    same,
    shape_of,
    tallied,
    whole_log,
)
from steadyarm.storages.records import Target

__all__ = ["CHECKS"]

FIRST = np.array([0, 17, 4_096, 1_048_575], dtype=np.int64)
SECOND = np.array([3, 17, 900_000], dtype=np.int64)


def some(arms: NDArray[np.int64], rounds: int, order: Order = "iid", block: int = 1) -> Segment:
    """A segment that plays these arms, the later ones more often."""
    shares = np.arange(1.0, arms.size + 1)
    if order == "shuffled":
        counts = np.full((1, arms.size), rounds // arms.size)
        counts[0, -1] += rounds - counts.sum()
        return replace(Segment.shuffled(counts), arms=arms)
    weights = (shares / shares.sum())[None]
    return Segment(weights, np.array([rounds]), order, block, np.array([[0.5, -1.0]]), arms)


def check_some_arms(open_storage: Open) -> None:
    """Segments keep their arms to the bit; places, tallies and days are theirs."""
    for order in ("iid", "blocks", "shuffled"):
        storage = open_storage()
        key = new_experiment(storage, order).key
        segment = some(FIRST, 40, order, 8)
        open_segment(storage, key, segment)
        given = every(assign(storage, key, [f"u{i}" for i in range(12)]))
        (lease,) = leased(storage, key, 28)
        used = [(lease.start + i, f"l{i}", NOW + i) for i in range(28)]
        given += [a for a in storage.report(key, lease.id, used, NOW + 30) if a is not None]
        assert len(given) == 40, "positions were lost"
        has_arms_of(given, segment)
        assert {a.arm for a in given} <= set(FIRST.tolist()), "arms that are not played"
        _tell(storage, key, [a.unit for a in given])
        for again in (storage, open_storage()):
            ((record, tally),) = again.snapshot(key, everything=True).segments
            assert record.segment.arms is not None, "the arms are forgotten"
            assert np.array_equal(record.segment.arms, FIRST), "other arms"
            assert record.segment.arms.dtype == np.int64, "arms of another kind"
            assert shape_of(record)[1:] == shape_of(replace(record, segment=segment))[1:]
            assert shape_of(again.segments(key, [0])[0]) == shape_of(record), "read in two ways"
            counts = tuple(sum(a.arm == k for a in given) for k in FIRST.tolist())
            assert tally.assigned == counts, "columns are not those of the arms"
            assert [row.arm for row in whole_log(again, key)] == [
                a.arm for a in sorted(given, key=lambda a: a.number)
            ], "the log has other arms"
        accounted(storage, key)


def check_other_arms(open_storage: Open) -> None:
    """One segment closes, another plays other arms, a third all: each with its own columns."""
    storage = open_storage()
    key = new_experiment(storage).key
    open_segment(storage, key, some(FIRST, 10))
    _play(storage, key, "a", 10)
    open_segment(storage, key, some(SECOND, 15), closed=[0])
    _play(open_storage(), key, "b", 15)
    open_segment(storage, key, new_segment(20))
    _play(storage, key, "c", 9)
    assert [len(tally.sums) for tally in tallied(storage, key)] == [4, 3, 3], "other columns"
    assert [len(sums.late) for sums in dayed(storage, key)] == [4, 3, 3], "other columns of days"
    told: list[tuple[Target, float]] = [("a0", 9.0), ("b0", 9.0)]
    storage.reward(key, told, None, NOW)
    (outcome,) = storage.reward(key, [("a9", 1.0)], None, NOW + DAY)
    assert outcome.status == "closed", f"{outcome}"
    assert sum(storage.days(key)[0].late) == 1, "a late reward has no column"
    tallied(storage, key)
    assert storage.summaries()[0].assigned == 34, "not all of them are summed up"


def check_restored_arms(open_storage: Open) -> None:
    """What is restored plays the same arms; rows of others are refused."""
    storage = open_storage()
    key = new_experiment(storage).key
    open_segment(storage, key, some(FIRST, 10))
    _play(storage, key, "a", 10)
    open_segment(storage, key, some(SECOND, 15), closed=[0])
    _play(storage, key, "b", 6)
    snapshot, rows = storage.snapshot(key, everything=True), storage.log(key)
    made = storage.restore("copy", snapshot, [rows[:7], rows[7:]])
    copy = open_storage().snapshot(made.key, everything=True)
    for (a, x), (b, y) in zip(copy.segments, snapshot.segments, strict=True):
        assert shape_of(a) == shape_of(b), "a segment is not as it stood"
        assert x == y, "a tally is not that of the rows"
    assert dayed(storage, made.key) == tuple(
        replace(sums, late=(0,) * len(sums.late)) for sums in storage.days(key)
    ), "days are not as they stood"
    _play(storage, made.key, "c", 9)
    accounted(storage, made.key)
    wrong = [replace(rows[0], arm=5), *rows[1:]]
    refused(InvalidInputError, "a row of another arm", storage.restore, "w", snapshot, [wrong])
    names = [record.name for record in storage.experiments()]
    assert names == ["e", "copy"], "a refused restore left something behind"
    assert same(storage.find("copy"), made), "another record"


def _play(storage: Storage, key: int, name: str, units: int) -> None:
    given = every(assign(storage, key, [f"{name}{i}" for i in range(units)]))
    _tell(storage, key, [a.unit for a in given[:-1]])


def _tell(storage: Storage, key: int, units: list[str]) -> None:
    told: list[tuple[Target, float]] = [(unit, 0.1 + i / 3) for i, unit in enumerate(units)]
    storage.reward(key, told, None, NOW + 99)


CHECKS: tuple[Check, ...] = (
    check_some_arms,
    check_other_arms,
    check_restored_arms,
)
