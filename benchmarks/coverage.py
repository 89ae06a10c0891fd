"""Coverage of decisions and intervals: how often is a statement at the 95 % level wrong?

Every cell plays whole tests whose true means are known, in batches, with the allocations and the
pieces of live tests, and analyses them with the functions that live tests and logs use. All
variants of a cell have the same mean, unless one is better, so that every decision is wrong. MISS
marks a share of wrong decisions whose exact 99 % interval lies above 5 %, or a coverage whose
interval lies below 94 %.

    python -m benchmarks.coverage --what money|intervals|lifts|metrics|stopping|splits
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from time import perf_counter

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

import steadyarm as sa
from steadyarm.inference.boundaries import Looks
from steadyarm.inference.evidence import Evidence
from steadyarm.inference.fit import lack_of_fit
from steadyarm.inference.intervals import Intervals, fixed_budget
from steadyarm.inference.lift import Lifts, lift_path, lifts
from steadyarm.inference.sequences import confidence_path, decide_for
from steadyarm.segments import Order, Segment, SegmentStats

LEVEL, CHUNK, BLOCK = 0.95, 100, 20
Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Floats]


def sales(rate: float, price: float) -> Draw:
    """Buyers at one price."""
    return lambda rng, n: np.where(rng.random(n) < rate, price, 0.0)


def orders(rate: float, sigma: float) -> Draw:
    """Buyers with lognormal amounts; the mean reward is 1."""

    def draw(rng: np.random.Generator, n: int) -> Floats:
        amounts = rng.lognormal(-(sigma**2) / 2, sigma, n) / rate
        return np.where(rng.random(n) < rate, amounts, 0.0)

    return draw


WEEK = np.array([1.1, 1.2, 1.2, 1.1, 1.0, 0.7, 0.7])
RATE = 0.1  # mean of the shape "clicks"; all others have mean 1

SHAPES: dict[str, Draw] = {
    "normal": lambda rng, n: rng.normal(1.0, 1.0, n),
    "exponential": lambda rng, n: rng.exponential(1.0, n),
    "lognormal": orders(1.0, 1.0),
    "poisson": lambda rng, n: rng.poisson(1.0, n).astype(float),
    "10% at 10": sales(0.1, 10.0),
    "0.5% at 200": sales(0.005, 200.0),
    "1% at 100": sales(0.01, 100.0),
    "5% orders": orders(0.05, 1.0),
    "10% orders": orders(0.1, 0.5),
    "2% orders": orders(0.02, 1.5),
    "20% orders": orders(0.2, 1.0),
    "refunds 2% at 50": sales(0.02, 50.0),
}


@dataclass(frozen=True)
class Cell:
    """One row of the table.

    Attributes
    ----------
    shapes : of the rewards of each variant; the last one is repeated
    shares : "steady", "steady iid" or the control's fixed share of all rounds; with "split", as in
        most logs, and with "iid" the variant of each round is drawn independently
    level : what rewards are multiplied with in the course of the test: "still", "6x late", "3x" or
        "20x" for growth to that multiple, or "week" with a rhythm of four weeks
    looks : interim analyses at equal distances, the last at the end; 1 for a single analysis
    margin : of a guardrail: every other variant is worse than the control by just this much, and
        is wrongly called safe when its limit is above -margin; 0 for a test of the primary metric
    cap : declared upper end of the rewards, None for none
    better : by how much the mean of the last variant is higher, for power
    """

    shapes: tuple[str, ...]
    variants: int = 2
    rounds: int = 2000
    shares: str = "steady"
    level: str = "still"
    looks: int = 1
    margin: float = 0.0
    cap: float | None = None
    better: float = 0.0

    @property
    def name(self) -> str:
        """The first columns of the row."""
        more = f", {self.level}" if self.level != "still" else ""
        more += f", margin {self.margin:g}" if self.margin else ""
        more += f", cap {self.cap:g}" if self.cap else ""
        more += f", +{self.better:g}" if self.better else ""
        what = " | ".join(self.shapes) + more
        return f"{what:<44}{self.variants:>3}{self.rounds:>7} {self.shares:<10}{self.looks:>3}"

    def factor(self, start: NDArray[np.int64]) -> Floats:
        """(n,) level of the rewards from round `start` on."""
        part = start / self.rounds
        if self.level == "6x late":
            return np.where(part >= 0.9, 6.0, 1.0)
        if self.level == "week":
            return np.asarray(WEEK[(28 * part).astype(int) % 7])
        return 1.0 + {"3x": 2.0, "20x": 19.0}.get(self.level, 0.0) * part

    def scales(self) -> list[float]:
        """What the rewards of each variant are multiplied with; of clicks, their rate is."""
        scales = [1.0 - self.margin * (k > 0) for k in range(self.variants)]
        scales[-1] += self.better
        return scales

    def draw(self, rng: np.random.Generator, k: int, level: Floats) -> Floats:
        """Rewards of variant k, one for each level."""
        name, level = self.shapes[min(k, len(self.shapes) - 1)], self.scales()[k] * level
        if name == "clicks":
            return (rng.random(level.size) < RATE * level).astype(np.float64)
        return level * SHAPES[name](rng, level.size)

    def segments(self, arms: sa.ArmSet, seed: int) -> Iterator[tuple[Segment, SegmentStats]]:
        """A batch of tests, piece by piece."""
        rng = np.random.default_rng([seed, 1])
        if self.shares.startswith("steady"):
            policy = sa.Steady(order="iid" if self.shares.endswith("iid") else "blocks")
            state = policy.start(arms, self.rounds, CHUNK, seed=seed)
            while (segment := policy.next_segment(state)) is not None:
                segment = next(segment.parts(self.rounds))
                stats = self.play(segment, state.played, rng)
                yield segment, stats
                state = policy.observe(state, segment, stats)
            return
        control = float(self.shares.split()[0])
        rest = (1 - control) / (self.variants - 1)
        weights = np.tile([control] + [rest] * (self.variants - 1), (CHUNK, 1))
        order: Order = "iid" if self.shares.endswith("split") else "blocks"
        whole = Segment(weights, np.full(CHUNK, self.rounds), order=order, block=BLOCK)
        played = np.zeros(CHUNK, dtype=np.int64)
        for part in whole.parts(self.rounds):
            yield part, self.play(part, played, rng)
            played = played + part.rounds

    def play(
        self, segment: Segment, start: NDArray[np.int64], rng: np.random.Generator
    ) -> SegmentStats:
        """Counts and sums of one segment of each test."""
        arms = sa.ArmSet.one_hot([str(k) for k in range(self.variants)])
        quiet = sa.Environment.from_means(arms, np.zeros((self.rounds, self.variants)))
        counts = quiet.play(segment, start, rng).counts
        sums, squares = np.zeros(counts.shape), np.zeros(counts.shape)
        factor = self.factor(start)
        for k in range(self.variants):
            test = np.repeat(np.arange(len(counts)), counts[:, k])
            rewards = self.draw(rng, k, factor[test])
            if self.cap is not None:
                rewards = np.minimum(rewards, self.cap)
            sums[:, k] = np.bincount(test, rewards, len(counts))
            squares[:, k] = np.bincount(test, rewards**2, len(counts))
        return SegmentStats(counts, sums, squares)


@dataclass(frozen=True)
class TwoByTwo:
    """A row for a 2x2 test whose model has main effects only, although effects do not add up.

    Attributes
    ----------
    effects : of the second choice of each factor; together they bring `extra` more than both
    extra : the interaction that the model lacks
    rounds : of each test
    """

    effects: tuple[float, float]
    extra: float
    rounds: int = 3000

    @property
    def name(self) -> str:
        """The first columns of the row."""
        a, b = self.effects
        what = f"2x2 without interaction, +{a:g} +{b:g} {self.extra:+g}"
        return f"{what:<44}{4:>3}{self.rounds:>7} {'steady':<10}{1:>3}"

    def measure(self, seed: int) -> dict[str, NDArray[np.bool_] | Floats]:
        """Per test: whether a wrong, or any, variant is named that the model's fit allows."""
        factors = {"image": ["a", "b"], "text": ["x", "y"]}
        arms = sa.ArmSet.factorial(factors, interactions=1)
        a, b = self.effects
        means = 0.3 + np.array([0.0, b, a, a + b + self.extra])
        world = sa.Environment.from_means(arms, means, sa.BernoulliReward(), self.rounds)
        rng, policy, log = np.random.default_rng([seed, 1]), sa.Steady(), []
        state = policy.start(arms, self.rounds, CHUNK, seed=seed)
        while (segment := policy.next_segment(state)) is not None:
            segment = next(segment.parts(self.rounds))
            stats = world.play(segment, state.played, rng, squares=True)
            log.append((segment, stats))
            state = policy.observe(state, segment, stats)
        found = fixed_budget(Evidence.from_segments(arms, log), LEVEL)
        decided = np.zeros(CHUNK, dtype=bool)
        for i in np.flatnonzero(found.winner).tolist():
            fit = lack_of_fit(arms, [(part.trial(i), _trial(stats, i)) for part, stats in log])
            best = int(found.recommended[i])
            rivals = np.arange(arms.size) != best
            doubt = fit and fit.doubt(arms.names, best, rivals, found.gaps[i], LEVEL)
            decided[i] = not doubt
        wrong = decided & (means[found.recommended] < means.max() - 1e-12)
        return {"wrong": wrong, "decided": decided}


def _trial(stats: SegmentStats, i: int) -> SegmentStats:
    assert stats.squares is not None
    return SegmentStats(stats.counts[[i]], stats.sums[[i]], stats.squares[[i]])


def measure(cell: Cell | TwoByTwo, seed: int) -> dict[str, NDArray[np.bool_] | Floats]:
    """Per test: wrong decision, right values, gaps and lifts, a winner, widths of the lifts."""
    if isinstance(cell, TwoByTwo):
        return cell.measure(seed)
    arms = sa.ArmSet.one_hot([str(k) for k in range(cell.variants)])
    pieces = list(cell.segments(arms, seed))
    bounds = None if cell.cap is None else (0.0, cell.cap)
    evidence = Evidence.from_segments(arms, pieces, bounds=bounds)
    ends = np.cumsum([segment.rounds for segment, _ in pieces], axis=0).T
    starts = [end - segment.rounds for (segment, _), end in zip(pieces, ends.T, strict=True)]
    levels = np.stack([cell.factor(start) for start in starts], axis=1)
    means = np.cumsum(levels * evidence.rounds, axis=1) / np.maximum(ends, 1)
    mean = np.array(cell.scales()) * (RATE if cell.shapes == ("clicks",) else 1.0)
    at, found, against = _analyses(cell, evidence)
    wrong, decided = np.zeros(CHUNK, dtype=bool), np.zeros(CHUNK, dtype=bool)
    right = {name: np.ones(CHUNK, dtype=bool) for name in ("values", "gaps", "lifts")}
    for j, one, lifted in zip(at, found, against, strict=True):
        truth = means[:, j][:, None] * mean
        rows = np.arange(CHUNK)
        gaps = truth[rows, one.recommended][:, None] - truth
        right["values"] &= _inside(truth, one.low, one.high)
        right["gaps"] &= _inside(gaps, one.gap_low, one.gap_high)
        right["lifts"] &= _inside(truth - truth[:, :1], lifted.low, lifted.high)
        if cell.margin:
            bar = -cell.margin * means[:, j][:, None]
            wrong |= (lifted.low[:, 1:] > bar + 1e-12).any(axis=1)
            continue
        chosen = decide_for(one.recommended, one.winner, lifted.low, lifted.high, 0)
        worth = truth[rows, np.maximum(chosen, 0)]
        good = (worth > truth[:, 0] + 1e-12) | ((chosen == 0) & (worth >= truth.max(axis=1)))
        wrong |= (chosen >= 0) & ~(good & bool(cell.better))
        decided |= chosen >= 0
    width = lifted.high[:, -1] - lifted.low[:, -1]
    return {"wrong": wrong, "decided": decided, "width": width, **right}


def _analyses(cell: Cell, evidence: Evidence) -> tuple[list[int], list[Intervals], list[Lifts]]:
    if cell.looks == 1:
        last = evidence.rounds.shape[1] - 1
        single = fixed_budget(evidence, LEVEL)
        return [last], [single], [lifts(evidence, 0, LEVEL, intervals=single)]
    looks = Looks.equally(cell.looks, over=True)
    at = list(range(evidence.rounds.shape[1]))
    found = confidence_path(evidence, cell.rounds, LEVEL, looks=looks)
    return at, found, lift_path(evidence, cell.rounds, 0, LEVEL, looks=looks)


def _inside(truth: Floats, low: Floats, high: Floats) -> NDArray[np.bool_]:
    return np.asarray(((low <= truth + 1e-9) & (truth - 1e-9 <= high)).all(axis=1))


def money() -> Iterator[Cell | TwoByTwo]:
    """Rewards of unequal shape, unequal shares, guardrails, growing levels, wrong models."""
    pairs = (
        ("10% at 10", "0.5% at 200"),
        ("10% at 10", "1% at 100"),
        ("10% orders", "2% orders"),
        ("5% orders", "10% at 10"),
        ("20% orders", "normal"),
    )
    for pair in pairs:
        for rounds, looks in ((400, 1), (2000, 1), (2000, 20), (20000, 1), (20000, 28)):
            yield Cell(pair, rounds=rounds, looks=looks)
    for share in ("0.05", "0.1", "0.2", "0.5"):
        for rounds, looks in ((2000, 1), (2000, 14), (10000, 1)):
            yield Cell(("5% orders",), rounds=rounds, shares=share, looks=looks)
    for share in ("0.5 split", "0.7 split", "0.9 split", "0.95 split"):
        for rounds in (400, 2000, 20000):
            yield Cell(("5% orders",), rounds=rounds, shares=share)
    for rounds in (2000, 20000):
        yield Cell(("refunds 2% at 50", "0.5% at 200"), rounds=rounds, looks=10, margin=0.1)
        yield Cell(("0.5% at 200", "0.5% at 200"), rounds=rounds, looks=10, margin=0.1)
        yield Cell(("5% orders",), rounds=rounds, looks=10, margin=0.1)
    for shape in ("lognormal", "exponential"):
        for variants, rounds in ((5, 500), (10, 500), (10, 2000), (20, 2000), (10, 10000)):
            yield Cell((shape,), variants, rounds)
    for variants, rounds in ((5, 40), (5, 100), (10, 100), (10, 200), (20, 400)):
        yield Cell(("normal",), variants, rounds, "steady iid")
    for level in ("6x late", "3x"):
        yield Cell(("20% orders",), rounds=14000, looks=28, level=level)
        yield Cell(("normal",), rounds=14000, looks=28, level=level)
        yield Cell(("5% orders",), 3, rounds=14000, looks=28, level=level)
    for variants in (5, 10, 20):
        yield Cell(("5% orders",), variants, rounds=20000)
    yield Cell(("10% at 10", "0.5% at 200"), cap=200.0)
    yield Cell(("10% at 10", "0.5% at 200"), cap=200.0, looks=20)
    for extra in (-0.06, -0.1):
        for effects in ((0.0, 0.02), (0.04, 0.06), (0.04, 0.1), (0.08, 0.1)):
            yield TwoByTwo(effects, extra)
    for shape in ("20% orders", "normal"):
        yield Cell((shape,), rounds=14000, looks=28, level="20x")
    yield Cell(("10% at 10", "1% at 100"), rounds=5000, looks=20)


def intervals() -> Iterator[Cell]:
    """Limits of values and gaps, in a single analysis and at twenty, with drift and one better."""
    for shape in ("clicks", "normal", "exponential", "5% orders"):
        for variants in (2, 5, 10):
            for level in ("still", "3x", "week", "6x late"):
                for looks in (1, 20):
                    yield Cell((shape,), variants, 8000, level=level, looks=looks, better=0.1)


def lift_cells() -> Iterator[Cell]:
    """Differences from a control with a fixed share or Steady's, clicks, normal and money."""
    for shape, rounds in (("clicks", 8000), ("normal", 4000), ("5% orders", 16000)):
        for shares in ("steady", "0.25", "0.5"):
            for level in ("still", "3x", "week"):
                for looks in (1, 20):
                    yield Cell((shape,), 4, rounds, shares, level, looks, better=0.08)


def metrics() -> Iterator[Cell]:
    """Guardrails of metrics of which every other variant is just at the margin."""
    for shape, rounds in (("clicks", 8000), ("normal", 4000), ("5% orders", 20000)):
        for variants in (2, 4):
            for margin in (0.05, 0.1):
                for looks in (1, 8, 28):
                    yield Cell((shape,), variants, rounds, looks=looks, margin=margin)


def stopping() -> Iterator[Cell]:
    """Decisions at interim analyses: false ones of equal variants, and power with a better one."""
    for shape, rounds in (("clicks", 8000), ("normal", 4000)):
        for variants in (2, 3, 5, 10):
            for level in ("still", "3x", "week"):
                yield Cell((shape,), variants, rounds, level=level, looks=8)
            yield Cell((shape,), variants, rounds, looks=28)
            for better in (0.1, 0.2):
                yield Cell((shape,), variants, rounds, level="week", looks=8, better=better)


def splits() -> Iterator[Cell]:
    """Logs of tests with a fixed split, drawn for each unit independently."""
    for shape in ("clicks", "normal", "lognormal", "10% orders"):
        for shares in ("0.5 split", "0.2 split", "0.9 split"):
            for level in ("still", "3x", "week"):
                for rounds in (400, 4000):
                    yield Cell((shape,), rounds=rounds, shares=shares, level=level)


WHAT = {
    "money": money, "intervals": intervals, "lifts": lift_cells,
    "metrics": metrics, "stopping": stopping, "splits": splits,
}  # fmt: skip  # a table reads better so


def _row(cell: Cell | TwoByTwo, found: dict[str, Floats]) -> str:
    text = cell.name
    for name in ("wrong", "values", "gaps", "lifts"):
        if name not in found:  # of a wrong model no interval is right
            text += f"{'-':>7} "
            continue
        hits, tests = int(found[name].sum()), len(found[name])
        interval = binomtest(hits, tests).proportion_ci(0.99)
        bad = interval.low > 0.05 if name == "wrong" else interval.high < 0.94
        text += f"{100 * hits / tests:>7.1f}{'*' if bad else ' '}"
    if "width" not in found:
        return f"{text}{100 * found['decided'].mean():>8.1f}"
    finite = np.isfinite(found["width"])
    width = np.median(found["width"][finite]) if finite.any() else np.nan
    return f"{text}{100 * found['decided'].mean():>8.1f}{100 * finite.mean():>7.0f}{width:>9.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--what", choices=WHAT, default="money")
    parser.add_argument("--tests", type=int, default=1000)
    parser.add_argument("--only", default="", help="rows that contain this text")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    start = perf_counter()
    print(f"Per cent of {args.tests} tests; * marks a MISS; width is the median of the lift's.")
    head = f"{'rewards':<44}{'K':>3}{'T':>7} {'shares':<10}{'L':>3}"
    print(f"{head}   wrong  values    gaps   lifts decided finite    width", flush=True)
    misses = 0
    with ProcessPoolExecutor(args.jobs) as pool:
        for i, cell in enumerate(WHAT[args.what]()):
            if args.only not in cell.name:
                continue
            seeds = [1000 * (1000 * args.seed + i) + k for k in range(-(-args.tests // CHUNK))]
            parts = list(pool.map(partial(measure, cell), seeds))
            found = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
            row = _row(cell, {key: value[: args.tests] for key, value in found.items()})
            misses += "*" in row
            print(row, flush=True)
    print(f"{misses} rows with a MISS; {perf_counter() - start:.0f} seconds.")


if __name__ == "__main__":
    main()
