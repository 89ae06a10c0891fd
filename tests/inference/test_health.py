"""Attrition and the health report: alarms at their rate, sentences that say what to do."""

from __future__ import annotations

import json

import numpy as np
import pytest

from steadyarm.errors import InvalidInputError
from steadyarm.inference.health import (
    Balance,
    LoggedSegment,
    attrition_balance,
    attrition_test,
    health_report,
    srm_test,
    standardise,
    surprise,
    total_of,
)
from steadyarm.segments import Segment
from tests.inference.logs import ABC, logged, most_alarms


def rewarded(assigned: list[int], missing: list[int]) -> LoggedSegment:
    counts = np.array([assigned])
    segment = Segment(counts / counts.sum(), counts.sum(axis=1))
    return LoggedSegment(segment, counts, rewarded=counts - np.array([missing]))


def test_attrition_of_one_segment_is_the_chi_squared_of_the_table() -> None:
    found = attrition_test(["A", "B"], [rewarded([500, 300], [50, 60])])
    q = 5 / 8
    z = (50 - 110 * q) / np.sqrt(110 * 690 / 799 * q * (1 - q))
    assert found.statistic == pytest.approx(z**2)
    assert found.culprit == "B"


def test_attrition_that_moves_with_the_allocation_is_no_alarm() -> None:
    """A gets most rows while many rewards are missing; within segments arms are alike."""
    pieces = [rewarded([900, 100], [180, 20]), rewarded([100, 900], [1, 9])]
    assert attrition_test(["A", "B"], pieces).p_value == 1
    together = rewarded([1000, 1000], [181, 29])
    assert attrition_test(["A", "B"], [together]).p_value < 1e-6


@pytest.mark.parametrize("rate", [0.002, 0.05])
def test_attrition_alarms_come_at_their_rate(rate: float) -> None:
    tests, rng = 10_000, np.random.default_rng(8)
    pieces = []
    for share in (0.3, 0.8):
        weights = np.tile([share, (1 - share) * 0.7, (1 - share) * 0.3], (tests, 1))
        counts = rng.multinomial(700, weights)
        gone = rng.binomial(counts, rate * (1 + 3 * share))
        segment = Segment(weights, np.full(tests, 700))
        pieces.append(LoggedSegment(segment, counts, rewarded=counts - gone))
    p = surprise(total_of(attrition_balance(pieces)))[0]
    for level in (0.05, 0.01, 0.001):
        assert (p < level).sum() <= most_alarms(level, tests)


def test_a_count_that_may_not_vary_but_is_off_has_probability_zero() -> None:
    one = np.ones((1, 2))
    balance = Balance(one, 2 * one, 0 * one, 0 * one, np.zeros(1), np.zeros((1, 2, 2)))
    assert surprise(balance)[0] == 0
    assert standardise(-one, 0 * one).tolist() == [[-np.inf, -np.inf]]


def test_the_report_of_a_healthy_test() -> None:
    report = health_report(ABC, [logged([0.5, 0.25, 0.25], [50, 25, 25])])
    assert report.status == "ok"
    assert [f.name for f in report.findings] == ["assignments", "lost rows"]
    assert str(report).startswith("Health: ok\n  ok   assignments: The rows per variant fit")


def test_the_report_of_a_sick_test_says_what_to_do() -> None:
    segment = Segment(np.array([[0.5, 0.5]]), np.array([2000]))
    piece = LoggedSegment(segment, np.array([[1000, 850]]), rewarded=np.array([[1000, 700]]))
    report = health_report(["old", "new"], [piece])
    assert [f.status for f in report.findings] == ["fail", "warn", "fail"]
    assert report.status == "fail"
    assert all(f.advice for f in report.findings)
    assert "Find out why rewards of new are lost" in str(report)
    assert json.loads(json.dumps(report.to_dict(), allow_nan=False))["status"] == "fail"


def test_errors_say_what_is_wrong() -> None:
    with pytest.raises(InvalidInputError, match="no segment"):
        srm_test(ABC, [])
    with pytest.raises(InvalidInputError, match="do not sum to one"):
        srm_test(["A", "B"], [logged([0.5, 0.6], [5, 5])])
