"""A storage with the steps that several tests take, and comparisons of all that it has."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from typing import Any, TypeVar

import numpy as np
import pytest

from steadyarm.segments import Order, Segment
from steadyarm.storages.records import (
    AssignmentResult,
    Change,
    CorrectionResult,
    DaySums,
    Decision,
    Event,
    ExperimentRecord,
    ExperimentState,
    Kind,
    LogRow,
    Outcome,
    SegmentRecord,
    StoredAssignment,
    Tally,
    number_of,
    place_of,
)
from steadyarm.storages.storage import Storage, segment_row

T = TypeVar("T")

NOW = 1_750_000_000_123_456
HOUR = 3_600_000_000
DAY = 24 * HOUR
SEED = 2**70 + 11
WEIGHTS = (0.1, 0.2, 0.7)
WHY = "it was a test of our own"
NAMES = (  # that are hard to store
    "plain",
    "Plain",
    'it\'s "quoted" `twice`; DROP TABLE experiments; --',
    "50% of_\\everything",
    "Grüße, 試験 🧪",
    " spaces ",
    "long " + "name" * 60,
)
FLOATS = (0.1, 1 / 3, -0.0, 5e-324, 1.7976931348623157e308, 1.0, 1e22, 0.1 + 0.2, -2.5e-17)
METRIC = {"role": "secondary", "several": "first", "window": None, "grace": None, "cap": None}

close = partial(pytest.approx, rel=1e-9, abs=1e-9)  # sums, which may be added in any order
Open = Callable[[], Storage]
"""Opens a storage on the same data, as often as it is called."""


class Bench:
    """A storage, with all of its methods, and steps that several checks take.

    Keys of experiments and all other values are those of the storage.
    """

    def __init__(self, open_storage: Open) -> None:
        self._open = open_storage
        self.storage = open_storage()

    def again(self) -> Bench:
        """Another opening of the storage, on the same data."""
        return Bench(self._open)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.storage, name)

    # Steps

    def new_experiment(
        self,
        name: str = "e",
        *metrics: Mapping[str, Any],
        products: Sequence[tuple[str, ...]] = (),
        sticky: bool = True,
        seed: int = SEED,
        state: ExperimentState = "running",
        window: int | None = None,
        grace: int = 0,
    ) -> int:
        """The key of an experiment without segments; window and grace in microseconds."""
        config = {
            "seed": seed,
            "arms": list("ABC"),
            "sticky": "unit" if sticky else "request",
            "metrics": [{**METRIC, **metric} for metric in metrics],
            "products": [list(names) for names in products],
        }
        if window is not None:
            config |= {"reward_window": window / 1e6, "reward_grace": grace / 1e6}
        return self.storage.create(new_record(name, config, state=state, created=NOW)).key

    def running(
        self, rounds: int, *metrics: Mapping[str, Any], name: str = "e", **settings: Any
    ) -> int:
        """The key of a running experiment with one segment."""
        key = self.new_experiment(name, *metrics, **settings)
        self.open_segment(key, new_segment(rounds))
        return key

    def busy(self, name: str) -> int:
        """The key of an experiment with a bit of everything."""
        key = self.running(6, name=name)
        self.assign(key, [f"a{i}" for i in range(6)], now=NOW + 1)
        self.reward(key, [("a0", 0.1), ("a3", -1e9), ("a5", 1 / 3)], NOW + 2)
        self.open_segment(key, new_segment(30, "blocks", 8), closed=[0])
        self.assign(key, ["b0", "b1", "a1"], now=NOW + 3)
        self.assign(key, ["c0"], now=NOW + 4)
        self.assign(key, ["d0"], now=NOW + 6)
        assert self.decided(key, Decision({}, supersede=1)), "a correct decision was refused"
        self.open_segment(key, new_segment(50))
        self.assign(key, ["e0", "e1"], now=NOW + 7)
        self.reward(key, [("c0", 2.0), ("e1", 0.7), (number_of(1, 0), 0.2)], NOW + 8)
        return key

    def move(self, key: int, to: ExperimentState, now: int = NOW) -> ExperimentRecord:
        return self.storage.move(key, to, now)

    def decided(self, key: int, decision: Decision) -> bool:
        """Whether a decision was stored, made on the current version."""
        version = self.storage.snapshot(key).experiment.version
        return self.storage.decide(key, version, decision, NOW)

    def open_segment(self, key: int, segment: Segment, closed: Sequence[int] = ()) -> int:
        """Open the next segment, and close others with the tallies they have; its index."""
        whole = self.storage.snapshot(key, everything=True)
        index, version = len(whole.segments), whole.experiment.version
        tallies = tuple((i, whole.segments[i][1]) for i in closed)
        opened = SegmentRecord(index, segment, False, False, whole.experiment.observed, NOW)
        decision = Decision({"version": version}, tallies, opened=opened, series=whole.series)
        assert self.storage.decide(key, version, decision, NOW), "a correct decision was refused"
        return index

    def assign(self, key: int, *given: Any, now: int = NOW) -> AssignmentResult:
        """`Storage.assign`, with an answer for each unit."""
        result = self.storage.assign(key, *given, now=now)
        assert len(result.assigned) == len(given[0]), "not one answer for each unit"
        return result

    def reward(self, key: int, rewards: Sequence[tuple[Any, ...]], now: int) -> tuple[Outcome, ...]:
        """`Storage.record` with rewards: a target, a value and perhaps when it happened."""
        events = [Event(target, value, at=at[0] if at else None) for target, value, *at in rewards]
        return self.record(key, events, now)

    def record(self, key: int, events: Sequence[Event], now: int) -> tuple[Outcome, ...]:
        return self.storage.record(key, events, now).outcomes

    def change(
        self, key: int, kind: Kind, *, by: str = "", now: int = NOW + 9, **more: Any
    ) -> CorrectionResult:
        """`Storage.correct`, with a reason."""
        return self.storage.correct(key, Change(kind, reason=WHY, **more), now=now, by=by)

    # What a storage has of an experiment, compared in several ways

    def whole_log(self, key: int, most: int = 10_000) -> list[LogRow]:
        """All rows, read in pages of that many."""
        rows: list[LogRow] = []
        while page := self.storage.log(key, rows[-1].number if rows else -1, most):
            assert len(page) <= most, "a page is longer than requested"
            rows += page
        return rows

    def late(self, key: int) -> int:
        """Rewards that came too late."""
        return sum(sum(sums.late) for sums in self.storage.days(key))

    def everything(self, key: int) -> list[object]:
        """All that can be read of an experiment, its record first."""
        whole = self.storage.snapshot(key, everything=True)
        return [
            whole.experiment,
            [segment_row(key, record) for record, _ in whole.segments],
            [t for _, t in whole.segments],
            self.whole_log(key),
            self.storage.corrections(key),
        ]

    def accounted(self, key: int) -> list[LogRow]:
        """All rows; each position must be used at most once."""
        whole = self.storage.snapshot(key, everything=True)
        rows = self.whole_log(key)
        numbers = [r.number for r in rows]
        assert numbers == sorted(set(numbers)), "the log is not in order, or has a position twice"
        for index, position in map(place_of, numbers):
            record = whole.segments[index][0]
            assert position < record.used <= record.rounds, "a position is beyond the counter"
        if whole.experiment.config["sticky"] == "unit":
            units = Counter(r.unit for r in rows)
            assert not units or max(units.values()) == 1, "a unit has two assignments"
        self.tallied(key)
        return rows

    def tallied(self, key: int) -> list[Tally]:
        """The tallies of all segments, compared with sums over the log and over the days."""
        segments = self.storage.snapshot(key, everything=True).segments
        rows, days = self.whole_log(key), self.dayed(key)
        for record, tally in segments:
            mine = [r for r in rows if place_of(r.number)[0] == record.index]
            _compare(tally, record.segment, mine)
            parts = [sums.tally for sums in days if sums.segment == record.index]
            parts.append(Tally.empty(record.segment.columns))
            for name in ("assigned", "rewarded", "sums", "squares", "excluded"):
                total = np.sum([getattr(part, name) for part in parts], axis=0)
                assert total == close(np.array(getattr(tally, name))), name
        return [tally for _, tally in segments]

    def dayed(self, key: int) -> tuple[DaySums, ...]:
        """The sums of all days, compared with the log."""
        assigned: dict[tuple[int, int], list[LogRow]] = {}
        for row in self.whole_log(key):
            place = place_of(row.number)[0], row.created // DAY
            assigned.setdefault(place, []).append(row)
        days = self.storage.days(key)
        places = [(sums.segment, sums.day) for sums in days]
        assert places == sorted(assigned), "not the days on which something was assigned, in order"
        segments = self.storage.snapshot(key, everything=True).segments
        for place, sums in zip(places, days, strict=True):
            segment, rows = segments[place[0]][0].segment, assigned[place]
            _compare(sums.tally, segment, rows)
            for column, waited in enumerate(sums.waited):
                mine = [r for r in rows if r.arm == segment.arm_at(column) and r.excluded is None]
                times = [r.rewarded - r.created for r in mine if r.rewarded is not None]
                assert waited == sum(max(0, time) // 1000 for time in times), "the waiting time"
        return days


def _compare(tally: Tally, segment: Segment, rows: Sequence[LogRow]) -> None:
    """A tally, of a segment or a day of it, must be that of the rows."""
    assert tally.last == max((r.created for r in rows), default=None)
    expected = []
    for column in range(segment.columns):
        mine = [r for r in rows if r.arm == segment.arm_at(column)]
        counting = [r for r in mine if r.excluded is None]
        values = [float(r.reward) for r in counting if r.reward is not None]
        sums = sum(values), sum(value * value for value in values)
        expected.append((len(mine), len(values), *sums, len(mine) - len(counting)))
    found = tally.assigned, tally.rewarded, tally.sums, tally.squares, tally.excluded
    assert close(np.array(expected)) == np.array(found).T


def new_record(name: str, config: Mapping[str, Any], **more: Any) -> ExperimentRecord:
    """The record of a draft that is to be created, unless more is said."""
    usual: dict[str, Any] = {"tag": "tag", "state": "draft", "created": 0, "policy_state": {}}
    return ExperimentRecord(name=name, config=config, **usual | more)


def new_segment(rounds: int, order: Order = "iid", block: int = 1) -> Segment:
    """An allocation of three arms."""
    if order == "shuffled":
        second = rounds // 4
        return Segment.shuffled(np.array([[rounds // 8, second, rounds - rounds // 8 - second]]))
    return Segment(np.array([WEIGHTS]), np.array([rounds]), order, block)


def refused(error: type[Exception], call: Callable[..., object], *args: Any, **named: Any) -> str:
    """The message of the error that `call` must raise."""
    with pytest.raises(error) as caught:
        call(*args, **named)
    return str(caught.value)


def together(work: Callable[[int], T], threads: int) -> list[T]:
    """What work(0), work(1), ... return, each in a thread, all starting at once."""
    barrier = Barrier(threads)

    def run(i: int) -> T:
        barrier.wait()
        return work(i)

    # Threads switch so often that they are likely to meet inside every step.
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(run, range(threads)))
    finally:
        sys.setswitchinterval(before)


def gathered(work: Callable[[int], list[T]], threads: int) -> list[T]:
    """All that the threads return, in one list."""
    return [each for part in together(work, threads) for each in part]


def every(result: AssignmentResult) -> list[StoredAssignment]:
    """One assignment for each unit."""
    given = [each for each in result.assigned if each is not None]
    assert len(given) == len(result.assigned), "a unit got nothing although there are positions"
    return given


def numbers_of(result: AssignmentResult) -> list[int | None]:
    """Numbers of the assignments, None for those who got none."""
    return [None if each is None else each.number for each in result.assigned]
