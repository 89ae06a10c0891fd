"""Our counts beside the published ones."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import hypergeom

from steadyarm.paper.specification import compare, published_counts
from steadyarm.simulation import Results
from tests.simulation.own import counted

GAP = 2 * (1 - math.cos(0.1))


def cell(figure: str, value: float | None, policy: str, errors: int, trials: int) -> Results:
    return counted(figure, "budget", value, policy, trials, errors, GAP, 0.5)


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


def test_what_cannot_be_compared_is_left_out() -> None:
    assert ("yahoo", 100, "G-BAI") in published_counts()
    assert compare([cell("yahoo", 100, "G-BAI", 5, 100)]) == []
    assert compare([cell("soare_scale", 3, "Steady", 5, 100)]) == []
