"""What to do, in a word and a sentence; and verdicts of tests that have a control."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.live.verdict import Decision, Verdict, compare_with_control, make_decision

NAMES = ("today", "guest", "video")


def verdict(
    lifts: dict[str, tuple[float, float, float]],
    control: str | None = "today",
    value: float = 0.1,
    plausible: tuple[str, ...] = NAMES,
    minimize: bool = False,
    defined: bool = True,
    **given: Any,
) -> Verdict:
    """A verdict with these lifts and their limits, relative to the value of the control."""
    rows = np.array([lifts.get(name, (0.0, 0.0, 0.0)) for name in NAMES])
    apart = rows * value
    sign = -1.0 if minimize else 1.0
    estimates = value + apart[:, 0]
    best = int(np.argmax(sign * estimates))
    gaps = sign * (estimates[best] - estimates)
    width = np.full(3, 0.02)
    shares = rows if defined else np.full_like(rows, np.nan)
    values: dict[str, Any] = {
        "rewards": 1000,
        "judged": 1000,
        "names": NAMES,
        "variants": 3,
    } | given
    if control is not None:
        ends = np.sort(apart[:, 1:], axis=1)
        values |= {"control": control, "lifts": apart[:, 0], "lift_intervals": ends}
        values |= {"relative": shares[:, 0], "relative_intervals": shares[:, 1:]}
    return Verdict(
        arm=best,
        name=NAMES[best],
        estimates=estimates,
        standard_errors=width,
        intervals=np.column_stack([estimates - 0.1, estimates + 0.1]),
        gaps=gaps,
        gap_intervals=np.column_stack([gaps - width, gaps + width]),
        plausible=plausible,
        level=0.95,
        anytime=True,
        method="m",
        assumption="a",
        **values,
    )


def decided(found: Verdict, direction: Any = "maximize", **given: Any) -> Decision:
    usual: dict[str, Any] = {"budget": 2000, "over": True, "spent": True}
    return make_decision(found, direction, **usual | given)


BETTER = {"guest": (0.0823, 0.0312, 0.1341), "video": (0.01, -0.05, 0.07)}
CLOSE = {"guest": (0.04, -0.04, 0.12), "video": (-0.02, -0.09, 0.05)}
WORSE = {"guest": (-0.1, -0.15, -0.05), "video": (-0.2, -0.3, 0.0)}


def test_the_recommended_variant_is_shipped_if_it_beats_the_control() -> None:
    said = "Ship guest: it beats today by 8 % (3 to 13 %)."
    ship = Decision("ship", said, "guest")
    assert decided(verdict(BETTER)) == ship
    assert decided(verdict(BETTER), over=False, spent=False) == ship  # limits hold at all times
    absolute = decided(verdict(BETTER, defined=False))
    assert absolute.text == "Ship guest: it beats today by 0.00823 (0.00312 to 0.01341)."


def test_the_control_is_kept_if_no_other_is_better() -> None:
    assert decided(verdict(WORSE)) == Decision(
        "keep", "Keep today: no other variant beats it.", "today"
    )
    sure = decided(verdict(CLOSE | {"guest": (-0.01, -0.1, 0.1)}, plausible=("today",)))
    assert sure.word == "keep"
    assert decided(verdict(CLOSE | {"guest": (-0.01, -0.1, 0.1)})).word == "unclear"


def test_what_is_not_clear_says_how_much_more_would_tell() -> None:
    # the interval reaches 0.08 below a lift of 0.04: (2² - 1) times as many visits again
    assert decided(verdict(CLOSE)) == Decision(
        "unclear", "No clear winner; about 3,000 more visits are needed.", None, 3000
    )
    running = decided(verdict(CLOSE), over=False, spent=False)
    assert running.word == "running"
    assert running.text == "Too early to decide; about 3,000 more visits are needed."
    newer = replace(verdict(CLOSE), waiting=3000)
    assert decided(newer, over=False, spent=False) == Decision(
        "running", "Too early to decide; recent visits are not included yet."
    )
    waiting = decided(verdict(CLOSE), over=False)
    assert waiting.text == "Not decided yet: rewards of the last visits may still come."
    tiny = CLOSE | {"guest": (0.0001, -0.08, 0.08)}  # hundreds of budgets
    assert decided(verdict(tiny)) == Decision("unclear", "No clear winner.")
    unknown = CLOSE | {"guest": (0.04, -np.inf, np.inf)}
    assert decided(verdict(unknown)).more is None


def test_without_a_control_the_winner_is_shipped() -> None:
    found = verdict(BETTER, control=None, plausible=("guest",))
    assert decided(found) == Decision(
        "ship", "Ship guest: it is the best, all others are ruled out.", "guest"
    )
    open_ = decided(verdict(BETTER, control=None, plausible=("guest", "video")))
    assert open_.word == "unclear"
    assert open_.more is not None
    assert compare_with_control(found, "maximize") is None


def test_a_declared_winner_beats_the_control() -> None:
    touching = BETTER | {"guest": (0.08, 0.0, 0.16)}
    assert decided(verdict(touching)).word == "unclear"
    ship = decided(verdict(touching, plausible=("guest",)))
    assert ship.text == "Ship guest: it beats today by 8 % (0 to 16 %)."


def test_nothing_is_decided_from_an_unhealthy_test() -> None:
    found = verdict(BETTER, unhealthy="Not healthy: do not decide yet. B got too few.")
    assert decided(found) == Decision("unhealthy", "Not healthy: do not decide.")
    careful = verdict(BETTER, caution="These intervals hold for a single analysis.")
    assert decided(careful).word == "unclear"
    assert decided(careful, over=False, spent=False).word == "running"


@dataclass(frozen=True)
class Rail:
    name: str
    broken: tuple[str, ...] = ()
    unsure: tuple[str, ...] = ()


def test_guardrails_have_a_say() -> None:
    fine = Rail("refunds", broken=("video",))
    assert decided(verdict(BETTER), guardrails=[fine]).word == "ship"
    broken = decided(verdict(BETTER), guardrails=[Rail("refunds", broken=("guest",))])
    assert (broken.word, broken.variant) == ("keep", "today")
    assert broken.text == (
        "Keep today, not guest: it beats today by 8 % (3 to 13 %), but refunds got worse by more "
        "than the margin."
    )
    unsure = decided(verdict(BETTER), guardrails=[Rail("refunds", unsure=("guest",))])
    assert unsure.word == "unclear"
    assert "refunds may have got worse" in unsure.text
    alone = verdict(BETTER, control=None, plausible=("guest",))
    lone = decided(alone, guardrails=[Rail("refunds", broken=("guest",))])
    assert lone.text == "Do not ship guest: refunds got worse by more than the margin."


# Verdicts of sessions


def session(
    control: Any = "today", rounds: int = 3000, budget: int = 3000, **given: Any
) -> sa.Session:
    usual: dict[str, Any] = {"policy": sa.Steady(), "seed": 1} | given
    live = sa.Session(arms=sa.ArmSet.one_hot(list(NAMES)), budget=budget, control=control, **usual)
    rng = np.random.default_rng(1)
    rates = {"today": 0.3, "guest": 0.4, "video": 0.3}
    for _ in range(rounds):
        try:
            shown = live.ask()
        except sa.BudgetSpentError:  # policies of epochs may end before
            break
        live.tell(shown, float(rng.random() < rates[shown.name]))
    return live


def test_a_verdict_says_how_variants_differ_from_the_control() -> None:
    found = session().recommend()
    assert found.control == "today"
    np.testing.assert_allclose(found.lifts, found.estimates - found.estimates[0], atol=1e-12)
    guest, today = found.of("guest"), found.of("today")
    assert guest.lift == pytest.approx(0.1, abs=0.04)
    assert guest.relative == pytest.approx(guest.lift / today.estimate)
    assert guest.lift_low > 0
    assert guest.relative_low > 0
    assert (today.lift, today.lift_low, today.lift_high) == (0.0, 0.0, 0.0)
    assert found.decision.word == "ship"
    assert found.decision.variant == "guest"
    assert f"Against today: +{guest.relative:.0%}".replace("%", " %") in str(found)


def test_interim_lifts_are_wider_and_spend_a_fifth() -> None:
    live = session(rounds=1500)
    usual, whole = live.recommend(), live.recommend(anytime=True)
    assert usual.anytime
    width = np.ptp(usual.lift_intervals, axis=1)[1:]
    assert (width > np.ptp(whole.lift_intervals, axis=1)[1:]).all()
    level = live.recommend(0.99, anytime=True)
    np.testing.assert_allclose(usual.lift_intervals, level.lift_intervals, rtol=1e-6)


@pytest.mark.parametrize("policy", [sa.Peace(), sa.LinearThompson()])
def test_policies_that_leave_variants_out_give_lifts_of_their_own_errors(
    policy: sa.Policy[Any],
) -> None:
    found = session(policy=policy).recommend()
    known = ~np.isnan(found.lifts)
    low, high = found.lift_intervals[known].T
    assert (low <= found.lifts[known]).all()
    assert (found.lifts[known] <= high).all()
    z, errors = 2.2414, np.nan_to_num(found.standard_errors, nan=np.inf)  # two comparisons
    reach = z * (errors + errors[0])
    reach[0] = 0.0
    np.testing.assert_allclose((high - low) / 2, reach[known], rtol=1e-4)
    relative = found.relative_intervals
    apart = (found.lift_intervals[:, 0] > 0) == (relative[:, 0] > 0)
    assert apart[~np.isnan(relative[:, 0])].all()


# Tables


def test_a_verdict_becomes_a_data_frame() -> None:
    pandas, polars = import_module("pandas"), import_module("polars")
    found = session().recommend()
    frame, other = found.to_pandas(), found.to_polars()
    assert isinstance(frame, pandas.DataFrame)
    assert isinstance(other, polars.DataFrame)
    assert list(frame.columns) == other.columns
    assert frame["name"].tolist() == list(NAMES)
    assert frame["recommended"].tolist() == [False, True, False]
    np.testing.assert_array_equal(frame["lift"], found.lifts)
    np.testing.assert_array_equal(other["relative_high"].to_numpy()[1], frame["relative_high"][1])
    bare = session(control=None).recommend().to_pandas()
    assert list(bare.columns) == list(frame.columns)
    assert np.isnan(bare["lift"]).all()
