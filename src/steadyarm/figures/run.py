"""Run the cells of figures: chunk by chunk on an engine, journalled, never twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import lru_cache

from steadyarm.figures.catalogue import figure_named
from steadyarm.figures.journal import CellResult, Journal
from steadyarm.figures.specification import Cell, FigureWorld, Value
from steadyarm.simulation.engines import Engine
from steadyarm.simulation.simulate import chunk_sizes, run_chunk

__all__ = ["run_cells", "work_of"]


def run_cells(
    cells: Sequence[Cell],
    engine: Engine,
    journal: Journal,
    progress: Callable[[int], object] | None = None,
) -> list[CellResult]:
    """Results of all cells, from the journal or computed now.

    Parameters
    ----------
    progress : called with the rounds played whenever some are done, see `work_of`
    """
    missing = [cell for cell in cells if journal.get(_key(cell)) is None]
    calls = [(cell, chunk) for cell in missing for chunk in range(len(chunk_sizes(cell.trials)))]
    left = {cell: len(chunk_sizes(cell.trials)) for cell in missing}
    errors, seconds = dict.fromkeys(missing, 0), dict.fromkeys(missing, 0.0)
    for place, (wrong, took) in engine.run(run_unit, calls):
        cell, chunk = calls[place]
        errors[cell] += wrong
        seconds[cell] += took
        left[cell] -= 1
        if left[cell] == 0:
            journal.add(_key(cell), _result(cell, errors[cell], seconds[cell]))
        if progress is not None:
            progress(chunk_sizes(cell.trials)[chunk] * _world(cell.figure, cell.value).budget)
    found = [journal.get(_key(cell)) for cell in cells]
    return [result for result in found if result is not None]


def run_unit(cell: Cell, chunk: int) -> tuple[int, float]:
    """Errors and seconds of one chunk of a cell: a pure function, wherever it runs."""
    world = _world(cell.figure, cell.value)
    start = time.perf_counter()
    size = chunk_sizes(cell.trials)[chunk]
    arms = run_chunk(cell.configured_policy(), world, cell.stream, chunk, size)
    return int((arms != world.best_arm).sum()), time.perf_counter() - start


def work_of(cells: Sequence[Cell], journal: Journal) -> tuple[int, int]:
    """Rounds in all cells, and rounds in those that the journal has already."""
    rounds = {cell: cell.trials * _world(cell.figure, cell.value).budget for cell in cells}
    done = sum(rounds[cell] for cell in cells if journal.get(_key(cell)) is not None)
    return sum(rounds.values()), done


@lru_cache(maxsize=64)
def _world(figure: str, value: Value) -> FigureWorld:
    return figure_named(figure).world(value)


def _key(cell: Cell) -> str:
    return cell.key(_world(cell.figure, cell.value).fingerprint)


def _result(cell: Cell, errors: int, seconds: float) -> CellResult:
    figure, world = figure_named(cell.figure), _world(cell.figure, cell.value)
    return CellResult(
        cell.figure,
        figure.parameter,
        cell.value,
        cell.policy,
        cell.trials,
        errors,
        world.gap,
        seconds,
    )
