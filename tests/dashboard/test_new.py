"""The page for a new experiment: its form, the same as TOML and Python, the planner."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import steadyarm as sa
from steadyarm.cli.main import main
from steadyarm.dashboard import forms
from steadyarm.dashboard.forms import (
    METRIC,
    USUAL,
    fields_of,
    not_copied,
    read_form,
    read_question,
)
from tests.dashboard.clients import Browser

EVIL = '<script>alert("x")</script>'
GOOD: dict[str, Any] = {
    "name": "layout",
    "variants": "standard\r\none page\r\n",
    "budget": "10,000",
    "metric_name": "purchase",
    "metric_window": "1 day",
}
METRICS = {
    "metric_name": ["purchase", "revenue", "loading", " "],
    "metric_event": ["", "purchase", "", ""],
    "metric_kind": ["yes/no", "money", "number", "count"],
    "metric_unit": ["", "€", "s", ""],
    "metric_role": ["primary", "secondary", "guardrail", "guardrail"],
    "metric_direction": ["maximize", "maximize", "minimize", "maximize"],
    "metric_window": ["1.5 hours", "7d", "", ""],
    "metric_margin": ["", "2", "0,1", "7"],
}
ALL = METRICS | {
    "variants": 'standard = #c00\none page = {"price": [9.5, true]}',
    "control": "standard",
    "policy": "uniform",
    "attributes": "device = mobile, desktop\ncountry = DE, FR",
    "covariates": "visits, spend",
    "looks": "daily",
    "share": "50",
    "layer": "checkout",
    "hypothesis": "One page is quicker.\r\nMore buy.",
    "owner": "Ada",
    "tags": "shop, 2026",
    "start": "draft",
}
PLAN = {"plan_rate": "10", "plan_gap": "5", "traffic": "500", "plan_error": "10"}
JSON = {"Accept": "application/json"}
HUNDREDS = "\n".join(map(str, range(400)))


def sent(*fields: dict[str, Any]) -> dict[str, list[str]]:
    """A form as it is sent: every field has a list of values."""
    typed: dict[str, Any] = {}
    for more in fields:
        typed |= more
    return {key: [value] if isinstance(value, str) else value for key, value in typed.items()}


def planned(browser: Browser, *fields: dict[str, Any]) -> httpx2.Response:
    typed: dict[str, Any] = {}
    for more in (GOOD, PLAN, *fields):
        typed |= more
    return browser.post_form("/new/plan", typed, headers=JSON)


def test_a_form_becomes_a_description() -> None:
    usual = read_form(sent(GOOD))
    assert (usual.errors, usual.start, usual.variants) == ({}, True, 2)
    assert usual.settings is not None
    assert usual.settings.arms.names == ("standard", "one page")
    assert usual.settings.cautions() == []
    assert (usual.settings.reward_range, usual.settings.reward_window) == ((0.0, 1.0), 86_400.0)
    form = read_form(sent(GOOD, ALL))
    assert (form.errors, form.start) == ({}, False)
    assert form.description == {
        "arms": ["standard", "one page"],
        "values": {"standard": "#c00", "one page": {"price": [9.5, True]}},
        "budget": 10_000,
        "policy": "uniform",
        "control": "standard",
        "metrics": [
            {"name": "purchase", "kind": "yes/no", "role": "primary", "window": "1.5 hours"},
            {
                "name": "revenue",
                "event": "purchase",
                "kind": "money",
                "unit": "€",
                "window": "7d",
                "several": "sum",
            },
            {
                "name": "loading",
                "kind": "number",
                "unit": "s",
                "role": "guardrail",
                "direction": "minimize",
                "margin": 0.1,
            },
        ],
        "attributes": {"device": ["mobile", "desktop"], "country": ["DE", "FR"]},
        "covariates": ["visits", "spend"],
        "stop": "when sure",
        "looks": "daily",
        "traffic": 0.5,
        "layer": "checkout",
        "about": {
            "hypothesis": "One page is quicker.\r\nMore buy.",
            "owner": "Ada",
            "tags": ["shop", "2026"],
        },
    }
    assert form.settings is not None
    assert form.settings.reward_window == 5400.0
    assert [metric.name for metric in form.settings.metrics] == ["purchase", "revenue", "loading"]


LISTS = [f"metric_{key}" for key in METRIC]


@settings(max_examples=20)
@given(st.dictionaries(st.sampled_from([*USUAL, *LISTS]), st.lists(st.text())))
def test_any_form_is_read_and_what_was_typed_stays(typed: dict[str, list[str]]) -> None:
    form = read_form(typed)
    for key in USUAL:
        assert form.values[key] == (typed[key][-1] if typed.get(key) else USUAL[key])
    names = typed.get("metric_name", [""]) or [""]
    assert form.metrics[0]["name"] == names[0]


@pytest.mark.parametrize("form", [GOOD, GOOD | ALL, GOOD | {"variants": HUNDREDS}])
def test_form_toml_and_python_create_the_same_experiment(
    form: dict[str, Any], empty: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preview = empty.post_form("/new/preview", form).json()
    assert preview["errors"] == {}
    assert preview["duration"] == "10,000 visitors take about 10 days."
    storage = empty.app.state.service.storage
    assert storage.summaries() == []
    created = empty.post_form("/new", form)
    assert created.headers["location"] == "/experiments/layout"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEADYARM_STORAGE", f"sqlite:///{tmp_path}/by-command.db")
    Path("layout.toml").write_text(preview["toml"])
    assert main(preview["command"].split()[1:]) == 0
    monkeypatch.setenv("STEADYARM_STORAGE", f"sqlite:///{tmp_path}/by-python.db")
    spoken: dict[str, Any] = {}
    exec(compile(preview["python"], "form", "exec"), spoken)
    spoken["test"].close()
    by_form = sa.load_experiment("layout", storage)
    assert by_form.state == ("draft" if form.get("start") else "running")
    for how in ("command", "python"):
        with sa.load_experiment("layout", f"sqlite:///{tmp_path}/by-{how}.db") as other:
            settings = by_form.settings.to_dict(), other.settings.to_dict()
            for described in settings:
                del described["seed"]  # drawn
            assert settings[0] == settings[1]
            assert by_form.state == other.state


def test_a_test_is_cloned_in_the_form_and_a_draft_deleted(empty: Browser) -> None:
    empty.post_form("/new", GOOD | ALL)
    href = "/experiments/layout"
    page = empty.get(href).text
    assert "One page is quicker." in page
    assert 'href="/new?from=layout"' in page
    found = [href in empty.get(f"/?q={q}").text for q in ("2026", "2027")]
    assert found == [True, False]
    settings = sa.load_experiment("layout", empty.app.state.service.storage).settings
    fields = fields_of(settings)
    again = read_form(fields | {"name": ["again"]})
    assert not_copied(settings, again) == []
    assert again.errors == {}
    copied = empty.get("/new?from=layout").text
    assert "Copied from" in copied
    assert "not copied" not in copied
    assert "One page is quicker." in copied
    described = {"budget": 90, "arms": ["A", "B"], "min_share": 0.1, "missing": "drop", "name": "x"}
    assert empty.post("/v1/experiments", described).status_code == 201
    assert "not copied: reward_window" not in (page := empty.get("/new?from=x").text)
    assert "min_share" in page
    assert empty.post_form("/experiments/x/delete").status_code == 409  # it runs
    assert empty.post_form("/experiments/layout/delete").headers["location"] == "/"
    assert empty.get("/experiments/layout").status_code == 404
    assert empty.post_form("/new", GOOD).status_code == 303  # the name is free again


def test_a_preview_shows_what_is_known(empty: Browser) -> None:
    risky = empty.post_form("/new/preview", GOOD | {"metric_window": "", "budget": "12"}).json()
    assert (risky["variants"], risky["names"]) == (2, ["standard", "one page"])
    assert len(risky["cautions"]) == 2
    wrong = empty.post_form("/new/preview", {"variants": "a\na"}).json()
    assert set(wrong["errors"]) == {"name", "variants", "budget", "metric-0"}
    assert wrong["toml"] is wrong["python"] is None
    many = {"variants": "\n".join(map(str, range(2000)))}  # too many to be tried meanwhile
    large = empty.post_form("/new/preview", GOOD | many).json()
    assert (large["variants"], large["errors"], len(large["names"])) == (2000, {}, 300)


def test_the_planner_shows_the_numbers_of_plan(empty: Browser) -> None:
    shown = planned(empty, {"policy": "uniform"}).json()
    plan = sa.plan(
        {
            "traffic_per_day": 500,
            "most_days": 62,
            "error": 0.1,
            "arms": {"one_hot": ["standard", "one page"]},
            "effects": {"smallest_gap": 0.05},
            "rewards": {"rate": 0.1, "delay": 2},
            "stop": "when sure",
            "looks": "weekly",
            "policies": ["uniform"],
        },
        trials=400,
    )
    (line,) = plan.lines
    assert line.clear is not None
    assert shown["verdict"] == plan.verdict.splitlines()
    needs = [line.asked.budget, line.clear.budget]  # stopping would hardly save visits
    assert [use["budget"] for use in shown["uses"]] == needs
    figures = shown["figures"]
    assert figures["light"]["data"] == figures["dark"]["data"]
    assert figures["light"]["config"] != figures["dark"]["config"]


def test_the_planner_takes_over_what_the_form_says() -> None:
    money = {"metric_name": "revenue", "metric_kind": "money", "metric_window": "2w"}
    settings, errors = read_question(
        sent(GOOD, PLAN, ALL, money, {"plan_correlation": "0.6", "plan_sd": "2"})
    )
    assert not errors
    assert settings["rewards"] == {"sd": 2.0, "correlation": 0.6, "delay": 21.0}  # with its grace
    assert (settings["control"], settings["looks"]) == ("standard", "daily")
    assert settings["effects"] == {"smallest_gap": 0.1}
    assert settings["most_days"] == 60 + 21
    assert sa.Question.from_settings(settings).days(500) == 1 + 21
    fewer, _ = read_question(
        sent(GOOD, PLAN, {"metric_direction": "minimize", "metric_window": ""})
    )
    assert fewer["rewards"] == {"rate": 0.9}  # fewer clicks are more of their absence


def test_one_plan_at_a_time(empty: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    alone, together = threading.Lock(), list[bool]()

    def notice(*_: Any, **__: Any) -> Any:
        together.append(not alone.acquire(blocking=False))
        time.sleep(0.2)
        alone.release()
        raise sa.InvalidInputError("no plan")

    monkeypatch.setattr(forms, "plan", notice)
    empty.get("/new")
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(lambda _: planned(empty), range(3)))
    assert [answer.status_code for answer in answers] == [422] * 3
    assert together == [False] * 3


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"name": EVIL}, "name", "up to 100 letters"),
    ({"variants": "one"}, "variants", "a test needs at least 2"),
    ({"variants": "a\nb\na"}, "variants", "names must differ"),
    ({"variants": "a\nb\x07"}, "variants", "a string that can be read"),
    ({"variants": "\n".join(map(str, range(2001)))}, "variants", "2,001 variants; at most"),
    ({"variants": "a = 1\nb"}, "variants", "alues are missing for"),
    ({"variants": "a = null\nb = 1"}, "variants", "cannot be written as TOML"),
    ({"budget": "0"}, "budget", "This is 0; expected a whole number of at least 1."),
    ({"budget": "10.000"}, "budget", "Enter a whole number, e.g. 1000."),
    ({"budget": "9" * 31}, "budget", "Enter a whole number"),
    ({"traffic": "0"}, "traffic", "Enter a whole number from 1"),
    ({"policy": "peace"}, "policy", "not one of the choices"),
    ({"metric_name": " "}, "metric-0", "Enter a name, e.g. purchase."),
    ({"metric_name": "1st"}, "metric-0", "the first a letter"),
    ({"metric_window": "soon"}, "metric-0", "a time above 0"),
    ({"metric_kind": "clicks"}, "metric-0", "expected one of"),
    (METRICS | {"metric_margin": ["", "", "x"], "control": "standard"}, "metric-2", "acceptable"),
    (
        METRICS | {"metric_name": ["a", "a", "b"], "control": "standard"},
        "metrics",
        "two metrics are called",
    ),
    (METRICS, "control", "control"),
    ({"control": "else"}, "control", "else"),
    ({"attributes": "device"}, "attributes", "e.g. device = mobile, desktop"),
    ({"covariates": "a,a"}, "covariates", "twice"),
    ({"share": "0"}, "share", "above 0"),
    ({"share": "50"}, "control", "set control"),
    ({"owner": "A" * 2001}, "owner", "up to 2,000 characters"),
]


@pytest.mark.parametrize(("wrong", "key", "text"), WRONG)
def test_errors_stand_at_their_fields(wrong: dict[str, Any], key: str, text: str) -> None:
    form = read_form(sent(GOOD, wrong))
    assert list(form.errors) == [key]
    assert text in form.errors[key]


def test_a_wrong_form_is_shown_again_and_creates_nothing(free: Browser) -> None:
    answer = free.post_form("/new", GOOD | {"name": EVIL, "metric_name": EVIL, "control": '"><b>'})
    assert answer.status_code == 422
    assert EVIL not in answer.text
    assert '"><b>' not in answer.text
    taken = free.post_form("/new", GOOD | {"name": "shop"})
    assert taken.status_code == 409
    assert "There is a test called shop already" in taken.text
    assert len(free.app.state.service.storage.summaries()) == 1


def test_a_question_that_makes_no_sense_is_refused(empty: Browser) -> None:
    for wrong, key in (
        ({"variants": "one"}, "variants"),
        ({"plan_rate": "0"}, "plan_rate"),
        ({"plan_rate": "98"}, "plan_gap"),
        ({"traffic": "0"}, "traffic"),
        ({"plan_days": "5000"}, "plan_days"),
        ({"plan_error": "0.001"}, "plan"),
        ({"metric_kind": "money", "plan_sd": ""}, "plan_sd"),
        ({"plan_clear": "100"}, "plan_clear"),
        ({"covariates": "visits", "plan_correlation": "1"}, "plan_correlation"),
        ({"variants": HUNDREDS}, "plan"),
    ):
        answer = planned(empty, wrong)
        assert answer.status_code == 422
        assert set(answer.json()["errors"]) == {key}
    short = planned(empty, {"plan_days": "1", "plan_gap": "1", "metric_window": ""}).json()
    assert "500 visits in 1 day" in short["verdict"][0]
    assert short["uses"] == []
