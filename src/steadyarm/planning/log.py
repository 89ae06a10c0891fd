"""What last quarter's log says: a small reader of CSV files with an arm and a reward a row."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

import numpy as np

from steadyarm.errors import InvalidInputError
from steadyarm.files import csv_text
from steadyarm.wording import counted

__all__ = ["LogSummary", "read_log"]


@dataclass(frozen=True)
class LogSummary:
    """Per arm, in order of appearance: name and mean; over all: the noise.

    Attributes
    ----------
    sd : standard deviation of rewards around the means of their arms
    conversions : whether all rewards are 0 or 1
    """

    names: tuple[str, ...]
    means: tuple[float, ...]
    sd: float
    conversions: bool


def read_log(path: Path) -> LogSummary:
    """Summarise a CSV file with the columns arm and reward; others are ignored."""
    sums: dict[str, list[float]] = {}
    conversions = True
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file)
            if not {"arm", "reward"} <= set(rows.fieldnames or ()):
                raise InvalidInputError(
                    f"{path} has the columns {', '.join(rows.fieldnames or ['none'])}; expected "
                    "a first line that names at least arm and reward."
                )
            for row in rows:
                reward = _number(row["reward"], path, rows.line_num)
                arm = csv_text((row["arm"] or "").strip())
                if not arm:
                    raise InvalidInputError(
                        f"{path}, line {rows.line_num}: the arm is empty; expected its name."
                    )
                conversions = conversions and reward in (0.0, 1.0)
                seen = sums.setdefault(arm, [0.0, 0.0, 0.0])
                seen[0] += 1
                delta = reward - seen[1]  # Welford's running mean and squares
                seen[1] += delta / seen[0]
                seen[2] += delta * (reward - seen[1])
    except FileNotFoundError:
        raise InvalidInputError(
            f"effects.log: {path} does not exist; give a CSV file with the columns arm and reward."
        ) from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidInputError(f"the log {path} cannot be read: {error}") from None
    if len(sums) < 2:
        raise InvalidInputError(f"{path} has {counted(len(sums), 'arm')}; a test needs at least 2.")
    table = np.array(list(sums.values()))
    freedom = table[:, 0].sum() - len(table)
    sd = float(np.sqrt(table[:, 2].sum() / freedom)) if freedom > 0 else 0.0
    if not sd > 0:
        raise InvalidInputError(
            f"all rewards of each arm in {path} are the same; there is no noise to plan for."
        )
    return LogSummary(tuple(sums), tuple(table[:, 1].tolist()), sd, conversions)


def _number(text: str | None, path: Path, line: int) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = float("nan")
    if not isfinite(value):
        raise InvalidInputError(
            f"{path}, line {line}: the reward is {text!r}; expected a number. Leave out rows "
            "whose reward is not known."
        )
    return value
