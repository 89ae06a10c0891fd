"""`steadyarm experiment void|exclude|erase` and `steadyarm audit`."""

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
    assert facts(shop, "show", "shop")["totals"]["excluded"] == 1
    period = ("--since", "2020-01-01T00:00Z", "--until", "2020-01-02T00:00Z")
    assert "nothing to exclude" in shop("exclude", "shop", *period, *WHY, status=1)
    assert "--since and --until" in shop("exclude", "shop", "--unit", "v2", *period, *WHY, status=1)
    assert "'noon'" in shop("exclude", "shop", "--since", "noon", "--until", "x", *WHY, status=1)
    shop("create", "test.toml", "--name", "other", "--draft")
    shop("erase", "shop", "v3")
    assert shop("erase", "--everywhere", "v4").startswith("shop: 1 visit")
    assert "any experiment" in shop("erase", "--everywhere", "v4", status=1)
    assert "with --everywhere the unit alone" in shop("erase", "v5", status=1)
    assert "with 4 corrections: all agree" in shop("replay", "shop")
    shop("stop", "shop")
    assert main(["audit"]) == 0
    text = capsys.readouterr().out
    who = getpass.getuser()
    assert f"UTC by {who}  reward.voided  shop  assignments 1, reason a monitor" in text
    assert main(["audit", "--experiment", "shop", "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)["entries"]
    assert {entry["author"] for entry in told} == {who}
    assert [entry["action"] for entry in told] == [
        "experiment.created",
        "reward.voided",
        "visits.excluded",
        "unit.erased",
        "unit.erased",
        "experiment.stopped",
    ]
    after = str(told[-3]["id"])
    assert main(["audit", "--experiment", "shop", "--after", after, "--format", "json"]) == 0
    left = json.loads(capsys.readouterr().out)["entries"]
    assert [entry["action"] for entry in left] == ["unit.erased", "experiment.stopped"]
    assert left[0]["detail"] == {"assignments": 1}
