"""`beyond_paper`: ratios of errors, their intervals, and the page that shows them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import steadyarm as sa
from steadyarm.cli.main import build_parser, main
from steadyarm.cli.research import _points
from steadyarm.paper import figure_named, tasks_of
from steadyarm.paper.specification import (
    beyond_of,
    beyond_points,
    beyond_policies,
)
from steadyarm.policies import VARIANTS
from steadyarm.simulation import Results
from steadyarm.simulation.journal import Journal
from tests.reports.worlds import Elements
from tests.simulation.own import counted


def cells(trials: int = 1000, **errors: int) -> list[Results]:
    """Every setting with these errors of P1RAGE, GBAI, Steady and variants such as GBAI_blocks."""
    names = {"P1RAGE": "P1-RAGE", "GBAI": "G-BAI", "Steady": "Steady"}
    names |= {name.replace("-", "").replace(" ", "_"): name for name in VARIANTS}
    return [
        counted(figure.name, figure.parameter, value, policy, trials, count, 0.1, 1.0)
        for name, count in errors.items()
        for figure, value, policy in beyond_points([names[name]])
    ]


def mixed() -> list[Results]:
    """Soare's stationary settings, one of each kind: errors of P1-RAGE and of Steady."""
    pairs = [(400, 100), (100, 0), (2, 0), (0, 5), (40, 80), (100, 101)]
    values = figure_named("soare_stationary").values
    return [
        counted("soare_stationary", "budget", value, policy, 1000, errors, 0.1, 1.0)
        for value, pair in zip(values, pairs, strict=True)
        for policy, errors in zip(("P1-RAGE", "Steady"), pair, strict=True)
    ]


def test_all_48_settings_without_yahoo_and_flights() -> None:
    points = list(beyond_points(["P1-RAGE"]))
    assert len({(figure.name, value) for figure, value, _ in points}) == len(points) == 48
    assert not {"yahoo", "flights"} & {figure.name for figure, _, _ in points}


def test_mean_and_significance_by_hand() -> None:
    beyond = beyond_of(mixed(), ["P1-RAGE", "Steady"])
    assert beyond.policies == ("Steady",)
    ratios = beyond.ratios("Steady")
    assert [r.ratio for r in ratios] == pytest.approx([0.25, 0.005, 0.25, 10.0, 2.0, 1.01])
    assert [row.counts for row in beyond.rows] == [True, True, False, False, True, True]
    assert [r.significant for r in ratios] == [-1, -1, 0, 0, 1, 0]
    mean = (0.25 * 0.005 * 2.0 * 1.01) ** (1 / 4)
    assert beyond.geometric_mean("Steady") == pytest.approx(mean)
    assert beyond.verdict("Steady") == (
        f"Steady: geometric mean {mean:.3g} over 4 settings; "
        "significantly worse in 1 and better in 2 of 6 tested"
    )


def test_the_gain_is_split_into_balance_and_adaptation() -> None:
    """Errors of 400, 100, 50 and 25: half of the logarithms of 16 without adaptation."""
    errors = {"GBAI_blocks": 100, "P1RAGE_blocks": 50, "Steady_fixed": 100, "Steady_iid": 200}
    found = cells(P1RAGE=400, **errors, Steady=25)
    lines = beyond_of(found, beyond_policies()).lines()
    assert len(lines) == 5 + 4
    assert "G-BAI blocks, which is balanced and does not adapt, reaches 50% of" in lines[5]
    assert "P1-RAGE blocks, which is balanced and adapts, reaches 75% of" in lines[6]
    assert "Steady fixed, which is balanced and does not adapt, reaches 50% of" in lines[7]
    assert "Steady iid, which is not balanced and adapts, reaches 25% of" in lines[8]
    worse = cells(P1RAGE=100, GBAI_blocks=90, Steady=100)
    assert len(beyond_of(worse, ["G-BAI blocks", "Steady"]).lines()) == 2


def test_variants_are_run_as_they_are_named() -> None:
    figure = figure_named("soare_scale")
    tasks = tasks_of([(figure, 3, "G-BAI blocks", 50), (figure, 3, "P1-RAGE", 50)])
    assert [task.policy for task in tasks] == [sa.GBAI(order="blocks"), sa.P1RAGE.published()]
    asked = ["reproduce", "beyond_paper", "--policies", "g-bai-blocks,Steady_fixed,P1RAGE"]
    found = _points([], build_parser().parse_args(asked))
    assert {policy for _, _, policy, _ in found} == {"P1-RAGE", "G-BAI blocks", "Steady fixed"}


def test_intervals_of_ratios() -> None:
    (first, *_, none) = beyond_of(mixed(), ["Steady"]).ratios("Steady")[:4]
    error = math.sqrt(1 / 100 - 1 / 1000 + 1 / 400 - 1 / 1000)  # Katz et al. (1978)
    ends = [0.25 * math.exp(sign * 1.959964 * error) for sign in (-1, 1)]
    assert (first.low, first.high) == pytest.approx(ends, rel=1e-6)
    assert none.high == math.inf  # the base never erred


def test_the_command_runs_the_cells_of_the_figures_themselves() -> None:
    asked = ["reproduce", "beyond-paper", "--trials", "50", "--policies", "steady,adjacent-bai"]
    found = _points([], build_parser().parse_args(asked))
    assert len(found) == len(set(found)) == 48 * 3
    assert (figure_named("soare_scale"), 3, "P1-RAGE", 50) in found
    assert {policy for _, _, policy, _ in found} == {"P1-RAGE", "Steady", "Adjacent-BAI"}
    both = build_parser().parse_args(["reproduce", "soare_scale", "beyond_paper"])
    found = _points([figure_named("soare_scale")], both)
    assert len(set(found)) == 10 * 6 + 48 * 6 - 10
    with pytest.raises(sa.InvalidInputError, match="at least one other"):
        beyond_policies(["P1-RAGE"])


def test_the_command_reports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a journal of ordinary runs, here of two figures: nothing is left to compute."""
    few = {name: figure_named(name) for name in ("soare_scale", "malicious")}
    monkeypatch.setattr("steadyarm.paper.specification.FIGURES", few)
    path = tmp_path / "cells.jsonl"
    journal = Journal(path)
    for result in cells(100, P1RAGE=50, Steady=10):
        if result.world in few:
            point = (few[result.world], result.value, result.policy, 100)
            journal.add(tasks_of([point], seed=7)[0].key, result)
    lines = path.read_bytes().count(b"\n")
    command = ["reproduce", "beyond_paper", "--trials", "100", "--policies", "steady"]
    assert main([*command, "--seed", "7", "--out", str(tmp_path)]) == 0
    assert path.read_bytes().count(b"\n") == lines == 22
    names = {path.name for path in tmp_path.iterdir()}
    assert names >= {"report.html", "results.csv"}
    assert "soare_scale.png" not in names
    shown = " ".join(capsys.readouterr().out.split())
    verdict = "Steady: geometric mean 0.2 over 11 settings; significantly worse in 0 and better in"
    assert f"{verdict} 11 of 11 tested" in shown
    page = Elements((tmp_path / "report.html").read_text()).text
    assert verdict in page
    assert "0.2 (0.11 to 0.37)" in page
