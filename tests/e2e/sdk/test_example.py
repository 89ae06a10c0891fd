"""examples/web: a short page runs a whole test in a real browser."""

from __future__ import annotations

import random
import re
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import BrowserContext, Page, expect

import steadyarm as sa
from steadyarm.cli.main import main
from tests.e2e.sdk.node import ROOT
from tests.e2e.sdk.pages import PageServer
from tests.service.clients import listening

HOME = ROOT / "examples/web"
HEADLINES = {
    "Mountain tea, first harvest": "standard",
    "The mountain in a cup": "warm",
    "Tea. Just better.": "short",
}
CLICKS = {"standard": 0.2, "warm": 0.8, "short": 0.1}  # what visitors like


def commands() -> list[str]:
    """What the README says to type, of SteadyArm's commands."""
    blocks = re.findall(r"```console\n(.*?)```", (HOME / "README.md").read_text(), re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if "steadyarm " in line]


def typed(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command of the README prints."""
    words = command.split()
    assert words[0] == "steadyarm"
    assert main(words[1:]) == 0
    return capsys.readouterr().out.strip()


def come(page: Page, address: str) -> str:
    """What somebody is shown who has never been here."""
    page.evaluate("localStorage.clear()")
    page.goto(address)
    expect(page.locator("main")).to_be_visible()
    return HEADLINES[page.locator("h1").inner_text()]


def test_a_whole_test_ends_with_a_verdict(
    visitor: BrowserContext,
    pages: PageServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    storage = f"sqlite:///{tmp_path}/tests.db"
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("STEADYARM_STORAGE", storage)
    create, admin, web, serve, recommend = commands()
    assert (serve, recommend) == ("steadyarm serve", "steadyarm experiment recommend tea")
    typed(create, capsys)
    typed(admin, capsys)
    key = typed(web.replace("http://127.0.0.1:8080", pages.url), capsys)
    ahead = [0.0]
    experiment = sa.load_experiment("tea", storage, clock=lambda: time.time() + ahead[0])
    with listening(storage) as url:
        address = f"/examples/web/?{urlencode({'url': url, 'key': key})}"
        page = visitor.new_page()
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto("/examples/web/style.css")
        people, shown = random.Random(7), list[str]()
        for _ in range(5):
            shown.append(come(page, address))
            page.get_by_role("button").click()
            expect(page.get_by_role("status")).to_have_text("In your basket.")
            page.wait_for_function("Object.keys(localStorage).every((k) => !k.includes('event'))")
        assert not problems
        assert list(experiment.status().assigned) == [shown.count(name) for name in CLICKS]
        assert experiment.status().total_rewarded == 5
        rest: Any = experiment.ask_many([f"visitor {i}" for i in range(5, experiment.budget)])
        experiment.tell_many((one, float(people.random() < CLICKS[one.name])) for one in rest)
        ahead[0] = 31.0  # the window of 15 s, and as long for what comes late
        experiment.refresh()
        verdict = experiment.recommend()
        assert verdict.decision.text.startswith("Ship warm: it beats standard")
        come(page, address)  # nobody who comes later waits for anything
    come(page, address)  # nor if the service is gone
