"""Checks of a bench as a whole: many threads at once, several openings of it, large requests."""

from __future__ import annotations

from collections import Counter
from functools import partial
from math import fsum
from typing import Any

import numpy as np
import pytest

from steadyarm.storages.records import Decision, Event, SegmentRecord, StoredAssignment
from tests.storages.bench import (
    NOW,
    Bench,
    close,
    every,
    gathered,
    new_segment,
    numbers_of,
    together,
)
from tests.storages.test_series import ALL, SPENT, counted


def test_however_requests_race_a_unit_has_one_assignment(bench: Bench) -> None:
    storages = [bench.again() for _ in range(3)]
    key = storages[0].running(100)
    units = [f"u{i}" for i in range(60)]

    def work(i: int) -> list[StoredAssignment]:
        mine = np.random.default_rng(i).permutation(units).tolist()
        found: list[StoredAssignment] = []
        for start in range(0, 60, 4):
            found += every(storages[i % 3].assign(key, mine[start : start + 4]))
        return found

    given = gathered(work, 8)
    places = {(a.unit, a.number) for a in given}
    assert len(places) == 60
    new = Counter(a.unit for a in given if a.new)
    assert new == Counter(units)
    assert len({a.arm for a in given if a.number == 0}) == 1
    rows = storages[0].accounted(key)
    assert {(r.unit, r.number) for r in rows} == places
    rest = {*numbers_of(bench.assign(key, [f"n{i}" for i in range(50)]))} - {None}
    assert {n for _, n in places} | rest == {*range(100)}


def test_of_many_who_decide_on_the_same_version_one_does(bench: Bench) -> None:
    storages = [bench.again() for _ in range(3)]
    key = storages[0].running(2)

    def decide(version: int, made: list[Decision], i: int) -> bool:
        return bool(storages[i % 3].decide(key, version, made[i], NOW))

    for turn in range(6):
        storages[0].assign(key, [f"a{turn}", f"b{turn}"])
        snapshot = storages[0].snapshot(key)
        (record, tally), version = snapshot.segments[-1], snapshot.experiment.version
        opened = SegmentRecord(turn + 1, new_segment(2), False, False, turn + 1, NOW)
        made = [Decision({"by": i}, ((record.index, tally),), None, opened) for i in range(4)]
        stored = together(partial(decide, version, made), 4)
        assert sum(stored) == 1
        found = storages[1].find("e")
        assert found.policy_state == {"by": stored.index(True)}
        assert (found.version, found.observed) == (version + 1, turn + 1)
    closed = [r.closed for r, _ in storages[2].snapshot(key, everything=True).segments]
    assert closed == [1, 2, 3, 4, 5, 6, None]


def test_a_reward_is_in_the_tally_its_segment_was_closed_with_or_is_refused(bench: Bench) -> None:
    storages = [bench.again() for _ in range(3)]

    def tell(key: int, i: int) -> list[str]:
        return [storages[i].reward(key, [(f"u{j}", 0.1)], NOW)[0].status for j in range(i, 40, 3)]

    def close(key: int, least: int) -> list[str]:
        while True:
            snapshot = storages[1].snapshot(key)
            ((_, tally),) = snapshot.segments
            decision = Decision({"rewards": tally.total_rewarded}, ((0, tally),))
            if tally.total_rewarded < least:
                continue
            if storages[1].decide(key, snapshot.experiment.version, decision, NOW):
                return []

    def work(key: int, least: int, i: int) -> list[str]:
        return tell(key, i) if i < 3 else close(key, least)

    for turn in range(3):
        name = f"e{turn}"
        key = storages[0].running(40, name=name)
        storages[0].assign(key, [f"u{i}" for i in range(40)])
        said = Counter(gathered(partial(work, key, 8 * turn), 4))
        (tally,) = storages[2].tallied(key)
        reported = storages[0].find(name).policy_state["rewards"]
        assert tally.total_rewarded == reported
        assert said["stored"] == reported
        assert said["closed"] == 40 - reported
        assert storages[2].late(key) == said["closed"]


def test_however_events_race_each_counts_once_and_none_is_lost(bench: Bench) -> None:
    storages = [bench.again() for _ in range(3)]
    primary = {"name": "orders", "role": "primary", "several": "sum"}
    key = storages[0].running(60, primary, *ALL, products=[("orders", "spent")])
    units = [f"u{i}" for i in range(3)]
    storages[0].assign(key, units)
    events = [
        Event(unit, 0.1 * (i + 1), metric, NOW + i, f"e{i}")
        for i in range(8)
        for unit in units
        for metric in ("orders", "spent", "speed", "seen")
    ] + [Event(unit, 1.0, "clicked") for unit in units]

    def work(i: int) -> list[tuple[int, str]]:
        order = np.random.default_rng(i).permutation(len(events))
        found: list[tuple[int, str]] = []
        for part in np.array_split(order, 12):
            outcomes = storages[i % 3].record(key, [events[j] for j in part], NOW + 9)
            found += [(int(j), o.status) for j, o in zip(part, outcomes, strict=True)]
        return found

    became = gathered(work, 6)
    stored = Counter(j for j, status in became if status == "stored")
    assert stored == Counter(range(len(events)))
    assert {status for _, status in became} == {"stored", "repeated"}
    found = counted(storages[0], key)
    total = fsum(0.1 * (i + 1) for i in range(8))
    assert found["spent"] == close((3, 3 * total))
    assert found["orders*spent"][0] == 3
    assert [row.reward for row in storages[1].log(key)] == close([total] * 3)


ORDERS: dict[str, Any] = {"name": "orders", "role": "primary", "several": "sum"}


@pytest.mark.parametrize("metrics", [(), (ORDERS, SPENT)], ids=["rewards", "events"])
def test_threads_correct(bench: Bench, metrics: tuple[dict[str, Any], ...]) -> None:
    """Corrections race with events and with closing; all sums and traces stay exact."""
    storages = [bench.again() for _ in range(3)]
    names = [metric["name"] for metric in metrics] or ["reward"]
    products = [tuple(names)] if metrics else []
    for turn in range(3):
        key = storages[0].running(6, *metrics, products=products, name=f"e{turn}")
        units = [f"u{i}" for i in range(6)]
        storages[0].assign(key, units)
        storages[0].record(key, [Event(u, 1.5, m, key="e0") for u in units for m in names], NOW)

        def work(i: int, key: int = key, units: list[str] = units) -> None:
            mine = storages[i % 3]
            if i == 0:
                mine.change(key, "exclude", since=NOW, until=NOW + 1)
            elif i == 1:
                for unit in units[:3]:
                    mine.change(key, "void", target=unit, metric=names[-1])
                mine.change(key, "void", target=units[4], metric=names[0])
            elif i == 2:
                ((record, tally),) = mine.snapshot(key).segments
                version = mine.snapshot(key).experiment.version
                mine.decide(key, version, Decision({}, ((record.index, tally),)), NOW)
            else:
                for unit in units:
                    events = [Event(unit, 0.1, m, key=f"e{i}") for m in names]
                    mine.record(key, events, NOW)

        together(work, 5)
        counted(storages[0], key)
        (tally,) = storages[0].tallied(key)
        assert tally.total_excluded == 6
        assert len(storages[0].corrections(key)) == 10
        (record, _) = bench.snapshot(key).segments[0]
        if record.closed is None:
            assert bench.decided(key, Decision({}, ((0, tally),)))
