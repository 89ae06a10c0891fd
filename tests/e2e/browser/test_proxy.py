"""Behind a real nginx, set up as the guide says, under a path and over https."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser, BrowserContext, expect

import steadyarm as sa
from steadyarm.service.auth import new_key, new_token
from steadyarm.storages import open_storage
from tests.client.servers import serving
from tests.e2e.browser.watching import Watch

GUIDE = (Path(__file__).parents[3] / "docs/guides/production.md").read_text()
SHOP = "https://shop.example"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def _nginx(folder: Path, service: str, strips: bool) -> tuple[list[str], str]:
    """The command that runs nginx with the guide's block, and its address."""
    found = re.search(r"```nginx\n(.*?)```", GUIDE, re.DOTALL)
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    assert found
    assert program is not None, "nginx is missing; install it with: make browser"
    port, certificate = _free_port(), folder / "proxy.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=127.0.0.1", "-keyout", f"{folder}/proxy.key", "-out", certificate),
        ],
        check=True,
        capture_output=True,
    )
    block = found[1]
    for ours, theirs in (
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("/etc/ssl/example.org.pem", f"{certificate}"),
        ("/etc/ssl/example.org.key", f"{folder}/proxy.key"),
        ("http://127.0.0.1:8000", service + ("/" if strips else "")),
    ):
        assert block.count(ours) == 1, ours
        block = block.replace(ours, theirs)
    places = "".join(
        f"{kind}_temp_path {folder}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.log;\n"
        f"events {{}}\nhttp {{\naccess_log off;\n{places}{block}}}\n"
    )
    at = ("-p", f"{folder}", "-c", f"{folder}/nginx.conf", "-e", f"{folder}/nginx.log")
    return [program, *at], f"https://127.0.0.1:{port}"


@contextmanager
def proxied(folder: Path, strips: bool) -> Iterator[tuple[str, str, str]]:
    """The service behind nginx: its address, and a token of an admin and a publishable key."""
    with closing(open_storage(f"sqlite:///{folder}/service.db")) as storage:
        sa.create_experiment("shop", ["A", "B"], sa.Steady(), 400, storage=storage, missing="drop")
        token, record = new_token("me", "admin")
        storage.add_token(record)
        key, record = new_key("web", ["shop"], [SHOP], rate=3)
        storage.add_token(record)
    words = ("--trusted-proxy", "127.0.0.1", "--root-path", "/ab", "--allowed-host", "127.0.0.1")
    with serving(folder, *words) as service:
        command, address = _nginx(folder, service.removesuffix("/ab"), strips)
        with subprocess.Popen(command) as process:
            try:
                for _ in range(200):
                    try:
                        httpx2.get(f"{address}/ab/healthz", verify=False).raise_for_status()
                        break
                    except httpx2.HTTPError:
                        assert process.poll() is None, (folder / "nginx.log").read_text()
                        time.sleep(0.05)
                yield f"{address}/ab", token, key
            finally:
                process.terminate()
                process.wait(20)


@contextmanager
def person(browser: Browser, url: str) -> Iterator[tuple[BrowserContext, Watch]]:
    """Somebody whose browser takes the proxy's certificate."""
    with closing(browser.new_context(ignore_https_errors=True)) as found:
        yield found, Watch(found, url)


@pytest.mark.parametrize("strips", [False, True], ids=["path passed on", "path cut off"])
def test_a_person_and_a_program_behind_nginx(
    tmp_path: Path, browser: Browser, strips: bool
) -> None:
    with proxied(tmp_path, strips) as (url, token, key), person(browser, url) as (one, watch):
        page = one.new_page()
        page.goto(f"{url}/experiments/shop")
        assert page.url == f"{url}/sign-in?next=/experiments/shop"
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"{url}/experiments/shop")
        (cookie,) = one.cookies()
        assert (cookie["secure"], cookie["path"]) == (True, "/ab")
        assert cookie["name"].startswith("__Secure-steadyarm-")
        first = f"curl {url}/v1/experiments/shop/assignments"
        expect(page.locator("pre").first).to_contain_text(first)
        with httpx2.Client(base_url=url, verify=False) as api:
            api.headers["Authorization"] = f"Bearer {token}"
            for i in range(300):
                unit = f"u{i}"
                place = "/v1/experiments/shop"
                assert api.post(f"{place}/assignments", json={"unit": unit}).status_code == 201
                api.post(f"{place}/rewards", json={"unit": unit, "reward": i % 2})
            assert api.get("/openapi.json").json()["servers"] == [{"url": "/ab"}]
        # The page renews itself, draws its charts and loads what is below it, all under the path.
        expect(page.locator(".js-plotly-plot").first).to_be_visible()
        page.locator("details[data-table] > summary").first.click()
        expect(page.locator("details[data-table] table").first).to_be_visible()
        page.get_by_role("link", name="Experiments").first.click()
        page.wait_for_url(f"{url}/")
        page.get_by_role("link", name="New experiment").first.click()
        page.wait_for_url(f"{url}/new")
        page.get_by_label("Name").first.fill("second")
        page.goto(f"{url}/experiments/shop/stop")
        page.get_by_role("button", name="Stop").click()
        page.wait_for_url(f"{url}/experiments/shop")
        expect(page.get_by_role("heading", level=1)).to_contain_text("topped")
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_url(f"{url}/sign-in")
        page.goto(f"{url}/experiments/shop")
        assert page.url == f"{url}/sign-in?next=/experiments/shop"
        watch.check()
        _check_limits(url, key)


def _check_limits(url: str, key: str) -> None:
    """The rate is that of the visitor, whatever the visitor writes into the header."""
    # From another address than the proxy's, which is trusted.
    other = httpx2.HTTPTransport(verify=False, local_address="127.0.0.2")
    with httpx2.Client(base_url=url, transport=other) as visitor:
        visitor.headers.update({"X-API-Key": key, "Origin": SHOP})
        found = []
        for i in range(5):
            made_up = {"X-Forwarded-For": f"198.51.100.{i}"}
            place = "/v1/experiments/shop/rewards"
            sent = visitor.post(place, json={"unit": "u1", "reward": 1}, headers=made_up)
            found.append(sent.status_code)
        assert found == [200, 200, 200, 429, 429]
