"""What every storage must satisfy, as checks to run on any of them, your own included.

    from steadyarm.testing.storages import run_checks
    run_checks(make)

`make()` prepares fresh, empty data and returns a function that opens a storage on them, as often as
it is called. Each check raises an AssertionError that says which promise is broken.
"""

from __future__ import annotations

from collections.abc import Callable

from steadyarm.storages.base import Storage
from steadyarm.testing.storages import (
    assignments,
    concurrency,
    corrections,
    experiments,
    metrics,
    outside,
    rewards,
)
from steadyarm.testing.storages.bench import Bench, Check, Open

__all__ = ["CHECKS", "Open", "run_check", "run_checks"]

CHECKS: tuple[Check, ...] = tuple(
    check
    for topic in (
        *(experiments, assignments, rewards, corrections, metrics, outside),
        concurrency,
    )
    for name, check in vars(topic).items()
    if name.startswith("check_") and check.__module__ == topic.__name__
)
"""Every check, to be run with `run_check`."""


def run_check(check: Check, open_storage: Open) -> None:
    """Run one of `CHECKS` on fresh data.

    Parameters
    ----------
    check : one of `CHECKS`
    open_storage : opens a storage on fresh, empty data, each time that it is called

    Examples
    --------
    >>> from steadyarm.storages import open_storage
    >>> storage = open_storage("memory")
    >>> run_check(CHECKS[0], lambda: storage)
    """
    check(Bench(open_storage))


def run_checks(make: Callable[[], Open]) -> None:
    """Run all checks, each on fresh data from `make`, and close the storages that they open.

    Parameters
    ----------
    make : prepares fresh, empty data and returns what opens a storage on them

    Examples
    --------
    >>> from steadyarm.storages import open_storage
    >>> def make():
    ...     storage = open_storage("memory")
    ...     return lambda: storage
    >>> run_checks(make)
    """
    for check in CHECKS:
        open_storage, opened = make(), dict[int, Storage]()

        def opening(make_one: Open = open_storage, opened: dict[int, Storage] = opened) -> Storage:
            storage = make_one()
            opened[id(storage)] = storage
            return storage

        try:
            run_check(check, opening)
        finally:
            for storage in opened.values():
                storage.close()
