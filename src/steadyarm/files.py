"""Files that are never half-written, and texts in CSV files that spreadsheets must not compute."""

from __future__ import annotations

import os
from pathlib import Path

FORMULA = "=+-@\t\r"  # what a cell begins with that spreadsheets compute
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
