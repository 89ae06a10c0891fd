"""examples/web: a short page runs a whole test in a real browser."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

from playwright.sync_api import BrowserContext, Page, expect

import steadyarm as sa
from tests.client.servers import serving
from tests.e2e.sdk.node import ROOT
from tests.e2e.sdk.pages import PageServer

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


def typed(command: str, storage: str) -> str:
    """What a command of the README prints."""
    words = command.split()
    assert words[0] == "steadyarm"
    done = subprocess.run(
        [sys.executable, "-m", "steadyarm.cli.main", *words[1:]],
        cwd=ROOT,
        env=os.environ | {"STEADYARM_STORAGE": storage},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def come(page: Page, address: str) -> str:
    """What somebody is shown who has never been here."""
    page.evaluate("localStorage.clear()")
    page.goto(address)
    expect(page.locator("main")).to_be_visible()
    return HEADLINES[page.locator("h1").inner_text()]


def test_a_whole_test_ends_with_a_verdict(
    visitor: BrowserContext, pages: PageServer, tmp_path: Path
) -> None:
    storage = f"sqlite:///{tmp_path}/service.db"
    create, admin, web, serve, recommend = commands()
    assert (serve, recommend) == ("steadyarm serve", "steadyarm experiment recommend tea")
    typed(create, storage)
    typed(admin, storage)
    key = typed(web.replace("http://127.0.0.1:8080", pages.url), storage)
    ahead = [0.0]
    experiment = sa.load_experiment("tea", storage, clock=lambda: time.time() + ahead[0])
    with serving(tmp_path) as url:
        urlopen(f"{url}/healthz", timeout=120).close()  # it listens before it answers
        address = f"/examples/web/?{urlencode({'url': url, 'key': key})}"
        page = visitor.new_page()
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto("/examples/web/style.css")
        people, shown = random.Random(7), list[str]()
        for _ in range(15):
            shown.append(come(page, address))
            if people.random() < CLICKS[shown[-1]]:
                page.get_by_role("button").click()
                expect(page.get_by_role("status")).to_have_text("In your basket.")
                page.wait_for_function(
                    "Object.keys(localStorage).every((k) => !k.includes('event'))"
                )
        assert not problems
        assert list(experiment.status().assigned) == [shown.count(name) for name in CLICKS]
        assert experiment.status().total_rewarded > 0
        for i in range(15, experiment.budget):  # the others come without a browser
            answer = experiment.ask(f"visitor {i}")
            experiment.tell(answer, float(people.random() < CLICKS[answer.name]))
        ahead[0] = 31.0  # the window of 15 s, and as long for what comes late
        experiment.refresh()
        verdict = experiment.recommend()
        assert verdict.decision.text.startswith("Ship warm: it beats standard")
        come(page, address)  # nobody who comes later waits for anything
    come(page, address)  # nor if the service is gone
