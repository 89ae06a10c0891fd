"""How honest is stopping: how often do tests that stop when sure decide wrongly, and when?

Equal variants (2 to 10; clicks and normal rewards; a world that stands still, a trend, a weekly
rhythm, a shock): every decision is false, and at most 5 % of tests may make one. With trends of
their own, or one better variant, intervals must hold at the stop or the end in at least 94 % of
tests; also the share of the budget that is used, and by how much estimates of what was shipped
early are too large. MISS where the exact 99 % interval lies wholly on the wrong side. Live tests,
with rewards that come late, are in how_honest_are_live_stops.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from time import perf_counter

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

import steadyarm as sa
from steadyarm.inference.boundaries import Looks, Spending
from steadyarm.inference.evidence import Evidence
from steadyarm.inference.sequences import ConfidenceSequence
from steadyarm.inference.stopping import Stopping, stopping_of

LEVEL, WRONG, LEAST = 0.95, 0.05, 0.94
DAYS, CHUNK = 28, 250
VISITS = {"clicks": 8000, "normal": 4000}
RATE = 0.1  # of clicks
COURSES = ("still", "trend", "week", "shock")
SIZES = (2, 3, 5, 10)
GAPS = (0.7, 1.0, 1.5, 2.0)  # in units of what a test of two variants shows with power 80 %
Floats = NDArray[np.float64]


def course_of(name: str, visits: int) -> Floats:
    """(visits,) the level that all variants share, 1 on average."""
    day = np.arange(visits) * DAYS // visits
    if name == "trend":
        return np.linspace(0.5, 1.5, visits)
    if name == "week":
        return np.array([1.1, 1.2, 1.2, 1.1, 1.0, 0.7, 0.7])[day % 7]
    if name == "shock":
        return np.where((day >= 8) & (day < 10), 2.5, 0.885)
    return np.ones(visits)


def world_of(kind: str, means: Floats) -> sa.Environment:
    """Rewards with these means, (visits, K), in units of the rate of clicks or of the noise."""
    arms = sa.ArmSet.one_hot([str(k) for k in range(means.shape[1])])
    if kind == "clicks":
        return sa.Environment.from_means(arms, np.clip(RATE * means, 0, 1), sa.BernoulliReward())
    return sa.Environment.from_means(arms, means, sa.GaussianNoise(1.0))


def evidence_of(world: sa.Environment, trials: int, seed: int) -> Evidence:
    """A batch of tests with Steady, in pieces as live tests have them."""
    rng, pieces, policy = np.random.default_rng(seed), [], sa.Steady()
    state = policy.start(world.arms, world.budget, trials, seed=seed)
    while (segment := policy.next_segment(state)) is not None:
        segment = next(segment.parts(world.budget))
        stats = world.play(segment, state.played, rng, squares=True)
        pieces.append((segment, stats))
        state = policy.observe(state, segment, stats)
    return Evidence.from_segments(world.arms, pieces)


@dataclass(frozen=True)
class Cell:
    """One row of the table.

    Attributes
    ----------
    better : by how much the last variant is better, in units of `GAPS`
    own : whether each variant has a trend of its own
    """

    kind: str
    course: str
    variants: int
    control: bool
    better: float = 0.0
    own: bool = False
    spending: Spending = "obrien-fleming"
    looks: int = 8

    @property
    def equal(self) -> bool:
        """Whether all variants are alike at all times, so that every decision is false."""
        return not self.better and not self.own

    @property
    def name(self) -> str:
        """The first columns of the row."""
        more = f", {self.better:g} x" if self.better else ", own trends" if self.own else ""
        looks = f"{self.looks} {self.spending}" if self.spending == "pocock" else f"{self.looks}"
        control = "control" if self.control else "none"
        return f"{self.kind:<8}{self.course + more:<19}{self.variants:>3}  {control:<9}{looks:<10}"

    def means(self) -> Floats:
        """(visits, K) of the rewards, see `world_of`."""
        visits = VISITS[self.kind]
        means = np.tile(course_of(self.course, visits)[:, None], (1, self.variants))
        noise = np.sqrt((1 - RATE) / RATE) if self.kind == "clicks" else 1.0
        unit = 2.8 * noise * 2 / np.sqrt(visits)  # shown with power 80 % by two variants
        means[:, -1] += self.better * unit * np.sqrt(self.variants / 2)
        if self.own:
            turn = np.linspace(-1, 1, self.variants)
            means += 0.3 * np.linspace(-1, 1, visits)[:, None] * turn
        return means


def measured(cell: Cell, seed: int) -> dict[str, Floats]:
    """Per test of a batch: what it decided, when, and whether its intervals were right then."""
    world = world_of(cell.kind, cell.means())
    evidence = evidence_of(world, CHUNK, seed)
    control = 0 if cell.control else None
    found = stopping_of(evidence, world.budget, cell.looks, LEVEL, control, cell.spending)
    looks = Looks.equally(cell.looks, cell.spending, over=True)
    sequence = ConfidenceSequence(evidence, world.budget, None, looks)
    sums = np.vstack([0 * world.means[:1], world.means.cumsum(axis=0)])
    truth = sums[found.rounds] / found.rounds[:, None]
    values, gaps = right_at(sequence, found, truth, control)
    rows, decided = np.arange(CHUNK), found.variant >= 0
    chosen = np.maximum(found.variant, 0)
    wrong = decided & (truth[rows, chosen] < truth.max(axis=1) - 1e-12)
    if control is not None:  # better than the control is right, too
        ahead = truth[rows, chosen] > truth[:, control] + 1e-12
        keeps = (found.variant == control) & (truth.max(axis=1) <= truth[:, control] + 1e-12)
        wrong = decided & ~ahead & ~keeps
    false = decided if cell.equal else wrong
    early = decided & (found.rounds < world.budget)
    return {
        "false": false.astype(float),
        "values": values.astype(float),
        "gaps": gaps.astype(float),
        "decided": decided.astype(float),
        "used": found.rounds / world.budget,
        "excess": _excess(evidence, sequence, found, truth, early & (found.variant != control)),
    }


def right_at(
    sequence: ConfidenceSequence, found: Stopping, truth: Floats, control: int | None
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """(n,) whether all values were right at the stop or the end, and all gaps or lifts."""
    values, gaps = np.zeros(CHUNK, dtype=bool), np.zeros(CHUNK, dtype=bool)
    K, rows = truth.shape[1], np.arange(CHUNK)
    for j in range(sequence.rounds.shape[1]):
        here = (sequence.rounds[:, j] == found.rounds) & (sequence.looks_at(j) >= 0)
        if not here.any():
            continue
        events = sequence.events(j)
        low, high = sequence.value_limits(j, (1 - LEVEL) / (2 * K), events)
        fine = ((low <= truth + 1e-9) & (truth - 1e-9 <= high)).all(axis=1)
        best = sequence.until(j).best if control is None else np.full(CHUNK, control)
        pairs = K * (K - 1) if control is None else 2 * (K - 1)
        low, high = sequence.gap_limits(j, best, (1 - LEVEL) / pairs, events)
        apart = truth[rows, best][:, None] - truth
        well = ((low <= apart + 1e-9) & (apart - 1e-9 <= high)).all(axis=1)
        values, gaps = np.where(here, fine, values), np.where(here, well, gaps)
    return values, gaps


def _excess(
    evidence: Evidence,
    sequence: ConfidenceSequence,
    found: Stopping,
    truth: Floats,
    shipped: NDArray[np.bool_],
) -> Floats:
    """(n,) by how much the estimated lead of a shipped variant is too large, as a share of it.

    The lead is that over the mean of the others; nan where nothing was shipped early.
    """
    rows, k = np.arange(CHUNK), np.maximum(found.variant, 0)
    at = (sequence.rounds < found.rounds[:, None]).sum(axis=1)
    at = np.minimum(at, sequence.rounds.shape[1] - 1)
    theta = sequence.scores[rows, at] / np.maximum(found.rounds, 1)[:, None]
    estimates = theta @ evidence.arms.coordinates.T

    def lead(of: Floats) -> Floats:
        K = of.shape[1]
        return np.asarray(of[rows, k] - (of.sum(axis=1) - of[rows, k]) / (K - 1))

    true = lead(truth)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = lead(estimates) / true - 1
    return np.where(shipped & (true > 1e-9), share, np.nan)


KEYS = ("false", "values", "gaps", "decided", "used", "excess")


def cells(sizes: list[int], kinds: list[str]) -> Iterator[Cell]:
    """The rows of the table."""
    for kind in kinds:
        for K in sizes:
            for course in COURSES:
                for control in (False, True):
                    yield Cell(kind, course, K, control)
            yield Cell(kind, "still", K, True, spending="pocock")
            yield Cell(kind, "still", K, True, looks=28)
            yield Cell(kind, "week", K, True, own=True)
            for better in GAPS:
                yield Cell(kind, "week", K, False, better)
                yield Cell(kind, "week", K, True, better)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000, help="tests a cell, in lots of 250")
    parser.add_argument(
        "--variants", type=int, nargs="*", default=list(SIZES), help="numbers of variants"
    )
    parser.add_argument(
        "--kinds", nargs="*", choices=list(VISITS), default=list(VISITS), help="default: all"
    )
    parser.add_argument("--processes", type=int, default=2, help="that play tests side by side")
    options = parser.parse_args()
    if options.trials % CHUNK:
        parser.error(f"--trials must be a multiple of {CHUNK}")
    begin, missed = perf_counter(), 0
    print(f"{options.trials} tests a cell, in %; level {LEVEL:.0%}.\n")
    print(
        f"{'rewards':<8}{'world':<19}{'K':>3}  {'against':<9}{'looks':<10}{'false':>8}"
        f"{'values':>10}{'gaps':>10}{'decided':>9}{'budget':>8}{'excess':>8}"
    )
    with ProcessPoolExecutor(options.processes) as pool:
        for cell in cells(options.variants, options.kinds):
            runs = pool.map(partial(measured, cell), range(options.trials // CHUNK))
            text, miss = row(together(runs))
            missed += miss
            print(f"{cell.name}{text}", flush=True)
    result = "PASS" if not missed else f"MISS in {missed} places"
    print(f"\n{result}, {perf_counter() - begin:.0f} s")


def together(runs: Iterable[dict[str, Floats]]) -> dict[str, Floats]:
    """The numbers of several batches."""
    parts = list(runs)
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def row(found: dict[str, Floats]) -> tuple[str, int]:
    """What is printed of a cell, and how often it misses what was promised."""
    ends = [
        binomtest(int(found[key].sum()), len(found[key])).proportion_ci(0.99) for key in KEYS[:3]
    ]
    misses = ends[0].low > WRONG, ends[1].high < LEAST, ends[2].high < LEAST
    shares = [
        f"{100 * found[key].mean():.2f}{'!' if miss else ' '}"
        for key, miss in zip(KEYS[:3], misses, strict=True)
    ]
    text = f"{shares[0]:>8}{shares[1]:>10}{shares[2]:>10}"
    text += f"{100 * found['decided'].mean():9.1f}{100 * found['used'].mean():8.1f}"
    known = found["excess"][np.isfinite(found["excess"])]
    if known.size > 20:
        text += f"{100 * known.mean():8.1f}"
    return text + ("  MISS" if any(misses) else ""), int(sum(misses))


if __name__ == "__main__":
    main()
