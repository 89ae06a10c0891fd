"""Counts of many arms: as their sums say, alarms at their rate, culprits by name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from steadyarm.inference import LoggedSegment
from steadyarm.inference.health import attrition_test, srm_test
from tests.inference.large import LARGE, Log, played


def logged(log: Log, lose: np.ndarray | None = None, seed: int = 3) -> list[LoggedSegment]:
    """lose : arms of which every third reward is lost."""
    rng, out = np.random.default_rng(seed), []
    for segment, stats in log:
        kept = rng.binomial(stats.counts, 0.97)
        if lose is not None and segment.arms is not None:
            kept = np.where(np.isin(segment.arms, lose), rng.binomial(kept, 2 / 3), kept)
        out.append(LoggedSegment(segment, stats.counts, kept))
    return out


@pytest.mark.parametrize("columns", [120, 800], ids=["judged jointly", "one by one"])
def test_many_healthy_arms_raise_no_alarm(columns: int) -> None:
    p_values = []
    for seed in range(20):
        pieces = logged(played(LARGE, 6, columns, 6, order="iid", seed=seed, reference=False))
        p_values += [srm_test(LARGE.names, pieces).p_value]
        p_values += [attrition_test(LARGE.names, pieces).p_value]
    assert min(p_values) > 1e-4
    assert np.mean(np.array(p_values) < 0.1) < 0.2
    arms = np.unique([piece.segment.arms for piece in pieces])
    by_arm = (
        f"rows of {arms.size:,} variants, each by itself," in srm_test(LARGE.names, pieces).verdict
    )
    assert by_arm == (columns == 800)


def test_one_arm_that_loses_rows_is_found_among_many() -> None:
    log = played(LARGE, 6, 800, 200)
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
