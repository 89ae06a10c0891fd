"""Migrations make the tables of schema.py, and refuse tables that they do not know."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, text
from sqlalchemy.engine import Engine

from steadyarm.errors import StorageVersionError
from steadyarm.storages import open_storage, schema, storage_status, upgrade_storage
from steadyarm.storages.schema import REVISIONS, VERSION_TABLE, metadata
from steadyarm.storages.upkeep import MIGRATIONS, NEWEST


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


def test_revisions_are_those_of_the_scripts() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("path_separator", "os")
    script = ScriptDirectory.from_config(config)
    assert tuple(r.revision for r in reversed([*script.walk_revisions()])) == REVISIONS
    assert script.get_current_head() == NEWEST


@pytest.mark.parametrize("call", [open_storage, upgrade_storage])
def test_an_unknown_revision_is_refused(
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
    def fail(*args: object, **named: object) -> None:
        raise RuntimeError("half-way")

    monkeypatch.setattr(schema.version_table, "create", fail)  # after the tables
    with pytest.raises(RuntimeError, match="half-way"):
        open_storage(url)
    assert storage_status(url).state == "empty"
