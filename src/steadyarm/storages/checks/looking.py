"""What the checks look at: what was handed out, and all that a storage has of an experiment."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from fractions import Fraction
from typing import Any

from numpy.typing import NDArray

from steadyarm.segments import Segment, arms_between
from steadyarm.storages.base import Storage
from steadyarm.storages.checks.bench import DAY, SEED
from steadyarm.storages.records import (
    Assigned,
    DaySums,
    ExperimentRecord,
    Handed,
    Lease,
    LogRow,
    SegmentRecord,
    Tally,
    number_of,
    place_of,
)

__all__ = [
    "accounted",
    "counter_of",
    "dayed",
    "every",
    "everything",
    "has_arms_of",
    "numbers_given",
    "numbers_of",
    "places_of",
    "same",
    "shape_of",
    "tallied",
    "text_of",
    "those_given",
    "whole_log",
]


def those_given(answers: Handed | Sequence[Assigned | None]) -> list[Assigned]:
    """The assignments among answers."""
    found = answers.assigned if isinstance(answers, Handed) else answers
    return [each for each in found if each is not None]


def every(handed: Handed) -> list[Assigned]:
    """One assignment for each unit."""
    given = those_given(handed)
    assert len(given) == len(handed.assigned), "a unit got nothing although there are positions"
    return given


def numbers_given(handed: Handed) -> list[int]:
    """Numbers of the assignments, without those who got none."""
    return [a.number for a in those_given(handed)]


def numbers_of(given: Handed | Sequence[Assigned | LogRow | None]) -> list[int | None]:
    """Numbers of the assignments, None for those who got none."""
    found = given.assigned if isinstance(given, Handed) else given
    return [None if each is None else each.number for each in found]


def places_of(leases: Sequence[Lease]) -> list[int]:
    """Numbers of what is leased, in order; a lease may come in several pieces with one id."""
    return sorted(number_of(x.segment, p) for x in leases for p in range(x.start, x.stop))


def has_arms_of(
    given: Sequence[Assigned], segment: Segment, index: int = 0, seed: int = SEED
) -> None:
    """Look that assignments of one segment have the arms of their places, and probabilities."""
    expected = arms_between(segment, seed, index, 0, int(segment.rounds[0]))
    for a in given:
        assert place_of(a.number)[0] == index, "a place of another segment"
        right = expected[place_of(a.number)[1]]
        assert a.arm == right, f"{segment.order}: another arm than the place has"
        weight = float(segment.weights[0, segment.column_of(a.arm)])
        assert a.probability == weight, "the probability is not the weight, exactly"


def counter_of(storage: Storage, key: int) -> int:
    """The counter of the last segment."""
    return storage.snapshot(key).segments[-1][0].handed


def whole_log(storage: Storage, key: int, most: int = 10_000) -> list[LogRow]:
    """All rows, read page by page."""
    rows: list[LogRow] = []
    while page := storage.log(key, rows[-1].number if rows else -1, most):
        assert len(page) <= most, "a page is longer than asked for"
        rows += page
    return rows


def accounted(storage: Storage, key: int) -> list[LogRow]:
    """All rows, after looking that each position is used once, or leased once, or neither."""
    whole = storage.snapshot(key, everything=True)
    rows = whole_log(storage, key)
    numbers = [r.number for r in rows]
    assert numbers == sorted(set(numbers)), "the log is not in order, or has a place twice"
    places = places_of(storage.leases(key))
    assert len(places) == len(set(places)), "a position is leased twice"
    assert set(places).isdisjoint(numbers), "a position is used and leased"
    for number in (*numbers, *places):
        index, position = place_of(number)
        record = whole.segments[index][0]
        assert position < record.handed <= record.rounds, "a position is beyond the counter"
    if whole.experiment.config["sticky"] == "unit":
        units = Counter(r.unit for r in rows)
        assert not units or max(units.values()) == 1, "a unit has two assignments"
    tallied(storage, key)
    return rows


def tallied(storage: Storage, key: int) -> list[Tally]:
    """The tallies of all segments, after comparing them with sums over the log."""
    whole = storage.snapshot(key, everything=True)
    rows = whole_log(storage, key)
    for record, tally in whole.segments:
        mine = [r for r in rows if place_of(r.number)[0] == record.index]
        arms = [record.segment.arm_at(column) for column in range(record.segment.columns)]
        told = [_told([r for r in mine if r.arm == k]) for k in arms]
        counts = tuple(sum(r.arm == k for r in mine) for k in arms)
        assert tally.assigned == counts, "a tally does not count the assignments of the log"
        assert tally.rewarded == tuple(len(t) for t in told), "a tally miscounts rewards"
        out = tuple(sum(r.arm == k and r.excluded is not None for r in mine) for k in arms)
        assert tally.excluded == out, "a tally miscounts what was excluded"
        zero = Fraction(0)
        assert tally.sums == tuple(sum(t, zero) for t in told), "a sum is not exact"
        squares = tuple(sum((v * v for v in t), zero) for t in told)
        assert tally.squares == squares, "a sum of squares is not exact"
        last = max((r.created for r in mine), default=None)
        assert tally.last == last, "a tally has another time of the last assignment"
    dayed(storage, key)
    return [tally for _, tally in whole.segments]


def dayed(storage: Storage, key: int) -> tuple[DaySums, ...]:
    """The sums of all days, after comparing them with the log and with the tallies."""
    handed: dict[tuple[int, int], list[LogRow]] = {}
    for row in whole_log(storage, key):
        handed.setdefault((place_of(row.number)[0], row.created // DAY), []).append(row)
    days = storage.days(key)
    segments = [record.segment for record, _ in storage.snapshot(key, everything=True).segments]
    places = [(sums.segment, sums.day) for sums in days]
    assert places == sorted(handed), "not the days on which something was handed out, in order"
    for place, sums in zip(places, days, strict=True):
        pairs = zip(sums.tally.rewarded, sums.tally.assigned, strict=True)
        assert all(told <= given for told, given in pairs), (
            "an arm has more rewards on a day than it was handed out"
        )
        _day_is_of(sums, segments[place[0]], handed[place])
    for record, tally in storage.snapshot(key, everything=True).segments:
        parts = [sums.tally for sums in days if sums.segment == record.index]
        parts.append(Tally.empty(record.segment.columns))
        for name in ("assigned", "rewarded", "sums", "squares", "excluded"):
            arms = zip(*(getattr(part, name) for part in parts), strict=True)
            total = tuple(sum(values) for values in arms)
            assert total == getattr(tally, name), f"the days' {name} are not the segment's"
        last = max((part.last for part in parts if part.last is not None), default=None)
        assert last == tally.last, "the last of the days is not the last of the segment"
    return days


def _told(rows: Sequence[LogRow]) -> list[Fraction]:
    """Rewards that count."""
    return [Fraction(r.reward) for r in rows if r.reward is not None and r.excluded is None]


def _day_is_of(sums: DaySums, segment: Segment, rows: Sequence[LogRow]) -> None:
    tally = sums.tally
    assert tally.last == max(r.created for r in rows), "a day has another last assignment"
    assert len(tally.assigned) == segment.columns, "a day has other columns than its segment"
    for column, assigned in enumerate(tally.assigned):
        mine = [r for r in rows if r.arm == segment.arm_at(column)]
        told = _told(mine)
        counts = assigned, tally.rewarded[column]
        assert counts == (len(mine), len(told)), "a day miscounts assignments or rewards"
        assert tally.sums[column] == sum(told), "a day's sum is not exact"
        assert tally.squares[column] == sum(v * v for v in told), "a day's squares are not exact"
        counted = [r for r in mine if r.excluded is None]
        times = [(r.created, r.rewarded) for r in counted if r.rewarded is not None]
        waited = sum(max(0, there - created) // 1000 for created, there in times)
        assert sums.waited[column] == waited, "not the time for which rewards were waited"


def everything(storage: Storage, key: int) -> list[object]:
    """All there is to see of an experiment, its record first."""
    whole = storage.snapshot(key, everything=True)
    leases = sorted(storage.leases(key), key=lambda x: (x.segment, x.start))
    return [
        text_of(asdict(whole.experiment)),
        [shape_of(r) for r, _ in whole.segments],
        [t for _, t in whole.segments],
        whole_log(storage, key),
        [(x.segment, x.start, x.stop, x.expires) for x in leases],
        storage.corrections(key),
    ]


def text_of(value: Any) -> str:
    """A JSON-like value as something that also tells -0.0 from 0.0 and 1.0 from 1."""
    return json.dumps(value, sort_keys=True)


def same(one: ExperimentRecord, other: ExperimentRecord) -> bool:
    """Whether two records are the same to the last bit."""
    return text_of(asdict(one)) == text_of(asdict(other))


def shape_of(record: SegmentRecord) -> tuple[object, ...]:
    """A segment as something that can be compared, bit by bit."""
    s = record.segment
    rest = {**vars(record), "segment": None}
    return (
        tuple(rest.items()),
        _bits(s.weights),
        _bits(s.rounds),
        (s.order, s.block),
        None if s.reference is None else _bits(s.reference),
        None if s.arms is None else _bits(s.arms),
    )


def _bits(array: NDArray[Any]) -> tuple[object, ...]:
    return array.dtype.str, array.shape, array.tobytes()
