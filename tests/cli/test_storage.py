"""`steadyarm storage`: status and upgrade."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from steadyarm.cli.main import main


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/tests.db"


def test_status_upgrade_status(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*words: str) -> str:
        assert main(["storage", *words, "--storage", url]) == 0
        return capsys.readouterr().out

    def facts(word: str) -> dict[str, str | None]:
        found = json.loads(run(word, "--format", "json"))
        assert isinstance(found, dict)
        return found

    assert "there are no tables yet" in run("status")
    empty = facts("status")
    assert (empty["state"], empty["revision"], empty["backend"]) == ("empty", None, "sqlite")
    assert not list(tmp_path.iterdir())  # looking makes nothing
    assert f"upgraded from nothing to {empty['newest']}." in run("upgrade")
    assert "nothing to do" in run("upgrade")
    assert "the tables are up to date" in run("status")
    current = facts("status")
    assert (current["state"], current["revision"]) == ("current", empty["newest"])
    assert facts("upgrade") == {"before": empty["newest"]} | current


def test_tables_of_another_version(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["storage", "upgrade", "--storage", url]) == 0
    with closing(sqlite3.connect(tmp_path / "tests.db")) as database, database:
        database.execute("UPDATE steadyarm_version SET version_num = '9999'")
    assert main(["storage", "status", "--storage", url]) == 0
    assert "of a newer version" in capsys.readouterr().out
    assert main(["experiment", "list", "--storage", url]) == 1
    assert "9999" in capsys.readouterr().err
    assert main(["storage", "upgrade", "--storage", url]) == 1
    assert "install a newer SteadyArm" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("memory", "a storage in memory has no tables"),
        ("tests.db", "a file is given as sqlite:///FILE"),
        ("mysql://me@host/tests", "storages of kind 'mysql' are not supported"),
        ("sqlite:////nowhere/at/all/tests.db", "the folder /nowhere/at/all does not exist"),
    ],
)
def test_wrong_storages_are_named(
    url: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["storage", "upgrade", "--storage", url]) == 1
    assert message in capsys.readouterr().err


def test_the_environment_names_the_storage(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STEADYARM_STORAGE", url)
    assert main(["storage", "status"]) == 0
    assert url in capsys.readouterr().out
