"""Policies on large arm sets: few arms in play, a state that does not grow, the same promises."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.designs import forget_designs
from steadyarm.designs.optimal import designs_for
from steadyarm.designs.solvers import solve_saddle, whiten
from steadyarm.estimators import ips
from steadyarm.policies.base import FIRST, LAST, best_arm, best_of_many
from steadyarm.policies.p1 import rage_elimination
from steadyarm.policies.steady import gap_errors
from steadyarm.segments import Segment

SCALING: list[Any] = [
    sa.GBAI(),
    sa.P1RAGE(max_phases=5),
    sa.Steady(updates=3),
]
NAMES = ["g", "rage", "steady"]
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
        segment.check(world.arms.size)
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
    matrices = 3
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
    if policy.order == "blocks":
        np.testing.assert_allclose(state.theta[0], theta, atol=1e-8)
    assert int(policy.recommend(state).arm[0]) == world.best_arm


def test_scores_of_few_arms_are_unbiased() -> None:
    """Expected score of one round, enumerated over the arms of a segment."""
    design, theta = sa.GBAI().g_optimal(MANY), np.random.default_rng(0).normal(size=MANY.rank)
    X = MANY.coordinates_of(design.arms)
    segment = Segment(design.weights, np.array([1]), arms=design.arms)
    expected = np.zeros(MANY.rank)
    for k, weight in enumerate(design.weights[0]):
        one = np.zeros(design.weights.shape)
        one[0, k] = X[k] @ theta
        stats = sa.SegmentStats(one.astype(bool).astype(np.int64), one)
        expected += weight * ips(X, segment, stats)[0]
    np.testing.assert_allclose(expected, theta, atol=1e-10)


LEVELS = sa.ArmSet.factorial({f"f{i}": ["a", "b", "c"] for i in range(4)}, interactions=1)
POINTS = sa.ArmSet.from_features(np.random.default_rng(5).normal(size=(90, 5)))


@pytest.mark.parametrize("arms", [slots(6), LEVELS, POINTS], ids=["two levels", "three", "points"])
def test_designs_of_subsets_are_proven(all_are_large: None, arms: sa.ArmSet) -> None:
    """Value and gap against the exact solver and against a pass over all pairs."""
    values = arms.coordinates @ np.random.default_rng(4).normal(size=arms.rank)
    order = np.argsort(-values)
    for size in (arms.size, arms.size - 5, 12, 5, 2):
        mask = np.zeros((1, arms.size), dtype=bool)
        mask[0, order[:size]] = True
        found = designs_for(arms, mask)
        made_for = None if size > arms.size // 2 else np.flatnonzero(mask[0])
        assert exact_value(arms, np.flatnonzero(mask[0])) * (1 - 1e-6) <= found.values[0]
        assert found.values[0] <= exact_value(arms, made_for) * 1.25 * (1 + 1e-6)
        weights = found.allocation().everywhere(arms.size)[0]
        inverse = np.linalg.inv((arms.coordinates * weights[:, None]).T @ arms.coordinates)
        Z = arms.coordinates[mask[0]]
        apart = Z[:, None] - Z[None]
        worst = np.einsum("ijr,rs,ijs->ij", apart, inverse, apart).max()
        assert worst <= found.values[0] * (1 + 1e-9)


def exact_value(arms: sa.ArmSet, among: Any) -> float:
    """Of the optimal design, by the solver for small sets."""
    chosen = np.arange(arms.size) if among is None else among
    X, _ = whiten(arms.coordinates)
    return solve_saddle(X, X[chosen], True, 1e-6).value


def test_subsets_with_most_of_the_arms_get_the_design_of_all(all_are_large: None) -> None:
    masks = np.ones((2, 64), dtype=bool)
    masks[1, :20] = False
    found = designs_for(slots(6), masks)
    first, second = found.weights[found.index]
    np.testing.assert_array_equal(first, second)


def test_virtual_phases_are_those_of_small_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    arms = slots(5)
    values = arms.coordinates @ np.random.default_rng(4).normal(scale=0.2, size=arms.rank)
    dense = rage_elimination(arms, values[None], 16, 1.0, "exact").weights[0]
    monkeypatch.setattr(sa.ArmSet, "large", property(lambda self: True))
    forget_designs()
    few = rage_elimination(arms, values[None], 16, 1.0, "exact")
    forget_designs()
    assert few.arms is not None
    X, weights = arms.coordinates, few.everywhere(arms.size)[0]
    # The designs differ within their gaps; what they tell about the leaders is alike.
    lead = X[values.argmax()] - X[np.argsort(-values)[1]]
    variances = [
        float(lead @ np.linalg.pinv((X * w[:, None]).T @ X) @ lead) for w in (weights, dense)
    ]
    assert 0.7 < variances[0] / variances[1] < 1.4


@pytest.mark.parametrize("arms", [slots(5), MANY], ids=["stored", "made from the index"])
def test_gap_errors_are_those_of_all_pairs_with_the_leader(arms: sa.ArmSet) -> None:
    rng = np.random.default_rng(1)
    root = rng.normal(size=(2, arms.rank, arms.rank))
    covariance = root @ root.swapaxes(1, 2)
    estimates = rng.normal(size=(2, arms.rank)) @ arms.coordinates.T
    found = gap_errors(arms, estimates, covariance)
    for i, best in enumerate(estimates.argmax(axis=1)):
        apart = arms.coordinates[best] - arms.coordinates
        expected = np.sqrt(np.einsum("kr,rs,ks->k", apart, covariance[i], apart))
        np.testing.assert_allclose(found[i], expected, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize(("ties", "code"), [("first", FIRST), ("last", LAST)])
def test_ties_of_many_arms(ties: Any, code: int) -> None:
    estimates = np.array([0.0, 2.0, 1.0, 2.0, 2.0 + 1e-14])
    state = sa.GBAI(ties=ties).start(sa.ArmSet.one_hot(list("abcde")), 100)
    assert best_of_many(estimates, code) == best_arm(estimates[None], state.ties)[0]


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


def test_designs_of_large_sets_are_exact_in_published_settings_too() -> None:
    published, usual = (policy.start(MANY, 1000) for policy in (sa.GBAI.published(), sa.GBAI()))
    assert np.array_equal(published.weights, usual.weights)


@pytest.mark.parametrize("policy", [sa.Peace(), sa.Uniform(), sa.SequentialHalving()], ids=repr)
def test_policies_that_do_not_scale_say_so(policy: Any) -> None:
    with pytest.raises(sa.InvalidInputError, match=r"65,536 variants.*Steady"):
        policy.start(slots(16), 1000)


def test_large_sets_are_played_one_trial_at_a_time() -> None:
    with pytest.raises(sa.InvalidInputError, match="one trial at a time"):
        sa.Steady().start(MANY, 1000, trials=2)
