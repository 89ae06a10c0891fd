"""Publishable keys in a real browser: the guide's page, from its own origin and from others."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import httpx2
import pytest
from playwright.sync_api import Browser, expect

import steadyarm as sa
from steadyarm.service.auth import new_key, new_token
from steadyarm.signing import signed_unit
from steadyarm.storages import open_storage
from tests.client.servers import serving

GUIDE = (Path(__file__).parents[3] / "docs/guides/browser.md").read_text()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def hosted(folder: Path) -> Iterator[str]:
    """A web server for pages of its own origin."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=folder)) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("declared", [True, False])
def test_the_page_of_the_guide(tmp_path: Path, browser: Browser, declared: bool) -> None:
    pages, url = tmp_path / "pages", f"sqlite:///{tmp_path}/service.db"
    pages.mkdir()
    with hosted(pages) as origin, closing(open_storage(url)) as storage:
        sa.create_experiment("shop", ["B", "C"], sa.Steady(), 100, storage=storage, missing="drop")
        key, record = new_key("web", ["shop"], [origin if declared else "https://shop.example"])
        storage.add_token(record)
        token, record = new_token("me", "read")
        storage.add_token(record)
        with serving(tmp_path) as service, closing(browser.new_context()) as person:
            found = re.search(r"```html\n(.*?)```", GUIDE, re.DOTALL)
            assert found
            script = found[1].replace("pk_…", key).replace("https://tests.example.org", service)
            (pages / "index.html").write_text(f"<body><button id=buy>Buy</button>{script}</body>")
            page = person.new_page()
            page.goto(origin)
            variant = re.compile("B|C" if declared else "A")
            expect(page.locator("body")).to_have_attribute("data-variant", variant)
            if declared:
                with page.expect_response(re.compile("/rewards$")) as told:
                    page.click("#buy")
                assert told.value.status == 201
            headers = {"Authorization": f"Bearer {token}"}
            shown = httpx2.get(f"{service}/v1/experiments/shop", headers=headers).json()
            assert sum(shown["assigned"].values()) == sum(shown["rewarded"].values()) == declared
            # Results are not for pages, whatever they try.
            read = """async ([url, key]) => {
                const headers = {Authorization: `Bearer ${key}`};
                try { return (await fetch(url, {headers})).status } catch { return "not read" } }"""
            assert page.evaluate(read, [f"{service}/v1/experiments", key]) == "not read"
            assert page.evaluate(read, [f"{service}/v1/experiments/shop", key]) == "not read"


def test_node_signs_units_as_the_guide_says(tmp_path: Path) -> None:
    node, found = shutil.which("node"), re.search(r"```js\n(.*?)```", GUIDE, re.DOTALL)
    assert node is not None, "Node is missing; install it with: make browser"
    assert found
    call = 'console.log(JSON.stringify([signUnit("secret", "é 1"), signUnit("secret", "u", 17)]));'
    (tmp_path / "sign.mjs").write_text(found[1] + call)
    printed = subprocess.run([node, tmp_path / "sign.mjs"], capture_output=True, check=True).stdout
    plain, expiring = json.loads(printed)
    assert signed_unit("secret", plain, 0) == "é 1"
    assert expiring == sa.sign_unit("secret", "u", 17)
