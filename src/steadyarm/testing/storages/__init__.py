"""What every storage must satisfy, as functions to run on any of them, your own included.

    from steadyarm.testing.storages import run_checks
    run_checks(make)

`make()` prepares fresh, empty data and gives a function that opens a storage on them, as often as
it is called. Each check raises an AssertionError that says which promise is broken.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

from steadyarm.storages.base import Storage
from steadyarm.testing.storages import (
    assignments,
    concurrency,
    corrections,
    decisions,
    experiments,
    rewards,
)
from steadyarm.testing.storages.bench import Check, Open

__all__ = ["CHECKS", "Open", "run_checks"]

_TOPICS = (experiments, assignments, rewards, decisions, corrections, concurrency)

CHECKS: tuple[Check, ...] = tuple(chain.from_iterable(topic.CHECKS for topic in _TOPICS))


def run_checks(make: Callable[[], Open]) -> None:
    """Run all checks, each on fresh data from `make`; the storages they open are closed."""
    for check in CHECKS:
        open_storage = make()
        opened: list[Storage] = []

        def opening(make_one: Open = open_storage, opened: list[Storage] = opened) -> Storage:
            opened.append(make_one())
            return opened[-1]

        try:
            check(opening)
        finally:
            for storage in {id(each): each for each in opened}.values():
                storage.close()
