"""Sessions with covariates: decisions, verdicts, JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import steadyarm as sa
from steadyarm.estimators import ips

ARMS = sa.ArmSet.one_hot(["A", "B", "C"])
BUDGET = 1200


def new(policy: Any = None, **given: Any) -> sa.Session:
    values: dict[str, Any] = {"seed": 5, "covariates": ["spend", "age"]} | given
    return sa.Session(policy or sa.Steady(), ARMS, BUDGET, **values)


def play(
    session: sa.Session,
    rounds: int = BUDGET,
    late: int = 0,
    told: bool = True,
    first: int = 0,
) -> list[tuple[int, float, float, float]]:
    """Rounds of a world in which spend explains half of the variance, age nothing, with a trend.

    late : rounds by which rewards are late; first : round that it goes on from
    Returns arm, spend, age and reward of each.
    """
    rows: list[tuple[int, float, float, float]] = []
    queue: list[tuple[sa.Assignment, float]] = []
    for t in range(first, first + rounds):
        rng = np.random.default_rng([17, t])
        spend, age, noise = rng.normal(size=3)
        a = session.ask({"spend": spend, "age": 40 + 9 * age}) if told else session.ask()
        reward = 0.1 * a.arm + t / BUDGET + spend + noise
        rows.append((a.arm, spend, 40 + 9 * age, reward))
        queue.append((a, reward))
        if len(queue) > late:
            session.tell(*queue.pop(0))
    for shown, reward in queue:
        session.tell(shown, reward)
    return rows


def by_hand(session: sa.Session, rows: Sequence[tuple[int, float, float, float]]) -> Any:
    """Estimates of the mean from single rows: least squares on all earlier segments, by numpy."""
    pieces, total, start = session.results().judged(), np.zeros(3), 0
    past_z: list[Any] = []
    past_r: list[Any] = []
    freedom = 0
    for piece in pieces:
        part = np.array(rows[start : start + piece.used])
        start += piece.used
        arms, z, r = part[:, 0].astype(int), part[:, 1:3], part[:, 3]
        beta = np.zeros(2)
        if freedom >= 20:
            Z, R = np.concatenate(past_z), np.concatenate(past_r)
            beta = np.linalg.lstsq(Z, R, rcond=None)[0]
            explained = ((Z @ beta) ** 2).sum()
            rest = ((R - Z @ beta) ** 2).sum() / (freedom - 2)
            beta = beta * max(0.0, 1 - 2 * rest / explained)
        seen = r - (z - z.mean(axis=0)) @ beta
        sums = np.bincount(arms, seen, minlength=3).astype(np.float64)
        stats = sa.SegmentStats(np.bincount(arms, minlength=3)[None], sums[None])
        total += ips(np.eye(3), piece.segment, stats)[0]
        for arm in range(3):
            own = arms == arm
            if own.sum() > 1:
                past_z.append(z[own] - z[own].mean(axis=0))
                past_r.append(r[own] - r[own].mean())
                freedom += int(own.sum()) - 1
    return total / start


def test_units_without_covariates_get_the_decisions_of_a_test_without() -> None:
    with_, without = new(), new(covariates=())
    assert play(with_, told=False) == play(without, told=False)
    ours, theirs = with_.recommend(), without.recommend()
    assert np.array_equal(ours.estimates, theirs.estimates)
    assert ours.variance_kept == 1.0


def test_decisions_rest_on_adjusted_rewards() -> None:
    with_, without = new(), new(covariates=())
    play(with_)
    play(without, told=False)
    shares = [[p.segment.weights[0].tolist() for p in s.results().pieces] for s in (with_, without)]
    assert shares[0][0] == shares[1][0]
    assert shares[0] != shares[1]


def test_verdicts_use_late_rewards_of_earlier_segments() -> None:
    """Slopes of a verdict rest on all earlier segments as they stand now, whenever rewards came."""
    late = new()
    rows = play(late, late=150)
    assert any(piece.carried_on for piece in late.results().pieces)
    assert np.allclose(late.recommend().estimates, by_hand(late, rows), rtol=1e-9)
