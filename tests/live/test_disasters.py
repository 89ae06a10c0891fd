"""Real servers, killed at random moments and raced; how_safe_is_a_crash.py does more of it."""

from __future__ import annotations

import pytest

from benchmarks.traffic.crash import crash_under_load
from benchmarks.traffic.race import race_for_units
from benchmarks.traffic.servers import storages


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_a_crash_loses_nothing_and_doubles_nothing(backend: str) -> None:
    with storages(backend) as (url, database):
        left = crash_under_load(url, database, kills=2, pause=(0.2, 0.8))
    assert left.faults == ()
    assert left.database_kills == (backend == "postgresql")
    assert min(left.assigned, left.told) > 50  # there was load


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_a_race_for_the_same_units_gives_one_assignment_each(backend: str) -> None:
    with storages(backend) as (url, _):
        race = race_for_units(url, workers=4, clients=32, units=50)
    assert race.faults == ()
    assert race.requests == 1600
