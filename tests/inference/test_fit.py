"""Lack of fit: the textbook's F, enumeration under drift, rare false alarms, power."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom
from scipy.stats import f as f_distribution

import steadyarm as sa
from steadyarm.errors import InvalidInputError
from steadyarm.inference import LackOfFit, lack_of_fit
from steadyarm.inference.fit import Missing, lack_of_fit_p_values
from steadyarm.segments import Segment, SegmentStats
from tests.inference.worlds import played

Floats = NDArray[np.float64]
SQUARE = sa.ArmSet.factorial({"a": ["0", "1"], "b": ["0", "1"]}, interactions=1)
TWELVE = sa.ArmSet.factorial(
    {"a": ["0", "1"], "b": ["0", "1", "2"], "c": ["0", "1"]}, interactions=1
)


def piece_of(rewards: list[Floats], order: Any = "shuffled") -> tuple[Segment, SegmentStats]:
    """One piece with these rewards of each arm."""
    counts = np.array([[len(r) for r in rewards]])
    sums = np.array([[r.sum() for r in rewards]])
    squares = np.array([[(r**2).sum() for r in rewards]])
    segment = Segment(counts / counts.sum(), counts.sum(axis=1), order)
    return segment, SegmentStats(counts, sums, squares)


def additive(course: Floats, pair: float = 0.0) -> sa.Environment:
    """Twelve combinations whose effects add up but for one pair, while effects follow a course.

    course : (T, 3) to be added to the level, to the effect of a=1 and to that of b=2
    """
    on = np.array([[1.0, "a=1" in name, "b=2" in name, "c=1" in name] for name in TWELVE.names])
    base = on @ [0.3, 0.1, -0.05, 0.2] + pair * on[:, 1] * on[:, 2]
    return sa.Environment.from_means(TWELVE, base + course @ on[:, :3].T, sa.GaussianNoise(0.5))


def test_one_piece_with_equal_variances_is_the_textbooks_test() -> None:
    base = np.array([0.4, -0.7, 0.1, 0.2])
    rewards = [base + mean for mean in (0.1, 0.5, 0.2, 1.1, 0.3, 0.4, 0.9, 0.2, 0.6, 0.5, 0.1, 0.3)]
    found = lack_of_fit(TWELVE, [piece_of(rewards)])
    assert found is not None
    X = np.repeat(TWELVE.coordinates, 4, axis=0)
    y = np.concatenate(rewards)
    left = y - X @ np.linalg.lstsq(X, y, rcond=None)[0]
    pure = sum(((r - r.mean()) ** 2).sum() for r in rewards)
    misfit, error = ((left**2).sum() - pure) / (12 - 5), pure / (48 - 12)
    assert found.statistic == pytest.approx(misfit / error)
    assert found.freedom == pytest.approx((7, 36))
    assert found.p_value == pytest.approx(f_distribution.sf(misfit / error, 7, 36))


def test_observed_and_fitted_are_of_the_same_plays() -> None:
    rng = np.random.default_rng(3)
    parts = (((0, 0, 0, 1.0), (5, 6, 7, 8)), ((2, 2, 2, 3.0), (9, 5, 6, 4)))
    log = [
        piece_of([rng.normal(m, 0.1, n) for m, n in zip(means, plays, strict=True)])
        for means, plays in parts
    ]
    found = lack_of_fit(SQUARE, log)
    assert found is not None
    k = SQUARE.index(found.worst)
    N = sum(stats.counts[0] for _, stats in log)
    assert found.plays == N[k]
    assert found.observed == pytest.approx(sum(stats.sums[0, k] for _, stats in log) / N[k])
    fitted = 0.0
    for _, stats in log:
        root = np.sqrt(stats.counts[0])
        y = stats.sums[0] / stats.counts[0]
        X = SQUARE.coordinates
        theta = np.linalg.lstsq(X * root[:, None], y * root, rcond=None)[0]
        fitted += stats.counts[0, k] * (X[k] @ theta) / N[k]
    assert found.fitted == pytest.approx(fitted)
    assert found.finding.status == "fail"


def test_under_drift_distances_are_zero_on_average_and_their_variance_is_never_too_small() -> None:
    """All 2,520 orders in which a piece of eight rounds plays four arms twice."""
    t = np.arange(8)
    X = SQUARE.coordinates
    course = X @ np.stack([np.sin(t), 0.3 * t, t % 3 - 1.0])  # (4, 8): the model holds every round
    distances, variances = [], []
    for first in combinations(range(8), 2):
        rest = [i for i in range(8) if i not in first]
        for second in combinations(rest, 2):
            others = [i for i in rest if i not in second]
            for third in combinations(others, 2):
                fourth = [i for i in others if i not in third]
                lists = [list(first), list(second), list(third), fourth]
                y = np.array([course[k, at].sum() for k, at in enumerate(lists)])
                s2 = np.array([course[k, at].var(ddof=1) for k, at in enumerate(lists)])
                M = np.eye(4) - X @ np.linalg.inv(X.T @ X) @ X.T
                distances.append(M @ y)
                variances.append(np.diag(M @ np.diag(2 * s2) @ M.T))
    assert len(distances) == 2520
    np.testing.assert_allclose(np.mean(distances, axis=0), 0, atol=1e-12)
    assert (np.mean(variances, axis=0) >= np.var(distances, axis=0) - 1e-12).all()
    chosen = [course[k, at] for k, at in enumerate(([0, 5], [1, 7], [2, 3], [4, 6]))]
    some = piece_of(chosen)
    twice = lack_of_fit(SQUARE, [some] * 5)  # five pieces: twenty degrees of freedom
    assert twice is not None
    y, N = some[1].sums[0], 2
    k = SQUARE.index(twice.worst)
    assert twice.observed - twice.fitted == pytest.approx((M @ y)[k] / N)
    s2 = np.array([rewards.var(ddof=1) for rewards in chosen])
    assert twice.error == pytest.approx(np.sqrt(5 * (M[k] ** 2 @ (2 * s2))) / (5 * N))


COURSES: dict[str, Callable[[Floats], Floats]] = {
    "still": lambda t: np.zeros((len(t), 3)),
    "level": lambda t: np.stack([np.sin(20 * t), 0 * t, 0 * t], axis=1),
    "effects": lambda t: np.stack([0.5 * t, 0.4 * np.sin(9 * t), -0.6 * (t > 0.6)], axis=1),
}


@pytest.mark.parametrize("course", COURSES)
@pytest.mark.parametrize(
    "policy",
    [sa.Steady(), sa.P1RAGE(), sa.GBAI(order="blocks", block=11)],
    ids=["Steady", "P1-RAGE", "uneven blocks"],
)
def test_false_alarms_are_rare_and_a_pair_is_found(policy: sa.Policy[Any], course: str) -> None:
    tests, T = 400, 2400
    moved = COURSES[course](np.arange(T) / T)
    p = lack_of_fit_p_values(TWELVE, played(policy, additive(moved), tests, seed=5, pieces=None))
    for level in (0.05, 0.01, 0.001):
        assert (p < level).sum() <= binom.isf(1e-4, tests, level)
    if course == "still":
        assert (p < 0.2).sum() >= binom.ppf(1e-4, tests, 0.2)  # nor too rare
        found = lack_of_fit_p_values(
            TWELVE, played(policy, additive(moved, 0.4), 100, seed=1, pieces=None)
        )
        assert (found < 0.001).mean() > 0.9


def lacking(p_value: float, worst: str) -> LackOfFit:
    missing = Missing("interaction of 'a' and 'b'", p_value, 0.9, np.zeros(12), 0.2)
    return LackOfFit(
        p_value, 4.2, (7.0, 300.0), worst, 210, 0.31, 0.22, 0.0145, 5, 12, missing, np.eye(12)
    )


def test_the_finding_names_the_combination_and_what_to_do() -> None:
    found = lacking(2e-6, "a=1, b=2, c=0")
    finding = found.finding
    assert (finding.name, finding.status, finding.p_value) == ("lack of fit", "fail", 2e-6)
    assert finding.explanation == (
        "a=1, b=2, c=0 had 0.31 on average in 210 plays; the model of 5 parameters gives "
        "0.22 (+6.2 standard errors; all combinations together p = 2e-06)."
    )
    assert finding.advice == (
        "Add the interaction of 'a' and 'b' to the model, or analyse the 12 combinations as "
        "separate variants (ArmSet.one_hot)."
    )
    assert json.loads(json.dumps(found.to_dict()))["status"] == "fail"


def test_where_nothing_can_be_tested_nothing_is_said() -> None:
    rng = np.random.default_rng(1)
    full = [rng.normal(size=30) for _ in range(4)]
    assert lack_of_fit(sa.ArmSet.one_hot(list("ABCD")), [piece_of(full)]) is None
    pairs = sa.ArmSet.factorial({"a": ["0", "1"], "b": ["0", "1"]}, interactions=2)
    assert lack_of_fit(pairs, [piece_of(full)]) is None  # as many parameters as combinations
    three = [*full[:3], np.zeros(0)]
    assert lack_of_fit(SQUARE, [piece_of(three)]) is None  # as many arms as parameters
    assert lack_of_fit(SQUARE, [piece_of([r[:1] for r in full])]) is None  # none played twice
    assert lack_of_fit(SQUARE, [piece_of([np.ones(9)] * 4)]) is None  # no noise to compare with
    many = sa.ArmSet.factorial({f: [str(i) for i in range(9)] for f in "abc"}, interactions=1)
    assert lack_of_fit(many, [piece_of([np.ones(2)] * 729)]) is None


def test_a_batch_is_its_members_one_by_one() -> None:
    log = played(sa.Steady(), additive(np.zeros((600, 3))), 3, pieces=None)
    batch = lack_of_fit_p_values(TWELVE, log)
    for i in range(3):
        alone = [
            (part.trial(i), SegmentStats(s.counts[[i]], s.sums[[i]], s.squares[[i]]))
            for part, s in log
            if s.squares is not None
        ]
        found = lack_of_fit(TWELVE, alone)
        assert found is not None
        assert found.p_value == pytest.approx(batch[i])


def test_errors_say_what_is_wrong() -> None:
    with pytest.raises(InvalidInputError, match="batch of 3 tests"):
        lack_of_fit(TWELVE, played(sa.GBAI(), additive(np.zeros((60, 3))), 3, pieces=None))
    with pytest.raises(InvalidInputError, match="no segment was given"):
        lack_of_fit(TWELVE, [])
    segment, stats = piece_of([np.ones(2)] * 12)
    with pytest.raises(InvalidInputError, match="squares=True"):
        lack_of_fit(TWELVE, [(segment, SegmentStats(stats.counts, stats.sums))])
