"""The six tests that every tool has to decide: two weeks of clicks, with a known best variant.

The best is the one with the highest click rate averaged over the two weeks: what would have earned
most had it been shown to everybody. Effects were sized so that an equal split errs in some 5 to 15
of a hundred tests, before any other library had been run, and were not changed afterwards.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

import steadyarm as sa
from steadyarm.environments import shock, switching, trend, weekday_weekend

DAYS = 14
CLICKS = sa.BernoulliReward()


def potential_rewards(
    world: str, environment: sa.Environment, seed: int, trial: int
) -> NDArray[np.float64]:
    """(T, K): what each variant would bring at each visit of a trial, the same for every tool."""
    rng = np.random.default_rng([seed, zlib.crc32(world.encode()), trial])
    return (rng.random(environment.means.shape) < environment.means).astype(np.float64)


def seeds(world: str, seed: int, trial: int) -> int:
    """The seed with which a tool draws in this trial; unrelated to that of the rewards."""
    mixed = np.random.SeedSequence([seed, zlib.crc32(world.encode()), trial, 1])
    return int(mixed.generate_state(1)[0])


def _five() -> sa.ArmSet:
    return sa.ArmSet.one_hot(list("ABCDE"))


def still(visits: int) -> sa.Environment:
    """Five variants whose click rates stay as they are."""
    rates = np.array([0.10, 0.12, 0.11, 0.10, 0.155])
    return sa.Environment.from_means(_five(), rates, CLICKS, budget=DAYS * visits)


def promotion(visits: int) -> sa.Environment:
    """D is the worst, but for four days at the start of week two it is the best by far."""
    usual, during = [0.10, 0.12, 0.11, 0.06, 0.165], [0.10, 0.12, 0.11, 0.30, 0.165]
    return shock(_five(), usual, during, DAYS * visits, 7 / DAYS, 4 / DAYS, CLICKS)


def week(visits: int) -> sa.Environment:
    """E is best from Monday to Friday, worst at weekends, when people click more."""
    weekday, weekend = [0.10, 0.11, 0.11, 0.12, 0.22], [0.20, 0.22, 0.20, 0.22, 0.10]
    return weekday_weekend(_five(), weekday, weekend, visits, DAYS, first_day=0, noise=CLICKS)


def novelty(visits: int) -> sa.Environment:
    """A is new: it starts above all others and wears off in a straight line."""
    first, last = [0.28, 0.12, 0.11, 0.12, 0.20], [0.04, 0.12, 0.11, 0.12, 0.20]
    return trend(_five(), first, last, DAYS * visits, CLICKS)


def switch(visits: int) -> sa.Environment:
    """A leads by far in the first three tenths, E in the rest and on average."""
    rates = [[0.30, 0.12, 0.11, 0.12, 0.08], [0.08, 0.12, 0.11, 0.12, 0.22]]
    return switching(_five(), rates, DAYS * visits, [0.3, 0.7], CLICKS)


def layouts(visits: int) -> sa.Environment:
    """Sixteen layouts of four parts, main effects and pairs, which differ at weekends."""
    arms = sa.ArmSet.factorial({part: ["a", "b"] for part in ("image", "title", "price", "button")})
    base = np.array([0.35, 0.05, 0.035, 0.04, 0.04, 0.01, 0, -0.01, 0, 0.01, 0])
    swing = np.array([0.10, 0.06, -0.05, 0.04, 0.06, 0, 0, 0, 0, 0, 0])
    weekday, weekend = base + swing * 2 / 7, base - swing * 5 / 7
    return weekday_weekend(arms, weekday, weekend, visits, DAYS, first_day=0, noise=CLICKS)


WORLDS: dict[str, Callable[[int], sa.Environment]] = {
    build.__name__: build for build in (still, promotion, week, novelty, layouts, switch)
}
