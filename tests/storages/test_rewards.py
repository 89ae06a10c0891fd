"""Rewards: what becomes of each, and what is counted."""

from __future__ import annotations

from steadyarm.storages.records import SKEW, Event, Outcome, Target, hash_unit, number_of
from tests.storages.bench import NAMES, NOW, Bench, Open
from tests.storages.databases import running_in

UNKNOWN = Outcome("unknown")
OUTCOMES: list[tuple[Target, float, Outcome]] = [
    (0, 0.1, Outcome("stored", 0)),
    ("b", -2.0, Outcome("stored", 1)),
    (0, 0.1, Outcome("repeated", 0, 0.1)),
    ("a", 0.1, Outcome("repeated", 0, 0.1)),
    ("a", 0.2, Outcome("conflict", 0, 0.1)),
    (1, -2.5, Outcome("conflict", 1, -2.0)),
    (4, 1.0, UNKNOWN),
    ("nobody", 1.0, UNKNOWN),
    (number_of(1, 0), 1.0, UNKNOWN),
    (NAMES[2], 0.0, Outcome("stored", 2)),
    ("0", 3.0, Outcome("stored", 3)),
    ((1, hash_unit("b")), -2.0, Outcome("repeated", 1, -2.0)),
    ((1, hash_unit("a")), -2.0, UNKNOWN),
    ((9, ""), 1.0, UNKNOWN),
]


def test_an_assignment_has_one_reward_the_first_that_was_recorded(bench: Bench) -> None:
    key = bench.running(9)
    bench.assign(key, ["a", "b", NAMES[2], "0"])
    assert bench.reward(key, [], NOW) == ()
    outcomes = bench.reward(key, [(target, value) for target, value, _ in OUTCOMES], NOW + 9)
    assert list(outcomes) == [outcome for _, _, outcome in OUTCOMES]
    rows = bench.log(key)
    assert [r.reward for r in rows] == [0.1, -2.0, 0.0, 3.0]
    assert [r.rewarded for r in rows] == [NOW + 9] * 4
    before = bench.everything(key)
    again = bench.again().reward(key, [("b", -2.0), (0, 5.0)], NOW + 10)
    assert again == (Outcome("repeated", 1, -2.0), Outcome("conflict", 0, 0.1))
    assert bench.everything(key) == before
    bench.tallied(key)


# When it happened, when it arrived, what becomes of it, and the stored times.
HAPPENED: tuple[tuple[int | None, int, str, tuple[int | None, int | None]], ...] = (
    (None, 49, "stored", (49, None)),
    (None, 51, "late", (None, None)),
    (49, 80, "stored", (49, 80)),
    (51, 60, "late", (None, None)),
    (40, 81, "late", (None, None)),
    (-SKEW - 1, 20, "early", (None, None)),
    (-SKEW, 20, "stored", (0, 20)),
    (500, 30, "stored", (30, None)),
)


def test_a_reward_counts_by_when_it_happened_if_it_arrives_within_the_grace(bench: Bench) -> None:
    key = bench.running(9, window=50, grace=30)
    start = NOW + 10 * SKEW
    bench.assign(key, [f"u{i}" for i in range(len(HAPPENED))], now=start)
    for i, (at, now, status, times) in enumerate(HAPPENED):
        reward = f"u{i}", 1.0, *([] if at is None else [start + at])
        (outcome,) = bench.reward(key, [reward], start + now)
        created = start if status == "late" else None
        assert (outcome.number, outcome.status, outcome.created) == (i, status, created)
        row = bench.log(key)[i]
        stored = [None if time is None else start + time for time in times]
        assert [row.rewarded, row.received] == stored
    again = [("u0", 1.0), ("u0", 2.0), ("u1", 2.0, start + 60), ("u1", 3.0, start + 45)]
    statuses = [outcome.status for outcome in bench.reward(key, again, start + 70)]
    assert statuses == ["repeated", "conflict", "late", "stored"]
    bench.tallied(key)
    endless = bench.running(9, name="without a window")
    bench.assign(endless, ["b"], now=NOW)
    (outcome,) = bench.reward(endless, [("b", 1.0)], NOW + 10**15)
    assert outcome.status == "stored"


def test_a_late_reward_counts_where_a_worker_has_counted_nothing_yet(open_fresh: Open) -> None:
    storage = open_fresh()
    key = running_in(storage, 10, window=5)
    storage.assign(key, ["a", "b"], now=0)
    storage._database.shard = 3
    other = open_fresh()
    other._database.shard = 4
    once = [Event("a", 1.0)]
    for told in (once, [*once, Event("b", 1.0), Event("a", 2.0)]):
        for worker in (storage, other):
            said = worker.record(key, told, 6).outcomes
            assert {outcome.status for outcome in said} == {"late"}
    (sums,) = storage.days(key)
    assert (sum(sums.late), sums.tally.total_assigned, sums.tally.total_rewarded) == (8, 2, 0)
    assert [sums.tally for sums in storage.days(key)] == [storage.snapshot(key).segments[0][1]]
