"""Every setting and every answer survives storage, REST, the client, the CLI and the page."""

from __future__ import annotations

import io
import json
import math
import tomllib
from contextlib import redirect_stdout
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import steadyarm as sa
from steadyarm.cli.main import main
from steadyarm.dashboard.app import create_app
from steadyarm.environments.families import arms_from_settings
from steadyarm.errors import InvalidInputError
from steadyarm.live.lifecycle import create_from_description, description_of
from steadyarm.live.settings import Settings
from steadyarm.policies import POLICIES
from steadyarm.service.settings import ServiceSettings
from steadyarm.storages import open_storage
from steadyarm.wording import toml_of
from tests.service.clients import InProcess, in_process, served

WINDOW = {"reward_range": [0, 1], "reward_window": "1d"}
REVENUE = {"name": "revenue", "kind": "money", "several": "sum", "window": "7d", "cap": 500.0}
BOUGHT = {"name": "bought", "role": "primary", "kind": "yes/no", "window": "1d"}
ERRORS = {"name": "errors", "role": "guardrail", "direction": "minimize", "margin": 0.1}
MANY = {"budget": 20_000}
SETTINGS: dict[str, dict[str, Any]] = {
    "names": {},
    "factorial": {"arms": {"factorial": {"a": ["red", "blue"], "b": list("xyz")}}},
    "bundles": {"arms": {"bundles": ["a", "b", "c"], "size": 2}, "missing": "fail"},
    "features": {"arms": {"features": [[1, 0], [0, 1], [1, 1]]}},
    "large": {"arms": {"factorial": {f"slot {i}": ["on", "off"] for i in range(13)}}} | MANY,
    "policy": {"policy": {"name": "p1-rage"}},
    "direction": {"direction": "minimize"},
    "window": WINDOW | {"reward_grace": "2h"},
    "zero": WINDOW | {"missing": "zero"},
    "sticky": {"sticky": "none"},
    "control": {"control": {"A": 0.25}, "min_share": {"B": 0.1}},
    "metrics": {"control": "A", "metrics": [BOUGHT, REVENUE, ERRORS]},
    "attributes": {"attributes": {"device": ["mobile", "desktop"]}},
    "covariates": {"covariates": ["spend", "expected"]},
    "stop": {"stop": "when sure", "looks": "weekly", "spending": "pocock", "futility": 0.02},
    "values": {"values": {"A": 1, "B": {"price": [9, None]}, "C": "x"}},
    "bulk": {"bulk": True},
    "traffic": {"traffic": 0.1, "layer": "checkout", "control": "A"},
    "after": {"after": "refuse"},
    "about": {"about": {"hypothesis": "B sells", "tags": ["shop", "2026"]}},
}
BASE: dict[str, Any] = {"arms": ["A", "B", "C"], "budget": 600, "policy": "steady", "seed": 7}


@pytest.mark.parametrize("case", SETTINGS)
def test_a_setting_survives_every_layer(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    description = BASE | SETTINGS[case]
    if case != "metrics":  # these say themselves what is missing
        description = {"missing": "drop"} | description
    url = f"sqlite:///{tmp_path}/tests.db"
    with create_from_description("python", description, url) as made:
        settings = made.settings
    usual = Settings(sa.ArmSet.one_hot(list("ABC")), sa.Steady(), 600, 7, missing="drop")
    own = {field.name for field in fields(Settings)}
    for name in SETTINGS[case].keys() & own:
        assert getattr(settings, name) != getattr(usual, name), f"{name} was not taken"
    # the storage, and what describes the settings
    with sa.load_experiment("python", url) as loaded:
        assert loaded.settings == settings
    config = json.loads(json.dumps(settings.to_dict()))
    assert Settings.from_dict(config) == settings
    described = description_of(settings)
    with create_from_description("again", described, url) as again:
        assert again.settings == settings
    # REST
    with in_process(open_storage(url)) as client:
        posted = client.post("/v1/experiments", described | {"name": "rest"})
        assert posted.status_code == 201, posted.text
        answer = client.get("/v1/experiments/rest").json()["settings"]
    assert own <= answer.keys(), "a setting is not in the answer"
    for name in ("budget", "seed", "direction", "missing", "sticky", "control", "bulk", "after"):
        assert answer[name] == getattr(settings, name), name
    assert answer["covariates"] == list(settings.covariates)
    assert {name: tuple(answer["attributes"][name]) for name in answer["attributes"]} == {
        name: tuple(levels) for name, levels in settings.attributes.items()
    }
    assert [metric["name"] for metric in answer["metrics"]] == [m.name for m in settings.metrics]
    with sa.load_experiment("rest", url) as rest:
        assert rest.settings == settings
    # the command line
    if case != "values":  # TOML has no null
        (tmp_path / "test.toml").write_text(toml_of(described))
        monkeypatch.setenv("STEADYARM_STORAGE", url)
        with redirect_stdout(io.StringIO()):
            assert main(["experiment", "create", str(tmp_path / "test.toml"), "--name", "cli"]) == 0
        with sa.load_experiment("cli", url) as created:
            assert created.settings == settings


def test_every_setting_has_a_case() -> None:
    described = {name for case in SETTINGS.values() for name in case} | BASE.keys()
    assert {field.name for field in fields(Settings)} - described == {"control_share"}


def play(experiment: sa.Experiment) -> None:
    """A finished test with everything that can be known of a visit."""
    for i in range(experiment.budget):
        known = {"device": ("mobile", "desktop")[i % 2]}
        shown = experiment.ask(f"u{i}", known, {"spend": i % 7 / 7})
        bought = float((i * 7919) % 100 < 20 + 20 * shown.arm)
        experiment.tell(shown, {"bought": bought, "revenue": 10.0 * bought})


def known(value: Any) -> Any:
    """Floats as JSON has them: null for what is not a finite number."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def check_answer(answer: dict[str, Any], verdict: sa.Verdict) -> None:
    """Every number and text of a verdict is in the answer of a layer."""
    assert answer["arm"] == verdict.name
    same = ("level", "anytime", "rewards", "judged", "control", "variants", "sure", "caution")
    assert {name: answer[name] for name in same} == {name: getattr(verdict, name) for name in same}
    assert answer["decision"] == asdict(verdict.decision)
    columns = verdict.columns() | {"index": verdict.columns()["arm"]}
    for k, arm in enumerate(answer["arms"]):
        assert arm == {name: known(columns[name][k]) for name in arm}
    (metric,), (result,) = answer["metrics"], verdict.metrics
    assert (metric["metric"]["name"], metric["visits"]) == ("revenue", result.visits)
    rows = result.columns() | {"safety": [None, None]}
    for k, arm in enumerate(metric["arms"]):
        assert arm == {name: known(rows[name][k]) for name in arm}
    assert verdict.stopping is not None
    assert answer["stopping"]["text"] == verdict.stopping.text
    looks = [(look.number, look.boundary) for look in verdict.stopping.looks]
    assert [(look["number"], look["boundary"]) for look in answer["stopping"]["looks"]] == looks


def check_levels(answer: dict[str, Any], breakdown: sa.Breakdown) -> None:
    """Every level of a breakdown is in the answer of a layer."""
    assert answer["summary"] == breakdown.summary
    for level, result in zip(answer["levels"], breakdown.levels, strict=True):
        assert (level["name"], level["visits"]) == (result.name, result.visits)
        assert len(level["arms"]) == len(result.estimates)


def said_by_command(*words: str) -> Any:
    """What `steadyarm experiment recommend` prints as JSON, which knows no NaN."""
    out = io.StringIO()
    with redirect_stdout(out):
        assert main(["experiment", "recommend", *words, "--format", "json"]) == 0
    return json.loads(out.getvalue(), parse_constant=pytest.fail)


def test_an_answer_is_the_same_in_every_layer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/tests.db"
    with sa.create_experiment(
        "shop",
        ["A", "B"],
        sa.Steady(),
        400,
        url,
        seed=3,
        control="A",
        metrics=[sa.Metric("bought", role="primary", missing="drop"), sa.Metric("revenue")],
        attributes={"device": ["mobile", "desktop"]},
        covariates=["spend"],
        values={"A": {"price": 9}, "B": {"price": 12}},
        stop="recommend",
        looks=20,
    ) as experiment:
        play(experiment)
        verdict, status = experiment.recommend(), experiment.status()
        first, breakdown = experiment.ask("u1"), experiment.recommend(by="device")
    base = "/v1/experiments/shop"
    app = create_app(open_storage(url), ServiceSettings(access_log=False, warm=False))
    with InProcess(app) as client:
        check_answer(client.get(f"{base}/recommendation").json(), verdict)
        check_levels(client.get(f"{base}/breakdowns/device").json(), breakdown)
        page = client.get("/experiments/shop").text
        assert {word for word in (verdict.name, "device", "revenue") if word not in page} == set()
    with served(tmp_path) as server, sa.Client(server.url, timeout=60) as remote:
        shop = remote.experiment("shop")
        shown = shop.ask("u1")
        assert (shown.id, shown.arm, shown.new) == (first.id, first.name, False)
        assert shown.value == first.value == {"price": 9 if first.name == "A" else 12}
        totals = shop.status().totals
        assert totals.assigned == totals.rewarded == status.total_assigned == 400
        check_answer(msgspec.to_builtins(shop.recommend()), verdict)
    monkeypatch.setenv("STEADYARM_STORAGE", url)
    check_answer(said_by_command("shop"), verdict)
    check_levels(said_by_command("shop", "--by", "device"), breakdown)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"attributes": {"color": "red"}}, "attributes"),
        ({"attributes": {"device": 3}}, "attributes"),
        ({"covariates": {"color": 1.0}}, "covariates"),
        ({"covariates": {"spend": "much"}}, "covariates"),
        ({"unit": ""}, "unit"),
    ],
)
def test_bad_visits_are_refused_in_every_layer(given: dict[str, Any], field: str) -> None:
    declared = {"attributes": {"device": ["tv", "phone"]}, "covariates": ["spend"]}
    storage = open_storage("memory")
    with in_process(storage) as client:
        description = BASE | {"name": "shop", "missing": "drop"} | declared
        assert client.post("/v1/experiments", description).status_code == 201
        visit = {"unit": "u1"} | given
        refused = client.post("/v1/experiments/shop/assignments", visit)
        assert (refused.status_code, refused.json()["field"]) == (422, field)
        experiment = sa.load_experiment("shop", storage)
        with pytest.raises(sa.InvalidInputError):
            experiment.ask(visit["unit"], visit.get("attributes"), visit.get("covariates"))
        assert experiment.status().total_assigned == 0
        answers = experiment.ask_many(["u2", visit["unit"]], attributes=[{"device": "tv"}, None])
        taken = [isinstance(answer, sa.LiveAssignment) for answer in answers]
        assert taken == [True, field != "unit"]


# Descriptions as TOML


SCALARS = st.text() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=12
)


@given(st.text(), st.dictionaries(st.text().filter(lambda key: key != "name"), VALUES))
def test_whatever_is_written_is_read_again(name: str, description: dict[str, Any]) -> None:
    assert tomllib.loads(toml_of({"name": name, **description})) == {"name": name} | description


def test_what_toml_cannot_say_is_refused_and_what_is_usual_left_out() -> None:
    assert toml_of({"name": "x", "seed": None}) == 'name = "x"\n'
    with pytest.raises(InvalidInputError, match="None cannot be written as TOML"):
        toml_of({"control": {"A": None}})


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_is_described(name: str) -> None:
    arms = sa.ArmSet.factorial({"head <b>": ["a", "b"], "image": ["1", "2", "3"]})
    settings = Settings(arms, POLICIES[name](), 100, seed=1, missing="drop")
    description = description_of(settings)
    assert create_from_description("x", description, "memory").settings.policy == settings.policy


@pytest.mark.parametrize(
    "arms",
    [
        sa.ArmSet.factorial({f"slot {i}": ["off", "on, not off"] for i in range(16)}),
        sa.ArmSet.factorial({f"{i}": list("abcdefgh") for i in range(5)}, 1, constant=False),
        sa.ArmSet.bundles([f"item {i}" for i in range(24)], 4),
    ],
    ids=["factorial", "alone", "bundles"],
)
def test_large_sets_are_described_by_their_recipe(arms: sa.ArmSet) -> None:
    assert arms.large
    given: dict[str, Any] = {"control": {arms.names[3]: 0.1}, "missing": "drop"}
    text = toml_of(description_of(Settings(arms, sa.Uniform(), 10, seed=1, **given)))
    assert len(text) < 2_000
    read = tomllib.loads(text)
    assert read["control"] == given["control"]
    assert arms_from_settings(read["arms"]) == arms
