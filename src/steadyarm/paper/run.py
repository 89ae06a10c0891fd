"""The cells of figures as tasks of a sweep, and results.csv."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from pathlib import Path

from steadyarm.engines import Engine
from steadyarm.files import write_atomically
from steadyarm.paper.specification import Cell, FigureWorld, figure_named
from steadyarm.sweeps import CellResult, Facts, Journal, Task, Value, Work, key_of, run_tasks

__all__ = [
    "COLUMNS",
    "PUBLISHED_COLUMNS",
    "CellResult",
    "Journal",
    "format_value",
    "results_csv",
    "run_cells",
    "task_of",
    "write_results",
]


# results.csv: every cell in one table.


PUBLISHED_COLUMNS = ("figure", "parameter", "value", "policy", "trials", "errors", "min_gap")
COLUMNS = (*PUBLISHED_COLUMNS, "low", "high", "regret", "seconds")


def results_csv(results: Iterable[CellResult]) -> str:
    """The text of results.csv: the columns of the published table, 95 % interval, regret and
    processor time of the policy.

    Examples
    --------
    >>> print(results_csv([CellResult("soare_scale", "scale", 3, "P1", 1000, 0, 0.2, 1.5, 0.0)]))
    figure,parameter,value,policy,trials,errors,min_gap,low,high,regret,seconds
    soare_scale,scale,3,P1,1000,0,0.20000000,0.00000000,0.00368208,0.00000000,1.500
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for cell in results:
        setting = cell.world, cell.parameter, format_value(cell.value), cell.policy
        numbers = [f"{x:.8f}" for x in (cell.min_gap, *cell.interval(0.95))]
        numbers.append("" if cell.regret is None else f"{cell.regret:.8f}")
        row = *setting, cell.trials, cell.errors, *numbers, f"{cell.seconds:.3f}"
        writer.writerow(row)
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


# Run the cells of figures, as any other sweep.


def run_cells(
    cells: Sequence[Cell],
    engine: Engine,
    journal: Journal,
    progress: Callable[[Work], object] | None = None,
) -> list[CellResult]:
    """Results of all cells, from the journal or computed now.

    Parameters
    ----------
    progress : called with what is done whenever that is more
    """
    return run_tasks([task_of(cell) for cell in cells], engine, journal, progress)


def task_of(cell: Cell) -> Task:
    """A cell as a task of a sweep; its world is made from names, on whichever machine computes."""
    figure, policy = figure_named(cell.figure), cell.configured_policy()
    make = partial(_cached_world, cell.figure, cell.value, figure.source())
    world = make()
    return Task(
        *(cell.figure, figure.parameter, cell.value, cell.policy_name, policy, make),
        *(world.fingerprint, Facts.of(world), cell.trials, cell.stream),
        key_of(policy, world.fingerprint, cell.trials, cell.stream, cell.figure, cell.value),
    )


@lru_cache(maxsize=64)
def _cached_world(figure: str, value: Value, source: object) -> FigureWorld:
    """`source` tells data that may change apart."""
    return figure_named(figure).world(value)
