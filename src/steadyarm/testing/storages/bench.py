"""What the checks work with: steps that several of them take, and values that are hard to keep."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from fractions import Fraction
from threading import Barrier
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from steadyarm.segments import Order, Segment, arms_between
from steadyarm.storages.base import Storage
from steadyarm.storages.records import (
    Assigned,
    DaySums,
    Decision,
    ExperimentRecord,
    ExperimentState,
    Handed,
    Lease,
    LogRow,
    SegmentRecord,
    Tally,
    number_of,
    place_of,
)

__all__ = [
    "DAY",
    "FLOATS",
    "HOUR",
    "NAMES",
    "NOW",
    "SEED",
    "Check",
    "Open",
    "accounted",
    "assign",
    "busy",
    "counter_of",
    "dayed",
    "decided",
    "every",
    "everything",
    "gathered",
    "has_arms_of",
    "leased",
    "new_experiment",
    "new_segment",
    "numbers_given",
    "numbers_of",
    "open_segment",
    "places_of",
    "refused",
    "running",
    "same",
    "shape_of",
    "tallied",
    "text_of",
    "those_given",
    "together",
    "whole_log",
]

# What the checks work with: steps that several of them take, and values that are hard to keep.


Open = Callable[[], Storage]
Check = Callable[[Open], None]
T = TypeVar("T")

NOW = 1_750_000_000_123_456
HOUR = 3_600_000_000
DAY = 24 * HOUR
SEED = 2**70 + 11
WEIGHTS = (0.1, 0.2, 0.7)
NAMES = (
    "plain",
    "Plain",
    'it\'s "quoted" `twice`; DROP TABLE experiments; --',
    "50% of_\\everything",
    "Grüße, 試験 🧪",
    " spaces ",
    "long " + "name" * 60,
)
FLOATS = (0.1, 1 / 3, -0.0, 5e-324, 1.7976931348623157e308, 1.0, 1e22, 0.1 + 0.2, -2.5e-17)


def new_segment(
    rounds: int,
    order: Order = "iid",
    block: int = 1,
    weights: tuple[float, ...] = WEIGHTS,
) -> Segment:
    """An allocation of three arms, or of as many as there are weights."""
    if order == "shuffled":
        second = rounds // 4
        return Segment.shuffled(np.array([[rounds // 8, second, rounds - rounds // 8 - second]]))
    return Segment(np.array([weights]), np.array([rounds]), order, block)


def new_experiment(
    storage: Storage,
    name: str = "e",
    *,
    sticky: bool = True,
    seed: int = SEED,
    state: ExperimentState = "running",
    arms: int = 3,
) -> ExperimentRecord:
    """An experiment without segments."""
    config = {"seed": seed, "arms": list("ABC")[:arms], "sticky": "unit" if sticky else "request"}
    return storage.create(name, "tag", state, config, {}, NOW)


def decided(storage: Storage, key: int, decision: Decision) -> bool:
    """Whether a decision was stored, made on the version there is."""
    return storage.decide(key, storage.snapshot(key).experiment.version, decision, NOW)


def open_segment(storage: Storage, key: int, segment: Segment, closed: Sequence[int] = ()) -> int:
    """Open the next segment, and close others with the tallies they have; its index."""
    whole = storage.snapshot(key, everything=True)
    index, version = len(whole.segments), whole.experiment.version
    tallies = tuple((i, whole.segments[i][1]) for i in closed)
    opened = SegmentRecord(index, segment, False, False, whole.experiment.observed, NOW)
    decision = Decision({"version": version}, tallies, opened=opened)
    assert storage.decide(key, version, decision, NOW), "a decision on facts was refused"
    return index


def running(
    storage: Storage,
    rounds: int,
    *,
    sticky: bool = True,
    name: str = "e",
    weights: tuple[float, ...] = WEIGHTS,
) -> int:
    """The key of a running experiment with one segment."""
    key = new_experiment(storage, name, sticky=sticky, arms=len(weights)).key
    open_segment(storage, key, new_segment(rounds, weights=weights))
    return key


def busy(storage: Storage, name: str) -> int:
    """The key of an experiment with a bit of everything."""
    key = running(storage, 6, name=name)
    assign(storage, key, [f"a{i}" for i in range(6)], now=NOW + 1)
    storage.reward(key, [("a0", 0.1), ("a3", -1e9), ("a5", 1 / 3)], None, NOW + 2)
    open_segment(storage, key, new_segment(30, "blocks", 8), closed=[0])
    handed = assign(storage, key, ["b0", "b1", "a1"], ahead=5, now=NOW + 3)
    assert handed.leases, "`ahead` leased nothing"
    storage.report(key, handed.leases[0].id, [(4, "c0", NOW + 4)], NOW + 5)
    assign(storage, key, ["d0"], now=NOW + 6)
    assert decided(storage, key, Decision({}, supersede=1)), "a decision on facts was refused"
    open_segment(storage, key, new_segment(50))
    assign(storage, key, ["e0", "e1"], ahead=3, now=NOW + 7)
    storage.reward(key, [("c0", 2.0), ("e1", 0.7), (number_of(1, 0), 0.2)], None, NOW + 8)
    leased(storage, key, 4, expires=NOW + 2 * HOUR, now=NOW + 9)
    return key


def assign(
    storage: Storage,
    key: int,
    units: Sequence[str],
    held: Sequence[Lease] = (),
    ahead: int = 0,
    *,
    expires: int = NOW + HOUR,
    now: int = NOW,
) -> Handed:
    """`Storage.assign`, with an answer for every unit."""
    handed = storage.assign(key, units, held, ahead, expires=expires, now=now)
    assert len(handed.assigned) == len(units), "not one answer for every unit"
    return handed


def leased(
    storage: Storage, key: int, wanted: int, *, expires: int = NOW + HOUR, now: int = NOW
) -> tuple[Lease, ...]:
    """`Storage.lease`, for an hour."""
    return storage.lease(key, wanted, expires=expires, now=now)


def refused(
    error: type[Exception],
    promise: str,
    call: Callable[..., object],
    *args: object,
    **named: object,
) -> str:
    """What the error says that `call` must raise."""
    try:
        call(*args, **named)
    except error as refusal:
        return str(refusal)
    raise AssertionError(f"{promise} was not refused with {error.__name__}")


def together(work: Callable[[int], T], threads: int) -> list[T]:
    """What work(0), work(1), ... return, each in a thread, all starting at once."""
    barrier = Barrier(threads)

    def run(i: int) -> T:
        barrier.wait()
        return work(i)

    # Threads take turns so often that a step in between is likely to be hit.
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(run, range(threads)))
    finally:
        sys.setswitchinterval(before)


def gathered(work: Callable[[int], list[T]], threads: int) -> list[T]:
    """All of what they return, in one list."""
    return [each for part in together(work, threads) for each in part]


# What the checks look at: what was handed out, and all that a storage has of an experiment.


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
