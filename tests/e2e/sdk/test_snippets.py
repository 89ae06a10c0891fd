"""Documented programs against a real service: the ten-line recipes and events of the README."""

from __future__ import annotations

import json
import re
import subprocess
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import BrowserContext, expect

import steadyarm as sa
from tests.e2e.sdk.node import ROOT, SDK, build
from tests.e2e.sdk.pages import PageServer
from tests.e2e.sdk.shops import Shop, free_port
from tests.e2e.sdk.test_browser import until_counts
from tests.service.clients import listening

PAGES = {
    "Flask": "python",
    "FastAPI": "python",
    "Express": "javascript",
    "A page without a server": "browser",
}
ADDRESS = "http://127.0.0.1:8000"
BUTTONS = {f"the page with button {name}" for name in "ABC"}


def block(title: str, language: str) -> str:
    """The program under a title."""
    text = (ROOT / f"docs/integrate/{PAGES[title]}.md").read_text()
    section = text.split(f"\n## {title}\n")[1].split("\n## ")[0]
    (found,) = re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)
    return str(found)


PROGRAMS = {
    "Flask": block("Flask", "python"),
    "FastAPI": block("FastAPI", "python"),
    "Express": block("Express", "js"),
    "plain page": block("A page without a server", "html"),
}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service without tokens that has the experiment of the page."""
    folder = tmp_path_factory.mktemp("open")
    (toml,) = re.findall(
        r"```toml\n(.*?)```", (ROOT / "docs/integrate/python.md").read_text(), re.DOTALL
    )
    settings: dict[str, Any] = tomllib.loads(toml)
    settings["policy"] = sa.Steady()
    storage = f"sqlite:///{folder}/tests.db"
    sa.create_experiment(**settings, storage=storage).close()
    with listening(storage) as url:
        yield url


def rewarded(address: str) -> int:
    with sa.Client(address, timeout=30) as client:
        return client.experiment("shop").status().totals.rewarded


def until_rewarded(address: str, count: int) -> None:
    deadline = time.monotonic() + 180
    while rewarded(address) != count:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def python(name: str, address: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(PROGRAMS[name].replace(ADDRESS, address), name, "exec"), names)
    return names


def test_flask(address: str) -> None:
    before, names = rewarded(address), python("Flask", address)
    with names["app"].test_client() as browser:
        shown = browser.get("/flask").text
        assert shown in BUTTONS
        assert browser.post("/flask").text == shown
        stranger = browser.post("/stranger")
        assert (stranger.status_code, stranger.text in BUTTONS) == (200, True)
    names["shop"].client.close()
    assert rewarded(address) == before + 1


def test_fastapi(address: str) -> None:
    before, names = rewarded(address), python("FastAPI", address)
    with TestClient(names["app"]) as browser:
        shown = browser.get("/fastapi").json()
        assert shown in BUTTONS
        assert browser.post("/fastapi/purchase").status_code == 200
        assert browser.get("/fastapi").json() == shown
        assert browser.portal is not None
        browser.portal.call(names["shop"].client.close)
    assert rewarded(address) == before + 1


@pytest.fixture
def readme(tmp_path: Path) -> Iterator[str]:
    """A service with the experiment of the README's first commands."""
    (settings,) = re.findall(r"v1/experiments -H .* -d '(.*)'", (ROOT / "README.md").read_text())
    with listening(f"sqlite:///{tmp_path}/tests.db") as url:
        urlopen(Request(f"{url}/v1/experiments", settings.encode()), timeout=120).close()
        yield url


def documented(page: str, language: str, containing: str) -> str:
    """The code of a page that has this in it."""
    blocks = re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    (found,) = (block for block in blocks if containing in block)
    return str(found)


def test_events_of_the_provider_for_python(readme: str, caplog: pytest.LogCaptureFixture) -> None:
    code = documented("docs/integrate/openfeature.md", "python", "SteadyArmProvider(")
    exec(re.sub(r"http://127.0.0.1:\d+", readme, code))
    assert rewarded(readme) == 1
    assert not caplog.records


def test_events_beside_the_provider_of_the_community(readme: str) -> None:
    page = "docs/integrate/openfeature.md"
    exec(documented(page, "python", "OFREPProvider(").replace("http://127.0.0.1:9", readme))
    (event,) = re.findall(r"-d '(.*)'", documented(page, "console", "/v1/events"))
    with urlopen(Request(f"{readme}/v1/events", event.encode()), timeout=60) as answer:
        assert json.load(answer) == json.loads(documented(page, "json", "stored"))
    assert rewarded(readme) == 1


def test_events_of_the_package_for_node(readme: str) -> None:
    program = build() / f"build/readme-{free_port()}.mjs"  # where Node finds the packages
    code = documented("sdk/js/README.md", "js", "server-sdk")
    program.write_text(code.replace(ADDRESS, readme))
    try:
        done = subprocess.run(
            ["node", program], cwd=SDK, capture_output=True, text=True, timeout=60
        )
    finally:
        program.unlink()
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    assert rewarded(readme) == 1


def test_express(address: str, tmp_path: Path) -> None:
    port, before = free_port(), rewarded(address)
    program = build() / f"build/express-{port}.mjs"  # where Node finds the packages
    code = PROGRAMS["Express"].replace(ADDRESS, address).replace("3000", str(port))
    program.write_text(code)
    with (tmp_path / "log").open("w+") as log:
        running = subprocess.Popen(["node", str(program)], cwd=SDK, stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}/express"
            shown = answered(url, running)
            assert shown in BUTTONS
            urlopen(Request(url, method="POST"), timeout=60).close()
            until_rewarded(address, before + 1)
            assert answered(url, running) == shown
        finally:
            running.terminate()
            running.wait(30)
            program.unlink()
        log.seek(0)
        assert "SteadyArm:" not in log.read()


def answered(url: str, running: subprocess.Popen[bytes]) -> str:
    """The answer of a server that may not listen yet."""
    deadline = time.monotonic() + 60
    while True:
        try:
            with urlopen(url, timeout=60) as answer:
                return str(answer.read().decode())
        except URLError:
            assert running.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_a_page_without_a_server(visitor: BrowserContext, pages: PageServer, shop: Shop) -> None:
    code = PROGRAMS["plain page"].replace(ADDRESS, shop.url).replace("pk_…", shop.keys["web"])
    pages.pages["/plain"] = code
    before = shop.counts()
    page = visitor.new_page()
    page.goto("/plain")
    expect(page.locator("#buy")).to_have_text(re.compile("Buy [ABC]"))
    page.click("#buy")
    until_counts(shop, (before[0] + 1, before[1] + 1))
