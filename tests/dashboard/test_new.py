"""The page for a new experiment, through the application: form, preview, planner, creation."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx2
import pytest

import steadyarm as sa
from steadyarm.cli.main import main
from steadyarm.dashboard import forms
from steadyarm.dashboard.forms import PLANNED, USUAL, planned, read_question
from steadyarm.live.lifecycle import load_experiment
from steadyarm.storages.changes import Scope
from tests.dashboard.clients import Browser, Guarded, dashboard

HOSTILE = '<script>alert("x")</script>'
GOOD = {"name": "layout", "variants": "now\none page", "budget": "5,000", "seed": "3"}
PARTS = {
    "name": "parts",
    "kind": "factorial",
    "factor": ["head", "image"],
    "levels": ["short, long", f"cat\n{HOSTILE}"],
    "budget": "5000",
    "seed": "3",
}
ASKED = {"plan_rate": "10", "plan_gap": "5", "plan_traffic": "500", "plan_error": "10"}
JSON = {"Accept": "application/json"}


@pytest.fixture
def browser() -> Iterator[Browser]:
    with dashboard() as found:
        yield found


def settings_in(browser: Browser, name: str) -> dict[str, Any]:
    storage = browser.app.state.service.storage
    return load_experiment(name, storage).settings.to_dict()


def content(answer: httpx2.Response) -> dict[str, Any]:
    found: dict[str, Any] = answer.json()
    return found


class Markup(HTMLParser):
    """Tags with their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def ids(self) -> list[str]:
        return [given["id"] for _, given in self.tags if "id" in given]


def test_the_page_has_every_field_with_its_label(browser: Browser) -> None:
    answer = browser.get("/new")
    assert answer.status_code == 200
    markup = Markup(answer.text)
    ids, named = markup.ids(), {given.get("name") for _, given in markup.tags}
    assert len(ids) == len(set(ids))
    assert {*USUAL, *PLANNED, "factor", "levels"} <= named
    labelled = {given.get("for") for tag, given in markup.tags if tag == "label"}
    for tag, given in markup.tags:
        for described in given.get("aria-describedby", "").split():
            assert described in ids
        typed = tag in ("textarea", "select") or given.get("type") == "text"
        if typed:
            assert given["id"] in labelled
        assert not any(name.startswith("on") for name in given)
        if tag == "script":
            assert given["src"].startswith("/static/")


def test_a_submitted_form_makes_the_experiment(browser: Browser) -> None:
    answer = browser.post_form("/new", GOOD)
    assert answer.status_code == 303
    assert answer.headers["location"] == "/experiments/layout"
    storage = browser.app.state.service.storage
    assert storage.find("layout").state == "running"
    assert "layout" in browser.app.state.service.live
    assert browser.post_form("/new", GOOD | {"name": "later", "start": "draft"}).status_code == 303
    assert storage.find("later").state == "draft"


@pytest.mark.parametrize(
    "form",
    [
        GOOD,
        PARTS,
        GOOD | {"variants": f"{HOSTILE}\na \"b\" 'c' \\", "policy": "p1-rage"},
        GOOD | {"control": "now"},
        GOOD | {"control": "now", "control_share": "20", "min_share": "2", "window": ""},
    ],
)
def test_the_command_line_makes_the_same_from_the_file(
    form: dict[str, Any], browser: Browser, tmp_path: Path
) -> None:
    preview = content(browser.post_form("/new/preview", form, headers=JSON))
    assert preview["errors"] == {}
    file, storage = tmp_path / "test.toml", f"sqlite:///{tmp_path}/tests.db"
    file.write_text(preview["toml"], encoding="utf-8")
    main(["experiment", "create", str(file), "--storage", storage])
    assert browser.post_form("/new", form).status_code == 303
    name = str(form["name"])
    with load_experiment(name, storage) as made:
        assert made.settings.to_dict() == settings_in(browser, name)


def test_a_preview_creates_nothing_and_warns(browser: Browser) -> None:
    preview = content(browser.post_form("/new/preview", GOOD | {"window": "", "budget": "12"}))
    assert preview["command"] == "steadyarm experiment create layout.toml"
    assert preview["variants"] == 2
    assert preview["names"] == ["now", "one page"]
    assert len(preview["cautions"]) == 2
    assert browser.app.state.service.storage.summaries() == []
    draft = content(browser.post_form("/new/preview", GOOD | {"start": "draft"}))
    assert draft["command"].endswith(" --draft")


def test_a_preview_tells_errors_by_field(browser: Browser) -> None:
    preview = content(browser.post_form("/new/preview", {"variants": "a\na"}))
    assert set(preview["errors"]) == {"name", "variants", "budget"}
    assert preview["toml"] is None
    other = PARTS | {"control": "head=short", "control_share": "10"}
    assert "no variant" in content(browser.post_form("/new/preview", other))["errors"]["control"]


def test_large_tests_are_previewed_without_being_tried(browser: Browser) -> None:
    many = GOOD | {"variants": "\n".join(map(str, range(2000)))}
    preview = content(browser.post_form("/new/preview", many))
    assert (preview["variants"], preview["errors"]) == (2000, {})
    assert preview["names"] == [str(number) for number in range(300)]
    assert '"1999"' in preview["toml"]


def test_errors_show_the_form_again_with_what_was_typed(browser: Browser) -> None:
    typed = PARTS | {"name": f"{HOSTILE}", "budget": "some", "control": '"><b>'}
    answer = browser.post_form("/new", typed)
    assert answer.status_code == 422
    assert HOSTILE not in answer.text
    assert '"><b>' not in answer.text
    markup = Markup(answer.text)
    values = {g["name"]: g.get("value") for t, g in markup.tags if t == "input" and "name" in g}
    assert values["name"] == HOSTILE
    assert values["budget"] == "some"
    assert values["control"] == '"><b>'
    assert f"cat\n{HOSTILE}" in unescape(answer.text)
    summary = [given for _, given in markup.tags if given.get("role") == "alert"]
    assert len(summary) == 1
    links = {given["href"] for tag, given in markup.tags if tag == "a" and "href" in given}
    wrong = {given["id"] for _, given in markup.tags if given.get("aria-invalid") == "true"}
    assert wrong == {"f-name", "f-budget", "f-control"}
    assert {f"#{id_}" for id_ in wrong} <= links
    assert browser.app.state.service.storage.summaries() == []


def test_a_name_that_is_taken_is_told_at_its_field(free: Browser) -> None:
    answer = free.post_form("/new", GOOD | {"name": "shop"})
    assert answer.status_code == 409
    assert "There is a test called shop already" in answer.text
    assert settings_in(free, "shop")["budget"] == 1000


def test_what_only_the_settings_notice_is_told_too(browser: Browser) -> None:
    answer = browser.post_form("/new", PARTS | {"control": "none", "control_share": "5"})
    assert answer.status_code == 422
    assert "which is no variant" in answer.text


@pytest.mark.parametrize("path", ["/new", "/new/preview", "/new/plan"])
def test_only_admins_may(path: str, guarded: Guarded) -> None:
    browser, storage, tokens = guarded
    scopes: tuple[Scope, ...] = ("read", "write")
    for scope in scopes:
        browser.cookies.clear()
        browser.sign_in(tokens[scope])
        refused = browser.post_form(path, GOOD)
        assert refused.status_code == 403
        assert f"which has the scope {scope}; this needs admin" in refused.text
        assert browser.get("/new").status_code == 403
    browser.cookies.clear()
    assert [record.name for record in storage.summaries()] == ["shop"]
    browser.sign_in(tokens["admin"])
    assert browser.get("/new").status_code == 200
    assert browser.post_form("/new", GOOD).status_code == 303


@pytest.mark.parametrize("path", ["/new", "/new/preview", "/new/plan"])
def test_nothing_goes_without_the_key(path: str, browser: Browser) -> None:
    browser.get("/new")
    assert browser.post_form(path, GOOD | {"csrf": "x"}).status_code == 403
    assert browser.request("POST", path, data=GOOD).status_code == 403
    assert browser.app.state.service.storage.summaries() == []


@pytest.mark.parametrize("form", [GOOD, PARTS | {"interactions": "1"}])
def test_the_planner_shows_the_numbers_of_plan(form: dict[str, Any], browser: Browser) -> None:
    answer = browser.post_form("/new/plan", form | ASKED, headers=JSON)
    assert answer.status_code == 200
    found = content(answer)
    arms: dict[str, Any] = {"one_hot": ["now", "one page"]}
    if form["name"] == "parts":
        factors = {"head": ["short", "long"], "image": ["cat", HOSTILE]}
        arms = {"factorial": factors, "interactions": 1}
    plan = sa.plan(
        {
            "traffic_per_day": 500,
            "most_days": 62,
            "error": 0.1,
            "arms": arms,
            "effects": {"smallest_gap": 0.05},
            "rewards": {"rate": 0.1, "delay": 2},
            "stop": "when sure",
            "policies": ["steady", "a/b-test"],
        },
        trials=400,
    )
    need = plan.line("Steady").asked.need
    assert need.budget is not None
    assert (found["budget"], found["days"]) == (need.budget, need.days)
    assert f"{need.budget:,} visitors" in found["sentence"]
    clear = plan.line("Steady").clear
    assert clear is not None
    assert clear.need.budget is not None
    assert (found["clear_budget"], found["clear_days"]) == (clear.need.budget, clear.need.days)
    assert found["expected"] == clear.check.visits
    assert "all other variants are ruled out" in found["answers"][0]
    assert f"{clear.need.budget:,} visitors" in found["answers"][1]
    assert found["looks"] == "8"
    assert [row[0] for row in found["table"]["rows"]] == [f"{b:,}" for b in plan.budgets]
    assert found["figure"]["data"]
    assert found["dark_figure"]["config"] != found["figure"]["config"]


def test_amounts_are_planned_and_fewer_is_more_of_its_absence() -> None:
    fields = {key: [value] for key, value in (GOOD | ASKED).items()}
    amounts = fields | {"range": ["none"], "plan_sd": ["2"], "plan_difference": ["0.5"]}
    asked = read_question(amounts).settings
    assert (asked["rewards"]["sd"], asked["effects"]) == (2.0, {"smallest_gap": 0.5})
    less = read_question(fields | {"direction": ["minimize"]}).settings
    assert less["rewards"]["rate"] == 0.9


def test_the_planner_takes_over_what_the_form_says() -> None:
    fields = {key: [value] for key, value in (GOOD | ASKED).items()}
    more = {
        "control": ["now"],
        "range": ["custom"],
        "range_low": ["1"],
        "range_high": ["5"],
        "window": ["2"],
        "window_unit": ["w"],
        "covariates": ["visits"],
        "plan_correlation": ["0.6"],
        "plan_rhythm": ["weekend"],
        "stop": ["recommend"],
        "looks": ["daily"],
    }
    asked = read_question(fields | more)
    assert not asked.errors
    settings = asked.settings
    assert settings["rewards"] == {
        "sd": 1.0,
        "correlation": 0.6,
        "delay": 14.0 + 7.0,
    }  # and its grace
    assert settings["rhythm"] == {"kind": "weekend"}
    assert (settings["control"], settings["looks"]) == ("now", "daily")
    assert settings["most_days"] == 60 + 21
    question = sa.Question.from_settings({**settings, "policies": ["steady"]})
    assert question.days(500) == 7 + 21
    halving = read_question(fields | {"policy": ["sequential-halving"]}).settings
    assert "stop" not in halving  # it has no intervals that hold at looks
    without = read_question(fields | {"window": [""], "covariates": [" "]}).settings
    assert without["rewards"] == {"rate": 0.1}


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ({"variants": "one"}, "variants"),
        ({"plan_rate": "0"}, "plan_rate"),
        ({"plan_rate": "98"}, "plan_gap"),
        ({"plan_gap": "x"}, "plan_gap"),
        ({"plan_traffic": "0"}, "plan_traffic"),
        ({"plan_days": "5000"}, "plan_days"),
        ({"plan_error": "0.1"}, "plan_error"),
        ({"range": "none", "plan_sd": "-1"}, "plan_sd"),
        ({"range": "none", "plan_sd": ""}, "plan_sd"),
        ({"range": "custom", "range_low": "5", "range_high": "1"}, "range_high"),
        ({"plan_clear": "100"}, "plan_clear"),
        ({"plan_rhythm": "tides"}, "plan_rhythm"),
        ({"covariates": "visits", "plan_correlation": "1"}, "plan_correlation"),
        ({"variants": "\n".join(map(str, range(201)))}, "plan"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(
    wrong: dict[str, str], key: str, browser: Browser
) -> None:
    answer = browser.post_form("/new/plan", GOOD | ASKED | wrong, headers=JSON)
    assert answer.status_code == 422
    assert set(content(answer)["errors"]) == {key}


def test_too_few_days_are_content(browser: Browser) -> None:
    found = content(
        browser.post_form(
            "/new/plan", GOOD | ASKED | {"plan_days": "1", "plan_gap": "1", "window": ""}
        )
    )
    assert found["budget"] is None
    assert found["sentence"].startswith("1 day is not enough: after 500 visitors")


def test_what_takes_long_is_planned_with_a_fixed_split() -> None:
    parts = {
        "kind": ["factorial"],
        "factor": ["a", "b", "c"],
        "levels": ["1,2", "1,2,3", "1,2,3,4"],
    }
    asked = read_question(parts | {key: [value] for key, value in ASKED.items()})
    found = planned(asked)
    assert found["policy"] == "G-BAI"
    assert "takes too long to simulate" in found["sentence"]


def test_one_plan_at_a_time(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go = threading.Event(), threading.Event()

    def slow(*given: Any, **more: Any) -> Any:
        begun.set()
        assert go.wait(60)
        return sa.plan(*given, **more)

    monkeypatch.setattr(forms, "plan", slow)
    browser.get("/new")
    first: list[httpx2.Response] = []
    thread = threading.Thread(
        target=lambda: first.append(browser.post_form("/new/plan", GOOD | ASKED))
    )
    thread.start()
    try:
        assert begun.wait(60)
        second = browser.post_form("/new/plan", GOOD | ASKED, headers=JSON)
        assert second.status_code == 429
        assert second.headers["retry-after"] == "5"
        assert "try again" in content(second)["errors"]["plan"]
        assert browser.get("/healthz").status_code == 200  # traffic goes on meanwhile
    finally:
        go.set()
        thread.join(60)
    assert first[0].status_code == 200
    assert browser.post_form("/new/plan", GOOD | ASKED).status_code == 200
