"""Virtual elimination: what RAGE and Peace would sample in a full run, given an estimate.

No sample is collected here. Each elimination averages the XY-optimal designs of nested sets of
arms (Algorithms 3 and 5 of the paper) for a batch of trials; equal sets are solved once. Steady,
P1-RAGE and P1-Peace play that average; Peace and Mixed-Peace eliminate arms for real with `halve`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.designs.cache import TOLERANCE, designs_for
from steadyarm.designs.rounding import Allocation
from steadyarm.policies.base import Solver, rank_arms

Floats = NDArray[np.float64]
MOST_CUTS = 12  # halvings of the largest gap
ROUNDING = 1e-9  # relative difference that may be rounding and must not decide
Mask = NDArray[np.bool_]


def rage_elimination(
    arms: ArmSet, estimates: Floats, max_phases: int, first_cut: float, solver: Solver
) -> Allocation:
    """Average design λ̄ over the virtual phases of RAGE-Elimination.

    Phase 0 has all arms; phase i keeps those within first_cut · 2^(1-i) of the leader. Phases
    end after `max_phases` or with a single arm left.
    """
    gaps = _gaps(estimates)
    cuts = np.ldexp(first_cut, -np.arange(max_phases - 1))
    kept = gaps[:, None, :] <= cuts[None, :, None] * (1 + ROUNDING)
    phases = np.concatenate([np.ones_like(gaps, dtype=bool)[:, None], kept], axis=1)
    return _average_design(arms, phases, solver)


def noise_elimination(
    arms: ArmSet, estimates: Floats, errors: Floats, solver: Solver
) -> Allocation:
    """Average design λ̄ over cuts from half the largest gap down to the noise.

    Phase 0 has all arms; phase i keeps those within 2^-i of the largest estimated gap. Cuts end
    where they fall below a quarter of the smallest standard error of a gap: the arms then left
    cannot be told apart yet. Phase i counts i + 1 times. The scale of the rewards does not matter,
    and arms that stay together over many halvings count as often, so that a lone close rival gets
    most of the rounds.

    Parameters
    ----------
    errors : (n, K) standard errors of the gaps to the leader; zero for the leader itself
    """
    gaps = _gaps(estimates)
    rivals = np.where(gaps > 0, errors, np.inf)
    noise = rivals.min(axis=1, keepdims=True) / 4
    cuts = np.ldexp(gaps.max(axis=1, keepdims=True), -np.arange(1, MOST_CUTS + 1))
    used = cuts >= noise * (1 - ROUNDING)
    used[:, 0] = True
    kept = (gaps[:, None, :] <= cuts[:, :, None] * (1 + ROUNDING)) & used[:, :, None]
    phases = np.concatenate([np.ones_like(gaps, dtype=bool)[:, None], kept], axis=1)
    return _average_design(arms, phases, solver, rising=True)


def _gaps(estimates: Floats) -> Floats:
    """How far each arm lies behind the leader; zero where that is rounding."""
    gaps = estimates.max(axis=1, keepdims=True) - estimates
    size = np.abs(estimates).max(axis=1, keepdims=True)
    return np.where(gaps > ROUNDING * size, gaps, 0.0)


def peace_elimination(
    arms: ArmSet, estimates: Floats, ties: NDArray[np.int64], solver: Solver
) -> Allocation:
    """Average design λ̄ over the virtual phases of Peace-Elimination.

    Each phase keeps the longest prefix, by estimate, whose optimal ρ is at most half of the
    last; phases end with a single arm left.
    """
    order = rank_arms(estimates, ties)
    survivors = np.ones_like(order, dtype=bool)
    phases = []
    while (survivors.sum(axis=1) > 1).any():
        phases.append(survivors)
        survivors = halve(arms, survivors, order, solver)
    return _average_design(arms, np.stack(phases, axis=1), solver)


def halve(arms: ArmSet, survivors: Mask, order: NDArray[np.int64], solver: Solver) -> Mask:
    """The longest prefix of `order` within `survivors` whose optimal ρ is at most half.

    The optimal ρ grows with the set, so the prefix is found by bisection.

    Parameters
    ----------
    survivors : (n, K) mask
    order : (n, K) all arms from best to worst
    """
    # Arms of each trial, survivors first, best first.
    place = np.argsort(~np.take_along_axis(survivors, order, axis=1), axis=1, kind="stable")
    ranked = np.take_along_axis(order, place, axis=1)
    position = np.argsort(ranked, axis=1, kind="stable")
    designs = designs_for(arms, survivors, kind="xy", solver=solver)
    half = designs.values[designs.index] / 2
    slack = 4 * TOLERANCE if solver == "exact" else ROUNDING  # what the solver may be off by
    low = np.ones(len(order), dtype=np.int64)  # a single arm has ρ = 0
    high = np.maximum(survivors.sum(axis=1), 2)  # the whole set has more than half of its own ρ
    while (high - low > 1).any():
        middle = (low + high) // 2
        prefix = designs_for(arms, position < middle[:, None], kind="xy", solver=solver)
        fits = prefix.values[prefix.index] <= half * (1 + slack)
        low = np.where(fits, middle, low)
        high = np.where(fits, high, middle)
    return position < low[:, None]


def _average_design(arms: ArmSet, phases: Mask, solver: Solver, rising: bool = False) -> Allocation:
    """Mean over the phases (n, p, K) with more than one arm of their XY-optimal designs.

    rising : phase i counts i + 1 times instead of once
    """
    n, p, _ = phases.shape
    counted = phases.sum(axis=2) > 1
    designs = designs_for(arms, phases[counted], kind="xy", solver=solver)
    index = np.zeros((n, p), dtype=np.int64)
    index[counted] = designs.index
    shares = counted * (np.arange(1.0, p + 1) if rising else 1.0)
    total = np.zeros((n, designs.weights.shape[1]))
    for phase in np.flatnonzero(counted.any(axis=0)):
        total += shares[:, phase, None] * designs.weights[index[:, phase]]
    return Allocation(total / shares.sum(axis=1)[:, None], designs.arms)
