"""Roll-outs on the command line, and what `ask`, `tell` and `show` say after a test."""

from __future__ import annotations

from tests.cli.conftest import Run, facts


def test_a_finished_test(shop: Run) -> None:
    line = shop("ask", "shop", "somebody-new").splitlines()[1]
    assert line.endswith("outside of the test")
    found = facts(shop, "ask", "shop", "somebody-new")
    assert (found["in_test"], found["id"], found["probability"]) == (False, "", None)
    told = shop("tell", "shop", "somebody-new", "1")
    assert told == "0 stored, 0 repeated, 1 outside, 0 refused\n"
    assert f"New visitors see {found['arm']}, outside" in shop("show", "shop")


def test_roll_out_step_by_step(shop: Run) -> None:
    said = shop("roll-out", "shop", "long", "--share", "0.1", "--reason", "try it")
    assert said == "shop: long is rolled out to 10 % of all units.\n"
    assert "long is rolled out to 10 % of all visitors" in shop("show", "shop")
    refused = shop("roll-out", "shop", "--share", "0.05", status=1)
    assert "--change" in refused
    assert facts(shop, "roll-out", "shop")["roll_out"]["share"] == 1.0
    assert facts(shop, "ask", "shop", "anybody")["arm"] == "long"
    back = facts(shop, "roll-out", "shop", "--share", "0", "--change")
    assert back["roll_out"]["share"] == 0.0


def test_a_roll_out_of_what_new_units_see_anyway_says_so(shop: Run) -> None:
    default = facts(shop, "ask", "shop", "somebody-new")["arm"]
    said = shop("roll-out", "shop", default, "--share", "0.1")
    assert "It is also what all other new units see" in said


def test_a_running_test_needs_a_word(run: Run) -> None:
    run("create", "test.toml")
    assert "--stop" in run("roll-out", "shop", "long", status=1)
    assert facts(run, "roll-out", "shop", "long", "--stop")["state"] == "stopped"
