"""Attributes of units on the command line: in a file, with visits, and results by level."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import TOML, Run, facts

DEVICES = '\nattributes = { device = ["mobile", "desktop"] }\n'


def test_attributes_of_visits_and_results_by_level(run: Run) -> None:
    Path("test.toml").write_text(TOML.replace("600", "120") + DEVICES)
    run("create", "test.toml")
    assert facts(run, "show", "shop")["settings"]["attributes"] == {"device": ["mobile", "desktop"]}
    for level in ("mobile", "desktop"):
        visitors = "\n".join(f"{level}-{i}" for i in range(60))
        asked = facts(run, "ask", "shop", "-", "--attribute", f"device={level}", stdin=visitors)
        told = [f"{one['unit']},{i % 3 // 2}" for i, one in enumerate(asked["assignments"])]
        run("tell", "shop", "-", stdin="\n".join(told))
    run("stop", "shop")
    text = run("recommend", "shop", "--by", "device")
    assert "This is exploratory" in " ".join(text.split())
    assert "against now" in text
    found = facts(run, "recommend", "shop", "--by", "device", "--once")
    assert [one["visits"] for one in found["levels"]] == [60, 60, 0]
    assert not found["anytime"]
    assert "no attribute of this" in run("recommend", "shop", "--by", "color", status=1)


def test_bad_attributes_are_refused(run: Run) -> None:
    Path("test.toml").write_text(TOML + DEVICES)
    run("create", "test.toml")
    for wrong in ("mobile", "device=", "=mobile"):
        assert "such as device=mobile" in run("ask", "shop", "v1", "--attribute", wrong, status=1)
    twice = ("--attribute", "device=mobile", "--attribute", "device=desktop")
    assert "each attribute once" in run("ask", "shop", "v1", *twice, status=1)
    assert "no attribute" in run("ask", "shop", "v1", "--attribute", "color=red", status=1)
    run("ask", "shop", "v1", "--attribute", "device=mobile")
