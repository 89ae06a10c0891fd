"""Files that are never half-written, TOML, safe cells of CSV files, and data frames."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from steadyarm.errors import InvalidInputError

FrameLibrary = Literal["pandas", "polars"]

FORMULA = "=+-@\t\r"  # what a cell begins with that spreadsheets compute
WIDTH = 88  # characters of a line of TOML, up to which lists and small tables stay in one
BARE = re.compile(r"[A-Za-z0-9_-]+")
GUARDED = FORMULA + "'"  # what a text begins with that has an apostrophe put before it


def write_atomically(path: Path, content: bytes) -> Path:
    """Write into a temporary file beside `path`, then put it in its place in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def csv_cell(text: str) -> str:
    """A text as it stands in a CSV file: an apostrophe before what may be taken for a formula.

    A text that begins with an apostrophe gets another one, so that `csv_text` finds back every
    text. Only texts are guarded: a negative number stays a number.

    Examples
    --------
    >>> [csv_cell(text) for text in ("A", "=1+1", "'tis", "-5 %")]
    ['A', "'=1+1", "''tis", "'-5 %"]
    >>> [csv_text(cell) for cell in ("A", "'=1+1", "''tis", "'-5 %", "'A'")]
    ['A', '=1+1', "'tis", '-5 %', "'A'"]
    """
    return "'" + text if text[:1] and text[0] in GUARDED else text


def csv_text(cell: str) -> str:
    """The text of a cell that `csv_cell` wrote; others stay as they are."""
    return cell[1:] if cell[:1] == "'" and cell[1:2] and cell[1] in GUARDED else cell


def description_path(log: Path) -> Path:
    """Where the description of the experiment stands that a log was exported from."""
    return log.with_name(f"{log.name}.experiment.json")


def frame_of(columns: Mapping[str, Any], library: FrameLibrary) -> Any:
    """Columns of plain values or arrays as a data frame of that library."""
    plain = {
        name: column.tolist() if isinstance(column, np.ndarray) else list(column)
        for name, column in columns.items()
    }
    try:
        import narwhals

        return narwhals.from_dict(plain, backend=library).to_native()
    except ImportError as error:
        raise InvalidInputError(
            f"a data frame of {library} needs Narwhals and {library} itself ({error}); install "
            f'them: pip install "steadyarm[frames]" {library}.'
        ) from None


def toml_of(values: Mapping[str, Any]) -> str:
    """A table of texts, numbers, lists and further tables as TOML; None is left out.

    Examples
    --------
    >>> print(toml_of({"name": "shop", "arms": ["A", "B"], "control": {"A": 0.2}}), end="")
    name = "shop"
    arms = ["A", "B"]
    control = { A = 0.2 }
    """
    given = {key: value for key, value in values.items() if value is not None}
    return "\n".join(_table(given, ())) + "\n"


def _table(values: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    """Lines of a table: first what fits on lines of its own, then the tables within."""
    later: list[tuple[str, Mapping[str, Any]]] = []
    for key, value in values.items():
        line = f"{_key(key)} = {_value(value)}"
        if isinstance(value, Mapping):
            if len(line) > WIDTH or any(isinstance(v, (Mapping, list)) for v in value.values()):
                later.append((key, value))
            else:
                yield line
        elif isinstance(value, (list, tuple)) and len(line) > WIDTH:
            yield from (f"{_key(key)} = [", *(f"    {_value(entry)}," for entry in value), "]")
        else:
            yield line
    for key, value in later:
        yield from ("", f"[{'.'.join(map(_key, (*path, key)))}]")
        yield from _table(value, (*path, key))


def _value(value: Any) -> str:
    """A value on one line; in JSON and TOML texts, numbers and lists of these are the same."""
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(key)} = {_value(entry)}" for key, entry in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_value, value))}]"
    if not isinstance(value, (str, bool, int, float)):
        raise InvalidInputError(f"{value!r} cannot be written as TOML; expected texts and numbers.")
    text = json.dumps(value, ensure_ascii=False).replace("\x7f", r"\u007F")
    return {"Infinity": "inf", "-Infinity": "-inf", "NaN": "nan"}.get(text, text)


def _key(key: str) -> str:
    return key if BARE.fullmatch(key) else _value(key)
