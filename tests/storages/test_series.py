"""Checks of metrics: events that add up, series, and what operators do to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import fsum, prod
from typing import Any

from steadyarm.errors import InvalidInputError
from steadyarm.storages.records import Event, LogRow, MetricEvent, Outcome, place_of
from tests.storages.bench import DAY, HOUR, NAMES, NOW, Bench, close, new_segment, refused

CLICKED: dict[str, Any] = {"name": "clicked"}
SPENT: dict[str, Any] = {"name": "spent", "several": "sum", "cap": 100.0}
SPEED: dict[str, Any] = {"name": "speed", "several": "max"}
SEEN: dict[str, Any] = {"name": "seen", "several": "last", "window": HOUR, "grace": HOUR}
ALL = (CLICKED, SPENT, SPEED, SEEN)
PRODUCTS = (("clicked", "spent"), ("reward", "spent"))
AGE: dict[str, Any] = {"name": "age", "role": "covariate"}
LOYAL: dict[str, Any] = {"name": "loyal", "role": "covariate"}
STEERING = (("age", "loyal", "reward?"), ("age", "reward?"), ("age", "reward"), ("age", "loyal"))


def said(outcomes: Sequence[Outcome]) -> list[str]:
    """What became of events."""
    return [outcome.status for outcome in outcomes]


def counted(bench: Bench, key: int) -> dict[str, tuple[int, Any]]:
    """Number and sum of the values of each series, after comparing all sums with the log."""
    bench.tallied(key)
    config = bench.snapshot(key).experiment.config
    rules = {each["name"]: each for each in config["metrics"]}
    primary = next((each["name"] for each in config["metrics"] if each["role"] == "primary"), None)
    names = [name for name in rules if name != primary]
    expected: dict[tuple[int, int, str], dict[tuple[int, str], Any]] = {}

    def count(row: LogRow, series: str, value: float) -> None:
        place = place_of(row.number)[0], row.created // DAY, series
        sums = expected.setdefault(place, {})
        for what, more in (("rewarded", 1), ("sums", value), ("squares", value * value)):
            sums[row.arm, what] = sums.get((row.arm, what), 0) + more

    for row in bench.whole_log(key, most=7):
        values: dict[str, float] = {}
        for name, rule in rules.items():
            mine = [event for event in row.events if event.metric == name]
            assert mine == sorted(mine)
            if mine:
                value = _value(rule, mine)
                values[name] = float(value)
                if name == primary:
                    assert row.reward == value
                    assert row.rewarded == max(event.at for event in mine)
        if row.reward is not None:
            values[primary or "reward"] = values["reward"] = float(row.reward)
            values["reward?"] = 1
        if row.excluded is not None:
            continue
        for name in names:
            if name in values:
                count(row, name, values[name])
        for factors in config["products"]:
            if all(name in values for name in factors):
                product = prod((values[name] for name in factors), start=1.0)
                count(row, "*".join(factors), product)
    everything = bench.series(key)
    covariates = {name for name, rule in rules.items() if rule["role"] == "covariate"}
    for snapshot in (bench.snapshot(key), bench.snapshot(key, True)):
        indices = {record.index for record, _ in snapshot.segments}
        assert snapshot.series == tuple(
            sums
            for sums in everything
            if sums.segment in indices and covariates & {*sums.series.split("*")}
        )
    places = [(sums.segment, sums.day, sums.series) for sums in everything]
    assert places == sorted(places)
    counting = {place for place, sums in zip(places, everything, strict=True) if any(sums.rewarded)}
    assert counting == expected.keys()
    totals: dict[str, tuple[int, Any]] = {}
    for place, sums in zip(places, everything, strict=True):
        segment = bench.segments(key, [place[0]])[place[0]].segment
        assert len(sums.late) == len(sums.rewarded) == segment.columns
        for what in ("rewarded", "sums", "squares"):
            right = [
                expected.get(place, {}).get((segment.arm_at(column), what), 0)
                for column in range(segment.columns)
            ]
            assert [*getattr(sums, what)] == close(right)
        n, total = totals.get(sums.series, (0, 0.0))
        totals[sums.series] = n + sum(sums.rewarded), total + sum(sums.sums)
    return totals


def _value(rule: dict[str, Any], events: Sequence[MetricEvent]) -> float:
    if rule["several"] == "sum":
        value = fsum(event.value for event in events)
    elif rule["several"] == "max":
        value = max(event.value for event in events)
    else:
        value = max((event.at, event.event, event.value) for event in events)[2]
    return value if rule["cap"] is None else min(value, rule["cap"])


def test_events_once(bench: Bench) -> None:
    """An event counts once; another value of it is a conflict, and another event is not."""
    key = bench.running(60, *ALL)
    bench.assign(key, ["a", "b"])
    first = [
        Event("a", 0.0, "clicked"),
        Event("a", 5.0, "spent", key=NAMES[2]),
        Event("b", 5.0, "spent", key=NAMES[2]),
        Event("a", 5.0, "spent", key=NAMES[2]),
        Event("a", 1.0, "clicked", key="given for nothing"),
        Event("nobody", 5.0, "spent", key="x"),
        Event((0, "ffffff"), 5.0, "spent", key="x"),
    ]
    wanted = ["stored", "stored", "stored", "repeated", "conflict", "unknown", "unknown"]
    outcomes = bench.record(key, first, NOW)
    assert said(outcomes) == wanted
    assert (outcomes[3].number, outcomes[3].previous) == (0, 5.0)
    assert (outcomes[4].number, outcomes[4].previous) == (0, 0.0)
    more = [
        Event("a", 0.0, "clicked"),
        Event(0, 6.0, "spent", key=NAMES[2]),
        Event(0, 6.0, "spent", key=NAMES[4]),
        Event(1, 1.0, "clicked"),
    ]
    outcomes = bench.again().record(key, more, NOW + 5)
    assert said(outcomes) == ["repeated", "conflict", "stored", "stored"]
    found = counted(bench, key)
    assert found["spent"] == close((2, 16))
    assert found["clicked"] == (2, 1)
    wrong = [Event("b", 1.0, "spent", key="good"), Event("a", 1.0, "unheard-of")]
    for bad in (wrong[1], Event("a", 1.0, "spent"), Event("a", 1.0, "seen", key="")):
        refused(InvalidInputError, bench.record, key, [wrong[0], bad], NOW)
    assert counted(bench, key) == found
    bench.move(key, "stopped")
    assert said(bench.record(key, [Event("b", 1.0, "speed", key="e")], NOW)) == ["stored"]
    bench.move(key, "archived")
    event = Event("b", 2.0, "speed", key="f")
    assert said(bench.record(key, [event], NOW)) == ["archived"]


def test_rewards_of_events(bench: Bench) -> None:
    """A reward made of events has their sum, up to a cap, and the times of the last one."""
    primary = SPENT | {"name": "revenue", "role": "primary", "cap": 50.0}
    key = bench.running(4, primary | {"window": DAY, "grace": HOUR}, CLICKED)
    bench.assign(key, ["a", "b", "c", "d"])
    events = [
        Event("a", 0.1, "revenue", NOW + 5_000, "o1"),
        Event("a", 0.2, "revenue", NOW + 3_000, "o2"),
        Event("b", 30.0, "reward", key="o1"),
        Event("b", 30.0, "revenue", key="o2"),
        Event("b", 30.0, "revenue", key="o2"),
    ]
    assert said(bench.record(key, events, NOW + 9_000)) == ["stored"] * 4 + ["repeated"]
    rows = bench.log(key)
    assert [row.reward for row in rows] == [fsum([0.1, 0.2]), 50.0, None, None]
    times = [(row.rewarded, row.received) for row in rows[:2]]
    assert times == [(NOW + 5_000, NOW + 9_000), (NOW + 9_000, None)]
    events = [
        Event("a", 0.3, "revenue", NOW + DAY, "o3"),
        Event("a", 0.3, "revenue", NOW + DAY + 1, "o4"),
        Event("c", -1.0, "revenue", NOW - HOUR, "o1"),
    ]
    outcomes = bench.again().record(key, events, NOW + DAY + HOUR)
    assert said(outcomes) == ["stored", "late", "early"]
    after = [replace(events[0], key="after the grace")]
    assert said(bench.record(key, after, NOW + DAY + HOUR + 1)) == ["late"]
    assert bench.log(key)[0].reward == fsum([0.1, 0.2, 0.3])
    refused(InvalidInputError, bench.reward, key, [("c", 1.0)], 0)
    bench.open_segment(key, new_segment(9), closed=[0])
    events = [
        Event("a", 9.0, "revenue", key="o9"),
        Event("a", 0.1, "revenue", key="o1"),
        Event("d", 1.0, "clicked"),
    ]
    assert said(bench.record(key, events, NOW + 9_001)) == ["closed", "repeated", "stored"]
    assert bench.late(key) == 3
    counted(bench, key)
