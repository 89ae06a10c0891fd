"""The chart of simulated policies: its numbers are those of the results, in their order."""

from __future__ import annotations

import pytest

import steadyarm as sa
from steadyarm.plot.charts import results


def made(policy: str, errors: int, trials: int) -> sa.Results:
    return sa.Results(policy, {0: trials - errors, 1: errors}, None, best_arm=0)


def test_points_intervals_and_table_are_those_of_the_results() -> None:
    found = [made("Mine", 3, 200), made("Steady", 0, 1000), made("Peace", 200, 200)]
    chart = results(found)
    (panel,) = chart.panels
    (series,) = panel.series
    assert series.x == ("Mine: 1.5 %", "Steady: 0 %", "Peace: 100 %")
    assert series.y.tolist() == [0.015, 0.0, 1.0]
    assert series.low is not None
    assert series.high is not None
    assert series.low[1] == 0.0
    assert series.high[2] == 1.0
    # Clopper and Pearson's interval of no error in n is 1 - (1/40)^(1/n)
    assert series.high[1] == pytest.approx(1 - 0.025 ** (1 / 1000), rel=1e-9)
    assert panel.y_range is not None
    assert panel.y_range[0] < 0.0 < 1.0 < panel.y_range[1], "points at the ends are not cut"
    assert [row[:4] for row in chart.table.rows] == [
        ("Mine", 3, 200, 0.015), ("Steady", 0, 1000, 0.0), ("Peace", 200, 200, 1.0),
    ]  # fmt: skip
    assert "200 to 1,000 simulated tests" in chart.note
    assert "Steady was wrong least often" in chart.summary
    assert "Peace most often" in chart.summary


def test_it_can_be_drawn() -> None:
    found = [made("Mine", 3, 200), made("Mine too", 5, 200)]
    assert sa.plot.results(found, "Two of mine").layout.title.text == "Two of mine"
    figure = sa.plot.matplotlib.results(found, "Two of mine")
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["Mine: 1.5 %", "Mine too: 2.5 %"]


@pytest.mark.parametrize("wrong", [[], ["Steady"], [made("A", 0, 5), 3]])
def test_anything_else_is_refused(wrong: list[object]) -> None:
    with pytest.raises(sa.InvalidInputError, match=r"what sa\.simulate"):
        results(wrong)  # type: ignore[arg-type]  # the point of the test
