"""How much longer does a request take when millions of assignments are stored?

Two storages with the same test, one with ten thousand assignments and one with ten million, unless
told otherwise; single asks and tells in turn on both, durable commits and all, and the policy's
update at the end of a segment, which reads sums. What is printed is the ratio of the medians.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

import steadyarm as sa
from benchmarks.traffic.servers import storages
from steadyarm.live.decisions import (
    decide,
    first_state,
    ledger_of,
    next_segment,
    state_after,
    stored_state,
)
from steadyarm.live.settings import Settings
from steadyarm.segments import arms_between
from steadyarm.storages import open_storage
from steadyarm.storages.records import (
    ExperimentRecord,
    LogRow,
    SegmentRecord,
    Snapshot,
    Tally,
    number_of,
)

SMALL = 10_000
RATES = np.linspace(0.1, 0.2, 8)
START = 1_790_000_000_000_000
DAY = 86_400_000_000
PAGE = 20_000


def played(rows: int, seed: int = 1, days: float = 0) -> tuple[Snapshot, Iterator[list[LogRow]]]:
    """A test with about that many assignments and as many rewards, as its log has it.

    days : over which they are spread, up to now; 0 for all at one time
    """
    arms = sa.ArmSet.one_hot([f"variant {k}" for k in range(len(RATES))])
    settings = Settings(arms, sa.Steady(), 4 * rows, seed, reward_window=86_400, missing="zero")
    stored = first_state(settings)
    state, spare = stored_state(settings, stored), settings.budget
    segments: list[tuple[SegmentRecord, Tally]] = []
    pages: list[tuple[SegmentRecord, NDArray[np.int64], NDArray[np.float64]]] = []
    rng = np.random.default_rng(seed)
    step = days * DAY / rows
    start = int(time.time() * 1e6 - days * DAY) if days else START
    while settings.budget - spare < rows:
        segment = next_segment(settings, state, None, spare)
        index, rounds = len(segments), int(segment.rounds[0])
        drawn = arms_between(segment, seed, index, 0, rounds)
        rewards = (rng.random(rounds) < RATES[drawn]).astype(np.float64)
        counts = tuple(np.bincount(drawn, minlength=arms.size).tolist())
        sums = tuple(map(Fraction, np.bincount(drawn, rewards, arms.size)))
        begin = start + int(step * (settings.budget - spare))
        end = begin + int(step * (rounds - 1))
        tally = Tally(counts, counts, sums, sums, end)
        record = SegmentRecord(index, segment, False, False, index, begin, rounds, index + 1, end)
        ledger = ledger_of(settings, record, tally, given_up=True)
        state = state_after(settings.policy, state, [ledger])
        segments.append((record, tally))
        pages.append((record, drawn, rewards))
        spare -= rounds
    after = {"state": state.to_dict(), "rounds": settings.budget - spare}
    experiment = ExperimentRecord(
        key=0,
        name="grown",
        tag=f"t{rows}",
        state="running",
        config=settings.to_dict(),
        created=start,
        version=len(segments),
        policy_state=after,
        observed=len(segments),
    )
    return Snapshot(experiment, tuple(segments)), _rows(pages, step)


def _rows(
    pages: list[tuple[SegmentRecord, NDArray[np.int64], NDArray[np.float64]]], step: float
) -> Iterator[list[LogRow]]:
    for record, drawn, rewards in pages:
        weights = record.segment.weights[0].tolist()
        arms, values, first = drawn.tolist(), rewards.tolist(), number_of(record.index, 0)
        for start in range(0, len(arms), PAGE):
            yield [
                LogRow(
                    first + i,
                    f"{((first + i) * 0x9E3779B97F4A7C15) % 2**64:016x}",  # in no order
                    arms[i],
                    weights[arms[i]],
                    record.opened + int(step * i),
                    values[i],
                    record.opened + int(step * i),
                )
                for i in range(start, min(start + PAGE, len(arms)))
            ]


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def measure(backend: str, large: int, repeats: int) -> None:
    with ExitStack() as stack:
        tests: dict[int, sa.Experiment] = {}
        for rows in (SMALL, large):
            url, _ = stack.enter_context(storages(backend))
            storage = open_storage(url)
            stack.callback(storage.close)
            began = time.perf_counter()
            record = storage.restore("grown", *played(rows))
            tests[rows] = sa.Experiment(storage, record)
            print(f"{backend}: {rows:,} rows stored in {time.perf_counter() - began:.0f} s")
        times: dict[tuple[str, int], list[float]] = {}
        for i in range(repeats):
            for rows, live in tests.items():
                unit = f"new {i}"
                asked = timed(partial(live.ask, unit))
                told = timed(partial(live.tell, unit, 1.0))
                known = timed(partial(live.ask, unit))
                for what, took in (("ask", asked), ("tell", told), ("ask again", known)):
                    times.setdefault((what, rows), []).append(took)
        for _ in range(20):
            for rows, live in tests.items():
                times.setdefault(("policy update", rows), []).append(timed(partial(update, live)))
        print(f"{'':<16}{'small, ms':>10}{'large, ms':>10}{'ratio':>7}")
        for what in ("ask", "tell", "ask again", "policy update"):
            small, big = (1000 * statistics.median(times[what, rows]) for rows in (SMALL, large))
            print(f"{what:<16}{small:>10.2f}{big:>10.2f}{big / small:>7.2f}")


def update(live: sa.Experiment) -> None:
    """Read the sums and decide, without storing it."""
    snapshot = live.storage.snapshot(live.key)
    decide(live.settings, snapshot, START, need=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", type=int, default=10_000_000, help="rows of the large one")
    parser.add_argument("--repeats", type=int, default=1000, help="asks and tells of each")
    parser.add_argument("--backend", choices=["sqlite", "postgresql"], help="default: both")
    args = parser.parse_args()
    for backend in [args.backend] if args.backend else ["sqlite", "postgresql"]:
        measure(backend, args.large, args.repeats)
