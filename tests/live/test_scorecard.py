"""Who comes first, and where each variant stands, at every stage of a test."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.live.scorecard import Scorecard, compute_scorecard, standing_of
from tests.live.scorecards import played

ABC = sa.ArmSet.one_hot(["A", "B", "C", "D"])


@pytest.fixture(scope="module")
def running() -> Scorecard:
    return compute_scorecard(played(arms=ABC, budget=1200, visits=600))


def found(card: Scorecard, plausible: str = "ABCD", arm: int = 1, **given: Any) -> Scorecard:
    """The look with another verdict, in which the variants B, A, C and D have these estimates."""
    verdict = card.verdict
    assert verdict is not None
    estimates = np.array([0.2, 0.3, 0.1, 0.05])
    return replace(
        card,
        verdict=replace(
            verdict,
            arm=arm,
            name="ABCD"[arm],
            plausible=tuple(plausible),
            **{"estimates": estimates} | given,
        ),
    )


def ended(card: Scorecard, until: datetime | None = None) -> Scorecard:
    return replace(card, status=replace(card.status, state="stopped"), rewards_until=until)


def standings(card: Scorecard) -> list[str]:
    return [standing_of(card, k) for k in range(len(card.names))]


@pytest.mark.parametrize(
    ("plausible", "while_it_runs", "at_the_end"),
    [
        ("B", "out leads out out", "out best out out"),
        ("AB", "open leads out out", "maybe ahead out out"),
        ("ABCD", "open leads open open", "maybe ahead maybe maybe"),
    ],
)
def test_standings(running: Scorecard, plausible: str, while_it_runs: str, at_the_end: str) -> None:
    card = found(running, plausible)
    assert standings(card) == while_it_runs.split()
    assert standings(ended(card)) == at_the_end.split()
    waited_for = ended(card, datetime(2030, 1, 1, tzinfo=UTC))  # all visits, but not all rewards
    assert standings(waited_for) == while_it_runs.replace("open", "maybe").split()
