"""Connections and transactions. Errors of the drivers are translated here, and every call ends.

Waiting for a lock, a connection or an answer has a deadline, even if the server is frozen.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from threading import local
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, func, select
from sqlalchemy.dialects.sqlite.base import SQLiteCompiler
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
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
CLOCK = 10.0  # between two readings of PostgreSQL's clock
BELIEVED = 60_000_000  # microseconds that a clock that jumped has to keep its new time
SLEWED = 1_000_000  # microseconds, beyond which a change of a clock is a jump
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
DEADLOCK = {"40001", "40P01"}  # PostgreSQL's: could not serialize, deadlock
AT_LEISURE = f"SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = {int(1000 * LONG)}"
# Deleted rows are overwritten, so that no free part of a page holds an erased unit.
PRAGMAS = ("synchronous=FULL", "cache_size=-65536", "mmap_size=0", "secure_delete=ON")
MEMORY = make_url("sqlite://")  # SQLite in memory, which lives as long as its one connection
NOW = select(func.floor(func.extract("epoch", func.clock_timestamp()) * 1_000_000))

HINTS: dict[int | str, str] = {
    5: "another process has kept it locked for too long; end it, or try again",
    6: "another connection has kept it locked for too long; try again",
    8: "it cannot be written; check the permissions of the file and its folder",
    10: "reading or writing the file failed; check the disk",
    11: "the file is damaged; put a backup in its place",
    13: "the disk is full",
    14: "the file cannot be opened; check that its folder exists and who may write there",
    26: "the file is not an SQLite database",
    "25006": "the server only reads; give the address of the primary one",
    "28P01": "check user and password",
    "3D000": "create the database first, with createdb",
    "42501": "the user may not do this; grant it the rights on the tables",
    "42P01": "tables are missing; look at them with: steadyarm storage status",
    "53100": "the disk of the server is full",
    "53300": "the server has no connection left; raise max_connections or use fewer processes",
    "55P03": "another transaction has kept a lock for too long; try again",
    "57014": f"the server took longer than {STATEMENT:g} s; try again, or look at its load",
    "": "check that the server runs and can be reached from here",  # no answer has a state
}

_call = local()  # the deadline of this thread's call


class CollisionError(Exception):
    """Another process wrote meanwhile what this transaction was about to write; it is repeated."""


def hide_password(url: URL) -> str:
    """The URL without its passwords, for messages and logs.

    Examples
    --------
    >>> from sqlalchemy.engine import make_url
    >>> hide_password(make_url("postgresql://me:secret@host/shop?sslpassword=secret"))
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


class SteadyClock:
    """Follows a clock, but not its jumps, until a new time has lasted for a minute.

    A clock that is wrong for seconds would close reward windows for good. The monotonic clock of
    this machine, which cannot be set, bridges the time.

    Examples
    --------
    >>> clock, hour, minute = SteadyClock(), 3_600_000_000, 60_000_000
    >>> [clock.follow(hour * ahead + t, t) for ahead, t in ((0, 0), (1, 5), (0, 7), (1, 8))]
    [0, 5, 7, 8]
    >>> clock.follow(hour + minute + 8, minute + 8) == hour + minute + 8
    True
    """

    def __init__(self) -> None:
        self._ahead: int | None = None  # of the monotonic clock
        self._jumped: int | None = None  # when, by the monotonic clock

    def follow(self, shown: int, monotonic: int) -> int:
        """The time to use; `shown` is what the clock shows, both in microseconds."""
        ahead = shown - monotonic
        if self._ahead is None or abs(ahead - self._ahead) <= SLEWED:
            self._ahead, self._jumped = ahead, None
        elif self._jumped is None:
            self._jumped = monotonic
        elif monotonic - self._jumped >= BELIEVED:
            self._ahead, self._jumped = ahead, None
        return monotonic + self._ahead


class Database:
    """One database: transactions, which are repeated when they collide, and a clock.

    Attributes
    ----------
    shown : the URL without its password
    sqlite : True for SQLite, which has one writer at a time; False for PostgreSQL
    file : the file of SQLite; None of PostgreSQL, and of SQLite in memory
    shard : the shard of `tallies` and `series` to which this object adds
    """

    def __init__(self, url: URL) -> None:
        self.url = url
        self.shown = hide_password(url)
        self.sqlite = url.get_backend_name() == "sqlite"
        self.file = file_of(url)
        if self.file is not None and not self.file.parent.is_dir():
            folder = Path(url.database or "").parent
            raise StorageError(
                f"{self.shown}: the folder {folder} does not exist; make it, or give another."
            )
        self.engine = _sqlite(url) if self.sqlite else _postgres(url)
        self.shard = 0 if self.sqlite else random.SystemRandom().randrange(SHARDS)
        self._clock = SteadyClock()
        self._server_ahead, self._asked = 0, -inf  # PostgreSQL's clock and the monotonic one
        if self.sqlite:
            self._reader = self.engine.execution_options(steadyarm_begin="BEGIN")
            self._writer = self.engine.execution_options(steadyarm_begin="BEGIN IMMEDIATE")
            self._alone = self.engine.execution_options(steadyarm_begin=None)
        else:
            self._reader = self.engine.execution_options(isolation_level="REPEATABLE READ")
            self._writer = self.engine.execution_options()
            self._alone = self.engine.execution_options(isolation_level="AUTOCOMMIT")

    def write(self, work: Callable[[Connection], T], seconds: float | None = None) -> T:
        """Do work in one transaction, and repeat it if it collides with another one.

        seconds : after which it fails; None for `CALL`, `inf` for work that may take long, such as
            an upgrade
        """
        return self._run(self._writer, work, seconds)

    def read(self, work: Callable[[Connection], T], seconds: float | None = None) -> T:
        """Do work that only reads, and sees one consistent state."""
        return self._run(self._reader, work, seconds)

    def read_one(self, work: Callable[[Connection], T]) -> T:
        """Do work that is a single reading statement, which needs no transaction."""
        return self._run(self._alone, work, None)

    def now(self) -> int:
        """Microseconds since 1970: PostgreSQL's time, or that of this machine with SQLite."""
        if self.sqlite:
            return self._clock.follow(time.time_ns() // 1000, time.monotonic_ns() // 1000)
        if time.monotonic() - self._asked > CLOCK:
            before = time.monotonic_ns()
            theirs = int(self.read_one(lambda connection: connection.execute(NOW).scalar_one()))
            self._server_ahead = theirs - (before + time.monotonic_ns()) // 2000
            self._asked = time.monotonic()
        monotonic = time.monotonic_ns() // 1000
        return self._clock.follow(monotonic + self._server_ahead, monotonic)

    def use_wal(self) -> None:
        """Let readers and the writer of an SQLite file work side by side; the file keeps this."""

        def work(connection: Connection) -> None:
            if connection.exec_driver_sql("PRAGMA journal_mode").scalar() != "wal":
                connection.exec_driver_sql("PRAGMA journal_mode=WAL").close()

        if self.file is not None:
            self._run(self._alone, work, inf)

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    def _run(self, engine: Engine, work: Callable[[Connection], T], seconds: float | None) -> T:
        began, tries = time.monotonic(), TRIES
        with _limit_call(began + (CALL if seconds is None else seconds)):
            patience = _patience()
            while True:
                committing = False
                try:
                    with engine.begin() as connection:
                        if patience == LONG and not self.sqlite:
                            connection.exec_driver_sql(AT_LEISURE)
                        result = work(connection)
                        committing = True
                    return result
                except CollisionError:
                    if time.monotonic() - began > patience:
                        raise StorageError(f"{self.shown}: {HINTS['55P03']}.") from None
                except DBAPIError as error:
                    # SQLite does not wait for locks when the journal is changed.
                    tries -= 0 if patience == LONG else 1
                    # A connection may have been broken before its use. A commit that breaks may
                    # have been stored or not, so it is not repeated.
                    code = _code(error)
                    collided = code in BUSY or code in DEADLOCK
                    again = collided or (error.connection_invalidated and not committing)
                    if tries < 1 or not again or time.monotonic() - began > patience:
                        raise self._translate(error) from None
                except SQLAlchemyError as error:
                    raise StorageError(f"{self.shown} does not answer: {_line(error)}") from None
                except UnicodeEncodeError as error:
                    raise InvalidInputError(
                        f"{error.object!r} cannot be stored, it is no proper text: {error.reason}."
                    ) from None
                time.sleep(random.uniform(0, 0.02))

    def _translate(self, error: DBAPIError) -> Exception:
        text = _line(error.orig)
        if self.url.password:
            text = text.replace(self.url.password, "***")
        code = _code(error)
        dbapi = self.engine.dialect.loaded_dbapi
        if isinstance(error.orig, (dbapi.IntegrityError, dbapi.DataError)):
            return InvalidInputError(f"{self.shown} refuses a value: {text}.")
        hint = HINTS.get(code)
        translated = StorageError(f"{self.shown}: {text}{f'; {hint}' if hint else ''}.")
        translated.reason = (hint if code else "the server does not answer") or translated.reason
        return translated


def _code(error: DBAPIError) -> int | str:
    """SQLite's primary error code, or PostgreSQL's SQLSTATE."""
    code = getattr(error.orig, "sqlite_errorcode", None)
    return str(getattr(error.orig, "sqlstate", None) or "") if code is None else int(code) & 0xFF


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
def _limit_call(ends: float) -> Iterator[None]:
    """Set the deadline of a call, by the monotonic clock, and of the calls inside it."""
    before: float = getattr(_call, "ends", inf)
    _call.ends = min(before, ends)
    try:
        yield
    finally:
        _call.ends = before


class _HintingCompiler(SQLiteCompiler):
    """Passes on hints for SQLite, which SQLAlchemy does only for other databases."""

    def get_from_hint_text(self, table: Any, text: str | None) -> str | None:
        """See `sqlalchemy.sql.compiler.SQLCompiler`."""
        return text


def _sqlite(url: URL) -> Engine:
    # The driver begins no transactions; `begin` below does, also before reading.
    in_memory = not url.database  # where all transactions take turns on one connection
    engine = create_engine(
        url,
        pool_size=1 if in_memory else 8,
        max_overflow=0 if in_memory else 8,
        pool_timeout=LOCK,
        poolclass=QueuePool,
        pool_use_lifo=True,
        connect_args={"timeout": LOCK, "isolation_level": None, "check_same_thread": False},
    )

    engine.dialect.statement_compiler = _HintingCompiler

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, record: Any) -> None:
        for pragma in PRAGMAS:
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        patience = _patience()
        if connection.info.get("patience", LOCK) != patience:
            connection.exec_driver_sql(f"PRAGMA busy_timeout={int(1000 * patience)}").close()
            connection.info["patience"] = patience
        statement = connection.get_execution_options().get("steadyarm_begin", "BEGIN")
        if statement is not None:
            connection.exec_driver_sql(statement)

    return engine


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
    limited = _make_limited_connection()

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

    return engine


def _make_limited_connection() -> Any:
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
        result: T = end.value
        return result
