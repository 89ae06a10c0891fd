"""Exact enumeration of every course a tiny drifting test can take: θ̂ has mean θ̄."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.policies.ips import IPSPolicy
from steadyarm.segments import SegmentStats

POLICIES: dict[str, IPSPolicy[Any]] = {
    "Uniform": sa.Uniform(),
    "G-BAI": sa.GBAI(),
    "P1-RAGE": sa.P1RAGE(),
    "P1-RAGE by rounds": sa.P1RAGE(updates="rounds"),
    "P1-Peace": sa.P1Peace(),
    "Mixed-Peace": sa.MixedPeace(),
    "P1": sa.P1(),
    "G-BAI published": sa.GBAI.published(),
    "P1-RAGE published": sa.P1RAGE.published(),
    "P1-Peace published": sa.P1Peace.published(),
    "Mixed-Peace published": sa.MixedPeace.published(),
}
ARMS = sa.ArmSet.from_features([[1.0, 0.0], [0.0, 1.0], [0.9, 0.5]])
BUDGET = 5
THETAS = np.array([[0.9, -0.2], [-1.0, 0.4], [0.3, 1.5], [2.0, 0.1], [-0.7, -0.6]])


def _courses(
    policy: IPSPolicy[Any], state: Any, start: int, probability: float
) -> Iterator[tuple[float, np.ndarray]]:
    """Probability and final estimates of every course from here on."""
    segment = policy.next_segment(state)
    if segment is None:
        yield probability, policy.recommend(state).estimates[0]
        return
    weights = segment.weights[0]
    means = ARMS.features @ THETAS.T
    for arms in product(np.flatnonzero(weights), repeat=int(segment.rounds[0])):
        counts, sums = np.zeros((1, ARMS.size), dtype=np.int64), np.zeros((1, ARMS.size))
        for t, arm in enumerate(arms, start):
            counts[0, arm] += 1
            sums[0, arm] += means[arm, t]
        after = policy.observe(state, segment, SegmentStats(counts, sums))
        chance = probability * float(np.prod(weights[list(arms)]))
        yield from _courses(policy, after, start + len(arms), chance)


@pytest.mark.parametrize("name", POLICIES)
def test_estimates_are_unbiased_whatever_the_drift(name: str) -> None:
    policy = POLICIES[name]
    state = policy.start(ARMS, BUDGET, trials=1, seed=1)
    courses = list(_courses(policy, state, 0, 1.0))
    probabilities = np.array([probability for probability, _ in courses])
    estimates = np.array([values for _, values in courses])
    assert np.isclose(probabilities.sum(), 1.0, atol=1e-12)
    expected = ARMS.features @ THETAS.mean(axis=0)
    assert np.allclose(probabilities @ estimates, expected, atol=1e-12)
    assert estimates.std(axis=0).min() > 0.1  # single courses do scatter
