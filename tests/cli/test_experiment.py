"""`steadyarm experiment`, `audit` and `report`: for people and for programs, on SQLite files."""

from __future__ import annotations

import getpass
import hashlib
import json
import re
import sqlite3
import textwrap
from contextlib import closing
from pathlib import Path

import pytest

import steadyarm as sa
from steadyarm.cli.experiment import ABOUT
from steadyarm.cli.main import main
from steadyarm.cli.traffic import read_rewards, read_units
from tests.cli.conftest import Run, facts
from tests.reports.worlds import Elements

GUIDE = Path(__file__).parents[2] / "docs/run/live.md"


def test_create_and_list(run: Run) -> None:
    assert "There are no experiments yet" in run("list")
    assert facts(run, "list") == {"experiments": [], "next": None}
    assert not Path("tests.db").exists()
    shown = run("create", "test.toml")
    assert shown.startswith("shop: running, created 20")
    for fact in ("Steady on 3 variants", "seed 5", "2 days", "always 0.25", "at least 0.1"):
        assert fact in shown
    made = facts(run, "create", "test.toml", "--name", "other", "--draft")
    assert (made["name"], made["state"], made["settings"]["budget"]) == ("other", "draft", 600)
    assert made["assigned"] == made["rewarded"] == {"plain": 0, "short": 0, "long": 0}
    listed = facts(run, "list")["experiments"]
    assert [entry["name"] for entry in listed] == ["shop", "other"]
    lines = run("list").splitlines()
    assert lines[0].split() == ["name", "state", "created", "policy", "variants", "budget"]
    assert lines[2].startswith("other  draft    20")


def test_the_example_in_the_help_is_an_experiment(run: Run) -> None:
    text = textwrap.dedent(ABOUT.split("test.toml:", 1)[1].split("\n  export", 1)[0])
    Path("example.toml").write_text(text)
    made = facts(run, "create", "example.toml")
    assert (made["settings"]["control"], made["settings"]["control_share"]) == ("standard", None)
    for line in ABOUT.splitlines():
        words = line.split()
        if words[:2] == ["steadyarm", "experiment"] and words[2] != "create":
            if words[2] == "recommend":
                for what in ("recommend", "drift"):
                    early = run(what, "checkout", status=1)
                    assert "a verdict needs the first 248 visits; 1 has been assigned" in early
                continue
            run(*words[2:])


def test_recommend(shop: Run) -> None:
    lines = shop("recommend", "shop").splitlines()
    assert lines[0].startswith("Ship short: it beats plain by 1")
    assert lines[2].startswith("short: ")
    assert "Against plain: +1" in lines[2]
    head = "variant estimate 95 %, all at once against control behind by"
    assert lines[4].split() == head.split()
    assert [line.split()[0] for line in lines[5:8]] == ["short", "plain", "long"]
    assert "+1" in lines[5]
    assert lines[6].split()[-2] == "control"
    assert lines[-1].startswith("Assumptions: ")
    verdict = facts(shop, "recommend", "shop", "--level", "0.9")
    assert (verdict["arm"], verdict["sure"], verdict["level"]) == ("short", True, 0.9)
    assert (verdict["rewards"], verdict["missing"], verdict["control"]) == (600, 0, "plain")
    assert facts(shop, "recommend", "shop", "--anytime")["anytime"]
    assert not facts(shop, "recommend", "shop")["anytime"]  # the budget is spent
    assert shop("show", "shop").splitlines()[1] == lines[0]


def test_what_is_not_known_is_null(run: Run) -> None:
    run("create", "test.toml")
    assert "no reward has been reported yet" in run("recommend", "shop", status=1)
    run("ask", "shop", *(f"v{i}" for i in range(9)))
    run("tell", "shop", *(word for i in range(8) for word in (f"v{i}", "1")))
    assert "8 rewards recorded, 1 pending or missing" in run("show", "shop")
    run("tell", "shop", "v8", "1")
    assert facts(run, "recommend", "shop")["arms"][0]["low"] is None
    assert "too few rewards" in run("recommend", "shop")


def test_health_drift_and_replay(shop: Run) -> None:
    assert shop("health", "shop").startswith("Health: ok\n")
    assert facts(shop, "health", "shop")["status"] == "ok"
    drift = shop("drift", "shop").splitlines()
    assert drift[0].split()[:5] == ["period", "rounds", "plain", "short", "long"]
    assert len(facts(shop, "drift", "shop", "--periods", "2")["periods"]) == 2
    assert "600 rewards" in shop("replay", "shop")
    replay = facts(shop, "replay", "shop")
    assert (replay["agrees"], replay["assignments"], replay["differences"]) == (True, 600, [])


def test_what_may_be_unmeant_is_noted(run: Run) -> None:
    assert "Note:" not in run("create", "test.toml")
    few = 'name = "few"\narms = ["A", "B"]\nbudget = 19\nmissing = "zero"\n'
    Path("test.toml").write_text(few)
    noted = run("create", "test.toml")
    assert "\nNote: without a reward_window, visits without a reward are judged only after" in noted
    assert "\nNote: the budget is small for so many variants; steadyarm plan computes" in noted
    assert len(facts(run, "create", "test.toml", "--name", "b")["warnings"]) == 2


def test_a_replay_that_does_not_agree_fails(shop: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(sqlite3.connect("tests.db")) as database, database:
        tables = [
            name
            for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if "probability" in [row[1] for row in database.execute(f"PRAGMA table_info({name})")]
        ]
        database.execute(f"UPDATE {tables[0]} SET probability = 0.123 WHERE unit = 'v7'")
    assert main(["experiment", "replay", "shop", "--format", "json"]) == 1
    printed = capsys.readouterr()
    assert not json.loads(printed.out)["agrees"]
    assert "does not agree with the stored test" in printed.err


def test_states(run: Run) -> None:
    run("create", "test.toml", "--draft")
    assert facts(run, "ask", "shop", "v1")["arm"] == "plain"  # the control, outside of the test
    assert "draft" in run("pause", "shop", status=1)
    assert run("start", "shop") == "shop is running and assigns variants.\n"
    run("ask", "shop", "v1")
    assert "shop is paused" in run("pause", "shop")
    assert "outside of the test" in run("ask", "shop", "v2")
    run("tell", "shop", "v1", "1")
    assert facts(run, "resume", "shop")["state"] == "running"
    assert "shop is stopped" in run("stop", "shop")
    assert "shop" in run("resume", "shop", status=1)
    assert "shop is running" in run("reopen", "shop", "--reason", "a mistake")
    run("stop", "shop")
    assert facts(run, "archive", "shop")["state"] == "archived"
    assert "archived" in run("tell", "shop", "v1", "1", status=1)
    assert not facts(run, "ask", "shop", "v1")["new"]  # who has a variant keeps it


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_export(shop: Run, suffix: str) -> None:
    file = f"log.{suffix}"
    assert f"The log is in {file}, settings" in shop("export", "shop", file)
    written = facts(shop, "export", "shop", file)
    assert written == {"file": file, "description": f"{file}.experiment.json"}


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


Printed = pytest.CaptureFixture[str]


def test_one_file_with_the_fingerprint_that_its_commands_give(shop: Run, capsys: Printed) -> None:
    assert main(["report", "shop", "--out", "new/report.html"]) == 0
    assert capsys.readouterr().out == "The report is in new/report.html.\n"
    page = Path("new/report.html").read_text()
    for outside in ("http", "<script", "<link", "@import", "url("):
        assert outside not in re.sub(r'src="data:[^"]*"', "", page)
    text = Elements(page).text
    assert text.startswith("Test report: shop")
    assert "Ship short: it beats plain by 152 % (94 to 222 %)." in text
    assert "plain is the control and always gets 25 %." in text
    assert "600 assignments, 600 rewards and" in text
    export = re.search(r"steadyarm (experiment export shop shop\.csv)\nsha256sum shop\.csv", page)
    assert export is not None
    assert main(export[1].split()) == 0
    digest = hashlib.sha256(Path("shop.csv").read_bytes()).hexdigest()
    assert f"<code>{digest}</code>" in page


def test_one_visitor(run: Run) -> None:
    run("create", "test.toml")
    head, row = run("ask", "shop", "v1").splitlines()
    assert head.split() == ["unit", "variant", "probability", "id"]
    unit, arm, probability, id = row.split()
    again = facts(run, "ask", "shop", "v1")
    assert again.pop("created").endswith("Z")
    expected = {"id": id, "unit": unit, "arm": arm, "probability": float(probability)}
    assert again == expected | {"new": False, "value": arm, "in_test": True}
    assert run("ask", "shop", "v1").splitlines()[1].endswith("as before")
    assert run("tell", "shop", "v1", "1") == "1 stored, 0 repeated, 0 refused\n"
    assert facts(run, "tell", "shop", id, "1.0") == {"status": "repeated"}
    assert "has the reward 1.0 already" in run("tell", "shop", "v1", "0", status=1)
    assert "'v2' is neither the id" in run("tell", "shop", "v2", "1", status=1)
    assert "the reward is 'yes'" in run("tell", "shop", "v1", "yes", status=1)
    assert "'v3' has no reward" in run("tell", "shop", "v1", "1", "v3", status=1)
    assert "UNIT is required. Name the unit that gets the variant" in run("ask", "shop", status=1)


def test_refused_ones_have_their_problem_in_json(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    text = Path("test.toml").read_text()
    Path("test.toml").write_text('after = "refuse"\n' + text)
    run("create", "test.toml", "--draft")
    assert main(["experiment", "ask", "shop", "v1", "v2", "--format", "json"]) == 1
    for entry, unit in zip(
        json.loads(capsys.readouterr().out)["assignments"], ("v1", "v2"), strict=True
    ):
        assert entry["unit"] == unit
        assert entry["error"]["type"] == "urn:steadyarm:problem:wrong-state"
    run("start", "shop")
    assert len(run("ask", "shop", "v1", "v3").splitlines()) == 3
    rewards = ["v1", "1", "v1", "0", "v2", "1", "v1", "2"]
    assert main(["experiment", "tell", "shop", *rewards, "--format", "json"]) == 1
    printed = capsys.readouterr()
    assert "v2: 'v2' is neither" in printed.err
    assert "steadyarm: 3 of 4 rewards were refused." in printed.err
    told = json.loads(printed.out)["rewards"]
    kinds = [entry["error"]["type"].rsplit(":", 1)[1] for entry in told[1:]]
    assert told[0] == {"status": "stored"}
    assert kinds == ["reward-conflict", "unknown-assignment", "invalid-input"]


def test_many_from_standard_input(run: Run) -> None:
    run("create", "test.toml")
    lines = [f"v{i}" for i in range(610)]
    asked = facts(run, "ask", "shop", "-", stdin="\n".join(lines))["assignments"]
    assert sum(one["in_test"] for one in asked) == 600
    assert len({one["arm"] for one in asked if not one["in_test"]}) == 1
    table = ["unit,page,reward", *(f"v{i},home,{'' if i % 3 else 1}" for i in range(600))]
    told = run("tell", "shop", "-", stdin="\n".join(table))
    assert told == "200 stored, 0 repeated, 0 refused; 400 lines without a reward left out\n"
    again = facts(run, "tell", "shop", "-", stdin="v0,1\nv3,1\n")
    assert again == {"rewards": [{"status": "repeated"}] * 2}
    assert facts(run, "ask", "shop", "-", stdin="") == {"assignments": []}


def test_units_and_rewards_are_read_line_by_line() -> None:
    assert read_units(["\ufeffunit\n", "a\n", "\n", '"b, c"\n']) == [("a", {}), ("b, c", {})]
    assert read_rewards(["id,unit,reward", "x-0-1,a,2.5", "x-0-2,b,"]) == (
        [("x-0-1", 2.5, None, None)],
        1,
    )
    for read, lines, message in (
        (read_units, ["a", "b,c"], "line 2 has 2 columns"),
        (read_units, ["time,unit", "12"], "line 2 has 1 columns"),
        (read_rewards, ["a"], "line 1 has 1 columns"),
        (read_rewards, ["who,reward", "a,1"], "expected reward and one of: id, assignment, unit"),
        (read_rewards, ['"a",1', '"b'], "line 2 is not CSV"),
    ):
        with pytest.raises(sa.InvalidInputError, match=message):
            read(lines)


METRICS = """
name = "shop"
arms = ["plain", "short"]
budget = 60
seed = 5
control = "plain"
metrics = [
    { name = "bought", role = "primary", kind = "yes/no" },
    { name = "revenue", kind = "money", unit = "€", several = "sum", window = "1d" },
    { name = "loading", role = "guardrail", direction = "minimize", unit = "s", margin = "20%" },
]
"""


def test_metrics_from_a_file_to_the_verdict(run: Run) -> None:
    Path("metrics.toml").write_text(METRICS)
    run("create", "metrics.toml")
    run("ask", "shop", "-", stdin="\n".join(f"v{i}" for i in range(60)))
    told = run("tell", "shop", "v0", "bought=1", "loading=1.5", "v1", "bought=0", "loading=1.25")
    assert told.startswith("2 stored")
    assert "give each a key" in run("tell", "shop", "v0", "revenue=35.20", status=1)
    assert run("tell", "shop", "v0", "revenue=35.20", "--event", "o1").startswith("1 stored")
    assert run("tell", "shop", "v0", "revenue=35.20", "--event", "o1").startswith("0 stored, 1 rep")
    lines = ["unit,bought,loading", *(f"v{i},{i % 2},{1 + i % 3 / 10}" for i in range(2, 60))]
    assert run("tell", "shop", "-", stdin="\n".join(lines)).startswith("58 stored")
    shown = run("recommend", "shop")
    assert "guardrail" in shown
    assert " s " in shown


def test_what_is_known_of_units(run: Run) -> None:
    known = 'covariates = ["spend"]\nattributes = { device = ["mobile", "desktop"] }\n'
    Path("test.toml").write_text(known + Path("test.toml").read_text())
    run("create", "test.toml")
    run("ask", "shop", "v1", "--known", "device=mobile", "--known", "spend=41")
    table = "unit,spend,device\nv2,7,desktop\nv3,,\n"
    assert len(facts(run, "ask", "shop", "-", stdin=table)["assignments"]) == 2
    run("tell", "shop", "v1", "1", "v2", "0", "v3", "1")
    with sa.load_experiment("shop", f"sqlite:///{Path.cwd()}/tests.db") as shop:
        rows = {
            row.unit: {e.metric: e.value for e in row.events} for row in shop.storage.log(shop.key)
        }
    assert rows["v1"].keys() >= {"device=mobile", "spend"}
    assert (rows["v1"]["spend"], rows["v2"]["spend"]) == (41.0, 7.0)
    assert "spend" not in rows["v3"]
    for wrong, message in (
        (("mobile",), "such as device=mobile"),
        (("device=",), "such as device=mobile"),
        (("spend=1", "--known", "spend=2"), "each name once"),
        (("spend=much",), "finite number"),
    ):
        assert message in run("ask", "shop", "v4", "--known", *wrong, status=1)
