"""`steadyarm storage`: status, upgrade, check, backup, copy, prune; with real faults."""

from __future__ import annotations

import io
import json
import re
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, redirect_stdout
from pathlib import Path
from threading import Event, Thread

import pytest

import steadyarm as sa
from steadyarm.cli.main import main
from steadyarm.live.experiment import Experiment
from steadyarm.service.auth import new_token
from steadyarm.storages import open_storage
from tests.storages.databases import fresh_database
from tests.storages.filling import fill

GUIDE = Path(__file__).parents[2] / "docs/operate/backup.md"
Call = Callable[..., str]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The storage of these commands, in a folder that they run in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEADYARM_STORAGE", "sqlite:///steadyarm.db")
    return tmp_path / "steadyarm.db"


@pytest.fixture
def shop(file: Path) -> Iterator[Experiment]:
    """An experiment in it that a program has open, with 20 visitors."""
    with sa.create_experiment("shop", ["A", "B"], sa.Steady(), 100, seed=1, missing="drop") as made:
        made.tell_many([(made.ask(f"v{i}"), 1.0) for i in range(20)])
        yield made


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Run a verb; what it printed, on standard error if it failed."""

    def run(*words: str, status: int = 0) -> str:
        assert main(["storage", *words]) == status
        printed = capsys.readouterr()
        return printed.err if status else printed.out

    return run


def visitors(file: Path) -> int:
    with sa.load_experiment("shop", f"sqlite:///{file}") as found:
        assert found.replay().agrees
        return sum(found.status().assigned)


def damage(file: Path) -> int:
    whole = file.read_bytes()
    return file.write_bytes(whole[:16384] + b"\x7f" * 8192 + whole[24576:])


def test_status_upgrade_status(file: Path, call: Call) -> None:
    assert "the database has no tables yet" in call("status")
    empty = json.loads(call("status", "--format", "json"))
    assert (empty["state"], empty["revision"], empty["backend"]) == ("empty", None, "sqlite")
    assert not file.exists()  # looking makes nothing
    assert f"upgraded from nothing to {empty['newest']}." in call("upgrade")
    assert "nothing to do" in call("upgrade")
    assert "the tables are up to date" in call("status")
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE steadyarm_version SET version_num = '9999'")
    assert "have a newer version" in call("status")
    assert "install a newer SteadyArm" in call("upgrade", status=1)


def test_the_commands_of_the_guide_restore_a_storage(
    file: Path, shop: Experiment, call: Call
) -> None:
    steps = GUIDE.read_text().partition("## SQLite")[2].partition("## PostgreSQL")[0]
    blocks = re.findall(r"```console\n(.*?)```", steps, flags=re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert lines[0] == "export STEADYARM_STORAGE=sqlite:///steadyarm.db"
    ran = []
    for line in lines[1:]:
        tool, *words = line.split()
        if tool == "steadyarm":
            assert words.pop(0) == "storage"
            ran.append(words[0])
            call(*words)
        elif words[:1] == ["stop"]:
            shop.ask("somebody after the backup")
            shop.close()
        elif tool in ("rm", "cp"):
            subprocess.run([tool, *words], check=True)
    assert ran == ["backup", "check", "check"]
    assert visitors(file) == 20
    pruning = GUIDE.read_text().partition("## Keeping it small")[2].partition("\n## ")[0]
    for line in re.findall(r"^steadyarm storage (.*)$", pruning, flags=re.MULTILINE):
        call(*line.split())


def test_backups_are_not_overwritten_and_never_half_made(
    file: Path, shop: Experiment, call: Call
) -> None:
    made = json.loads(call("backup", "monday.db", "--format", "json"))
    assert (made["backup"], made["bytes"]) == (
        str(file.parent / "monday.db"),
        Path("monday.db").stat().st_size,
    )
    shop.ask("one more")
    assert "is there already" in call("backup", "monday.db", status=1)
    call("backup", "monday.db", "--force")
    assert visitors(Path("monday.db").absolute()) == 21
    assert "cannot be replaced" in call("backup", "steadyarm.db", "--force", status=1)
    assert "there is no folder" in call("backup", "no/monday.db", status=1)
    assert not list(file.parent.glob(".*"))


def test_backups_are_made_while_others_write(file: Path, shop: Experiment, call: Call) -> None:
    ended = Event()

    def traffic() -> None:
        with sa.load_experiment("shop", f"sqlite:///{file}") as other:
            for i in range(60):
                other.tell(other.ask(f"w{i}"), 1.0)
        ended.set()

    thread = Thread(target=traffic)
    thread.start()
    seen = []
    while not ended.is_set():
        call("backup", "live.db", "--force")
        seen.append(visitors(file.with_name("live.db")))  # replays it
    thread.join()
    assert seen == sorted(seen)
    assert visitors(file) == 80


def test_a_bare_copy_of_a_file_in_use_is_explained(
    file: Path, shop: Experiment, call: Call
) -> None:
    with closing(open_storage("sqlite:///copy.db")):
        pass
    said = call("check", "--storage", "sqlite:///copy.db")
    assert "0 experiments" in said
    assert "-wal" in said
    assert "-wal" not in call("check")


def test_a_damaged_storage_is_named(file: Path, shop: Experiment, call: Call) -> None:
    shop.close()
    damage(file)
    assert "the file is damaged" in call("status", status=1)
    assert "fault" in call("check", status=1)
    assert "is damaged, no backup was made" in call("backup", "worse.db", status=1)
    assert not Path("worse.db").exists()


def test_a_copy_on_postgresql_and_back_is_the_same(
    file: Path, shop: Experiment, call: Call, postgres: str
) -> None:
    url = fresh_database(postgres)
    shop.exclude(unit="v3", reason="a bot")
    with closing(open_storage()) as storage:
        storage.tokens.add(new_token("first", "admin")[1])
    assert "pg_dump" in call("backup", "x.dump", "--storage", url, status=1)
    assert "Copied 1 experiment" in call("copy", "sqlite:///steadyarm.db", url)
    assert "give an empty database" in call("copy", "sqlite:///steadyarm.db", url, status=1)
    call("copy", url, "sqlite:///back.db")
    with closing(open_storage(url)) as storage, sa.load_experiment("shop", storage) as copy:
        assert copy.ask("v0").id == shop.ask("v0").id
        assert copy.ask("new").id == shop.ask("new").id  # both go on alike
        assert copy.replay().agrees
        assert storage.tokens.closed()
        copy.pause(by="me")  # entries get new numbers
    with sa.load_experiment("shop", "sqlite:///back.db") as back:
        assert sum(back.status().assigned) == 20
        assert back.replay().agrees
        assert [e.action for e in back.history()] == [e.action for e in shop.history()]


def test_a_check_tells_what_cannot_be_read_and_goes_on(
    file: Path, shop: Experiment, call: Call
) -> None:
    broken = {
        "sums": "UPDATE steadyarm_tallies SET sums = 'x'",
        "config": "UPDATE steadyarm_experiments SET config = '{}'",
        "arm": "UPDATE steadyarm_assignments SET arm = 99",
        "own": "UPDATE steadyarm_experiments SET config = json_set(config, '$.policy.name', 'M')",
    }
    snapshot = shop.storage.snapshot(shop.key, everything=True)
    for name in broken:
        fill(shop.storage, name, snapshot, [shop.storage.log(shop.key)])
    shop.close()
    with closing(sqlite3.connect(file)) as database, database:
        keys = dict(database.execute("SELECT name, key FROM steadyarm_experiments"))
        for name, statement in broken.items():
            database.execute(f"{statement} WHERE key = {keys[name]}")
    found = json.loads(_failed(call, "check", "--format", "json"))
    lines = dict(line.split(": ", 1) for line in reversed(found["faults"]))  # the first of each
    assert "it cannot be replayed" in lines["sums"]
    assert lines["config"] == "it cannot be replayed: KeyError: 'policy'"
    assert "shows variant 99, which is not there, with probability 0.5" in lines["arm"]
    assert found["experiments"] == 2  # shop and arm
    assert found["skipped"] == ["own: it uses 'M', a policy of your own"]


def _failed(call: Call, *words: str) -> str:
    """What a command that fails printed on standard output."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        call(*words, status=1)
    return printed.getvalue()


def test_prune_removes_what_nobody_needs(file: Path, shop: Experiment, call: Call) -> None:
    now = time.time_ns() // 1000
    with closing(sqlite3.connect(file)) as database, database:
        for name, expires in (("old", now - 1), ("new", now + 10**9)):
            values = (name, "t", 0, expires)
            database.execute("INSERT INTO steadyarm_sessions VALUES (?, ?, ?, ?)", values)
    assert json.loads(call("prune", "--format", "json")) == {"sessions": 1, "experiments": []}
    shop.stop()
    shop.archive()
    assert "no experiments" in call("prune", "--archived-before", "2020-01-01")
    told = call("prune", "--archived-before", "2100-01-01", status=1)
    assert "would delete shop permanently" in told
    assert "Deleted: shop." in call("prune", "--archived-before", "2100-01-01", "--yes")
    shop.close()
    with closing(sqlite3.connect(file)) as database:
        for table in ("experiments", "assignments", "rewards", "tallies", "segments"):
            (rows,) = database.execute(f"SELECT count(*) FROM steadyarm_{table}").fetchone()
            assert rows == 0, table
    assert "Replayed 0 experiments" in call("check")
    assert "expected a day" in call("prune", "--archived-before", "yesterday", status=1)
