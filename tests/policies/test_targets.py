"""Arms that can be played and others that can be recommended."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest, norm

import steadyarm as sa
from steadyarm.designs import adjacent_optimal, frank_wolfe_g, frank_wolfe_xy
from steadyarm.policies import POLICIES
from steadyarm.theory import rho_star
from tests.designs.reference import achieved_value, all_pairs, optimal_value


def stretched(by: list[float]) -> sa.ArmSet:
    """Unit vectors to play, multiples of them to recommend."""
    unit = np.eye(len(by))
    return sa.ArmSet.from_features(unit).with_targets(sa.ArmSet.from_features(unit * np.array(by)))


@pytest.mark.parametrize(("K", "M", "d", "seed"), [(6, 4, 3, 0), (9, 12, 4, 1), (8, 2, 4, 2)])
def test_designs_agree_with_cvxpy(K: int, M: int, d: int, seed: int) -> None:
    """The XY design over differences of targets and the G design over targets."""
    rng = np.random.default_rng(seed)
    X, Z = rng.normal(size=(K, d)) * [1.0, 10.0, 0.1, 1.0][:d], rng.normal(size=(M, d))
    arms = sa.ArmSet.from_features(X).with_targets(sa.ArmSet.from_features(Z))
    for exact, published, directions in (
        (sa.xy_optimal(arms), frank_wolfe_xy(arms), all_pairs(Z)),
        (sa.g_optimal(arms), frank_wolfe_g(arms), Z),
    ):
        best = optimal_value(X, directions)
        assert exact.value == pytest.approx(best, rel=1e-5)
        assert exact.gap <= 1e-6
        for design in (exact, published):
            assert design.value == pytest.approx(
                achieved_value(X, directions, design.weights), rel=1e-6
            )
            assert design.lower_bound <= best * (1 + 1e-5)


def test_designs_of_stretched_arms_are_known() -> None:
    """Weights are as the squares for the worst variance, as the sizes for a single difference."""
    design = sa.g_optimal(stretched([1.0, 2.0, 3.0]))
    assert np.allclose(design.weights, np.array([1.0, 4.0, 9.0]) / 14, atol=1e-5)
    assert design.value == pytest.approx(14.0, rel=1e-6)
    assert np.allclose(sa.xy_optimal(stretched([1.0, 3.0])).weights, [0.25, 0.75], atol=1e-5)


def test_error_in_blocks_is_that_of_a_normal_difference() -> None:
    """A fifth of 500 rounds on arm 0 and the rest on arm 1 tell target 1 by 0.1 ± 0.02^½."""
    world = sa.Environment.from_parameters(stretched([1.0, 2.0]), [0.5, 0.3], budget=500)
    assert world.best_arm == 1
    assert world.gap == pytest.approx(0.1)
    results = sa.simulate(sa.GBAI(order="blocks", block=5), world, trials=20_000, seed=1)
    expected = float(norm.sf(0.1 / np.sqrt(1 / 100 + 4 / 400)))
    assert binomtest(results.errors, results.trials, expected).pvalue > 1e-4
    assert results.cumulative_regret is None
    assert results.regret == pytest.approx(0.1 * results.error_rate)


@pytest.mark.parametrize("policy", [sa.GBAI(), sa.P1RAGE(), sa.Steady(), sa.P1RAGE.published()])
def test_targets_that_do_not_span_the_arms_are_told_apart(policy: sa.Policy[Any]) -> None:
    """Two targets among the six layouts that differ from them in three ways."""
    layouts = sa.ArmSet.factorial({"a": list("123"), "b": list("12")}, interactions=1)
    arms = layouts.with_targets(layouts.subset([0, 5]))
    world = sa.Environment.from_parameters(arms, [0.0, 0.1, 0.1, 0.2], budget=600)
    assert world.best_arm == 1
    assert sa.simulate(policy, world, trials=300, seed=1).errors < 15


def test_the_same_arms_as_targets_change_nothing() -> None:
    arms = sa.ArmSet.one_hot(["A", "B"])
    assert arms.with_targets(sa.ArmSet.one_hot(["A", "B"])) is arms


@pytest.mark.parametrize(
    "name", [name for name, kind in POLICIES.items() if not kind.takes_targets]
)
def test_other_policies_refuse_targets(name: str) -> None:
    with pytest.raises(sa.InvalidInputError, match="does not support arms with targets"):
        POLICIES[name]().start(stretched([1.0, 2.0]), budget=100)


def test_what_does_not_support_targets_refuses_them() -> None:
    arms = stretched([1.0, 2.0])
    for refused in (
        lambda: sa.Session(sa.Steady(), arms, budget=100),
        lambda: sa.Environment.from_means(arms, [0.1, 0.2], budget=100),
        lambda: (
            sa.Environment.from_callable(
                arms, lambda arms, rounds, rng: arms, budget=100, average=[0.1, 0.2]
            ).best_arm
        ),
        lambda: adjacent_optimal(arms),
        lambda: rho_star(arms, [0.1, 0.2]),
        arms.to_dict,
    ):
        with pytest.raises(sa.InvalidInputError, match="does not support arms with targets"):
            refused()


def test_wrong_targets_are_refused() -> None:
    arms = sa.ArmSet.from_features([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    with pytest.raises(sa.InvalidInputError, match="target 'arm 1' is not in the span"):
        arms.with_targets(sa.ArmSet.from_features([[1.0, 1.0, 2.0], [1.0, 1.0, 1.0]]))
    with pytest.raises(sa.InvalidInputError, match="the targets have 2 features; expected 3"):
        arms.with_targets(sa.ArmSet.one_hot(["A", "B"]))
    with pytest.raises(sa.InvalidInputError, match="expected an ArmSet"):
        arms.with_targets([[1.0, 1.0, 2.0]])  # type: ignore[arg-type]  # the point of the test
