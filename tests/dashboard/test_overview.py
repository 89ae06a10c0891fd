"""The list of experiments: how to begin, who leads, what is searched for."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

import steadyarm as sa
from steadyarm.cli.main import main
from steadyarm.live.scorecard import Scorecard
from steadyarm.storages import open_storage
from tests.dashboard.clients import Browser, Elements, dashboard


def test_an_empty_overview_says_how_to_begin() -> None:
    with dashboard() as browser:
        page = Elements(browser.get("/").text)
    assert "No experiments yet" in page.text
    assert "steadyarm experiment create" in page.text


def test_what_the_empty_overview_says_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with dashboard() as browser:
        page = browser.get("/").text
    toml, words, code = re.findall(r"<pre><code>(.*?)</code></pre>", page, re.DOTALL)
    (tmp_path / "button.toml").write_text(toml)
    monkeypatch.setenv("STEADYARM_STORAGE", "sqlite:///by-command.db")
    assert main(words.split()[1:]) == 0
    monkeypatch.setenv("STEADYARM_STORAGE", "sqlite:///by-python.db")
    spoken: dict[str, Any] = {}
    exec(compile(code, "overview", "exec"), spoken)
    spoken["test"].close()
    for how, rewards in (("command", 0), ("python", 1)):
        with sa.load_experiment("button", f"sqlite:///by-{how}.db") as test:
            assert test.arms.names == ("red", "green", "blue")
            assert test.budget == 10_000
            assert sum(test.status().rewarded) == rewards


def test_the_overview_fills_in_leaders_while_it_is_watched(
    shown: tuple[Browser, Scorecard],
) -> None:
    browser, card = shown
    assert "being computed" in browser.get("/").text
    for _ in range(100):
        page = Elements(browser.get("/").text).text
        if "being computed" not in page:
            break
        time.sleep(0.05)
    assert card.verdict is not None
    assert card.labels[card.verdict.arm] in page
    assert "2,400 of 4,000" in page


def test_search_and_filter() -> None:
    storage = open_storage("memory")
    for name, start in (("alpha", True), ("beta", True), ("gamma", False)):
        sa.create_experiment(
            name, ["A", "B"], sa.Steady(), 50, storage, start=start, missing="drop"
        )
    with dashboard(storage) as browser:
        rows = {
            query: re.findall(r'href="/experiments/(\w+)"', browser.get(f"/?{query}").text)
            for query in ("", "q=ET", "state=draft", "q=alpha&state=draft", "state=running")
        }
        nothing = Elements(browser.get("/?q=zzz").text).text
    assert rows == {
        "": ["beta", "alpha", "gamma"],  # what runs first, then the newest
        "q=ET": ["beta"],
        "state=draft": ["gamma"],
        "q=alpha&state=draft": [],
        "state=running": ["beta", "alpha"],
    }
    assert "No experiment matches. Show all 3" in nothing
