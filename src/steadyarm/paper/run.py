"""Run the cells of figures on an engine, and keep what is finished: a journal, and results.csv."""

from __future__ import annotations

import csv
import io
import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from steadyarm import __version__
from steadyarm.errors import InvalidInputError
from steadyarm.files import write_atomically
from steadyarm.paper.specification import Cell, FigureWorld, Value, figure_named
from steadyarm.simulation import Engine, chunk_count, chunk_size, clopper_pearson, run_chunk


@dataclass(frozen=True)
class CellResult:
    """What one cell gave; the columns of results.csv.

    `value` is None where the figure has a single setting; `seconds` is computing time over all
    chunks.
    """

    figure: str
    parameter: str
    value: Value
    policy: str
    trials: int
    errors: int
    min_gap: float
    seconds: float

    @property
    def error_rate(self) -> float:
        """Share of wrong recommendations."""
        return self.errors / self.trials

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Exact interval for the probability of error."""
        return clopper_pearson(self.errors, self.trials, level)


class Journal:
    """Finished cells in a file of JSON lines, which a run that was killed goes on from.

    A line is written whole and flushed to disk when its cell is finished. A line that a crash cut
    off is dropped when the journal is opened; it is never taken for a result.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._results = self._read()

    def get(self, key: str) -> CellResult | None:
        """The result with this key, if it was finished before."""
        return self._results.get(key)

    def add(self, key: str, result: CellResult) -> None:
        """Keep a result; it is on disk when this returns."""
        with self.path.open("ab") as file:
            file.write(_line(key, result))
            file.flush()
            os.fsync(file.fileno())
        self._results[key] = result

    def drop(self, keys: Iterable[str]) -> None:
        """Forget the results with these keys, and only those."""
        for key in keys:
            self._results.pop(key, None)
        lines = [_line(key, result) for key, result in self._results.items()]
        write_atomically(self.path, b"".join(lines))

    def _read(self) -> dict[str, CellResult]:
        if not self.path.exists():
            return {}
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):  # a crash cut the last line off
            with self.path.open("r+b") as file:
                file.truncate(len(whole))
        results = {}
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                entry: dict[str, Any] = json.loads(line)
                key = entry.pop("key")
                results[key] = CellResult(**entry)
                results[key].interval()  # counts that are none
            except (ValueError, TypeError, KeyError, AttributeError):
                raise InvalidInputError(
                    f"line {number} of {self.path} is not a result; start afresh with "
                    "--no-resume, or in another folder."
                ) from None
        return results


def _line(key: str, result: CellResult) -> bytes:
    return json.dumps({"key": key} | asdict(result)).encode() + b"\n"


# results.csv: every cell in one table.


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
        setting = cell.figure, cell.parameter, format_value(cell.value), cell.policy
        gap, low, high = (f"{x:.8f}" for x in (cell.min_gap, *cell.interval(0.95)))
        row = *setting, cell.trials, cell.errors, gap, low, high, f"{cell.seconds:.3f}"
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


# Run the cells of figures: chunk by chunk on an engine, journalled, never twice.


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
            found = CellResult(
                *(cell.figure, figure_named(cell.figure).parameter, cell.value, cell.policy),
                *(cell.trials, errors[cell], _world(cell).gap, seconds[cell]),
            )
            journal.add(key_of(cell), found)
        if progress is not None:
            progress(chunk_size(cell.trials, chunk) * _world(cell).budget)
    results = [journal.get(key_of(cell)) for cell in cells]
    return [result for result in results if result is not None]


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
