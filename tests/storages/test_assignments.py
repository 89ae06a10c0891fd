"""Checks of assignments: which position a unit gets, with which arm, and what is kept of draws."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sqlalchemy import event

import steadyarm as sa
from steadyarm import segments
from steadyarm.segments import Draws, Segment, arms_between
from steadyarm.storages import open_storage, traffic
from steadyarm.storages.records import Event, ExperimentState, StoredAssignment, number_of
from steadyarm.storages.storage import Storage
from tests.storages.bench import NAMES, NOW, SEED, Bench, every, new_segment, numbers_of


def test_arms_of_places(bench: Bench) -> None:
    """Arms are those of the places, in all orders and also far into a segment."""
    reference = np.array([[0.1, -1 / 3]])
    for seed in (0, SEED):
        key = bench.new_experiment(f"seed {seed}", sticky=False, seed=seed)
        for order in ("iid", "blocks", "shuffled"):
            segment = replace(new_segment(2300, order, 7), reference=reference)
            index = bench.open_segment(key, segment)
            given: list[StoredAssignment] = []
            for size in (1, 2, 1020, 1, 276, 1000):
                units = [f"u{len(given) + i}" for i in range(size)]
                given += every(bench.assign(key, units))
            for position, a in enumerate(given):
                assert a.number == number_of(index, position)
                assert a.unit == f"u{position}"
                assert (a.new, a.created) == (True, NOW)
            arms = arms_between(segment, seed, index, 0, 2300)
            assert [a.arm for a in given] == arms.tolist()
            assert [a.probability for a in given] == segment.weights[0, arms].tolist()
    bench.accounted(key)


def test_a_unit_of_a_sticky_experiment_keeps_its_first_assignment(bench: Bench) -> None:
    key = bench.running(8)
    first = every(bench.assign(key, ["a", "b", "a", "c", "a"]))
    assert [a.number for a in first] == [0, 1, 0, 2, 0]
    assert [a.new for a in first] == [True, True, False, True, False]
    later = every(bench.again().assign(key, ["c", "d", "b"], now=NOW + 5))
    assert [a.number for a in later] == [2, 3, 1]
    assert later[0] == first[3]._replace(new=False)
    assert (later[1].new, later[1].created) == (True, NOW + 5)
    bench.open_segment(key, new_segment(5))
    assert every(bench.assign(key, ["a"]))[0].number == 0
    for unit in (*NAMES, "A", ""):
        one, two = (every(bench.assign(key, [unit]))[0] for _ in range(2))
        assert one.new
        assert two == one._replace(new=False)
        assert one.unit == unit
        if unit == NAMES[4]:
            bench.open_segment(key, new_segment(50))
    bench.accounted(key)


def test_where_positions_run_out_a_unit_gets_none_and_nothing_is_stored(bench: Bench) -> None:
    key = bench.new_experiment()
    assert bench.assign(key, ["a", "b"]).assigned == (None, None)
    bench.open_segment(key, new_segment(3))
    numbers = numbers_of(bench.assign(key, ["a", "b", "c", "d", "a", "d"]))
    assert numbers == [0, 1, 2, None, 0, None]
    assert bench.find_assignments(key, ["d"]).assigned == (None,)
    bench.open_segment(key, new_segment(3))
    assert every(bench.assign(key, ["d", "a"]))[0].number == number_of(1, 0)
    bench.accounted(key)


def test_only_running_experiments_assign_and_old_ones_are_given_in_any_state(bench: Bench) -> None:
    path: dict[ExperimentState, tuple[ExperimentState, ...]] = {
        "paused": ("paused",),
        "stopped": ("stopped",),
        "archived": ("stopped", "archived"),
    }
    for state, moves in path.items():
        key = bench.running(9, name=state)
        bench.assign(key, ["a"])
        for move in moves:
            bench.move(key, move)
        before = bench.everything(key)
        again = bench.assign(key, ["a", "a"])
        assert [a.number for a in every(again)] == [0, 0]
        assert again.state == state
        assert bench.assign(key, []).assigned == ()
        mixed = bench.assign(key, ["a", "b"])
        assert numbers_of(mixed) == [0, None]
        assert bench.everything(key) == before
    key = bench.new_experiment("draft", state="draft")
    assert bench.assign(key, ["a"]).assigned == (None,)


def test_attributes_and_covariates_are_stored_with_assignments_once(bench: Bench) -> None:
    key = bench.running(9, {"name": "spend", "role": "covariate"})
    bench.assign(key, ["a", "b"], [{"spend": 2.0}, {}])
    bench.assign(key, ["a", "b", "c"], [{"spend": 5.0}, {"spend": 5.0}, {"spend": 0.5}])
    events = {row.unit: [event.value for event in row.events] for row in bench.whole_log(key)}
    assert events == {"a": [2.0], "b": [], "c": [0.5]}


@pytest.mark.parametrize(
    ("query", "column"),
    [
        (traffic.ASSIGNED["sqlite"], "unit"),
        (traffic.BY_UNIT["sqlite"], "unit"),
        (traffic.BELONGING, "unit"),
        (traffic.BY_NUMBER["sqlite"], "number"),
        (traffic.EVENTS, "number"),
    ],
)
def test_assignments_are_found_by_their_index_in_sqlite(query: Any, column: str) -> None:
    """SQLite's planner would read all assignments of an experiment for more than a few units."""
    with closing(open_storage("memory")) as storage:
        engine = storage._database.engine
        compiled = query.compile(engine)
        with engine.connect() as connection:
            nothing = tuple(None for _ in compiled.positiontup)
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {compiled}", nothing).all()
        assert any(f"{column}=?" in row.detail for row in plan), plan


# Statements for a batch of new units, of units that are known, and of rewards, BEGIN included on
# SQLite, where the rows of each table are one. Their number does not depend on the batch.
MOST = {"sqlite": (6, 1, 5), "postgresql": (3, 1, 3)}
MOST_MEASURED = {"sqlite": (8, 1, 7), "postgresql": (3, 1, 6)}


@pytest.mark.parametrize("measured", [False, True])
def test_statements_of_a_batch(storage: Storage, measured: bool) -> None:
    metrics = [{"name": "spend", "role": "covariate"}, {"name": "orders"}] if measured else []
    bench = Bench(lambda: storage)
    key = bench.running(1000, *metrics)
    values = [{"spend": 2.0}] * 50 if measured else []
    units = [[f"{batch} {i}" for i in range(50)] for batch in range(2)]
    bench.assign(key, units[0], values)  # what never changes is read once
    statements: list[str] = []
    engine = storage._database.engine
    event.listen(engine, "before_cursor_execute", lambda *of: statements.append(of[2]))
    counts = []
    for work in (
        lambda: bench.assign(key, units[1], values),
        lambda: bench.assign(key, units[1], values),
        lambda: bench.record(
            key, [Event(unit, 1.0, "orders" if measured else "reward") for unit in units[0]], NOW
        ),
    ):
        statements.clear()
        work()
        counts.append(len(statements))
    most = (MOST_MEASURED if measured else MOST)[engine.dialect.name]
    assert all(count <= limit for count, limit in zip(counts, most, strict=True)), counts


# What is drawn is kept within a bound


WEIGHTS = np.array([[0.5, 0.3, 0.2]])
SEGMENTS = [
    Segment(WEIGHTS, np.array([20_000]), "iid"),
    Segment(WEIGHTS, np.array([20_000]), "blocks", 7),
    Segment(WEIGHTS, np.array([20_000]), "blocks", 3000),
    Segment.shuffled(np.array([[9000, 5000, 6000]])),
]


@pytest.mark.parametrize("kept", [1, 5000, segments.CACHED])
def test_memory_is_bounded_and_changes_nothing(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "CACHED", kept)
    monkeypatch.setattr(segments, "LENGTHS", 2)  # of four
    kept_draws, rng = Draws(), np.random.default_rng(1)
    whole = [arms_between(part, 9, i, 0, 20_000) for i, part in enumerate(SEGMENTS)]
    for _ in range(60):
        index, start = int(rng.integers(4)), int(rng.integers(19_900))
        places = [(index, position) for position in range(start, start + 100)]
        found = kept_draws.at(1, 9, places, SEGMENTS.__getitem__)
        assert [arm for arm, _ in found] == whole[index][start : start + 100].tolist()
        chunks = list(kept_draws._chunks.values())
        assert all(chunk.columns.base is None for chunk in chunks)  # no view keeps more alive
        assert kept_draws.kept == sum(chunk.size for chunk in chunks)
        assert kept_draws.kept <= kept or len(chunks) == 1


@pytest.mark.parametrize(
    ("policy", "budget", "told"),
    [
        (sa.Uniform(), 2**32 + 1, "expected at most 4,294,967,296"),
        (sa.SequentialHalving(), 10**9, "expected at most 67,108,864"),
        (sa.Steady(block=10**8), 10**9, "shorter blocks"),
    ],
)
def test_a_budget_that_cannot_be_served_is_refused(
    policy: sa.Policy[Any], budget: int, told: str
) -> None:
    memory = open_storage("memory")
    with pytest.raises(sa.InvalidInputError, match=told):
        sa.create_experiment("large", ["A", "B"], policy, budget, memory, missing="drop")
    assert not memory.summaries()
    sa.create_experiment("fits", ["A", "B"], policy, 10**5, memory, missing="drop").ask("u")
