"""Logs as Ibis tables: files, a folder of them, or a table or query of a database."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from glob import glob
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from steadyarm.errors import InvalidInputError, MissingExtraError
from steadyarm.files import GUARDED

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
PREFIX = "p_"  # of the columns that hold the probability of one arm each
SMALL = 2**26  # bytes of CSV that are read once and kept; every query would guess its dialect anew


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
    """

    name: str
    table: Any
    columns: Mapping[str, str]
    parts: tuple[Part, ...]
    ordered: bool
    counted: str
    secret: str | None = None
    ours: bool = True

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
            found = expression() if callable(expression) else expression
            return found.to_pyarrow().to_pylist()

        return self._guarded(work)

    def kept(self, name: str, expression: Any) -> Any:
        """The expression as a table that lasts as long as the connection."""
        create = self.table.get_backend().create_table
        return self._guarded(lambda: create(name, expression, temp=True, overwrite=True))

    def sql(self, query: str, values: list[Any]) -> list[tuple[Any, ...]]:
        """Rows of a query in DuckDB's own language."""
        connection = self.table.get_backend().con

        def work() -> list[tuple[Any, ...]]:
            with connection.cursor() as cursor:
                rows: list[tuple[Any, ...]] = cursor.execute(query, values).fetchall()
            return rows

        return self._guarded(work)

    def _guarded(self, work: Callable[[], T]) -> T:
        """What `work` returns; an error of the database is translated."""
        return guarded(work, f"{self.name} cannot be read", self.secret)


def open_log(
    source: Any,
    *,
    table: str | None = None,
    query: str | None = None,
    columns: Mapping[str, str] | None = None,
    memory: str = "2GB",
) -> Log:
    """The log at `source`: a file, folder or pattern, a list of files, a URL, or an Ibis table."""
    try:
        import ibis
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
    paths = _paths(source)
    kind = _kind(paths)
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


def _paths(source: Any) -> list[Path]:
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
    elif isinstance(source, Iterable):
        paths = [Path(name) for name in source]
    else:
        raise InvalidInputError(
            f"the log is {source!r}; expected a file, a folder, a list of files or a URL."
        )
    if not paths:
        raise InvalidInputError("the list of files is empty; give at least one.")
    for path in paths:
        if not path.is_file():
            raise InvalidInputError(f"there is no file {path}.")
    return paths


def _kind(paths: list[Path]) -> str:
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
    import ibis

    name = paths[0].name if len(paths) == 1 else f"{len(paths)} {kind} files"

    def start() -> Any:
        connection = ibis.duckdb.connect(memory_limit=memory)
        connection.raw_sql("SET TimeZone = 'UTC'")
        connection.raw_sql("SET enable_progress_bar = false")
        return connection

    connection = guarded(start, f"DuckDB does not start with memory {memory!r}")

    def read(files: list[Path], label: str) -> Any:
        names = [str(path) for path in files]
        if kind == "parquet":
            return connection.read_parquet(names, table_name=label, file_row_number=True)
        table = connection.read_csv(names, table_name=label, all_varchar=True, header=True)
        if sum(path.stat().st_size for path in files) > SMALL:
            return table
        return connection.create_table(f"{label} as read", table, temp=True)

    def opened() -> Log:
        whole = read(paths, "log")
        if query is not None:
            return _log(name, connection.sql(query), given, None, ordered=True)
        columns = _with_unit(given, whole)

        def named(table: Any) -> Any:
            found = _named(table, columns, name)
            return _without_guards(found) if kind == "csv" else found

        first = named(whole)
        several = len(paths) > 1
        parts = tuple(
            Part(
                path.name if several else "",
                named(read([path], f"log {number}")) if several else first,
                _in_file,
                path if kind == "parquet" else None,
            )
            for number, path in enumerate(paths)
        )
        return Log(name, first, columns, parts, True, "counted from 1 after the header")

    return guarded(opened, f"{name} cannot be read")


def _without_guards(table: Any) -> Any:
    """Texts as they were before `files.csv_cell`; exports guard them against spreadsheets."""
    import ibis

    for name in {"arm", "unit"} & set(table.columns):
        cell = table[name]
        marked = cell.startswith("'") & cell.substr(1, 1).isin(list(GUARDED))
        table = table.mutate(**{name: ibis.ifelse(marked, cell.substr(1), cell)})
    return table


def _in_file(table: Any) -> Any:
    import ibis

    if "file_row_number" in table.columns:
        return table.file_row_number + 1
    return ibis.row_number() + 1


def _by_time(table: Any) -> Any:
    import ibis

    order = [table[key] for key in ("timestamp", "unit") if key in table.columns]
    return ibis.row_number().over(order_by=order) + 1


def _database(
    url: str, table: str | None, query: str | None, columns: Mapping[str, str] | None
) -> Log:
    import ibis

    parts = urlsplit(url)
    if parts.scheme == "sqlite" and not Path(parts.path).is_file():
        raise InvalidInputError(f"there is no file {parts.path}.")
    secret = parts.password
    name = re.sub(r"//[^/@]*@", "//", url.split("?")[0])
    return _opened(name, lambda: ibis.connect(url), table, query, columns, secret)


def _connect_file(kind: str, path: Path, memory: str) -> Any:
    import ibis

    if kind == "sqlite":
        return ibis.sqlite.connect(path)
    connection = ibis.duckdb.connect(path, read_only=True, memory_limit=memory)
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
            found = _table(name, connection, table, secret)
        return _log(name, found, columns, secret)
    except Exception:
        connection.disconnect()
        raise


def _table(name: str, connection: Any, table: str | None, secret: str | None) -> Any:
    """The table of that name, or the only one."""
    tables = guarded(connection.list_tables, f"{name} cannot be read", secret)
    if table is None and len(tables) == 1:
        table = tables[0]
    if table is None:
        raise InvalidInputError(
            f"{name} has {len(tables)} tables ({', '.join(tables[:10])}); say which with table, "
            "or give a query."
        )
    path = table.split(".")
    where = {"database": path[0]} if len(path) == 2 else {}
    if not where and table not in tables:
        raise InvalidInputError(
            f"{name} has no table {table!r}; there is {', '.join(tables[:10]) or 'none'}."
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
    part = Part("", named, _in_file if ordered else _by_time)
    return Log(name, named, columns, (part,), ordered, counted, secret)


def _with_unit(columns: Mapping[str, str] | None, table: Any) -> dict[str, str]:
    """The names of columns, with that of the unit if it goes by a usual name."""
    mapped = dict(columns or {})
    if "unit" in mapped or "unit" in table.columns:
        return mapped
    taken = set(mapped.values())
    there = {name.lower(): name for name in table.columns if name not in taken}
    found = [there[name] for name in UNITS if name in there]
    return mapped | ({"unit": found[0]} if found else {})


def _named(table: Any, columns: dict[str, str], name: str) -> Any:
    """The columns we know under the names we know them by; what is missing is named."""
    for ours in columns:
        if ours not in COLUMNS and not ours.startswith((PREFIX, COVARIATE)):
            raise InvalidInputError(
                f"there is no column {ours!r} to map; the columns are {', '.join(COLUMNS)}."
            )
    there = list(table.columns)
    theirs = {name: name for name in COLUMNS} | columns
    wanted = {ours: name for ours, name in theirs.items() if name in there}
    missing = [theirs[ours] for ours in (*REQUIRED, *columns) if ours not in wanted]
    vector = [column for column in there if column.startswith(PREFIX)]
    if not vector and not {"probability", "probabilities"} & set(wanted):
        missing.append(theirs["probability"])
    if missing:
        raise InvalidInputError(
            f"{name} has no column {', '.join(dict.fromkeys(missing))}; its columns are "
            f"{', '.join(there[:40])}. Map names with columns, on the command line for example "
            "--column arm=variant."
        )
    chosen = {ours: table[name] for ours, name in wanted.items()}
    if not {"probability", "probabilities"} & set(wanted):
        chosen |= {column: table[column] for column in vector if column not in chosen}
    if "file_row_number" in there:
        chosen["file_row_number"] = table["file_row_number"]
    return table.select(**chosen)
