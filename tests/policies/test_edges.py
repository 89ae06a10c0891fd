"""What the paper leaves undefined, and the exact form of what it defines."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, floor, log2
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

import steadyarm as sa
from steadyarm.environments import layouts, soare_arms, soare_stationary
from steadyarm.policies import POLICIES
from steadyarm.policies.base import best_arm, rank_arms
from steadyarm.policies.ips import halve
from steadyarm.policies.p1 import peace_elimination, rage_elimination
from steadyarm.policies.steady import noise_elimination
from steadyarm.segments import SegmentStats

EASY = sa.ArmSet.from_features([[1.0], [1.1], [0.9]])  # inf ρ = 0.2² / 1.1² < 1


def run(policy: sa.Policy[Any], arms: sa.ArmSet, budget: int, seed: int = 0) -> list[sa.Segment]:
    """The segments of one trial in which every reward is noise."""
    rng = np.random.default_rng(seed)
    state, segments = policy.start(arms, budget, seed=seed), []
    while (segment := policy.next_segment(state)) is not None:
        segments.append(segment)
        counts = rng.multinomial(segment.rounds, segment.weights)
        stats = SegmentStats(counts, np.sqrt(counts) * rng.normal(size=counts.shape))
        state = policy.observe(state, segment, stats)
    return segments


@pytest.mark.parametrize("policy", [sa.P1RAGE(), sa.P1Peace(solver="exact")])
def test_redesigns_follow_rounds_1_then_every_r(policy: sa.Policy[Any]) -> None:
    arms, T = layouts(), 1000
    R = floor(T / log2(sa.xy_optimal(arms).value))
    ends = np.cumsum([int(segment.rounds[0]) for segment in run(policy, arms, T)])
    expected = [*range(1, T, R), T]
    assert ends.tolist() == expected


def test_published_epochs_round_the_logarithm_up() -> None:
    arms, T = layouts(), 1000
    R = T // ceil(log2(sa.xy_optimal(arms).value))
    segments = run(sa.P1RAGE.published(), arms, T)
    assert [int(s.rounds[0]) for s in segments[:2]] == [1, R]


def test_algorithm_2_to_the_letter_redesigns_after_every_round() -> None:
    segments = run(sa.P1RAGE(updates="rounds"), soare_arms(4, 0.3), 40)
    assert [int(s.rounds[0]) for s in segments] == [1] * 40
    assert np.allclose(segments[0].weights[0], sa.g_optimal(soare_arms(4, 0.3)).weights, atol=1e-6)
    assert len({s.weights.tobytes() for s in segments}) > 5


@pytest.mark.parametrize("published", [False, True])
def test_mixed_peace_runs_the_told_number_of_epochs(published: bool) -> None:
    arms, T = layouts(), 1003
    policy = sa.MixedPeace.published() if published else sa.MixedPeace()
    R = ceil(log2(sa.xy_optimal(arms).value))
    N = T // R
    lengths = [int(segment.rounds[0]) for segment in run(policy, arms, T)]
    rest = T - R * N
    assert rest > 0
    assert lengths == ([N] * (R - 1) + [N + rest] if published else [N] * R + [rest])


@pytest.mark.parametrize("policy", [sa.P1RAGE(), sa.P1Peace(), sa.MixedPeace(), sa.Peace()])
def test_a_rho_below_one_is_a_single_epoch(policy: sa.Policy[Any]) -> None:
    assert sa.xy_optimal(EASY).value < 1
    lengths = [int(segment.rounds[0]) for segment in run(policy, EASY, 100)]
    redesigns_after_first = isinstance(policy, sa.P1RAGE | sa.P1Peace)
    assert lengths == ([1, 99] if redesigns_after_first else [100])


@pytest.mark.parametrize("policy", [sa.P1RAGE(), sa.P1Peace(), sa.MixedPeace(), sa.Peace()])
def test_a_budget_below_the_number_of_epochs_is_spent_round_by_round(
    policy: sa.Policy[Any],
) -> None:
    arms = layouts()
    assert log2(sa.xy_optimal(arms).value) > 3
    assert [int(segment.rounds[0]) for segment in run(policy, arms, 3)] == [1, 1, 1]


def test_od_linbai_without_enough_budget_plays_nothing_and_picks_at_random() -> None:
    arms = sa.ArmSet.one_hot([str(k) for k in range(10)])
    world = sa.Environment.from_means(arms, np.arange(10.0), budget=10)
    for policy in (sa.ODLinBAI(), sa.ODLinBAI.published()):
        assert run(policy, arms, 10) == []
        found = sa.simulate(policy, world, trials=10_000).recommended
        picked = np.array([found.get(arm, 0) for arm in range(10)])
        assert np.abs(picked - 1000).max() < norm.isf(1e-5) * 30


def test_od_linbai_halves_the_dimension() -> None:
    policy, arms = sa.ODLinBAI(), layouts()
    state = policy.start(arms, 2000)
    left = []
    while (segment := policy.next_segment(state)) is not None:
        stats = SegmentStats(segment.counts, segment.counts * np.linspace(0, 1, 16))
        state = policy.observe(state, segment, stats)
        left.append(int(state.survivors.sum()))
    assert left == [6, 3, 2, 1]  # ⌈11/2⌉, ⌈11/4⌉, ⌈11/8⌉, ⌈11/16⌉


def test_od_linbai_against_a_closed_form() -> None:
    """On Soare's set two arms reach the last round, each with half of m plays of its own."""
    T = 1010
    m = (T - 11 - (5 + 3 + 2)) / 4
    plays = ceil(m / 2)
    world = soare_stationary(T)
    expected = norm.cdf(-world.gap / np.sqrt(2 / plays))
    low, high = sa.simulate(sa.ODLinBAI(), world, trials=20_000, seed=1).interval(0.9999)
    assert low < expected < high


def test_peace_stops_when_one_arm_is_left() -> None:
    arms = sa.ArmSet.one_hot(["A", "B", "C", "D"])
    world = sa.Environment.from_means(arms, [9.0, 0.0, 0.0, 0.0], budget=400)
    policy = sa.Peace()
    state = policy.start(arms, 400)
    rng = np.random.default_rng(0)
    while (segment := policy.next_segment(state)) is not None:
        state = policy.observe(state, segment, world.play(segment, state.played, rng))
    assert state.survivors.sum() == 1
    assert state.played[0] < 400


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (sa.MixedPeace(solver="exact"), sa.g_optimal(soare_arms(3, 0.3)).weights),
        (sa.MixedPeace.published(), (sa.frank_wolfe_g(soare_arms(3, 0.3)).weights + 1 / 4) / 2),
    ],
)
def test_mixed_peace_with_one_arm_left(policy: sa.MixedPeace, expected: Any) -> None:
    state = policy.start(soare_arms(3, 0.3), 100)
    alone = replace(state, survivors=np.array([[True, False, False, False]]))
    assert np.allclose(policy.allocation(alone)[0], expected, atol=1e-6)


@pytest.mark.parametrize("K", [2, 4, 8, 16, 32])
def test_exact_halves_and_powers_of_two_are_taken_as_such(K: int) -> None:
    """One-hot arms have ρ = 2k for any k of them: ⌈log2 2K⌉ epochs, and half are kept."""
    arms = sa.ArmSet.one_hot([str(k) for k in range(K)])
    epochs = int(log2(K)) + 1
    T = 100 * epochs
    lengths = [int(segment.rounds[0]) for segment in run(sa.P1RAGE(), arms, T)]
    assert lengths == [1, *[100] * (epochs - 1), 99]
    lengths = [int(segment.rounds[0]) for segment in run(sa.MixedPeace(solver="exact"), arms, T)]
    assert lengths == [100] * epochs
    order = np.arange(K)[None]
    survivors = np.ones((1, K), dtype=bool)
    sizes = []
    while survivors.sum() > 1:
        survivors = halve(arms, survivors, order, "exact")
        sizes.append(int(survivors.sum()))
    # two arms have ρ = 4, a single one 0: from two and three on only one is kept
    assert sizes == [2**i for i in range(int(log2(K)) - 1, -1, -1)]


def test_peace_plays_the_remainder_in_its_last_epoch() -> None:
    policy, arms = sa.Peace(), layouts()
    epochs = ceil(log2(sa.xy_optimal(arms).value))
    state = policy.start(arms, 1003)
    last = replace(state, epoch=np.array([epochs - 1]), played=np.array([900]))
    assert policy.planned_counts(last).sum() == 103


def test_least_squares_policies_do_not_mind_the_scale_of_features() -> None:
    years = np.column_stack([np.ones(10), np.arange(2000.0, 2010.0)])
    arms = sa.ArmSet.from_features(years)
    world = sa.Environment.from_parameters(arms, [-20.0, 0.01], sa.GaussianNoise(0.02), budget=400)
    others = (sa.AdjacentBAI(), sa.LinearThompson(noise_sd=0.02))
    for policy in (sa.Peace(), sa.ODLinBAI(), sa.GBAI(), sa.P1RAGE(), *others):
        assert sa.simulate(policy, world, trials=200, seed=1).errors <= 2, policy.name


def test_published_configurations_are_those_of_the_notes() -> None:
    drawing = {"order": "iid", "block": 0}
    phased = {"solver": "frank-wolfe", "ties": "last"}
    common = phased | drawing
    plain = {"solver": "exact", "ties": "random"} | drawing
    thompson = {"noise_sd": None, "ridge": 1.0, "samples": 128, "batch": None, "ties": "random"}
    expected: dict[str, dict[str, Any]] = {
        "Uniform": plain,
        "P1": plain,
        "Steady": plain | {"order": "blocks", "robustness": 0.6, "updates": 20},
        "G-BAI": common,
        "P1-RAGE": common
        | {"max_phases": 15, "first_cut": 0.5, "updates": "epochs", "epoch_length": "published"},
        "P1-Peace": common | {"epoch_length": "published"},
        "Mixed-Peace": common | {"epochs": "published", "alone": "uniform"},
        "Peace": phased | {"rounding_ties": "first"},
        "OD-LinBAI": phased,
        "Adjacent-BAI": {"ties": "random"},
        "Sequential-Halving": {"ties": "random"},
        "Linear-Thompson": thompson,
        "Top-Two-Thompson": thompson | {"beta": 0.5},
        "Deconfounded-Thompson": thompson | {"beta": 0.5},
        "GSE": {"solver": "exact", "ties": "random", "eta": 2},
    }
    found = {name: policy.published().to_dict() for name, policy in POLICIES.items()}
    assert found == {name: {"name": name} | settings for name, settings in expected.items()}
    assert sa.P1RAGE() == sa.P1RAGE(max_phases=16, first_cut=1.0, updates="epochs")


def test_fewer_rounds_than_arms_go_to_the_heavier_or_the_first() -> None:
    """Peace at T = 10 on Soare's arms: the published runs' rule makes the first arm be played."""
    arms = soare_arms(10, 0.1)
    heavier, first = (
        run(policy, arms, 10)[0].counts[0] for policy in (sa.Peace(), sa.Peace.published())
    )
    assert first.tolist() == [1, 1] + [0] * 9
    weights = sa.xy_optimal(arms).weights
    assert weights[heavier == 1].min() >= weights.max() * (1 - 1e-6)  # of a tie, any


def test_rage_elimination_by_hand() -> None:
    """Gaps 0, 0.3, 0.8, 3: phases of 4, 3, 2 (gap ≤ 1, ½) and then 1 arm."""
    arms = sa.ArmSet.one_hot(list("ABCD"))
    estimates = np.array([[3.0, 2.7, 2.2, 0.0]])
    sets = [[0, 1, 2, 3], [0, 1, 2], [0, 1]]
    expected = np.mean([sa.xy_optimal(arms, among=chosen).weights for chosen in sets], axis=0)
    found = rage_elimination(arms, estimates, max_phases=16, first_cut=1.0, solver="exact")
    assert np.allclose(found[0], expected, atol=1e-6)
    # With the published first cut at ½ the second set is skipped.
    expected = np.mean([sa.xy_optimal(arms, among=sets[i]).weights for i in (0, 2)], axis=0)
    found = rage_elimination(arms, estimates, max_phases=16, first_cut=0.5, solver="exact")
    assert np.allclose(found[0], expected, atol=1e-6)


def test_noise_elimination_by_hand() -> None:
    """Largest gap 3: cuts at 1.5, 0.75, 0.375, …, down to a quarter of the smallest error."""
    arms = sa.ArmSet.one_hot(list("ABCD"))
    estimates = np.array([[3.0, 2.7, 2.2, 0.0]])
    designs = [
        sa.xy_optimal(arms, among=chosen).weights for chosen in ([0, 1, 2, 3], [0, 1, 2], [0, 1])
    ]
    # gaps 0.3, 0.8, 3. At 1.5 three arms, at 0.75 and 0.375 two, at 0.1875 one; the noise decides
    # how far down the cuts go.
    for error, phases in ((0.2, [0, 1, 2, 2]), (2.0, [0, 1, 2]), (4.0, [0, 1]), (9.0, [0, 1])):
        errors = np.array([[0.0, error, error, error]])
        counts = np.arange(1, len(phases) + 1)  # each phase once more than the one before
        expected = np.average([designs[i] for i in phases], axis=0, weights=counts)
        found = noise_elimination(arms, estimates, errors, "exact")
        assert np.allclose(found.weights[0], expected, atol=1e-6), error
        scaled = noise_elimination(arms, 1e-6 * estimates, 1e-6 * errors, "exact")
        # the unit of rewards does not matter
        assert np.allclose(scaled.weights, found.weights, atol=1e-9)


def test_halving_keeps_the_longest_prefix_by_brute_force() -> None:
    rng = np.random.default_rng(3)
    arms = sa.ArmSet.from_features(rng.normal(size=(9, 3)))
    order = rng.permuted(np.tile(np.arange(9), (20, 1)), axis=1)
    survivors = rng.random((20, 9)) < 0.7
    survivors[:, :2] = True
    kept = halve(arms, survivors, order, "exact")
    for i in range(20):
        alive = [k for k in order[i] if survivors[i, k]]
        half = sa.xy_optimal(arms, among=alive).value / 2
        longest = max(
            k
            for k in range(1, len(alive) + 1)
            if k == 1 or sa.xy_optimal(arms, among=alive[:k]).value <= half
        )
        assert sorted(alive[:longest]) == np.flatnonzero(kept[i]).tolist()


def test_peace_elimination_averages_its_phases() -> None:
    rng = np.random.default_rng(4)
    arms = sa.ArmSet.from_features(rng.normal(size=(7, 3)))
    estimates = rng.normal(size=(5, 7))
    ties = np.tile(np.arange(7), (5, 1))
    found = peace_elimination(arms, estimates, ties, "exact")
    for i in range(5):
        order = np.argsort(-estimates[i])
        alive, designs = order, []
        while len(alive) > 1:
            design = sa.xy_optimal(arms, among=alive)
            designs.append(design.weights)
            k = len(alive) - 1
            while k > 1 and sa.xy_optimal(arms, among=alive[:k]).value > design.value / 2:
                k -= 1
            alive = alive[:k]
        assert np.allclose(found.weights[i], np.mean(designs, axis=0), atol=1e-5)


def test_ties_are_broken_as_told() -> None:
    estimates = np.array([[1.0, 2.0, 2.0 + 1e-15, 0.0]])
    first, last = np.array([[0, 1, 2, 3]]), np.array([[3, 2, 1, 0]])
    assert rank_arms(estimates, first).tolist() == [[1, 2, 0, 3]]
    assert rank_arms(estimates, last).tolist() == [[2, 1, 0, 3]]
    among = np.array([[True, False, False, True]])
    assert best_arm(estimates, first, among).tolist() == [0]
    picked = [
        int(best_arm(np.zeros((1, 4)), sa.GBAI().start(layouts(2), 5, seed=s).ties)[0])
        for s in range(2000)
    ]
    assert np.abs(np.bincount(picked) - 500).max() < norm.isf(1e-5) * np.sqrt(2000 * 0.25 * 0.75)


@pytest.mark.parametrize(
    ("given", "among", "message"),
    [
        ([[1.0, np.nan]], None, "arm 1 in trial 0 is nan"),
        ([[1.0, np.nan]], [1], "arm 1 in trial 0 is nan"),
        ([1.0, 2.0], None, "a row for each trial"),
        ([[1.0, 2.0]], [2], "indices of arms from 0 to 1"),
        ([[1.0, 2.0]], [True], "boolean mask of shape"),
        ([[1.0, 2.0]], [0.5], "boolean mask of shape"),
        ([[1.0, 2.0]], [False, False], "leaves out every arm"),
    ],
)
def test_what_cannot_be_ranked_is_refused(given: Any, among: Any, message: str) -> None:
    with pytest.raises(sa.InvalidInputError, match=message):
        rank_arms(given, among=among)


def test_p1_ignores_features() -> None:
    policy = sa.P1(ties="first")
    stats = SegmentStats(np.array([[0, 1, 0]]), np.array([[0.0, 1.0, 0.0]]))
    for arms in (sa.ArmSet.one_hot(list("ABC")), EASY):
        state = policy.start(arms, 10)
        segment = policy.next_segment(state)
        assert segment is not None
        assert np.allclose(segment.weights, np.array([[6, 3, 2]]) / 11)
        state = policy.observe(state, segment, stats)
        again = policy.next_segment(state)
        assert again is not None
        assert np.allclose(again.weights, np.array([[3, 6, 2]]) / 11)
        assert np.allclose(policy.recommend(state).estimates, [[0, 11 / 3, 0]])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: sa.P1RAGE(max_phases=0), "max_phases is 0"),
        (lambda: sa.P1RAGE(first_cut=0.0), "first_cut is 0"),
        (lambda: sa.P1RAGE(max_phases=2.5), "max_phases is 2.5"),  # type: ignore[arg-type]  # the point of the test
        (lambda: sa.P1RAGE(updates="x"), "updates is 'x'; expected one of 'epochs', 'rounds'"),  # type: ignore[arg-type]  # the point of the test
        (lambda: sa.MixedPeace(alone="x"), "alone is 'x'"),  # type: ignore[arg-type]  # the point of the test
        (lambda: sa.Peace(rounding_ties="x"), "rounding_ties is 'x'"),  # type: ignore[arg-type]  # the point of the test
        (lambda: sa.Steady(robustness=0.0), "robustness is 0.0"),
        (lambda: sa.Steady(updates=0), "updates is 0"),
        (lambda: sa.GBAI(block=-1), "block is -1"),
        (lambda: sa.GBAI(order="x"), "order is 'x'"),  # type: ignore[arg-type]  # the point of the test
        (lambda: sa.GBAI(solver="x"), "solver is 'x'"),  # type: ignore[arg-type]  # the point of the test
        (lambda: sa.GBAI(ties="coin"), "ties is 'coin'"),  # type: ignore[arg-type]  # the point of the test
        (lambda: sa.LinearThompson(noise_sd=0.0), "noise_sd is 0.0; expected a number above 0"),
        (lambda: sa.LinearThompson(ridge=-1.0), "ridge is -1.0"),
        (lambda: sa.TopTwoThompson(samples=0), "samples is 0"),
        (lambda: sa.TopTwoThompson(batch=0), "batch is 0"),
        (lambda: sa.TopTwoThompson(beta=1.0), "beta is 1.0"),
        (lambda: sa.AdjacentBAI(ties="x"), "ties is 'x'"),  # type: ignore[arg-type]  # the point of the test
        (lambda: sa.GBAI().start(EASY, 0), "budget is 0"),
        (lambda: sa.GBAI().start(EASY, 5, trials=0), "trials is 0"),
    ],
)
def test_bad_policies_are_refused(build: Any, message: str) -> None:
    with pytest.raises(sa.InvalidInputError, match=message):
        build()
