"""Documented programs against a real service: the ten-line recipes and events of the README."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import BrowserContext, expect

import steadyarm as sa
from tests.e2e.sdk.shops import ROOT, SDK, PageServer, Shop, build, free_port
from tests.e2e.sdk.test_browser import until_counts
from tests.service.clients import listening, until

ADDRESS = "http://127.0.0.1:8000"
BUTTONS = {f"the page with button {name}" for name in "ABC"}


def documented(page: str, language: str, containing: str) -> str:
    blocks = re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    (found,) = (block for block in blocks if containing in block)
    return str(found)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service without tokens that has the experiment of the page."""
    folder = tmp_path_factory.mktemp("open")
    toml = documented("docs/integrate/python.md", "toml", "arms")
    settings: dict[str, Any] = tomllib.loads(toml)
    settings["policy"] = sa.Steady()
    storage = f"sqlite:///{folder}/tests.db"
    sa.create_experiment(**settings, storage=storage).close()
    with listening(storage) as url:
        yield url


def rewarded(address: str) -> int:
    with sa.Client(address, timeout=30) as client:
        return client.experiment("shop").status().totals.rewarded


def python(framework: str, address: str) -> dict[str, Any]:
    code = documented("docs/integrate/python.md", "python", framework).replace(ADDRESS, address)
    names: dict[str, Any] = {}
    exec(compile(code, framework, "exec"), names)
    return names


def test_flask(address: str) -> None:
    before, names = rewarded(address), python("Flask(", address)
    with names["app"].test_client() as browser:
        shown = browser.get("/flask").text
        assert shown in BUTTONS
        assert browser.post("/flask").text == shown
        stranger = browser.post("/stranger")
        assert (stranger.status_code, stranger.text in BUTTONS) == (200, True)
    names["shop"].client.close()
    assert rewarded(address) == before + 1


def test_fastapi(address: str) -> None:
    before, names = rewarded(address), python("FastAPI(", address)
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
    code = documented("docs/integrate/javascript.md", "js", "express()")
    program.write_text(code.replace(ADDRESS, address).replace("3000", str(port)))
    with (tmp_path / "log").open("w+") as log:
        running = subprocess.Popen(["node", str(program)], cwd=SDK, stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}/express"
            until(lambda: listens(port))
            shown = read(url)
            assert shown in BUTTONS
            urlopen(Request(url, method="POST"), timeout=60).close()
            until(lambda: rewarded(address) == before + 1)
            assert read(url) == shown
        finally:
            running.terminate()
            running.wait(30)
            program.unlink()
        log.seek(0)
        assert "SteadyArm:" not in log.read()


def listens(port: int) -> bool:
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", port)).close()
        return True
    return False


def read(url: str) -> str:
    with urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())


def test_a_page_without_a_server(visitor: BrowserContext, pages: PageServer, shop: Shop) -> None:
    code = documented("docs/integrate/browser.md", "html", 'id="buy"')
    patient = code.replace('flags: ["shop"]', 'flags: ["shop"], timeout: 20_000')
    pages.pages["/plain"] = patient.replace(ADDRESS, shop.url).replace("pk_…", shop.keys["web"])
    before = shop.counts()
    page = visitor.new_page()
    page.goto("/plain")
    expect(page.locator("#buy")).to_have_text(re.compile("Buy [ABC]"))
    page.click("#buy")
    until_counts(shop, (before[0] + 1, before[1] + 1))
