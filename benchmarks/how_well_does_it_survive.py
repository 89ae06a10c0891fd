"""What is lost, doubled or out of service when things around the service fail?

Under load from 8 client processes, each fault is brought about for real: processes are killed and
frozen, disks are full, files locked, read-only, moved away, connections silent. What clients were
told is compared with what is stored, and the whole test is replayed. "Ready again" is the time
from the end of the fault until /readyz says so and an assignment is taken.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psycopg

from benchmarks.traffic.faults import Aftermath, Disturb, Scene, kills, under_load
from benchmarks.traffic.race import race_for_units
from benchmarks.traffic.rolling import roll_out_under_kills
from benchmarks.traffic.servers import Postgres, storages

HEAD = (
    "| fault | storage | acknowledged | lost | doubled | ready again |",
    "| --- | --- | ---: | ---: | ---: | ---: |",
)
ROOM = "40m"  # of the small disk
MARKS = "<!-- faults: begin -->\n", "<!-- faults: end -->\n"


def locked(seconds: float) -> Disturb:
    """Somebody else keeps the storage locked."""

    def disturb(scene: Scene) -> None:
        if scene.database is None:
            with closing(sqlite3.connect(scene.file, isolation_level=None)) as other:
                other.execute("PRAGMA busy_timeout = 30000")
                other.execute("BEGIN IMMEDIATE")
                time.sleep(seconds)
                other.execute("ROLLBACK")
            return
        address = scene.storage.replace("postgresql+psycopg", "postgresql")
        with psycopg.connect(address) as connection:
            connection.execute("LOCK TABLE steadyarm_assignments IN ACCESS EXCLUSIVE MODE")
            time.sleep(seconds)

    return disturb


def frozen(seconds: float) -> Disturb:
    """All processes of the database are stopped for a while."""

    def disturb(scene: Scene) -> None:
        assert scene.database is not None
        scene.database.freeze(seconds)

    return disturb


def database_killed(scene: Scene) -> None:
    """Kill -9 of the database, which is started again after two seconds."""
    assert scene.database is not None
    scene.database.kill()
    time.sleep(2)
    scene.database.start()


def only_reading(seconds: float) -> Disturb:
    """The storage can be read and not written."""

    def disturb(scene: Scene) -> None:
        if scene.database is not None:
            name = scene.storage.partition("?")[0].rpartition("/")[2]
            setting = f"ALTER DATABASE {name} SET default_transaction_read_only"
            ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = "
            scene.database.run(f"{setting} = on")
            scene.database.run(f"{ended}'{name}'")  # as a fail-over does
            time.sleep(seconds)
            scene.database.run(f"{setting} = off")
            scene.database.run(f"{ended}'{name}'")
            return
        files = [str(scene.file), f"{scene.file}-wal"]  # -shm is memory that processes share
        subprocess.run(["chattr", "+i", *files], check=True)
        time.sleep(seconds)
        subprocess.run(["chattr", "-i", *files], check=True)

    return disturb


def moved_away(seconds: float) -> Disturb:
    """The file of SQLite is moved to another name, and back again."""

    def disturb(scene: Scene) -> None:
        places = [Path(f"{scene.file}{end}") for end in ("", "-wal", "-shm")]
        aside = [path.with_name("aside" + path.name) for path in places]
        for path, other in zip(places, aside, strict=True):
            path.rename(other)
        time.sleep(seconds)
        for path, other in zip(places, aside, strict=True):
            path.unlink(missing_ok=True)
            other.rename(path)

    return disturb


def full(seconds: float) -> Disturb:
    """The disk, a small one, is full."""

    def disturb(scene: Scene) -> None:
        filler = scene.file.with_name("filler")
        file = os.open(filler, os.O_CREAT | os.O_WRONLY)
        with suppress(OSError):
            while True:
                os.write(file, b"x" * 4096)
        time.sleep(seconds)
        os.close(file)
        filler.unlink()

    return disturb


def silent(connections: int, seconds: float) -> Disturb:
    """Connections are opened and say nothing."""

    def disturb(scene: Scene) -> None:
        opened: list[socket.socket] = []
        for _ in range(connections):
            with suppress(OSError):
                opened.append(socket.create_connection(("127.0.0.1", scene.service.port), 5))
        time.sleep(seconds)
        for one in opened:
            one.close()

    return disturb


def restored(scene: Scene) -> None:
    """A backup is made under load; its test is replayed, and it is a storage of its own."""
    target = scene.file.with_name("backup.db")
    command = [sys.executable, "-m", "steadyarm.cli.main", "storage"]
    subprocess.run([*command, "backup", target, "--storage", scene.storage], check=True)
    subprocess.run([*command, "check", "--storage", f"sqlite:///{target}"], check=True)


FAULTS: dict[str, tuple[Sequence[str], Disturb]] = {
    "service killed (kill -9), 5 times": (["sqlite"], kills(5)),
    "service killed 4 times, database 2 times": (["postgresql"], kills(4)),
    "database killed (kill -9)": (["postgresql"], database_killed),
    "database frozen for 20 s (SIGSTOP)": (["postgresql"], frozen(20)),
    "locked by somebody else for 20 s": (["sqlite", "postgresql"], locked(20)),
    "read-only for 10 s": (["sqlite", "postgresql"], only_reading(10)),
    "disk full for 10 s": (["sqlite"], full(10)),
    "file moved away for 10 s": (["sqlite"], moved_away(10)),
    "2,000 silent connections for 15 s": (["sqlite"], silent(2000, 15)),
    "backup under load, then a check of it": (["sqlite"], restored),
}


@contextmanager
def place(fault: str, backend: str) -> Iterator[tuple[str, Postgres | None]]:
    """A storage; on a small disk of its own if the fault is a full one."""
    if not fault.startswith("disk"):
        with storages(backend) as found:
            yield found
        return
    folder = tempfile.mkdtemp()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", folder], check=True)
    try:
        yield f"sqlite:///{folder}/tests.db", None
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
        shutil.rmtree(folder, ignore_errors=True)


def row(fault: str, backend: str, left: Aftermath) -> str:
    name = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}[backend]
    acknowledged = f"{left.assigned:,} + {left.told:,}"
    counts = f"{left.lost} | {left.doubled} | {left.ready:.1f} s"
    return f"| {fault} | {name} | {acknowledged} | {counts} |"


def measure(wanted: str) -> tuple[list[str], bool]:
    rows, good = [*HEAD], True
    print(*HEAD, sep="\n", flush=True)
    for fault, (backends, disturb) in FAULTS.items():
        for backend in backends if wanted in fault else ():
            with place(fault, backend) as (url, database):
                left = under_load(url, database, disturb)
            rows.append(row(fault, backend, left))
            print(rows[-1], *(f"    {text}" for text in left.faults), sep="\n", flush=True)
            good = good and not left.faults
    for backend in ("sqlite", "postgresql") if wanted in "race for the same units" else ():
        with storages(backend) as (url, _):
            race = race_for_units(url, units=1000)
        print(
            f"\n64 clients race for the same 1,000 units, {backend}: {race.requests:,} requests at "
            f"{race.per_second:,.0f}/s, {len(race.faults)} faults",
            *race.faults,
            sep="\n",
        )
        good = good and not race.faults
    for backend in ("sqlite", "postgresql") if wanted in "roll-out while killed" else ():
        with storages(backend) as (url, database):
            rolled = roll_out_under_kills(url, database, viewers=8, units=500)
        print(
            f"\nA variant is rolled out in four steps, {backend}: the service is killed "
            f"{rolled.kills} times, {rolled.answers:,} answers, units changed their variant "
            f"{rolled.changes:,} times, {len(rolled.faults)} times without an operator",
            *rolled.faults,
            sep="\n",
        )
        good = good and not rolled.faults
    return rows, good


def write(page: Path, rows: list[str]) -> None:
    text = page.read_text(encoding="utf-8")
    begin, end = MARKS
    table = f"{begin}\n" + "\n".join(rows) + f"\n\n{end}"
    made = re.sub(f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: table, text, flags=re.DOTALL)
    page.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="faults whose name contains this")
    parser.add_argument(
        "--page", type=Path, help="write the table into this page, such as docs/reliability.md"
    )
    args = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("full and read-only disks need the rights to mount and to chattr; run as root")
    table, safe = measure(args.only)
    if args.page is not None:
        write(args.page, table)
    sys.exit(not safe)
