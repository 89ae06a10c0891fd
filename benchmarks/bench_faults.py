"""What do faults, long reads, restarts and clock jumps cost a service under load?

Eight client processes load the service while a fault happens. Their notes are compared with what
is stored, and the test is replayed. Prints one line for each fault, for SQLite and PostgreSQL: what
was acknowledged, lost and doubled, requests that clients had to send again, and the seconds from
the end of the fault until `/readyz` agrees. It needs nginx, and root for disks and immutable files.
"""

from __future__ import annotations

import argparse
import os
import signal
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

import httpx2
import psutil
import psycopg

from benchmarks.traffic.faults import load_through
from benchmarks.traffic.servers import Postgres, Service, storages
from steadyarm.storages import backup_storage

HOUR = 3600
PAUSE = 2.0  # seconds of load before and after a fault
NGINX = """
daemon off; error_log {folder}/log; pid {folder}/pid; events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
  uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  upstream steadyarm {{ {servers} }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://steadyarm; proxy_http_version 1.1; proxy_set_header Host $http_host;
    }}
  }}
}}
"""


class Scene(NamedTuple):
    """A running service and its storage.

    Attributes
    ----------
    database : None with SQLite
    clock : a file with the seconds by which the service's clock is ahead
    """

    url: str
    database: Postgres | None
    service: Service
    clock: Path

    @property
    def file(self) -> Path:
        """The SQLite database."""
        return Path(self.url.removeprefix("sqlite:///"))


class Proxied(Service):
    """Services behind nginx, as the guide describes them; restarted one after the other."""

    def __init__(self, storage: str, count: int) -> None:
        super().__init__(storage)
        self.services = [Service(storage) for _ in range(count)]
        self._folder = tempfile.TemporaryDirectory()

    def start(self) -> None:
        """Start all, then nginx."""
        for service in self.services:
            service.start()
        servers = " ".join(
            f"server 127.0.0.1:{service.port} max_fails=0;" for service in self.services
        )
        config = Path(self._folder.name, "nginx.conf")
        config.write_text(NGINX.format(folder=config.parent, servers=servers, port=self.port))
        config.parent.chmod(0o755)
        self.process = subprocess.Popen(["nginx", "-c", str(config)])
        while not self.ready():
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop nginx, then all."""
        super().stop()
        for service in self.services:
            service.stop()
        self._folder.cleanup()

    def __enter__(self) -> Self:
        self.start()
        return self

    def restart(self, times: int) -> None:
        """Restart every process; a single one by SIGHUP."""
        for _ in range(times):
            for service in self.services:
                time.sleep(0.5)
                assert service.process is not None
                if len(self.services) == 1:
                    service.process.send_signal(signal.SIGHUP)
                    time.sleep(5)
                else:
                    service.stop()
                    service.start()


@contextmanager
def locked(scene: Scene) -> Iterator[None]:
    """Another process holds the lock that writers need."""
    if scene.database is None:
        with closing(sqlite3.connect(scene.file, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            yield
        return
    with psycopg.connect(scene.url.replace("+psycopg", "")) as connection:
        connection.execute("LOCK TABLE steadyarm_assignments, steadyarm_rewards")
        yield


@contextmanager
def read_only(scene: Scene) -> Iterator[None]:
    """Nothing can be written."""
    if scene.database is None:
        files = [path for path in scene.file.parent.iterdir() if path.name.startswith("tests.db")]
        subprocess.run(["chattr", "+i", *files], check=True)
        yield
        subprocess.run(["chattr", "-i", *files], check=True)
        return
    with psycopg.connect(scene.url.replace("+psycopg", ""), autocommit=True) as connection:
        name = connection.info.dbname
        for value in ("on", "off"):
            connection.execute("SET default_transaction_read_only = off")
            connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = {value}")
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            if value == "on":
                yield


@contextmanager
def frozen(scene: Scene) -> Iterator[None]:
    """The database server does not answer."""
    assert scene.database is not None
    master = psutil.Process(scene.database._server.get_pid())
    processes = [master, *master.children(recursive=True)]
    for process in processes:
        process.suspend()
    yield
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.resume()


@contextmanager
def full(scene: Scene) -> Iterator[None]:
    """The disk has no room."""
    other = scene.file.with_name("other")
    with suppress(OSError), other.open("wb") as file:
        while True:
            os.write(file.fileno(), b"x" * 65536)
    yield
    other.unlink()


@contextmanager
def moved(scene: Scene) -> Iterator[None]:
    """The file has another name."""
    aside = scene.file.with_name("aside.db")
    scene.file.rename(aside)
    yield
    aside.rename(scene.file)


@contextmanager
def down(scene: Scene) -> Iterator[None]:
    """The database server is killed."""
    assert scene.database is not None
    scene.database.kill()
    yield
    scene.database.start()


@contextmanager
def silent(scene: Scene) -> Iterator[None]:
    """2,000 connections say nothing."""
    import socket

    address = ("127.0.0.1", scene.service.port)
    sockets = [socket.create_connection(address) for _ in range(2000)]
    yield
    for one in sockets:
        one.close()


def export(scene: Scene) -> None:
    """Six clients download the whole log, ten times each."""

    def download(_: int) -> None:
        base = f"http://127.0.0.1:{scene.service.port}/v1/experiments/shop/export"
        with httpx2.Client(timeout=60) as client:
            for _ in range(10):
                while client.get(base).status_code == 429:
                    time.sleep(0.1)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(download, range(6)))


def jump(scene: Scene) -> None:
    """The clock of the service is an hour ahead, then behind, each for ten seconds."""
    for seconds in (HOUR, 0, -HOUR, 0):
        scene.clock.write_text(str(seconds))
        time.sleep(10)


def kill(scene: Scene) -> None:
    """Kill -9 of the service five times; of the database each second time."""
    for k in range(5):
        if scene.database is not None and k % 2:
            scene.database.kill()
            scene.database.start()
        scene.service.kill()
        scene.service.start()
        time.sleep(1)


def restart(scene: Scene) -> None:
    """Restart three times behind nginx."""
    assert isinstance(scene.service, Proxied)
    scene.service.restart(3)


def back_up(scene: Scene) -> None:
    """Copy the storage."""
    backup_storage(scene.url, scene.file.with_name("copy.db"))


def lasting(fault: Callable[[Scene], Any], seconds: float) -> Callable[[Scene], None]:
    """A fault that lasts so long."""

    def cause(scene: Scene) -> None:
        with fault(scene):
            time.sleep(seconds)

    return cause


CAUSES: dict[str, tuple[Callable[[Scene], object], tuple[str, ...]]] = {
    "service killed (kill -9) 5 times": (kill, ("sqlite", "postgresql")),
    "database killed (kill -9)": (lasting(down, 1), ("postgresql",)),
    "database frozen for 20 s (SIGSTOP)": (lasting(frozen, 20), ("postgresql",)),
    "locked by another process for 20 s": (lasting(locked, 20), ("sqlite", "postgresql")),
    "read-only for 10 s": (lasting(read_only, 10), ("sqlite", "postgresql")),
    "disk full for 10 s": (lasting(full, 10), ("sqlite",)),
    "file moved away for 10 s": (lasting(moved, 10), ("sqlite",)),
    "2,000 silent connections for 15 s": (lasting(silent, 15), ("sqlite", "postgresql")),
    "backup under load": (back_up, ("sqlite",)),
    "60 exports, six clients at once": (export, ("sqlite", "postgresql")),
    "3 reloads behind nginx, one process": (restart, ("sqlite", "postgresql")),
    "3 rolling restarts, two processes": (restart, ("sqlite", "postgresql")),
    "clock jumps by an hour, 4 times": (jump, ("sqlite", "postgresql")),
}


def measure(name: str, backend: str) -> None:
    """Print the line of one fault."""
    cause = CAUSES[name][0]
    with tempfile.TemporaryDirectory() as folder, storages(backend) as (given, database):
        clock, url = Path(folder, "clock"), given
        clock.write_text("0")
        if "disk full" in name:
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=60m", "tmpfs", folder], check=True)
            url = f"sqlite:///{folder}/tests.db"
        service: Service
        if cause is restart:
            service = Proxied(url, 1 if "one process" in name else 2)
        else:
            service = Service(url, clock if cause is jump else None)
        scene, waited = Scene(url, database, service, clock), list[float]()

        def make(service: Service) -> None:
            cause(scene)
            ended = time.monotonic()
            while not service.ready():
                time.sleep(0.02)
            waited.append(time.monotonic() - ended)

        windows: dict[str, Any] = {}
        if cause is jump:
            windows = {"reward_window": "30m", "reward_grace": 0}
        left = load_through(url, service, make, PAUSE, **windows)
        if "disk full" in name:
            subprocess.run(["umount", folder], check=True)
    print(
        f"| {name} | {backend} | {left.assigned:,} + {left.told:,} | {left.lost} | {left.doubled} "
        f"| {left.failed:,} | {waited[0]:.1f} s |",
        *left.faults,
        sep="\n",
        flush=True,
    )


def main(names: Sequence[str], backends: Sequence[str]) -> None:
    """Print the lines of all faults whose names contain one of some texts."""
    for name, (_, possible) in CAUSES.items():
        for backend in possible:
            if backend in backends and any(text in name for text in names):
                measure(name, backend)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[""], help="parts of names of faults")
    parser.add_argument("--backend", choices=["sqlite", "postgresql"], help="default: both")
    args = parser.parse_args()
    main(args.names, [args.backend] if args.backend else ["sqlite", "postgresql"])
