"""Real servers, killed at random moments and raced."""

from __future__ import annotations

import pytest

from benchmarks.traffic.faults import kill_under_load
from benchmarks.traffic.race import race_for_units
from benchmarks.traffic.rolling import roll_out_under_kills
from benchmarks.traffic.servers import storages


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_a_crash_loses_nothing_and_doubles_nothing(backend: str) -> None:
    with storages(backend) as (url, database):
        left = kill_under_load(url, database, kills=2, pause=(0.2, 0.8))
    assert left.faults == ()
    assert (left.lost, left.doubled) == (0, 0)
    assert min(left.assigned, left.told) > 50  # there was load


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_a_race_for_the_same_units_gives_one_assignment_each(backend: str) -> None:
    with storages(backend) as (url, _):
        race = race_for_units(url, clients=32, units=25, processes=2)
    assert race.faults == ()
    assert race.requests == 800


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_no_unit_changes_its_variant_unless_the_operator_says_so(backend: str) -> None:
    with storages(backend) as (url, database):
        rolled = roll_out_under_kills(url, database, units=40)
    assert rolled.faults == ()
    assert rolled.kills == 5
    assert rolled.changes > 40  # what was rolled out reached many
