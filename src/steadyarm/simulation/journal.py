"""The journal of a comparison: finished results as JSON lines, so that it can be resumed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from steadyarm.errors import InvalidInputError
from steadyarm.simulation.simulate import Results
from steadyarm.wording import write_atomically

FIELDS = (
    "policy", "recommended", "regrets", "best_arm", "seconds", "world", "parameter", "value",
    "budget", "arms", "features", "gap", "noise", "cumulative_regret",
)  # fmt: skip  # a table reads better so


class Journal:
    """Results by key in a file of JSON lines; a line that a crash cut off is dropped.

    path : the path of the file; None keeps results in memory alone
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._results: dict[str, Results] = {}
        if path is not None:
            if path.is_dir():
                raise InvalidInputError.of("journal", str(path), "the name of a file, no folder")
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._results = _read(path)
            except OSError as error:
                raise InvalidInputError(
                    f"the journal {path} cannot be read or written ({error}); give another file."
                ) from None

    def get(self, key: str) -> Results | None:
        """The result with this key, if it is finished."""
        return self._results.get(key)

    def add(self, key: str, results: Results) -> None:
        """Store a result; its line is in the file when this returns."""
        self._results[key] = results
        if self.path is not None:
            with self.path.open("ab") as file:
                file.write(_line(key, results))

    def drop(self, keys: Iterable[str]) -> None:
        """Forget the results with these keys, and only those."""
        for key in keys:
            self._results.pop(key, None)
        if self.path is not None:
            lines = [_line(key, results) for key, results in self._results.items()]
            write_atomically(self.path, b"".join(lines))


def _line(key: str, results: Results) -> bytes:
    entry = {"key": key} | {name: getattr(results, name) for name in FIELDS}
    return json.dumps(entry).encode() + b"\n"


def _read(path: Path) -> dict[str, Results]:
    if not path.exists():
        return {}
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    results = {}
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            entry = json.loads(line)
            key = entry.pop("key")
            results[key] = _results(entry)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise InvalidInputError(
                f"line {number} of {path} is not a result; remove the file, or give another one."
            ) from None
    if len(whole) < len(content):
        with path.open("r+b") as file:
            file.truncate(len(whole))
    return results


def _results(entry: dict[str, Any]) -> Results:
    for name in ("recommended", "regrets"):
        if entry[name] is not None:
            entry[name] = {int(arm): value for arm, value in entry[name].items()}
    return Results(**entry)
