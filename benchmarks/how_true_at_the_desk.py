"""How true is what a test says at the desk, where rewards are late, missing, skewed, and looked at?

Whole tests through `Session` and `create_experiment` on a fake clock. Wrong winners, and drift seen
where there is none, must stay below 5 % of tests, over all looks together; intervals must hold in
95 % less 1. Every rate has its exact 99 % interval; MISS is said where that lies wholly on the
wrong side. A test in which some interval is refused counts as covered: how many were is told.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from os import cpu_count
from time import perf_counter
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

import steadyarm as sa
from steadyarm.storages import open_storage

LOOKS = 20
DAYS = 10
DAY = 86_400.0
START = 1_780_000_000.0
Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int, float], float]  # of an arm, at a share of the test


@dataclass
class Seen:
    """What one test said.

    Attributes
    ----------
    wrong_end, wrong_ever : a variant that is not the only best was declared the winner
    right_end : the only best was declared
    missed_end, missed_ever : some value lay outside of its interval
    refused : some interval of the last look was refused
    drift : drift was said to be seen, at any look
    blocked : the last verdict was said to be not healthy
    """

    wrong_end: bool = False
    wrong_ever: bool = False
    right_end: bool = False
    missed_end: bool = False
    missed_ever: bool = False
    refused: bool = False
    drift: bool = False
    blocked: bool = False

    def look(self, test: sa.Session | sa.Experiment, means: Floats, last: bool) -> None:
        """One look, as somebody who comes by takes it."""
        results = test.results()
        try:
            verdict = results.recommend()
        except sa.RewardsPendingError:
            return
        if last:  # an alarm that was raised at any look stays
            report = results.drift()
            self.drift = report.gaps_move or report.level_moves
        settings = test if isinstance(test, sa.Session) else test.settings
        sign = 1.0 if settings.direction == "maximize" else -1.0
        unique = int((sign * means == (sign * means).max()).sum()) == 1
        right = unique and sign * means[verdict.arm] == (sign * means).max()
        low, high = verdict.intervals.T
        missed = bool(((low > means) | (high < means)).any())
        self.wrong_ever |= verdict.sure and not right
        self.missed_ever |= missed
        if last:
            self.wrong_end, self.missed_end = verdict.sure and not right, missed
            self.right_end = verdict.sure and right
            self.refused = not np.isfinite(high - low).all()
            self.blocked = bool(verdict.unhealthy)


@dataclass(frozen=True)
class Rate:
    """How often something happened, and what was promised.

    Attributes
    ----------
    what : a field of `Seen`
    most : highest share that was promised; None if there is no promise
    least : lowest share that was promised
    """

    what: str
    most: float | None = None
    least: float | None = None


WINNERS = (Rate("wrong_end", most=0.05), Rate("wrong_ever", most=0.05))
VALUES = (Rate("missed_end", most=0.06), Rate("missed_ever", most=0.06))


@dataclass(frozen=True)
class Cell:
    """One situation: how a test of it is played, and what is counted."""

    name: str
    play: Callable[[int], Seen]
    rates: tuple[Rate, ...] = field(default=WINNERS)


def in_session(
    seed: int,
    means: Sequence[float],
    draw: Draw,
    budget: int,
    looks: int = LOOKS,
    lost: Sequence[float] | float = 0.0,
    direction: Literal["maximize", "minimize"] = "maximize",
    drifting: bool = False,
) -> Seen:
    """A test in memory with prompt rewards, some of which are lost; a look now and then.

    lost : share of the rewards of each variant that never come, whatever they are
    """
    K, rng, seen = len(means), np.random.default_rng([seed, 7]), Seen()
    arms = sa.ArmSet.one_hot([f"variant {k}" for k in range(K)])
    session = sa.Session(sa.Steady(), arms, budget, seed=seed, direction=direction)
    gone, truth = np.broadcast_to(lost, K), np.array(means, dtype=np.float64)
    at = {round(budget * (i + 1) / looks) for i in range(looks)}
    for i in range(budget):
        shown = session.ask()
        if rng.random() < gone[shown.arm]:
            session.forget(shown)
        else:
            session.tell(shown, draw(rng, shown.arm, (i + 0.5) / budget))
        if i + 1 in at:
            if i + 1 == budget:
                session.finish()
            # Under drift what a look in the middle estimates is the average up to there.
            if i + 1 == budget or not drifting:
                seen.look(session, truth, last=i + 1 == budget)
    return seen


def in_experiment(
    seed: int,
    means: Sequence[float],
    delays: Sequence[float],
    window: float,
    visits: int = 200,
) -> Seen:
    """A shop of ten days on a fake clock; only clicks are reported, late; a look every evening.

    delays : of each variant: clicks come up to so many days after the visit, evenly
    window : reward window in days; clicks after it are refused and count as zero
    """
    now, rng, seen = [START], np.random.default_rng([seed, 8]), Seen()
    live = sa.create_experiment(
        "shop",
        [f"variant {k}" for k in range(len(means))],
        sa.Steady(),
        DAYS * visits,
        open_storage("memory"),
        seed=seed,
        reward_window=window * DAY,
        missing="zero",
        clock=lambda: now[0],
    )
    due: list[tuple[float, sa.LiveAssignment]] = []
    times = 8
    for step in range(times * DAYS):
        now[0] = START + step * DAY / times
        for shown in live.ask_many([f"{step} {i}" for i in range(visits // times)]):
            assert isinstance(shown, sa.LiveAssignment)
            if rng.random() < means[shown.arm]:
                due.append((now[0] + DAY * rng.uniform(0, delays[shown.arm]), shown))
        live.tell_many((shown, 1.0) for when, shown in due if when <= now[0])
        due = [one for one in due if one[0] > now[0]]
        if step % times == times - 1:
            seen.look(live, np.array(means), last=False)
    while due:
        now[0] += DAY / 4
        live.tell_many((shown, 1.0) for when, shown in due if when <= now[0])
        due = [one for one in due if one[0] > now[0]]
    seen.look(live, np.array(means), last=False)
    now[0] += window * DAY + 1
    seen.look(live, np.array(means), last=True)
    return seen


def clicks(rates: Sequence[float]) -> Draw:
    return lambda rng, k, _: float(rng.random() < rates[k])


def normal(means: Sequence[float], trend: Sequence[float] | None = None) -> Draw:
    """Noise of standard deviation 1; means move evenly from minus to plus the trend."""
    slope = np.zeros(len(means)) if trend is None else trend
    return lambda rng, k, t: float(means[k] + slope[k] * (2 * t - 1) + rng.standard_normal())


def revenue(sigma: float, buyers: float = 0.05) -> tuple[float, Draw]:
    """Lognormal amounts of median 10 from a share of visitors; the mean, and the draw."""
    mean = buyers * 10 * np.exp(sigma**2 / 2)
    return (
        float(mean),
        lambda rng, k, _: (
            float(10 * np.exp(sigma * rng.standard_normal())) if rng.random() < buyers else 0.0
        ),
    )


def seconds(means: Sequence[float]) -> Draw:
    """Waiting times: gamma of shape 4."""
    return lambda rng, k, _: float(rng.gamma(4.0, means[k] / 4))


def cells() -> Iterator[Cell]:
    """All situations."""
    drift = Rate("drift", most=0.05)
    for K in (2, 3, 5):
        same = [0.3] * K
        play = partial(in_session, means=same, draw=clicks(same), budget=1000)
        yield Cell(f"{K} equal variants, 20 looks", play, (*WINNERS, *VALUES, drift))
    apart = [0.3, 0.3, 0.15]
    play = partial(in_session, means=apart, draw=clicks(apart), budget=1000)
    yield Cell("two equal best of three, 20 looks", play)
    for share in (0.1, 0.3, 0.5):
        days = share * DAYS
        play = partial(in_experiment, means=[0.1, 0.1], delays=[days] * 2, window=days)
        yield Cell(f"clicks up to {days:g} days late", play, (*WINNERS, *VALUES, drift))
        play = partial(in_experiment, means=[0.10, 0.11], delays=[0.125, days], window=days)
        yield Cell(f"the better one up to {days:g} days late", play, (*WINNERS, *VALUES, drift))
    for K in (3, 12, 20):
        for lost in (0.1, 0.25, 0.4):
            means = np.linspace(0.4, 0.6, K).round(3).tolist()
            trend = np.linspace(0.75, -0.75, K).tolist()
            play = partial(
                in_session,
                means=means,
                draw=normal(means, trend),
                budget=2000,
                looks=1,
                lost=lost,
                drifting=True,
            )
            name = f"{lost:.0%} missing by chance, {K} variants, trend ±0.75"
            yield Cell(name, play, (Rate("wrong_end", most=0.05), Rate("missed_end", most=0.06)))
    same = [0.3, 0.3]
    play = partial(
        in_session, means=same, draw=clicks(same), budget=2000, looks=1, lost=[0.1, 0.25]
    )
    yield Cell("one variant loses 25 %, the other 10 %", play, (Rate("blocked", least=0.95),))
    play = partial(in_session, means=same, draw=clicks(same), budget=2000, looks=1, lost=0.2)
    yield Cell("both lose 20 %", play, (Rate("blocked", most=0.01),))
    for sigma in (0.8, 1.0, 1.2, 1.5):
        mean, draw = revenue(sigma)
        play = partial(in_session, means=[mean] * 2, draw=draw, budget=2000, looks=10)
        yield Cell(f"revenue, sigma {sigma:g}, 10 looks", play, (*WINNERS, *VALUES))
    for K, rate in ((2, 0.005), (5, 0.01), (20, 0.02)):
        same = [rate] * K
        play = partial(in_session, means=same, draw=clicks(same), budget=4000, looks=10)
        yield Cell(f"{rate:.1%} clicks, {K} variants, 10 looks", play, (*WINNERS, *VALUES))
    for lost in (0.0, 0.3):
        means = [3.0, 3.0, 3.6]
        play = partial(
            in_session,
            means=means,
            draw=seconds(means),
            budget=1000,
            lost=lost,
            direction="minimize",
        )
        yield Cell(f"seconds, less is better, {lost:.0%} missing", play, (*WINNERS, *VALUES, drift))


def told(rate: Rate, count: int, tests: int) -> str:
    """The share with its interval, and whether the promise is broken for sure."""
    found = binomtest(count, tests).proportion_ci(0.99, "exact")
    missed = (rate.most is not None and found.low > rate.most) or (
        rate.least is not None and found.high < rate.least
    )
    name = rate.what.replace("_", " ")
    mark = "  MISS" if missed else ""
    return f"{name} {count / tests:.3f} [{found.low:.3f}, {found.high:.3f}]{mark}"


def main(argv: Sequence[str] | None = None) -> None:
    """Play all situations, or some, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tests", type=int, default=1000, help="of each situation")
    parser.add_argument("--only", default="", help="situations with this text in their name")
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument("--jobs", type=int, default=cpu_count() or 1, help="processes")
    args: Any = parser.parse_args(argv)
    misses, began = 0, perf_counter()
    names = [cell.name for cell in cells()]
    for number, name in enumerate(names):
        if args.only not in name:
            continue
        seeds = [args.seed + 1_000_000 * number + i for i in range(args.tests)]
        parts = [(number, seeds[i :: 4 * args.jobs]) for i in range(4 * args.jobs)]
        with ProcessPoolExecutor(args.jobs) as pool:
            seen = [one for part in pool.map(_part, parts) for one in part]
        rates = next(cell for cell in cells() if cell.name == name).rates
        lines = [
            told(rate, sum(bool(getattr(one, rate.what)) for one in seen), len(seen))
            for rate in rates
        ]
        misses += sum("MISS" in line for line in lines)
        refused = sum(one.refused for one in seen) / len(seen)
        right = sum(one.right_end for one in seen) / len(seen)
        print(f"{name} ({len(seen):,} tests)")
        for line in lines:
            print(f"    {line}")
        print(f"    winner rightly declared {right:.3f}, some interval refused {refused:.3f}")
    print(f"\n{misses} promises broken for sure; {perf_counter() - began:.0f} s.")


def _part(part: tuple[int, list[int]]) -> list[Seen]:
    """Some tests of a situation, told by its number: what plays it cannot go to a process."""
    number, seeds = part
    cell = list(cells())[number]
    return [cell.play(seed) for seed in seeds]


if __name__ == "__main__":
    main()
