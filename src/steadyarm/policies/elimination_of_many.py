"""Virtual elimination on a large arm set: what `elimination.py` does, for one trial and few arms.

Called by P1-RAGE and Steady on large sets.

Nested subsets are given by their indices, and each design is begun from that of the subset around.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.designs.few_arms import FewArms, mixed
from steadyarm.designs.forms import forms
from steadyarm.designs.nested import nested_xy
from steadyarm.linalg import matmul
from steadyarm.policies.elimination import MOST_CUTS

__all__ = ["least_gap_error", "noise_elimination_of_many", "rage_elimination_of_many"]

Floats = NDArray[np.float64]


def rage_elimination_of_many(
    arms: ArmSet, values: Floats, max_phases: int, first_cut: float
) -> FewArms:
    """Average design over the virtual phases of RAGE-Elimination, from estimates (K,)."""
    cuts = np.ldexp(first_cut, -np.arange(max_phases - 1))
    return _average(arms, values.max() - values, cuts, rising=False)


def noise_elimination_of_many(arms: ArmSet, values: Floats, noise: float) -> FewArms:
    """Average design over cuts from half the largest gap down to the noise.

    noise : the smallest standard error of a gap
    """
    gaps = values.max() - values
    cuts = np.ldexp(gaps.max(), -np.arange(1, MOST_CUTS + 1))
    used = cuts >= noise / 2
    used[0] = True
    return _average(arms, gaps, cuts[used], rising=True)


def least_gap_error(arms: ArmSet, values: Floats, best: int, covariance: Floats) -> float:
    """The smallest standard error of the gap between the best arm and one that is estimated lower.

    covariance : (r, r) of the estimated parameter
    """
    x = arms.coordinates_of(np.array([best]))[0]
    pull = matmul(covariance, x)
    variances = forms(arms.rows, covariance, -2 * pull) + matmul(x, pull)
    rivals = variances[values < values[best]]
    return float(np.sqrt(max(rivals.min(initial=np.inf), 0.0)))


def _average(arms: ArmSet, gaps: Floats, cuts: Floats, rising: bool) -> FewArms:
    """Mean of the designs of all arms and of those within each cut, while several are left.

    rising : phase i counts i + 1 times instead of once
    """
    subsets, inside = [], np.arange(arms.size)
    for cut in cuts:
        inside = inside[gaps[inside] <= cut]
        if inside.size < 2:
            break
        subsets.append(inside)
    designs = nested_xy(arms, subsets)
    return mixed([(i + 1.0 if rising else 1.0, design) for i, design in enumerate(designs)])
