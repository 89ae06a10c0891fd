"""The page of an experiment: the numbers of its scorecard, shown as text, with charts and files."""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.dashboard import pages
from steadyarm.dashboard.pages import actions_of
from steadyarm.dashboard.responses import amount
from steadyarm.dashboard.views import SECTIONS, leaderboard, sections_of
from steadyarm.live.scorecard import Scorecard
from steadyarm.live.scoring import scorecard_of
from steadyarm.live.tables import lift_text
from steadyarm.plot.spec import for_page, note_of, table_of
from steadyarm.storages import open_storage
from tests.dashboard.clients import Browser, Elements, Guarded, dashboard, stored
from tests.live.scorecards import NAMES, played

EVIL = ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{{7*7}}", "<b>bold</b>"]


def test_the_page_shows_what_the_scorecard_says(shown: tuple[Browser, Scorecard]) -> None:
    browser, card = shown
    page = Elements(browser.get("/experiments/layouts").text)
    assert card.headline in page.text
    verdict = card.verdict
    assert verdict is not None
    for k, label in enumerate(card.labels):
        assert label in page.text
        assert amount(float(verdict.estimates[k]), rates=True) in page.text
        low, high = (amount(float(end), rates=True) for end in verdict.intervals[k])
        assert f"{low} to {high}" in page.text
    assert card.health is not None
    for finding in card.health.findings:
        assert finding.explanation in page.text
    for section, chart in sections_of(card):
        assert section.title in page.text
        assert chart["description"] in page.text
        assert note_of(chart) in page.text
    assert page.tags.count("h1") == 1


def test_the_decision_and_lifts_come_first(shown: tuple[Browser, Scorecard]) -> None:
    browser, card = shown
    verdict = card.verdict
    assert verdict is not None
    page = Elements(browser.get("/experiments/layouts").text).text
    assert "Against control" in page
    assert page.index(card.decision.text) < page.index(card.headline) < page.index("Leaderboard")
    assert page.index("Leaderboard") < page.index("Against the control")
    for row in leaderboard(card):
        k = NAMES.index(row.name)
        assert row.lift == ("control" if k == 0 else lift_text(verdict, k).split(" (")[0])
        assert row.lift in page
        assert row.lift_interval in page
        assert f"{row.lift} ({row.lift_interval})" == lift_text(verdict, k) or k == 0


@pytest.mark.parametrize(
    ("visits", "then", "offered"),
    [
        (20, "", ["pause", "stop"]),
        (20, "pause", ["resume", "stop"]),
        (40, "", ["stop"]),
        (40, "pause", ["stop"]),
        (40, "stop", ["archive"]),
        (20, "stop", ["archive"]),
    ],
)
def test_what_can_be_done_depends_on_whether_visits_are_left(
    visits: int, then: str, offered: list[str]
) -> None:
    test = played(arms=sa.ArmSet.one_hot(["A", "B"]), budget=40, visits=visits, days=2)
    if then:
        getattr(test, then)()
    assert [action.name for action in actions_of(scorecard_of(test))] == offered


def test_the_leaderboard_goes_from_the_best_to_the_worst(shown: tuple[Browser, Scorecard]) -> None:
    _, card = shown
    rows = leaderboard(card)
    assert [row.estimate for row in rows] == sorted((r.estimate for r in rows), reverse=True)
    assert {row.name for row in rows} == set(NAMES)
    assert rows[0].standing == "leads"
    for row in rows:
        assert row.left is not None
        assert row.middle is not None
        assert row.right is not None
        assert 0 <= row.left <= row.middle <= row.right <= 100
    assert sum(row.share for row in rows) == pytest.approx(1)


def test_minimizing_puts_the_lowest_first() -> None:
    test = played(budget=1200, visits=1200, days=2, direction="minimize")
    rows = leaderboard(scorecard_of(test))
    assert [row.estimate for row in rows] == sorted(row.estimate for row in rows)


@pytest.mark.parametrize("name", [name for name in SECTIONS if name != "items"])  # of bundles
def test_every_chart_has_its_figure_its_table_and_its_file(
    shown: tuple[Browser, Scorecard], name: str
) -> None:
    browser, card = shown
    chart = SECTIONS[name].chart(card)
    assert chart is not None
    path = f"/experiments/layouts/charts/{name}"
    for dark in (False, True):
        answer = browser.get(f"{path}.json?dark={int(dark)}")
        assert answer.json() == for_page(chart, dark)
    rows = list(csv.reader(io.StringIO(browser.get(f"{path}.csv").text)))
    header, numbers = table_of(chart)
    assert rows[0] == list(header)
    assert len(rows) == len(numbers) + 1
    page = Elements(browser.get(path).text)
    assert page.tags.count("tr") == min(len(numbers), 2000) + 1
    answer = browser.get(f"{path}.json?dark=0")
    again = browser.get(f"{path}.json?dark=0", headers={"If-None-Match": answer.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_charts_that_are_not_there_are_not_found(shown: tuple[Browser, Scorecard]) -> None:
    browser, _ = shown
    for name in ("absent.json", "absent.csv", "absent", "%2e%2e"):
        assert browser.get(f"/experiments/layouts/charts/{name}").status_code == 404
    sa.create_experiment(
        "new",
        ["A", "B"],
        sa.Steady(),
        50,
        browser.app.state.service.storage,
        start=False,
        missing="drop",
    )
    assert browser.get("/experiments/new/charts/estimates.json").status_code == 404
    assert browser.get("/experiments/absent").status_code == 404


def test_many_variants_are_shown_in_part_or_all() -> None:
    storage = open_storage("memory")
    arms = sa.ArmSet.one_hot([f"variant {k}" for k in range(40)])
    stored(played(arms=arms, budget=2000, visits=800, days=2, policy=sa.GBAI()), storage, "many")
    with dashboard(storage) as browser:
        some = Elements(browser.get("/experiments/many").text)
        everything = Elements(browser.get("/experiments/many?all=1").text)
    assert "The best 30 of 40." in some.text
    assert "Show the best 30" in everything.text
    assert everything.tags.count("tr") - some.tags.count("tr") == 10


@pytest.mark.parametrize("stage", ["draft", "empty", "asked", "one reward", "finished", "epochs"])
def test_every_stage_has_a_page(stage: str) -> None:
    storage = open_storage("memory")
    policy = sa.Peace() if stage == "epochs" else sa.Steady()
    test = sa.create_experiment(
        "t", ["A", "B"], policy, 40, storage, seed=1, start=stage != "draft", missing="drop"
    )
    for i in range({"asked": 1, "one reward": 1, "finished": 40, "epochs": 20}.get(stage, 0)):
        shown = test.ask(f"{i}")
        if stage != "asked":
            test.tell(shown, float(i % 3 == 0))
    with dashboard(storage) as browser:
        page = Elements(browser.get("/experiments/t").text)
        assert scorecard_of(test).headline in page.text
        assert ("no verdict" in page.text) == (scorecard_of(test).verdict is None)
        assert browser.get("/experiments/t/report.html").status_code == 200
        if stage == "finished":
            assert "too early" not in page.text.lower()
            assert "can still win" not in page.text
    assert "nan" not in page.text.split()
    assert "inf" not in page.text.split()


def test_names_full_of_markup_are_text() -> None:
    storage = open_storage("memory")
    plain = played(arms=sa.ArmSet.one_hot(["A", "B", "C", "D"]), budget=600, visits=300, days=2)
    evil = played(arms=sa.ArmSet.one_hot(EVIL), budget=600, visits=300, days=2)
    stored(plain, storage, "plain")
    stored(evil, storage, "<i onclick=alert(1)>")
    with dashboard(storage) as browser:
        for path in ("", "/charts/estimates", "/charts/daily", "/stop"):
            good = Elements(browser.get(f"/experiments/plain{path}").text)
            bad = Elements(browser.get(f"/experiments/%3Ci%20onclick%3Dalert%281%29%3E{path}").text)
            assert bad.tags == good.tags
            assert bad.attributes == good.attributes
            if "charts" in path or not path:
                assert all(name in bad.text for name in EVIL)
        overview = Elements(browser.get("/").text)
        assert "i" not in overview.tags
        assert "<i onclick=alert(1)>" in overview.text


def test_files_to_take_away(shown: tuple[Browser, Scorecard], tmp_path: Path) -> None:
    browser, card = shown
    log = browser.get("/experiments/layouts/log.zip")
    assert log.headers["content-disposition"] == 'attachment; filename="layouts.zip"'
    (tmp_path / "layouts.zip").write_bytes(log.content)
    found = sa.analyze(tmp_path / "layouts.zip")
    assert found.rows == 2400
    assert card.verdict is not None
    np.testing.assert_allclose(found.verdict.intervals, card.verdict.intervals, rtol=1e-9)
    with zipfile.ZipFile(tmp_path / "layouts.zip") as archive:
        described = json.loads(archive.read("layouts.csv.experiment.json"))
    assert {entry["author"] for entry in described["audit"]} == {""}
    file = browser.get("/experiments/layouts/charts/leaderboard.csv").text
    board = list(csv.DictReader(io.StringIO(file)))
    assert {row["variant"] for row in board} == set(NAMES)
    report = browser.get("/experiments/layouts/report.html")
    assert card.headline in Elements(report.text).text


def test_actions_are_for_those_who_may(guarded: Guarded) -> None:
    browser, _, tokens = guarded
    browser.sign_in(tokens["read"])
    assert 'href="/experiments/shop/stop"' not in browser.get("/experiments/shop").text
    assert 'href="/new"' not in browser.get("/").text
    browser.post_form("/sign-out")
    browser.sign_in(tokens["admin"])
    page = browser.get("/experiments/shop").text
    assert 'href="/experiments/shop/stop"' in page
    assert 'href="/experiments/shop/resume"' not in page


def test_an_experiment_without_visits_says_how_to_send_the_first() -> None:
    storage = open_storage("memory")
    test = sa.create_experiment("new", ["A", "B"], sa.Steady(), 50, storage, missing="drop")
    with dashboard(storage) as browser:
        page = Elements(browser.get("/experiments/new").text).text
        body = re.search(r"assignments -H '([^']*)' -d '([^']*)'", page)
        assert body is not None
        answer = browser.request(
            "POST",
            "/v1/experiments/new/assignments",
            content=body[2].encode(),
            headers=dict([body[1].split(": ")]),
        )
        assert answer.status_code == 201
        assert 'sa.Client("http://' in page
        assert sum(test.status().assigned) == 1


def test_the_page_says_what_is_tested(shown: tuple[Browser, Scorecard]) -> None:
    browser, _ = shown
    page = Elements(browser.get("/experiments/layouts").text).text
    assert (
        "6 combinations, named in this order: headline (short and long), "
        "image (cat, dog and none). Larger rewards are better."
    ) in page


def test_corrections_are_listed_with_their_reasons(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "TTL", 0.0)  # at once, not a few seconds later
    browser, storage, tokens = guarded
    shop = sa.load_experiment("shop", storage)
    shop.tell(shop.ask("bot"), 1.0)
    browser.sign_in(tokens["read"])
    page = browser.get("/experiments/shop").text
    assert "There are no corrections." in page
    shop.void("bot", reason=EVIL[0], by="ada")
    shop.exclude(since=0, until=shop.now(), reason="an outage", by="ada")
    page = browser.get("/experiments/shop").text
    text = " ".join(Elements(page).text.split())
    assert f"Reward voided 1 {EVIL[0]}" in text
    assert EVIL[0] not in page
    assert "Visits excluded, 1 Jan 1970, 00:00 to" in text
    assert "ada" not in text
    browser.cookies.clear()
    browser.sign_in(tokens["admin"])
    words = " ".join(Elements(browser.get("/experiments/shop").text).text.split())
    assert "ada Reward voided" in words
    assert "ada Visits excluded" in words
    actions = [entry.author for entry in shop.history()]
    assert actions == ["admin", "ada", "ada"]
    browser.post_form("/experiments/shop/stop")
    assert (shop.history()[-1].author, shop.state) == ("admin", "stopped")


def test_guardrails_and_other_metrics_have_their_tables() -> None:
    storage = open_storage("memory")
    metrics = [
        sa.Metric("bought", role="primary", kind="yes/no", missing="fail"),
        sa.Metric("revenue", kind="money", unit="€"),
        sa.Metric("loading", role="guardrail", unit="s", direction="minimize", margin=0.1),
    ]
    shop = sa.create_experiment(
        "shop", ["A", "B"], sa.Steady(), 200, storage, seed=1, control="A", metrics=metrics
    )
    for i in range(200):
        shown = shop.ask(f"u{i}")
        slow = 0.5 * (shown.name == "B")
        values = {"bought": i % 2, "revenue": 10.0 * (i % 3), "loading": 1 + slow + i % 5 / 50}
        shop.tell(shown, values)
    revenue = shop.recommend().metrics[0]
    with dashboard(storage) as browser:
        page = Elements(browser.get("/experiments/shop").text)
    assert "Guardrails" in page.text
    assert "worse than the margin" in page.text
    assert "Other metrics" in page.text
    assert revenue.estimates is not None
    assert revenue.metric.shown(float(revenue.estimates[1])) in page.text
