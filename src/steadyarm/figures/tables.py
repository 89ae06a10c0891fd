"""results.csv: every cell in one table."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path

from steadyarm.figures.journal import CellResult
from steadyarm.figures.specification import Value
from steadyarm.files import write_atomically

__all__ = ["COLUMNS", "format_value", "results_csv", "write_results"]

PUBLISHED_COLUMNS = ("figure", "parameter", "value", "policy", "trials", "errors", "min_gap")
COLUMNS = (*PUBLISHED_COLUMNS, "low", "high", "seconds")


def results_csv(results: Iterable[CellResult]) -> str:
    """The text of results.csv: the columns of the published table, 95 % interval and seconds.

    Examples
    --------
    >>> print(results_csv([CellResult("soare_scale", "scale", 3, "P1", 1000, 0, 0.2, 1.5)]))
    figure,parameter,value,policy,trials,errors,min_gap,low,high,seconds
    soare_scale,scale,3,P1,1000,0,0.20000000,0.00000000,0.00368208,1.500
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for cell in results:
        low, high = cell.interval(0.95)
        writer.writerow(
            [
                cell.figure,
                cell.parameter,
                format_value(cell.value),
                cell.policy,
                cell.trials,
                cell.errors,
                f"{cell.min_gap:.8f}",
                f"{low:.8f}",
                f"{high:.8f}",
                f"{cell.seconds:.3f}",
            ]
        )
    return text.getvalue()


def write_results(results: Iterable[CellResult], path: Path) -> Path:
    """Write results.csv; a reader sees the old file or the new one, nothing between."""
    return write_atomically(path, results_csv(results).encode())


def format_value(value: Value) -> str:
    """A parameter's value as in the published table: whole numbers without a point, "" for none.

    Examples
    --------
    >>> format_value(1010.0), format_value(2.5), format_value(None)
    ('1010', '2.5', '')
    """
    if value is None:
        return ""
    return str(int(value)) if value == int(value) else repr(float(value))
