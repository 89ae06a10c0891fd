"""Exact enumeration of every course a tiny drifting test can take: θ̂ has mean θ̄."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, permutations, product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

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
    "G-BAI in blocks": sa.GBAI(order="blocks", block=2),
    "P1-RAGE in blocks": sa.P1RAGE(order="blocks", block=3),
    "Mixed-Peace in blocks": sa.MixedPeace(order="blocks", block=2),
    "Steady": sa.Steady(block=2, updates=2),
    "Steady with long blocks": sa.Steady(block=3, updates=3),
}
ARMS = sa.ArmSet.from_features([[1.0, 0.0], [0.0, 1.0], [0.9, 0.5]])
BUDGET = 5
THETAS = np.array([[0.9, -0.2], [-1.0, 0.4], [0.3, 1.5], [2.0, 0.1], [-0.7, -0.6]])


def _courses(
    policy: IPSPolicy[Any], state: Any, start: int, probability: float
) -> Iterator[tuple[float, NDArray[np.float64]]]:
    """Probability and final estimates of every course from here on."""
    segment = policy.next_segment(state)
    if segment is None:
        yield probability, policy.recommend(state).estimates[0]
        return
    means = state.arms.features @ THETAS.T
    for arms, chance in _orders(segment):
        counts, sums = (
            np.zeros(segment.weights.shape, dtype=np.int64),
            np.zeros(segment.weights.shape),
        )
        for t, arm in enumerate(arms, start):
            counts[0, arm] += 1
            sums[0, arm] += means[arm, t]
        after = policy.observe(state, segment, SegmentStats(counts, sums))
        yield from _courses(policy, after, start + len(arms), probability * chance)


def _orders(segment: sa.Segment) -> Iterator[tuple[tuple[int, ...], float]]:
    """Every order in which a segment may be played, with its probability."""
    weights, rounds = segment.weights[0], int(segment.rounds[0])
    if segment.order == "iid":
        for arms in product(np.flatnonzero(weights).tolist(), repeat=rounds):
            yield arms, float(np.prod(weights[list(arms)]))
        return
    block = segment.block
    single = _block_orders(weights, block)
    for chosen in product(single, repeat=-(-rounds // block)):
        arms = tuple(arm for order, _ in chosen for arm in order)[:rounds]
        yield arms, float(np.prod([chance for _, chance in chosen]))


def _block_orders(weights: NDArray[np.float64], block: int) -> list[tuple[tuple[int, ...], float]]:
    """Every order of one block: the random start matters only up to where counts change."""
    ends = np.cumsum(weights) * block
    breaks = np.unique(np.round(np.concatenate([[0.0, 1.0], ends % 1.0]), 12))
    orders: list[tuple[tuple[int, ...], float]] = []
    for low, high in pairwise(breaks):
        arms = np.searchsorted(ends, np.arange(block) + (low + high) / 2, side="right")
        every = list(permutations(arms.tolist()))
        orders += [(order, (high - low) / len(every)) for order in every]
    return orders


@pytest.mark.parametrize("name", POLICIES)
def test_estimates_are_unbiased_whatever_the_drift(name: str) -> None:
    assert_unbiased(POLICIES[name], ARMS)


@pytest.mark.parametrize("name", ["G-BAI", "P1-RAGE", "Steady"])
@pytest.mark.parametrize(
    "targets", [[[1.0, 1.0], [2.0, -1.0], [0.3, 0.4]], [[1.0, 2.0], [2.0, 4.0]]]
)
def test_estimates_of_targets_are_unbiased(name: str, targets: list[list[float]]) -> None:
    assert_unbiased(POLICIES[name], ARMS.with_targets(sa.ArmSet.from_features(targets)))


def assert_unbiased(policy: IPSPolicy[Any], arms: sa.ArmSet) -> None:
    state = policy.start(arms, BUDGET, trials=1, seed=1)
    courses = list(_courses(policy, state, 0, 1.0))
    probabilities = np.array([probability for probability, _ in courses])
    estimates = np.array([values for _, values in courses])
    assert np.isclose(probabilities.sum(), 1.0, atol=1e-12)
    expected = arms.recommendable.features @ THETAS.mean(axis=0)
    assert np.allclose(probabilities @ estimates, expected, atol=1e-12)
    assert estimates.std(axis=0).min() > 0.1  # single courses do scatter


def test_a_world_that_reacts_is_outside_the_promise_of_blocks() -> None:
    """If the second round of a pair pays for what the first did not play, blocks are misled.

    One-hot arms, blocks of two, the world pays 1 for whatever was *not* played the round before.
    A block plays each arm once, so every second round pays; each arm's true value given the past
    is 1/2 on average, yet its estimate is 1. Independent draws stay right.
    """
    arms = sa.ArmSet.one_hot(["A", "B"])
    found = {}
    for order in ("iid", "blocks"):
        policy = sa.GBAI(order=order, block=2)
        state = policy.start(arms, 2)
        segment = policy.next_segment(state)
        assert segment is not None
        expected = np.zeros(2)
        for (first, second), chance in _orders(segment):
            counts, sums = np.zeros((1, 2), dtype=np.int64), np.zeros((1, 2))
            counts[0, first] += 1
            counts[0, second] += 1
            sums[0, second] += float(second != first)
            after = policy.observe(state, segment, SegmentStats(counts, sums))
            expected += chance * policy.recommend(after).estimates[0]
        found[order] = expected
    # the mean over both rounds of each arm's expected reward, had it been played: (0 + 1/2) / 2
    assert np.allclose(found["iid"], 0.25)
    assert np.allclose(found["blocks"], 0.5)
