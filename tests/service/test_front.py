"""Behind a proxy: a path of its own, and whose word on the sender is believed."""

from __future__ import annotations

from typing import Any

import pytest

from steadyarm.dashboard.app import create_app as create_dashboard
from steadyarm.errors import InvalidInputError
from steadyarm.live.lifecycle import create_experiment
from steadyarm.policies import Steady
from steadyarm.service import auth
from steadyarm.service.settings import OWN_PATHS, ServiceSettings
from steadyarm.storages import open_storage
from tests.service.clients import SHOP, InProcess, in_process

ORIGIN = "https://shop.example"
PROXY, INNER, ELSEWHERE = "10.0.0.1", "10.0.0.2", "203.0.113.9"


def come_from(client: InProcess, address: str) -> None:
    transport: Any = client._client._transport
    transport.client = (address, 5)


def test_the_rate_counts_the_visitor_behind_a_trusted_proxy_and_nobody_elses_word() -> None:
    storage = open_storage("memory")
    create_experiment("shop", ["A", "B"], Steady(), 100, storage=storage, missing="drop")
    key, record = auth.new_key("web", ["shop"], [ORIGIN], rate=5)
    storage.tokens.add(record)
    hosts = ("127.0.0.1", "tests.example.org")
    with in_process(storage, trusted_proxies=(PROXY,), allowed_hosts=hosts) as client:
        page = {"Authorization": f"Bearer {key}", "Origin": ORIGIN}

        def asked(forwarded: str) -> int:
            headers = page | {"X-Forwarded-For": forwarded}
            place = "/v1/experiments/shop/assignments"
            return client.post(place, {"unit": "u"}, headers=headers).status_code

        come_from(client, PROXY)
        assert [asked("198.51.100.7") for _ in range(6)][-2:] == [200, 429]
        assert asked("198.51.100.8") == 200
        # Whatever a visitor writes stands before what the proxy adds.
        assert asked("1.2.3.4, 198.51.100.7") == 429
        come_from(client, ELSEWHERE)
        assert [asked(f"198.51.100.{i}") for i in range(20, 26)][-2:] == [200, 429]


@pytest.mark.parametrize("proxies", [(), ("127.0.0.1",)])
def test_before_the_first_token_nobody_from_elsewhere_gets_in(proxies: tuple[str, ...]) -> None:
    with in_process(trusted_proxies=proxies) as client:
        assert client.get("/v1/experiments").status_code == 200
        for forwarded in ("127.0.0.1", "::1", "198.51.100.7"):
            headers = {"X-Forwarded-For": forwarded}
            assert client.get("/v1/experiments", headers=headers).status_code == 403
        come_from(client, ELSEWHERE)
        answer = client.get("/v1/experiments", headers={"Host": "localhost"})
        assert answer.status_code == 403
        assert "another machine" in answer.json()["detail"]


# A path of its own


@pytest.mark.parametrize("prefix", ["/ab", ""])
def test_requests_come_with_the_root_path_or_without(prefix: str) -> None:
    with in_process(root_path="/ab/") as client:
        assert client.post(f"{prefix}/v1/experiments", SHOP).status_code == 201
        assert client.get(f"{prefix}/healthz").status_code == 200
        assert client.get(f"{prefix}/v1/experiments/shop").status_code == 200
        assert client.get(f"{prefix}/openapi.json").json()["servers"] == [{"url": "/ab"}]
        for wrong in ("/abc", "/a", "/ab/ab", "/AB", "/ab/"):
            assert client.get(f"{wrong}/healthz").status_code == 404, wrong


def test_root_paths_of_our_own_pages_are_refused() -> None:
    storage = open_storage("memory")
    app = create_dashboard(storage)
    paths = {str(getattr(route, "path", "")).split("/")[1] for route in app.routes}
    assert paths - {""} <= OWN_PATHS
    for path in OWN_PATHS:
        with pytest.raises(InvalidInputError, match="which is a page of the service"):
            ServiceSettings(root_path=f"/{path}/ab")
    storage.close()


@pytest.mark.parametrize(
    ("setting", "wrong", "match"),
    [
        (
            "root_path",
            ("ab", "/a b", "/ab?", "/ab#", "//ab", "/ab/../c", "/.", "/é", "/%61"),
            "such as /ab",
        ),
        (
            "trusted_proxies",
            ("proxy", "*", "0.0.0.0/0", "::/0", "", "10.0.0.1:80", "10.0.0.0/99"),
            "trusted_proxies has",
        ),
        (
            "allowed_hosts",
            ("https://example.org", "example.org:443", "a b", "*.example.org", ""),
            "without scheme and port",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    setting: str, wrong: tuple[str, ...], match: str
) -> None:
    for value in wrong:
        given: Any = value if setting == "root_path" else (value,)
        with pytest.raises(InvalidInputError, match=match):
            ServiceSettings(**{setting: given})


def test_settings_come_from_the_environment() -> None:
    variables = {
        "STEADYARM_PORT": "0",
        "STEADYARM_REQUEST_TIMEOUT": "2.5",
        "STEADYARM_ACCESS_LOG": "false",
        "STEADYARM_ALLOWED_HOSTS": "a.example.org, 10.0.0.7",
        "STEADYARM_ROOT_PATH": "/ab/",
        "PORT": "1",
    }
    hosts = ("a.example.org", "10.0.0.7")
    expected = ServiceSettings(
        port=0, request_timeout=2.5, access_log=False, allowed_hosts=hosts, root_path="/ab"
    )
    assert ServiceSettings.from_environment(variables) == expected
    assert ServiceSettings.from_environment(variables, port=82).port == 82
    with pytest.raises(InvalidInputError, match="STEADYARM_PORT is 'x'"):
        ServiceSettings.from_environment({"STEADYARM_PORT": "x"})
