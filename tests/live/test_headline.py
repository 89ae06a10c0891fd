"""Plain sentences for every stage of a test."""

from dataclasses import MISSING, fields, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.inference import Finding, HealthReport
from steadyarm.live.headline import headline
from steadyarm.live.results import Status
from steadyarm.live.scorecard import Scorecard
from steadyarm.live.settings import Settings
from steadyarm.live.verdict import Verdict

NAMES = ("A", "B", "C", "D", "E", "F")
STATUS = Status(
    "test", "running", datetime(2026, 11, 1, tzinfo=UTC), 10_000, (1000,) * 6, (990,) * 6, 9, 8
)


def verdict(*plausible: str) -> Verdict:
    K = len(NAMES)
    zeros, both = np.zeros(K), np.zeros((K, 2))
    return Verdict(
        arm=0,
        name="A",
        names=NAMES,
        variants=K,
        estimates=zeros,
        standard_errors=zeros,
        intervals=both,
        gaps=zeros,
        gap_intervals=both,
        plausible=plausible,
        level=0.95,
        anytime=True,
        method="m",
        assumption="a",
        rewards=5000,
        missing=10,
    )


def said_of(status: Status = STATUS, **given: Any) -> str:
    return headline(scorecard(status, **given))


def scorecard(status: Status, **given: Any) -> Scorecard:
    settings = Settings(sa.ArmSet.one_hot(NAMES), sa.Steady(), status.budget, 1, missing="drop")
    values: dict[str, Any] = {f.name: None for f in fields(Scorecard) if f.default is MISSING}
    values |= {"settings": settings, "status": status, "verdict": verdict("A", "B")}
    values |= {"policy_ended": False, "by_day": True, "obstacle": ""}
    return Scorecard(**values | given)


@pytest.mark.parametrize(
    ("plausible", "state", "assigned", "far", "said"),
    [
        ("A", "running", 1000, "After 6,000", "A leads, and the other 5 are ruled out already."),
        ("AB", "running", 1000, "After 6,000", "A leads; B can still win."),
        ("ABCDE", "running", 1000, "After 6,000", "A leads; 5 of 6 variants can still win."),
        (
            "ABCDEF",
            "running",
            1000,
            "After 6,000",
            "A leads, but it is too early to rule out any other.",
        ),
        ("A", "stopped", 1000, "Stopped after 6,000", "A is the best; the other 5 are ruled out."),
        (
            "AB",
            "archived",
            1000,
            "Stopped after 6,000",
            "A has the best estimate; B may be as good.",
        ),
        ("A", "running", 2000, "After all", "A is the best; the other 5 are ruled out."),
    ],
)
def test_how_sure(plausible: str, state: Any, assigned: int, far: str, said: str) -> None:
    status = replace(STATUS, state=state, assigned=(assigned,) * 5 + (max(assigned, 1000),))
    status = replace(status, budget=10_000)
    if assigned == 2000:
        status = replace(status, assigned=(2000,) * 5 + (0,))
    of = "" if assigned == 2000 else " of"
    assert said_of(status, verdict=verdict(*plausible)) == f"{far}{of} 10,000 visits, {said}"


def test_before_the_first_reward() -> None:
    few = replace(STATUS, assigned=(2, 1, 0, 0, 0, 0), rewarded=(0,) * 6)
    said = said_of(few, verdict=None, obstacle="no reward has been reported yet.")
    assert said == "After 3 of 10,000 visits: no reward has been reported yet."
    none = replace(STATUS, assigned=(0,) * 6)
    assert said_of(none, verdict=None) == "Waiting for the first of 10,000 visits to 6 variants."
    assert said_of(replace(none, state="stopped")) == "Ended before the first visit."
    assert said_of(replace(none, state="draft")) == "Not started yet: 6 variants, 10,000 visits."


def test_a_failing_check_is_said_of() -> None:
    bad = HealthReport((Finding("assignments", "fail", 1e-9, "B got too few.", "Find why."),))
    assert said_of(health=bad).endswith("not healthy, do not decide yet. B got too few. Find why.")
    assert "leads" not in said_of(health=bad)  # nobody does before it is explained
    fine = HealthReport((Finding("assignments", "warn", 1e-3, "", ""),))
    assert said_of(health=fine) == said_of()


def against(lifts: list[tuple[float, float]], **given: Any) -> Verdict:
    """A verdict on A to F with B as the control, and these limits of relative lifts."""
    ends = np.array(lifts)
    middle = np.array([np.mean(pair) if np.isfinite(pair).all() else 0.0 for pair in ends])
    estimates = 0.1 * (1 + middle)
    found = verdict(*NAMES)
    best = int(np.nanargmax(estimates))
    return replace(
        found,
        arm=best,
        name=NAMES[best],
        estimates=estimates,
        control="B",
        lifts=0.1 * middle,
        lift_intervals=0.1 * ends,
        relative=middle,
        relative_intervals=ends,
        **given,
    )


UP, EVEN, DOWN = (0.03, 0.13), (-0.05, 0.06), (-0.2, -0.05)


@pytest.mark.parametrize(
    ("lifts", "said"),
    [
        (
            [UP, (0, 0), EVEN, EVEN, EVEN, EVEN],
            "A beats B by 8 % (3 to 13 %); the other four do not differ clearly from B.",
        ),
        (
            [UP, (0, 0), (0.02, 0.12), EVEN, DOWN, DOWN],
            "A beats B by 8 % (3 to 13 %); C beats it, too; E and F are worse; D does not differ "
            "clearly from B.",
        ),
        ([DOWN, (0, 0), DOWN, DOWN, DOWN, DOWN], "no other variant beats B."),
        (
            [EVEN, (0, 0), (-0.05, 0.02), DOWN, DOWN, DOWN],
            "A is ahead of B by 0.5 % (-5 to 6 %), which is not clear; D, E and F are worse; "
            "C does not differ clearly from B.",
        ),
        (
            [(-0.05, 0.02), (0, 0), DOWN, DOWN, DOWN, DOWN],
            "B has the best estimate; 4 variants are worse; A does not differ clearly from B.",
        ),
    ],
)
def test_with_a_control_all_are_compared_with_it(
    lifts: list[tuple[float, float]], said: str
) -> None:
    spent = replace(STATUS, assigned=(2000,) * 5 + (0,))
    assert said_of(spent, verdict=against(lifts)) == f"After all 10,000 visits, {said}"
    assert said_of(verdict=against(lifts)) == f"After 6,000 of 10,000 visits, {said}"


def test_a_lift_that_is_not_known_yet_is_not_said() -> None:
    unknown = against([(-np.inf, np.inf), (0, 0)] + [(-np.inf, np.inf)] * 4)
    unknown.intervals[:] = (-np.inf, np.inf)
    unknown.gap_intervals[:] = (-np.inf, np.inf)
    assert said_of(verdict=unknown).endswith("but it is too early to tell which is best.")
    spent = replace(STATUS, assigned=(2000,) * 5 + (0,))
    assert said_of(spent, verdict=unknown).endswith("that is too little to tell which is best.")


def test_a_scorecard_without_a_verdict_decides_nothing() -> None:
    spent = replace(STATUS, assigned=(2000,) * 5 + (0,))
    until = datetime(2026, 11, 15, 14, tzinfo=UTC)
    assert scorecard(STATUS, verdict=None).decision.text == "Too early to decide."
    waiting = scorecard(spent, verdict=None, rewards_until=until).decision
    assert (waiting.word, "too early" in waiting.text.lower()) == ("running", False)
    assert scorecard(spent, verdict=None).decision.word == "unclear"
    bad = HealthReport((Finding("assignments", "fail", 1e-9, "B got too few.", "Find why."),))
    assert scorecard(STATUS, verdict=None, health=bad).decision.word == "unhealthy"
