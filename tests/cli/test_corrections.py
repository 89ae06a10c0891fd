"""`steadyarm experiment void|exclude|erase|roll-out` and `steadyarm audit`."""

from __future__ import annotations

import getpass
import json

import pytest

from steadyarm.cli.main import main
from tests.cli.conftest import Run, facts

WHY = ("--reason", "a monitor")


def test_every_kind_of_correction(shop: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert shop("void", "shop", "v0", *WHY).startswith("shop: 1 visit was corrected; entry ")
    done = facts(shop, "exclude", "shop", "--unit", "v2", *WHY)["corrections"]
    assert [entry["assignments"] for entry in done] == [1]
    assert "1 of 600 visits were excluded" in shop("health", "shop")
    period = ("--since", "2020-01-01T00:00Z", "--until", "2020-01-02T00:00Z")
    assert "nothing to exclude" in shop("exclude", "shop", *period, *WHY, status=1)
    assert "--since and --until" in shop("exclude", "shop", "--unit", "v2", *period, *WHY, status=1)
    assert "'noon'" in shop("exclude", "shop", "--since", "noon", "--until", "x", *WHY, status=1)
    shop("erase", "shop", "v3")
    assert shop("erase", "--everywhere", "v4").startswith("shop: 1 visit")
    assert "any experiment" in shop("erase", "--everywhere", "v4", status=1)
    assert "only the unit with --everywhere" in shop("erase", "v5", status=1)
    assert "with 4 corrections: all agree" in shop("replay", "shop")
    assert main(["audit"]) == 0
    text = capsys.readouterr().out
    assert f"UTC by {getpass.getuser()}  reward.voided  shop  assignments 1, reason a m" in text
    assert main(["audit", "--experiment", "shop", "--format", "json"]) == 0
    entries = json.loads(capsys.readouterr().out)["entries"]
    actions = ["experiment.created", "reward.voided", "visits.excluded", *["unit.erased"] * 2]
    assert [entry["action"] for entry in entries] == actions
    assert main(["audit", "--after", str(entries[-2]["id"]), "--format", "json"]) == 0
    (last,) = json.loads(capsys.readouterr().out)["entries"]
    assert (last["action"], last["detail"]) == ("unit.erased", {"assignments": 1})


def test_roll_out_step_by_step(shop: Run) -> None:
    default = facts(shop, "ask", "shop", "somebody-new")["arm"]
    assert f"New visitors see the variant {default}, outside" in shop("show", "shop")
    told = shop("tell", "shop", "somebody-new", "1")
    assert told == "0 stored, 0 repeated, 1 outside, 0 refused\n"
    said = shop("roll-out", "shop", "long", "--share", "0.1", "--reason", "try it")
    assert said == "shop: long is rolled out to 10 % of all units.\n"
    assert "--change" in shop("roll-out", "shop", "--share", "0.05", status=1)
    assert facts(shop, "roll-out", "shop")["roll_out"]["share"] == 1.0
    assert facts(shop, "ask", "shop", "anybody")["arm"] == "long"
    back = facts(shop, "roll-out", "shop", "--share", "0", "--change")
    assert back["roll_out"]["share"] == 0.0


def test_a_running_test_needs_a_word(run: Run) -> None:
    run("create", "test.toml")
    assert "--stop" in run("roll-out", "shop", "long", status=1)
    assert facts(run, "roll-out", "shop", "long", "--stop")["state"] == "stopped"
