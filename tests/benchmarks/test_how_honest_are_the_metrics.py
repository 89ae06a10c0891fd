"""The benchmark of metrics draws and adds up what a live test would, to the bit."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from benchmarks import how_honest_are_the_metrics as honest
from steadyarm.live.measured import metric_results
from steadyarm.live.metrics import MetricResult

NUMBERS = ("estimates", "intervals", "lifts", "lift_intervals", "relative", "relative_intervals")


def played(settings: Any, play: honest.Play, stop: int | None = None) -> sa.Experiment:
    """A live test in memory to which the same visitors come, until some visit if `stop` is given.

    Each event is reported when it happens, so that they come in any order.
    """
    clock = [honest.BEGIN]
    test = sa.create_experiment(
        "shop",
        settings.arms,
        settings.policy,
        settings.budget,
        "memory",
        seed=settings.seed,
        control=settings.control,
        metrics=settings.metrics,
        clock=lambda: clock[0] / 1e6,
    )
    waiting: list[tuple[int, int, str, dict[str, float]]] = []

    def deliver(until: float) -> None:
        while waiting and waiting[0][0] <= until:
            clock[0], i, key, values = heapq.heappop(waiting)
            test.tell(f"visitor {i}", values, event=key)

    visits = honest.VISITS if stop is None else stop
    for i in range(visits):
        came = honest.BEGIN + i * honest.STEP
        deliver(came - 1)
        clock[0] = came
        assert test.ask(f"visitor {i}").arm == play.shown[i], i
        delay = {name: int(play.delays[name][i]) for name in play.delays}
        for name in ("cancelled", "loading"):
            if not np.isnan(value := play.values[name][i]):
                heapq.heappush(waiting, (came + delay[name], i, name, {name: float(value)}))
        for k in range(play.buys[i, play.shown[i]]):
            values = {"orders": 1.0, "revenue": float(play.amounts[k, i])}
            heapq.heappush(waiting, (came + delay["orders"], i, f"order {k}", values))
        deliver(came)
    if stop is None:
        clock[0] = honest.BEGIN + (visits - 1) * honest.STEP + 3 * honest.DAY
        end = clock[0]
        deliver(end)
        clock[0] = end
        test.refresh()
    return test


def same(one: MetricResult, other: MetricResult) -> bool:
    """Whether two results have the same bits."""
    return (one.name, one.visits, one.safety, one.obstacle) == (
        *(other.name, other.visits, other.safety, other.obstacle),
    ) and all(
        np.array_equal(getattr(one, name), getattr(other, name), equal_nan=True)
        for name in NUMBERS
        if one.estimates is not None
    )


@pytest.mark.parametrize(("world", "stop"), [("late", None), ("late", 1500), ("rhythm", 1500)])
def test_a_play_is_a_live_test(world: str, stop: int | None) -> None:
    settings = honest.settings_of(honest.world_of(world), 3)
    play = honest.Play(settings, honest.world_of(world), 3)
    test = played(settings, play, stop)
    visits = honest.VISITS if stop is None else stop
    snapshot, series = play.sums(visits, test.now())
    theirs = test.storage.snapshot(test.key, everything=True)
    assert len(theirs.segments) == len(snapshot.segments) > 12
    for (own, tally), (record, other) in zip(snapshot.segments, theirs.segments, strict=True):
        assert np.array_equal(own.segment.weights, record.segment.weights)
        assert (own.rounds, own.carried_on) == (record.rounds, record.carried_on)
        assert tally == other
    for anytime in (False, True):
        mine = metric_results(settings, snapshot, series, test.now(), 0.95, anytime)
        results = test.metrics(0.95, anytime)
        assert [one.name for one in results] == list(honest.STATEMENTS)
        assert all(map(same, mine, results))
        assert all(one.estimates is not None for one in results)
    if stop is not None and world == "late":
        assert {one.visits for one in results if one.name != "loading"} != {visits}


@pytest.mark.parametrize("anytime", [False, True])
def test_tests_that_are_judged_together_have_the_results_of_each(anytime: bool) -> None:
    world, visits = honest.world_of("late"), honest.LOOKS[0]
    plays = [honest.Play(honest.settings_of(world, seed), world, seed) for seed in (4, 5)]
    now = honest.BEGIN + (visits - 1) * honest.STEP
    found = list(honest.results_at(plays, visits, anytime))
    assert len(found) == 2 * len(honest.STATEMENTS)
    for i, result in found:
        settings = plays[i].settings
        role = result.metric.role
        level = 1 - 2 * (1 - honest.LEVEL) if role == "secondary" else honest.LEVEL
        alone = metric_results(settings, *plays[i].sums(visits, now), now, level, anytime)
        (same_metric,) = (one for one in alone if one.name == result.name)
        assert result.lift_intervals is not None
        assert same_metric.lift_intervals is not None
        assert same(result, same_metric)


def test_truths_are_the_means_of_what_is_drawn() -> None:
    world = honest.world_of("trend")
    settings, truths = honest.settings_of(world, 0), world.truths()
    for name in ("orders", "revenue", "cancelled", "loading"):
        found = []
        for seed in range(12):
            play = honest.Play(settings, world, seed)
            value = play.values[name] if name == "loading" else np.nan_to_num(play.values[name])
            today = play.shown == 0
            day = np.arange(honest.VISITS) // honest.A_DAY
            found.append(
                np.mean([np.nanmean(value[today & (day == d)]) for d in range(honest.DAYS)])
            )
        error = np.std(found, ddof=1) / np.sqrt(len(found))
        assert abs(np.mean(found) - truths[name][-1, 0]) < 4 * error


def test_wrong_statements_are_counted() -> None:
    names = honest.NAMES
    ends = np.array([[0.0, 0.0], [-0.004, 0.004], [-0.02, 0.004]])
    metric = honest.settings_of(honest.world_of("late"), 0).measured["cancelled"]
    found = MetricResult(
        metric,
        names,
        visits=10,
        estimates=np.full(3, 0.04),
        intervals=np.array([[0.03, 0.05]] * 3),
        control="today",
        lifts=np.zeros(3),
        lift_intervals=ends,
        relative=np.zeros(3),
        relative_intervals=np.array([[0.0, 0.0], [-0.3, 0.3], [np.nan, np.nan]]),
    )
    truth = np.array([0.04, 0.05, 0.05])
    said = honest.right(found, truth)
    assert said == {
        "values": True,
        "lifts": False,
        "relative": True,
        "safe": False,
        "safe, relative": True,
    }
    good = honest.right(found, np.array([0.04, 0.043, 0.043]))
    assert all(good.values())
    assert honest.known(found, "lifts")
    assert not honest.known(found, "relative")
    answer = {
        (name, each): (name != "loading", True)
        for name in ("revenue", "cancelled", "loading")
        for each in honest.STATEMENTS[name]
    }
    lines = list(honest.lines([answer] * 50))
    assert {line.split()[0] for line, wrong in lines if wrong} == {"loading"}
    assert len(lines) == len(answer)  # nothing was said of revenue per order
