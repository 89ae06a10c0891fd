"""Scorecards are kept: pages follow what changes, and nothing is computed twice."""

from __future__ import annotations

import time

import pytest

import steadyarm as sa
from steadyarm.dashboard import pages
from steadyarm.live.scorecard import Scorecard
from steadyarm.live.scoring import scorecard_of
from tests.dashboard.clients import Browser, Guarded


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the experiments whose scorecards are made from now on."""
    seen: list[str] = []

    def counted(experiment: sa.Experiment) -> Scorecard:
        seen.append(experiment.name)
        return scorecard_of(experiment)

    monkeypatch.setattr(pages, "scorecard_of", counted)
    return seen


def test_a_page_that_did_not_change_is_not_sent_again(
    shown: tuple[Browser, Scorecard], monkeypatch: pytest.MonkeyPatch
) -> None:
    browser, _ = shown
    monkeypatch.setattr(pages, "TTL", 0.0)
    path = "/experiments/layouts"
    first = browser.get(path)
    known = {"If-None-Match": first.headers["ETag"]}
    assert browser.get(path, headers=known).status_code == 304
    assert browser.get(path, headers=known).headers["ETag"] == first.headers["ETag"]
    test = sa.load_experiment("layouts", browser.app.state.service.storage)
    test.ask("somebody else")
    changed = browser.get(path, headers=known)
    assert changed.status_code == 200
    assert "2,401" in changed.text


def test_scorecards_are_made_once_however_many_watch(
    shown: tuple[Browser, Scorecard], made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    browser, _ = shown
    monkeypatch.setattr(pages, "TTL", 0.0)  # nothing has changed
    for _ in range(5):
        assert browser.get("/experiments/layouts").status_code == 200
        assert browser.get("/experiments/layouts/charts/drift.json").status_code == 200
    assert made == ["layouts"]


def test_time_alone_makes_a_new_scorecard(
    shown: tuple[Browser, Scorecard], made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    browser, _ = shown
    monkeypatch.setattr(pages, "OLD", 0.0)
    for _ in range(3):
        browser.get("/experiments/layouts")
    assert made == ["layouts"] * 3


def test_a_scorecard_that_fails_is_not_tried_at_every_view(
    shown: tuple[Browser, Scorecard], monkeypatch: pytest.MonkeyPatch
) -> None:
    browser, _ = shown
    seen: list[str] = []

    def failing(experiment: sa.Experiment) -> Scorecard:
        seen.append(experiment.name)
        raise sa.InvalidInputError("no such policy here")

    monkeypatch.setattr(pages, "scorecard_of", failing)
    for _ in range(50):
        page = browser.get("/").text
        if "cannot be shown" in page:
            break
        time.sleep(0.05)
    assert "cannot be shown" in page
    browser.get("/")
    assert seen == ["layouts"]


def test_a_stopped_test_is_shown_as_stopped_at_once(
    shown: tuple[Browser, Scorecard], monkeypatch: pytest.MonkeyPatch
) -> None:
    browser, _ = shown
    monkeypatch.setattr(pages, "TTL", 3600.0)
    path = "/experiments/layouts"
    assert f'href="{path}/stop"' in browser.get(path).text
    assert browser.post_form(f"{path}/stop").status_code == 303
    page = browser.get(path)
    assert f'href="{path}/stop"' not in page.text
    assert "Stopped after 2,400 of 4,000 visits" in page.text


def test_another_session_gets_its_own_page(guarded: Guarded) -> None:
    browser, _, tokens = guarded
    browser.sign_in(tokens["read"])
    first = browser.get("/").headers["ETag"]
    browser.post_form("/sign-out")
    browser.sign_in(tokens["read"])
    again = browser.get("/", headers={"If-None-Match": first})
    assert again.status_code == 200  # the old page holds the key of the old session
