"""Every generic check on every policy, as in the paper's text and as published."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import steadyarm as sa
from steadyarm.planning.question import EqualSplit
from steadyarm.policies import POLICIES, Recommendations
from steadyarm.policies.base import TallyState, rank_arms
from steadyarm.policies.ips import IPSState
from steadyarm.testing.policies import (
    CHECKS,
    check_arm_sets,
    check_easy_instance,
    check_late_rewards,
    check_older_allocations,
    check_unbiased_allocations_span,
)

CONFIGURATIONS: dict[str, sa.Policy[Any]] = {
    **{name: policy() for name, policy in POLICIES.items()},
    **{
        f"{name} published": policy.published()
        for name, policy in POLICIES.items()
        if policy.published() != policy()
    },
    "P1-RAGE by rounds": sa.P1RAGE(updates="rounds"),
    "P1-RAGE in blocks": sa.P1RAGE(order="blocks"),
    "Steady drawn independently": sa.Steady(order="iid", robustness=0.3, updates=5),
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_policy(name: str, check: Callable[[sa.Policy[Any]], None]) -> None:
    check(CONFIGURATIONS[name])


@pytest.mark.parametrize("name", POLICIES)
def test_minimising_mirrors_maximising(name: str) -> None:
    policy = CONFIGURATIONS[name]
    for arms in check_arm_sets().values():
        rng = np.random.default_rng(11)
        up = sa.Session(policy, arms, budget=60, seed=4)
        down = sa.Session(policy, arms, budget=60, seed=4, direction="minimize")
        try:
            for _ in range(60):
                a, b = up.ask(), down.ask()
                assert a == b
                assert 0 < a.probability <= 1
                reward = rng.normal()
                up.tell(a, reward)
                down.tell(b, -reward)
        except sa.BudgetSpentError:
            pass  # Peace and OD-LinBAI may end early
        high, low = up.recommend(), down.recommend()
        assert high.arm == low.arm
        assert np.array_equal(high.estimates, -low.estimates, equal_nan=True)
        assert np.array_equal(high.intervals, -low.intervals[:, ::-1])


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_configuration_survives_a_round_trip(name: str) -> None:
    from steadyarm.policies import policy_from

    assert policy_from(CONFIGURATIONS[name].to_dict()) == CONFIGURATIONS[name]


@dataclass(frozen=True)
class Worst(EqualSplit):
    """Recommends the arm with the lowest mean."""

    def recommend(self, state: TallyState) -> Recommendations:
        found = super().recommend(state)
        return replace(found, arm=rank_arms(found.estimates, state.ties)[:, -1])


@dataclass(frozen=True)
class Masked(EqualSplit):
    """Leaves out the arms below the median with -inf, as an elimination does.

    scaled : whether it divides by the largest size, infinite ones too, so that all others tie
    """

    scaled: bool = False

    def recommend(self, state: TallyState) -> Recommendations:
        found = super().recommend(state)
        means = found.estimates
        masked = np.where(means >= np.median(means, axis=1, keepdims=True), means, -np.inf)
        if self.scaled:
            masked = np.where(np.isinf(masked), -1.0, 0.0)  # x / inf is 0
        return replace(found, arm=rank_arms(masked, state.ties)[:, 0])


@pytest.mark.parametrize("broken", [Worst(), Masked(scaled=True)], ids=["worst", "masked"])
def test_a_policy_that_names_the_wrong_arm_fails(broken: sa.Policy[Any]) -> None:
    for check in CHECKS:
        if check not in (check_easy_instance, check_older_allocations, check_late_rewards):
            check(broken)  # nothing but its recommendation is wrong
    with pytest.raises(AssertionError, match="recommendations were wrong in an easy world"):
        check_easy_instance(broken)


def test_masks_of_minus_infinity_are_sound() -> None:
    for check in CHECKS:
        check(Masked())


class Greedy(sa.Uniform):
    """Half of the arms are never played."""

    def allocation(self, state: IPSState) -> NDArray[np.float64]:
        weights = super().allocation(state)
        weights[:, ::2] = 0.0
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def test_an_unbiased_policy_that_leaves_out_directions_fails() -> None:
    with pytest.raises(AssertionError, match="reaches 1 of 2 directions"):
        check_unbiased_allocations_span(Greedy())


class Forgetful(sa.P1RAGE):
    """Throws away every segment that was not played with the allocation in force."""

    def observe(self, state: Any, segment: sa.Segment, stats: sa.SegmentStats) -> Any:
        if not np.allclose(segment.weights, state.weights):
            stats = sa.SegmentStats(0 * stats.counts, 0 * stats.sums, None)
        return super().observe(state, segment, stats)


class Careless(sa.P1RAGE):
    """Weighs every reward by the allocation in force."""

    def observe(self, state: Any, segment: sa.Segment, stats: sa.SegmentStats) -> Any:
        return super().observe(state, replace(segment, weights=state.weights), stats)


class Blind(EqualSplit):
    """Recommends the arm with the highest mean, and estimates nothing."""

    def recommend(self, state: TallyState) -> Recommendations:
        found = super().recommend(state)
        return replace(found, estimates=np.full_like(found.estimates, np.nan))


class Latecomer(sa.Uniform):
    """Takes the first reward for the best one, and takes no notice of which come later."""

    def recommend(self, state: IPSState) -> Recommendations:
        found = super().recommend(state)
        return replace(found, arm=state.ties.argmin(axis=1))


def test_late_rewards_that_are_mishandled_are_seen() -> None:
    with pytest.raises(AssertionError, match="older allocation were not taken up"):
        check_older_allocations(Forgetful())
    with pytest.raises(AssertionError, match="older allocation were weighed wrongly"):
        check_older_allocations(Careless())
    with pytest.raises(AssertionError, match="easy tests were wrong whose rewards came"):
        check_late_rewards(Latecomer())


def test_estimates_must_be_finite() -> None:
    with pytest.raises(AssertionError, match="must be finite"):
        check_easy_instance(Blind())
