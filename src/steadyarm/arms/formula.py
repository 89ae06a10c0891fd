"""Arms from a formula and a table: the extra `formula`, with formulaic and Narwhals.

Columns of any kind of frame become plain ones first, so that the same table gives the same arms
whichever library holds it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from scipy.sparse import csr_array

from steadyarm.arms.recipes import CONSTANT, listing, name_list
from steadyarm.errors import InvalidInputError, MissingExtraError

INTERCEPT = "Intercept"  # what formulaic calls it
MOSTLY = 0.25  # share of entries that are not zero, above which a table is kept dense

T = TypeVar("T")


def read_formula(
    formula: str, frame: Any, names: str | Sequence[str] | None
) -> tuple[Any, Sequence[str] | None, list[str]]:
    """Features (dense or sparse), names of the arms and of the features; see `from_formula`."""
    try:
        import formulaic  # type: ignore[import-untyped]  # it has no types
        import narwhals.stable.v2 as narwhals
    except ImportError as error:
        raise MissingExtraError(
            f"a formula needs {error.name}; install it with: pip install 'steadyarm[formula]'"
        ) from None
    if not isinstance(formula, str):
        raise InvalidInputError(f"the formula is {formula!r}; expected a text such as 'a * b'.")
    table = _table(frame, narwhals)
    there = [name for name in table.columns if isinstance(name, str)]
    parsed = _parsed(formula, there, formulaic)
    plain = {name: _plain(table[name], name, narwhals) for name in _used(parsed, there)}
    matrix = _matrix(formula, parsed, plain, len(table), there)
    columns = list(matrix.model_spec.column_names)
    features = csr_array(matrix, dtype=np.float64)
    _check_finite(features, columns)
    categories = _categories(matrix.model_spec, plain)
    arms: Sequence[str] | None
    if names is None:
        arms = _names_of(categories, len(table))
    elif isinstance(names, str):
        arms = _names_in(table, names, narwhals)
    else:
        arms = name_list(names, "names")
    dense = features.nnz > MOSTLY * features.shape[0] * features.shape[1]
    return features.toarray() if dense else features, arms, _readable(columns, categories)


def _table(frame: Any, narwhals: Any) -> Any:
    """The frame through Narwhals; lazy ones are collected."""
    if isinstance(frame, Mapping):
        import pandas

        def made() -> Any:
            return pandas.DataFrame({name: list(column) for name, column in frame.items()})

        frame = _guarded(made, "the mapping is not a table of columns, all of the same length")
    try:
        table = narwhals.from_native(getattr(frame, "to_native", lambda: frame)())
    except TypeError:
        raise InvalidInputError(
            f"the frame is a {type(frame).__name__}; expected a frame of pandas, Polars, PyArrow "
            "or another library that Narwhals reads, or a mapping of names to columns."
        ) from None
    except ValueError as error:
        text = " ".join(str(error).split())
        raise InvalidInputError(f"the frame cannot be read: {text}.") from None
    if isinstance(table, narwhals.LazyFrame):
        table = _guarded(table.collect, "the lazy frame cannot be computed")
    if len(table) < 2:
        raise InvalidInputError(f"the frame has {len(table)} rows; a test needs at least 2 arms.")
    return table


def _parsed(formula: str, columns: Sequence[str], formulaic: Any) -> Any:
    """The terms of the formula; it has one side, and its columns are in the table."""
    there = {"__formulaic_variables_available__": list(columns)}  # for the dot
    parsed = _guarded(
        lambda: formulaic.Formula(formula, _context=there),
        f"the formula {formula!r} cannot be read",
    )
    if not isinstance(parsed, formulaic.SimpleFormula):
        raise InvalidInputError(
            f"the formula {formula!r} has several parts; expected one without '~' and '|' that "
            "says what the arms' values depend on. Rewards are no part of it."
        )
    unknown = sorted(set(map(str, parsed.required_variables)) - set(columns))
    if unknown:
        raise InvalidInputError(
            f"the formula {formula!r} has {unknown[0]!r} in it, which is neither a column nor a "
            f"function it may use; the columns are {listing(columns)}."
        )
    return parsed


def _used(parsed: Any, columns: Sequence[str]) -> list[str]:
    """The columns that stand in the formula, in the order of the table."""
    text = "\n".join(factor.expr for term in parsed for factor in term.factors)
    return [name for name in columns if re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", text)]


def _plain(column: Any, name: str, narwhals: Any) -> Any:
    """A column of numbers, truth values, texts or categories, as formulaic takes them."""
    import pandas

    kind = column.dtype
    missing = column.is_null()
    if kind.is_float():
        missing = missing | column.is_nan()
    if missing.any():
        row = int(np.flatnonzero(missing.to_numpy())[0])
        raise InvalidInputError(
            f"row {row} has no value in column {name!r}; fill it in or leave the row out."
        )
    if kind.is_numeric():
        whole = kind.is_integer()
        return column.cast(narwhals.Int64 if whole else narwhals.Float64).to_numpy()
    if kind == narwhals.Boolean:
        return column.to_numpy().astype(bool)
    if kind in (narwhals.Categorical, narwhals.Enum):
        texts, levels = column.to_list(), column.cat.get_categories().to_list()
        if column.implementation.is_polars() and kind == narwhals.Categorical:
            levels = sorted(levels)  # Polars has them in the order in which it first met them
        there = set(texts)
        return pandas.Categorical(texts, [level for level in levels if level in there])
    if kind in (narwhals.String, narwhals.Object):
        return np.array(column.to_list(), dtype=object)
    raise InvalidInputError(
        f"column {name!r} is of type {kind}; a formula takes numbers, texts, truth values and "
        "categories. Convert it or leave it out."
    )


def _matrix(
    formula: str, parsed: Any, plain: dict[str, Any], rows: int, columns: Sequence[str]
) -> Any:
    import pandas

    def made() -> Any:
        table = pandas.DataFrame(plain, index=range(rows))
        with np.errstate(all="ignore"):  # what is not finite is refused below
            return parsed.get_model_matrix(table, context={}, output="sparse", na_action="ignore")

    matrix = _guarded(
        made, f"the formula {formula!r} cannot be computed", f"The columns are {listing(columns)}."
    )
    if matrix.shape[0] != rows:
        raise InvalidInputError(
            f"the formula {formula!r} gives {matrix.shape[0]} rows of {rows}; expected one an arm."
        )
    return matrix


def _check_finite(features: csr_array[np.float64], columns: list[str]) -> None:
    bad = np.flatnonzero(~np.isfinite(features.data))
    if bad.size:
        row = int(np.searchsorted(features.indptr, bad[0], side="right")) - 1
        raise InvalidInputError(
            f"row {row} has {features.data[bad[0]]} in {columns[features.indices[bad[0]]]!r}; all "
            "features must be finite numbers."
        )


def _categories(spec: Any, plain: dict[str, Any]) -> dict[str, Any]:
    """The columns that are categories: by their type, or since the formula makes them so."""
    made = {
        str(variable)
        for factor, variables in spec.factor_variables.items()
        if spec.encoder_state.get(factor.expr, (None,))[0] == factor.Kind.CATEGORICAL
        for variable in variables
    }
    return {
        name: column
        for name, column in plain.items()
        if name in made or not np.issubdtype(np.asarray(column).dtype, np.number)
    }


def _names_of(categories: dict[str, Any], rows: int) -> list[str] | None:
    """Names such as "headline=short, image=cat", of what varies; None if arms share one."""
    varying = [
        [f"{name}={level}" for level in column]
        for name, column in categories.items()
        if len(set(column)) > 1
    ]
    names = [", ".join(parts) for parts in zip(*varying, strict=True)]
    good = len(set(names)) == rows and all(name.isprintable() for name in names)
    return names if good else None


def _names_in(table: Any, column: str, narwhals: Any) -> list[str]:
    if column not in table.columns:
        raise InvalidInputError(
            f"there is no column {column!r} for the names; the columns are "
            f"{listing(table.columns)}."
        )
    return [str(name) for name in _plain(table[column], column, narwhals)]


def _readable(columns: list[str], categories: dict[str, Any]) -> list[str]:
    """Names of features as elsewhere: "image=cat" for the column that is 1 where image is cat."""
    short: dict[str, str | None] = {INTERCEPT: CONSTANT}
    for name, column in categories.items():
        for level in dict.fromkeys(column):
            for head in (name, f"C({name})", f"C(`{name}`)"):
                for sign in ("", "T."):
                    long = f"{head}[{sign}{level}]"
                    short[long] = None if long in short else f"{name}={level}"
    known = {long: brief for long, brief in short.items() if brief is not None}
    longest = sorted(map(re.escape, known), key=len, reverse=True)
    pattern = re.compile(rf"(?:(?<=:)|^)(?:{'|'.join(longest)})(?=:|$)")
    names = [pattern.sub(lambda found: known[found.group()], name) for name in columns]
    return names if len(set(names)) == len(names) else columns


def _guarded(work: Callable[[], T], what: str, advice: str = "") -> T:
    """What `work` returns; any error of the libraries becomes one of ours."""
    try:
        return work()
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise InvalidInputError(f"{what}: {lines[0].strip('. ')}. {advice}".strip()) from None
