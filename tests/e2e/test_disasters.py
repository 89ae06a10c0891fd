"""Real servers, killed at random moments and raced; receivers that fail or are not there."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest

import steadyarm as sa
from benchmarks.traffic.faults import kill_under_load
from benchmarks.traffic.race import race_for_units
from benchmarks.traffic.rolling import roll_out_under_kills
from benchmarks.traffic.servers import storages
from steadyarm.service.webhooks import new_endpoint
from steadyarm.storages import open_storage
from steadyarm.storages.storage import Storage
from tests.service.clients import Receiver, Server, receiving, served, until
from tests.storages.databases import fresh_database


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_a_crash_loses_nothing_and_doubles_nothing(backend: str) -> None:
    with storages(backend) as (url, database):
        left = kill_under_load(url, database, kills=2, pause=(0.2, 0.5))
    assert left.faults == ()
    assert (left.lost, left.doubled) == (0, 0)
    assert min(left.assigned, left.told) > 50  # there was load


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_a_race_for_the_same_units_gives_one_assignment_each(backend: str) -> None:
    with storages(backend) as (url, _):
        race = race_for_units(url, clients=16, units=25, processes=2)
    assert race.faults == ()
    assert race.requests == 400


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_no_unit_changes_its_variant_unless_the_operator_says_so(backend: str) -> None:
    with storages(backend) as (url, database):
        rolled = roll_out_under_kills(url, database, viewers=2, units=40, pause=(0.2, 0.6))
    assert rolled.faults == ()
    assert rolled.kills == 5
    assert rolled.changes > 20  # what was rolled out reached many


# Every process of the server reads this when it starts: leases of a second, pauses below one.
HURRY = """
from steadyarm.service import webhooks
webhooks.SENDING = webhooks.WATCHING = 0.2
webhooks.TURN = webhooks.LEASE = 1_500_000
webhooks.FIRST, webhooks.FACTOR, webhooks.LONGEST = 0.2, 1.5, 2.0
"""


def server(folder: Path, url: str) -> AbstractContextManager[Server]:
    (folder / "sitecustomize.py").write_text(HURRY)
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    return served(folder, "--storage", url, PYTHONPATH=path)


def run_tests(storage: Storage, *names: str) -> None:
    """Tests in Python on the same storage, without the service, from their start to their end."""
    for name in names:
        test = sa.create_experiment(name, ["A", "B"], sa.Uniform(), 4, storage, missing="drop")
        for i in range(4):
            test.tell(test.ask(f"visitor {i}"), 1.0)
        test.stop()


def is_over(storage: Storage) -> bool:
    """Whether the end of all tests was noticed and all messages were accepted."""
    notices = storage.webhooks.notices()
    over = {key for key, notice in notices.items() if notice.state.get("closed")}
    return {one.key for one in storage.summaries()} <= over and not storage.webhooks.waiting()


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_killed_servers_and_failing_receivers_lose_nothing(
    backend: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path}/tests.db"
    if backend == "postgresql":
        url = fresh_database(request.getfixturevalue("postgres"))
    heard: list[Receiver] = []
    names = {"one", "two", "three", "four", "alone"}

    with closing(open_storage(url)) as storage:
        # It accepts what it gets only after a while, so that the server is killed in between.
        with receiving(answers=[500, 204, 503, 204], delay=0.3) as receiver:
            port = receiver.port
            heard.append(receiver)
            storage.webhooks.add(new_endpoint(receiver.url, storage.now(), private=True))
            run_tests(storage, "one", "two")
            with server(tmp_path, url) as running:
                until(lambda: len(receiver.got) >= 3)
                running.process.kill()
        with server(tmp_path, url) as running:  # nobody listens
            run_tests(storage, "three", "alone")
            until(lambda: any(error for _, error in storage.webhooks.waiting().values()))
            running.process.kill()
        run_tests(storage, "four")  # while no server runs
        with receiving(port) as receiver, server(tmp_path, url):
            heard.append(receiver)
            until(lambda: is_over(storage), 240)

    events = ("started", "budget_spent", "decided", "window_closed")
    ids: dict[tuple[str, str], set[str]] = {}
    for receiver in heard:
        for got in receiver.got:
            body = got.content
            ids.setdefault((body["data"]["experiment"], body["type"]), set()).add(got.id)
    expected = {(name, f"experiment.{event}") for name in names for event in events}
    assert set(ids) == expected, "an event was lost"
    assert {len(one) for one in ids.values()} == {1}, "an event came under two ids"
