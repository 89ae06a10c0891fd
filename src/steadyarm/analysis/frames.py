"""DataFrames as logs: DuckDB reads them where they are in memory, or from a stream once.

pandas frames, Arrow tables and Arrow datasets are scanned in place, column by column as a query
needs them. Other frames become Arrow tables, which share their memory where both keep values alike
(polars does, but for text). What can be read only once (record batch readers, relations of another
connection, anything else with an Arrow stream) goes into a temporary table of DuckDB.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from steadyarm.errors import InvalidInputError

Wanted = Callable[[str], bool]  # whether a column may be asked for
STREAM = "__arrow_c_stream__"  # of the Arrow PyCapsule interface


def is_frame(source: Any) -> bool:
    """Whether a source is a table in memory, or a stream of one."""
    if source is None or isinstance(source, (str, bytes, Path, list, tuple, dict)):
        return False
    return hasattr(source, STREAM) or _is_dataset(source) or _in_narwhals(source) is not None


def everything(name: str) -> bool:
    """Any column is wanted."""
    return True


def frame_table(connection: Any, label: str, frame: Any, wanted: Wanted = everything) -> Any:
    """The frame as a table of an Ibis connection to DuckDB, which keeps the frame alive.

    Parameters
    ----------
    label : the table's name in SQL
    wanted : whether a column may be asked for. A lazy frame computes no others, and no others need
        be of a type that DuckDB knows
    """
    _refuse_series(frame)
    frame = _with_index(frame)
    if _is_dataset(frame) or _is_pandas(frame) or _is_arrow_table(frame):
        _register(connection, label, frame, wanted)
    elif hasattr(wrapped := _in_narwhals(frame), "to_arrow") or not hasattr(frame, STREAM):
        _register(connection, label, _as_arrow(wrapped, wanted), wanted)
    else:
        import pyarrow

        connection.con.register(f"{label} once", pyarrow.RecordBatchReader.from_stream(frame))
        connection.raw_sql(f'CREATE TEMP TABLE "{label}" AS SELECT * FROM "{label} once"')
        connection.con.unregister(f"{label} once")
    return connection.table(label)


def _in_narwhals(source: Any) -> Any:
    """The frame as Narwhals wraps it, or None if it is none to it."""
    import narwhals

    found = narwhals.from_native(source, pass_through=True)
    return found if isinstance(found, (narwhals.DataFrame, narwhals.LazyFrame)) else None


def _is_pandas(frame: Any) -> bool:
    import narwhals.dependencies

    return narwhals.dependencies.is_pandas_dataframe(frame)


def _is_arrow_table(frame: Any) -> bool:
    import pyarrow

    return isinstance(frame, (pyarrow.Table, pyarrow.RecordBatch))


def _is_dataset(source: Any) -> bool:
    import pyarrow.dataset

    return isinstance(source, pyarrow.dataset.Dataset)


def _refuse_series(frame: Any) -> None:
    import narwhals.dependencies

    if narwhals.dependencies.is_into_series(frame):
        raise InvalidInputError(
            f"the log is a {type(frame).__name__}, which is one column; expected a DataFrame with "
            "the columns timestamp, arm, probability and reward."
        )


def _with_index(frame: Any) -> Any:
    """A pandas frame whose named index levels are columns, too, such as a time stamp."""
    if not _is_pandas(frame):
        return frame
    levels = [name for name in frame.index.names if name is not None and name not in frame.columns]
    if not levels:
        return frame
    drop = [i for i, name in enumerate(frame.index.names) if name not in levels]
    kept = frame.reset_index(level=drop, drop=True) if drop else frame
    return kept.reset_index()


def _as_arrow(wrapped: Any, wanted: Wanted) -> Any:
    """An Arrow table of a frame that Narwhals knows; of the wanted columns."""
    import narwhals

    wrapped = wrapped.select([name for name in wrapped.collect_schema().names() if wanted(name)])
    if isinstance(wrapped, narwhals.LazyFrame):
        wrapped = wrapped.collect("pyarrow")
    return wrapped.to_arrow()


def _register(connection: Any, label: str, frame: Any, wanted: Wanted) -> None:
    """Let DuckDB scan a frame; columns of a type that it does not know are left out."""
    names = _names(frame)
    if not names:
        raise InvalidInputError("the frame has no columns; expected those of a log.")
    twice = {name for name in names if names.count(name) > 1}
    if said := sorted(filter(wanted, twice)):
        raise InvalidInputError(
            f"the frame has several columns called {said[0]!r}; rename or drop all but one."
        )
    register = connection.con.register
    try:
        register(label, frame)
        connection.table(label)  # DuckDB looks at types of Arrow columns only now
        return
    except Exception as error:
        if _is_dataset(frame) or twice:
            raise
        problem: Exception = error
    fine = []
    for name in names:
        one = _columns(frame, [name])
        try:
            register(f"{label} column", one)
            connection.table(f"{label} column")
            fine.append(name)
        except Exception as error:
            if wanted(name):
                kind = one.dtypes.iloc[0] if _is_pandas(frame) else one.schema.field(0).type
                raise InvalidInputError(
                    f"the column {name!r} of the frame has type {kind}, which DuckDB cannot read; "
                    "turn it into numbers, text or time stamps first."
                ) from error
    if not fine or len(fine) == len(names):
        raise problem
    register(label, _columns(frame, fine))


def _names(frame: Any) -> list[str]:
    if _is_pandas(frame):
        return [str(name) for name in frame.columns]
    return list(frame.schema.names)


def _columns(frame: Any, names: list[str]) -> Any:
    if _is_pandas(frame):
        return frame.loc[:, [str(name) in names for name in frame.columns]]
    return frame.select(names)
