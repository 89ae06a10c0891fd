"""What is said of a verdict: the decision with its reason, and the headline of a scorecard."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields, replace
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
from steadyarm.live.verdict import Verdict, compare_with_control, make_decision

NAMES = ("control", "guest", "video")
Lifts = dict[str, tuple[float, float, float]]
"""Relative lifts with their limits."""


def verdict(
    lifts: Lifts,
    control: str | None = "control",
    plausible: tuple[str, ...] | None = None,
    names: tuple[str, ...] = NAMES,
    defined: bool = True,
    **given: Any,
) -> Verdict:
    """A verdict with these lifts, relative to a value of 0.1 of the control."""
    rows = np.array([lifts.get(name, (0.0, 0.0, 0.0)) for name in names])
    estimates = 0.1 * (1 + rows[:, 0])
    best, width = int(estimates.argmax()), np.full(len(names), 0.02)
    gaps = estimates[best] - estimates
    if control is not None:
        shares = rows if defined else np.full_like(rows, np.nan)
        given |= {
            "control": control,
            "lifts": 0.1 * rows[:, 0],
            "lift_intervals": 0.1 * rows[:, 1:],
        }
        given |= {"relative": shares[:, 0], "relative_intervals": shares[:, 1:]}
    return Verdict(
        arm=best,
        name=names[best],
        names=names,
        variants=len(names),
        estimates=estimates,
        standard_errors=width,
        intervals=np.column_stack([estimates - 0.1, estimates + 0.1]),
        gaps=gaps,
        gap_intervals=np.column_stack([gaps - width, gaps + width]),
        plausible=plausible or names,
        level=0.95,
        anytime=True,
        method="m",
        assumption="a",
        **{"rewards": 1000, "judged": 1000} | given,
    )


# Decisions


@dataclass(frozen=True)
class Rail:
    name: str = "refunds"
    broken: tuple[str, ...] = ()
    unsure: tuple[str, ...] = ()


BETTER: Lifts = {"guest": (0.0823, 0.0312, 0.1341), "video": (0.01, -0.05, 0.07)}
TOUCHING = BETTER | {"guest": (0.08, 0.0, 0.16)}
CLOSE: Lifts = {"guest": (0.04, -0.04, 0.12), "video": (-0.02, -0.09, 0.05)}
BEHIND = CLOSE | {"guest": (-0.01, -0.1, 0.1)}
TINY = CLOSE | {"guest": (0.0001, -0.08, 0.08)}
UNKNOWN = CLOSE | {"guest": (0.04, -np.inf, np.inf)}
WORSE: Lifts = {"guest": (-0.1, -0.15, -0.05), "video": (-0.2, -0.3, 0.0)}
WON = verdict(BETTER, control=None, plausible=("guest",))
OPEN = verdict(BETTER, control=None, plausible=("guest", "video"))
SICK = verdict(BETTER, unhealthy="Not healthy: do not decide yet. B got too few.")
CAREFUL = verdict(BETTER, caution="These intervals hold for a single analysis.")
RUNNING: dict[str, Any] = {"over": False, "spent": False}
BROKEN, UNSURE = Rail(broken=("guest",)), Rail(unsure=("guest",))


@pytest.mark.parametrize(
    ("found", "how", "word", "variant", "says"),
    [
        (verdict(BETTER), {}, "ship", "guest", "guest: it beats control by 8 % (3 to 13 %)."),
        (verdict(BETTER), RUNNING, "ship", "guest", "by 8 %"),  # limits hold at all times
        (verdict(BETTER, defined=False), {}, "ship", "guest", "by 0.00823 (0.00312 to 0.01341)."),
        (verdict(TOUCHING), {}, "unclear", None, "No clear winner"),
        (verdict(TOUCHING, plausible=("guest",)), {}, "ship", "guest", "8 % (0 to 16 %)"),
        (verdict(WORSE), {}, "keep", "control", "no other variant beats it"),
        (verdict(BEHIND, plausible=("control",)), {}, "keep", "control", "no other"),
        (verdict(WORSE, names=NAMES[:2]), {}, "keep", "control", "guest is not better"),
        (replace(OPEN, estimates=np.zeros(3)), {}, "unclear", None, "all rewards are 0"),
        (verdict(BEHIND), {}, "unclear", None, "No clear winner"),
        (verdict(CLOSE), {}, "unclear", None, "No clear winner; about 3,000 more visits"),
        (verdict(CLOSE), RUNNING, "running", None, "Too early to decide; about 3,000 more visits"),
        (verdict(CLOSE, waiting=3000), RUNNING, "running", None, "recent visits are not included"),
        (verdict(CLOSE), {"over": False}, "running", None, "rewards of the last visits may still"),
        (verdict(TINY), {}, "unclear", None, "No clear winner."),  # hundreds of budgets
        (verdict(UNKNOWN), {}, "unclear", None, "No clear winner."),
        (WON, {}, "ship", "guest", "it is the best, all others are ruled out"),
        (OPEN, {}, "unclear", None, "more visits"),
        (SICK, {}, "unhealthy", None, "Not healthy: do not decide."),
        (CAREFUL, {}, "unclear", None, ""),
        (CAREFUL, RUNNING, "running", None, ""),
        (verdict(BETTER), {"guardrails": [Rail(broken=("video",))]}, "ship", "guest", ""),
        (verdict(BETTER), {"guardrails": [BROKEN]}, "keep", "control", "but refunds got worse by"),
        (verdict(BETTER), {"guardrails": [UNSURE]}, "unclear", None, "refunds may have got worse"),
        (WON, {"guardrails": [BROKEN]}, "unclear", None, "Do not ship guest: refunds got worse"),
    ],
)
def test_a_decision_follows_from_the_verdict(
    found: Verdict, how: dict[str, Any], word: str, variant: str | None, says: str
) -> None:
    usual: dict[str, Any] = {"budget": 2000, "over": True, "spent": True}
    decision = make_decision(found, "maximize", **usual | how)
    assert (decision.word, decision.variant) == (word, variant)
    assert says in decision.text
    # The interval reaches 0.08 below a lift of 0.04: (2² - 1) times as many visits again.
    assert (decision.more == 3000) == ("3,000 more visits" in decision.text)
    assert (decision.more is not None) == ("more visits" in decision.text)


def test_without_a_control_nothing_is_compared_with_it() -> None:
    assert compare_with_control(WON, "maximize") is None
    assert compare_with_control(verdict(BETTER), "maximize") is not None


# Headlines

SIX = ("A", "B", "C", "D", "E", "F")
STATUS = Status(
    "test", "running", datetime(2026, 11, 1, tzinfo=UTC), 10_000, (1000,) * 6, (990,) * 6, 9, 8
)
STOPPED = replace(STATUS, state="stopped")
SPENT = replace(STATUS, assigned=(2000,) * 5 + (0,))
NONE = replace(STATUS, assigned=(0,) * 6)
SICK_REPORT = HealthReport((Finding("assignments", "fail", 1e-9, "B got too few.", "Find why."),))
UP, EVEN, DOWN = (0.08, 0.03, 0.13), (0.005, -0.05, 0.06), (-0.125, -0.2, -0.05)
LESS, HIDDEN = (-0.015, -0.05, 0.02), (0.0, -np.inf, np.inf)


def scorecard(status: Status = STATUS, **given: Any) -> Scorecard:
    settings = Settings(sa.ArmSet.one_hot(SIX), sa.Steady(), status.budget, 1, missing="drop")
    values: dict[str, Any] = {f.name: None for f in fields(Scorecard) if f.default is MISSING}
    values |= {"settings": settings, "status": status, "verdict": still("AB")}
    values |= {"policy_ended": False, "by_day": True, "obstacle": ""}
    return Scorecard(**values | given)


def still(plausible: str) -> Verdict:
    """A verdict in which A leads and these can still win."""
    return verdict({}, None, tuple(plausible), SIX)


def against(*lifts: tuple[float, float, float]) -> Verdict:
    """A verdict on A to F with B as the control, and these lifts of the others."""
    a, *others = lifts
    return verdict(dict(zip("ACDEF", (a, *others), strict=True)), "B", SIX, SIX)


def unknown() -> Verdict:
    """Nothing is known yet."""
    found = against(*[HIDDEN] * 5)
    found.intervals[:] = found.gap_intervals[:] = (-np.inf, np.inf)
    return found


@pytest.mark.parametrize(
    ("status", "found", "says"),
    [
        (STATUS, still("A"), "A leads, and the other 5 are ruled out already."),
        (STATUS, still("AB"), "A leads; B can still win."),
        (STATUS, still("ABCDE"), "A leads; 5 of 6 variants can still win."),
        (STATUS, still("ABCDEF"), "A leads, but it is too early to rule out any other."),
        (STOPPED, still("A"), "A is the best; the other 5 are ruled out."),
        (STOPPED, still("AB"), "A has the best estimate; B may be as good."),
        (SPENT, still("A"), "A is the best; the other 5 are ruled out."),
        (SPENT, against(UP, EVEN, EVEN, EVEN, EVEN), "the other four do not differ clearly"),
        (STATUS, against(UP, EVEN, EVEN, EVEN, EVEN), "A beats B by 8 % (3 to 13 %);"),
        (STATUS, against(UP, UP, EVEN, DOWN, DOWN), "C beats it, too; E and F are worse; D"),
        (STATUS, against(DOWN, DOWN, DOWN, DOWN, DOWN), "no other variant beats B."),
        (STATUS, against(EVEN, LESS, DOWN, DOWN, DOWN), "ahead of B by 0.5 % (-5 to 6 %), which"),
        (SPENT, against(LESS, DOWN, DOWN, DOWN, DOWN), "B has the best estimate; 4 variants"),
        (STATUS, unknown(), "but it is too early to tell which is best."),
        (SPENT, unknown(), "that is too little to tell which is best."),
    ],
)
def test_a_headline_says_how_far_the_test_is_and_who_is_ahead(
    status: Status, found: Verdict, says: str
) -> None:
    begins = "Stopped after" if status is STOPPED else "After"
    visits = "all" if status is SPENT else "6,000 of"
    said = headline(scorecard(status, verdict=found))
    assert said.startswith(f"{begins} {visits} 10,000 visits, ")
    assert says in said


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (replace(NONE, assigned=(2, 1, 0, 0, 0, 0)), "After 3 of 10,000 visits: no reward"),
        (NONE, "Waiting for the first of 10,000 visits to 6 variants."),
        (replace(NONE, state="stopped"), "Ended before the first visit."),
        (replace(NONE, state="draft"), "Not started yet: 6 variants, 10,000 visits."),
    ],
)
def test_before_the_first_reward(status: Status, says: str) -> None:
    said = headline(scorecard(status, verdict=None, obstacle="no reward has been reported yet."))
    assert said.startswith(says)


def test_a_failing_check_is_said_and_nobody_leads_before_it_is_explained() -> None:
    said = headline(scorecard(health=SICK_REPORT))
    assert said.endswith("not healthy, do not decide yet. B got too few. Find why.")
    assert "leads" not in said
    warned = HealthReport((Finding("assignments", "warn", 1e-3, "", ""),))
    assert headline(scorecard(health=warned)) == headline(scorecard())


def test_a_scorecard_without_a_verdict_decides_nothing() -> None:
    until = datetime(2026, 11, 15, 14, tzinfo=UTC)
    assert scorecard(verdict=None).decision.text == "Too early to decide."
    waiting = scorecard(SPENT, verdict=None, rewards_until=until).decision
    assert (waiting.word, "too early" in waiting.text.lower()) == ("running", False)
    assert scorecard(SPENT, verdict=None).decision.word == "unclear"
    assert scorecard(verdict=None, health=SICK_REPORT).decision.word == "unhealthy"
