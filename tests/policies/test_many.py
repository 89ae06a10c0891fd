"""Policies on large arm sets: few arms in play, a state that does not grow, the same promises."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.designs import forget_designs
from steadyarm.designs.cache import large_g, nested_xy
from steadyarm.designs.design import FewArms
from steadyarm.designs.exact_design import whole_list_of_many, whole_lists
from steadyarm.estimators import ips
from steadyarm.policies.base import FIRST, LAST, best_arm, best_of_many
from steadyarm.policies.elimination import (
    least_gap_error,
    rage_elimination,
    rage_elimination_of_many,
)
from steadyarm.segments import Segment

SCALING: list[Any] = [
    sa.GBAI(),
    sa.P1RAGE(max_phases=5),
    sa.Steady(updates=3),
    sa.Steady(updates=3, control_variate=True),
]
NAMES = ["g", "rage", "steady", "steady with references"]
BUDGET = 6000


def slots(count: int) -> sa.ArmSet:
    return sa.ArmSet.factorial({f"slot {i}": ["off", "on"] for i in range(count)})


MANY = slots(13)


@pytest.fixture
def all_are_large(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small sets are played as large ones are."""
    monkeypatch.setattr(sa.ArmSet, "large", property(lambda self: True))
    forget_designs()
    yield
    forget_designs()


def world_of(arms: sa.ArmSet, seed: int, noise: float = 1.0) -> sa.ParametricEnvironment:
    """Another parameter in the second half; one arm is clearly the best on average."""
    rng = np.random.default_rng(seed)
    first, second = rng.normal(scale=0.2, size=(2, arms.dimension))
    thetas = np.repeat([first, second], BUDGET // 2, axis=0)
    return sa.ParametricEnvironment(arms, thetas, sa.GaussianNoise(noise))


def played(
    policy: Any, world: sa.ParametricEnvironment, seed: int = 1
) -> Iterator[tuple[Any, Any]]:
    """Each segment with the state after it."""
    rng = np.random.default_rng(seed)
    state = policy.start(world.arms, world.budget, seed=seed)
    while (segment := policy.next_segment(state)) is not None:
        segment.checked(world.arms.size)
        stats = world.play(segment, state.played, rng, squares=True)
        state = policy.observe(state, segment, stats)
        yield segment, state


@pytest.fixture(scope="module", params=SCALING, ids=NAMES)
def run(request: pytest.FixtureRequest) -> tuple[Any, list[tuple[Any, Any]]]:
    """A policy, and its segments with the states after them."""
    return request.param, list(played(request.param, world_of(MANY, seed=3)))


def test_few_arms_are_in_play_and_span_everything(run: tuple[Any, list[Any]]) -> None:
    _, steps = run
    for segment, _ in steps:
        assert segment.arms is not None
        assert segment.columns <= 8 * MANY.rank
        X = MANY.coordinates_of(segment.arms)
        information = (X * segment.weights[0][:, None]).T @ X
        # at least a share of the G-optimal design (the identity here) in every direction
        assert np.linalg.eigvalsh(information)[0] > 0.1
    assert int(steps[-1][1].played[0]) == BUDGET


def test_the_state_does_not_grow_with_the_arms(run: tuple[Any, list[Any]]) -> None:
    policy, steps = run
    state = steps[-1][1]
    text = json.dumps(state.to_dict())
    matrices = 7 if policy.control_variate else 3
    assert len(text) < 12 * matrices * MANY.rank**2 + 50_000
    back = type(state).from_dict(json.loads(text), MANY)
    assert policy.start(MANY, BUDGET, seed=1).resembles(back)
    np.testing.assert_array_equal(back.scores, state.scores)
    np.testing.assert_array_equal(back.squares, state.squares)
    assert policy.recommend(back).arm == policy.recommend(state).arm


@pytest.mark.parametrize("policy", SCALING, ids=NAMES)
def test_without_noise_the_average_parameter_is_found(policy: Any) -> None:
    """The parameter never moves: every allocation that spans the arms finds it exactly."""
    theta = np.random.default_rng(2).normal(size=MANY.dimension)
    world = sa.ParametricEnvironment(MANY, theta, sa.GaussianNoise(0.0), budget=BUDGET)
    *_, (_, state) = played(policy, world)
    if policy.order == "blocks" and not policy.control_variate:
        np.testing.assert_allclose(state.theta[0], theta, atol=1e-8)
    assert int(policy.recommend(state).arm[0]) == world.best_arm


def test_scores_of_few_arms_are_unbiased() -> None:
    """Expected score of one round, enumerated over the arms of a segment."""
    design, theta = large_g(MANY), np.random.default_rng(0).normal(size=MANY.rank)
    X = MANY.coordinates_of(design.arms)
    segment = Segment(design.weights[None], np.array([1]), arms=design.arms)
    expected = np.zeros(MANY.rank)
    for k, weight in enumerate(design.weights):
        one = np.zeros((1, design.arms.size))
        one[0, k] = X[k] @ theta
        stats = sa.SegmentStats(one.astype(bool).astype(np.int64), one)
        expected += weight * ips(X, segment, stats)[0]
    np.testing.assert_allclose(expected, theta, atol=1e-10)


def test_designs_of_subsets_are_proven(all_are_large: None) -> None:
    """Against the exact solver of small sets."""
    arms = slots(6)
    values = arms.coordinates @ np.random.default_rng(4).normal(size=arms.rank)
    order = np.argsort(-values)
    subsets = [np.sort(order[:size]) for size in (40, 12, 5, 2)]
    found = nested_xy(arms, subsets)
    assert found[1] is found[0]  # 40 of 64 arms keep the design of all
    for subset, made_for, design in zip(
        [None, *subsets], [None, None, *subsets[1:]], found, strict=True
    ):
        assert sa.xy_optimal(arms, subset).value * (1 - 1e-6) <= design.value
        assert design.value <= sa.xy_optimal(arms, made_for).value * 1.25 * (1 + 1e-6)
        X = arms.coordinates_of(design.arms)
        Z = arms.coordinates if subset is None else arms.coordinates_of(subset)
        inverse = np.linalg.inv((X * design.weights[:, None]).T @ X)
        apart = Z[:, None] - Z[None]
        worst = np.einsum("ijr,rs,ijs->ij", apart, inverse, apart).max()
        assert worst <= design.value * (1 + 1e-9)


def test_virtual_phases_are_those_of_small_sets(all_are_large: None) -> None:
    arms = slots(5)
    values = arms.coordinates @ np.random.default_rng(4).normal(scale=0.2, size=arms.rank)
    few = rage_elimination_of_many(arms, values, max_phases=16, first_cut=1.0)
    dense = rage_elimination(arms, values[None], 16, 1.0, "exact")[0]
    X = arms.coordinates
    weights = np.zeros(arms.size)
    weights[few.arms] = few.weights
    # The designs differ within their gaps; what they tell about the leaders is alike.
    lead = X[values.argmax()] - X[np.argsort(-values)[1]]
    told = [float(lead @ np.linalg.pinv((X * w[:, None]).T @ X) @ lead) for w in (weights, dense)]
    assert 0.7 < told[0] / told[1] < 1.4


def test_the_least_error_of_a_gap_is_that_of_all_pairs(all_are_large: None) -> None:
    arms, rng = slots(5), np.random.default_rng(1)
    root = rng.normal(size=(arms.rank, arms.rank))
    covariance, values = root @ root.T, arms.coordinates @ rng.normal(size=arms.rank)
    best = int(values.argmax())
    apart = arms.coordinates[best] - np.delete(arms.coordinates, best, axis=0)
    expected = np.sqrt(np.einsum("kr,rs,ks->k", apart, covariance, apart).min())
    assert least_gap_error(arms, values, best, covariance) == pytest.approx(expected)


def test_simulation_does_not_depend_on_the_jobs() -> None:
    world = sa.ParametricEnvironment(MANY, np.arange(92.0) / 92, budget=2000)
    one, two = (
        sa.simulate(sa.Steady(updates=3), world, trials=2, seed=5, jobs=jobs) for jobs in (1, 2)
    )
    np.testing.assert_array_equal(one.recommended, two.recommended)


@pytest.mark.parametrize(("ties", "code"), [("first", FIRST), ("last", LAST)])
def test_ties_of_many_arms(ties: Any, code: int) -> None:
    estimates = np.array([0.0, 2.0, 1.0, 2.0, 2.0 + 1e-14])
    state = sa.GBAI(ties=ties).start(sa.ArmSet.one_hot(list("abcde")), 100)
    assert best_of_many(estimates, code) == best_arm(estimates[None], state.ties)[0]


def test_ties_broken_by_a_seed_fall_on_all() -> None:
    found = {best_of_many(np.array([1.0, 0.0, 1.0, 1.0]), seed) for seed in range(50)}
    assert found == {0, 2, 3}


@pytest.mark.parametrize("length", [40, 60, 200])
def test_lists_of_many_arms_are_as_good_as_those_of_few(length: int) -> None:
    rng = np.random.default_rng(length)
    X, weights = rng.normal(size=(60, 8)), rng.dirichlet(np.ones(60))
    whole = whole_list_of_many(X, FewArms(np.arange(60), weights), length)
    counts = whole.weights * length
    np.testing.assert_allclose(counts, np.rint(counts), atol=1e-9)
    assert counts.sum() == pytest.approx(length)
    (dense,), (good,) = whole_lists(X, weights[None], length)
    assert good
    target = (X * weights[:, None]).T @ X

    def efficiency(rows: Any, share: Any) -> float:
        return 8 / float(np.trace(target @ np.linalg.inv((rows * share[:, None]).T @ rows)))

    assert efficiency(X[whole.arms], whole.weights) > 0.93 * efficiency(X, dense / length)


def test_lists_too_short_leave_the_design_alone() -> None:
    design = FewArms(np.arange(60), np.full(60, 1 / 60))
    X = np.random.default_rng(0).normal(size=(60, 8))
    assert whole_list_of_many(X, design, 7) is design


def test_a_design_stays_whole_where_few_arms_would_lose_a_direction() -> None:
    """One light arm tells of the second direction, and the list has room for heavier ones only."""
    X = np.repeat([[1.0, 0.0], [0.0, 1.0]], [100, 1], axis=0)
    design = FewArms(np.arange(101), np.append(np.full(100, 0.00999), 0.001))
    assert whole_list_of_many(X, design, 16) is design
    assert whole_list_of_many(X, design, 26).arms.size < 101


@pytest.mark.parametrize("policy", [sa.GBAI(), sa.Steady()], ids=["g", "steady"])
def test_factors_without_a_fraction_are_played_with_few_arms(policy: Any) -> None:
    """Six levels are no prime number, so no regular fraction leaves any of them out."""
    arms = sa.ArmSet.factorial({f"f{i}": [str(v) for v in range(6)] for i in range(6)}, 1)
    segment = policy.next_segment(policy.start(arms, BUDGET))
    assert arms.large
    assert segment.columns <= 8 * arms.rank
    X = arms.coordinates_of(segment.arms)
    whole = arms.coordinates.T @ arms.coordinates / arms.size
    inside = (X * segment.weights[0][:, None]).T @ X
    # against equal weights on all arms, which are optimal
    assert np.linalg.eigvals(np.linalg.solve(whole, inside)).real.min() > 0.2


def test_published_settings_are_for_small_sets() -> None:
    with pytest.raises(sa.InvalidInputError, match=r"8,192 variants.*exact"):
        sa.P1RAGE.published().start(MANY, 1000)


@pytest.mark.parametrize("policy", [sa.Peace(), sa.Uniform(), sa.SequentialHalving()], ids=repr)
def test_policies_that_do_not_scale_say_so(policy: Any) -> None:
    with pytest.raises(sa.InvalidInputError, match=r"65,536 variants.*Steady"):
        policy.start(slots(16), 1000)


def test_large_sets_are_played_one_trial_at_a_time() -> None:
    with pytest.raises(sa.InvalidInputError, match="one trial at a time"):
        sa.Steady().start(MANY, 1000, trials=2)
