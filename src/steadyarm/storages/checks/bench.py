"""What the checks work with: steps that several of them take, and values that are hard to keep."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

import numpy as np

from steadyarm.segments import Order, Segment
from steadyarm.storages.base import Storage
from steadyarm.storages.records import (
    Decision,
    ExperimentRecord,
    ExperimentState,
    Handed,
    Lease,
    SegmentRecord,
    number_of,
)

__all__ = [
    "DAY",
    "FLOATS",
    "HOUR",
    "NAMES",
    "NOW",
    "SEED",
    "Check",
    "Open",
    "assign",
    "busy",
    "decided",
    "gathered",
    "leased",
    "new_experiment",
    "new_segment",
    "open_segment",
    "refused",
    "running",
    "together",
]

Open = Callable[[], Storage]
Check = Callable[[Open], None]
T = TypeVar("T")

NOW = 1_750_000_000_123_456
HOUR = 3_600_000_000
DAY = 24 * HOUR
SEED = 2**70 + 11
WEIGHTS = (0.1, 0.2, 0.7)
NAMES = (
    "plain",
    "Plain",
    'it\'s "quoted" `twice`; DROP TABLE experiments; --',
    "50% of_\\everything",
    "Grüße, 試験 🧪",
    " spaces ",
    "long " + "name" * 60,
)
FLOATS = (0.1, 1 / 3, -0.0, 5e-324, 1.7976931348623157e308, 1.0, 1e22, 0.1 + 0.2, -2.5e-17)


def new_segment(
    rounds: int,
    order: Order = "iid",
    block: int = 1,
    weights: tuple[float, ...] = WEIGHTS,
) -> Segment:
    """An allocation of three arms, or of as many as there are weights."""
    if order == "shuffled":
        second = rounds // 4
        return Segment.shuffled(np.array([[rounds // 8, second, rounds - rounds // 8 - second]]))
    return Segment(np.array([weights]), np.array([rounds]), order, block)


def new_experiment(
    storage: Storage,
    name: str = "e",
    *,
    sticky: bool = True,
    seed: int = SEED,
    state: ExperimentState = "running",
    arms: int = 3,
) -> ExperimentRecord:
    """An experiment without segments."""
    config = {"seed": seed, "arms": list("ABC")[:arms], "sticky": "unit" if sticky else "request"}
    return storage.create(name, "tag", state, config, {}, NOW)


def decided(storage: Storage, key: int, decision: Decision) -> bool:
    """Whether a decision was stored, made on the version there is."""
    return storage.decide(key, storage.snapshot(key).experiment.version, decision, NOW)


def open_segment(storage: Storage, key: int, segment: Segment, closed: Sequence[int] = ()) -> int:
    """Open the next segment, and close others with the tallies they have; its index."""
    whole = storage.snapshot(key, everything=True)
    index, version = len(whole.segments), whole.experiment.version
    tallies = tuple((i, whole.segments[i][1]) for i in closed)
    opened = SegmentRecord(index, segment, False, False, whole.experiment.observed, NOW)
    decision = Decision({"version": version}, tallies, opened=opened)
    assert storage.decide(key, version, decision, NOW), "a decision on facts was refused"
    return index


def running(
    storage: Storage,
    rounds: int,
    *,
    sticky: bool = True,
    name: str = "e",
    weights: tuple[float, ...] = WEIGHTS,
) -> int:
    """The key of a running experiment with one segment."""
    key = new_experiment(storage, name, sticky=sticky, arms=len(weights)).key
    open_segment(storage, key, new_segment(rounds, weights=weights))
    return key


def busy(storage: Storage, name: str) -> int:
    """The key of an experiment with a bit of everything."""
    key = running(storage, 6, name=name)
    assign(storage, key, [f"a{i}" for i in range(6)], now=NOW + 1)
    storage.reward(key, [("a0", 0.1), ("a3", -1e9), ("a5", 1 / 3)], None, NOW + 2)
    open_segment(storage, key, new_segment(30, "blocks", 8), closed=[0])
    handed = assign(storage, key, ["b0", "b1", "a1"], ahead=5, now=NOW + 3)
    assert handed.leases, "`ahead` leased nothing"
    storage.report(key, handed.leases[0].id, [(4, "c0", NOW + 4)], NOW + 5)
    assign(storage, key, ["d0"], now=NOW + 6)
    assert decided(storage, key, Decision({}, supersede=1)), "a decision on facts was refused"
    open_segment(storage, key, new_segment(50))
    assign(storage, key, ["e0", "e1"], ahead=3, now=NOW + 7)
    storage.reward(key, [("c0", 2.0), ("e1", 0.7), (number_of(1, 0), 0.2)], None, NOW + 8)
    leased(storage, key, 4, expires=NOW + 2 * HOUR, now=NOW + 9)
    return key


def assign(
    storage: Storage,
    key: int,
    units: Sequence[str],
    held: Sequence[Lease] = (),
    ahead: int = 0,
    *,
    expires: int = NOW + HOUR,
    now: int = NOW,
) -> Handed:
    """`Storage.assign`, with an answer for every unit."""
    handed = storage.assign(key, units, held, ahead, expires=expires, now=now)
    assert len(handed.assigned) == len(units), "not one answer for every unit"
    return handed


def leased(
    storage: Storage, key: int, wanted: int, *, expires: int = NOW + HOUR, now: int = NOW
) -> tuple[Lease, ...]:
    """`Storage.lease`, for an hour."""
    return storage.lease(key, wanted, expires=expires, now=now)


def refused(
    error: type[Exception],
    promise: str,
    call: Callable[..., object],
    *args: object,
    **named: object,
) -> str:
    """What the error says that `call` must raise."""
    try:
        call(*args, **named)
    except error as refusal:
        return str(refusal)
    raise AssertionError(f"{promise} was not refused with {error.__name__}")


def together(work: Callable[[int], T], threads: int) -> list[T]:
    """What work(0), work(1), ... return, each in a thread, all starting at once."""
    barrier = Barrier(threads)

    def run(i: int) -> T:
        barrier.wait()
        return work(i)

    # Threads take turns so often that a step in between is likely to be hit.
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(run, range(threads)))
    finally:
        sys.setswitchinterval(before)


def gathered(work: Callable[[int], list[T]], threads: int) -> list[T]:
    """All of what they return, in one list."""
    return [each for part in together(work, threads) for each in part]
