"""Effects of the parts of variants: levels of factors, or items of bundles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb, prod
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc, stdtrit

from steadyarm.arms.arm_set import ArmSet
from steadyarm.arms.recipes import Bundles, Factorial
from steadyarm.errors import InvalidInputError
from steadyarm.inference import Evidence
from steadyarm.inference.drift import group_pieces
from steadyarm.wording import factors_in

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Effect:
    """The effect of one level of a factor, averaged over all others; or of one item of bundles.

    Attributes
    ----------
    factor, level : their names; of bundles "item" and the item's name
    mean : reward with this level, or of all bundles with this item
    difference : from the average over the factor's levels, or from the mean of all bundles without
        the item
    low, high : ends of its interval
    """

    factor: str
    level: str
    mean: float
    difference: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Interaction:
    """Two factors together.

    Attributes
    ----------
    means, errors : (levels of the first, levels of the second) mean reward and standard error
    strength : the largest departure from the sum of both main effects
    p_value : probability of so much if the factors do not interact
    """

    first: str
    second: str
    means: Floats
    errors: Floats
    strength: float
    p_value: float


@dataclass(frozen=True, eq=False)
class Effects:
    """Effects of the parts of variants: levels of factors, or items of bundles.

    Attributes
    ----------
    factors : with their levels; of bundles one called "item"
    main : one for each level, in this order; of bundles from the best item to the worst
    pairs : interactions of factors, from the clearest on; none of bundles
    level : the level of the intervals, which hold for all of `main` at once
    kind : "items" for a test of bundles
    chosen : items of the recommended bundle, if that is known
    """

    factors: Mapping[str, tuple[str, ...]]
    main: tuple[Effect, ...]
    pairs: tuple[Interaction, ...]
    level: float
    kind: Literal["factors", "items"] = "factors"
    chosen: tuple[str, ...] = ()


# The items that the arms of a set are bundles of


def bundles_in(arms: ArmSet) -> Bundles | None:
    """The arguments of `ArmSet.bundles` that made the set; None for another constructor.

    Examples
    --------
    >>> bundles_in(ArmSet.bundles(["tea + milk", "cake", "fruit"], size=2)).items
    ('tea + milk', 'cake', 'fruit')
    >>> bundles_in(ArmSet.one_hot(["tea + cake", "tea + fruit", "cake + fruit"]))
    """
    return arms.recipe if isinstance(arms.recipe, Bundles) else None


def with_and_without(arms: ArmSet, recipe: Bundles) -> tuple[Floats, Floats]:
    """(n, r) coordinates averaged over all bundles with each item, and over those without it."""
    n, size = len(recipe.items), recipe.size
    rows = recipe.rows if arms.given is None else None
    highest = min(recipe.interactions, size)
    # Of large sets the products of the highest order are the coordinates.
    orders = range(highest + 1) if rows is None else (highest,)
    parts = [_averages(n, size, order) for order in orders]
    included, left_out = (np.hstack(columns) for columns in zip(*parts, strict=True))
    if rows is not None:
        return included, left_out
    return included @ arms.dual, left_out @ arms.dual


def _averages(n: int, size: int, order: int) -> tuple[Floats, Floats]:
    """(n, C(n, order)) shares of the bundles with, and without, each item that have all of S.

    Of C(n - 1, size - 1) bundles with an item and C(n - 1, size) without it, those that have the
    sets S of `order` items too are counted.
    """
    subsets = np.array(list(combinations(range(n), order)), dtype=np.int64)
    inside = np.zeros((n, len(subsets)), dtype=bool)
    inside[subsets.T, np.arange(len(subsets))] = True
    both = comb(n - order, size - order)
    beside = comb(n - 1 - order, size - 1 - order) if order < size else 0
    others = comb(n - 1 - order, size - order)
    included = np.where(inside, both, beside) / comb(n - 1, size - 1)
    return included, np.where(inside, 0.0, others) / comb(n - 1, size)


# What the parts of variants do: levels of factors, which may interact, and items of bundles.

TINY = 1e-10  # of the largest: a direction in which nothing can differ


def has_effects(arms: ArmSet) -> bool:
    """Whether the arms are made of parts: of levels of factors, or of items."""
    return bundles_in(arms) is not None or factors_in(arms) is not None


def compute_effects(evidence: Evidence, *, level: float = 0.95, arm: int | None = None) -> Effects:
    """Compute the effect of each level of each factor, or of each item of bundles.

    Factorial tests: main effects and interactions, each averaged over all other factors alike.
    Bundles: the mean reward of all bundles with an item, minus that of all bundles without it.
    Intervals hold for all of these at once. Of a large set they are read off the parameters.

    Parameters
    ----------
    evidence : the evidence of a test, such as `Session.evidence()` and `Analysis.evidence`
    level : the level of the intervals
    arm : the recommended bundle, whose items become `chosen`

    Examples
    --------
    >>> import steadyarm as sa
    >>> pairs = sa.ArmSet.bundles(["tea", "cake", "fruit"], size=2, interactions=1)
    >>> session = sa.Session(sa.Steady(), pairs, budget=600, seed=1)
    >>> for _ in range(600):
    ...     a = session.ask()
    ...     session.tell(a, 0.2 + 0.3 * ("cake" in a.name))
    >>> found = compute_effects(session.evidence())
    >>> [(effect.level, round(effect.difference, 2)) for effect in found.main]
    [('cake', 0.3), ('tea', -0.15), ('fruit', -0.15)]
    """
    recipe = bundles_in(evidence.arms)
    if recipe is not None:
        return _items(evidence, recipe, level, arm)
    factors = factors_in(evidence.arms)
    if factors is None:
        raise InvalidInputError("effects need variants made by ArmSet.factorial or ArmSet.bundles.")
    return _factors(evidence, factors, level)


@dataclass(frozen=True, eq=False)
class _Fit:
    """The parameter of a whole test, and how well it is known."""

    theta: Floats
    covariance: Floats
    freedom: int
    known: bool

    @classmethod
    def of(cls, evidence: Evidence) -> _Fit:
        grouped = group_pieces(evidence, 1)
        units = int(grouped.units[0, 0])
        return cls(grouped.theta[0, 0], grouped.covariance[0, 0], max(units - 1, 1), units > 1)

    def error(self, d: Floats) -> Floats:
        """Standard errors of the values d'θ (last axis)."""
        return np.asarray(np.sqrt(np.maximum(((d @ self.covariance) * d).sum(axis=-1), 0.0)))

    def effects(
        self, factor: str, levels: Sequence[str], rows: Floats, apart: Floats, tail: float
    ) -> list[Effect]:
        """Of rows for means, and of those for differences; tail: beyond each end of an interval."""
        means, differences = rows @ self.theta, apart @ self.theta
        reach = np.full(len(rows), np.inf)
        if self.known:
            reach = float(-stdtrit(self.freedom, tail)) * self.error(apart)
        return [
            Effect(factor, *found)
            for found in zip(
                levels,
                means.tolist(),
                differences.tolist(),
                (differences - reach).tolist(),
                (differences + reach).tolist(),
                strict=True,
            )
        ]


def _items(evidence: Evidence, recipe: Bundles, level: float, arm: int | None) -> Effects:
    fit = _Fit.of(evidence)
    included, left_out = with_and_without(evidence.arms, recipe)
    tail = (1 - level) / (2 * len(recipe.items))
    main = fit.effects("item", recipe.items, included, included - left_out, tail)
    sign = -1 if evidence.direction == "maximize" else 1
    main.sort(
        key=lambda effect: sign * float(f"{effect.difference:.9g}")
    )  # equal ones keep their order
    chosen = () if arm is None else recipe.names.items_of(arm)
    return Effects({"item": recipe.items}, tuple(main), (), level, "items", chosen)


def _factors(evidence: Evidence, factors: Mapping[str, tuple[str, ...]], level: float) -> Effects:
    fit = _Fit.of(evidence)
    shape = tuple(len(levels) for levels in factors.values())
    average = _averager(evidence.arms, shape)
    names = list(factors)
    tail = (1 - level) / (2 * sum(shape))
    main = []
    for f, factor in enumerate(names):
        rows = average([f])
        main += fit.effects(factor, factors[factor], rows, rows - rows.mean(axis=0), tail)
    pairs = []
    for f, g in combinations(range(len(names)), 2):
        cells = average([f, g])
        alone = cells.mean(axis=1, keepdims=True) + cells.mean(axis=0, keepdims=True)
        apart = (cells - alone + cells.mean(axis=(0, 1))).reshape(-1, len(fit.theta))
        if np.abs(apart).max() <= TINY * np.abs(cells).max():
            continue  # the model has no such interaction
        pairs.append(
            Interaction(
                names[f],
                names[g],
                cells @ fit.theta,
                fit.error(cells) if fit.known else np.full(cells.shape[:2], np.nan),
                float(np.abs(apart @ fit.theta).max()),
                _p_value(apart, fit) if fit.known else 1.0,
            )
        )
    pairs.sort(key=lambda pair: (pair.p_value, -pair.strength))
    return Effects(factors, tuple(main), tuple(pairs), level)


def _averager(arms: ArmSet, shape: tuple[int, ...]) -> Callable[[list[int]], Floats]:
    """Coordinates averaged over all factors but those kept, by the levels of these."""
    if not arms.large:
        X = arms.coordinates.reshape(*shape, -1)
        return lambda kept: np.asarray(
            X.mean(axis=tuple(f for f in range(X.ndim - 1) if f not in kept))
        )
    recipe = arms.recipe
    assert isinstance(recipe, Factorial)
    involved = _involved(shape, recipe)
    strides = np.cumprod((1, *shape[:0:-1]))[::-1]

    def average(kept: list[int]) -> Floats:
        # Each main effect is zero on average, and so is every product with one that is not kept.
        sizes = [shape[f] for f in kept]
        index = np.indices(sizes).reshape(len(kept), -1)
        rows = arms.coordinates_of(strides[kept] @ index)
        others = np.delete(np.arange(len(shape)), kept)
        return np.where(involved[:, others].any(axis=1), 0.0, rows).reshape(*sizes, -1)

    return average


def _involved(shape: tuple[int, ...], recipe: Factorial) -> NDArray[np.bool_]:
    """(r, factors) which factors each coordinate of a large factorial set is a product of."""
    rows: list[tuple[int, ...]] = [()] if recipe.constant else []
    for order in range(1, min(recipe.interactions, len(shape)) + 1):
        for subset in combinations(range(len(shape)), order):
            rows += [subset] * prod(shape[f] - 1 for f in subset)
    out = np.zeros((len(rows), len(shape)), dtype=bool)
    for row, subset in zip(out, rows, strict=True):
        row[list(subset)] = True
    return out


def _p_value(apart: Floats, fit: _Fit) -> float:
    """Hotelling's test that all departures are zero."""
    _, sizes, rows = np.linalg.svd(apart, full_matrices=False)
    basis = rows[sizes > TINY * sizes[0]]
    q = len(basis)
    seen, spread = basis @ fit.theta, basis @ fit.covariance @ basis.T
    T2 = float(seen @ np.linalg.pinv(spread, rcond=TINY, hermitian=True) @ seen)
    second = max(fit.freedom - q + 1, 1)
    return float(fdtrc(q, second, max(T2 * second / (q * fit.freedom), 0.0)))
