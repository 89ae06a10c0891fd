"""Checks of metrics: events that add up, series, and what operators do to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np

from steadyarm.errors import InvalidInputError, UnknownAssignmentError, WrongStateError
from steadyarm.storages.changes import Change, Correction, as_observed
from steadyarm.storages.records import (
    Decision,
    LogRow,
    Measured,
    MetricEvent,
    Outcome,
    SeriesSums,
    check_of,
    place_of,
)
from steadyarm.testing.storages.bench import (
    DAY,
    FLOATS,
    HOUR,
    NAMES,
    NOW,
    WHY,
    Bench,
    new_record,
    new_segment,
    refused,
)

CLICKED: dict[str, Any] = {"name": "clicked"}
SPENT: dict[str, Any] = {"name": "spent", "several": "sum", "cap": 100.0}
SPEED: dict[str, Any] = {"name": "speed", "several": "max"}
SEEN: dict[str, Any] = {"name": "seen", "several": "last", "window": HOUR, "grace": HOUR}
ALL = (CLICKED, SPENT, SPEED, SEEN)
PRODUCTS = (("clicked", "spent"), ("reward", "spent"))
AGE: dict[str, Any] = {"name": "age", "role": "covariate"}
LOYAL: dict[str, Any] = {"name": "loyal", "role": "covariate"}
STEERING = (("age", "loyal", "reward?"), ("age", "reward?"), ("age", "reward"), ("age", "loyal"))


def declared(
    storage: Bench,
    *metrics: dict[str, Any],
    products: Sequence[tuple[str, ...]] = (),
    rounds: int = 60,
    name: str = "e",
) -> int:
    """The key of a running experiment with these metrics, and one segment."""
    usual = {"role": "secondary", "several": "first", "window": None, "grace": None, "cap": None}
    config = {
        "seed": 5,
        "sticky": "unit",
        "metrics": [usual | metric for metric in metrics],
        "products": [list(names) for names in products],
    }
    made = storage.create(new_record(name, config, state="running", created=NOW))
    storage.open_segment(made.key, new_segment(rounds))
    return int(made.key)


def said(outcomes: Sequence[Outcome]) -> list[str]:
    """What became of events."""
    return [outcome.status for outcome in outcomes]


def counted(storage: Bench, key: int) -> dict[str, tuple[int, Any]]:
    """Number and sum of the values of each series, after comparing all sums with the log."""
    storage.tallied(key)
    config = storage.snapshot(key).experiment.config
    rules = {each["name"]: each for each in config["metrics"]}
    primary = next((each["name"] for each in config["metrics"] if each["role"] == "primary"), None)
    names = [name for name in rules if name != primary]
    expected: dict[tuple[int, int, str], dict[tuple[int, str], Any]] = {}

    def count(row: LogRow, series: str, value: Fraction) -> None:
        place = place_of(row.number)[0], row.created // DAY, series
        sums = expected.setdefault(place, {})
        for what, more in (("rewarded", 1), ("sums", value), ("squares", value * value)):
            sums[row.arm, what] = sums.get((row.arm, what), 0) + more

    for row in storage.whole_log(key, most=7):
        assert storage.find_assignments(key, [row.number]) == [row], "found with other events"
        values: dict[str, Fraction] = {}
        for name, rule in rules.items():
            mine = [event for event in row.events if event.metric == name]
            assert mine == sorted(mine), "events are not in order"
            if mine:
                value = _value(rule, mine)
                values[name] = Fraction(value)
                if name == primary:
                    assert row.reward == value, "a reward is not what its events count as"
                    assert row.rewarded == max(event.at for event in mine), "not the last event"
        if row.reward is not None:
            values[primary or "reward"] = values["reward"] = Fraction(row.reward)
            values["reward?"] = Fraction(1)
        if row.excluded is not None:
            continue
        for name in names:
            if name in values:
                count(row, name, values[name])
        for factors in config["products"]:
            if all(name in values for name in factors):
                product = prod((values[name] for name in factors), start=Fraction(1))
                count(row, "*".join(factors), product)
    found, places = {}, []
    totals: dict[str, tuple[int, Any]] = {}
    for sums in storage.series(key):
        place = sums.segment, sums.day, sums.series
        places.append(place)
        if any(sums.rewarded):
            found[place] = sums
        n, total = totals.get(sums.series, (0, 0))
        totals[sums.series] = n + sum(sums.rewarded), total + sum(sums.sums)
    assert places == sorted(places), "series are not in order of segment, day and name"
    assert found.keys() == expected.keys(), "not the series that the log has values of"
    for place, sums in found.items():
        segment = storage.segments(key, [place[0]])[place[0]].segment
        assert len(sums.late) == len(sums.rewarded) == segment.columns, "other columns"
        for what in ("rewarded", "sums", "squares"):
            right = tuple(
                expected[place].get((segment.arm_at(column), what), 0)
                for column in range(segment.columns)
            )
            assert getattr(sums, what) == right, f"the {what} of {place[2]!r} are not exact"
    return totals


def _value(rule: dict[str, Any], events: Sequence[MetricEvent]) -> float:
    fixed = [event.value for event in events if not event.event]
    if fixed:
        (value,) = fixed
    elif rule["several"] == "sum":
        value = float(sum(Fraction(event.value) for event in events))
    elif rule["several"] == "max":
        value = max(event.value for event in events)
    else:
        value = max((event.at, event.event, event.value) for event in events)[2]
    return value if rule["cap"] is None else min(value, rule["cap"])


def _late(series: Sequence[SeriesSums]) -> dict[str, int]:
    late: Counter[str] = Counter()
    for sums in series:
        late[sums.series] += sum(sums.late)
    return dict(late)


# Events and series


def check_metrics(storage: Bench) -> None:
    """Every metric counts its events as declared; no reward and no other experiment is touched."""
    key, other = declared(storage, *ALL), storage.running(9, name="other")
    storage.assign(key, ["a", "b", "c"])
    storage.reward(key, [("a", 1.0)], None, NOW)
    before = storage.everything(other), storage.snapshot(key).segments[0][1], storage.days(key)
    events = [
        Measured("a", "clicked", 1.0),
        Measured("a", "spent", 0.1, event="o1"),
        Measured((0, check_of("a")), "spent", 0.2, event="o2"),
        Measured(1, "spent", 70.0, event="o1"),
        Measured(1, "spent", 70.0, event="o2"),
        Measured("b", "speed", -3.0, event="x"),
        Measured("b", "speed", -2.0, event="y"),
        Measured("c", "seen", 5.0, NOW + 9, event="x"),
        Measured("c", "seen", 7.0, NOW + 8, event="y"),
    ]
    assert said(storage.measure(key, events, NOW + 9)) == ["stored"] * 9
    for view in (storage, storage.again()):
        found = counted(view, key)
        assert found["clicked"] == (1, 1)
        assert found["spent"] == (2, Fraction(0.1 + 0.2) + 100), "not capped, or not rounded"
        assert found["speed"] == (1, -2), "not the largest"
        assert found["seen"] == (1, 5), "not the one that happened last"
    raw = [event.value for event in storage.log(key)[1].events if event.metric == "spent"]
    assert raw == [70.0, 70.0], "the log has other values than were reported"
    assert storage.summaries(key)[0].measured == 9, "a summary miscounts events"
    again = storage.everything(other), storage.snapshot(key).segments[0][1], storage.days(key)
    assert again == before, "metrics changed tallies, days or another experiment"
    assert storage.series(other) == (), "an experiment without metrics has series"


def check_events_once(storage: Bench) -> None:
    """An event counts once; another value of it is a conflict, and another event is not."""
    key = declared(storage, *ALL)
    storage.assign(key, ["a", "b"])
    first = [
        Measured("a", "clicked", 0.0),
        Measured("a", "spent", 5.0, event=NAMES[2]),
        Measured("b", "spent", 5.0, event=NAMES[2]),
        Measured("a", "spent", 5.0, event=NAMES[2]),
        Measured("a", "clicked", 1.0, event="given for nothing"),
        Measured("nobody", "spent", 5.0, event="x"),
        Measured((0, "ffffff"), "spent", 5.0, event="x"),
    ]
    wanted = ["stored", "stored", "stored", "repeated", "conflict", "unknown", "unknown"]
    outcomes = storage.measure(key, first, NOW)
    assert said(outcomes) == wanted, f"{said(outcomes)}"
    assert (outcomes[3].number, outcomes[3].previous) == (0, 5.0)
    assert (outcomes[4].number, outcomes[4].previous) == (0, 0.0), "not what was stored before"
    more = [
        Measured("a", "clicked", 0.0),
        Measured(0, "spent", 6.0, event=NAMES[2]),
        Measured(0, "spent", 6.0, event=NAMES[4]),
        Measured(1, "clicked", 1.0),
    ]
    outcomes = storage.again().measure(key, more, NOW + 5)
    assert said(outcomes) == ["repeated", "conflict", "stored", "stored"], f"{said(outcomes)}"
    found = counted(storage, key)
    assert (found["spent"], found["clicked"]) == ((2, 16), (2, 1))
    wrong = [Measured("b", "spent", 1.0, event="good"), Measured("a", "unheard-of", 1.0)]
    for bad in (wrong[1], Measured("a", "spent", 1.0), Measured("a", "seen", 1.0, event="")):
        promise = f"{bad}"
        refused(InvalidInputError, promise, storage.measure, key, [wrong[0], bad], NOW)
    assert counted(storage, key) == found, "a refused request left an event behind"
    storage.move(key, "stopped")
    assert said(storage.measure(key, [Measured("b", "speed", 1.0, event="e")], NOW)) == ["stored"]
    storage.move(key, "archived")
    event = Measured("b", "speed", 2.0, event="f")
    refused(WrongStateError, "an event of an archived test", storage.measure, key, [event], NOW)


def check_any_order_of_events(storage: Bench) -> None:
    """In whatever order, parts and repetition events come, the sums are the same to the bit."""
    rng = np.random.default_rng(3)
    primary = {"name": "orders", "role": "primary", "several": "sum"}
    events = [
        Measured(f"u{unit}", metric, value, NOW + int(at), event=f"e{i}")
        for unit in range(3)
        for metric in ("orders", "spent", "speed", "seen")
        for i, (value, at) in enumerate(zip(FLOATS, rng.integers(0, 4, len(FLOATS)), strict=True))
    ]
    kept = []
    for turn in range(3):
        name = f"e{turn}"
        products = [("reward", "spent"), ("seen", "speed")]
        key = declared(storage, primary, *ALL, products=products, name=name)
        storage.assign(key, ["u0", "u1", "u2"])
        order = rng.permutation(np.repeat(np.arange(len(events)), 1 + turn))
        for part in np.array_split(order, 1 + 6 * turn):
            mine = storage.again() if turn == 2 else storage
            outcomes = mine.measure(key, [events[i] for i in part], NOW + 9)
            assert set(said(outcomes)) <= {"stored", "repeated"}, f"{said(outcomes)}"
        counted(storage, key)
        tally = storage.snapshot(key).segments[0][1]
        kept.append((storage.series(key), storage.log(key), tally, storage.days(key)))
    assert kept[0] == kept[1] == kept[2], "sums depend on the order of events"


def check_late_events(storage: Bench) -> None:
    """Each metric has its own window; late events are counted, early ones are not."""
    key = declared(storage, SEEN, SPENT, rounds=2)
    storage.assign(key, ["a", "b"])
    storage.open_segment(key, new_segment(9), closed=[0])
    events = [
        Measured("a", "seen", 1.0, NOW + HOUR, "in time"),
        Measured("a", "seen", 2.0, NOW + HOUR + 1, "too late"),
        Measured("a", "seen", 3.0, NOW - HOUR, "too early"),
        Measured("b", "spent", 4.0, NOW + 99 * DAY, "no window"),
    ]
    outcomes = storage.measure(key, events, NOW + 2 * HOUR)
    assert said(outcomes) == ["stored", "late", "early", "stored"], f"{said(outcomes)}"
    assert outcomes[1].created == NOW, "not when it was assigned"
    later = NOW + 2 * HOUR + 1
    after = [events[0], replace(events[0], event="after the grace")]
    assert said(storage.measure(key, after, later)) == ["repeated", "late"]
    assert counted(storage, key)["seen"] == (1, 1)
    assert _late(storage.series(key)) == {"seen": 2, "spent": 0}, "late events are not counted"
    assert sum(map(sum, storage.late(key))) == 0, "late events count as late rewards"
    storage.change(key, "exclude", unit="a", now=later)
    storage.measure(key, [events[1]], later)
    assert _late(storage.series(key))["seen"] == 2, "an event of an excluded visit counts as late"


def check_products(storage: Bench) -> None:
    """Products are summed where both values are there, whichever came first."""
    key = declared(storage, CLICKED, SPENT, products=PRODUCTS)
    storage.assign(key, ["a", "b", "c", "d"])
    storage.measure(key, [Measured(u, "spent", 0.1, event="o1") for u in "abc"], NOW)
    storage.reward(key, [("a", 0.7), ("d", 3.0)], None, NOW)
    storage.measure(key, [Measured("b", "clicked", 1.0), Measured("d", "clicked", 1.0)], NOW)
    found = counted(storage, key)
    assert found["reward*spent"] == (1, Fraction(0.7) * Fraction(0.1)), "rewards are left out"
    assert found["clicked*spent"] == (1, Fraction(0.1))
    storage.measure(key, [Measured(u, "spent", 0.2, event="o2") for u in "abd"], NOW)
    spent, two = Fraction(0.1 + 0.2), Fraction(0.2)
    found = counted(storage, key)
    assert found["reward*spent"] == (2, Fraction(0.7) * spent + 3 * two), "not the new value"
    assert found["clicked*spent"] == (2, spent + two), "not the new value"
    assert said(storage.reward(key, [("a", 0.7), ("a", 1.0)], None, NOW)) == [
        "repeated",
        "conflict",
    ]
    limits = {"window": HOUR, "now": NOW + 3 * HOUR, "grace": HOUR}
    assert said(storage.reward(key, [("b", 1.0)], **limits)) == ["late"], "the window is ignored"
    assert counted(storage, key) == found, "refused rewards changed something"


# Covariates


def check_covariates(storage: Bench) -> None:
    """Snapshots have the sums of covariates, of rewarded visits too; metrics are not among them."""
    products = (*STEERING, ("clicked", "reward"))
    key = declared(storage, AGE, CLICKED, LOYAL, products=products, rounds=4)
    other = declared(storage, CLICKED, products=[("clicked", "reward")], name="other")
    storage.assign(key, ["a", "b", "c", "d"])
    known = [Measured(u, "age", 0.1 + i) for i, u in enumerate("abc")]
    known += [Measured(u, "loyal", 3.0) for u in "bcd"]
    assert said(storage.measure(key, known, NOW)) == ["stored"] * 6
    storage.measure(key, [Measured("a", "clicked", 1.0)], NOW)
    storage.reward(key, [("b", 0.7), ("d", 1.0)], None, NOW)
    found = counted(storage, key)
    one = Fraction(1.1)
    assert found["age"] == (3, Fraction(0.1) + one + Fraction(2.1))
    assert found["age*reward?"] == (1, one), "not those with a reward alone"
    assert found["age*loyal*reward?"] == (1, 3 * one), "not the product of all"
    assert found["age*reward"] == (1, one * Fraction(0.7))
    assert found["age*loyal"] == (2, 3 * (one + Fraction(2.1)))
    storage.open_segment(key, new_segment(9))
    storage.assign(key, ["e"])
    storage.measure(key, [Measured("e", "age", 5.0)], NOW)
    steer = {"age", "loyal", *map("*".join, STEERING)}
    for everything in (False, True):
        held = storage.again().snapshot(key, everything).series
        whole = tuple(sums for sums in storage.series(key) if sums.series in steer)
        assert held == whole, "a snapshot has other sums"
        assert storage.snapshot(other, everything).series == (), "metrics do not steer"


def check_decisions_on_covariates(storage: Bench) -> None:
    """A decision is refused if a covariate came meanwhile; a closed segment takes none."""
    key = declared(storage, AGE, CLICKED, products=[("age", "reward")], rounds=2)
    storage.assign(key, ["a", "b"])
    storage.measure(key, [Measured("a", "age", 1.0)], NOW)
    storage.reward(key, [("a", 1.0), ("b", 0.0)], None, NOW)

    def decision() -> tuple[int, Decision]:
        seen = storage.snapshot(key)
        tallies = tuple((record.index, tally) for record, tally in seen.segments)
        return seen.experiment.version, Decision({}, tallies, series=seen.series)

    version, made = decision()
    storage.measure(key, [Measured("b", "clicked", 1.0)], NOW)
    storage.measure(key, [Measured("b", "age", 2.0)], NOW)
    before = storage.everything(key)
    assert not storage.decide(key, version, made, NOW), "made before a covariate came, yet stored"
    assert not storage.decide(key, version, replace(made, series=()), NOW), "made on no sums"
    assert storage.everything(key) == before, "refused, and yet changed"
    version, made = decision()
    late = [Measured("b", "age", 2.0), Measured("b", "age", 3.0)]
    assert said(storage.measure(key, late, NOW)) == ["repeated", "conflict"]
    assert storage.decide(key, version, made, NOW), "a correct decision was refused"
    sums = storage.snapshot(key, everything=True).series
    gone = storage.change(key, "exclude", unit="a")
    assert storage.snapshot(key, everything=True).series != sums, "an excluded visit counts"
    storage.change(key, "include", entry=gone.entry)
    for change in (
        Change("void", target="a", metric="age", reason=WHY),
        Change("correct", target="a", metric="age", reward=5.0, reason=WHY),
    ):
        refused(InvalidInputError, "a covariate", storage.correct, key, change, now=NOW)
    key = declared(storage, AGE, CLICKED, rounds=1, name="closed")
    storage.assign(key, ["a"])
    storage.reward(key, [("a", 1.0)], None, NOW)
    storage.open_segment(key, new_segment(9), closed=[0])
    events = [Measured("a", "age", 1.0), Measured("a", "clicked", 1.0)]
    assert said(storage.measure(key, events, NOW)) == ["closed", "stored"], "the policy has seen it"
    assert _late(storage.series(key)) == {"age": 1, "clicked": 0}, "it is not counted as late"
    assert storage.snapshot(key).experiment.observed == 1


# Rewards that are made of events


def check_rewards_of_events(storage: Bench) -> None:
    """A reward made of events steers with their sum; tallies and days follow exactly."""
    primary = SPENT | {"name": "revenue", "role": "primary", "cap": 50.0}
    primary |= {"window": DAY, "grace": HOUR}
    key = declared(storage, primary, CLICKED, products=[("revenue", "clicked")], rounds=4)
    storage.assign(key, ["a", "b", "c", "d"])
    events = [
        Measured("a", "revenue", 0.1, NOW + 5_000, "o1"),
        Measured("a", "revenue", 0.2, NOW + 3_000, "o2"),
        Measured("b", "reward", 30.0, event="o1"),
        Measured("b", "revenue", 30.0, event="o2"),
        Measured("b", "revenue", 30.0, event="o2"),
        Measured("c", "clicked", 1.0),
        Measured("a", "clicked", 1.0),
    ]
    outcomes = storage.measure(key, events, NOW + 9_000)
    assert said(outcomes) == ["stored"] * 4 + ["repeated"] + ["stored"] * 2, f"{said(outcomes)}"
    rows = storage.log(key)
    three = float(Fraction(0.1) + Fraction(0.2))
    assert [row.reward for row in rows] == [three, 50.0, None, None], "not what counts"
    assert (rows[0].rewarded, rows[0].received) == (NOW + 5_000, NOW + 9_000), "not the last event"
    assert (rows[1].rewarded, rows[1].received) == (NOW + 9_000, None)
    (tally,) = storage.tallied(key)
    assert tally.total_rewarded == 2, "a unit with two events counts twice"
    assert counted(storage, key)["revenue*clicked"] == (1, Fraction(three))
    assert all(sums.series != "revenue" for sums in storage.series(key)), "the reward is a series"
    events = [
        Measured("a", "revenue", 0.3, NOW + DAY, "o3"),
        Measured("a", "revenue", 0.3, NOW + DAY + 1, "o4"),
        Measured("c", "revenue", -1.0, NOW - HOUR, "o1"),
    ]
    outcomes = storage.again().measure(key, events, NOW + DAY + HOUR)
    assert said(outcomes) == ["stored", "late", "early"], f"{said(outcomes)}"
    after = [replace(events[0], event="after the grace")]
    assert said(storage.measure(key, after, NOW + DAY + HOUR + 1)) == ["late"]
    six = float(Fraction(0.1) + Fraction(0.2) + Fraction(0.3))
    assert storage.log(key)[0].reward == six, "not the sum of all events"
    (tally,) = storage.tallied(key)
    refused(InvalidInputError, "a reward without a key", storage.reward, key, [("c", 1.0)], None, 0)
    storage.open_segment(key, new_segment(9), closed=[0])
    events = [
        Measured("a", "revenue", 9.0, event="o9"),
        Measured("a", "revenue", 0.1, event="o1"),
        Measured("d", "revenue", 9.0, event="o9"),
        Measured("d", "clicked", 1.0),
    ]
    outcomes = storage.measure(key, events, NOW + 9_001)
    assert said(outcomes) == ["closed", "repeated", "closed", "stored"], f"{said(outcomes)}"
    assert storage.tallied(key)[0] == tally, "a closed segment has other sums"
    assert sum(map(sum, storage.late(key))) == 4, "rewards that came too late are not counted"
    counted(storage, key)


def check_capped_rewards(storage: Bench) -> None:
    """A reward of one event with a cap counts up to it; the event keeps what was reported."""
    primary = {"name": "reward", "role": "primary", "cap": 2.0}
    key = declared(storage, primary)
    storage.assign(key, ["a", "b"])
    assert said(storage.reward(key, [("a", 9.0), ("b", 1.0)], None, NOW)) == ["stored"] * 2
    assert said(storage.reward(key, [("a", 9.0), ("b", 2.0)], None, NOW)) == [
        "repeated",
        "conflict",
    ], "a capped reward is compared with what was reported"
    rows = storage.log(key)
    assert [(row.reward, row.events[0].value) for row in rows] == [(2.0, 9.0), (1.0, 1.0)]
    (tally,) = storage.tallied(key)
    assert sum(tally.sums) == 3, "the cap is ignored"
    counted(storage, key)


def check_last_and_largest_rewards(storage: Bench) -> None:
    """A reward may be the last or the largest of its events; it may fall, and stay the same."""
    for several, wanted in (("last", 1.0), ("max", 3.0)):
        primary = {"name": "score", "role": "primary", "several": several}
        key = declared(storage, primary, name=several)
        storage.assign(key, ["a"])
        for i, value in enumerate((2.0, 3.0, 1.0)):
            event = Measured("a", "score", value, NOW + i * DAY, f"e{i}")
            assert said(storage.measure(key, [event], NOW + i * DAY)) == ["stored"]
            (tally,) = storage.tallied(key)
            assert tally.total_rewarded == 1, "counted again with each event"
        (row,) = storage.log(key)
        assert (row.reward, row.rewarded) == (wanted, NOW + 2 * DAY), f"{row}"
        counted(storage, key)


# What operators do


def check_metrics_excluded(storage: Bench) -> None:
    """An excluded visit leaves all series; with all that came meanwhile it comes back."""
    key = declared(storage, *ALL, products=PRODUCTS)
    for day in range(2):
        storage.assign(key, [f"{day}.{i}" for i in range(3)], now=NOW + day * DAY)
    units = [row.unit for row in storage.log(key)]
    storage.reward(key, [(unit, 0.3) for unit in units], None, NOW + DAY)
    bought = [Measured(unit, "spent", 0.1, event=f"o{i}") for unit in units for i in range(3)]
    clicks = [Measured(unit, "clicked", 1.0) for unit in units[:4]]
    storage.measure(key, bought + clicks, NOW + DAY)
    whole, series = counted(storage, key), storage.series(key)
    later = NOW + 2 * DAY
    one = storage.change(key, "exclude", unit=units[0], now=later)
    counted(storage, key)
    two = storage.change(key, "exclude", since=NOW, until=NOW + DAY, now=later)
    found = counted(storage.again(), key)
    assert found["spent"][0] == found["reward*spent"][0] == 3, "the excluded still count"
    more = [Measured(units[0], "spent", 7.0, event="o9"), Measured(units[5], "clicked", 1.0)]
    assert said(storage.measure(key, more, later)) == ["stored", "stored"], "it is not kept"
    assert counted(storage, key)["spent"] == found["spent"], "an event of an excluded visit counts"
    for entry in (one.entry, two.entry):
        storage.change(key, "include", entry=entry, now=later)
    found = counted(storage, key)
    before, after = (Fraction(float(3 * Fraction(0.1) + more)) for more in (0, 7))
    assert found["spent"][1] == whole["spent"][1] - before + after, "not what it was, with all"
    storage.change(key, "void", target=units[5], metric="clicked", now=later)
    assert counted(storage, key)["clicked"] == whole["clicked"], "a voided value counts"
    assert len(storage.series(key)) == len(series), "series were lost"


def check_metrics_corrected(storage: Bench) -> None:
    """A value of a metric is voided or corrected with a trace; the reward stays as it was."""
    key = declared(storage, *ALL, products=PRODUCTS)
    storage.assign(key, ["a", "b"])
    storage.reward(key, [("a", 1.0), ("b", 2.0)], None, NOW)
    bought = [Measured(u, "spent", 10.0, event=f"o{i}") for u in "ab" for i in range(3)]
    storage.measure(key, [*bought, Measured("a", "clicked", 1.0)], NOW + 5)
    tally = storage.snapshot(key).segments[0][1]
    first = storage.change(key, "correct", target="a", metric="spent", reward=150.0)
    assert counted(storage, key)["spent"] == (2, 130), "not corrected, or not capped"
    assert len(storage.log(key)[0].events) == 5, "the events are gone"
    events = [bought[0], replace(bought[0], value=7.0), replace(bought[0], event="o7")]
    outcomes = storage.measure(key, events, NOW + 9)
    assert said(outcomes) == ["repeated", "conflict", "conflict"], f"{said(outcomes)}"
    assert outcomes[2].previous == 150.0, "not the value that stands"
    storage.change(key, "correct", target="a", metric="spent", reward=20.0)
    assert counted(storage, key)["spent"] == (2, 50), "not corrected again"
    storage.change(key, "void", target="b", metric="spent")
    storage.change(key, "correct", target="a", metric="clicked", reward=0.0)
    found = counted(storage, key)
    assert (found["spent"], found["clicked"]) == ((1, 20), (1, 0))
    assert said(storage.measure(key, [bought[3]], NOW + 9)) == ["stored"], "voided, and yet there"
    assert counted(storage, key)["spent"] == (2, 30), "not what came after it was voided"
    made = storage.again().corrections(key)
    wanted = ("spent", 30.0, 100.0), ("spent", 100.0, 20.0), ("spent", 30.0, None)
    assert [(c.metric, c.before, c.after) for c in made] == [*wanted, ("clicked", 1.0, 0.0)]
    assert storage.audit(experiment="e")[1].detail["metric"] == "spent", "which metric?"
    assert storage.audit(experiment="e")[1].id == first.entry
    assert storage.snapshot(key).segments[0][1] == tally, "the reward was changed"
    wrong: list[tuple[type[Exception], dict[str, Any]]] = [
        (InvalidInputError, {"kind": "void", "target": "b", "metric": "clicked"}),
        (InvalidInputError, {"kind": "void", "target": "b", "metric": "unheard-of"}),
        (InvalidInputError, {"kind": "correct", "target": "a", "metric": "clicked", "reward": 0.0}),
        (UnknownAssignmentError, {"kind": "void", "target": "nobody", "metric": "spent"}),
    ]
    before, log = storage.everything(key), storage.audit()
    for error, given in wrong:
        change = Change(**given, reason=WHY)
        refused(error, f"{given}", storage.correct, key, change, now=NOW + 9)
    refused(InvalidInputError, "a metric", Change, "exclude", unit="a", metric="spent", reason=WHY)
    assert (storage.everything(key), storage.audit()) == (before, log), "refused, and yet changed"


def check_rewards_of_events_corrected(storage: Bench) -> None:
    """A reward made of events is corrected as a whole; what the policy observed can be undone."""
    primary = {"name": "revenue", "role": "primary", "several": "sum"}
    key = declared(storage, primary, CLICKED, products=[("reward", "clicked")], rounds=3)
    storage.assign(key, ["a", "b", "c"])
    events = [Measured(u, "revenue", 0.1, event=f"o{i}") for u in "abc" for i in range(2)]
    storage.measure(key, [*events, Measured("a", "clicked", 1.0)], NOW + 5)
    storage.open_segment(key, new_segment(9), closed=[0])
    storage.change(key, "correct", target="a", reward=7.0)
    storage.change(key, "void", target="b", metric="revenue")
    storage.change(key, "correct", target="a", metric="clicked", reward=5.0)
    found = counted(storage, key)
    assert found["reward*clicked"] == (1, 35), "products do not follow"
    assert [row.reward for row in storage.log(key)] == [7.0, None, 0.2], "not what was corrected"
    snapshot, made = storage.snapshot(key, everything=True), storage.corrections(key)
    assert snapshot.corrected == (0,), "not the segment that was corrected"
    kinds = [(c.metric, c.kind, c.closed) for c in made]
    assert kinds[:2] == [("reward", "correct", True), ("reward", "void", True)], f"{kinds}"
    seen = [
        as_observed(row, [c for c in made if c.number == row.number]) for row in storage.log(key)
    ]
    assert [row.reward for row in seen] == [0.2, 0.2, 0.2], "not what the policy has observed"
    only = declared(storage, CLICKED, rounds=1, name="only")
    storage.assign(only, ["a"])
    storage.measure(only, [Measured("a", "clicked", 1.0)], NOW)
    storage.open_segment(only, new_segment(9), closed=[0])
    storage.change(only, "void", target="a", metric="clicked")
    assert storage.snapshot(only, everything=True).corrected == (), "the policy saw none of it"


def check_metrics_of_erased_units(storage: Bench) -> None:
    """The values of an erased unit stay; events that name its assignment still count."""
    key = declared(storage, SPENT)
    storage.assign(key, ["a"])
    storage.measure(key, [Measured("a", "spent", 1.0, event="o1")], NOW)
    series = storage.series(key)
    storage.change(key, "erase", unit="a")
    assert storage.series(key) == series, "erasing changed sums"
    events = [Measured((0, check_of("a")), "spent", 1.0, event=f"o{i}") for i in (1, 2)]
    assert said(storage.measure(key, events, NOW)) == ["repeated", "stored"]
    assert counted(storage, key)["spent"] == (1, 2)


def check_metrics_restored(storage: Bench) -> None:
    """Events come along with an experiment, and what is reported after that goes on."""
    primary = {"name": "orders", "role": "primary", "several": "sum"}
    key = declared(storage, primary, *ALL, products=[("orders", "spent")])
    storage.assign(key, [f"u{i}" for i in range(9)])
    events = [
        Measured(f"u{i}", metric, value, NOW + i, f"e{i}")
        for i, value in enumerate(FLOATS)
        for metric in ("orders", "spent", "clicked", "seen")
    ]
    storage.measure(key, events, NOW + 9)
    storage.change(key, "correct", target="u5", metric="spent", reward=8.0)
    made = storage.restored(key)
    assert storage.series(made.key) == storage.series(key), "the series are not as they stood"
    assert counted(storage.again(), made.key) == counted(storage, key)
    assert said(storage.measure(made.key, events[:4], NOW + 9)) == ["repeated"] * 4, "forgotten"
    new = [replace(event, event="new") for event in events[:2]]
    for each in (key, made.key):
        assert said(storage.measure(each, new, NOW + 9)) == ["stored"] * 2
    assert storage.series(made.key) == storage.series(key), "they do not go on alike"
    assert storage.summaries(made.key)[0].measured == storage.summaries(key)[0].measured
    snapshot, rows = storage.snapshot(key, everything=True), storage.log(key)
    strange = replace(rows[0], events=(MetricEvent("unheard-of", "", 1.0, NOW),))
    wrong = [strange, *rows[1:]]
    refused(InvalidInputError, "another's event", storage.restore, "w", snapshot, [wrong])


def check_metrics_pruned(storage: Bench) -> None:
    """A deleted experiment leaves no events behind; a new one begins with none."""
    key = declared(storage, SPENT)
    storage.assign(key, ["a"])
    storage.measure(key, [Measured("a", "spent", 1.0, event="o1")], NOW)
    storage.move(key, "stopped", now=NOW)
    storage.move(key, "archived", now=NOW)
    assert storage.prune(NOW + 9, NOW + 9).experiments == ("e",)
    key = declared(storage, SPENT)
    storage.assign(key, ["a"])
    assert storage.series(key) == ()
    assert said(storage.measure(key, [Measured("a", "spent", 1.0, event="o1")], NOW)) == ["stored"]


def check_metrics_of_some_arms(storage: Bench) -> None:
    """The series of a segment that plays some of very many arms have its columns."""
    key = declared(storage, *ALL, products=PRODUCTS)
    arms = np.array([3, 17, 900_000], dtype=np.int64)
    storage.open_segment(key, replace(new_segment(40), arms=arms))
    storage.assign(key, [f"u{i}" for i in range(90)])
    units = [row.unit for row in storage.log(key) if row.arm >= 17]
    assert len(units) > 9, "the check is not worth much"
    storage.reward(key, [(unit, 0.5) for unit in units], None, NOW)
    events = [Measured(unit, "spent", 0.1 * i, event="o1") for i, unit in enumerate(units)]
    events += [Measured(unit, "seen", 1.0, NOW + 2 * HOUR, "s") for unit in units[:4]]
    storage.measure(key, events, NOW + 2 * HOUR)
    found = counted(storage, key)
    assert found["spent"][0] == found["reward*spent"][0] == len(units)
    assert _late(storage.series(key))["seen"] == 4, "late events have no column"
    out = storage.change(key, "exclude", unit=units[0], now=NOW + 2 * HOUR)
    counted(storage, key)
    storage.change(key, "include", entry=out.entry, now=NOW + 2 * HOUR)
    assert counted(storage.again(), key) == found


def check_reopened_metrics(storage: Bench) -> None:
    """Corrections of metrics are kept with their metric, for everybody who opens the storage."""
    key = declared(storage, SPENT)
    storage.assign(key, ["a"])
    storage.measure(key, [Measured("a", "spent", 1.0, event="o1")], NOW)
    made = storage.change(key, "void", target="a", metric="spent")
    expected = [Correction(made.entry, 0, "void", 1.0, None, closed=False, metric="spent")]
    assert storage.again().corrections(key) == expected
    assert storage.again().everything(key) == storage.everything(key)
