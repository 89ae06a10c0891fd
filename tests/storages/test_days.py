"""Sums by day and summaries in databases, beyond the contract: what is written and read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Dialect, event

from steadyarm.storages.base import Storage
from steadyarm.storages.records import Target
from steadyarm.storages.sql.engine import Statement, Values
from steadyarm.storages.sql.storage import SQLStorage
from steadyarm.testing.storages.bench import DAY
from tests.storages.databases import running_in

Open = Callable[[], Storage]

pytestmark = pytest.mark.parametrize("open_fresh", ["sqlite", "postgresql"], indirect=True)


@pytest.fixture
def storage(open_fresh: Open) -> SQLStorage:
    return _opened(open_fresh)


def _opened(open_fresh: Open) -> SQLStorage:
    opened = open_fresh()
    assert isinstance(opened, SQLStorage)
    return opened


@pytest.fixture
def statements(storage: SQLStorage, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the database executes."""
    executed: list[str] = []
    event.listen(
        storage._database.engine,
        "before_cursor_execute",
        lambda connection, cursor, statement, *rest: executed.append(statement),
    )
    execute = Statement.execute

    def noted(self: Statement, driver: Any, dialect: Dialect, values: Values) -> Any:
        done = execute(self, driver, dialect, values)
        executed.append(self._compiled[dialect.name == "sqlite"][0])
        return done

    monkeypatch.setattr(Statement, "execute", noted)
    return executed


def test_a_late_reward_counts_where_a_worker_has_counted_nothing_yet(
    open_fresh: Open, storage: SQLStorage
) -> None:
    key = running_in(storage, 10)
    storage.assign(key, ["a", "b"], now=0)
    storage._database.shard = 3
    other = _opened(open_fresh)
    other._database.shard = 4
    once: list[tuple[Target, float]] = [("a", 1.0)]
    for told in (once, [*once, ("b", 1.0), ("a", 2.0)]):
        for worker in (storage, other):
            said = worker.reward(key, told, 5, 6)
            assert {outcome.status for outcome in said} == {"late"}
    (sums,) = storage.days(key)
    assert (sum(sums.late), sums.tally.total_assigned, sums.tally.total_rewarded) == (8, 2, 0)
    assert [o.status for o in other.reward(key, [("a", 1.0)], None, 6)] == ["stored"]
    assert [sums.tally for sums in storage.days(key)] == [storage.snapshot(key).segments[0][1]]


def test_traffic_needs_no_more_statements_because_of_days(
    storage: SQLStorage, statements: list[str]
) -> None:
    key = running_in(storage, 1000)

    def written(now: int) -> list[str]:
        statements.clear()
        storage.assign(key, [f"{now}.{i}" for i in range(50)], now=now)
        storage.reward(key, [(f"{now}.{i}", 1.0) for i in range(50)], None, now)
        return [statement for statement in statements if "steadyarm_tallies" in statement]

    for now in (0, 1, DAY, 2 * DAY, 2 * DAY + 1):
        kinds = [statement.split()[0] for statement in written(now)]
        assert kinds == ["INSERT", "SELECT", "INSERT"]
    assert len(storage.days(key)) == 3


def test_configs_are_read_once(storage: SQLStorage, statements: list[str]) -> None:
    running_in(storage, 10)
    statements.clear()
    first = storage.summaries()
    assert sum("config" in statement for statement in statements) == 1
    statements.clear()
    assert storage.summaries() == first
    assert not any("config" in each or "policy_state" in each for each in statements)
    assert sum("SELECT" in statement for statement in statements) == 1
