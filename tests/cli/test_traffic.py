"""`steadyarm experiment ask` and `tell`: one, many, and from standard input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import steadyarm as sa
from steadyarm.cli.main import main
from steadyarm.cli.traffic import read_rewards, read_units
from tests.cli.conftest import Run, facts


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
