"""Logs as Ibis tables: files, a folder of them, a DataFrame, or a table or query of a database."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from glob import glob
from pathlib import Path
from tempfile import gettempdir
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import numpy as np

from steadyarm.errors import InvalidInputError, MissingExtraError
from steadyarm.files import GUARDED
from steadyarm.wording import did_you_mean, shortened, strung

T = TypeVar("T")
REQUIRED = ("timestamp", "arm", "reward")
COLUMNS = (*REQUIRED, "probability", "unit", "segment", "block", "probabilities", "excluded")
UNITS = (  # usual names of the unit, used if there is no column unit
    *("unit_id", "user_id", "userid", "user", "visitor_id", "visitorid", "visitor"),
    *("customer_id", "customerid", "customer"),
)
SUFFIXES = {
    "csv": (".csv", ".csv.gz", ".tsv", ".tsv.gz"),
    "parquet": (".parquet", ".pq"),
    "sqlite": (".sqlite", ".sqlite3", ".db"),
    "duckdb": (".duckdb", ".ddb"),
}
COVARIATE = "covariate "  # begins our names of columns that hold covariates
ATTRIBUTE = "attribute "  # and of those whose levels results are split by
CLUSTER = "cluster "  # and of those that say which cluster a row is of
# the options that name such columns
OPTIONS = {COVARIATE: "--covariate", ATTRIBUTE: "--segment", CLUSTER: "--cluster"}
USUAL = {  # what columns are often called, without capitals and signs
    "timestamp": (
        *("exposedat", "exposuretime", "exposuretimestamp", "assignedat", "assignmenttime"),
        *("eventtime", "eventtimestamp", "occurredat", "happenedat", "time", "ts", "datetime"),
        *("createdat", "date", "day"),
    ),
    "arm": (
        *("variant", "variation", "variantid", "variationid", "variantname", "group", "testgroup"),
        *("treatment", "bucket", "experimentgroup", "condition", "cell", "version"),
    ),
    "reward": (
        *("revenue", "conversion", "converted", "conversions", "value", "outcome", "metric"),
        *("clicked", "clicks", "click", "purchase", "purchased", "amount", "sales", "y"),
    ),
    "probability": ("propensity", "propensityscore", "prob", "p", "share", "weight", "pscore"),
    "unit": ("id", "session", "sessionid", "device", "deviceid", "account", "accountid"),
    "event": ("eventname", "eventtype", "name", "action", "type"),
    "value": ("eventvalue", "amount", "revenue", "price", "total"),
}
PERIODS = ("hour", "day", "week", "month")  # which a cluster may be of without a column
PREFIX = "p_"  # of the columns that hold the probability of one arm each
SMALL = 2**26  # bytes of CSV that are read once and kept; every query would guess its dialect anew
TINY = 2**20  # bytes that are searched for quotes
QUOTES = frozenset(b"\"'\\")


@dataclass(frozen=True, eq=False)
class Part:
    """A part of a log in which rows can be counted.

    Attributes
    ----------
    name : how messages call it, such as the file's name; empty if there is one part
    table : its rows, columns named as in `COLUMNS`
    number : makes a column of row numbers, from 1
    path : of a Parquet file
    """

    name: str
    table: Any
    number: Callable[[Any], Any]
    path: Path | None = None


@dataclass(frozen=True, eq=False)
class Log:
    """A log that can be queried; nothing of it is in memory.

    Attributes
    ----------
    name : how messages call it, without passwords
    table : an Ibis table whose columns are named as in `COLUMNS`
    columns : what columns are called where the log lives, if not as in `COLUMNS`
    parts : the tables in which rows are counted
    ordered : whether rows have an order of their own, as those of files do
    counted : how rows are counted, for messages
    secret : what must not be shown
    ours : whether `close` ends the connection
    there : all columns where the log lives, as they are called there
    single : whether no unit has two rows, and rows have no order of their own
    """

    name: str
    table: Any
    columns: Mapping[str, str]
    parts: tuple[Part, ...]
    ordered: bool
    counted: str
    secret: str | None = None
    ours: bool = True
    there: tuple[str, ...] = ()
    single: bool = False

    def close(self) -> None:
        """End the connection, if it is ours."""
        if self.ours:
            self.table.get_backend().disconnect()

    @property
    def backend(self) -> str:
        """Name of the database that does the work."""
        return str(self.table.get_backend().name)

    @property
    def vector(self) -> tuple[str, ...]:
        """Columns that hold the probability of one arm each."""
        return tuple(name for name in self.table.columns if name.startswith(PREFIX))

    def their(self, column: str) -> str:
        """What a column is called where the log lives."""
        return self.columns.get(column, column)

    def has(self, column: str) -> bool:
        """Whether the log has a column."""
        return column in self.table.columns

    def fetch(self, expression: Any) -> list[dict[str, Any]]:
        """Rows of a small result of an Ibis expression, or of a function that makes it."""

        def work() -> Any:
            found = _without_zones(expression() if callable(expression) else expression)
            if self._plain(found):  # Ibis would import pandas for it
                backend = self.table.get_backend()
                rows = backend.raw_sql(backend.compile(found)).fetchall()
                return _with_names(rows, found.schema())
            return found.to_pyarrow().to_pylist()

        return self._guarded(work)

    def _plain(self, expression: Any) -> bool:
        """Whether DuckDB can run an expression by itself, on a connection that is ours."""
        from ibis.expr.operations import InMemoryTable

        known = self.ours and self.backend == "duckdb"
        return known and not expression.op().find(InMemoryTable)

    def kept(self, name: str, expression: Any) -> Any:
        """The expression as a table that lasts as long as the connection."""
        create = self.table.get_backend().create_table
        return self._guarded(lambda: create(name, expression, temp=True, overwrite=True))

    def cached(self, expression: Any) -> Any:
        """The expression as a table that Ibis drops when nothing refers to it any more."""
        return self._guarded(expression.cache)

    def run(self, query: str) -> None:
        """Run a statement of DuckDB's own language where temporary tables are."""
        self._guarded(lambda: self.table.get_backend().raw_sql(query))

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Rows of a query in DuckDB's own language, where temporary tables are."""
        return self._guarded(lambda: list(self.table.get_backend().raw_sql(query).fetchall()))

    def made(self, name: str) -> Any:
        """A temporary table of DuckDB."""
        backend = self.table.get_backend()
        return self._guarded(lambda: backend.table(name, database="temp.main"))

    def statistics(self, path: str, column: str, kind: str) -> list[tuple[Any, ...]]:
        """Row groups of a Parquet file, whose statistics cost nothing whatever the file's size.

        Returns
        -------
        The least and the largest value of a column, the numbers of rows and of nulls, and the
        physical type, for each row group; the file's own list is read once
        """
        known: dict[str, list[tuple[Any, ...]]] = self.__dict__.setdefault("_statistics", {})
        if path not in known:
            names = ", ".join(_literal(self.their(name)) for name in ("timestamp", "unit"))
            known[path] = self.rows(_STATISTICS.format(path=_literal(path), names=names))
        place = 5 + 2 * KINDS.index(kind)
        return [(*row[place : place + 2], *row[1:4]) for row in known[path] if row[0] == column]

    def times_in(self, part: int, group: int) -> Any:
        """(rows,) time stamps in a row group of a Parquet file, in microseconds since 1970."""

        def work() -> Any:
            from pyarrow import timestamp
            from pyarrow.parquet import ParquetFile

            name = self.their("timestamp")
            with ParquetFile(self.parts[part].path) as file:
                column = file.read_row_group(group, columns=[name])[name]
            times = column.cast(timestamp("us", column.type.tz)).cast("int64").combine_chunks()
            numbers = np.frombuffer(times.buffers()[1], dtype=np.int64)  # to_numpy imports pandas
            return numbers[times.offset : times.offset + len(times)]

        return self._guarded(work)

    def _guarded(self, work: Callable[[], T]) -> T:
        """What `work` returns; an error of the database is translated."""
        return guarded(work, f"{self.name} cannot be read", self.secret)


KINDS = ("TIMESTAMP", "HUGEINT", "DOUBLE", "VARCHAR")  # that statistics are read as
_VALUES = ", ".join(
    f"TRY_CAST(stats_{end}_value AS {kind})" for kind in KINDS for end in ("min", "max")
)
_STATISTICS = f"""
    SELECT path_in_schema, row_group_num_rows, stats_null_count, "type", row_group_id, {_VALUES}
    FROM parquet_metadata({{path}}) WHERE path_in_schema IN ({{names}}) ORDER BY row_group_id"""


def _literal(text: str) -> str:
    """A text in SQL; DuckDB imports pandas for a parameter."""
    return "'" + text.replace("'", "''") + "'"


def _without_zones(expression: Any) -> Any:
    """The expression with times in UTC that have no zone: for others DuckDB imports pytz."""
    zoned = {
        name: "timestamp"
        for name, kind in expression.schema().items()
        if kind.is_timestamp() and kind.timezone is not None
    }
    return expression.cast(zoned) if zoned else expression


def _with_names(rows: list[tuple[Any, ...]], schema: Any) -> list[dict[str, Any]]:
    """Rows of DuckDB as Ibis has them: what is a float there may be a Decimal in DuckDB."""
    floats = {name for name, kind in schema.items() if kind.is_floating()}
    return [
        {
            name: float(value) if value is not None and name in floats else value
            for name, value in zip(schema, row, strict=True)
        }
        for row in rows
    ]


def open_log(
    source: Any,
    *,
    table: str | None = None,
    query: str | None = None,
    columns: Mapping[str, str] | None = None,
    memory: str = "2GB",
) -> Log:
    """The log at `source`: files, a folder or pattern, a URL, a DataFrame, or an Ibis table."""
    try:
        import ibis

        from steadyarm.analysis.frames import is_frame
    except ImportError as error:
        raise MissingExtraError(
            f"analysing logs needs {error.name}; install it with: pip install 'steadyarm[analyze]'"
        ) from None
    if table is not None and query is not None:
        raise InvalidInputError("both a table and a query are given; give one of them.")
    if isinstance(source, ibis.Table):
        return replace(_log("the log", source, columns, None), ours=False)
    if isinstance(source, str) and "://" in source:
        return _database(source, table, query, columns)
    if is_frame(source):
        return _frame(source, table, query, columns, memory)
    paths = file_paths(source)
    kind = file_kind(paths)
    if kind in ("sqlite", "duckdb"):
        if len(paths) > 1:
            raise InvalidInputError(f"{len(paths)} databases are given; analyse one at a time.")
        return _opened(
            paths[0].name, lambda: _connect_file(kind, paths[0], memory), table, query, columns
        )
    if table is not None:
        raise InvalidInputError(
            f"table {table!r} is given, but {paths[0].name} is a file; a query may name it log."
        )
    return _files(paths, kind, query, columns, memory)


def guarded(work: Callable[[], T], what: str, secret: str | None = None) -> T:
    """What `work` returns; errors of drivers become one of ours, without the password."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ibis on what newer DuckDB and pandas deprecate
            return work()
    except InvalidInputError:
        raise
    except ImportError as error:
        raise MissingExtraError(
            f"{what}: {error}. Install the driver, such as psycopg[binary] for PostgreSQL."
        ) from None
    except Exception as error:
        text = " ".join(str(error).split()) or type(error).__name__
        for hidden in filter(None, {secret, unquote(secret or "")}):
            text = text.replace(hidden, "***")
        raise InvalidInputError(f"{what}: {text[:500]}") from None


def file_paths(source: Any) -> list[Path]:
    """The files that a name, a folder, a pattern or a list of names stands for."""
    if isinstance(source, (str, Path)):
        text = str(source)
        path = Path(source)
        if path.is_dir():
            known = SUFFIXES["csv"] + SUFFIXES["parquet"]
            found = sorted(p for p in path.rglob("*") if p.name.lower().endswith(known))
            if not found:
                raise InvalidInputError(f"the folder {path} has no file {' or '.join(known)}.")
            return found
        if any(sign in text for sign in "*?[") and not path.exists():
            found = [Path(name) for name in sorted(glob(text, recursive=True))]
            if not found:
                raise InvalidInputError(f"no file matches {text}.")
            return found
        paths = [path]
    elif isinstance(source, Iterable) and not isinstance(source, (Mapping, bytes)):
        if any(not isinstance(name, (str, Path)) for name in source):
            raise InvalidInputError(
                f"the log is a {type(source).__name__} of what are no names of files; make a "
                "DataFrame or an Arrow table of it."
            )
        paths = [Path(name) for name in source]
    else:
        raise InvalidInputError(
            f"the log is {shortened(source)}; expected a file, a folder, a list of files, a "
            "URL, a DataFrame, an Arrow table or an Ibis table."
        )
    if not paths:
        raise InvalidInputError("the list of files is empty; give at least one.")
    for path in paths:
        if not path.is_file():
            raise InvalidInputError(f"there is no file {path}.")
    return paths


def file_kind(paths: list[Path]) -> str:
    """What all of these files are: "csv", "parquet", "sqlite" or "duckdb"."""
    kinds = set()
    for path in paths:
        kind = [k for k, ends in SUFFIXES.items() if path.name.lower().endswith(ends)]
        if not kind:
            endings = ", ".join(end for ends in SUFFIXES.values() for end in ends)
            raise InvalidInputError(f"{path.name} is none of {endings}; rename or convert it.")
        kinds.add(kind[0])
    if len(kinds) > 1:
        raise InvalidInputError(f"the files are of kinds {' and '.join(sorted(kinds))}; give one.")
    return kinds.pop()


def _files(
    paths: list[Path],
    kind: str,
    query: str | None,
    given: Mapping[str, str] | None,
    memory: str,
) -> Log:
    """Files through DuckDB. All of a CSV file is text at first, so that broken values have rows."""
    name = paths[0].name if len(paths) == 1 else f"{len(paths)} {kind} files"
    connection = memory_database(memory)

    def read(files: list[Path], label: str) -> Any:
        return read_files(connection, files, kind, label)

    def opened() -> Log:
        whole = read(paths, "log")
        if query is not None:
            return _log(name, connection.sql(query), given, None, ordered=True)
        columns = _with_unit(given, whole)

        def named(table: Any) -> Any:
            found = _named(table, columns, name)
            return without_guards(found) if kind == "csv" else found

        first = named(whole)
        several = len(paths) > 1
        parts = tuple(
            Part(
                path.name if several else "",
                named(read([path], f"log {number}")) if several else first,
                rows_in_file,
                path if kind == "parquet" else None,
            )
            for number, path in enumerate(paths)
        )
        there = _there(whole)
        counted = "counted from 1 after the header"
        return Log(name, first, columns, parts, True, counted, there=there)

    return guarded(opened, f"{name} cannot be read")


def memory_database(memory: str) -> Any:
    """A database in memory, whose times are in UTC."""
    import ibis

    def start() -> Any:
        connection = ibis.duckdb.connect(memory_limit=memory, temp_directory=_spill_folder())
        connection.raw_sql("SET TimeZone = 'UTC'")
        connection.raw_sql("SET enable_progress_bar = false")
        connection.raw_sql("SET parquet_metadata_cache = true")  # several queries read each file
        return connection

    return guarded(start, f"DuckDB does not start with memory {memory!r}")


def _spill_folder() -> str:
    """Where DuckDB keeps what does not fit into memory.

    It makes the folder when it first needs it and removes it when the connection ends; by default
    it would do so in the folder where somebody happens to be, or beside their database.
    """
    return str(Path(gettempdir(), f"steadyarm-{uuid4().hex}"))


def read_files(connection: Any, files: list[Path], kind: str, label: str) -> Any:
    """The files as a table of that name of a connection to DuckDB; CSV is all text."""
    names = [str(path) for path in files]
    if kind == "parquet":
        return connection.read_parquet(names, table_name=label, file_row_number=True)
    if sum(path.stat().st_size for path in files) > SMALL:
        return connection.read_csv(names, table_name=label, all_varchar=True, header=True)
    return _text_table(connection, files, label)


def _text_table(connection: Any, files: Sequence[Path], label: str) -> Any:
    """Small CSV files as a temporary table of text.

    To find out which quotes a small file has takes DuckDB longer than to read it, and Ibis would
    have it found out three times; where there are none it does not matter.
    """
    import ibis

    names = ", ".join(_literal(str(path)) for path in files)
    options = "all_varchar=true, header=true"
    if not any(_may_have_quotes(path) for path in files):
        options += """, quote='"', escape='"'"""
    connection.raw_sql(
        f'CREATE TEMP TABLE "{label}" AS SELECT * FROM read_csv([{names}], {options})'
    )
    columns = connection.raw_sql(f'DESCRIBE "{label}"').fetchall()
    schema = ibis.schema({column[0]: "string" for column in columns})
    return connection.sql(f'SELECT * FROM "{label}"', schema=schema)


def _may_have_quotes(path: Path) -> bool:
    """Whether a quote or backslash is in a file; yes if that is not quickly found out."""
    if path.stat().st_size > TINY or path.name.endswith(".gz"):
        return True
    return not set(path.read_bytes()).isdisjoint(QUOTES)


def _frame(
    frame: Any,
    table: str | None,
    query: str | None,
    columns: Mapping[str, str] | None,
    memory: str,
) -> Log:
    """A DataFrame, an Arrow table or a stream of one, through DuckDB."""
    from steadyarm.analysis.frames import frame_table

    if table is not None:
        raise InvalidInputError(
            f"table {table!r} is given, but the log is a frame; a query may name it log."
        )
    connection = memory_database(memory)
    mapped = {*COLUMNS, *(columns or {}).values()}

    def may_be_read(name: str) -> bool:
        usual = name in mapped or name.lower() in UNITS or name.startswith(PREFIX)
        return usual or query is not None

    def opened() -> Log:
        found = frame_table(connection, "log", frame, may_be_read)
        if query is not None:
            return _log("the frame", connection.sql(query), columns, None, ordered=True)
        log = _log("the frame", found, columns, None, ordered=True)
        return replace(log, counted="counted from 1 in the frame")

    try:
        return guarded(opened, "the frame cannot be read")
    except Exception:
        connection.disconnect()
        raise


def without_guards(table: Any) -> Any:
    """Texts as they were before `files.csv_cell`; exports guard them against spreadsheets."""
    import ibis

    for name in {"arm", "unit"} & set(table.columns):
        cell = table[name]
        marked = cell.startswith("'") & cell.substr(1, 1).isin(list(GUARDED))
        table = table.mutate(**{name: ibis.ifelse(marked, cell.substr(1), cell)})
    return table


def rows_in_file(table: Any) -> Any:
    """Numbers of rows from 1, in the order of a file."""
    import ibis

    if "file_row_number" in table.columns:
        return table.file_row_number + 1
    return ibis.row_number() + 1


def rows_by_time(table: Any) -> Any:
    """Numbers of rows from 1, in order of time and unit."""
    import ibis

    order = [table[key] for key in ("timestamp", "unit") if key in table.columns]
    return ibis.row_number().over(order_by=order) + 1


def _database(
    url: str, table: str | None, query: str | None, columns: Mapping[str, str] | None
) -> Log:
    connect, name, secret = _url(url)
    return _opened(name, connect, table, query, columns, secret)


def _url(url: str) -> tuple[Callable[[], Any], str, str | None]:
    """What connects to the database at a URL, its name without a password, and the password."""
    import ibis

    parts = urlsplit(url)
    if parts.scheme == "sqlite" and not Path(parts.path).is_file():
        raise InvalidInputError(f"there is no file {parts.path}.")
    name = re.sub(r"//[^/@]*@", "//", url.split("?")[0])
    return lambda: ibis.connect(url), name, parts.password


def connect_to(database: str | Path, memory: str) -> tuple[Any, str, str | None]:
    """A connection to the database of that URL or file, its name, and its password."""
    if isinstance(database, str) and "://" in database:
        connect, name, secret = _url(database)
    else:
        [path] = file_paths(database)
        kind = file_kind([path])
        connect, name, secret = lambda: _connect_file(kind, path, memory), path.name, None
    return guarded(connect, f"{name} cannot be opened", secret), name, secret


def _connect_file(kind: str, path: Path, memory: str) -> Any:
    import ibis

    if kind == "sqlite":
        return ibis.sqlite.connect(path)
    connection = ibis.duckdb.connect(
        path, read_only=True, memory_limit=memory, temp_directory=_spill_folder()
    )
    connection.raw_sql("SET TimeZone = 'UTC'")
    return connection


def _opened(
    name: str,
    connect: Callable[[], Any],
    table: str | None,
    query: str | None,
    columns: Mapping[str, str] | None,
    secret: str | None = None,
) -> Log:
    """The table or query of a database."""
    connection = guarded(connect, f"{name} cannot be opened", secret)
    try:
        if query is not None:
            found = guarded(lambda: connection.sql(query), f"the query fails on {name}", secret)
        else:
            found = table_of(name, connection, table, secret)
        return _log(name, found, columns, secret)
    except Exception:
        connection.disconnect()
        raise


def table_of(name: str, connection: Any, table: str | None, secret: str | None) -> Any:
    """The table of that name, or the only one."""
    tables = guarded(connection.list_tables, f"{name} cannot be read", secret)
    if table is None and len(tables) == 1:
        table = tables[0]
    if table is None:
        raise InvalidInputError(
            f"{name} has {len(tables)} tables ({', '.join(tables[:10])}); say which: --table "
            f"{(tables or ['NAME'])[0]}, or give a query."
        )
    path = table.split(".")
    where = {"database": path[0]} if len(path) == 2 else {}
    if not where and table not in tables:
        raise InvalidInputError(
            f"{name} has no table {table!r}; there is {', '.join(tables[:10]) or 'none'}"
            f"{did_you_mean(table, tables)}"
        )
    return guarded(lambda: connection.table(path[-1], **where), f"{name} cannot be read", secret)


def _log(
    name: str,
    table: Any,
    columns: Mapping[str, str] | None,
    secret: str | None,
    ordered: bool = False,
) -> Log:
    columns = _with_unit(columns, table)
    named = _named(table, columns, name)
    counted = "of the query's result" if ordered else "in order of time and unit"
    part = Part("", named, rows_in_file if ordered else rows_by_time)
    return Log(name, named, columns, (part,), ordered, counted, secret, there=_there(table))


def _there(table: Any) -> tuple[str, ...]:
    """The columns that a table has where it lives."""
    return tuple(name for name in table.columns if name != "file_row_number")


def _with_unit(columns: Mapping[str, str] | None, table: Any) -> dict[str, str]:
    """The names of columns, with that of the unit if it goes by a usual name."""
    mapped = dict(columns or {})
    if "unit" in mapped or "unit" in table.columns:
        return mapped
    taken = set(mapped.values())
    there = {name.lower(): name for name in table.columns if name not in taken}
    found = [there[name] for name in UNITS if name in there]
    return mapped | ({"unit": found[0]} if found else {})


def missing_columns(
    name: str, missing: Mapping[str, str], there: Sequence[str]
) -> InvalidInputError:
    """The error of columns that a table does not have: the nearest ones, and what maps them.

    Parameters
    ----------
    name : of the table, for people
    missing : our names of columns to those that were searched
    there : the columns that the table has

    Examples
    --------
    >>> print(missing_columns("log.csv", {"arm": "arm"}, ["time", "Variant", "clicks"]))
    log.csv has no column arm; its columns are time, Variant, clicks. If arm is called Variant \
    there, map it: --column arm=Variant (in Python columns={"arm": "Variant"}).
    """
    advice = []
    for ours, theirs in missing.items():
        near = nearest_column(theirs, ours, there)
        option = next((OPTIONS[kind] for kind in OPTIONS if ours.startswith(kind)), None)
        if option is not None:
            said = f"did you mean {option} {near}?" if near else f"{option} must name one of them."
            advice.append(f"{said[:1].upper()}{said[1:]}")
        elif ours in missing and ours == theirs:
            if_so = f"If {ours} is called {near} there, map it" if near else f"Map {ours}"
            to = near or "NAME"
            advice.append(
                f"{if_so}: --column {ours}={to} (in Python columns={{{_quoted(ours, to)}}})."
            )
        else:
            advice.append(
                f"Did you mean --column {ours}={near}?"
                if near
                else f"--column {ours}=NAME must name one of them."
            )
    lacking = ", ".join(dict.fromkeys(missing.values()))
    return InvalidInputError(
        f"{name} has no column {lacking}; its columns are {strung(there, 40)}. {' '.join(advice)}"
    )


def _quoted(ours: str, theirs: str) -> str:
    return f'"{ours}": "{theirs}"'


def nearest_column(wanted: str, ours: str, there: Sequence[str]) -> str:
    """The column that is most probably meant; empty if none is near.

    wanted : the name that was searched; ours : what it stands for, which has usual other names

    Examples
    --------
    >>> nearest_column("reward", "reward", ["user", "ts", "Revenue"])
    'Revenue'
    >>> nearest_column("contry", "attribute 1", ["country", "arm"])
    'country'
    >>> nearest_column("arm", "arm", ["ts", "varaint"])
    'varaint'
    """
    plain = {re.sub(r"[^a-z0-9]", "", name.lower()): name for name in reversed(there)}
    search = re.sub(r"[^a-z0-9]", "", wanted.lower())
    if search in plain:
        return plain[search]
    words = USUAL.get(ours, ()) if wanted == ours else ()
    usual = [plain[word] for word in words if word in plain]
    near = [plain[word] for word in get_close_matches(search, list(plain), 1, 0.7)]
    part = [name for word, name in plain.items() if len(search) > 2 and search in word]
    long = [word for word in words if len(word) > 4]  # shorter ones are like anything
    alike = [plain[one] for word in long for one in get_close_matches(word, list(plain), 1, 0.8)]
    inside = [name for word in long for one, name in plain.items() if word in one]
    return next(iter([*usual, *near, *part, *alike, *inside]), "")


def _named(table: Any, columns: dict[str, str], name: str) -> Any:
    """The columns we know under the names we know them by; what is missing is named."""
    for ours in columns:
        if ours not in COLUMNS and not ours.startswith((PREFIX, *OPTIONS)):
            turned = ""
            if columns[ours] in COLUMNS:
                turned = f" Our name comes first: --column {columns[ours]}={ours}."
            raise InvalidInputError(
                f"there is no column {ours!r} to map; the columns are {', '.join(COLUMNS)}"
                f"{did_you_mean(ours, COLUMNS)}{turned}"
            )
    there = list(table.columns)
    theirs = {name: name for name in COLUMNS} | columns
    wanted = {ours: name for ours, name in theirs.items() if name in there}
    free = {ours for ours, name in columns.items() if ours.startswith(CLUSTER) and name in PERIODS}
    missing = {
        ours: theirs[ours] for ours in (*REQUIRED, *columns) if ours not in (wanted.keys() | free)
    }
    vector = [column for column in there if column.startswith(PREFIX)]
    if missing:
        raise missing_columns(name, missing, _there(table))
    chosen = {ours: table[name] for ours, name in wanted.items()}
    if not {"probability", "probabilities"} & set(wanted):
        chosen |= {column: table[column] for column in vector if column not in chosen}
    if "file_row_number" in there:
        chosen["file_row_number"] = table["file_row_number"]
    return table.select(**chosen)
