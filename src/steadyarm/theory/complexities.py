"""Complexities: about how many rounds it takes to find the best arm, by what is known of the world.

Each is a number H such that errors fall like exp(-T/H), up to constants and logarithms. `theta`
is the parameter of a world that stands still, or the average over the rounds of one that moves,
in the features of the arms. Where low rewards are wanted give ``-theta``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from steadyarm.arms import ArmSet
from steadyarm.designs import adjacent_optimal
from steadyarm.theory.instance import Instance

__all__ = ["h_adjacent", "h_bob", "h_g_bai", "h_unif", "rho_star", "rho_star_of_means"]


def rho_star(arms: ArmSet, theta: ArrayLike) -> float:
    """ρ*(θ) = H_LB(θ), equation (2): the least possible worst ‖x - x*‖² / Δ_x².

    The norm is in the inverse of A(λ), the least is over designs λ and the worst over the arms x
    that are not best. It is what an oracle needs that knows θ, in a world that stands still. To a
    proven relative gap of 1e-9.

    Examples
    --------
    >>> arms = ArmSet.one_hot(["A", "B"])
    >>> print(f"{rho_star(arms, [0.5, 0.3]):.4f}")  # two arms: 4/Δ²
    100.0000
    >>> soare = ArmSet.from_features([[1, 0], [0, 1], [np.cos(0.1), np.sin(0.1)]])
    >>> print(f"{rho_star(soare, [1.0, 0.0]):.1f}")
    440.3
    """
    return Instance.from_parameter(arms, theta).worst_comparison(2)


def rho_star_of_means(arms: ArmSet, means: ArrayLike) -> float:
    """ρ* of equation (2), from the means (K,) of the arms instead of a parameter.

    Examples
    --------
    >>> print(f"{rho_star_of_means(ArmSet.from_features([[1.0], [3.0]]), [0.1, 0.3]):.4f}")
    11.1111
    """
    return Instance.from_means(arms, means).worst_comparison(2)


def h_g_bai(arms: ArmSet, theta: ArrayLike) -> float:
    """H_G-BAI(θ) = d / Δ_(1)², Theorem 1: what G-BAI needs however the world moves.

    d is the rank of the arms.

    Examples
    --------
    >>> arms = ArmSet.from_features([[1, 0], [0, 1], [0.5, 0.5]])
    >>> print(f"{h_g_bai(arms, [0.5, 0.1]):.4f}")
    50.0000
    """
    return arms.rank / Instance.from_parameter(arms, theta).gap ** 2


def h_unif(arms: ArmSet, theta: ArrayLike) -> float:
    """H_UNIF(θ) = K / Δ_(1)², Section 4: what uniform play needs if the arms share nothing.

    The features serve for the means alone.

    Examples
    --------
    >>> arms = ArmSet.from_features([[1, 0], [0, 1], [0.5, 0.5]])
    >>> print(f"{h_unif(arms, [0.5, 0.1]):.4f}")
    75.0000
    """
    return arms.size / Instance.from_parameter(arms, theta).gap ** 2


def h_bob(arms: ArmSet, theta: ArrayLike) -> float:
    """H_BOB(θ) = max over k of k / Δ_(k), over Δ_(1), Section 5: the best of both worlds.

    With arms that share nothing no algorithm does better in a world that stands still, if it is
    to be robust to drift as well (Abbasi-Yadkori et al. 2018). The features serve for the means
    alone.

    Examples
    --------
    >>> arms = ArmSet.one_hot(["A", "B", "C"])
    >>> print(f"{h_bob(arms, [0.5, 0.4, 0.0]):.4f}")  # 2/0.1 beats 3/0.5
    200.0000
    """
    gaps = np.sort(Instance.from_parameter(arms, theta).gaps)
    return float((np.arange(1, gaps.size + 1) / gaps).max() / gaps[0])


def h_adjacent(arms: ArmSet, theta: ArrayLike) -> float:
    """H_Adjacent(θ): the least possible worst ‖x - x'‖² over neighbours, over Δ_(1)².

    Neighbours are arms joined by an edge of the convex hull. It is what Adjacent-BAI needs
    however the world moves, and its authors show that none can do with less (Maynard-Zhang,
    Xiong, Jamieson and Fazel, COLT 2026). To a proven relative gap of 1e-6.

    Examples
    --------
    >>> cube = ArmSet.factorial({f: ["0", "1"] for f in "abcd"}, interactions=1)
    >>> print(f"{h_adjacent(cube, [0.0, 0.5, 0.4, 0.3, 0.1]):.4f}")  # 4/Δ², whatever the factors
    100.0000
    """
    return adjacent_optimal(arms).value / Instance.from_parameter(arms, theta).gap ** 2
