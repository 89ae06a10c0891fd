"""The short list of a large set: the arms that people see, chosen in passes over all arms."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.designs.pooled_g import top
from steadyarm.errors import InvalidInputError
from steadyarm.inference.evidence import Evidence

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

EQUAL = 2.0**-40  # share by which estimates may differ through rounding
SHORT = 100  # arms with the best estimates that are shown
LEADERS = 16  # times during the test whose leaders are shown, too


def space_evenly(pieces: int, most: int = LEADERS) -> Indices:
    """Pieces whose ends are shown, from the last one backwards.

    Examples
    --------
    >>> space_evenly(7, most=3).tolist()
    [0, 3, 6]
    """
    at = np.linspace(pieces - 1, 0, min(pieces, most)).round().astype(np.int64)
    return np.unique(at)


def shortlist(
    evidence: Evidence,
    recommended: Indices | None = None,
    most: int = SHORT,
    also: Sequence[int] = (),
) -> tuple[Evidence, Indices]:
    """A view of the evidence on few arms, and which of them the recommended one is, (1,).

    These are the recommended arm, by default the one with the best estimate, those with the best
    estimates, those that led at 16 times during the test, and those in `also`, such as a control.
    """
    if len(evidence.rounds) != 1:
        raise InvalidInputError(
            f"the evidence is a batch of {len(evidence.rounds)} tests of {evidence.family:,} arms; "
            "of so many arms give one test at a time."
        )
    at = space_evenly(evidence.rounds.shape[1])
    rounds = np.maximum(np.cumsum(evidence.rounds[0])[at], 1)
    paths = np.cumsum(evidence.scores[0], axis=0)[at] / rounds[:, None]
    leaders, top = best_of_all(evidence, paths, most)
    best = leaders[-1:] if recommended is None else recommended
    others = np.asarray(also, dtype=np.int64)
    view = evidence.view(np.unique(np.concatenate([best, leaders, top, others])))
    assert view.shown is not None
    return view, np.searchsorted(view.shown, best)


def best_of_all(evidence: Evidence, thetas: Floats, most: int = SHORT) -> tuple[Indices, Indices]:
    """(L,) the best arm by each parameter (L, r), and those that are best by the last of them."""
    arms = evidence.arms if evidence.whole is None else evidence.whole
    sign = evidence.sign
    turned = sign * np.ascontiguousarray(thetas.T)
    leaders, highest = np.zeros(len(thetas), dtype=np.int64), np.full(len(thetas), -np.inf)
    last = np.empty(arms.size)
    for start, stop in arms.blocks():
        values = arms.rows.block(start, stop) @ turned
        last[start:stop] = values[:, -1]
        found = values.max(axis=0)
        place = (values >= found - EQUAL * np.abs(found)).argmax(axis=0)  # the first of equal ones
        better = found > highest + np.where(np.isfinite(highest), EQUAL * np.abs(found), 0.0)
        leaders[better], highest[better] = start + place[better], found[better]
    few = min(most, arms.size)
    return leaders, top(last, few)


@lru_cache(maxsize=4)
def spread_of(arms: ArmSet) -> tuple[Floats, Floats]:
    """(r,) the average of all arms, and (q, r) an orthonormal basis of their differences."""
    total, gram = np.zeros(arms.rank), np.zeros((arms.rank, arms.rank))
    for start, stop in arms.blocks():
        rows = arms.rows.block(start, stop)
        total += rows.sum(axis=0)
        gram += rows.T @ rows
    mean = total / arms.size
    sizes, axes = np.linalg.eigh(gram / arms.size - np.outer(mean, mean))
    basis = axes[:, sizes > 1e-12 * sizes[-1]].T
    return mean, np.ascontiguousarray(basis)
