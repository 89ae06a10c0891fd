"""`steadyarm storage` in an operator's hands: check, backup, restore, prune; with real faults."""

from __future__ import annotations

import io
import json
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, redirect_stdout
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

import steadyarm as sa
from steadyarm.cli.main import main
from steadyarm.live.experiment import Experiment
from steadyarm.service.auth import new_token
from steadyarm.storages import open_storage
from steadyarm.storages.changes import SessionRecord
from steadyarm.storages.sql import base as base_module
from steadyarm.storages.sql.base import Clock
from tests.storages.databases import fresh_database

GUIDE = Path(__file__).parents[2] / "docs/guides/backup.md"
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


# Backup and restore


def test_the_commands_of_the_guide_restore_a_storage(
    file: Path, shop: Experiment, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = GUIDE.read_text().partition("## SQLite")[2].partition("## PostgreSQL")[0]
    blocks = re.findall(r"```console\n(.*?)```", told, flags=re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert lines[0] == "export STEADYARM_STORAGE=sqlite:///steadyarm.db"
    ran = []
    for line in lines[1:]:
        tool, *words = line.split()
        if tool == "steadyarm":
            assert words.pop(0) == "storage"
            ran.append(words[0])
            call(*words)
        elif words[0] == "stop":
            shop.ask("somebody after the backup")
            assert "is in use; stop the service" in call("restore", "monday.db", status=1)
            shop.close()
    assert ran == ["backup", "check", "restore", "check"]
    assert visitors(file) == 20
    (before,) = file.parent.glob("steadyarm.db.before-restore-*Z")
    assert visitors(before) == 21
    pruning = GUIDE.read_text().partition("## Keeping it small")[2]
    for line in re.findall(r"^steadyarm storage (.*)$", pruning, flags=re.MULTILINE):
        call(*line.split())


def test_a_restore_beside_a_stale_log_is_whole(file: Path, shop: Experiment, call: Call) -> None:
    call("backup", "monday.db")
    shop.ask_many([f"later {i}" for i in range(10)])
    log = Path(f"{file}-wal").read_bytes()
    shop.close()
    file.unlink()
    Path(f"{file}-wal").write_bytes(log)  # as a crash leaves it
    call("restore", "monday.db")
    assert not Path(f"{file}-wal").exists()
    assert visitors(file) == 20


def test_a_restore_lets_nobody_else_in(file: Path, shop: Experiment, call: Call) -> None:
    shop.close()
    call("backup", "monday.db")
    told = call("restore", "monday.db")
    assert "There has been no token; the service answers this machine only" in told
    _, first = new_token("first", "admin")
    with closing(open_storage()) as storage:
        storage.add_token(first)
        storage.add_session(SessionRecord("id", first.hash, 0, 10**18))
    call("backup", "tuesday.db")
    facts = restored(call, "monday.db")
    assert (facts["closed"], facts["tokens"], facts["returned"]) == (True, [], [])
    with closing(open_storage()) as storage:  # also if the backup's tables had to be upgraded
        assert storage.closed()
    assert "Not valid before the restore: first;" in call("restore", "tuesday.db")
    with closing(open_storage()) as storage:
        assert storage.find_session("id", 1) is None
        assert storage.tokens() == [first]
    facts = restored(call, "tuesday.db")
    assert (facts["tokens"], facts["returned"]) == ([{"name": "first", "scope": "admin"}], [])
    file.write_text("no database, but long enough. " * 50)
    assert "No token is valid now; the service lets nobody in" in call("restore", "monday.db")


def restored(call: Call, backup: str) -> dict[str, Any]:
    """What a restore says; the names of files that are kept go by seconds."""
    for kept in Path().glob("*before-restore*"):
        kept.unlink()
    told: dict[str, Any] = json.loads(call("restore", backup, "--format", "json"))
    for kept in Path().glob("*before-restore*"):
        kept.unlink()
    return told


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
    with closing(sqlite3.connect("monday.db")) as other:
        other.execute("PRAGMA journal_mode=WAL").fetchone()
        assert "is in use" in call("backup", "monday.db", "--force", status=1)
    assert "is the storage itself" in call("backup", "steadyarm.db", "--force", status=1)
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


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "there is no backup"),
        (lambda path: path.write_text("no database, but long enough. " * 50), "not a database"),
        (lambda path: sqlite3.connect(path).close(), "has no tables of SteadyArm"),
        (lambda path: damage(Path(shutil.copy("good.db", path))), "is damaged, nothing was"),
        (lambda path: newer(path), "install a newer SteadyArm"),
    ],
)
def test_a_backup_that_is_none_is_refused(
    file: Path, shop: Experiment, call: Call, make: Callable[[Path], object], message: str
) -> None:
    call("backup", "good.db")
    shop.close()
    make(Path("bad.db").absolute())
    assert message in call("restore", "bad.db", status=1)
    assert visitors(file) == 20
    assert not list(file.parent.glob("*before*"))


def newer(path: Path) -> None:
    shutil.copy("good.db", path)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE steadyarm_version SET version_num = '9999'")


@contextmanager
def opened_elsewhere(file: Path) -> Iterator[None]:
    """Another process has the file open, and does nothing."""
    code = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); "
        "c.execute('SELECT * FROM sqlite_master').fetchall(); print(flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield
    finally:
        process.communicate()


def test_a_damaged_storage_is_named_and_replaced(file: Path, shop: Experiment, call: Call) -> None:
    call("backup", "monday.db")
    shop.close()
    open_storage(f"sqlite:///{file}").close()
    with opened_elsewhere(file):
        assert "is in use" in call("restore", "monday.db", status=1)
        damage(file)
        assert "is in use" in call("restore", "monday.db", status=1)
    assert "the file is damaged" in call("status", status=1)
    assert "fault" in call("check", status=1)
    assert "is damaged, nothing was changed" in call("backup", "worse.db", status=1)
    assert not Path("worse.db").exists()
    call("restore", "monday.db")
    assert "up to date" in call("status")
    assert visitors(file) == 20


def test_postgresql_has_its_own_tools(postgres: str, capsys: pytest.CaptureFixture[str]) -> None:
    url = fresh_database(postgres)
    for verb, tool in (("backup", "pg_dump --format custom --file x.dump"), ("restore", "pg_res")):
        with pytest.raises(SystemExit) as ended:
            main(["storage", verb, "x.dump", "--storage", url])
        assert ended.value.code == 2
        assert tool in capsys.readouterr().err
    with sa.create_experiment("e", ["A", "B"], sa.Steady(), 10, url, missing="drop") as made:
        made.ask("a")
    assert main(["storage", "check", "--storage", url]) == 0
    assert "1 experiment computed anew" in capsys.readouterr().out


# Check and prune


def test_a_check_finds_what_belongs_to_nothing(file: Path, shop: Experiment, call: Call) -> None:
    assert call("check") == "All is in order; 1 experiment computed anew.\n"
    shop.close()
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("DELETE FROM steadyarm_assignments WHERE unit = 'v3'")
        database.execute("UPDATE steadyarm_tallies SET segment = 77 WHERE segment = 1")
    found = json.loads(_failed(call, "check", "--format", "json"))
    lines = "\n".join(found["faults"])
    for part in (
        "rewards: 1 rows of the experiment with key 1 have no assignment",
        "tallies: 2 rows of the experiment with key 1 have no segment",
        "shop: segment 0 has stored sums",
    ):
        assert part in lines


def test_a_check_tells_what_cannot_be_read_and_goes_on(
    file: Path, shop: Experiment, call: Call
) -> None:
    broken = {
        "sums": "UPDATE steadyarm_tallies SET sums = 'x'",
        "state": "UPDATE steadyarm_experiments SET policy_state = '{'",
        "config": "UPDATE steadyarm_experiments SET config = '{}'",
        "budget": "UPDATE steadyarm_experiments SET config = json_set(config, '$.budget', -1)",
        "arm": "UPDATE steadyarm_assignments SET arm = 99",
        "own": "UPDATE steadyarm_experiments SET config = json_set(config, '$.policy.name', 'M')",
    }
    snapshot = shop.storage.snapshot(shop.key, everything=True)
    for name in broken:
        shop.storage.restore(name, snapshot, [shop.storage.log(shop.key)])
    shop.close()
    with closing(sqlite3.connect(file)) as database, database:
        keys = dict(database.execute("SELECT name, key FROM steadyarm_experiments"))
        for name, statement in broken.items():
            database.execute(f"{statement} WHERE key = {keys[name]}")
        database.execute("UPDATE steadyarm_tallies SET segment = 77 WHERE key = 1 AND segment = 1")
    found = json.loads(_failed(call, "check", "--format", "json"))
    lines = dict(line.split(": ", 1) for line in reversed(found["faults"]))  # the first of each
    assert "Invalid literal for Fraction: 'x'" in lines["sums"]
    assert "JSONDecodeError" in lines["state"]
    assert lines["config"] == "it cannot be computed anew: KeyError: 'policy'"
    assert "budget" in lines["budget"]
    assert "shows variant 99, which is not there, with probability 0.5" in lines["arm"]
    assert "have no segment" in lines["tallies"]
    assert found["experiments"] == 2  # shop and arm
    assert found["skipped"] == ["own: it runs with 'M', a policy of your own"]


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
    ahead_of_it = partial(Clock, wall=lambda: time.time() + 3 * 3600)
    with pytest.MonkeyPatch.context() as ahead:  # of whoever types it
        ahead.setattr(time, "time_ns", lambda: (now + 3 * 3600 * 10**6) * 1000)
        ahead.setattr(base_module, "Clock", ahead_of_it)
        pruned = json.loads(call("prune", "--format", "json"))
    assert pruned == {
        "sessions": 1,
        "deliveries": 0,
        "experiments": [],
    }
    shop.stop()
    shop.archive()
    assert "no experiments" in call("prune", "--archived-before", "2020-01-01")
    told = call("prune", "--archived-before", "2100-01-01", status=1)
    assert "would delete shop for good" in told
    assert "Deleted: shop." in call("prune", "--archived-before", "2100-01-01", "--yes")
    shop.close()
    with closing(sqlite3.connect(file)) as database:
        for table in ("experiments", "assignments", "rewards", "tallies", "segments"):
            (rows,) = database.execute(f"SELECT count(*) FROM steadyarm_{table}").fetchone()
            assert rows == 0, table
    assert "0 experiments computed anew" in call("check")
    with pytest.raises(SystemExit):
        call("prune", "--archived-before", "yesterday")
