"""Our counts beside the published ones: tests of agreement, and what explains the rest."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from scipy.stats import hypergeom

from steadyarm.paper.published import (
    Comparison,
    Published,
    compare,
    od_linbai_error,
    published_counts,
    scatter_of,
    summarise,
)
from steadyarm.simulation import Results
from tests.simulation.own import counted

GAP = 2 * (1 - math.cos(0.1))


def cell(figure: str, value: float | None, policy: str, errors: int, trials: int) -> Results:
    return counted(figure, "budget", value, policy, trials, errors, GAP, 0.5)


def as_published(figure: str, scale: float = 1.0) -> list[Results]:
    """Our results are the published counts themselves, or `scale` times them."""
    return [
        cell(name, value, policy, round(scale * theirs.errors), theirs.trials)
        for (name, value, policy), theirs in published_counts().items()
        if name == figure
    ]


def pair(ours: int, theirs: int, trials: int = 1000) -> Comparison:
    return Comparison(cell("x", 1, "P", ours, trials), Published(theirs, trials, None), 1.0)


def test_the_p_value_is_fishers() -> None:
    """By the definition: all tables with these margins that are no likelier than the one seen."""
    theirs = published_counts()["soare_period", 300, "Peace"]
    [found] = compare([cell("soare_period", 300, "Peace", 26, 1000)])
    law = hypergeom(2000, 26 + theirs.errors, 1000)
    support = law.pmf(np.arange(0, 27 + theirs.errors))
    expected = support[support <= law.pmf(26) * (1 + 1e-9)].sum()
    assert found.p_value == pytest.approx(expected, rel=1e-6)
    assert 0 < found.p_value < 0.05


def test_agreeing_ends_at_one_in_a_thousand() -> None:
    base = published_counts()["soare_stationary", 2010, "P1-RAGE"]
    fates = [
        compare([cell("soare_stationary", 2010, "P1-RAGE", base.errors + more, base.trials)])[0]
        for more in range(0, 200, 5)
    ]
    assert [c.agrees for c in fates] == [c.p_value >= 0.001 for c in fates]
    assert fates[0].agrees
    assert not fates[-1].agrees
    assert [c.agrees for c in fates] == sorted((c.agrees for c in fates), reverse=True)


def test_large_counts_are_quick() -> None:
    cells = [cell("soare_stationary", 5010, "P1-RAGE", e, 46_000) for e in range(0, 46_000, 460)]
    start = time.perf_counter()
    assert len(compare(cells)) == 100
    assert time.perf_counter() - start < 3


def test_what_cannot_be_compared_is_left_out() -> None:
    assert ("yahoo", 100, "G-BAI") in published_counts()
    assert compare([cell("yahoo", 100, "G-BAI", 5, 100)]) == []
    assert compare([cell("soare_scale", 3, "Steady", 5, 100)]) == []


def test_z_has_the_pooled_standard_error_and_needs_errors() -> None:
    expected = (0.06 - 0.04) / math.sqrt(0.05 * 0.95 * 2 / 1000)
    assert pair(60, 40).z == pytest.approx(expected)
    assert pair(40, 60).z == pytest.approx(-expected)
    assert pair(0, 8).z is None  # 4 expected in each
    assert pair(1000, 992).z is None
    assert pair(0, 10).z is not None


def test_scatter_of_honest_samples_is_one() -> None:
    draws = np.random.default_rng(3).binomial(1000, 0.2, size=(400, 2))
    scatter = scatter_of(pair(int(a), int(b)) for a, b in draws)
    assert scatter.cells == 400
    assert abs(scatter.mean) < 0.2
    assert 0.9 < scatter.rms < 1.1
    assert scatter.chance > 0.001
    assert not scatter.too_wide


def test_scatter_by_hand() -> None:
    scatter = scatter_of([pair(60, 40), pair(40, 60), pair(0, 1)])
    z = pair(60, 40).z
    assert scatter.cells == 2
    assert scatter.mean == pytest.approx(0)
    assert scatter.rms == pytest.approx(z)
    assert math.isnan(scatter_of([pair(0, 0)]).rms)


def test_identical_counts_agree_everywhere() -> None:
    summary = summarise(as_published("soare_stationary"))
    assert summary.agreeing == len(summary.comparisons) == 36
    assert summary.disagreeing == ()
    assert summary.reasons == {}


def test_the_closed_form_is_what_the_design_gives() -> None:
    """m = (T - 21) / 4 for d = 10, and a random arm of eleven when there is no budget."""
    n = math.ceil((1010 - 21) / 4 / 2)
    expected = 0.5 * math.erfc(GAP * math.sqrt(n / 2) / math.sqrt(2))
    assert od_linbai_error(1010, GAP) == pytest.approx(expected)
    assert od_linbai_error(10, GAP) == pytest.approx(10 / 11)


def test_the_closed_form_explains_od_linbai_only_if_ours_fits_it() -> None:
    trials = 21_000
    exact = round(trials * od_linbai_error(1010, GAP))
    summary = summarise([cell("soare_stationary", 1010, "OD-LinBAI", exact, trials)])
    [(reason, cells)] = summary.reasons.items()
    assert cells == summary.disagreeing
    assert "0.469 at T = 1010 (ours 0.469, published 0.444)" in reason
    assert "0.0 standard errors from our counts" in reason
    wrong = summarise([cell("soare_stationary", 1010, "OD-LinBAI", exact + 600, trials)])
    assert wrong.unexplained == wrong.disagreeing != ()


def test_scatter_to_both_sides_is_a_reason_and_bias_is_not() -> None:
    rng = np.random.default_rng(5)
    noisy = [
        cell(c.world, c.value, "G-BAI" if c.policy == "OD-LinBAI" else c.policy, errors, c.trials)
        for c in as_published("soare_stationary")
        for errors in [max(0, round(c.errors + 4 * rng.normal() * math.sqrt(c.errors)))]
    ]
    summary = summarise(noisy)
    assert summary.scatter["soare_stationary"].too_wide
    wide = [cells for reason, cells in summary.reasons.items() if "scatter around ours" in reason]
    assert len(wide) == 1
    measured = f"{summary.scatter['soare_stationary'].rms:.2f}"
    assert any(measured in reason for reason in summary.reasons)
    biased = summarise(as_published("soare_stationary", scale=0.8))
    assert len(biased.disagreeing) > 10
    assert not any("scatter around ours" in reason for reason in biased.reasons)


def test_other_figures_get_no_excuse() -> None:
    summary = summarise(as_published("multivariate_stationary", scale=0.5))
    assert summary.unexplained == summary.disagreeing != ()


def test_the_noted_cell_is_named() -> None:
    summary = summarise([cell("soare_stationary", 5010, "G-BAI", 290, 21_000)])
    [reason] = summary.reasons
    assert "191 of 21,000" in reason


def test_a_lone_outlier_is_never_explained_by_its_own_scatter() -> None:
    """Five budgets as published, one wrong throughout: no scatter excuses it."""
    published = published_counts()
    cells = []
    for budget in (10, 1010, 2010, 3010, 4010, 5010):
        cell = published["soare_stationary", budget, "P1-RAGE"]
        errors = cell.trials if budget == 3010 else cell.errors
        cells.append(
            counted("soare_stationary", "budget", budget, "P1-RAGE", cell.trials, errors, 0.01, 1)
        )
    summary = summarise(cells)
    assert [c.ours.value for c in summary.unexplained] == [3010]
