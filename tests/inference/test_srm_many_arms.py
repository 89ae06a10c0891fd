"""Counts of many arms: as their sums say, alarms at their rate, culprits by name."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.inference import (
    LoggedSegment,
    health_report,
)
from steadyarm.inference.srm import (
    assignment_balance,
    attrition_balance,
    attrition_test,
    common_features,
    each_by_itself,
    srm_test,
    total_of,
)
from tests.inference.large import LARGE, SMALL, Log, played


def logged(log: Log, lose: np.ndarray | None = None, seed: int = 3) -> list[LoggedSegment]:
    """lose : arms of which every third reward is lost."""
    rng, out = np.random.default_rng(seed), []
    for segment, stats in log:
        kept = rng.binomial(stats.counts, 0.97)
        if lose is not None and segment.arms is not None:
            kept = np.where(np.isin(segment.arms, lose), rng.binomial(kept, 2 / 3), kept)
        out.append(LoggedSegment(segment, stats.counts, kept))
    return out


def together(arms: sa.ArmSet, pieces: list[LoggedSegment]) -> list[LoggedSegment]:
    def spread(values: Any, at: Any) -> Any:
        out = np.zeros((1, arms.size), dtype=values.dtype)
        out[:, at] = values
        return out

    return [
        LoggedSegment(
            replace(p.segment, weights=spread(p.segment.weights, p.segment.arms), arms=None),
            spread(p.assigned, p.segment.arms),
            spread(p.rewarded, p.segment.arms),
        )
        for p in pieces
    ]


def test_groups_vary_as_the_sums_of_their_arms() -> None:
    pieces = logged(played(SMALL, blocks=3))
    whole = together(SMALL, pieces)
    groupings = common_features(SMALL.names, np.arange(SMALL.size))
    every = [each_by_itself(SMALL.size), *groupings]
    for balance in (
        total_of(assignment_balance(piece, every) for piece in whole),
        total_of(attrition_balance(whole, every)),
    ):
        covariance, *grouped = (found[0] for found in balance.covariances)
        np.testing.assert_allclose(balance.variance[0], np.diag(covariance), atol=1e-9)
        for grouping, found in zip(groupings, grouped, strict=True):
            M = np.equal.outer(np.arange(len(grouping.groups)), grouping.labels).astype(float)
            np.testing.assert_allclose(found, M @ covariance @ M.T, atol=1e-8)


def test_few_columns_of_a_large_set_are_tested_jointly() -> None:
    pieces = logged(played(SMALL))
    for test in (srm_test, attrition_test):
        few, every = test(SMALL.names, pieces), test(SMALL.names, together(SMALL, pieces))
        assert few.p_value == pytest.approx(every.p_value)
        assert few.verdict == every.verdict
    assert health_report(SMALL.names, pieces).status != "fail"


def test_many_healthy_arms_raise_no_alarm() -> None:
    p_values = []
    for seed in range(20):
        pieces = logged(played(LARGE, 6, 120, 6, order="iid", seed=seed, reference=False))
        p_values += [srm_test(LARGE.names, pieces).p_value]
        p_values += [attrition_test(LARGE.names, pieces).p_value]
    assert min(p_values) > 1e-4
    assert np.mean(np.array(p_values) < 0.1) < 0.2
    arms = np.unique([piece.segment.arms for piece in pieces])
    assert f"{arms.size} variants" in srm_test(LARGE.names, pieces).verdict


def test_a_level_that_loses_rewards_is_found_among_many_arms() -> None:
    log = played(LARGE, 6, 150, 12)
    loses = np.flatnonzero(np.arange(LARGE.size) % 2 == 1)  # s12=on
    found = attrition_test(LARGE.names, logged(log, loses))
    assert found.p_value < 1e-6
    assert found.culprit == "variants with s12=on"
    assert found.verdict.startswith("Variants with s12=on miss ")
    report = health_report(LARGE.names, logged(log, loses))
    assert report.status == "fail"
    assert "Find why rewards of variants with s12=on are lost;" in str(report)
    assert len(str(report)) < 3000


def test_a_level_that_loses_rows_is_advised_on_in_the_plural() -> None:
    log = played(LARGE, 6, 150, 12)
    hurt = []
    for piece in logged(log):
        assert piece.segment.arms is not None
        assigned = np.where(piece.segment.arms % 2 == 1, piece.assigned // 2, piece.assigned)
        hurt.append(replace(piece, assigned=assigned, rewarded=assigned))
    said = str(health_report(LARGE.names, hurt))
    assert re.search(r"serving and logging of variants with s12=(on|off) with the others", said)
    assert "variants with s12=on is" not in said


def test_one_arm_that_loses_rows_is_found_among_many() -> None:
    log = played(LARGE, 6, 150, 200)
    pieces = logged(log)
    victim = int(pieces[0].segment.arms[7])  # type: ignore[index]  # it has arms
    hurt = []
    for piece in pieces:
        here = piece.segment.arms == victim
        assert piece.rewarded is not None
        hurt.append(
            replace(
                piece,
                assigned=np.where(here, piece.assigned // 2, piece.assigned),
                rewarded=np.where(here, piece.rewarded // 2, piece.rewarded),
            )
        )
    found = srm_test(LARGE.names, hurt)
    assert found.culprit == LARGE.names[victim]
    assert found.p_value < 1e-6
    assert len(found.names) == 20
    assert srm_test(LARGE.names, pieces).p_value > 1e-3


def test_groups_of_bundles_and_of_plain_names() -> None:
    bundles = sa.ArmSet.bundles([f"i{k}" for k in range(20)], size=5)
    arms = np.arange(0, bundles.size, 37)
    *items, near = common_features(bundles.names, arms)
    assert len(items) == 20
    third = items[3]
    truth = ["i3" in bundles.names[k].split(" + ") for k in arms.tolist()]
    np.testing.assert_array_equal(third.labels.astype(bool), truth)
    assert len(near.groups) == 50
    (plain,) = common_features([f"v{k}" for k in range(300)], np.arange(300))
    assert plain.groups[0] == "the 6 variants from v0 to v5"
    assert (np.bincount(plain.labels) == 6).all()
