"""The pages that show experiments: numbers of scorecards as text, with charts, tables and files."""

from __future__ import annotations

import csv
import io
import json
import random
import re
import zipfile
from datetime import timedelta
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.dashboard import pages
from steadyarm.dashboard.pages import actions_of
from steadyarm.dashboard.responses import amount
from steadyarm.dashboard.views import (
    TITLES,
    analysed_sums,
    chart_of,
    charts_of,
    forecast_of,
)
from steadyarm.live.scorecard import Scorecard, compute_scorecard
from steadyarm.live.verdict import adjusted_text
from steadyarm.plot.spec import for_page, note_of, table_of
from steadyarm.storages import open_storage
from tests.dashboard.clients import Browser, Elements, Guarded, create, dashboard, stored
from tests.live.scorecards import NAMES, played

EVIL = ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{{7*7}}", "<b>bold</b>"]
LAYOUTS = "/experiments/layouts"


def text_of(browser: Browser, path: str) -> str:
    return Elements(browser.get(path).text).text


def test_search_and_filter() -> None:
    storage = open_storage("memory")
    for name, start in (("alpha", True), ("beta", True), ("gamma", False)):
        create(storage, 50, name, start=start)
    with dashboard(storage) as browser:
        rows = {
            query: re.findall(r'href="/experiments/(\w+)"', browser.get(f"/?{query}").text)
            for query in ("", "q=ET", "state=draft", "q=alpha&state=draft", "state=running")
        }
        nothing = text_of(browser, "/?q=zzz")
    assert rows == {
        "": ["beta", "alpha", "gamma"],  # running ones first, then the newest
        "q=ET": ["beta"],
        "state=draft": ["gamma"],
        "q=alpha&state=draft": [],
        "state=running": ["beta", "alpha"],
    }
    assert "No experiment matches. Show all 3" in nothing


def test_the_overview_comes_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "ROWS", 2)
    storage = open_storage("memory")
    for i in range(5):
        create(storage, 50, f"t{i}")
    with dashboard(storage) as browser:
        path, found = "/?q=t", list[list[str]]()
        while path:
            page = browser.get(path).text
            found.append(re.findall(r'href="/experiments/(\w+)"', page))
            following = re.search(r'href="([^"]*)" rel="next"', page)
            path = "" if following is None else unescape(following[1])
        assert found == [["t4", "t3"], ["t2", "t1"], ["t0"]]
        assert re.findall(r'href="/experiments/(\w+)"', browser.get("/?page=x").text) == found[0]


def test_scorecards_are_computed_once_however_many_watch(
    shown: tuple[Browser, Scorecard], monkeypatch: pytest.MonkeyPatch
) -> None:
    browser, _ = shown
    computed: list[str] = []

    def count(experiment: sa.Experiment) -> Scorecard:
        computed.append(experiment.name)
        return compute_scorecard(experiment)

    monkeypatch.setattr(pages, "compute_scorecard", count)
    first = browser.get(LAYOUTS)
    for _ in range(3):
        assert browser.get(f"{LAYOUTS}/charts/drift.json").status_code == 200
        again = browser.get(LAYOUTS, headers={"If-None-Match": first.headers["ETag"]})
        assert again.status_code == 304
    assert computed == ["layouts"]
    monkeypatch.setattr(pages, "TTL", 0.0)
    monkeypatch.setattr(pages, "COST", 0.0)
    sa.load_experiment("layouts", browser.app.state.service.storage).ask("somebody else")
    browser.post_form(f"{LAYOUTS}/pause")  # what operators do counts at once
    assert "2,401" in browser.get(LAYOUTS).text
    browser.get(LAYOUTS)
    assert computed == ["layouts"] * 3


def test_another_session_gets_its_own_page(guarded: Guarded) -> None:
    browser, _, tokens = guarded
    browser.sign_in(tokens["read"])
    first = browser.get("/").headers["ETag"]
    browser.post_form("/sign-out")
    browser.sign_in(tokens["read"])
    again = browser.get("/", headers={"If-None-Match": first})
    assert again.status_code == 200  # the old page holds the key of the old session


def test_the_page_shows_what_the_scorecard_says(shown: tuple[Browser, Scorecard]) -> None:
    browser, card = shown
    page = Elements(browser.get(LAYOUTS).text)
    text, verdict = page.text, card.verdict
    assert verdict is not None
    assert card.health is not None
    places = [card.decision.text, card.headline, "End of the budget", "Variants by reward"]
    places += ["Estimates over time", "Traffic shares", "Drift of the lead", "Details"]
    places += ["Against the control", "Corrections", "Files"]
    assert sorted(places, key=text.index) == places
    for label, estimate, interval in zip(
        card.labels, verdict.estimates, verdict.intervals, strict=True
    ):
        low, high = (amount(float(end), rates=True) for end in interval)
        for shown_text in (label, amount(float(estimate), rates=True), f"{low} to {high}"):
            assert shown_text in text
    for finding in card.health.findings:
        assert finding.explanation in text
    for name, chart in charts_of(card).items():
        for shown_text in (TITLES[name], chart["description"], note_of(chart)):
            assert shown_text in text
    assert "6 combinations, named in this order: headline (short and long), " in text
    assert page.tags.count("h1") == 1


@pytest.mark.parametrize(
    ("visits", "then", "offered"),
    [
        (20, "", ["pause", "stop"]),
        (20, "pause", ["resume", "stop"]),
        (40, "", ["stop"]),
        (40, "pause", ["stop"]),
        (40, "stop", ["archive"]),
        (20, "stop", ["reopen", "archive"]),
    ],
)
def test_what_can_be_done_depends_on_whether_visits_are_left(
    visits: int, then: str, offered: list[str]
) -> None:
    test = played(arms=sa.ArmSet.one_hot(["A", "B"]), budget=40, visits=visits, days=2)
    if then:
        getattr(test, then)()
    assert [action.name for action in actions_of(compute_scorecard(test))] == offered


@pytest.mark.parametrize(
    ("stage", "visits", "rewards"),
    [
        ("draft", 0, 0),
        ("empty", 0, 0),
        ("asked", 1, 0),
        ("one reward", 1, 1),
        ("finished", 40, 40),
        ("epochs", 20, 20),
    ],
)
def test_every_stage_has_a_page(stage: str, visits: int, rewards: int) -> None:
    storage = open_storage("memory")
    policy = sa.Peace() if stage == "epochs" else sa.Steady()
    test = create(storage, 40, "t", policy=policy, start=stage != "draft")
    for i in range(visits):
        assigned = test.ask(f"{i}")
        if i < rewards:
            test.tell(assigned, float(i % 3 == 0))
    with dashboard(storage) as browser:
        text = text_of(browser, "/experiments/t")
        assert compute_scorecard(test).headline in text
        assert ("no verdict" in text) == (compute_scorecard(test).verdict is None)
        assert browser.get("/experiments/t/report.html").status_code == 200
        assert not {"nan", "inf"} & set(text.split())
        for absent in ("djusted", "Interim analyses", "Guardrails"):
            assert absent not in text
        if stage == "finished":
            assert "too early" not in text.lower()
            assert "can still win" not in text
        if stage == "empty":  # it says how to send the first visit
            body = re.search(r"assignments -H '([^']*)' -d '([^']*)'", text)
            assert body is not None
            headers = dict([body[1].split(": ")])
            path = "/v1/experiments/t/assignments"
            answer = browser.request("POST", path, content=body[2].encode(), headers=headers)
            assert answer.status_code == 201


def test_the_setup_panel_says_what_became_of_each_event() -> None:
    storage = open_storage("memory")
    purchase = sa.Metric("purchase", role="primary", kind="yes/no", window="1h")
    revenue = sa.Metric("revenue", kind="money", event="purchase", several="sum", window="1h")
    test = create(storage, metrics=[purchase, revenue])
    test.ask("ann")
    wrong: list[dict[str, Any]] = [
        {"unit": "ann", "event": "purchases"},
        {"unit": "bob", "event": "purchase", "id": "1"},
        {"unit": "ann", "event": "purchase"},
    ]
    with dashboard(storage) as browser:
        for body in wrong:
            assert browser.request("POST", "/v1/events", json=body).status_code == 422
        right = {"unit": "ann", "event": "purchase", "value": 35, "id": "1"}
        assert browser.request("POST", "/v1/events", json=right).status_code == 200
        again = {"unit": "ann", "reward": 0}
        refused = browser.request("POST", "/v1/experiments/shop/rewards", json=again)
        assert refused.status_code == 409
        pages = [text_of(browser, f"/experiments/shop{path}") for path in ("", "/setup")]
    for text in pages:
        assert "In the last hour: 1 visit, 2 counted events" in text
        assert "counted in purchase (1) and revenue (35)" in text
        for event, unit, outcome, detail in (
            ("purchases", "ann", "unknown event name", "did you mean purchase?"),
            ("purchase", "bob", "unknown unit", "Ask for one before"),
            ("purchase", "ann", "another value was counted before", "the first one counts"),
            ("purchase", "ann", "not accepted", "give each an id"),
        ):
            (line,) = re.findall(rf"{event}[\s\w,:]+{unit}\s*■ {outcome}[^■●]*", text)
            assert detail in line


def test_the_page_shows_covariates_and_attributes() -> None:
    storage, luck = open_storage("memory"), random.Random(1)
    devices = {"device": ["mobile", "desktop"], "country": ["FR", "DE"]}
    rules: dict[str, Any] = {"covariates": ["spend"], "attributes": devices}
    test = create(storage, 600, arms="<b>plain</b> guest", control="<b>plain</b>", **rules)
    for i in range(600):
        spend = luck.gauss(0.0, 1.0)
        shown = test.ask(f"u{i}", {"device": ("mobile", "desktop")[i % 2]}, {"spend": spend})
        test.tell(shown, spend + luck.gauss(0.4 * (shown.name == "guest"), 0.5))
    verdict, people = test.recommend(), test.recommend(by="device")
    with dashboard(storage) as browser:
        page = browser.get("/experiments/shop").text
        table = browser.get("/experiments/shop/charts/leaderboard.csv").text
    text = Elements(page).text
    assert "<b>plain" not in page
    assert adjusted_text(verdict, ["spend"]) in text
    assert "unadjusted" in table.splitlines()[0]
    assert "By device" in text
    assert people.summary in text
    for _, *cells in people.rows():
        assert all(cell in text for cell in cells)
    assert "the country is not known" in text


def test_guardrails_and_other_metrics_have_their_tables() -> None:
    storage = open_storage("memory")
    metrics = [
        sa.Metric("bought", role="primary", kind="yes/no", missing="fail"),
        sa.Metric("revenue", kind="money", unit="€"),
        sa.Metric("loading", role="guardrail", unit="s", direction="minimize", margin=0.1),
    ]
    shop = create(storage, 200, control="A", metrics=metrics)
    counts = np.zeros((2, 2))
    for i in range(200):
        assigned = shop.ask(f"u{i}")
        counts[:, assigned.arm] += 1, i % 2
        slow = 0.5 * (assigned.name == "B")
        values = {"bought": i % 2, "revenue": 10.0 * (i % 3), "loading": 1 + slow + i % 5 / 50}
        shop.tell(assigned, values)
    assert np.array_equal(analysed_sums(compute_scorecard(shop)), counts)
    revenue = shop.recommend().metrics[0]
    with dashboard(storage) as browser:
        text = text_of(browser, "/experiments/shop")
    assert "Variants by bought" in text
    for visits, total in zip(*counts, strict=True):
        assert re.search(rf"\b{visits:.0f}\s+{total:.0f}\s", text)
    assert "Guardrails" in text
    assert "worse than the margin" in text
    assert "Other metrics" in text
    assert revenue.estimates is not None
    assert revenue.metric.format_value(float(revenue.estimates[1])) in text


@pytest.mark.parametrize(("looks", "visits"), [(8, 2500), ("weekly", 2800)])
def test_a_page_says_when_a_test_is_decided_and_when_it_ends(looks: Any, visits: int) -> None:
    card = compute_scorecard(played(days=6, stop="recommend", looks=looks))  # 400 visits a day
    forecast, assigned = forecast_of(card), card.status.total_assigned
    assert assigned == 2400
    assert forecast.visits == pytest.approx(visits, rel=0.01)
    for time_, after in ((forecast.analysis, visits - assigned), (forecast.end, 4000 - assigned)):
        assert time_ is not None
        assert (time_ - card.seen) / timedelta(days=1) == pytest.approx(after / 400, abs=0.1)
    assert (forecast.decision is not None) == (forecast.more is not None and forecast.within)


def test_corrections_are_listed_with_their_reasons(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "TTL", 0.0)  # at once, not a few seconds later
    monkeypatch.setattr(pages, "COST", 0.0)
    browser, storage, tokens = guarded
    shop = sa.load_experiment("shop", storage)
    shop.tell(shop.ask("bot"), 1.0)
    shop.void("bot", reason=EVIL[0], by="ada")
    shop.exclude(since=0, until=shop.now(), reason="an outage", by="ada")
    for token, who in ((tokens["read"], ""), (tokens["admin"], "ada ")):
        browser.sign_in(token)
        page = browser.get("/experiments/shop").text
        text = " ".join(Elements(page).text.split())
        assert f"{who}Reward voided 1 {EVIL[0]}" in text
        assert EVIL[0] not in page
        assert "Visits excluded, 1 Jan 1970, 00:00 to" in text
        assert ("ada" in text) == bool(who)
        browser.post_form("/sign-out")


def test_names_full_of_markup_are_text() -> None:
    storage = open_storage("memory")
    plain = played(arms=sa.ArmSet.one_hot(["A", "B", "C", "D"]), budget=600, visits=300, days=2)
    evil = played(arms=sa.ArmSet.one_hot(EVIL), budget=600, visits=300, days=2)
    stored(plain, storage, "plain")
    stored(evil, storage, "<i onclick=alert(1)>")
    with dashboard(storage) as browser:
        for path in ("", "/charts/estimates", "/charts/drift", "/stop"):
            good = Elements(browser.get(f"/experiments/plain{path}").text)
            bad = Elements(browser.get(f"/experiments/%3Ci%20onclick%3Dalert%281%29%3E{path}").text)
            assert bad.tags == good.tags
            assert bad.attributes == good.attributes
            assert path or all(name in bad.text for name in EVIL)
        overview = Elements(browser.get("/").text)
        assert "i" not in overview.tags
        assert "<i onclick=alert(1)>" in overview.text


@pytest.mark.parametrize("name", TITLES)
def test_every_chart_has_its_figure_its_table_and_its_file(
    shown: tuple[Browser, Scorecard], name: str
) -> None:
    browser, card = shown
    chart = chart_of(card, name)
    assert chart is not None
    path = f"{LAYOUTS}/charts/{name}"
    for dark in (False, True):
        answer = browser.get(f"{path}.json?dark={int(dark)}")
        assert answer.json() == for_page(chart, dark)
        again = {"If-None-Match": answer.headers["ETag"]}
        assert browser.get(f"{path}.json?dark={int(dark)}", headers=again).status_code == 304
    rows = list(csv.reader(io.StringIO(browser.get(f"{path}.csv").text)))
    header, numbers = table_of(chart)
    assert rows[0] == list(header)
    assert len(rows) == len(numbers) + 1
    page = Elements(browser.get(path).text)
    assert page.tags.count("tr") == min(len(numbers), 2000) + 1


def test_files_to_take_away(shown: tuple[Browser, Scorecard], tmp_path: Path) -> None:
    browser, card = shown
    for absent in (f"{LAYOUTS}/charts/absent", "/experiments/absent/charts/drift"):
        for end in ("", ".json", ".csv"):
            assert browser.get(absent + end).status_code == 404
    log = browser.get(f"{LAYOUTS}/log.zip")
    assert log.headers["content-disposition"] == 'attachment; filename="layouts.zip"'
    (tmp_path / "layouts.zip").write_bytes(log.content)
    analysis = sa.analyze(tmp_path / "layouts.zip")
    assert card.verdict is not None
    assert analysis.rows == card.verdict.judged
    np.testing.assert_allclose(analysis.verdict.intervals, card.verdict.intervals, rtol=1e-9)
    with zipfile.ZipFile(tmp_path / "layouts.zip") as archive:
        described = json.loads(archive.read("layouts.csv.experiment.json"))
    assert {entry["author"] for entry in described["audit"]} == {""}
    board = csv.DictReader(io.StringIO(browser.get(f"{LAYOUTS}/charts/leaderboard.csv").text))
    assert {row["variant"] for row in board} == set(NAMES)
    report = browser.get(f"{LAYOUTS}/report.html")
    assert card.headline in Elements(report.text).text
