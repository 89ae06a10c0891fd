"""Sources: files, DataFrames, and tables or queries of databases, as Ibis tables."""

from __future__ import annotations

import re
import sqlite3
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from difflib import get_close_matches
from glob import glob
from pathlib import Path
from tempfile import gettempdir
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from steadyarm.errors import InvalidInputError, MissingExtraError
from steadyarm.wording import GUARDED, did_you_mean, strung

T = TypeVar("T")

REQUIRED = {
    "log": ("arm",),
    "exposures": ("timestamp", "arm", "unit"),
    "events": ("timestamp", "unit"),
}
KNOWN = {
    "log": ("timestamp", "arm", "reward", "probability", "unit", "excluded"),
    "exposures": ("timestamp", "arm", "probability", "unit", "excluded"),
    "events": ("timestamp", "unit", "event", "value"),
}
USUAL = {  # what columns are often called, without capitals and signs
    "timestamp": (
        *("exposedat", "exposuretime", "assignedat", "eventtime", "eventtimestamp", "occurredat"),
        *("time", "ts", "datetime", "createdat", "date", "day"),
    ),
    "arm": ("variant", "variation", "variantid", "variantname", "group", "treatment", "bucket"),
    "reward": ("revenue", "conversion", "converted", "value", "outcome", "clicks", "click"),
    "probability": ("propensity", "propensityscore"),
    "unit": (
        *("unitid", "userid", "user", "visitorid", "visitor", "customerid", "customer"),
        *("id", "sessionid", "session", "device"),
    ),
    "event": ("eventname", "eventtype", "name", "action", "type"),
    "value": ("eventvalue", "amount", "revenue", "price", "total"),
}
COVARIATE = "covariate "  # begins our names of columns that hold covariates
ATTRIBUTE = "attribute "  # and of those whose levels results are split by
CLUSTER = "cluster "  # and of those that say which cluster a row is of
MEASURE = "measure "  # and of those that metrics are made of
PERIODS = ("hour", "day", "week", "month")  # which a cluster may be of without a column
SUFFIXES = {
    "csv": (".csv", ".csv.gz", ".tsv", ".tsv.gz"),
    "parquet": (".parquet", ".pq"),
    "sqlite": (".sqlite", ".sqlite3", ".db"),
    "duckdb": (".duckdb", ".ddb"),
}
QUERY = re.compile(r"\s*(select|with|from|values)\s", re.IGNORECASE)
MEMORY = "2GB"  # that DuckDB may use; it spills what does not fit
BATCH = 100_000  # rows that are copied at a time
SMALL = 2**26  # bytes of CSV that are read once and kept
OWN_TABLES = ("duckdb", "postgres")  # where temporary tables cost nobody anything


@dataclass(frozen=True)
class Columns:
    """The columns of a table: their names in it, and the use of further ones.

    Parameters
    ----------
    timestamp, arm, reward, probability, unit, excluded : their names. Usual names such as variant
        and user_id are found without. None for a column that is not to be used: unit=None takes all
        rows as independent; else variances are by unit if units have several rows
    event, value : their names in a table of events
    covariates : columns with numbers that were known of units before they were assigned, at most
        five, such as ["visits_last_month", "spend"]; they reduce noise. Empty cells are fine
    segments : columns with what was known of units before they were assigned, such as ["country"];
        results by their levels. Of many levels the 20 with the most rows are shown
    cluster : the column, or columns, that variants were drawn by or rows are alike in, such as
        "store", or ["store", "day"] where every store switches its variant daily. Variances are by
        cluster, with Student's t for few. hour, day, week and month need no column
    time_format : the format of times that are text, such as "%d/%m/%Y %H:%M"; dates such as
        2026-03-01 and 01.03.2026, and seconds since 1970, are read without. A log may have no times

    Examples
    --------
    >>> Columns(arm="shown", unit=None, covariates=["spend"]).names
    {'arm': 'shown', 'unit': None}
    """

    timestamp: str | None = ""
    arm: str | None = ""
    reward: str | None = ""
    probability: str | None = ""
    unit: str | None = ""
    excluded: str | None = ""
    event: str | None = ""
    value: str | None = ""
    covariates: Sequence[str] = ()
    segments: Sequence[str] = ()
    cluster: str | Sequence[str] | None = None
    time_format: str | None = None

    @property
    def names(self) -> dict[str, str | None]:
        """Our names of columns to those in the table, of the columns that are named."""
        ours = dict.fromkeys(name for names in KNOWN.values() for name in names)
        return {name: getattr(self, name) for name in ours if getattr(self, name) != ""}


@dataclass(frozen=True, eq=False)
class Source:
    """A table that is queried where it lives; nothing of it is in memory.

    Attributes
    ----------
    name : how messages call it, without passwords
    table : an Ibis table whose columns are named as ours
    columns : our names of columns to theirs, if they differ
    there : all columns where the table lives, as they are called there
    ordered : whether rows have an order of their own, as those of files do
    secret : what must not be shown
    ours : whether `close` ends the connection
    single : whether no unit has two rows
    time_format : how text says times, such as "%d/%m/%Y"; None for the usual ways
    """

    name: str
    table: Any
    columns: Mapping[str, str]
    there: tuple[str, ...]
    ordered: bool = True
    secret: str | None = None
    ours: bool = True
    single: bool = False
    time_format: str | None = None

    def close(self) -> None:
        """End the connection, if it is ours."""
        if self.ours:
            self.table.get_backend().disconnect()

    @property
    def backend(self) -> str:
        """Name of the database that does the work."""
        return str(self.table.get_backend().name)

    def their(self, column: str) -> str:
        """The name of a column in the table."""
        return self.columns.get(column, column)

    @property
    def mapping(self) -> str:
        """Which columns stand for ours, in a sentence; empty if they are called like ours."""
        mapped = [f"{ours} is {their!r}" for ours, their in self.columns.items() if " " not in ours]
        return f"In {self.name} {', '.join(mapped)}." if mapped else ""

    def has(self, column: str) -> bool:
        """Whether there is a column."""
        return column in self.table.columns

    def fetch(self, expression: Any) -> list[dict[str, Any]]:
        """Rows of a small result."""

        def work() -> Any:
            result = _without_zones(expression)
            if not self._runs_plainly(result):
                return result.to_pyarrow().to_pylist()
            backend = self.table.get_backend()  # Ibis would import pandas
            rows = backend.raw_sql(backend.compile(result)).fetchall()
            floats = {name for name, kind in result.schema().items() if kind.is_floating()}
            return [
                {
                    name: float(value) if value is not None and name in floats else value
                    for name, value in zip(result.schema(), row, strict=True)
                }
                for row in rows
            ]

        rows: list[dict[str, Any]] = self._guarded(work)
        return rows

    def _runs_plainly(self, expression: Any) -> bool:
        """Whether DuckDB can run the expression by itself, on a connection that is ours."""
        from ibis.expr.operations import InMemoryTable

        own = self.ours and self.backend == "duckdb"
        return own and not expression.op().find(InMemoryTable)

    def keep(self, name: str, expression: Any) -> Any:
        """The expression as a temporary table, if we may make one: several queries read it."""
        if self.backend not in OWN_TABLES:
            return expression
        if not self.ours:
            return self._guarded(expression.cache)
        create = self.table.get_backend().create_table
        try:
            return self._guarded(lambda: create(name, expression, temp=True, overwrite=True))
        except InvalidInputError:
            if self.backend == "duckdb":  # a fault of the data; others may not let us make tables
                raise
            return expression

    def _guarded(self, work: Callable[[], T]) -> T:
        return guard(work, f"{self.name} cannot be read", self.secret)


def _without_zones(expression: Any) -> Any:
    """The expression with times in UTC that have no zone: for others DuckDB imports pytz."""
    zoned = {
        name: "timestamp"
        for name, kind in expression.schema().items()
        if kind.is_timestamp() and kind.timezone is not None
    }
    return expression.cast(zoned) if zoned else expression


def guard(work: Callable[[], T], what: str, secret: str | None = None) -> T:
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


# Opening: one connection for one table, or for two.


def open_log(source: Any, query: str | None, columns: Columns, extra: Mapping[str, str]) -> Source:
    """The log at `source`.

    query : the name of a table, or a query; files and frames are the table log in it
    extra : further columns, our names to theirs
    """
    return _open({"log": (source, query)}, [columns], extra)[0]


def open_tables(
    source: Any,
    query: str | None,
    events: Any,
    columns: Sequence[Columns],
    extra: Mapping[str, str],
) -> tuple[Source, Source]:
    """Exposures and events, in one engine, with the columns of each."""
    left, right = _open({"exposures": (source, query), "events": (events, None)}, columns, extra)
    return left, right


def _open(
    places: Mapping[str, tuple[Any, str | None]],
    columns: Sequence[Columns],
    extra: Mapping[str, str],
) -> list[Source]:
    try:
        import ibis
    except ImportError as error:
        raise MissingExtraError(
            f"analysing logs needs {error.name}; install it with: pip install 'steadyarm[analyze]'"
        ) from None
    for label, own in zip(places, columns, strict=True):
        if others := [name for name in own.names if name not in KNOWN[label]]:
            raise InvalidInputError(
                f"{others[0]!r} is not a column of {'a' if label == 'log' else 'the'} {label}; "
                f"expected one of: {', '.join(KNOWN[label])}."
            )
    tables = [place for place, _ in places.values() if isinstance(place, ibis.Table)]
    if tables:
        if len(tables) < len(places) or len({id(t.get_backend()) for t in tables}) > 1:
            raise InvalidInputError("two tables of Ibis must be of one connection.")
        pairs = zip(places, tables, strict=True)
        read = [Source(f"the {label}", t, {}, (), ordered=False, ours=False) for label, t in pairs]
    else:
        read = _read(places)
    try:
        return [
            replace(
                _name_columns(source, label, own.names, {} if label == "events" else extra),
                time_format=own.time_format,
            )
            for source, label, own in zip(read, places, columns, strict=True)
        ]
    except Exception:
        read[0].close()
        raise


def _read(places: Mapping[str, tuple[Any, str | None]]) -> list[Source]:
    """Tables of a database if the first place is one; else what DuckDB reads into its memory."""
    (source, query), *_ = places.values()
    database = _database_of(source)
    connect, name, secret = database or (_memory_database, "DuckDB", None)
    connection = guard(connect, f"{name} cannot be opened", secret)
    names = [query, *(place for place, _ in list(places.values())[1:])]
    try:
        if database is not None:
            return [
                _of_database(connection, name, secret, label, table)
                for label, table in zip(places, names, strict=True)
            ]
        sqlite = _sqlite_of(source)
        if sqlite is not None:
            return [
                _of_sqlite(connection, sqlite, label, table)
                for label, table in zip(places, names, strict=True)
            ]
        return [_of_files(connection, label, *place) for label, place in places.items()]
    except Exception:
        connection.disconnect()
        raise


def _sqlite_of(source: Any) -> Path | None:
    """The SQLite file that a source is; None if it is none."""
    text = str(_single(source))
    path = Path(urlsplit(text).path if text.startswith("sqlite://") else text)
    known = text.startswith("sqlite://") or path.name.lower().endswith(SUFFIXES["sqlite"])
    if known and not path.is_file():
        raise InvalidInputError(f"the file {path} does not exist.")
    return path if known else None


def _single(source: Any) -> Any:
    """The source in a list of one."""
    return source[0] if isinstance(source, (list, tuple)) and len(source) == 1 else source


def _database_of(source: Any) -> tuple[Callable[[], Any], str, str | None] | None:
    """What connects to a database, its name, and the password; None if the source is none."""
    import ibis

    source = _single(source)
    if isinstance(source, str) and "://" in source and not source.startswith("sqlite://"):
        name = re.sub(r"//[^/@]*@", "//", source.split("?")[0])
        return lambda: ibis.connect(source), name, urlsplit(source).password
    if not isinstance(source, (str, Path)) or not Path(source).is_file():
        return None
    path = Path(source)
    if not path.name.lower().endswith(SUFFIXES["duckdb"]):
        return None

    def connect() -> Any:
        return _in_utc(ibis.duckdb.connect(path, read_only=True, **_limits()))

    return connect, path.name, None


def _memory_database() -> Any:
    import ibis

    connection = _in_utc(ibis.duckdb.connect(**_limits()))
    connection.raw_sql("SET enable_progress_bar = false")
    return connection


def _limits() -> dict[str, str]:
    folder = Path(gettempdir(), f"steadyarm-{uuid4().hex}")  # DuckDB makes and removes it
    return {"memory_limit": MEMORY, "temp_directory": str(folder)}


def _in_utc(connection: Any) -> Any:
    connection.raw_sql("SET TimeZone = 'UTC'")
    return connection


def _table_name(label: str, name: str, query: Any, tables: Sequence[str]) -> str:
    """The table of a database that is meant: by name, or the only one."""
    if query is not None and not isinstance(query, str):
        raise InvalidInputError(
            f"{label} are a {type(query).__name__}; expected a table of {name}, or a query."
        )
    if query is None and len(tables) != 1:
        raise InvalidInputError(
            f"{name} has {len(tables)} tables ({', '.join(tables[:10])}); name one, or give a "
            f"query: --query {(list(tables) or ['NAME'])[0]}."
        )
    table = query or tables[0]
    if "." not in table and table not in tables:
        raise InvalidInputError(
            f"{name} has no table {table!r}; its tables are "
            f"{', '.join(tables[:10]) or 'none'}{did_you_mean(table, tables)}"
        )
    return table


def _is_query(text: Any) -> bool:
    return isinstance(text, str) and QUERY.match(text) is not None


def _of_database(connection: Any, name: str, secret: str | None, label: str, query: Any) -> Source:
    """A table of a database by name, the only one, or a query."""
    if _is_query(query):
        table = guard(lambda: connection.sql(query), f"the query fails on {name}", secret)
        return Source(name, table, {}, (), False, secret)
    tables = guard(connection.list_tables, f"{name} cannot be read", secret)
    *schema, last = _table_name(label, name, query, tables).split(".")
    where = {"database": schema[0]} if schema else {}
    table = guard(lambda: connection.table(last, **where), f"{name} cannot be read", secret)
    return Source(name, table, {}, (), False, secret)


def _of_sqlite(connection: Any, path: Path, label: str, query: Any) -> Source:
    """A table or a query of a SQLite file, copied into DuckDB as text, as CSV files are."""
    import pyarrow

    def copy() -> Any:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            statement = query
            if not _is_query(query):
                tables = database.execute("select name from sqlite_master where type != 'index'")
                table = _table_name(label, path.name, query, sorted(name for (name,) in tables))
                statement = f'select * from "{table}"'
            cursor = database.execute(statement)
            names = [column[0] for column in cursor.description]
            schema = pyarrow.schema([(name, pyarrow.string()) for name in names])
            connection.create_table(label, schema=schema)
            while rows := cursor.fetchmany(BATCH):
                texts = [
                    [None if value is None else str(value) for value in column]
                    for column in zip(*rows, strict=True)
                ]
                connection.insert(label, pyarrow.table(texts, schema=schema))
        return connection.table(label)

    return Source(path.name, guard(copy, f"{path.name} cannot be read"), {}, ())


def _of_files(connection: Any, label: str, place: Any, query: str | None) -> Source:
    """Files or a frame as a table of DuckDB with that label, or a query of it."""
    csv = False
    if _is_frame(place):
        name = f"the frame of {label}" if label != "log" else "the frame"
        guard(lambda: _register(connection, label, place), f"{name} cannot be read")
    else:
        paths = file_paths(place)
        kind = _file_kind(paths)
        name = paths[0].name if len(paths) == 1 else f"{len(paths)} {kind} files"
        statement = _reading(paths, kind, label)
        guard(lambda: connection.raw_sql(statement), f"{name} cannot be read")
        csv = kind == "csv"
    if query is not None:
        if not _is_query(query):
            raise InvalidInputError(
                f"query is {query!r}, but {name} has no tables; a query may name it {label}."
            )
        table = guard(lambda: connection.sql(query), f"the query fails on {name}")
        return Source(name, table, {}, ())
    table = guard(lambda: connection.table(label), f"{name} cannot be read")
    return Source(name, _without_guards(table) if csv else table, {}, ())


def _reading(paths: Sequence[Path], kind: str, label: str) -> str:
    """The statement that makes files a table; all of CSV is text, so that faults have rows.

    Small CSV files are kept, since every query would find out their dialect anew.
    """
    names = ", ".join(_literal(str(path)) for path in paths)
    if kind == "parquet":
        return f'CREATE VIEW "{label}" AS SELECT * FROM read_parquet([{names}], union_by_name=true)'
    small = sum(path.stat().st_size for path in paths) <= SMALL
    return (
        f'CREATE {"TABLE" if small else "VIEW"} "{label}" AS '
        f"SELECT * FROM read_csv([{names}], all_varchar=true, header=true)"
    )


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _without_guards(table: Any) -> Any:
    """Texts as they were before `files.csv_cell`, which guards exports against spreadsheets."""
    import ibis

    def plain(cell: Any) -> Any:
        marked = cell.startswith("'") & cell.substr(1, 1).isin(list(GUARDED))
        return ibis.ifelse(marked, cell.substr(1), cell)

    return table.mutate(**{name: plain(table[name]) for name in table.columns})


def file_paths(source: Any) -> list[Path]:
    """The files that a name, a folder, a pattern or a list of names stands for."""
    if isinstance(source, (str, Path)):
        path = Path(source)
        if path.is_dir():
            known = SUFFIXES["csv"] + SUFFIXES["parquet"]
            paths = sorted(p for p in path.rglob("*") if p.name.lower().endswith(known))
            if not paths:
                raise InvalidInputError(f"the folder {path} has no file {' or '.join(known)}.")
            return paths
        if any(sign in str(source) for sign in "*?[") and not path.exists():
            paths = [Path(name) for name in sorted(glob(str(source), recursive=True))]
            if not paths:
                raise InvalidInputError(f"no file matches {source}.")
            return paths
        paths = [path]
    elif isinstance(source, Iterable) and not isinstance(source, (Mapping, bytes)):
        paths = [Path(name) for name in source if isinstance(name, (str, Path))]
    else:
        paths = []
    if not paths:
        raise InvalidInputError(
            f"the log is {type(source).__name__}; expected files, the URL of a database, a "
            "DataFrame or an Ibis table."
        )
    for path in paths:
        if not path.is_file():
            raise InvalidInputError(f"the file {path} does not exist.")
    return paths


def _file_kind(paths: Sequence[Path]) -> str:
    kinds = set()
    for path in paths:
        ends = [k for k in ("csv", "parquet") if path.name.lower().endswith(SUFFIXES[k])]
        if not ends:
            expected = "a log ends in .csv, .tsv, .parquet, .sqlite, .db or .duckdb"
            raise InvalidInputError(f"{path.name} is not a supported file; {expected}.")
        kinds.add(ends[0])
    if len(kinds) > 1:
        raise InvalidInputError("the files are of several kinds; give files of one kind.")
    return str(kinds.pop())


def _is_frame(source: Any) -> bool:
    known = ("__arrow_c_stream__", "collect", "scanner", "__dataframe__")
    return any(hasattr(source, name) for name in known)


def _register(connection: Any, label: str, frame: Any) -> None:
    """Let DuckDB scan a frame; what is no Arrow data becomes it."""
    import pyarrow
    import pyarrow.dataset

    if hasattr(frame, "collect"):  # a lazy frame
        frame = frame.collect()
    if hasattr(frame, "reset_index") and any(name is not None for name in frame.index.names):
        frame = frame.reset_index()
    if getattr(frame, "ndim", 2) == 1:
        raise InvalidInputError("the log is one column; expected a DataFrame.")
    plain = (pyarrow.Table, pyarrow.dataset.Dataset)
    if not isinstance(frame, plain) and not type(frame).__module__.startswith("pandas."):
        frame = frame.to_arrow() if hasattr(frame, "to_arrow") else pyarrow.table(frame)
    connection.con.register(label, frame)


# Names of columns.


def _name_columns(
    source: Source, label: str, mapped: Mapping[str, str | None], extra: Mapping[str, str]
) -> Source:
    """The source with our column names. Columns that were not mapped are found by usual names."""
    there = list(source.table.columns)
    wanted = {ours: mapped.get(ours, ours) for ours in KNOWN[label]}
    taken = {name for name in (*wanted.values(), *extra.values()) if name in there}
    chosen: dict[str, str] = {}
    for ours, theirs in wanted.items():
        if theirs is not None and theirs not in there and ours not in mapped:
            theirs = _usual(ours, [name for name in there if name not in taken], source.name)
        if theirs in there:
            chosen[ours] = str(theirs)
            taken.add(str(theirs))
        elif ours in mapped and theirs is not None:
            raise no_column(source.name, label, ours, theirs, there)
        elif ours in REQUIRED[label]:
            raise no_column(source.name, label, ours, ours, there)
    for ours, theirs in extra.items():
        if theirs in there:
            chosen[ours] = theirs
        elif not (ours.startswith(CLUSTER) and theirs in PERIODS):
            raise no_column(source.name, label, ours, theirs, there)
    table = source.table.select(**{ours: source.table[theirs] for ours, theirs in chosen.items()})
    renamed = {ours: theirs for ours, theirs in chosen.items() if ours != theirs}
    return replace(source, table=table, columns=renamed, there=tuple(there))


def _usual(ours: str, there: Sequence[str], source: str) -> str | None:
    """The column that goes by a usual name of ours; of several possible rewards none."""
    plain = {_plain(name): name for name in reversed(there)}
    names = [plain[word] for word in (_plain(ours), *USUAL.get(ours, ())) if word in plain]
    if ours == "reward" and len(names) > 1:
        raise InvalidInputError(
            f"{source} has several columns that may be the reward: {strung(names, 8)}. Name them, "
            f"the most important one first: --metric {names[0]} --metric {names[1]} (in Python "
            f"metrics={names[:2]}).",
            field="metrics",
        )
    return names[0] if names else None


def no_column(
    name: str, label: str, ours: str, theirs: str, there: Sequence[str]
) -> InvalidInputError:
    """The error that there is no column, with the one that is probably meant."""
    near = nearest_column(theirs, ours, there)
    advice = f" Did you mean {near!r}?" if near else ""
    if ours in KNOWN[label]:
        mapping = ours if label == "log" else f"{label}.{ours}"
        to = near or "NAME"
        advice = f' Map it: --column {mapping}={to} (in Python Columns({ours}="{to}")).'
    names = strung([repr(column) for column in there], 40)
    return InvalidInputError(f"{name} has no column {theirs!r}; its columns are {names}.{advice}")


def nearest_column(wanted: str, ours: str, there: Sequence[str]) -> str:
    """The column that is most probably meant; empty if none is near.

    wanted : the name that was searched; ours : what it stands for, which has usual other names

    Examples
    --------
    >>> nearest_column("reward", "reward", ["user", "ts", "Revenue"])
    'Revenue'
    >>> nearest_column("arm", "arm", ["ts", "varaint"])
    'varaint'
    """
    words = (wanted, *(USUAL.get(ours, ()) if wanted == ours else ()))
    plain = {_plain(name): name for name in reversed(there)}
    for word in map(_plain, words):
        if word in plain:
            return plain[word]
    for word in (_plain(word) for word in words if word == wanted or len(word) > 4):
        if near := get_close_matches(word, list(plain), 1, 0.7):
            return plain[near[0]]
    return ""


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
