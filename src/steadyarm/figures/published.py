"""The error counts behind the paper's figures, as facts to compare with."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib import resources

from steadyarm.figures.specification import Value

__all__ = ["Published", "published_counts"]


@dataclass(frozen=True)
class Published:
    """A published cell."""

    errors: int
    trials: int
    min_gap: float | None

    @property
    def error_rate(self) -> float:
        """Share of wrong recommendations."""
        return self.errors / self.trials


@cache
def published_counts() -> dict[tuple[str, Value, str], Published]:
    """All 324 published cells by (figure, value, policy).

    Examples
    --------
    >>> cell = published_counts()["soare_stationary", 1010, "P1-RAGE"]
    >>> cell.errors, cell.trials
    (1119, 21000)
    """
    text = (resources.files("steadyarm.figures") / "published_results.csv").read_text()
    return {
        (row["figure"], int(row["value"]) if row["value"] else None, row["policy"]): Published(
            int(row["errors"]),
            int(row["trials"]),
            float(row["min_gap"]) if row["min_gap"] else None,
        )
        for row in csv.DictReader(text.splitlines())
    }
