"""Journal: finished cells on disk, one line each, that a killed run can go on from.

A line is written whole and flushed to disk when its cell is finished. A line that a crash cut off
is dropped when the journal is opened; it is never taken for a result.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from steadyarm.errors import InvalidInputError
from steadyarm.figures.specification import Value
from steadyarm.files import write_atomically
from steadyarm.simulation.results import clopper_pearson

__all__ = ["CellResult", "Journal"]


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
    """Finished cells in a file of JSON lines, by the key of the cell."""

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
