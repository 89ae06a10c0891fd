"""Bounds: how often a policy errs at most, with all constants.

They hold for rewards of size at most one, or `largest_reward`: the proofs use |r_t| ≤ 1, although
the setting of the paper allows means and noise of up to one each, hence rewards of up to two.
There is no bound for noise without bounds, such as Gaussian noise.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from steadyarm.arms import ArmSet
from steadyarm.errors import InvalidInputError
from steadyarm.theory.instance import Instance, halvings
from steadyarm.theory.p1_rage import Reading, exact_complexity, positive
from steadyarm.validation import whole_number

__all__ = [
    "g_bai_error_bound",
    "p1_rage_drift_error_bound",
    "p1_rage_error_bound",
    "phases_for",
]


def g_bai_error_bound(
    arms: ArmSet, theta: ArrayLike, budget: int, largest_reward: float = 1.0
) -> float:
    """Theorem 1: G-BAI errs with probability at most K exp(-T Δ_(1)² / (12 d)), or one.

    However the world moves; θ is then the average over its rounds. For rewards of size up to R
    the exponent is divided by R². With rewards of up to two, which the paper's setting allows,
    the constant 12 is not enough: see ``docs/theory.md`` for an instance.

    Parameters
    ----------
    largest_reward : no reward is ever larger in size

    Examples
    --------
    >>> arms = ArmSet.one_hot(["A", "B"])
    >>> print(f"{g_bai_error_bound(arms, [0.75, 0.25], budget=400):.4f}")  # 2 exp(-100/24)
    0.0310
    """
    return _drift_bound(arms, theta, budget, largest_reward, 1 / 12)


def p1_rage_drift_error_bound(
    arms: ArmSet, theta: ArrayLike, budget: int, largest_reward: float = 1.0
) -> float:
    """Theorems 2 and 5: P1-RAGE errs with probability at most K exp(-3 T Δ_(1)² / (64 d)), or one.

    However the world moves, whatever m and however often it redesigns: all comes from the half
    of G-optimal design. For rewards of size up to R the exponent is divided by R².

    Parameters
    ----------
    largest_reward : no reward is ever larger in size

    Examples
    --------
    >>> arms = ArmSet.one_hot(["A", "B"])
    >>> print(f"{p1_rage_drift_error_bound(arms, [0.75, 0.25], budget=1000):.4f}")
    0.0057
    """
    return _drift_bound(arms, theta, budget, largest_reward, 3 / 64)


def p1_rage_error_bound(
    arms: ArmSet,
    theta: ArrayLike,
    budget: int,
    m: int | None = None,
    epsilon: float = 0.0,
    largest_reward: float = 1.0,
    reading: Reading = "proof",
) -> float:
    """Theorem 3, and with it Theorem 2: at most 2 i_0 K T exp(-T / H̄), or one, if nothing moves.

    H̄ is `h_p1_rage_exact`. The bound is for a new allocation after every round, which is
    ``P1RAGE(max_phases=m, updates="rounds")``. Like the proof it takes no notice of cutting the
    budget at whole rounds, nor of the first round, which is played before anything is averaged.
    With ε it bounds the probability to name an arm whose gap is above ε (Corollary 2).

    Parameters
    ----------
    m : number of virtual phases averaged, the policy's `max_phases`; at least i_0, the default
    epsilon : arms with gaps up to this will do
    largest_reward : no reward is ever larger in size
    reading : "proof" takes H̄ and, in place of i_0, the number of events from the proof; "paper"
        takes both as printed. `h_p1_rage_exact` says how they differ.

    Examples
    --------
    >>> arms = ArmSet.one_hot(["A", "B"])
    >>> print(f"{p1_rage_error_bound(arms, [0.75, 0.25], budget=40_000):.4f}")
    0.0020
    >>> print(f"{p1_rage_error_bound(arms, [0.75, 0.25], budget=10_000, reading='paper'):.4f}")
    0.0009
    """
    found, T = _checked(arms, theta, budget, largest_reward)
    H, events = exact_complexity(found, m, epsilon, largest_reward, reading)
    if H == 0.0:
        return 0.0
    return min(1.0, 2 * events * arms.size * T * math.exp(-T / H))


def phases_for(effect: float, first_cut: float = 1.0) -> int:
    """The choice of m for the smallest effect that matters: ⌈log2(1/ε)⌉ + 1 virtual phases.

    Theorem 2 asks for it with ε = Δ_(1), Corollary 2 with the largest gap that is as good as
    none. It is the least `max_phases` for ``P1RAGE``; more phases cost little. (Section 5 writes
    log without a base; the proof halves, so it is log2. The m = 15 of the paper's runs is enough
    for gaps down to 2^-14, not only down to the 2^-13 it names.)

    Parameters
    ----------
    effect : ε, in units of the rewards
    first_cut : the policy's own `first_cut`, where virtual elimination starts

    Examples
    --------
    >>> phases_for(0.05)  # 2^-5 is the first power below 0.05
    6
    >>> phases_for(2**-14)
    15
    """
    return max(halvings(positive(effect, "effect") / positive(first_cut, "first_cut")) + 1, 1)


def _drift_bound(
    arms: ArmSet, theta: ArrayLike, budget: int, largest_reward: float, constant: float
) -> float:
    found, T = _checked(arms, theta, budget, largest_reward)
    gap = found.gap / largest_reward
    return min(1.0, arms.size * math.exp(-constant * T * gap**2 / arms.rank))


def _checked(
    arms: ArmSet, theta: ArrayLike, budget: int, largest_reward: float
) -> tuple[Instance, int]:
    found = Instance.from_parameter(arms, theta)
    R = positive(largest_reward, "largest_reward")
    arm = int(np.abs(found.means).argmax())
    if abs(found.means[arm]) > R * (1 + 1e-12):
        raise InvalidInputError(
            f"the mean of arm {arms.names[arm]!r} is {found.means[arm]:g}, but largest_reward is "
            f"{R:g}; say with largest_reward how large rewards can be in size."
        )
    return found, whole_number(budget, "budget", least=1)
