"""`steadyarm experiment`: every verb, for people and for programs, on real SQLite files."""

from __future__ import annotations

import json
import sqlite3
import textwrap
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.engine import make_url

from steadyarm.cli.experiment import ABOUT
from steadyarm.cli.main import main
from tests.cli.conftest import TOML, Run, facts

GUIDE = Path(__file__).parents[2] / "docs" / "live.md"


def test_create_and_list(run: Run) -> None:
    assert "There are no experiments yet" in run("list")
    assert facts(run, "list") == {"experiments": []}
    assert not Path("tests.db").exists()
    shown = run("create", "test.toml")
    assert shown.startswith("shop: running, created 20")
    assert "Steady on 3 variants, to maximize the reward; seed 5" in shown
    assert "rewards count for 2 days (and may arrive 2 days later), a missing one" in shown
    assert "control, always 0.25" in shown
    assert "at least 0.1" in shown
    made = facts(run, "create", "test.toml", "--name", "other", "--draft")
    assert (made["name"], made["state"]) == ("other", "draft")
    assert made["settings"]["budget"] == 600
    assert made["assigned"] == made["rewarded"] == {"now": 0, "short": 0, "long": 0}
    listed = facts(run, "list")["experiments"]
    assert [entry["name"] for entry in listed] == ["shop", "other"]
    assert listed[0].keys() == {"name", "state", "created", "budget", "policy", "arms"}
    assert listed[0]["created"].endswith("Z")
    lines = run("list").splitlines()
    assert lines[0].split() == ["name", "state", "created", "policy", "variants", "budget"]
    assert lines[2].startswith("other  draft    20")


def test_the_example_in_the_help_is_an_experiment(run: Run) -> None:
    text = textwrap.dedent(ABOUT.split("test.toml:", 1)[1].split("\n  export", 1)[0])
    Path("example.toml").write_text(text)
    made = facts(run, "create", "example.toml")
    assert (made["settings"]["control"], made["settings"]["control_share"]) == ("now", None)
    for line in ABOUT.splitlines():
        words = line.split()
        if words[:2] == ["steadyarm", "experiment"] and words[2] != "create":
            if words[2] == "recommend":
                for what in ("recommend", "drift"):
                    early = run(what, "checkout", status=1)
                    assert "a verdict needs the first 248 visits; 1 has been assigned" in early
                continue
            run(*words[2:])


def test_arms_and_policy_may_be_tables(run: Run) -> None:
    Path("test.toml").write_text(
        'name = "pages"\nbudget = 90\ndirection = "minimize"\nmissing = "drop"\n'
        '[policy]\nname = "p1-rage"\n'
        '[arms]\nfactorial = { title = ["a", "b"], image = ["x", "y"] }\ninteractions = 1\n'
    )
    settings = facts(run, "create", "test.toml")["settings"]
    assert settings["policy"]["name"] == "P1-RAGE"
    assert len(settings["arms"]["names"]) == 4
    assert "to minimize the reward" in run("show", "pages")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = ", "test.toml cannot be read as TOML"),
        ('arms = ["A", "B"]\nbudget = 9', "test.toml has no name"),
        (TOML + "buget = 7", "no setting 'buget'; the settings are name, arms, policy, budget"),
        (TOML + "buget = 7", "did you mean budget?"),
        (TOML.replace("budget = 600", ""), "the description has no budget"),
        (TOML.replace("600", "0"), "budget is 0"),
        (TOML.replace("600", '"many"'), "budget is 'many'"),
        (TOML.replace('"shop"', '"my shop"'), "the name is 'my shop'"),
        (TOML.replace('"shop"', "7"), "the name is 7"),
        (TOML + 'policy = "stedy"', "stedy"),
        (TOML + 'missing = "one"', "missing is 'one'"),
        (TOML.replace("now = ", "then = "), "control names 'then', which is no variant"),
        (TOML.replace("2d", "2 moons"), "reward_window is '2 moons'"),
    ],
)
def test_wrong_files_are_refused(run: Run, text: str, message: str) -> None:
    Path("test.toml").write_text(text)
    assert message in run("create", "test.toml", status=1)
    assert not Path("tests.db").exists()


def test_a_name_is_taken_once(run: Run) -> None:
    assert "none.toml cannot be read" in run("create", "none.toml", status=1)
    run("create", "test.toml")
    assert "'shop'" in run("create", "test.toml", status=1)


def test_unknown_names_are_refused(run: Run) -> None:
    verbs = "show ask recommend start pause resume stop archive replay health drift"
    for verb in verbs.split():
        assert "there are no experiments in sqlite:///" in run(verb, "shop", status=1)
    assert not Path("tests.db").exists()
    run("create", "test.toml")
    for verb in verbs.split():
        assert "shop" in run(verb, "shoop", status=1)


def test_recommend(shop: Run) -> None:
    lines = shop("recommend", "shop").splitlines()
    assert lines[0].startswith("Ship short: it beats now by 1")
    assert lines[2].startswith("short: ")
    assert "Against now: +1" in lines[2]
    head = "variant estimate 95 %, all at once against control behind by"
    assert lines[4].split() == head.split()
    assert [line.split()[0] for line in lines[5:8]] == ["short", "now", "long"]
    assert "+1" in lines[5]
    assert lines[6].split()[-2] == "control"
    assert lines[-1].startswith("Assumptions: ")
    verdict = facts(shop, "recommend", "shop", "--level", "0.9")
    assert (verdict["arm"], verdict["sure"], verdict["level"]) == ("short", True, 0.9)
    assert verdict["plausible"] == ["short"]
    assert facts(shop, "recommend", "shop", "--anytime")["anytime"]
    assert (verdict["rewards"], verdict["missing"]) == (600, 0)
    numbers = ("estimate", "standard_error", "low", "high", "gap", "gap_low", "gap_high")
    lifts = ("lift", "lift_low", "lift_high", "relative", "relative_low", "relative_high")
    keys = {"name", "index", "raw", *numbers, *lifts}
    assert all(arm.keys() == keys for arm in verdict["arms"])
    assert verdict["control"] == "now"
    assert [verdict["arms"][0][name] for name in lifts] == [0.0] * 6
    assert verdict["arms"][1]["relative_low"] > 1
    decision = verdict["decision"]
    assert (decision["word"], decision["variant"], decision["more"]) == ("ship", "short", None)
    assert shop("show", "shop").splitlines()[1] == lines[0]
    assert "level is 2" in shop("recommend", "shop", "--level", "2", status=1)


def test_recommend_says_which_intervals_are_for_a_look_on_the_way(shop: Run, run: Run) -> None:
    assert not facts(shop, "recommend", "shop")["anytime"]  # the budget is spent
    run("create", "test.toml", "--name", "early")
    run("ask", "early", "v1")
    run("tell", "early", "v1", "1")
    assert "a verdict needs the first 9 visits" in run("recommend", "early", status=1)
    units = [f"v{i}" for i in range(2, 40)]
    run("ask", "early", "-", stdin="\n".join(units))
    run("tell", "early", "-", stdin="\n".join(f"{unit},1" for unit in units))
    assert "before the end they hold only if" in run("recommend", "early", "--once")
    assert "before the end" not in run("recommend", "early")
    assert facts(run, "recommend", "early")["anytime"]


def test_what_is_not_known_is_null(run: Run) -> None:
    run("create", "test.toml")
    assert "no reward has been reported yet" in run("recommend", "shop", status=1)
    for i in range(9):
        run("ask", "shop", f"v{i}")
        run("tell", "shop", f"v{i}", "1")
    assert facts(run, "recommend", "shop")["arms"][0]["low"] is None
    assert "too few rewards" in run("recommend", "shop")


def test_health_drift_and_replay(shop: Run) -> None:
    assert shop("health", "shop").startswith("Health: ok\n")
    assert facts(shop, "health", "shop")["status"] == "ok"
    drift = shop("drift", "shop").splitlines()
    assert drift[0].startswith("variant ")
    assert [line.split()[0] for line in drift[1:4]] == ["now", "short", "long"]
    assert drift[2].startswith("short *")
    assert len(facts(shop, "drift", "shop", "--periods", "2")["periods"]) == 2
    assert "600 rewards" in shop("replay", "shop")
    found = facts(shop, "replay", "shop")
    assert found.pop("segments") > 1
    assert found == {
        "agrees": True,
        "assignments": 600,
        "rewards": 600,
        "differences": [],
        "corrections": 0,
        "events": 0,
    }


def test_what_may_be_unmeant_is_noted(run: Run) -> None:
    assert "Note:" not in run("create", "test.toml")
    few = 'name = "few"\narms = ["A", "B"]\nbudget = 19\n'
    Path("test.toml").write_text(few)
    assert "missing is not given; without a reward_range" in run("create", "test.toml", status=1)
    Path("test.toml").write_text(few + 'missing = "zero"\n')
    noted = run("create", "test.toml")
    assert "\nNote: without a reward_window nobody knows when a reward will not come" in noted
    assert "\nNote: the budget is small for so many variants; see steadyarm plan." in noted
    assert len(facts(run, "create", "test.toml", "--name", "b")["warnings"]) == 2


def test_missing_rewards_are_told_with_their_rule(run: Run) -> None:
    run("create", "test.toml")
    run("ask", "shop", "v1", "v2", "v3")
    run("tell", "shop", "v1", "1")
    shown = run("show", "shop")
    assert "1 reward recorded, 2 pending or missing" in shown
    assert "1 segment opened" in shown
    run("stop", "shop")
    assert "for their rewards" in run("recommend", "shop", status=1)  # their window is open
    Path("test.toml").write_text(TOML.replace('reward_window = "2d"\n', ""))
    run("create", "test.toml", "--name", "open")
    run("ask", "open", "v1", "v2", "v3")
    run("tell", "open", "v1", "1")
    run("stop", "open")
    rule = "2 rewards of judged visits are missing: a missing one counts as zero."
    assert rule in run("recommend", "open")


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
    assert "does not lead to what is stored" in printed.err


def test_states(run: Run) -> None:
    run("create", "test.toml", "--draft")
    assert facts(run, "ask", "shop", "v1")["arm"] == "now"  # the control, outside of the test
    assert "draft" in run("pause", "shop", status=1)
    assert run("start", "shop") == "shop is running: it assigns variants.\n"
    run("ask", "shop", "v1")
    assert "shop is paused" in run("pause", "shop")
    assert "outside of the test" in run("ask", "shop", "v2")
    run("tell", "shop", "v1", "1")
    assert facts(run, "resume", "shop")["state"] == "running"
    assert "shop is stopped" in run("stop", "shop")
    assert "shop" in run("resume", "shop", status=1)
    assert facts(run, "archive", "shop")["state"] == "archived"
    assert "archived" in run("tell", "shop", "v1", "1", status=1)
    assert not facts(run, "ask", "shop", "v1")["new"]  # who has a variant keeps it


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_export(shop: Run, suffix: str) -> None:
    file = f"log.{suffix}"
    assert f"The log is in {file}, settings" in shop("export", "shop", file)
    written = facts(shop, "export", "shop", file)
    assert written == {"file": file, "description": f"{file}.experiment.json"}
    assert "ends with '.txt'" in shop("export", "shop", "log.txt", status=1)


def test_moving_to_postgresql_as_the_guide_says(shop: Run, postgres: str) -> None:
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CREATE DATABASE guide")
    there = make_url(postgres).set(drivername="postgresql+psycopg", database="guide")
    before = facts(shop, "recommend", "shop")
    guide = GUIDE.read_text().split("### From SQLite to PostgreSQL", 1)[1].split("```")[1]
    commands = [line.split()[1:] for line in guide.splitlines()[1:]]
    assert [words[:2] for words in commands] == [["storage", "copy"], ["storage", "check"]]
    url = there.render_as_string(hide_password=False)
    for words in commands:
        assert main([url if word.startswith("postgresql") else word for word in words]) == 0
    assert facts(shop, "recommend", "shop", "--storage", url) == before
    assert facts(shop, "show", "shop", "--storage", url)["state"] == "running"
    assert main(["storage", "status", "--storage", url]) == 0


@pytest.mark.parametrize("verb", ["create", "ask", "tell", "recommend", "export", "drift"])
def test_every_verb_explains_itself(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["experiment", verb, "--help"])
    assert "--storage URL" in capsys.readouterr().out


def test_a_missing_folder_is_not_an_empty_storage(run: Run) -> None:
    assert run("list") == (
        "There are no experiments yet; create one with steadyarm experiment create.\n"
    )
    said = run("list", "--storage", "sqlite:///nowhere/tests.db", status=1)
    assert "the folder nowhere does not exist" in said


def test_a_time_before_1970_is_named_as_people_write_it(shop: Run) -> None:
    said = shop("tell", "shop", "v1", "1", "--at", "1960-01-31T12:00Z", status=1)
    assert "the time is 1960-01-31 12:00:00+00:00; expected one after 1970." in said
