"""Exact enumeration of all courses of two segments: adjusted estimates have the right mean.

Nothing moves at random but the assignments: every unit has its covariates and its reward under
each arm, which drift as they like. A past of fixed rows gives the slopes something to start from;
the slopes of the second segment, and its allocation, depend on the draws of the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

import steadyarm as sa
from steadyarm.covariates import Moments, Slopes
from steadyarm.estimators import ips
from steadyarm.live.decisions import SegmentLedger, adjust_ledgers, fill_in_missing
from steadyarm.segments import SegmentStats
from tests.policies.test_unbiased import _orders

Floats = NDArray[np.float64]

POLICY = sa.GBAI()
LINEAR = sa.ArmSet.from_features([[1.0, 0.0], [0.0, 1.0], [0.9, 0.5]])
ONE_HOT = sa.ArmSet.one_hot(["A", "B", "C"])
ROUNDS = 6  # three in each segment, four and two in blocks of two
Z = np.array(  # known, and two covariates; the third unit is not known
    [
        [1.0, 3.0, -1.0],
        [1.0, -2.0, 0.5],
        [0.0, 0.0, 0.0],
        [1.0, 1.0, 2.0],
        [1.0, -0.5, -3.0],
        [1.0, 4.0, 1.0],
    ]
)


def rewards_of(arms: sa.ArmSet) -> Floats:
    """(T, K) rewards, which follow covariates, time and arm; linear where arms share features."""
    time = np.arange(ROUNDS)
    if arms is LINEAR:
        theta = np.column_stack([0.9 - time, 0.4 * time**2]) + 0.7 * Z[:, 1:]
        return np.asarray(theta @ arms.features.T)
    level = np.sin(time[:, None] + np.array([1.0, 2.0, 4.0]))
    return np.asarray(0.8 * Z[:, 1:2] * np.array([1.0, 1.2, 0.6]) - 0.5 * Z[:, 2:] + level)


def past(arms: int = 3) -> Slopes:
    """What is known of slopes from 80 units before the first of the two segments."""
    rng = np.random.default_rng(3)
    z = np.column_stack([rng.random(80) < 0.8, rng.normal(size=(80, 2))]).astype(np.float64)
    z[z[:, 0] == 0] = 0.0
    columns = rng.integers(0, arms, 80)
    rewards = z @ [0.3, 0.8, -0.5] + 0.5 * rng.normal(size=80)
    stats, moments = _sums(columns.tolist(), z, rewards.tolist(), arms)
    return Slopes.none(1, 3).after(stats, moments)


def _sums(
    columns: Sequence[int], z: Floats, rewards: Sequence[float], arms: int = 3
) -> tuple[SegmentStats, Moments]:
    stats = SegmentStats.empty(1, arms)
    assert stats.squares is not None
    for column, reward in zip(columns, rewards, strict=True):
        if reward == reward:
            stats.counts[0, column] += 1
            stats.sums[0, column] += reward
            stats.squares[0, column] += reward * reward
    return stats, Moments.of_rows(columns, z, rewards, arms)


def ledger(
    index: int, segment: sa.Segment, course: Sequence[int], start: int, r: Floats, z: Floats = Z
) -> SegmentLedger:
    """The ledger of a segment that assigned `course` from round `start` on; nan is missing."""
    rounds = range(start, start + len(course))
    rewards = [float(r[t, arm]) for t, arm in zip(rounds, course, strict=True)]
    stats, moments = _sums(course, z[start : start + len(course)], rewards)
    assigned = np.bincount(course, minlength=3)
    return SegmentLedger(
        index, segment, stats, used=len(course), assigned=assigned, moments=moments
    )


@dataclass(frozen=True)
class Plan:
    """Both segments: their orders, rounds, and the two allocations that the second may have."""

    order: str
    lengths: tuple[int, int]
    block: int = 1
    first: tuple[float, ...] = (0.5, 0.3, 0.2)
    second: tuple[tuple[float, ...], ...] = ((0.2, 0.6, 0.2), (0.4, 0.25, 0.35))

    def segment(self, which: int, choice: int = 0) -> sa.Segment:
        weights = self.first if which == 0 else self.second[choice]
        rounds = np.array([self.lengths[which]])
        return sa.Segment(np.array([weights]), rounds, self.order, self.block)  # type: ignore[arg-type]


PLANS = {
    "iid": Plan("iid", (3, 3)),
    "blocks": Plan("blocks", (4, 2), block=2),
    "a block that is cut short": Plan("blocks", (3, 3), block=2),
}


def courses(
    plan: Plan, arms: sa.ArmSet, known: Floats, final: Floats, z: Floats = Z
) -> Iterator[tuple[float, Floats, Floats]]:
    """Probability, estimates of both segments together, and slopes of the second, by course.

    known : (T, K) rewards when the second segment opens, nan for late ones; final : at the end
    """
    X = arms.coordinates
    for one, chance in _orders(plan.segment(0)):
        opening, _ = adjust_ledgers([ledger(0, plan.segment(0), one, 0, known, z)], past())
        seen = fill_in_missing(POLICY, arms, opening)
        scores = ips(X, *seen[0]) if seen else np.zeros((1, X.shape[1]))
        choice = int((scores @ X.T).argmax() == 0)
        begun = ledger(0, plan.segment(0), one, 0, final, z)
        first, slopes = adjust_ledgers([begun], past())
        assert slopes is not None
        for other, further in _orders(plan.segment(1, choice)):
            start = plan.lengths[0]
            ended = ledger(1, plan.segment(1, choice), other, start, final, z)
            second, _ = adjust_ledgers([ended], slopes)
            total = np.zeros((1, X.shape[1]))
            for piece in fill_in_missing(POLICY, arms, [*first, *second]):
                total += ips(X, *piece)
            beta = slopes.fit(second[0].moments)[0]
            yield chance * further, (total @ X.T)[0] / ROUNDS, beta


def check(found: list[tuple[float, Floats, Floats]], truth: Floats) -> None:
    chances = np.array([chance for chance, _, _ in found])
    estimates = np.array([values for _, values, _ in found])
    slopes = np.array([beta for _, _, beta in found])
    assert chances.sum() == pytest.approx(1.0, abs=1e-12)
    assert np.allclose(chances @ estimates, truth, rtol=0, atol=1e-12)
    assert estimates.std(axis=0).min() > 0.1  # single courses do scatter
    assert np.abs(slopes).max(axis=1).min() > 1e-4  # everywhere rewards were adjusted
    assert slopes.std(axis=0).max() > 1e-4  # by slopes that depend on the draws


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("arms", [ONE_HOT, LINEAR], ids=["one-hot", "linear"])
def test_adjusted_estimates_are_unbiased_whatever_the_drift(name: str, arms: sa.ArmSet) -> None:
    rewards = rewards_of(arms)
    found = list(courses(PLANS[name], arms, rewards, rewards))
    check(found, rewards.mean(axis=0))


@pytest.mark.parametrize("name", ["iid", "blocks"])
def test_a_late_reward_enters_slopes_but_not_the_allocation(name: str) -> None:
    final = rewards_of(ONE_HOT)
    known = final.copy()
    known[1] = np.nan
    found = list(courses(PLANS[name], ONE_HOT, known, final))
    check(found, final.mean(axis=0))


@pytest.mark.parametrize("name", ["iid", "blocks"])
def test_a_missing_reward_that_counts_as_zero(name: str) -> None:
    """Whether a reward comes may depend on anything, on the arm and on the covariates, too."""
    final = rewards_of(ONE_HOT)
    final[0, 1] = final[4, 2] = final[4, 0] = 0.0
    found = list(courses(PLANS[name], ONE_HOT, final, final))
    check(found, final.mean(axis=0))


def test_a_wild_unit_leaves_no_bias() -> None:
    """Slopes shrink in its segment, by what the covariates of all units there say."""
    z, rewards = Z.copy(), rewards_of(ONE_HOT)
    z[5, 1] = 90.0
    found = list(courses(PLANS["iid"], ONE_HOT, rewards, rewards, z))
    total = sum(chance * values for chance, values, _ in found)
    assert np.allclose(total, rewards.mean(axis=0), rtol=0, atol=1e-12)
    assert 0 < max(np.abs(beta).max() for _, _, beta in found) < 0.01


def _key(book: SegmentLedger) -> bytes:
    """Equal for courses that are the same: permutations of a block repeat."""
    assert book.moments is not None
    return book.stats.sums.tobytes() + book.moments.totals.tobytes() + book.moments.seen.tobytes()


def test_rewards_that_get_lost_by_chance() -> None:
    """Each arm is played twice in each segment, and one of the first arm's rewards is lost."""
    arms = sa.ArmSet.one_hot(["A", "B"])
    z = np.vstack([Z, [[1.0, 0.3, 0.7], [1.0, -1.1, 0.2]]])
    rewards = np.column_stack([z[:, 1] - np.arange(8), 0.5 * z[:, 1] + z[:, 2] ** 2])
    half = sa.Segment(np.array([[0.5, 0.5]]), np.array([4]), "blocks", block=4)
    orders = list(_orders(half))
    fixed, total, mass, courses_seen = past(arms=2), np.zeros(2), 0.0, []

    def parts(index: int) -> Iterator[tuple[SegmentLedger, float]]:
        start = 4 * index
        for (course, chance), loss in product(orders, range(2)):
            lost = [t for t in range(4) if course[t] == 0][loss]
            given = [
                np.nan if t == lost else float(rewards[start + t, course[t]]) for t in range(4)
            ]
            stats, moments = _sums(course, z[start : start + 4], given, arms=2)
            book = SegmentLedger(
                index, half, stats, used=4, assigned=np.array([2, 2]), moments=moments
            )
            yield book, chance / 2

    firsts: dict[bytes, tuple[SegmentLedger, float]] = {}
    for book, chance in parts(0):
        key = _key(book)
        firsts[key] = book, chance + firsts.get(key, (book, 0.0))[1]
    seconds: dict[bytes, tuple[SegmentLedger, float]] = {}
    for book, chance in parts(1):
        key = _key(book)
        seconds[key] = book, chance + seconds.get(key, (book, 0.0))[1]
    for begun, chance in firsts.values():
        first, slopes = adjust_ledgers([begun], fixed)
        for ended, further in seconds.values():
            second, _ = adjust_ledgers([ended], slopes)
            values = sum(
                ips(np.eye(2), *p)[0] for p in fill_in_missing(POLICY, arms, [*first, *second])
            )
            total += chance * further * values / 8
            mass += chance * further
            courses_seen.append(values)
    assert mass == pytest.approx(1.0, abs=1e-12)
    assert np.allclose(total, rewards.mean(axis=0), rtol=0, atol=1e-12)
    assert np.std(courses_seen, axis=0).min() > 0.1


def test_slopes_from_the_same_segment_would_be_biased() -> None:
    """Why slopes must come from earlier segments: fitted on their own, estimates lean."""
    rewards, plan = rewards_of(ONE_HOT), PLANS["iid"]
    total = np.zeros(3)
    for one, chance in _orders(plan.segment(0)):
        book = ledger(0, plan.segment(0), one, 0, rewards)
        _, slopes = adjust_ledgers([book], past())
        own, _ = adjust_ledgers([book], slopes)
        total += chance * ips(np.eye(3), *fill_in_missing(POLICY, ONE_HOT, own)[0])[0] / 3
    assert np.abs(total - rewards[:3].mean(axis=0)).max() > 1e-6
