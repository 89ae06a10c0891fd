"""How honest are live stops: do sessions that stop when sure decide wrongly if rewards are late?

Whole sessions, `ask` and `tell` visit by visit, against a control: 2, 3 and 5 variants; clicks and
normal rewards; prompt rewards and late ones, large ones last; equal variants in a weekly rhythm,
and a better variant in a world that stands still or has a trend. At most 5 % of tests of equal
variants may decide, and intervals at the stop or the end must hold in at least 94 %. A session
takes a sixth of a second of the processor, so that few are played in each cell and the margins
count. MISS where the exact 99 % interval lies wholly on the wrong side.
"""

from __future__ import annotations

import argparse
import heapq
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from zlib import crc32

import numpy as np
from scipy.stats import binomtest

import steadyarm as sa
from benchmarks.how_honest_is_stopping import (
    KEYS,
    LEAST,
    LEVEL,
    WRONG,
    Floats,
    course_of,
    row,
    together,
)
from steadyarm.compiled import compiling

VISITS = {"clicks": 400, "normal": 300}
LOOKS, CHUNK, LATE = 5, 25, 1 / 20
COLUMNS = f"{'false':>8}{'values':>10}{'gaps':>10}{'decided':>9}{'budget':>8}"


@dataclass(frozen=True)
class Cell:
    """A row of live sessions: prompt or late rewards, a better variant or none.

    Attributes
    ----------
    delay : mean delay of rewards as a share of the test; twice as long for rewards above 0
    better : by how much the last variant is better, in units of what two variants show with
        power 80 %
    """

    kind: str
    variants: int
    delay: float
    course: str
    better: float = 0.0

    @property
    def equal(self) -> bool:
        """Whether all variants are alike at all times, so that every decision is false."""
        return not self.better

    @property
    def visits(self) -> int:
        """Of each session."""
        return VISITS[self.kind]

    @property
    def factors(self) -> tuple[str, ...]:
        """What the margins of the table are made by."""
        rewards = "late rewards" if self.delay else "prompt rewards"
        world = "equal" if self.equal else self.course
        return self.kind, f"{self.variants} variants", rewards, world

    @property
    def name(self) -> str:
        """The first columns of the row."""
        more = f", {self.better:g} x" if self.better else ", equal"
        when = "late" if self.delay else "prompt"
        return f"{self.kind:<8}{self.course + more:<19}{self.variants:>3}  {when:<9}{LOOKS:<10}"

    def means(self) -> Floats:
        """(visits, K) of the rewards."""
        means = np.tile(course_of(self.course, self.visits)[:, None], (1, self.variants))
        clicks = self.kind == "clicks"
        unit = 2.8 * (2.0 if clicks else 1.0) * 2 / np.sqrt(self.visits)
        means[:, -1] += self.better * unit * np.sqrt(self.variants / 2)
        return np.clip(0.2 * means, 0, 1) if clicks else means


def live_session(cell: Cell, seed: int) -> tuple[float, ...]:
    """One live session; gives the numbers of `measured`."""
    seed = int(np.random.SeedSequence([11, seed, crc32(cell.name.encode())]).generate_state(1)[0])
    rng, means = np.random.default_rng([11, seed]), cell.means()  # no two cells draw alike
    names = [str(k) for k in range(cell.variants)]
    session = sa.Session(
        sa.Steady(),
        sa.ArmSet.one_hot(names),
        cell.visits,
        seed=seed,
        control="0",
        stop="when sure",
        looks=LOOKS,
    )
    waiting: list[tuple[int, int, float]] = []
    for t in range(cell.visits):
        if session.stopped is not None:
            break
        shown = session.ask()
        mean = means[t, shown.arm]
        reward = float(rng.random() < mean if cell.kind == "clicks" else rng.normal(mean))
        delay = rng.exponential(cell.delay * cell.visits) * (2 if reward > 0 else 1)
        heapq.heappush(waiting, (t + int(delay), shown.number, reward))
        while waiting and waiting[0][0] <= t:
            _, number, value = heapq.heappop(waiting)
            session.tell(number, value)
    for _, number, value in waiting:
        session.tell(number, value)
    verdict = session.recommend(LEVEL)
    truth = means[: verdict.judged].mean(axis=0)
    inside = (verdict.intervals[:, 0] <= truth + 1e-9) & (truth - 1e-9 <= verdict.intervals[:, 1])
    gap_low, gap_high = verdict.gap_intervals.T
    apart = truth[verdict.arm] - truth
    decided = verdict.decision.word in ("ship", "keep")
    false = decided
    if not cell.equal:  # better than the control is right, too
        false = decided and truth[names.index(str(verdict.decision.variant))] <= truth[0] + 1e-12
    right = ((gap_low <= apart + 1e-9) & (apart - 1e-9 <= gap_high)).all()
    used = session.asked / cell.visits
    return float(false), float(inside.all()), float(right), float(decided), used, np.nan


def batch(cell: Cell, seed: int) -> dict[str, Floats]:
    """Some live sessions, as `measured` gives a batch."""
    with compiling():
        runs = [live_session(cell, CHUNK * seed + i) for i in range(CHUNK)]
    return dict(zip(KEYS, np.array(runs).T, strict=True))


def cells(kinds: list[str]) -> Iterator[Cell]:
    """The rows of the table."""
    for course, better in (("week", 0.0), ("still", 1.5), ("trend", 1.5)):
        for delay in (LATE, 0.0):
            for kind in kinds:
                for K in (2, 3, 5):
                    yield Cell(kind, K, delay, course, better)


def least_noticed(sessions: int) -> str:
    """Which results of so many sessions would be marked as a MISS."""
    counts = np.arange(sessions + 1)
    ends = [binomtest(int(k), sessions).proportion_ci(0.99) for k in counts]
    right = max((k for k in counts if ends[k].high < LEAST), default=None)
    false = min((k for k in counts if ends[k].low > WRONG), default=None)
    bad = "no coverage" if right is None else f"coverage of {100 * right / sessions:.1f} % or less"
    worse = "nothing" if false is None else f"{100 * false / sessions:.1f} % or more"
    return f"{bad}, and {worse} of false decisions"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=100, help="sessions a cell, in lots of 25")
    parser.add_argument(
        "--kinds", nargs="*", choices=list(VISITS), default=list(VISITS), help="default: all"
    )
    parser.add_argument("--processes", type=int, default=2, help="that play tests side by side")
    options = parser.parse_args()
    if options.sessions % CHUNK or options.sessions < 1:
        parser.error(f"--sessions must be a multiple of {CHUNK}")
    begin, missed = perf_counter(), 0
    print(f"{options.sessions} sessions a cell, in %; level {LEVEL:.0%}.\n")
    print(f"{'rewards':<8}{'world':<19}{'K':>3}  {'arrive':<9}{'looks':<10}{COLUMNS}")
    margins: dict[str, list[dict[str, Floats]]] = {}
    with ProcessPoolExecutor(options.processes) as pool:
        for cell in cells(options.kinds):
            found = together(pool.map(partial(batch, cell), range(options.sessions // CHUNK)))
            text, miss = row(found)
            missed += miss
            print(f"{cell.name}{text}", flush=True)
            equal = np.full(len(found["false"]), float(cell.equal))
            for factor in (*cell.factors, "all"):
                margins.setdefault(factor, []).append(found | {"equal": equal})
    print(f"\nMargins, with false decisions of equal variants\n{'':<25}{'sessions':<24}{COLUMNS}")
    played = 0
    for factor, parts in sorted(margins.items()):
        found = together(parts)
        played = max(played, len(found["false"]))
        alike = found["equal"] > 0
        if alike.any():
            found["false"] = found["false"][alike]
        text, miss = row(found)
        missed += miss
        print(f"{factor:<25}{f'{alike.size:,}, {alike.sum():,} equal':<24}{text}")
    result = "Nothing misses" if not missed else f"MISS in {missed} places"
    print(f"\n{result}, {perf_counter() - begin:.0f} s. What would have been marked:")
    print(f"in a cell of {options.sessions} sessions {least_noticed(options.sessions)};")
    print(f"in all {played:,} sessions {least_noticed(played)}, were they all of equal variants.")


if __name__ == "__main__":
    main()
