"""Theory beside the simulation: what an oracle needs, and what theorems promise."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import ndtr, ndtri

from steadyarm.environments import BernoulliReward
from steadyarm.errors import InvalidInputError
from steadyarm.planning.answer import Theory
from steadyarm.planning.candidates import Candidate
from steadyarm.planning.question import Question
from steadyarm.policies import GBAI, P1RAGE
from steadyarm.theory import g_bai_error_bound, p1_rage_drift_error_bound, rho_star_of_means

__all__ = ["guarantee", "theory_of"]

SHAPES = 8  # of which the hardest counts
MOST = 2**60


def theory_of(question: Question, budgets: tuple[int, ...]) -> Theory:
    """The oracle's floor and the theorems' bounds at these budgets."""
    bounds = {}
    for candidate in question.candidates:
        bound = _bound(question, candidate)
        if bound is not None:
            bounds[candidate.label] = tuple(bound(budget) for budget in budgets)
    spent = _oracle_rounds(question)
    if spent is None:
        return Theory(None, None, bounds)
    wanted = max(-float(ndtri(question.error)), 0.0)
    floor = tuple(float(ndtr(-math.sqrt(budget / spent))) for budget in budgets)
    return Theory(math.ceil(spent * wanted**2), floor, bounds)


def guarantee(question: Question, candidate: Candidate) -> int | None:
    """The least budget for which a theorem promises the wanted error; None if none does."""
    bound = _bound(question, candidate)
    if bound is None:
        return None
    high = 1
    while bound(high) > question.error:
        high *= 2
        if high > MOST:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if bound(middle) > question.error else (low, middle)
    return high


def _bound(question: Question, candidate: Candidate) -> Callable[[int], float] | None:
    """Theorem 1 for G-BAI and Theorem 2 for P1-RAGE: known effects, rewards of 0 or 1."""
    policy = candidate.policy
    if question.effects.drawn or not isinstance(question.noise, BernoulliReward):
        return None
    if not isinstance(policy, (GBAI, P1RAGE)) or policy.order != "iid" or policy.control_variate:
        return None
    function = g_bai_error_bound if isinstance(policy, GBAI) else p1_rage_drift_error_bound
    means = question.level + question.effects.shapes[0]  # the bounds see the smallest gap alone
    theta = np.linalg.lstsq(question.arms.features, means, rcond=None)[0]
    try:
        function(question.arms, theta, 1)
    except InvalidInputError:  # two best arms: no theorem
        return None
    return lambda budget: function(question.arms, theta, budget)


def _oracle_rounds(question: Question) -> float | None:
    """σ² ρ*: the oracle errs with probability Φ(-√(T / (σ² ρ*))) against its hardest rival."""
    if question.effects.drawn or question.effects.indifference:
        return None
    shapes = question.effects.shapes
    if np.array_equal(question.arms.features, np.eye(question.arms.size)):
        shapes = shapes[:1]  # all alike
    try:
        return question.sd**2 * max(
            rho_star_of_means(question.arms, shape) for shape in shapes[:SHAPES]
        )
    except InvalidInputError:
        return None
