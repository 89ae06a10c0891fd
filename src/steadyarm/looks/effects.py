"""Factorial tests: what each level does on average, and which factors depend on each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations
from math import prod

import numpy as np
import scipy
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.arms.recipes import Factorial
from steadyarm.inference import Evidence
from steadyarm.inference.periods import group_pieces
from steadyarm.looks.look import Effect, Effects, Interaction

__all__ = ["effects_of"]

Floats = NDArray[np.float64]

TINY = 1e-10  # of the largest: a direction in which nothing can differ


def effects_of(
    evidence: Evidence, factors: Mapping[str, tuple[str, ...]], level: float = 0.95
) -> Effects:
    """Main effects and interactions, each averaged over all other factors alike.

    Intervals hold for all main effects at once. Of a large set they are read off the parameters.
    """
    grouped = group_pieces(evidence, 1)
    theta, covariance = grouped.theta[0, 0], grouped.covariance[0, 0]
    freedom = max(int(grouped.units[0, 0]) - 1, 1)
    known = grouped.units[0, 0] > 1
    shape = tuple(len(levels) for levels in factors.values())
    average = _averager(evidence.arms, shape)
    names = list(factors)
    tail = (1 - level) / (2 * sum(shape))
    z = float(scipy.stats.t.isf(tail, freedom)) if known else np.inf

    def error(d: Floats) -> Floats:
        return np.asarray(np.sqrt(np.maximum(((d @ covariance) * d).sum(axis=-1), 0.0)))

    main = []
    for f, factor in enumerate(names):
        rows = average([f])
        apart = rows - rows.mean(axis=0)
        reach = z * error(apart) if known else np.full(len(rows), np.inf)
        for i, value in enumerate(factors[factor]):
            difference = float(apart[i] @ theta)
            main.append(
                Effect(
                    factor,
                    value,
                    float(rows[i] @ theta),
                    difference,
                    difference - float(reach[i]),
                    difference + float(reach[i]),
                )
            )
    pairs = []
    for f, g in combinations(range(len(names)), 2):
        cells = average([f, g])
        alone = cells.mean(axis=1, keepdims=True) + cells.mean(axis=0, keepdims=True)
        apart = (cells - alone + cells.mean(axis=(0, 1))).reshape(-1, len(theta))
        if np.abs(apart).max() <= TINY * np.abs(cells).max():
            continue  # the model has no such interaction
        pairs.append(
            Interaction(
                names[f],
                names[g],
                cells @ theta,
                error(cells) if known else np.full(cells.shape[:2], np.nan),
                float(np.abs(apart @ theta).max()),
                _p_value(apart, theta, covariance, freedom) if known else 1.0,
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


def _p_value(apart: Floats, theta: Floats, covariance: Floats, freedom: int) -> float:
    """Hotelling's test that all departures are zero."""
    _, sizes, rows = np.linalg.svd(apart, full_matrices=False)
    basis = rows[sizes > TINY * sizes[0]]
    q = len(basis)
    seen, spread = basis @ theta, basis @ covariance @ basis.T
    T2 = float(seen @ np.linalg.pinv(spread, rcond=TINY, hermitian=True) @ seen)
    second = max(freedom - q + 1, 1)
    return float(scipy.stats.f.sf(T2 * second / (q * freedom), q, second))
