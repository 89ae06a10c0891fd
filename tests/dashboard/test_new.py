"""The page for a new experiment: its form, the same as a file, the planner, creation."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

import steadyarm as sa
from steadyarm.cli.main import main
from steadyarm.dashboard import forms
from steadyarm.dashboard.forms import USUAL, read_form, read_question
from tests.dashboard.clients import Browser

EVIL = '<script>alert("x")</script>'
GOOD = {"name": "layout", "variants": "now\r\none page\r\n", "budget": "10,000"}
PARTS = GOOD | {
    "kind": "factorial",
    "factor": ["head", "image"],
    "levels": ["short, long", f"cat\n{EVIL}"],
}
ALL = {
    "kind": "variants",
    "control": "now",
    "policy": "uniform",
    "direction": "minimize",
    "range": "custom",
    "range_low": "-1,5",
    "range_high": "5",
    "window": "1.5",
    "window_unit": "h",
    "missing": "drop",
    "covariates": "visits, spend",
    "stop": "sure",
    "looks": "8",
    "start": "draft",
}
PLAN = {"plan_rate": "10", "plan_gap": "5", "plan_traffic": "500", "plan_error": "10"}
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
    assert usual.settings.arms.names == ("now", "one page")
    assert usual.settings.cautions() == []
    assert (usual.settings.reward_range, usual.settings.reward_window) == ((0.0, 1.0), 86_400.0)
    form = read_form(sent(GOOD, ALL))
    assert (form.errors, form.start) == ({}, False)
    assert form.description == {
        "arms": ["now", "one page"],
        "budget": 10_000,
        "policy": "uniform",
        "direction": "minimize",
        "reward_range": [-1.5, 5.0],
        "reward_window": "1.5h",
        "missing": "drop",
        "control": "now",
        "covariates": ["visits", "spend"],
        "stop": "when sure",
        "looks": 8,
    }
    assert form.settings is not None
    assert form.settings.reward_window == 5400.0
    parts = read_form(sent(PARTS, {"interactions": "1"}))
    assert (parts.errors, parts.variants) == ({}, 4)
    factors = {"head": ["short", "long"], "image": ["cat", EVIL]}
    assert parts.description["arms"] == {"factorial": factors, "interactions": 1}
    empty_rows = {"factor": ["", "a", ""], "levels": ["", "x, y\nz", " "]}
    lines = read_form(sent(PARTS, empty_rows))
    assert lines.description["arms"]["factorial"] == {"a": ["x, y", "z"]}


@given(st.dictionaries(st.sampled_from([*USUAL, "factor", "levels"]), st.lists(st.text())))
def test_any_form_is_read_and_what_was_typed_stays(typed: dict[str, list[str]]) -> None:
    form = read_form(typed)
    for key in USUAL:
        assert form.values[key] == (typed[key][-1] if typed.get(key) else USUAL[key])


@pytest.mark.parametrize("form", [GOOD, GOOD | ALL, PARTS, GOOD | {"variants": HUNDREDS}])
def test_form_and_file_create_the_same_experiment(
    form: dict[str, Any], empty: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preview = empty.post_form("/new/preview", form).json()
    assert preview["errors"] == {}
    storage = empty.app.state.service.storage
    assert storage.summaries() == []
    created = empty.post_form("/new", form)
    assert created.headers["location"] == "/experiments/layout"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEADYARM_STORAGE", f"sqlite:///{tmp_path}/by-command.db")
    Path("layout.toml").write_text(preview["toml"])
    assert main(preview["command"].split()[1:]) == 0
    by_form = sa.load_experiment("layout", storage)
    with sa.load_experiment("layout", f"sqlite:///{tmp_path}/by-command.db") as by_command:
        settings = by_form.settings.to_dict(), by_command.settings.to_dict()
        for described in settings:
            del described["seed"]  # drawn
        assert settings[0] == settings[1]
        assert by_form.state == by_command.state
        assert by_form.state == ("draft" if form.get("start") else "running")


def test_a_preview_shows_what_is_known(empty: Browser) -> None:
    risky = empty.post_form("/new/preview", GOOD | {"window": "", "budget": "12"}).json()
    assert (risky["variants"], risky["names"]) == (2, ["now", "one page"])
    assert len(risky["cautions"]) == 2
    wrong = empty.post_form("/new/preview", {"variants": "a\na"}).json()
    assert set(wrong["errors"]) == {"name", "variants", "budget"}
    assert wrong["toml"] is None
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
            "arms": {"one_hot": ["now", "one page"]},
            "effects": {"smallest_gap": 0.05},
            "rewards": {"rate": 0.1, "delay": 2},
            "stop": "when sure",
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
    settings, errors = read_question(
        sent(GOOD, PLAN, ALL, {"window": "2", "window_unit": "w", "range_low": "1"})
        | sent({"plan_correlation": "0.6", "looks": "daily"})
    )
    assert not errors
    assert settings["rewards"] == {"sd": 1.0, "correlation": 0.6, "delay": 21.0}  # with its grace
    assert (settings["control"], settings["looks"]) == ("now", "daily")
    assert settings["most_days"] == 60 + 21
    assert sa.Question.from_settings(settings).days(500) == 1 + 21
    sums, _ = read_question(sent(GOOD, PLAN, {"range": "none", "plan_sd": "2"}))
    assert (sums["rewards"]["sd"], sums["effects"]) == (2.0, {"smallest_gap": 0.1})
    fewer, _ = read_question(sent(GOOD, PLAN, {"direction": "minimize", "window": ""}))
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
    ({"kind": "factorial"}, "factor-0", "Enter at least one part"),
    ({"kind": "factorial", "factor": ["a"], "levels": ["x"]}, "levels-0", "at least 2"),
    ({"kind": "factorial", "factor": [""], "levels": ["x,y"]}, "factor-0", "Enter a name"),
    (
        {"kind": "factorial", "factor": ["a", "a"], "levels": ["x,y", "x,y"]},
        "factor-1",
        "Another part has this name",
    ),
    (
        {"kind": "factorial", "factor": list("abcdefghijk"), "levels": ["x,y"] * 11},
        "factor-0",
        "2,048 combinations; at most 2,000",
    ),
    ({"budget": "0"}, "budget", "This is 0; expected a whole number of at least 1."),
    ({"budget": "10.000"}, "budget", "Enter a whole number, e.g. 1000."),
    ({"budget": "9" * 31}, "budget", "Enter a whole number"),
    ({"policy": "peace"}, "policy", "not one of the choices"),
    ({"range": "custom", "range_low": "2", "range_high": "1"}, "range_high", "below the second"),
    ({"range": "custom", "range_low": "1", "range_high": "5"}, "missing", "(1 to 5)"),
    ({"range": "custom", "range_low": "nan", "range_high": "5"}, "range_low", "a number."),
    ({"window": "0"}, "window", "Enter a number above 0."),
    ({"control": "else"}, "control", "else"),
    ({"covariates": "a,a"}, "covariates", "twice"),
]


@pytest.mark.parametrize(("wrong", "key", "text"), WRONG)
def test_errors_stand_at_their_fields(wrong: dict[str, Any], key: str, text: str) -> None:
    form = read_form(sent(GOOD, wrong))
    assert list(form.errors) == [key]
    assert text in form.errors[key]


def test_a_wrong_form_is_shown_again_and_creates_nothing(free: Browser) -> None:
    answer = free.post_form("/new", PARTS | {"name": EVIL, "budget": "some", "control": '"><b>'})
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
        ({"plan_traffic": "0"}, "plan_traffic"),
        ({"plan_days": "5000"}, "plan_days"),
        ({"plan_error": "0.1"}, "plan"),
        ({"range": "none", "plan_sd": ""}, "plan_sd"),
        ({"range": "custom", "range_low": "5", "range_high": "1"}, "range_high"),
        ({"plan_clear": "100"}, "plan_clear"),
        ({"covariates": "visits", "plan_correlation": "1"}, "plan_correlation"),
        ({"variants": HUNDREDS}, "plan"),
    ):
        answer = planned(empty, wrong)
        assert answer.status_code == 422
        assert set(answer.json()["errors"]) == {key}
    short = planned(empty, {"plan_days": "1", "plan_gap": "1", "window": ""}).json()
    assert "500 visits in 1 day" in short["verdict"][0]
    assert short["uses"] == []
