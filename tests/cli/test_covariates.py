"""Covariates of units on the command line: in a file, with visits, and beside verdicts."""

from __future__ import annotations

import random
from pathlib import Path

from tests.cli.conftest import TOML, Run, facts

NAMES = '\ncovariates = ["spend", "expected"]\n'


def test_covariates_of_visits_and_verdicts(run: Run) -> None:
    Path("test.toml").write_text(TOML.replace("600", "240") + NAMES)
    run("create", "test.toml")
    assert facts(run, "show", "shop")["settings"]["covariates"] == ["spend", "expected"]
    assert "covariates: spend, expected" in run("show", "shop")
    run("ask", "shop", "first", "--covariate", "spend=0.5", "--expected", "3.2")
    run("tell", "shop", "first", "0.5")
    luck = random.Random(1)
    for part in range(5):
        spend = {f"v{part}-{i}": luck.random() for i in range(40)}
        lines = "\n".join(f"{unit},{value}" for unit, value in spend.items())
        asked = facts(run, "ask", "shop", "-", stdin=f"unit,spend\n{lines}\nnobody{part},\n")
        told = [
            f"{one['unit']},{round(0.9 * spend.get(one['unit'], 0.5) + 0.1 * luck.random(), 6)}"
            for one in asked["assignments"]
        ]
        run("tell", "shop", "-", stdin="\n".join(told))
    run("stop", "shop")
    text = run("recommend", "shop")
    assert "unadjusted" in text
    assert "Adjusted for spend and expected: variance down by" in text
    found = facts(run, "recommend", "shop")
    assert 0 < found["variance_kept"] < 0.8
    assert all(arm["raw"] is not None for arm in found["arms"])
    assert "all agree to the bit" in run("replay", "shop")


def test_bad_covariates_are_refused(run: Run) -> None:
    Path("test.toml").write_text(TOML + NAMES)
    run("create", "test.toml")
    for wrong in ("41", "spend=", "spend=much"):
        assert "such as spend=41.0" in run("ask", "shop", "v1", "--covariate", wrong, status=1)
    twice = ("--covariate", "spend=1", "--covariate", "spend=2")
    assert "each covariate once" in run("ask", "shop", "v1", *twice, status=1)
    assert "no covariate" in run("ask", "shop", "v1", "--covariate", "color=1", status=1)
    assert "finite number" in run("ask", "shop", "-", stdin="unit,spend\nv1,much\n", status=1)
    assert facts(run, "show", "shop")["totals"]["assigned"] == 0
