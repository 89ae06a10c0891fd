"""Exposures and events: two tables in one engine, under the names that we know columns by."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from steadyarm.analysis.log import (
    CLUSTER,
    COLUMNS,
    PERIODS,
    PREFIX,
    SUFFIXES,
    UNITS,
    USUAL,
    Log,
    Part,
    connect_to,
    file_kind,
    file_paths,
    guarded,
    memory_database,
    missing_columns,
    nearest_column,
    read_files,
    rows_by_time,
    rows_in_file,
    table_of,
    without_guards,
)
from steadyarm.errors import InvalidInputError, MissingExtraError
from steadyarm.wording import did_you_mean, strung

TABLES = ("exposures", "events")
FOUND = ("timestamp", "arm", "event", "value")  # columns that are found by their usual names
REQUIRED = {"exposures": ("timestamp", "arm", "unit"), "events": ("timestamp", "unit")}
OPTIONAL = {
    "exposures": tuple(name for name in COLUMNS if name not in ("reward", *REQUIRED["exposures"])),
    "events": ("event", "value"),
}
QUERY = re.compile(r"\s*(select|with|from|values)\s", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class _Read:
    """A table as it stands, before its columns have our names.

    csv : whether it is text that exports may have guarded against spreadsheets
    ordered : whether its rows have an order
    paths : of files
    """

    name: str
    table: Any
    csv: bool = False
    ordered: bool = True
    secret: str | None = None
    paths: tuple[Path, ...] = ()


@dataclass(frozen=True, eq=False)
class Tables:
    """Exposures and events in one engine.

    Attributes
    ----------
    exposures, events : with columns named as ours; nothing of them is in memory
    removed : exposures that the filter left out; None without a filter
    notes : how columns were found
    """

    exposures: Log
    events: Log
    removed: int | None
    notes: tuple[str, ...]

    def close(self) -> None:
        """End the connection, if it is ours."""
        self.exposures.close()


def open_tables(
    source: Any,
    exposures: Any,
    events: Any,
    *,
    columns: Mapping[str, str] | None = None,
    extra: Mapping[str, str] | None = None,
    where: str | None = None,
    memory: str = "2GB",
) -> Tables:
    """Both tables, opened.

    Parameters
    ----------
    source : a database that both are tables or queries of; None if they are files or Ibis tables
    columns : our names of columns to theirs; with "exposures." or "events." before ours for one
        table alone
    extra : further columns of exposures, our names to theirs
    where : a condition on exposures, in the engine's SQL and with its names of columns
    """
    try:
        import ibis
    except ImportError as error:
        raise MissingExtraError(
            f"analysing logs needs {error.name}; install it with: pip install 'steadyarm[analyze]'"
        ) from None
    for name, given in zip(TABLES, (exposures, events), strict=True):
        if given is None:
            other = TABLES[1 - TABLES.index(name)]
            raise InvalidInputError(
                f"there are {other} but no {name}; give both tables (--exposures, --events).",
                field=name,
            )
    ours = True
    if source is not None:
        read = _in_database(source, exposures, events, memory)
    elif any(isinstance(given, ibis.Table) for given in (exposures, events)):
        ours, read = False, _ibis_tables(exposures, events)
    else:
        read = _in_files(exposures, events, memory)
    try:
        kept, removed = _filtered(read[0], where)
        mapped = _mappings(columns)
        left = _named(kept, "exposures", mapped["exposures"], extra or {})
        right = _named(read[1], "events", mapped["events"], {})
    except Exception:
        if ours:
            read[0].table.get_backend().disconnect()
        raise
    logs = [replace(log, ours=ours) for log in (left, right)]
    return Tables(logs[0], logs[1], removed, _notes(logs))


# Where the tables are.


def _ibis_tables(exposures: Any, events: Any) -> tuple[_Read, _Read]:
    import ibis

    given = exposures, events
    for name, one in zip(TABLES, given, strict=True):
        if not isinstance(one, ibis.Table):
            raise InvalidInputError(
                f"{name} are a {type(one).__name__} and the other table is one of Ibis; give two "
                "Ibis tables of one connection.",
                field=name,
            )
    if exposures.get_backend() is not events.get_backend():
        raise InvalidInputError(
            "exposures and events are Ibis tables of two connections; both must be of one, so that "
            "its engine can join them.",
            field="events",
        )
    return _Read("the exposures", exposures, ordered=False), _Read(
        "the events", events, ordered=False
    )


def _in_files(exposures: Any, events: Any, memory: str) -> tuple[_Read, _Read]:
    """Files, read by DuckDB."""
    found = []
    for name, given in zip(TABLES, (exposures, events), strict=True):
        if not _is_query(given) and (database := _as_database(given)) is not None:
            other = events if name == "exposures" else exposures
            if _as_database(other) is None:
                raise InvalidInputError(
                    f"{name} are in the database {database} and the other table is not; both must "
                    "be in one engine. Load the other table into the database, or export the one "
                    "in the database to a Parquet file.",
                    field=name,
                )
            raise InvalidInputError(
                f"{name} are {database}, which is a database; give the database once, as the log, "
                "and the names of its tables, or queries: steadyarm analyze DATABASE --exposures "
                "TABLE --events TABLE, in Python analyze(database, exposures=…, events=…).",
                field=name,
            )
        found.append((name, given))
    connection = memory_database(memory)
    try:
        read = [_read(connection, label, given) for label, given in found]
    except Exception:
        connection.disconnect()
        raise
    return read[0], read[1]


def _read(connection: Any, label: str, given: Any) -> _Read:
    """Files, a query that reads them, or a DataFrame, in a connection to DuckDB."""
    from steadyarm.analysis.frames import frame_table, is_frame

    if _is_query(given):
        found = guarded(lambda: connection.sql(given), f"the query of {label} fails")
        return _Read(f"the {label}", found, ordered=False)
    if is_frame(given):
        name = f"the frame of {label}"
        found = guarded(lambda: frame_table(connection, label, given), f"{name} cannot be read")
        return _Read(name, found)
    paths = file_paths(given)
    kind = file_kind(paths)
    name = paths[0].name if len(paths) == 1 else f"{len(paths)} {kind} files"
    table = guarded(lambda: read_files(connection, paths, kind, label), f"{name} cannot be read")
    csv = kind == "csv"
    return _Read(name, table, csv=csv, paths=tuple(paths))


def _is_query(given: Any) -> bool:
    return isinstance(given, str) and QUERY.match(given) is not None


def _as_database(given: Any) -> str | None:
    """The name of a database, without its password; None if it is none."""
    if not isinstance(given, (str, Path)):
        return None
    text = str(given)
    if "://" in text:
        return re.sub(r"//[^/@]*@", "//", text.split("?")[0])
    endings = SUFFIXES["sqlite"] + SUFFIXES["duckdb"]
    return Path(text).name if text.lower().endswith(endings) else None


def _in_database(source: Any, exposures: Any, events: Any, memory: str) -> tuple[_Read, _Read]:
    """Tables or queries of one database; DuckDB reads files beside them."""
    if _as_database(source) is None:
        raise InvalidInputError(
            "a log is given, and exposures and events, too. Give one log, or two tables, or a "
            "database (a URL, a SQLite or DuckDB file) and two of its tables.",
            field="exposures",
        )
    connection, name, secret = connect_to(source, memory)
    try:
        read = [
            _in_connection(connection, name, secret, label, given)
            for label, given in zip(TABLES, (exposures, events), strict=True)
        ]
    except Exception:
        connection.disconnect()
        raise
    return read[0], read[1]


def _in_connection(connection: Any, name: str, secret: str | None, label: str, given: Any) -> _Read:
    from steadyarm.analysis.frames import is_frame

    if _is_query(given):
        found = guarded(lambda: connection.sql(given), f"the query fails on {name}", secret)
        return _Read(f"the {label} of {name}", found, ordered=False, secret=secret)
    if connection.name == "duckdb" and is_frame(given):
        return _read(connection, f"frame of {label}", given)
    tables = guarded(connection.list_tables, f"{name} cannot be read", secret)
    file = isinstance(given, Path) or (isinstance(given, str) and given not in tables)
    if file and Path(given).exists():
        if connection.name != "duckdb":
            raise InvalidInputError(
                f"{label} are the file {given} and the other table is in {name}; both must be in "
                "one engine. Load the file into the database, or export the table of the database "
                "to a Parquet file and give both files.",
                field=label,
            )
        return _read(connection, f"{label} of files", given)
    if not isinstance(given, str):
        raise InvalidInputError(
            f"{label} are a {type(given).__name__}; expected the name of a table of {name}, or a "
            "query.",
            field=label,
        )
    table = table_of(name, connection, given, secret)
    return _Read(f"{given} of {name}", table, ordered=False, secret=secret)


# Which rows.


def _filtered(read: _Read, where: str | None) -> tuple[_Read, int | None]:
    """The rows for which the condition is true, and how many others there are."""
    import ibis

    if where is None:
        return read, None
    if not isinstance(where, str) or not where.strip():
        expected = "a condition in SQL, such as \"country <> 'XX' and not is_bot\""
        raise InvalidInputError.of("where", where, expected)
    backend = read.table.get_backend()

    def only(table: Any) -> Any:
        inner = backend.compile(table)
        return backend.sql(f"SELECT * FROM ({inner}) AS exposures WHERE ({where}\n)")

    def work() -> tuple[Any, int]:
        if read.csv:  # all text: the condition is about numbers and truth values
            names = [str(path) for path in read.paths]
            typed = backend.read_csv(names, table_name="typed", header=True, sample_size=-1)
            good = only(typed.mutate(file_row_number=ibis.row_number()))
            numbered = read.table.mutate(file_row_number=ibis.row_number())
            kept = numbered.semi_join(good.select("file_row_number"), "file_row_number")
        else:
            kept = only(read.table)
        counts = [int(table.count().to_pyarrow().as_py()) for table in (read.table, kept)]
        return kept, counts[0] - counts[1]

    table, removed = guarded(
        work, f"the condition {where!r} cannot be applied to {read.name}", read.secret
    )
    return replace(read, table=table), removed


# Names of columns.


def _mappings(columns: Mapping[str, str] | None) -> dict[str, dict[str, tuple[str, bool]]]:
    """Our names to theirs for each table, and whether only that table was meant."""
    found: dict[str, dict[str, tuple[str, bool]]] = {name: {} for name in TABLES}
    for ours, theirs in (columns or {}).items():
        table, dot, rest = ours.partition(".")
        if dot and table in TABLES:
            _check_known(rest, (table,))
            found[table][rest] = theirs, True
            continue
        _check_known(ours, TABLES)
        for name in TABLES:
            if ours in (*REQUIRED[name], *OPTIONAL[name]):
                found[name].setdefault(ours, (theirs, False))
    return found


def _check_known(ours: str, tables: Sequence[str]) -> None:
    known = list(dict.fromkeys(n for t in tables for n in (*REQUIRED[t], *OPTIONAL[t])))
    if ours not in known:
        raise InvalidInputError(
            f"there is no column {ours!r} of {' and '.join(tables)} to map; the columns are "
            f"{strung(known, 20)}{did_you_mean(ours, known)}"
        )


def _named(
    read: _Read,
    label: str,
    mapped: Mapping[str, tuple[str, bool]],
    extra: Mapping[str, str],
) -> Log:
    """The table with columns named as ours."""
    there = [name for name in read.table.columns if name != "file_row_number"]
    chosen: dict[str, str] = {}
    for ours in (*REQUIRED[label], *OPTIONAL[label]):
        theirs, alone = mapped.get(ours, (None, False))
        both = ours in ("timestamp", "unit")  # mapped for either table, if only one has the column
        if theirs is None or (both and not alone and theirs not in there):
            found = _usual(ours, there, set(chosen.values()))
        else:
            found = theirs if theirs in there else None
        if found is None and (ours in REQUIRED[label] or theirs is not None):
            raise _lacking(read.name, label, ours, theirs, there)
        if found is not None:
            chosen[ours] = found
    lacking = {ours: theirs for ours, theirs in extra.items() if theirs not in there}
    chosen |= {ours: theirs for ours, theirs in extra.items() if theirs in there}
    for ours, theirs in lacking.items():
        if not (ours.startswith(CLUSTER) and theirs in PERIODS):
            raise missing_columns(read.name, {ours: theirs}, there)
    if label == "exposures" and not {"probability", "probabilities"} & set(chosen):
        chosen |= {name: name for name in there if name.startswith(PREFIX)}
    if "file_row_number" in read.table.columns:
        chosen["file_row_number"] = "file_row_number"
    table = read.table.select(**{ours: read.table[theirs] for ours, theirs in chosen.items()})
    if read.csv:
        table = without_guards(table)
    renamed = {ours: theirs for ours, theirs in chosen.items() if ours != theirs}
    file = read.paths[0] if len(read.paths) == 1 and not read.csv else None
    part = Part("", table, rows_in_file if read.ordered else rows_by_time, file)
    how = "in order of time and unit"
    if read.ordered:
        several = len(read.paths) > 1 and not read.csv
        how = "counted from 1 in each file" if several else "counted from 1 after the header"
        how = how if read.paths else "counted from 1 in the frame"
    return Log(
        read.name, table, renamed, (part,), read.ordered, how, read.secret, there=tuple(there)
    )


def _usual(ours: str, there: Sequence[str], taken: set[str]) -> str | None:
    """The column that goes by our name, or by a usual one, whatever its capitals and signs."""
    if ours in there:
        return ours
    usual = UNITS if ours == "unit" else USUAL[ours] if ours in FOUND else ()
    plain = {_plain(name): name for name in reversed(there) if name not in taken}
    return next((plain[name] for name in map(_plain, (ours, *usual)) if name in plain), None)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _lacking(
    name: str, label: str, ours: str, theirs: str | None, there: Sequence[str]
) -> InvalidInputError:
    wanted = theirs or ours
    near = nearest_column(wanted, ours, there)
    meant = f"If {near} is meant, map it" if near else "Map it"
    to = near or "NAME"
    return InvalidInputError(
        f"{name} has no column {wanted}; its columns are {strung(there, 40)}. {meant}: --column "
        f'{label}.{ours}={to} (in Python columns={{"{label}.{ours}": "{to}"}}).'
    )


def _notes(logs: Sequence[Log]) -> tuple[str, ...]:
    said = []
    for label, log in zip(TABLES, logs, strict=True):
        kinds = (*REQUIRED[label], *OPTIONAL[label])
        found = [f"{ours} is {log.columns[ours]}" for ours in kinds if ours in log.columns]
        if found:
            said.append(f"In {log.name} {', '.join(found)}.")
    return tuple(said)
