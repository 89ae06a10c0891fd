"""After any history all sums are those of the log, counted by the tests themselves."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from steadyarm.errors import InvalidInputError, UnknownAssignmentError, UnknownExperimentError
from steadyarm.storages.records import Decision, Event
from tests.storages.bench import DAY, HOUR, NOW, Bench, new_segment, refused
from tests.storages.test_experiments import summarized
from tests.storages.test_series import AGE, ALL, CLICKED, LOYAL, STEERING, counted

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


def close(bench: Bench, key: int) -> None:
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
            close(view, key)
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
