"""Run the cells of figures: chunk by chunk on an engine, journalled, never twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import lru_cache

from steadyarm import __version__
from steadyarm.errors import InvalidInputError
from steadyarm.figures.catalogue import figure_named
from steadyarm.figures.journal import CellResult, Journal
from steadyarm.figures.specification import Cell, FigureWorld, Value
from steadyarm.simulation.engines import Engine
from steadyarm.simulation.simulate import chunk_count, chunk_size, run_chunk

__all__ = ["key_of", "run_cells", "run_unit", "work_of"]


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
    missing = [cell for cell in cells if journal.get(key_of(cell)) is None]
    worlds = {cell: _world(cell).fingerprint for cell in missing}
    calls = [
        (cell, chunk, worlds[cell], __version__)
        for cell in missing
        for chunk in range(chunk_count(cell.trials))
    ]
    left = {cell: chunk_count(cell.trials) for cell in missing}
    errors, seconds = dict.fromkeys(missing, 0), dict.fromkeys(missing, 0.0)
    for place, (wrong, took) in engine.run(run_unit, calls):
        cell, chunk, _, _ = calls[place]
        errors[cell] += wrong
        seconds[cell] += took
        left[cell] -= 1
        if left[cell] == 0:
            journal.add(key_of(cell), _result(cell, errors[cell], seconds[cell]))
        if progress is not None:
            progress(chunk_size(cell.trials, chunk) * _world(cell).budget)
    found = [journal.get(key_of(cell)) for cell in cells]
    return [result for result in found if result is not None]


def run_unit(cell: Cell, chunk: int, fingerprint: str, version: str) -> tuple[int, float]:
    """Errors and seconds of one chunk of a cell: a pure function, wherever it runs.

    The world and the version are compared with those of who asked: a worker with other data or
    other code must not answer.
    """
    world = _world(cell)
    if (world.fingerprint, __version__) != (fingerprint, version):
        raise InvalidInputError(
            f"this worker has another world for {cell.figure} {cell.value} or another version of "
            f"SteadyArm ({__version__}, asked for {version}); give all workers the same data and "
            "code."
        )
    start = time.perf_counter()
    size = chunk_size(cell.trials, chunk)
    arms = run_chunk(cell.configured_policy(), world, cell.stream, chunk, size)
    return int((arms != world.best_arm).sum()), time.perf_counter() - start


def work_of(cells: Sequence[Cell], journal: Journal) -> tuple[int, int]:
    """Rounds in all cells, and rounds in those that the journal has already."""
    rounds = {cell: cell.trials * _world(cell).budget for cell in cells}
    done = sum(rounds[cell] for cell in cells if journal.get(key_of(cell)) is not None)
    return sum(rounds.values()), done


def key_of(cell: Cell) -> str:
    """The key of a cell's result in the journal."""
    return cell.key(_world(cell).fingerprint)


def _world(cell: Cell) -> FigureWorld:
    return _cached_world(cell.figure, cell.value, figure_named(cell.figure).source())


@lru_cache(maxsize=64)
def _cached_world(figure: str, value: Value, source: object) -> FigureWorld:
    """`source` tells data that may change apart."""
    return figure_named(figure).world(value)


def _result(cell: Cell, errors: int, seconds: float) -> CellResult:
    figure, world = figure_named(cell.figure), _world(cell)
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
