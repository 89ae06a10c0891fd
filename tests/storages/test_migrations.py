"""The migrations make the tables of schema.py, whatever version one comes from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, column, create_engine, insert, table, text
from sqlalchemy.engine import Engine

from steadyarm.errors import StorageVersionError
from steadyarm.storages import open_storage, storage_status, upgrade_storage
from steadyarm.storages.base import Storage
from steadyarm.storages.memory import MemoryStorage
from steadyarm.storages.records import LogRow, Tally, Target, place_of
from steadyarm.storages.sql.base import dump, segment_row
from steadyarm.storages.sql.schema import (
    REVISIONS,
    VERSION_TABLE,
    assignments,
    experiments,
    metadata,
    rewards,
    segments,
    tokens,
)
from steadyarm.storages.sql.upkeep import MIGRATIONS, NEWEST, migrate
from steadyarm.testing.storages.bench import DAY, NOW, Bench, new_segment, same


def bench(storage: Storage) -> Bench:
    return Bench(lambda: storage)


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    engine = create_engine(url)
    yield engine
    engine.dispose()


def test_migrations_make_the_tables_of_the_schema(url: str, engine: Engine) -> None:
    assert upgrade_storage(url) == (None, NEWEST)
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": VERSION_TABLE, "compare_type": True}
        )
        assert compare_metadata(context, metadata) == []


def test_sqlite_tables_are_the_same_to_the_letter(tmp_path: Path) -> None:
    # What Alembic does not compare: WITHOUT ROWID, AUTOINCREMENT, conditions of indices.
    made = []
    for name in ("migrated", "created"):
        url = f"sqlite:///{tmp_path / name}.db"
        engine = create_engine(url)
        if name == "migrated":
            upgrade_storage(url)
        else:
            metadata.create_all(engine)
        with engine.connect() as connection:
            rows = connection.execute(
                text("SELECT name, sql FROM sqlite_master WHERE type != 'trigger'")
            ).all()
        engine.dispose()
        made.append({row.name: row.sql for row in rows if row.name.startswith("steadyarm_")})
    made[0].pop(VERSION_TABLE)
    assert sum("WITHOUT ROWID" in str(sql) for sql in made[0].values()) == 3
    # A column that was added later stands behind the primary key.
    parts = [{name: _parts(str(sql)) for name, sql in each.items()} for each in made]
    assert parts[0] == parts[1]


def _parts(sql: str) -> list[str]:
    found = re.fullmatch(r"(\w+[^(]*)\((.*)\)([^)]*)", sql, re.DOTALL)
    assert found is not None, sql
    head, body, tail = found.groups()
    return [*sorted(part.strip() for part in re.split(r",(?![^(]*\))", body)), head, tail.strip()]


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_indices_have_their_conditions_on_postgresql(url: str, engine: Engine) -> None:
    upgrade_storage(url)
    with engine.connect() as connection:
        query = text("SELECT indexdef FROM pg_indexes WHERE indexname = 'steadyarm_segments_open'")
        assert "WHERE (closed IS NULL)" in connection.execute(query).scalar_one()


def test_revisions_are_those_of_the_scripts() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("path_separator", "os")
    script = ScriptDirectory.from_config(config)
    assert tuple(r.revision for r in reversed([*script.walk_revisions()])) == REVISIONS
    assert script.get_current_head() == NEWEST


def test_migrations_are_in_the_package() -> None:
    import steadyarm

    assert MIGRATIONS.is_relative_to(Path(steadyarm.__file__).parent)
    assert len([*(MIGRATIONS / "versions").glob("r*.py")]) == len(REVISIONS)


def test_an_older_database_is_refused_until_it_is_upgraded(url: str, engine: Engine) -> None:
    with engine.begin() as connection:
        migrate(connection, "0001")
        row = {"name": "e", "tag": "t", "state": "running", "config": '{"seed":1}'}
        more = {"policy_state": "{}", "created": 1, "version": 2, "observed": 3}
        connection.execute(insert(experiments), row | more)
    status = storage_status(url)
    assert (status.state, status.revision, status.newest) == ("older", "0001", NEWEST)
    with pytest.raises(StorageVersionError, match=r"0001.* steadyarm storage upgrade --storage "):
        open_storage(url)
    assert storage_status(url).state == "older"
    assert upgrade_storage(url) == ("0001", NEWEST)
    assert storage_status(url).state == "current"
    storage = open_storage(url)
    found = storage.find("e")
    assert (found.state, found.version, found.observed) == ("running", 2, 3)
    assert storage.tokens() == []
    assert not storage.closed()
    storage.close()
    assert upgrade_storage(url) == (NEWEST, NEWEST)


def test_a_database_that_has_a_token_is_closed_by_its_upgrade(url: str, engine: Engine) -> None:
    with engine.begin() as connection:
        migrate(connection, "0004")
        row = {"name": "me", "hash": "h", "scope": "admin", "created": 7}
        connection.execute(insert(tokens), row)
    upgrade_storage(url)
    with closing(open_storage(url)) as storage:
        storage.remove_token("me", now=8, lock_out=True)
        assert storage.closed()


def _tallies_of_0002(key: int, index: int, tally: Tally, log: list[LogRow]) -> list[dict[str, Any]]:
    """One worker handed everything out; another took the rewards, so its rows know no last."""
    rows = []
    last = {row.arm: row.created for row in log if place_of(row.number)[0] == index}
    for arm, assigned in enumerate(tally.assigned):
        place = {"key": key, "segment": index, "arm": arm}
        told = {
            "rewarded": tally.rewarded[arm],
            "sums": str(tally.sums[arm]),
            "squares": str(tally.squares[arm]),
        }
        none = {"rewarded": 0, "sums": "0", "squares": "0"}
        if assigned:
            rows.append({**place, "shard": 3, "assigned": assigned, "last": last[arm], **none})
        if tally.rewarded[arm]:
            rows.append({**place, "shard": 7, "assigned": 0, "last": None, **told})
    return rows


def _at_0002(connection: Connection, source: Storage, key: int) -> int:
    """An experiment as revision 0002 kept it; its key."""
    migrate(connection, "0002")
    whole = source.snapshot(key, everything=True)
    record = {**vars(whole.experiment), "config": dump(whole.experiment.config)}
    record["policy_state"] = dump(whole.experiment.policy_state)
    del record["outside"]  # came with revision 0008
    log = source.log(key)
    given = [
        {
            **{name: getattr(row, name) for name in ("number", "unit", "arm", "probability")},
            **{"key": key, "repeat": 0, "created": row.created},
        }
        for row in log
    ]
    told = [
        {"key": key, "number": row.number, "reward": row.reward, "created": row.rewarded}
        for row in log
        if row.reward is not None
    ]
    sums = [
        row
        for each, tally in whole.segments
        for row in _tallies_of_0002(key, each.index, tally, log)
    ]
    pieces = [segment_row(key, each) for each, _ in whole.segments]
    for piece in pieces:
        del piece["arms"], piece["early"]  # came with revisions 0004 and 0007
    old = table("steadyarm_tallies", *map(column, sums[0] if sums else ()))
    for where, rows in (
        *((experiments, [record]), (assignments, given), (rewards, told)),
        *((segments, pieces), (old, sums)),
    ):
        if rows:
            connection.execute(insert(where), rows)
    return key


def _dayed_source() -> tuple[MemoryStorage, int]:
    """Six arms over midnights, in three segments of which one was never used."""
    source, six = MemoryStorage(), (0.3, 0.3, 0.1, 0.1, 0.1, 0.1)
    key = bench(source).running(30, weights=six)
    for day in range(3):
        units = [f"{day}.{i}" for i in range(15 - 5 * day)]
        bench(source).assign(key, units, now=NOW + day * DAY)
        values = [(unit, 0.1 + 1 / (3 + i % 4)) for i, unit in enumerate(units[::3])]
        source.reward(key, values, None, NOW + 2 * DAY)
    bench(source).open_segment(key, new_segment(30, weights=six), closed=[0])
    bench(source).open_segment(key, new_segment(60, weights=six))
    for day in (3, 4):
        units = [f"{day}.{i}" for i in range(12 - 2 * day)]
        bench(source).assign(key, units, now=NOW + day * DAY)
        source.reward(key, [(units[0], -0.0), (units[1], 5e-324)], None, NOW + 4 * DAY)
    return source, key


def test_days_are_exact_after_they_were_added(url: str, engine: Engine) -> None:
    source, key = _dayed_source()
    with engine.begin() as connection:
        _at_0002(connection, source, key)
    engine.dispose()
    assert upgrade_storage(url) == ("0002", NEWEST)
    storage = open_storage(url)
    found, expected = (each.snapshot(key, everything=True) for each in (storage, source))
    assert same(found.experiment, expected.experiment)
    assert storage.summaries() == source.summaries()
    days = bench(storage).dayed(key)
    assert days == source.days(key)
    today = NOW // DAY
    assert [(sums.segment, sums.day - today) for sums in days] == [
        *((0, 0), (0, 1), (0, 2)),
        *((2, 3), (2, 4)),
    ]
    # An arm that was handed out on the first of several days alone is what is hard.
    first = {arm for arm, n in enumerate(days[3].tally.assigned) if n}
    assert first - {arm for arm, n in enumerate(days[4].tally.assigned) if n}
    for each in (source, storage):  # and both go on alike
        bench(each).assign(key, ["d", "e"], now=NOW + 5 * DAY)
        rest: list[tuple[Target, float]] = [(f"{day}.{i}", 0.7) for day in (3, 4) for i in (2, 3)]
        told: list[tuple[Target, float]] = [*rest, ("d", 0.1), ("0.1", 1.0)]
        said = [outcome.status for outcome in each.reward(key, told, None, NOW + 6 * DAY)]
        assert said == ["stored"] * 5 + ["closed"]
    assert bench(storage).tallied(key) == bench(source).tallied(key)
    assert storage.days(key) == source.days(key)
    assert storage.summaries() == source.summaries()
    storage.close()


def test_nothing_is_counted_where_nothing_was_handed_out(url: str, engine: Engine) -> None:
    source = MemoryStorage()
    key = bench(source).running(5)
    with engine.begin() as connection:
        _at_0002(connection, source, key)
    engine.dispose()
    upgrade_storage(url)
    storage = open_storage(url)
    assert storage.days(key) == ()
    bench(storage).assign(key, ["a"], now=NOW)
    assert bench(storage).tallied(key)[0].total_assigned == 1
    storage.close()


@pytest.mark.parametrize("call", [open_storage, upgrade_storage])
def test_a_newer_database_is_refused(
    url: str, engine: Engine, call: Callable[[str], object]
) -> None:
    upgrade_storage(url)
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    with pytest.raises(StorageVersionError, match=r"9999.*install a newer SteadyArm"):
        call(url)
    status = storage_status(url)
    assert (status.state, status.revision) == ("newer", "9999")


def test_tables_of_others_are_left_alone(url: str, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE alembic_version (version_num TEXT)"))
        connection.execute(text("INSERT INTO alembic_version VALUES ('theirs')"))
    assert storage_status(url).state == "empty"
    open_storage(url).close()
    assert storage_status(url).state == "current"
    with engine.connect() as connection:
        query = text("SELECT version_num FROM alembic_version")
        assert connection.execute(query).scalars().all() == ["theirs"]


def test_a_failed_migration_leaves_nothing(
    url: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from alembic.operations import Operations

    def fail(*args: object, **named: object) -> None:
        raise RuntimeError("half-way")

    monkeypatch.setattr(Operations, "create_index", fail)  # after some of the tables
    with pytest.raises(RuntimeError, match="half-way"):
        open_storage(url)
    assert storage_status(url).state == "empty"


def test_status_makes_no_file(tmp_path: Path) -> None:
    status = storage_status(f"sqlite:///{tmp_path / 'none.db'}")
    assert (status.state, status.backend, status.revision) == ("empty", "sqlite", None)
    assert [*tmp_path.iterdir()] == []
