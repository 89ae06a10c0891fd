"""Connections and transactions; the one border at which errors of drivers become ours."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.exc import (
    DataError,
    DBAPIError,
    DisconnectionError,
    IntegrityError,
    SQLAlchemyError,
)
from sqlalchemy.pool import QueuePool

from steadyarm.errors import InvalidInputError, StorageError

__all__ = ["Database", "shown"]

T = TypeVar("T")

WAIT = 30  # seconds to wait for locks of SQLite, and for a connection of the pool
TRIES = 5  # of a transaction that got in the way of another
SHARDS = 16  # see schema.tallies

BUSY = {5, 6}  # SQLite's codes: locked by another process, by another connection
DEADLOCK = {"40001", "40P01"}  # PostgreSQL's: could not serialize, deadlock
INHERITED: list[Any] = []  # connections of a parent process: closed here, they would end there
PRAGMAS = ("synchronous=FULL", "cache_size=-65536", "mmap_size=0")

HINTS: dict[int | str, str] = {
    5: f"another process has kept it locked for {WAIT} s",
    6: f"another connection has kept it locked for {WAIT} s",
    8: "it cannot be written; check the permissions of the file and its folder",
    10: "reading or writing the file failed; check the disk",
    11: "the file is damaged; restore it from a backup",
    13: "the disk is full",
    14: "the file cannot be opened; check that its folder exists and who may write there",
    26: "the file is not an SQLite database",
    "25006": "the server only reads; give the address of the primary one",
    "28P01": "check user and password",
    "3D000": "create the database first, with createdb",
    "42501": "the user may not do this; grant it the rights on the tables",
    "42P01": "tables are missing; look at them with: steadyarm storage status",
    "53100": "the disk of the server is full",
    "53300": "the server has no connection left; raise max_connections or use fewer workers",
}


def shown(url: URL) -> str:
    """The URL without its passwords, for messages and logs.

    Examples
    --------
    >>> from sqlalchemy.engine import make_url
    >>> shown(make_url("postgresql://me:secret@host/shop?sslpassword=secret"))
    'postgresql://me:***@host/shop?sslpassword=***'
    """
    secret = {name: "***" for name in url.query if "password" in name.lower()}
    hidden = url.update_query_dict(secret).render_as_string(hide_password=True)
    return hidden.replace("%2A%2A%2A", "***")


class Database:
    """One database: whole transactions, tried again when they collide.

    Attributes
    ----------
    shown : the URL without its password
    sqlite : SQLite, where whoever writes is alone; else PostgreSQL
    shard : of `tallies`, to which this object adds
    """

    def __init__(self, url: URL) -> None:
        self.url = url
        self.shown = shown(url)
        self.sqlite = url.get_backend_name() == "sqlite"
        self.engine = _sqlite(url) if self.sqlite else _postgres(url)
        self.shard = 0 if self.sqlite else random.SystemRandom().randrange(SHARDS)
        reading: dict[str, Any] = {} if self.sqlite else {"isolation_level": "REPEATABLE READ"}
        self._reader = self.engine.execution_options(**reading)
        writing = {"steadyarm_begin": "BEGIN IMMEDIATE"} if self.sqlite else {}
        self._writer = self.engine.execution_options(**writing)
        looking: dict[str, Any] = {} if self.sqlite else {"isolation_level": "AUTOCOMMIT"}
        self._looker = self.engine.execution_options(**looking)

    def write(self, work: Callable[[Connection], T], tries: int = TRIES) -> T:
        """Do work in one transaction, again if another one got in its way."""
        return self._run(self._writer, work, tries)

    def read(self, work: Callable[[Connection], T]) -> T:
        """Do work that only reads, all of it as of one moment."""
        return self._run(self._reader, work, TRIES)

    def look(self, work: Callable[[Connection], T]) -> T:
        """Do work that is one statement that reads: it needs no transaction around it."""
        return self._run(self._looker, work, TRIES)

    def use_wal(self) -> None:
        """Let SQLite's readers and writer work side by side; the file remembers it."""
        outside = self.engine.execution_options(steadyarm_begin="")  # no transaction

        def work(connection: Connection) -> None:
            if connection.exec_driver_sql("PRAGMA journal_mode").scalar() != "wal":
                connection.exec_driver_sql("PRAGMA journal_mode=WAL").close()

        self._run(outside, work, tries=10_000)  # SQLite does not wait here by itself

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    def _run(self, engine: Engine, work: Callable[[Connection], T], tries: int) -> T:
        began = time.monotonic()
        while True:
            committing = False
            try:
                with engine.begin() as connection:
                    done = work(connection)
                    committing = True
                return done
            except DBAPIError as error:
                tries -= 1
                # A connection may have been broken before its use. What broke while it was being
                # committed may be stored or not, so that is not tried again.
                again = _collided(error) or (error.connection_invalidated and not committing)
                if tries < 1 or not again or time.monotonic() - began > WAIT:
                    raise self._translated(error) from None
            except SQLAlchemyError as error:
                raise StorageError(f"{self.shown} does not answer: {_line(error)}") from None
            except UnicodeEncodeError as error:
                raise InvalidInputError(
                    f"{error.object!r} cannot be stored, it is no proper text: {error.reason}."
                ) from None
            time.sleep(random.uniform(0, 0.02))

    def _translated(self, error: DBAPIError) -> Exception:
        text = _line(error.orig)
        if self.url.password:
            text = text.replace(self.url.password, "***")
        code = _code(error)
        if isinstance(error, (IntegrityError, DataError)):
            return InvalidInputError(f"{self.shown} refuses a value: {text}.")
        hint = HINTS.get(code)
        if code == "":  # no answer from a server has a state
            hint = "check that the server runs and can be reached from here"
        return StorageError(f"{self.shown}: {text}{f'; {hint}' if hint else ''}.")


def _code(error: DBAPIError) -> int | str:
    """SQLite's primary code, or the state that PostgreSQL gives."""
    code = getattr(error.orig, "sqlite_errorcode", None)
    return str(getattr(error.orig, "sqlstate", None) or "") if code is None else int(code) & 0xFF


def _collided(error: DBAPIError) -> bool:
    code = _code(error)
    return code in BUSY or code in DEADLOCK


def _line(error: BaseException | None) -> str:
    return " ".join(str(error).split()).rstrip(".")[:500]


def _sqlite(url: URL) -> Engine:
    # The driver begins no transactions by itself: `begin` below does, also before reading.
    engine = create_engine(
        url,
        pool_size=8,
        max_overflow=8,
        pool_timeout=WAIT,
        poolclass=QueuePool,
        connect_args={"timeout": WAIT, "isolation_level": None, "check_same_thread": False},
    )

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, record: Any) -> None:
        for pragma in PRAGMAS:
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        options = connection.get_execution_options()
        if statement := options.get("steadyarm_begin", "BEGIN"):
            connection.exec_driver_sql(statement)

    return _own(engine)


def _postgres(url: URL) -> Engine:
    usual = {"connect_timeout": 10, "application_name": "steadyarm"}
    engine = create_engine(
        url,
        pool_size=8,
        max_overflow=24,
        pool_timeout=WAIT,
        isolation_level="READ COMMITTED",
        connect_args={name: usual[name] for name in usual if name not in url.query},
    )
    return _own(engine)


def _own(engine: Engine) -> Engine:
    """Make a forked process open connections of its own, and leave its parent's alone."""

    @event.listens_for(engine, "connect")
    def connect(connection: Any, record: Any) -> None:
        record.info["pid"] = os.getpid()

    @event.listens_for(engine, "checkout")
    def checkout(connection: Any, record: Any, proxy: Any) -> None:
        if record.info["pid"] != os.getpid():
            INHERITED.append(connection)
            record.dbapi_connection = proxy.dbapi_connection = None
            raise DisconnectionError("a connection of another process")

    return engine
