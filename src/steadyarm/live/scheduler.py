"""Decisions carried out on a storage: made on a snapshot, made again if others were faster.

A decision may take long to compute, and one that writes must not wait for it. So what is to be
done is given as steps, one function to call after the other: `run` takes them all where it is
called, and the service takes each in the threads that it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, NamedTuple, TypeVar

from steadyarm.errors import BudgetSpentError, RewardsPendingError, SteadyArmError
from steadyarm.live.decisions import decide, is_over
from steadyarm.live.settings import Settings
from steadyarm.storages.base import Storage
from steadyarm.storages.records import Decision

__all__ = ["Clock", "Step", "Steps", "close_finished", "in_flight", "is_due", "open_segment", "run"]

T = TypeVar("T")
Made = tuple[int, Decision, int]  # on which version, what, and when
Clock = Callable[[], int]  # asked in the step that needs it, since it may ask the storage


class Step(NamedTuple):
    """Something to do: it writes, or computes, perhaps for long, or else it is a short read."""

    work: Callable[[], Any]
    writes: bool
    computes: bool = False


Steps = Generator[Step, Any, T]  # is sent what each step gave, or thrown what it raised


def run(steps: Steps[T]) -> T:
    """Take all steps here and now; gives what they return in the end."""
    go: Callable[[], Step] = partial(next, steps)
    while True:
        try:
            step = go()
        except StopIteration as end:
            result: T = end.value
            return result
        try:
            go = partial(steps.send, step.work())
        except Exception as error:  # theirs to handle
            go = partial(steps.throw, error)


def open_segment(
    storage: Storage, key: int, settings: Settings, clock: Clock
) -> Steps[SteadyArmError | None]:
    """Make sure that there are positions; gives the reason if there can be none."""

    def made() -> Made | SteadyArmError | None:
        snapshot = storage.snapshot(key)
        last = snapshot.segments[-1][0] if snapshot.segments else None
        if last is not None and last.closed is None and last.handed < last.rounds:
            return None
        now = clock()
        try:
            decision = decide(settings, snapshot, now, need=True)
        except (BudgetSpentError, RewardsPendingError) as error:
            return error
        assert decision is not None
        return snapshot.experiment.version, decision, now

    while True:
        found: Made | SteadyArmError | None = yield Step(made, writes=False, computes=True)
        if not isinstance(found, tuple):
            return found
        stored = yield Step(partial(storage.decide, key, *found), writes=True)
        if stored and found[1].opened:
            return None


def close_finished(storage: Storage, key: int, settings: Settings, clock: Clock) -> Steps[None]:
    """Hand segments that are over to the policy."""

    def due() -> bool:
        return is_due(storage, key, settings, clock())

    def made() -> Made | None:
        now, snapshot = clock(), storage.snapshot(key)
        decision = decide(settings, snapshot, now, need=False)
        return None if decision is None else (snapshot.experiment.version, decision, now)

    while (yield Step(due, writes=False)):
        found: Made | None = yield Step(made, writes=False, computes=True)
        if found is None:
            return
        yield Step(partial(storage.decide, key, *found), writes=True)


def is_due(storage: Storage, key: int, settings: Settings, now: int) -> bool:
    """Whether a segment is over that the policy does not know of; cheap."""
    return any(is_over(settings, part, now) for part in storage.progress(key, exhausted=True))


def in_flight(storage: Storage, key: int, soon: int) -> bool:
    """Whether unused positions may be free in a moment: others have them in hand just now.

    Where two processes are asked for one unit at once, one of them gives its position back; and
    what a worker leased ahead it uses, or gives back when nobody new comes to it.

    soon : leases that end later are not waited for; clients have them, and use them up
    """
    free = sum(part.rounds - part.assigned for part in storage.progress(key))
    return free > sum(len(lease) for lease in storage.leases(key) if lease.expires > soon)
