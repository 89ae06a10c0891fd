"""Checks of metrics: events that add up, series, and what operators do to them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from math import fsum, prod
from typing import Any

import numpy as np
import pytest

from steadyarm.errors import InvalidInputError, UnknownAssignmentError, UnknownExperimentError
from steadyarm.storages.records import Decision, Event, LogRow, MetricEvent, place_of
from tests.storages.bench import DAY, HOUR, NAMES, NOW, Bench, close, new_segment, refused
from tests.storages.test_experiments import summarized

CLICKED: dict[str, Any] = {"name": "clicked"}
SPENT: dict[str, Any] = {"name": "spent", "several": "sum", "cap": 100.0}
SPEED: dict[str, Any] = {"name": "speed", "several": "max"}
SEEN: dict[str, Any] = {"name": "seen", "several": "last", "window": HOUR, "grace": HOUR}
ALL = (CLICKED, SPENT, SPEED, SEEN)
AGE: dict[str, Any] = {"name": "age", "role": "covariate"}
LOYAL: dict[str, Any] = {"name": "loyal", "role": "covariate"}
STEERING = (("age", "loyal", "reward?"), ("age", "reward?"), ("age", "reward"), ("age", "loyal"))


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


def check(bench: Bench, key: int, events: Sequence[tuple[Event, str]], now: int) -> Any:
    """Record events, each with what becomes of it; the outcomes."""
    outcomes = bench.record(key, [event for event, _ in events], now)
    assert [outcome.status for outcome in outcomes] == [status for _, status in events]
    return outcomes


def test_an_event_counts_once_and_another_value_of_it_is_a_conflict(bench: Bench) -> None:
    key = bench.running(60, *ALL)
    bench.assign(key, ["a", "b"])
    first = [
        (Event("a", 0.0, "clicked"), "stored"),
        (Event("a", 5.0, "spent", key=NAMES[2]), "stored"),
        (Event("b", 5.0, "spent", key=NAMES[2]), "stored"),
        (Event("a", 5.0, "spent", key=NAMES[2]), "repeated"),
        (Event("a", 1.0, "clicked", key="given for nothing"), "conflict"),
        (Event("nobody", 5.0, "spent", key="x"), "unknown"),
        (Event((0, "ffffff"), 5.0, "spent", key="x"), "unknown"),
    ]
    outcomes = check(bench, key, first, NOW)
    assert [(each.number, each.previous) for each in outcomes[3:5]] == [(0, 5.0), (0, 0.0)]
    more = [
        (Event("a", 0.0, "clicked"), "repeated"),
        (Event(0, 6.0, "spent", key=NAMES[2]), "conflict"),
        (Event(0, 6.0, "spent", key=NAMES[4]), "stored"),
        (Event(1, 1.0, "clicked"), "stored"),
    ]
    check(bench.again(), key, more, NOW + 5)
    found = counted(bench, key)
    assert found["spent"] == close((2, 16))
    assert found["clicked"] == (2, 1)
    good = Event("b", 1.0, "spent", key="good")
    for bad in (("unheard-of", None), ("spent", None), ("seen", "")):
        events = [good, Event("a", 1.0, bad[0], key=bad[1])]
        refused(InvalidInputError, bench.record, key, events, NOW)
    assert counted(bench, key) == found
    bench.move(key, "stopped")
    check(bench, key, [(Event("b", 1.0, "speed", key="e"), "stored")], NOW)
    bench.move(key, "archived")
    check(bench, key, [(Event("b", 2.0, "speed", key="f"), "archived")], NOW)


def test_a_reward_made_of_events_has_their_sum_and_the_times_of_the_last(bench: Bench) -> None:
    primary = SPENT | {"name": "revenue", "role": "primary", "cap": 50.0}
    key = bench.running(4, primary | {"window": DAY, "grace": HOUR}, CLICKED)
    bench.assign(key, ["a", "b", "c", "d"])
    events = [
        (Event("a", 0.1, "revenue", NOW + 5_000, "o1"), "stored"),
        (Event("a", 0.2, "revenue", NOW + 3_000, "o2"), "stored"),
        (Event("b", 30.0, "reward", key="o1"), "stored"),
        (Event("b", 30.0, "revenue", key="o2"), "stored"),
        (Event("b", 30.0, "revenue", key="o2"), "repeated"),
    ]
    check(bench, key, events, NOW + 9_000)
    rows = bench.log(key)
    assert [row.reward for row in rows] == [fsum([0.1, 0.2]), 50.0, None, None]
    times = [(row.rewarded, row.received) for row in rows[:2]]
    assert times == [(NOW + 5_000, NOW + 9_000), (NOW + 9_000, None)]
    events = [
        (Event("a", 0.3, "revenue", NOW + DAY, "o3"), "stored"),
        (Event("a", 0.3, "revenue", NOW + DAY + 1, "o4"), "late"),
        (Event("c", -1.0, "revenue", NOW - HOUR, "o1"), "early"),
    ]
    check(bench.again(), key, events, NOW + DAY + HOUR)
    late = Event("a", 0.3, "revenue", NOW + DAY, "after the grace")
    check(bench, key, [(late, "late")], NOW + DAY + HOUR + 1)
    assert bench.log(key)[0].reward == fsum([0.1, 0.2, 0.3])
    refused(InvalidInputError, bench.reward, key, [("c", 1.0)], 0)  # it needs a key
    bench.open_segment(key, new_segment(9), closed=[0])
    events = [
        (Event("a", 9.0, "revenue", key="o9"), "closed"),
        (Event("a", 0.1, "revenue", key="o1"), "repeated"),
        (Event("d", 1.0, "clicked"), "stored"),
    ]
    check(bench, key, events, NOW + 9_001)
    assert bench.late(key) == 3
    counted(bench, key)


# After any history all sums are those of the log


PRIMARIES: tuple[dict[str, Any], ...] = (
    {},
    {"name": "orders", "role": "primary", "several": "sum", "cap": 50.0, "window": DAY},
    {"name": "score", "role": "primary", "several": "last"},
    {"name": "score", "role": "primary", "several": "max"},
)
METRICS = (*ALL, AGE, LOYAL)
PRODUCTS = (*STEERING, ("clicked", "reward"), ("clicked", "spent"))
STEPS = 40


def report(bench: Bench, key: int, units: list[str], now: int, rng: np.random.Generator) -> None:
    """Some events of some units, some of them early, late, repeated or in conflict."""
    names = ["reward", *(metric["name"] for metric in METRICS)]
    events = [
        Event(
            str(rng.choice([*units, "nobody"])),
            float(rng.choice([0.1, 1 / 3, -2.5, 1e6])),
            str(rng.choice(names)),
            None if rng.random() < 0.5 else now - int(rng.integers(2 * DAY)),
            f"e{rng.integers(3)}",
        )
        for _ in range(8)
    ]
    bench.record(key, events, now)


def correct(bench: Bench, key: int, units: list[str], now: int, rng: np.random.Generator) -> None:
    """A correction, unless there is nothing to correct."""
    unit, since = str(rng.choice(units)), NOW + int(rng.integers(max(1, now - NOW)))
    metric = str(rng.choice(["reward", CLICKED["name"], "spent"]))
    changes: list[dict[str, Any]] = [
        {"kind": "void", "target": unit, "metric": metric},
        {"kind": "void", "target": unit, "metric": metric},
        {"kind": "exclude", "unit": unit},
        {"kind": "exclude", "since": since, "until": min(since + HOUR, now)},
        {"kind": "erase", "unit": unit},
    ]
    with suppress(InvalidInputError, UnknownAssignmentError):
        bench.change(key, now=now, **changes[rng.integers(len(changes))])


def close_segments(bench: Bench, key: int) -> None:
    """Close all open segments whose positions are assigned, and open another one."""
    snapshot = bench.snapshot(key)
    full = [r.index for r, tally in snapshot.segments if r.closed is None and r.used == r.rounds]
    if snapshot.segments[-1][0].index in full:
        bench.open_segment(key, new_segment(12), closed=full)
    elif full:
        tallies = {record.index: tally for record, tally in snapshot.segments}
        decision = Decision({}, tuple((i, tallies[i]) for i in full), series=snapshot.series)
        assert bench.decided(key, decision)


@pytest.mark.parametrize("primary", PRIMARIES, ids=lambda metric: metric.get("several", "plain"))
def test_sums_follow_any_history(bench: Bench, primary: dict[str, Any]) -> None:
    """Assignments, events, corrections and decisions, from two openings of a storage."""
    rng = np.random.default_rng(len(primary))
    metrics = [primary, *METRICS] if primary else METRICS
    bench.new_experiment("draft", state="draft")
    other = bench.busy("other")
    untouched = bench.everything(other), bench.days(other), bench.series(other)
    key = bench.running(12, *metrics, products=PRODUCTS, window=DAY, grace=HOUR)
    views, units, now = (bench, bench.again()), list[str](), NOW
    for step in range(STEPS):
        now += int(rng.integers(6 * HOUR))
        view = views[rng.integers(2)]
        if not units or rng.random() < 0.4:
            new = [f"u{step}.{i}" for i in range(rng.integers(1, 6))]
            values = [{"age": 1.5, "loyal": 0.5} if rng.random() < 0.5 else {} for _ in new]
            given = view.assign(key, new, values, now=now).assigned
            units += [assigned.unit for assigned in given if assigned is not None]
        elif rng.random() < 0.6:
            report(view, key, units, now, rng)
        elif rng.random() < 0.6:
            correct(view, key, units, now, rng)
        else:
            close_segments(view, key)
        if step % 8 == 7:
            counted(bench, key)
            summarized(bench)
    bench.accounted(key)
    for state in ("stopped", "archived"):
        bench.move(key, state, now=now)
    assert bench.prune(now, now).experiments == ()
    for dry in (True, False):
        assert bench.prune(now + DAY, now + DAY, dry=dry).experiments == ("e",)
    assert [summary.name for summary in summarized(bench)] == ["draft", "other"]
    refused(UnknownExperimentError, bench.again().log, key)
    again = bench.running(60, *metrics, products=PRODUCTS)
    assert again not in (key, other)
    bench.assign(again, units, now=now)
    assert (bench.series(again), bench.summaries(again)[0].measured) == ((), 0)
    bench.accounted(again)
    assert (bench.everything(other), bench.days(other), bench.series(other)) == untouched
