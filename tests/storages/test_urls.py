"""Where storages are opened: URLs, variables, schemes, and what has to be installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from steadyarm.errors import InvalidInputError, MissingExtraError
from steadyarm.storages import open_storage, storage_status
from tests.storages.databases import fresh_database


def test_where_a_storage_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STEADYARM_STORAGE", raising=False)
    open_storage().close()
    assert (tmp_path / "steadyarm.db").exists()
    monkeypatch.setenv("STEADYARM_STORAGE", "sqlite:///other.db")
    open_storage().close()
    assert (tmp_path / "other.db").exists()
    assert storage_status().url == "sqlite:///other.db"
    memory = open_storage("memory")
    assert memory.in_memory
    assert open_storage("memory://") is not memory
    assert open_storage(memory) is memory


def test_postgres_has_several_schemes(postgres: str) -> None:
    url = fresh_database(postgres)
    for scheme in ("postgres", "postgresql", "postgresql+psycopg"):
        storage = open_storage(url.replace("postgresql+psycopg", scheme))
        storage.check()
        storage.close()
    assert storage_status(url).backend == "postgresql"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("storage.db", "sqlite:///FILE"),
        ("", "expected sqlite"),
        ("mysql://u:secret@h/d", "'mysql' are not supported"),
        ("postgresql+psycopg2://u:secret@h/d", "'postgresql\\+psycopg2' are not supported"),
        ("postgresql://u:secret@h:port/d", "cannot be read"),
        ("sqlite://", "names a file"),
        ("sqlite:///:memory:", "give memory"),
        ("sqlite://storage.db", "three slashes"),
    ],
)
def test_other_urls_are_refused_without_showing_passwords(url: str, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says) as caught:
        open_storage(url)
    assert "secret" not in str(caught.value)


def test_databases_are_imported_when_used() -> None:
    code = "import sys, steadyarm.storages; print('sqlalchemy' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("module", "url", "extra"),
    [
        ("sqlalchemy.engine", "sqlite:///x.db", "live"),
        ("psycopg", "postgresql://h/d", "postgres"),
    ],
)
def test_missing_extras_are_named(
    module: str, url: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'steadyarm\[{extra}\]'"):
        open_storage(url)
