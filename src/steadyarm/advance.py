"""Decisions carried out on a storage: made on a snapshot, made again if others were faster."""

from __future__ import annotations

from steadyarm.decisions import decide, is_over
from steadyarm.errors import BudgetSpentError, RewardsPendingError, SteadyArmError
from steadyarm.settings import Settings
from steadyarm.storages.base import Storage

__all__ = ["hand_over", "in_flight", "open_segment"]


def open_segment(storage: Storage, key: int, settings: Settings, now: int) -> SteadyArmError | None:
    """Make sure that there are positions; the reason if there can be none."""
    while True:
        snapshot = storage.snapshot(key)
        last = snapshot.segments[-1][0] if snapshot.segments else None
        if last is not None and last.closed is None and last.handed < last.rounds:
            return None
        try:
            decision = decide(settings, snapshot, now, need=True)
        except (BudgetSpentError, RewardsPendingError) as error:
            return error
        assert decision is not None
        stored = storage.decide(key, snapshot.experiment.version, decision, now)
        if stored and decision.opened:
            return None


def in_flight(storage: Storage, key: int, soon: int) -> bool:
    """Whether unused positions may be free in a moment: others have them in hand just now.

    Where two processes are asked for one unit at once, one of them gives its position back; and
    what a worker leased ahead it uses, or gives back when nobody new comes to it.

    soon : leases that end later are not waited for; clients have them, and use them up
    """
    free = sum(part.rounds - part.assigned for part in storage.progress(key))
    return free > sum(len(lease) for lease in storage.leases(key) if lease.expires > soon)


def hand_over(storage: Storage, key: int, settings: Settings, now: int) -> None:
    """Hand segments that are over to the policy."""
    while any(is_over(settings, part, now) for part in storage.progress(key, exhausted=True)):
        snapshot = storage.snapshot(key)
        decision = decide(settings, snapshot, now, need=False)
        if decision is None:
            return
        storage.decide(key, snapshot.experiment.version, decision, now)
