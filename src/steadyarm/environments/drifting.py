"""Worlds that move in ways the paper did not try, each from a few parameter vectors.

All parameters are in the user's features. The best arm is always that of the time average.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steadyarm.arms import ArmSet
from steadyarm.compiled import normal
from steadyarm.environments.environment import Environment
from steadyarm.environments.noise import Noise
from steadyarm.errors import InvalidInputError
from steadyarm.validation import finite_number, whole_number

__all__ = ["random_walk", "repeating", "shock", "switching", "trend", "weekday_weekend"]


def trend(
    arms: ArmSet, first: ArrayLike, last: ArrayLike, budget: int, noise: Noise | None = None
) -> Environment:
    """Parameters that move in a straight line from `first` to `last`.

    Examples
    --------
    >>> arms = ArmSet.one_hot(["A", "B"])
    >>> trend(arms, [0.0, 0.4], [1.0, 0.4], budget=100).average.round(2).tolist()
    [0.5, 0.4]
    """
    start, end = _vector(arms, first, "first"), _vector(arms, last, "last")
    way = np.linspace(0.0, 1.0, whole_number(budget, "budget", least=1))[:, None]
    return Environment.from_parameters(arms, start + way * (end - start), noise)


def random_walk(
    arms: ArmSet,
    theta: ArrayLike,
    step: float,
    budget: int,
    seed: int = 0,
    noise: Noise | None = None,
) -> Environment:
    """Parameters that take an independent normal step of sd `step` after every round.

    Examples
    --------
    >>> arms = ArmSet.one_hot(["A", "B"])
    >>> world = random_walk(arms, [0.5, 0.0], step=0.01, budget=1000, seed=1)
    >>> world.means[0].tolist(), world.means[999].round(2).tolist()
    ([0.5, 0.0], [0.3, -0.08])
    """
    base = _vector(arms, theta, "theta")
    if not finite_number(step, "step") >= 0:
        raise InvalidInputError(f"step is {step}; expected a number of at least 0.")
    rng = np.random.default_rng(whole_number(seed, "seed"))
    steps = step * normal(rng, (whole_number(budget, "budget", least=1), len(base)))
    steps[0] = 0.0
    return Environment.from_parameters(arms, base + steps.cumsum(axis=0), noise)


def switching(
    arms: ArmSet,
    thetas: ArrayLike,
    budget: int,
    shares: Sequence[float] | None = None,
    noise: Noise | None = None,
) -> Environment:
    """One parameter after the other, abruptly; each for its share of the budget.

    Examples
    --------
    >>> arms = ArmSet.one_hot(["A", "B"])
    >>> world = switching(arms, [[0.0, 1.0], [0.6, 0.1]], budget=10, shares=[0.3, 0.7])
    >>> world.average.round(2).tolist()
    [0.42, 0.37]
    """
    table = _rows(arms, thetas)
    share = np.ones(len(table)) if shares is None else _numbers(shares, "shares")
    if share.shape != (len(table),) or not ((share > 0) & (share < np.inf)).all():
        raise InvalidInputError(
            f"shares is {shares}; expected {len(table)} positive numbers, one per parameter."
        )
    ends = np.rint(np.cumsum(share) / share.sum() * whole_number(budget, "budget", least=1)).astype(
        np.int64
    )
    return Environment.from_parameters(
        arms, np.repeat(table, np.diff(ends, prepend=0), axis=0), noise
    )


def shock(
    arms: ArmSet,
    theta: ArrayLike,
    during: ArrayLike,
    budget: int,
    start: float = 0.2,
    length: float = 0.1,
    noise: Noise | None = None,
) -> Environment:
    """Parameter `theta`, but for one spell of `during`; start and length in shares of the budget.

    Examples
    --------
    >>> arms = ArmSet.one_hot(["A", "B"])
    >>> shock(arms, [0.5, 0.4], during=[0.0, 3.0], budget=100).average.round(2).tolist()
    [0.45, 0.66]
    """
    start, length = finite_number(start, "start"), finite_number(length, "length")
    if not (0 <= start <= 1 and 0 <= length <= 1):
        raise InvalidInputError(
            f"start is {start} and length is {length}; expected shares of the budget, 0 to 1."
        )
    budget = whole_number(budget, "budget", least=1)
    thetas = np.tile(_vector(arms, theta, "theta"), (budget, 1))
    first = round(start * budget)
    thetas[first : first + round(length * budget)] = _vector(arms, during, "during")
    return Environment.from_parameters(arms, thetas, noise)


def repeating(
    arms: ArmSet, thetas: ArrayLike, each: int, budget: int, noise: Noise | None = None
) -> Environment:
    """Parameters in turn, `each` rounds a time, over and over.

    Seven daily parameters are the paper's weekly periods; two with a short `each` are a pattern
    that an adversary would choose against blocks of that length.

    Examples
    --------
    >>> arms = ArmSet.one_hot(["A", "B"])
    >>> world = repeating(arms, [[1.0, 0.0], [0.0, 1.0]], each=2, budget=5)
    >>> world.means[:, 0].tolist()
    [1.0, 1.0, 0.0, 0.0, 1.0]
    """
    table = _rows(arms, thetas)
    place = (
        np.arange(whole_number(budget, "budget", least=1))
        // whole_number(each, "each", least=1)
        % len(table)
    )
    return Environment.from_parameters(arms, table[place], noise)


def weekday_weekend(
    arms: ArmSet,
    weekday: ArrayLike,
    weekend: ArrayLike,
    visits_per_day: int,
    days: int = 14,
    first_day: int = 5,
    noise: Noise | None = None,
) -> Environment:
    """One parameter from Monday to Friday, another at weekends; day 0 is a Monday.

    Examples
    --------
    >>> arms = ArmSet.one_hot(["A", "B"])
    >>> world = weekday_weekend(arms, [0.3, 0.2], [0.1, 0.4], visits_per_day=10, days=7)
    >>> world.average.round(3).tolist()
    [0.243, 0.257]
    """
    visits_per_day = whole_number(visits_per_day, "visits_per_day", least=1)
    if not 0 <= whole_number(first_day, "first_day") < 7:
        raise InvalidInputError(f"first_day is {first_day}; expected 0 (Monday) to 6 (Sunday).")
    week = np.array(
        [_vector(arms, weekday, "weekday")] * 5 + [_vector(arms, weekend, "weekend")] * 2
    )
    rolled = np.roll(week, -first_day, axis=0)
    return repeating(
        arms, rolled, visits_per_day, visits_per_day * whole_number(days, "days", least=1), noise
    )


def _numbers(values: ArrayLike, what: str) -> NDArray[np.float64]:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{what} does not consist of numbers: {error}.") from None


def _vector(arms: ArmSet, values: ArrayLike, what: str) -> NDArray[np.float64]:
    vector = _numbers(values, what)
    if vector.shape != (arms.dimension,):
        raise InvalidInputError(
            f"{what} has shape {vector.shape}; expected ({arms.dimension},), one per feature."
        )
    return vector


def _rows(arms: ArmSet, values: ArrayLike) -> NDArray[np.float64]:
    table = _numbers(values, "thetas")
    if table.ndim != 2 or table.shape[1] != arms.dimension or not len(table):
        raise InvalidInputError(
            f"thetas has shape {table.shape}; expected (number, {arms.dimension}), one row per "
            "parameter and one column per feature."
        )
    return table
