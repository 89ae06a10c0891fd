"""Connections and transactions; only here are errors of drivers translated.

Every call ends: waiting for a lock, a connection or an answer has a deadline, even if the server is
frozen and never answers. Nothing is acknowledged that was written into an SQLite file which was
deleted or replaced meanwhile.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from math import inf
from pathlib import Path
from threading import RLock, local
from typing import Any, TypeVar

from sqlalchemy import ClauseElement, Connection, Dialect, Engine, create_engine, event, text
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DBAPIError, DisconnectionError, SQLAlchemyError
from sqlalchemy.pool import QueuePool

from steadyarm.errors import InvalidInputError, StorageError

T = TypeVar("T")

# Seconds. A call that waits behind one to a frozen server ends within 15: the first fails after
# CALL, and then the second gets no new connection within LOCK.
LOCK = 5.0  # to wait for a lock, for a connection of the pool, or for a new one
STATEMENT = 8.0  # for one statement on the server
CALL = 9.0  # for a whole call with all its tries, counted by the client
LONG = 60.0  # to wait for a lock, for work that may take long, such as an upgrade
IDLE = 60.0  # after which the server ends an idle transaction
TCP = {  # so that a connection does not wait for a machine that is gone
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": int(1000 * STATEMENT),
}
TRIES = 5  # of a transaction that collides with another
SHARDS = 16  # see schema.tallies

BUSY = {5, 6}  # SQLite's codes: locked by another process, by another connection
DAMAGED = {11, 26}  # SQLite's: malformed, not a database
DEADLOCK = {"40001", "40P01"}  # PostgreSQL's: could not serialize, deadlock
AT_LEISURE = f"SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = {int(1000 * LONG)}"
INHERITED: list[Any] = []  # connections of a parent process, which must not be closed here
# Deleted rows are overwritten, so that no free part of a page holds an erased unit.
PRAGMAS = ("synchronous=FULL", "cache_size=-65536", "mmap_size=0", "secure_delete=ON")

HINTS: dict[int | str, str] = {
    5: "another process has kept it locked for too long; end it, or try again",
    6: "another connection has kept it locked for too long; try again",
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
    "55P03": "another transaction has kept a lock for too long; try again",
    "57014": f"the server took longer than {STATEMENT:g} s; try again, or look at its load",
    "": "check that the server runs and can be reached from here",  # no answer has a state
}

MEMORY = make_url("sqlite://")  # SQLite in memory, which lives as long as its one connection
NOWHERE = (-1, -1)  # device and inode of no file
_call = local()  # the deadline of this thread's call


class CollisionError(Exception):
    """Another process wrote meanwhile what this transaction was about to write; it is repeated."""


# Parameters by name, or a list of such rows for a statement that inserts many.
Values = Mapping[str, Any] | list[dict[str, Any]]
NAMED = sqlite.dialect(paramstyle="named")
ROWS = 500  # of one insert in SQLite, which takes 32,766 parameters


class Rows(list[tuple[Any, ...]]):
    """What a statement returned.

    Attributes
    ----------
    written : number of rows that it inserted or updated
    """

    written = 0

    @property
    def first(self) -> tuple[Any, ...] | None:
        """The first row; None if there is none."""
        return self[0] if self else None


class Statement:
    """A statement that is compiled once and then executed by the driver itself.

    SQLAlchemy's own execution takes 20 microseconds more, which is most of the time of a
    transaction with few rows. Lists among its parameters are passed as JSON.

    Parameters
    ----------
    source : the statement
    postgresql : the statement in PostgreSQL, where it is another one; if it inserts many rows, they
        are its parameter "rows"
    columns : of the rows that it inserts
    """

    def __init__(
        self,
        source: ClauseElement,
        postgresql: ClauseElement | None = None,
        columns: Sequence[str] = (),
    ) -> None:
        self._sources = {True: source, False: source if postgresql is None else postgresql}
        self._compiled: dict[bool, tuple[str, Mapping[str, Any]]] = {}  # with literal values
        self._columns = columns

    def __call__(self, connection: Connection, values: Values) -> Rows:
        """Execute it."""
        return together(connection, (self, values))[0]

    def execute(self, driver: Any, dialect: Dialect, values: Values) -> Any:
        """Execute it with a connection of the driver, which gives its cursors."""
        lite = dialect.name == "sqlite"
        if lite not in self._compiled:
            compiled = self._sources[lite].compile(dialect=NAMED if lite else dialect)
            self._compiled[lite] = str(compiled), compiled.params
        sql, literals = self._compiled[lite]
        if isinstance(values, list):
            if lite:
                return self._insert(driver, sql, values)
            values = {"rows": values}
        lists = {n: json.dumps(v, ensure_ascii=False) for n, v in values.items() if type(v) is list}
        return [driver.execute(sql, {**literals, **values, **lists})]

    def _insert(self, driver: Any, sql: str, rows: list[dict[str, Any]]) -> list[Any]:
        """One statement for many rows: `executemany` lets other threads in after each of them."""
        one = f"({', '.join(f':{name}' for name in self._columns)})"
        other = f"({', '.join('?' for _ in self._columns)})"
        return [
            driver.execute(
                sql.replace(one, ", ".join([other] * len(some))),
                [row[name] for row in some for name in self._columns],
            )
            for some in (rows[i : i + ROWS] for i in range(0, len(rows), ROWS))
        ]


BEGIN, BEGIN_WRITING = Statement(text("BEGIN")), Statement(text("BEGIN IMMEDIATE"))


def together(
    connection: Connection, *calls: tuple[Statement, Values], commit: bool = False
) -> list[Rows]:
    """Execute statements, on PostgreSQL in one round trip.

    commit : whether the transaction ends with them
    """
    driver: Any = connection.connection.dbapi_connection
    dialect = connection.dialect
    piped = dialect.name == "postgresql" and len(calls) + commit > 1
    try:
        with driver.pipeline() if piped else nullcontext():
            executed = [statement.execute(driver, dialect, values) for statement, values in calls]
            if not piped:  # read at once: open cursors of SQLite keep the state that they began in
                executed = [_read(cursors) for cursors in executed]
            if commit:
                driver.commit()
        return [_read(cursors) for cursors in executed] if piped else executed
    except dialect.loaded_dbapi.Error as error:
        lost = dialect.is_disconnect(error, driver, None)
        if lost:  # then all connections are, mostly
            connection.invalidate(error)
            connection.engine.dispose(close=False)
        raise DBAPIError(None, None, error, connection_invalidated=lost) from None


def _read(cursors: Iterable[Any]) -> Rows:
    found = Rows()
    for cursor in cursors:
        if cursor.description:
            found.extend(cursor.fetchall())
        found.written += cursor.rowcount
    return found


def at_the_end(connection: Connection, *calls: tuple[Statement, Values]) -> None:
    """Execute statements when the transaction ends, on PostgreSQL in one round trip with that."""
    connection.info["ending"].extend(calls)


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


def file_of(url: URL) -> Path | None:
    """The file of an SQLite database, absolute; None of others, and of one in memory.

    Examples
    --------
    >>> from sqlalchemy.engine import make_url
    >>> str(file_of(make_url("sqlite:////var/steadyarm.db")))
    '/var/steadyarm.db'
    """
    if url.get_backend_name() != "sqlite" or not url.database:
        return None
    return Path(os.path.abspath(url.database.removeprefix("file:")))


def check_folder(url: URL) -> None:
    """Refuse a file of SQLite whose folder does not exist."""
    if (file := file_of(url)) is not None and not file.parent.is_dir():
        folder = Path(url.database or "").parent
        raise StorageError(
            f"{shown(url)}: the folder {folder} does not exist; make it, or give another."
        )


class Database:
    """One database: transactions, which are repeated when they collide.

    Attributes
    ----------
    shown : the URL without its password
    sqlite : SQLite, where whoever writes is alone; else PostgreSQL
    file : of SQLite; None of PostgreSQL, and of SQLite in memory
    shard : the shard of `tallies` to which this object adds
    reopened : called when the file of an SQLite database was replaced; raises if the new one
        cannot be used
    written : when a transaction last changed something, by the monotonic clock; only for SQLite
    damaged : when the driver last found the file damaged, by the same clock
    """

    def __init__(self, url: URL) -> None:
        self.url = url
        self.shown = shown(url)
        self.sqlite = url.get_backend_name() == "sqlite"
        self.file = file_of(url)
        self.reopened: Callable[[], object] = lambda: None
        self.written = self.damaged = -inf
        self._opened: tuple[int, int] | None = None  # the file that connections are to
        self._wal: tuple[int, int] | None = None  # its write-ahead log
        self._opening = RLock()
        self.engine = self._sqlite(url) if self.sqlite else _postgres(url)
        self.shard = 0 if self.sqlite else random.SystemRandom().randrange(SHARDS)
        reading: dict[str, Any] = {} if self.sqlite else {"isolation_level": "REPEATABLE READ"}
        self._reader = self.engine.execution_options(**reading)
        writing = {"steadyarm_begin": BEGIN_WRITING} if self.sqlite else {}
        self._writer = self.engine.execution_options(**writing)
        reading_one: dict[str, Any] = {"isolation_level": "AUTOCOMMIT"}
        if self.sqlite:
            reading_one = {"steadyarm_begin": None}
        self._autocommit = self.engine.execution_options(**reading_one)

    def write(
        self, work: Callable[[Connection], T], tries: int = TRIES, seconds: float | None = None
    ) -> T:
        """Do work in one transaction, and repeat it if it collides with another one.

        seconds : after which it fails; None for `CALL`, `inf` for work that may take long, such as
            an upgrade
        """
        return self._run(self._writer, work, tries, seconds)

    def read(self, work: Callable[[Connection], T], seconds: float | None = None) -> T:
        """Do work that only reads, and sees one consistent state."""
        return self._run(self._reader, work, TRIES, seconds)

    def read_one(self, work: Callable[[Connection], T]) -> T:
        """Do work that is a single reading statement, which needs no transaction."""
        return self._run(self._autocommit, work, TRIES)

    def use_wal(self) -> None:
        """Let readers and the writer of an SQLite file work side by side; the file keeps this."""
        if self.file is None:
            return
        outside = self.engine.execution_options(steadyarm_begin=None)  # no transaction

        def work(connection: Connection) -> None:
            if connection.exec_driver_sql("PRAGMA journal_mode").scalar() != "wal":
                connection.exec_driver_sql("PRAGMA journal_mode=WAL").close()

        self._run(outside, work, 10_000, inf)  # SQLite does not wait for locks here

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    def _run(
        self,
        engine: Engine,
        work: Callable[[Connection], T],
        tries: int,
        seconds: float | None = None,
    ) -> T:
        began = time.monotonic()
        with _ending(began + (CALL if seconds is None else seconds)):
            patience = _patience()
            while True:
                committing = False
                try:
                    if self.sqlite:
                        return self._run_in_file(engine, work)
                    with engine.begin() as connection:
                        connection.info["ending"] = []
                        if patience == LONG:
                            connection.exec_driver_sql(AT_LEISURE)
                        done = work(connection)
                        committing = True
                        if connection.info["ending"]:
                            together(connection, *connection.info["ending"], commit=True)
                    return done
                except CollisionError:
                    if time.monotonic() - began > patience:
                        raise StorageError(f"{self.shown}: {HINTS['55P03']}.") from None
                except DBAPIError as error:
                    tries -= 1
                    # A connection may have been broken before its use. A commit that breaks may
                    # have been stored or not, so it is not repeated.
                    again = _collided(error) or (error.connection_invalidated and not committing)
                    if tries < 1 or not again or time.monotonic() - began > patience:
                        raise self._translated(error) from None
                except SQLAlchemyError as error:
                    raise StorageError(f"{self.shown} does not answer: {_line(error)}") from None
                except UnicodeEncodeError as error:
                    raise InvalidInputError(
                        f"{error.object!r} cannot be stored, it is no proper text: {error.reason}."
                    ) from None
                time.sleep(random.uniform(0, 0.02))

    # The file of an SQLite database

    def _run_in_file(self, engine: Engine, work: Callable[[Connection], T]) -> T:
        """A transaction that counts only if the file is at its path before and after it."""
        if self.file is not None:
            self.attend()
        with engine.begin() as connection:
            mine = connection.info["file"]
            driver: Any = connection.connection.dbapi_connection
            changes, connection.info["ending"] = driver.total_changes, []
            done = work(connection)
            together(connection, *connection.info["ending"])
            changed = driver.total_changes != changes
        if changed and self.file is not None:
            if self._identity() != mine:
                raise self._lost("was deleted or replaced while it was written to")
            self.written = time.monotonic()
        if self._wal is None and self.file is not None:
            self._wal = self._identity("-wal")
        return done

    def _identity(self, suffix: str = "") -> tuple[int, int] | None:
        """Device and inode of the file at the path."""
        try:
            found = os.stat(f"{self.file}{suffix}")
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def attend(self) -> None:
        """Return if SQLite's file is the one that was opened, or a replacement that can be used."""
        if self._opened in (None, self._identity()) or getattr(_call, "reopening", False):
            return
        with self._opening:
            found = self._identity()
            if found == self._opened:
                return  # another thread has done it
            # Connections stay open until here, so no other file can have got their inode.
            if found is None:
                raise self._lost("was deleted or moved")
            if self._wal is not None and self._identity("-wal") == self._wal:
                raise self._lost("was replaced, and the -wal of the file before is still beside it")
            self._opened = self._wal = NOWHERE
            self.engine.dispose()
            _call.reopening = True
            try:
                self.reopened()
            finally:
                _call.reopening = False
            self._opened, self._wal, self.damaged = found, None, -inf

    def _lost(self, what: str) -> StorageError:
        error = StorageError(
            f"{self.shown}: the file {what}; nothing was stored. Put the file back, or restore a "
            "backup with: steadyarm storage restore"
        )
        error.reason = f"the file {what}"
        return error

    def _sqlite(self, url: URL) -> Engine:
        # The driver begins no transactions; `begin` below does, also before reading.
        engine = create_engine(
            url,
            # In memory all transactions take turns on one connection.
            pool_size=8 if self.file else 1,
            max_overflow=8 if self.file else 0,
            pool_timeout=LOCK,
            poolclass=QueuePool,
            connect_args={
                "timeout": LOCK,
                "isolation_level": None,
                "check_same_thread": False,
                "cached_statements": 512,  # an insert is another one for each number of rows
            },
        )

        @event.listens_for(engine, "do_connect")
        def connect(dialect: Any, record: Any, given: list[Any], named: dict[str, Any]) -> Any:
            if self._opened is not None and "uri" not in named and self.file is not None:
                # A missing file must not be created again, empty.
                given[0], named["uri"] = f"{self.file.as_uri()}?mode=rw", True
            return None

        @event.listens_for(engine, "connect")
        def prepare(connection: Any, record: Any) -> None:
            record.info["file"] = self._identity() if self.file else None
            if self._opened is None:
                self._opened = record.info["file"]
            for pragma in PRAGMAS:
                connection.execute(f"PRAGMA {pragma}").close()

        @event.listens_for(engine, "begin")
        def begin(connection: Connection) -> None:
            patience = _patience()
            if connection.info.get("patience", LOCK) != patience:
                connection.exec_driver_sql(f"PRAGMA busy_timeout={int(1000 * patience)}").close()
                connection.info["patience"] = patience
            options = connection.get_execution_options()
            if statement := options.get("steadyarm_begin", BEGIN):
                statement(connection, {})

        return _own(engine)

    def _translated(self, error: DBAPIError) -> Exception:
        said = _line(error.orig)
        if self.url.password:
            said = said.replace(self.url.password, "***")
        code = _code(error)
        dbapi = self.engine.dialect.loaded_dbapi
        if isinstance(error.orig, (dbapi.IntegrityError, dbapi.DataError)):
            return InvalidInputError(f"{self.shown} refuses a value: {said}.")
        if code in DAMAGED:
            self.damaged = time.monotonic()
        hint = HINTS.get(code)
        translated = StorageError(f"{self.shown}: {said}{f'; {hint}' if hint else ''}.")
        translated.reason = (hint if code else "the server does not answer") or translated.reason
        return translated


def _code(error: DBAPIError) -> int | str:
    """SQLite's primary error code, or PostgreSQL's SQLSTATE."""
    code = getattr(error.orig, "sqlite_errorcode", None)
    return str(getattr(error.orig, "sqlstate", None) or "") if code is None else int(code) & 0xFF


def _collided(error: DBAPIError) -> bool:
    code = _code(error)
    return code in BUSY or code in DEADLOCK


def _line(error: BaseException | None) -> str:
    return " ".join(str(error).split()).rstrip(".")[:500]


def _left() -> float:
    """Seconds until the deadline of this thread's call."""
    ends: float = getattr(_call, "ends", inf)
    return ends - time.monotonic()


def _patience() -> float:
    """Seconds that the call may wait for a lock."""
    left = _left()
    return LONG if left == inf else max(0.0, min(LOCK, left))


@contextmanager
def _ending(ends: float) -> Iterator[None]:
    """Set the deadline of a call, by the monotonic clock, and of the calls inside it."""
    before: float = getattr(_call, "ends", inf)
    _call.ends = min(before, ends)
    try:
        yield
    finally:
        _call.ends = before


def _postgres(url: URL) -> Engine:
    usual = {"application_name": "steadyarm", **TCP}
    engine = create_engine(
        url,
        pool_size=8,
        max_overflow=24,
        pool_timeout=LOCK,
        isolation_level="READ COMMITTED",
        connect_args={name: usual[name] for name in usual if name not in url.query},
    )
    limits = {
        "statement_timeout": STATEMENT,
        "lock_timeout": LOCK,
        "idle_in_transaction_session_timeout": IDLE,
    }
    limited = _limited()

    @event.listens_for(engine, "do_connect")
    def connect(dialect: Any, record: Any, given: list[Any], named: dict[str, Any]) -> Any:
        if "connect_timeout" not in url.query:
            named = named | {"connect_timeout": max(2, int(min(LOCK, _left())))}  # its least is 2
        return limited.connect(*given, **named)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, record: Any) -> None:
        # Not as options of the connection, which connection poolers may refuse.
        connection.execute(
            "; ".join(f"SET SESSION {name} = {int(1000 * limits[name])}" for name in limits)
        )
        connection.commit()

    return _own(engine)


def _limited() -> Any:
    """Psycopg's connection with our own deadline.

    A frozen server keeps its connections open and answers nothing, so neither its own timeouts nor
    those of TCP help. The driver wakes up ten times a second while it waits. Then the deadline is
    checked, and the connection is closed if the answer is overdue.
    """
    import psycopg

    class Limited(psycopg.Connection[Any]):
        def wait(self, gen: Any, *given: Any, **named: Any) -> Any:
            try:
                return super().wait(_until(gen), *given, **named)
            except TimeoutError:
                self.pgconn.finish()
                raise psycopg.OperationalError("the server did not answer in time") from None

    return Limited


def _until(steps: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
    """The same steps, with a TimeoutError if nothing came before the deadline."""
    try:
        wanted = next(steps)
        while True:
            ready = yield wanted
            if not ready and _left() < 0:
                raise TimeoutError
            wanted = steps.send(ready)
    except StopIteration as end:
        done: T = end.value
        return done


def _own(engine: Engine) -> Engine:
    """Make a forked process open its own connections, and leave those of its parent alone."""

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
