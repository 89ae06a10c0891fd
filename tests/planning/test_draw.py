"""The picture of a plan: what its panels hold, and that it is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import steadyarm as sa
from steadyarm.planning.draw import draw_plan, panels_of, picture_of

SETTINGS: dict[str, Any] = {
    "traffic_per_day": 100,
    "arms": {"one_hot": ["A", "B", "C"]},
    "effects": {"smallest_gap": 0.5},
    "rewards": {"sd": 1.0},
    "rhythm": {"kind": "weekend"},
    "policies": ["g-bai", "sequential-halving"],
}


@pytest.fixture(scope="module")
def plan() -> sa.Plan:
    return sa.plan(SETTINGS, trials=100)


def test_panels_hold_what_is_drawn(plan: sa.Plan) -> None:
    calm, moving = panels_of(plan)
    assert [series.label for series in calm.series] == ["G-BAI", "Sequential-Halving *"]
    assert [x for x, _ in calm.floor] == list(plan.budgets)
    assert calm.lead == ()
    budgets = [point.budget for point in moving.series[0].points]
    assert budgets == sorted(budgets)
    need = plan.lines[0].asked.need
    assert moving.series[0].enough == need.check  # the marker is where the error was checked
    assert need.check in moving.series[0].points
    assert need.check.budget == plan.budget
    assert len(set(budgets)) == len(budgets)
    days, lead = zip(*moving.lead, strict=True)
    assert days[0] == 0
    assert days[-1] == plan.days
    assert min(lead) < 0 < max(lead)


@pytest.mark.parametrize("name", ["plan.png", "plan.pdf"])
def test_the_picture_is_written(plan: sa.Plan, name: str, tmp_path: Path) -> None:
    path = draw_plan(plan, tmp_path / name)
    assert path.stat().st_size > 5000


def test_without_a_rhythm_there_is_one_panel(tmp_path: Path) -> None:
    still = {key: value for key, value in SETTINGS.items() if key != "rhythm"}
    plan = sa.plan(still, trials=100)
    assert len(panels_of(plan)) == 1
    assert draw_plan(plan, tmp_path / "plan.png").exists()


def test_markers_are_at_the_checked_errors(plan: sa.Plan) -> None:
    axes = picture_of(plan).axes[0]
    large = [line for line in axes.lines if line.get_markersize() == 9]
    drawn = [(line.get_xdata()[0], line.get_ydata()[0]) for line in large]  # type: ignore[index]  # arrays here
    checks = [line.calm.need.check for line in plan.lines]
    assert drawn == [(check.budget, check.rate) for check in checks]


def test_a_plan_without_an_answer_is_drawn(tmp_path: Path) -> None:
    short = SETTINGS | {"most_days": 7, "effects": {"smallest_gap": 0.05}}
    assert draw_plan(sa.plan(short, trials=100), tmp_path / "plan.png").exists()
